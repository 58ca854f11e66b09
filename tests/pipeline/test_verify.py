import shutil
from pathlib import Path

import pytest

from rocketlens.errors import StoreError
from tests.conftest import fingerprint


def verify(*arguments, **options):
    from rocketlens.pipeline.verify import verify

    return verify(*arguments, **options)


def kinds(report) -> dict[str, int]:
    return {str(kind): count for kind, count in report.counts.items()}


@pytest.fixture
def store(golden, tmp_path) -> Path:
    return Path(shutil.copytree(golden("5.5.0").store, tmp_path / "store"))


def change(path: Path, at: int, new: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(new)] = new
    path.write_bytes(content)


def index_files(store: Path) -> list[Path]:
    return sorted((store / "index").iterdir())


@pytest.mark.parametrize(
    ("version", "kind", "range_bytes"),
    [
        ("4.9.7", "store", 1 << 26),
        ("5.5.0", "crashed", 1 << 16),
        pytest.param("4.9.7", "crashed", 1 << 16, marks=pytest.mark.slow),
        pytest.param("5.5.0", "store", 1 << 26, marks=pytest.mark.slow),
    ],
)
def test_a_real_store_has_nothing_wrong_however_it_was_closed(
    spark, golden, version, kind, range_bytes
):
    report = verify(spark.sparkContext, getattr(golden(version), kind), range_bytes=range_bytes)
    assert report.is_sound, report.findings
    assert report.records == report.queue_entries > 1800
    assert report.index_entries > 5000


def test_verifying_changes_nothing(spark, store):
    (store / "index" / "stray").write_text("x")
    before = fingerprint(store)
    verify(spark.sparkContext, store)
    assert fingerprint(store) == before


def test_a_store_rebuilt_by_us_has_nothing_wrong(spark, store):
    from rocketlens.pipeline.dispatch import dispatch

    shutil.rmtree(store / "index")
    dispatch(spark.sparkContext, store, queues=True, slot_count=97, entry_count=501)
    assert verify(spark.sparkContext, store).is_sound


def test_a_destroyed_record_is_named_with_the_entries_that_lead_to_it(spark, store):
    change(store / "commitlog" / f"{0:020}", 0x327 + 4, b"\0\0\0\0")
    report = verify(spark.sparkContext, store)
    assert kinds(report) == {"log damage": 1, "queue entry extra": 1, "index entry extra": 3}
    assert {one.physical_offset for one in report.findings} == {0x327}


@pytest.mark.parametrize("name", ["slot", "hash", "time"])
def test_each_kind_of_damage_in_an_index_file_is_named(spark, store, name):
    path = index_files(store)[2]
    entries = 40 + 500 * 4
    slot = next(n for n in range(500) if any(path.read_bytes()[40 + 4 * n : 44 + 4 * n]))
    at, new, expected = {
        "slot": (40 + 4 * slot, bytes(4), {"index chain": 1}),
        "hash": (
            entries + 20 * 300,
            (5).to_bytes(4, "big"),
            {"index chain": 1, "index entry extra": 1, "index entry missing": 1},
        ),
        "time": (entries + 20 * 300 + 12, (9).to_bytes(4, "big"), {"index entry time": 1}),
    }[name]
    change(path, at, new)
    report = verify(spark.sparkContext, store)
    assert kinds(report) == expected
    assert {one.file for one in report.findings} <= {str(path), None}


def test_a_missing_last_index_file_is_a_note_in_a_store_that_was_not_closed(spark, store):
    index_files(store)[-1].unlink()
    assert set(kinds(verify(spark.sparkContext, store))) == {"index entry missing"}
    (store / "abort").touch()
    report = verify(spark.sparkContext, store)
    assert report.is_sound
    assert any("not indexed, yet" in note for note in report.notes)


def test_index_files_cut_emptied_or_with_strange_names_are_named(spark, store):
    paths = index_files(store)
    paths[2].write_bytes(paths[2].read_bytes()[:10_000])
    paths[3].write_bytes(b"")
    (store / "index" / "readme.txt").write_text("hello")
    report = verify(spark.sparkContext, store)
    assert kinds(report)["index file"] == 3
    assert kinds(report)["index entry missing"] == 2 * 999


def test_an_index_of_another_store_is_named(spark, golden, store):
    shutil.rmtree(store / "index")
    shutil.copytree(golden("4.9.7").store / "index", store / "index")
    report = verify(spark.sparkContext, store)
    other = [one for one in report.findings if "another store" in one.detail]
    assert other
    assert kinds(report)["index entry missing"] > 5000


def test_a_missing_queue_is_every_record_of_it_missing(spark, store):
    shutil.rmtree(store / "consumequeue" / "T22" / "2")
    report = verify(spark.sparkContext, store)
    assert set(kinds(report)) == {"queue entry missing"}
    assert kinds(report)["queue entry missing"] > 100


@pytest.mark.parametrize("content", [b"short", (2**62).to_bytes(8, "big") * 600])
def test_a_checkpoint_that_cannot_be_is_named(spark, store, content):
    (store / "checkpoint").write_bytes(content)
    assert kinds(verify(spark.sparkContext, store)) == {"checkpoint": 1}


def test_a_missing_checkpoint_is_a_note(spark, store):
    (store / "checkpoint").unlink()
    report = verify(spark.sparkContext, store)
    assert report.is_sound
    assert "no checkpoint" in report.notes[0]


def test_entries_of_deleted_segments_are_normal(spark, store):
    (store / "commitlog" / f"{0:020}").unlink()
    report = verify(spark.sparkContext, store)
    assert report.is_sound, report.findings
    assert any("which is normal" in note for note in report.notes)


@pytest.mark.parametrize("times", [1, 3])
def test_a_store_whose_broker_deletes_segments_meanwhile_is_compared_again(
    spark, golden, tmp_path, times
):
    store = Path(shutil.copytree(golden("4.9.7").store, tmp_path / "store"))
    left = sorted((store / "commitlog").iterdir())[:times]

    def clean(phase, done, _):
        if (phase, done) == ("log", 0) and left:
            left.pop(0).unlink()

    if times == 1:
        report = verify(spark.sparkContext, store, progress=clean)
        assert report.is_sound, report.findings
        assert any("which is normal" in note for note in report.notes)
    else:
        with pytest.raises(StoreError, match="deleted segments during each of 3 attempts"):
            verify(spark.sparkContext, store, progress=clean)
