"""Index files and queues that Spark builds, and builds that are killed."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from rocketlens.errors import BadInput, NotAStore, StoreError, StoreLocked
from rocketlens.formats.index_file import Geometry
from rocketlens.store.lock import StoreLock
from tests.support.effort import sized
from tests.support.patience import PATIENCE_S
from tests.support.synthetic import (
    START_MS,
    copy_without,
    files_below,
    record,
    reference_index,
    reference_queue,
    write_log,
)

SETTINGS = {"slot_count": 500, "entry_count": 1000, "queue_file_size": 20_000}
GOLDEN = [(v, kind) for v in ("4.9.7", "5.5.0") for kind in ("store", "crashed")]


def dispatch(*arguments, **options):
    from rocketlens.pipeline.dispatch import dispatch

    return dispatch(*arguments, **options)


def index_of(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "index").iterdir())]


@pytest.mark.parametrize(("version", "kind"), GOLDEN)
def test_index_and_queues_rebuilt_from_the_log_alone_equal_the_brokers(
    spark, golden, tmp_path, version, kind
):
    real = getattr(golden(version), kind)
    store = copy_without(real, tmp_path / "store", "index", "consumequeue")
    result = dispatch(spark.sparkContext, store, queues=True, **SETTINGS)
    assert index_of(store) == index_of(real)
    assert files_below(store / "consumequeue") == files_below(real / "consumequeue")
    assert result.delay_levels.source == "delivered copies"
    assert (result.damage_count, result.torn, result.notes) == (0, None, [])


@pytest.mark.parametrize(("version", "kind"), GOLDEN)
def test_what_is_not_given_is_found_in_the_stores_own_files(spark, golden, tmp_path, version, kind):
    real = getattr(golden(version), kind)
    result = dispatch(
        spark.sparkContext, real, out=tmp_path / "out", queues=True, range_bytes=1 << 16
    )
    assert index_of(tmp_path / "out") == index_of(real)
    assert files_below(tmp_path / "out" / "consumequeue") == files_below(real / "consumequeue")
    assert result.geometry == Geometry(500, 1000)
    assert result.tag_index == (version == "5.5.0")
    assert result.delay_levels.source == "consume queues"


def some_records(count: int, **options: str) -> list:
    return [
        record(
            number,
            queue_id=number % 3,
            queue_offset=number // 3,
            KEYS=" ".join(f"k{number % divisor}" for divisor in (5, 7, 11)[: number % 4]),
            TAGS=f"tag{number % 4}",
            **options,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("with_tags", [False, True])
@pytest.mark.parametrize(
    ("slots", "entries"), [(1, 2), (1, 50), (7, 3), (64, 1000), (1000, 100), (10_007, 5000)]
)
def test_any_slot_and_entry_counts_give_the_files_of_the_plain_rules(
    spark, tmp_path, slots, entries, with_tags
):
    count = 40 if entries < 10 else 400
    records = write_log(tmp_path, some_records(count), 20_000)
    result = dispatch(
        spark.sparkContext,
        tmp_path,
        slot_count=slots,
        entry_count=entries,
        tag_index=with_tags,
        range_bytes=1,
    )
    expected = reference_index(records, Geometry(slots, entries), with_tags=with_tags)
    assert index_of(tmp_path) == expected
    assert result.index_files == len(expected)


def test_index_files_are_named_by_their_first_entrys_time_and_always_rise(monkeypatch):
    import time

    from rocketlens.store.layout import index_file_name as file_name

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        first = file_name(START_MS, "")
        assert first == "20231114221320000"
        assert file_name(START_MS, first) == "20231114221320001"
        assert file_name(START_MS - 5000, "20231231235959999") == "20240101000000000"
        assert file_name(2**62, "") > first
        assert file_name(-1, "") == "19700101000000000"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_records_forged_inside_bodies_at_range_boundaries_change_nothing(spark, tmp_path):
    """Bodies are full of records that claim exactly the place they stand at."""
    from msgspec.structs import replace

    from rocketlens.formats import commitlog_record

    honest = [record(n, body=bytes(3000)) for n in range(60)]
    written = write_log(tmp_path / "plain", honest, 1 << 20)
    forged = []
    for one in written:
        body = b""
        while len(body) < 2700:
            fake = record(9, topic="Forged", body=b"", queue_offset=len(body))
            fake = replace(fake, physical_offset=one.physical_offset + 84 + len(body))
            body += commitlog_record.encode(fake)
        forged.append(replace(one, body=body[:3000].ljust(3000, b"\0")))
    records = write_log(tmp_path / "forged", forged, 1 << 20)
    result = dispatch(
        spark.sparkContext, tmp_path / "forged", queues=True, range_bytes=1, tag_index=False,
        slot_count=100, entry_count=1000, queue_file_size=2000,
    )  # fmt: skip
    assert result.records == 60
    assert result.damage_count == 0
    geometry = Geometry(100, 1000)
    assert index_of(tmp_path / "forged") == reference_index(records, geometry, with_tags=False)
    assert {path.name for path in (tmp_path / "forged" / "consumequeue").iterdir()} == {"Topic"}


def test_queue_files_begin_where_the_log_does_and_are_filled_below(spark, tmp_path):
    records = write_log(
        tmp_path, [record(n, queue_offset=n + 1234, TAGS="ä") for n in range(100)], 1 << 20
    )
    dispatch(spark.sparkContext, tmp_path, queues=True, **SETTINGS | {"queue_file_size": 1000})
    found = files_below(tmp_path / "consumequeue" / "Topic" / "0")
    assert found == reference_queue(records, 50)
    assert min(found) == f"{1200 * 20:020}"


def test_a_queue_with_lost_and_repeated_records_keeps_every_other_in_its_place(spark, tmp_path):
    offsets = [5, 6, 7, 12, 13, 6, 13, 14, 15, 120, 121]
    bodies = [b"", b"", b"", bytes(600), b"", b"", b"", b"", b"", bytes(12_000), b""]
    both = zip(offsets, bodies, strict=True)
    log = [record(n, queue_offset=at, body=body) for n, (at, body) in enumerate(both)]
    # Lost records leave their bytes behind, so a hole needs room for them in the log.
    log.insert(3, record(90, topic="Other", queue_offset=0, body=bytes(600)))
    log.insert(10, record(91, topic="Other", queue_offset=1, body=bytes(12_000)))
    records = write_log(tmp_path, log, 1 << 20)
    result = dispatch(
        spark.sparkContext, tmp_path, queues=True, **SETTINGS | {"queue_file_size": 1000}
    )
    found = files_below(tmp_path / "consumequeue" / "Topic" / "0")
    assert found == reference_queue([r for r in records if r.topic == "Topic"], 50)
    assert result.notes == ["2 records with a queue offset that another record has"]


@pytest.mark.parametrize(("place", "claim"), [(0, 2**40), (5, -1), (19, 2**62)])
def test_an_impossible_queue_offset_costs_its_own_entry_only(spark, tmp_path, place, claim):
    log = [record(n, queue_offset=claim if n == place else n) for n in range(20)]
    records = write_log(tmp_path, log, 1 << 20)
    result = dispatch(
        spark.sparkContext, tmp_path, queues=True, **SETTINGS | {"queue_file_size": 1000}
    )
    assert result.queue_entries == 19
    assert result.notes == ["1 record with an impossible queue offset"]
    found = files_below(tmp_path / "consumequeue" / "Topic" / "0")
    assert found == reference_queue([r for r in records if r.queue_offset != claim], 50)


def test_prepared_and_rollback_records_have_no_queue_entry_and_rollbacks_no_index_entry(
    spark, tmp_path
):
    from msgspec.structs import replace

    flags = [0x0, 0x4, 0x8, 0xC]
    log = [replace(record(n, queue_offset=n // 2), sys_flag=flag) for n, flag in enumerate(flags)]
    records = write_log(tmp_path, log, 1 << 20)
    result = dispatch(spark.sparkContext, tmp_path, queues=True, **SETTINGS)
    assert (result.queue_entries, result.index_entries) == (2, 6)
    assert index_of(tmp_path) == reference_index(records[:3], Geometry(500, 1000), with_tags=False)


def test_topics_whose_name_is_no_safe_path_get_no_queue_and_are_named(spark, tmp_path):
    write_log(tmp_path / "store", [record(0, topic="../../x"), record(1, queue_offset=0)], 1 << 16)
    result = dispatch(spark.sparkContext, tmp_path / "store", queues=True, **SETTINGS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    assert [path.name for path in (tmp_path / "store" / "consumequeue").iterdir()] == ["Topic"]
    assert "../../x" in result.notes[0]


@pytest.mark.parametrize(
    ("levels", "source"), [([0, 5000, 6000], "argument"), (None, "RocketMQ's defaults")]
)
def test_delay_levels_are_taken_from_the_best_source_and_it_is_said(
    spark, tmp_path, levels, source
):
    schedule = {"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 1, "DELAY": "2"}
    (one,) = write_log(tmp_path, [record(0, **schedule)], 1 << 16)
    result = dispatch(spark.sparkContext, tmp_path, queues=True, delays_ms=levels, **SETTINGS)
    (queue,) = files_below(tmp_path / "consumequeue").values()
    due = int.from_bytes(queue[12:20], "big")
    assert due == one.store_timestamp_ms + (levels[2] if levels else 5000)
    assert result.delay_levels.source == source


def test_a_damaged_record_costs_its_own_entries_only_and_is_named(spark, tmp_path):
    records = write_log(tmp_path, some_records(200), 20_000)
    victim = records[77]
    path = tmp_path / "commitlog" / f"{victim.physical_offset // 20_000 * 20_000:020}"
    geometry = Geometry(64, 2000)
    sound = [one for one in records if one is not victim]
    expected = reference_index(sound, geometry, with_tags=True)
    content = path.read_bytes()
    at = victim.physical_offset % 20_000
    for place in sized((0, 35, 84), (0, 3, 4, 7, 30, 35, 84)):  # size, magic, own offset, body
        damaged = bytearray(content)
        damaged[at + place] ^= 0x40
        path.write_bytes(damaged)
        result = dispatch(
            spark.sparkContext, tmp_path, tag_index=True, slot_count=64, entry_count=2000
        )
        assert index_of(tmp_path) == expected
        assert [(d.start, d.stop) for d in result.damage] == [
            (victim.physical_offset, victim.physical_offset + victim.total_size)
        ]
        assert path.read_bytes() == damaged


def test_a_missing_segment_and_zeros_in_the_middle_are_named(spark, tmp_path):
    records = write_log(tmp_path, some_records(300), 10_000)
    segments = sorted((tmp_path / "commitlog").iterdir())
    segments[1].unlink()
    content = bytearray(segments[2].read_bytes())
    content[5000:] = bytes(len(content) - 5000)
    segments[2].write_bytes(content)
    result = dispatch(spark.sparkContext, tmp_path, tag_index=True, slot_count=64, entry_count=2000)
    in_zeros = [
        one
        for one in records
        if 20_000 <= one.physical_offset < 30_000 and one.physical_offset + one.total_size > 25_000
    ]
    lost = [r for r in records if 10_000 <= r.physical_offset < 20_000] + in_zeros
    sound = [one for one in records if one not in lost]
    assert index_of(tmp_path) == reference_index(sound, Geometry(64, 2000), with_tags=True)
    assert [(d.start, d.stop) for d in result.damage] == [
        (10_000, 20_000),
        (in_zeros[0].physical_offset, 30_000),
    ]


def test_a_torn_tail_is_cut_and_told_apart_from_damage(spark, tmp_path):
    records = write_log(tmp_path, some_records(50), 1 << 16)
    path = tmp_path / "commitlog" / f"{0:020}"
    content = bytearray(path.read_bytes())
    end = records[-1].physical_offset + records[-1].total_size
    half = end - records[-1].total_size // 2  # a tear behind the lengths can't be seen
    content[half:] = bytes(len(content) - half)
    path.write_bytes(content)
    result = dispatch(spark.sparkContext, tmp_path, tag_index=True, slot_count=64, entry_count=2000)
    assert index_of(tmp_path) == reference_index(records[:-1], Geometry(64, 2000), with_tags=True)
    assert result.damage_count == 0
    assert result.torn.start == records[-1].physical_offset == result.log_end_offset


def test_an_empty_log_gives_an_empty_index(spark, tmp_path):
    write_log(tmp_path, [], 1 << 16)
    result = dispatch(spark.sparkContext, tmp_path, queues=True)
    assert (result.index_files, result.queue_files, result.records) == (0, 0, 0)
    assert index_of(tmp_path) == []


@pytest.mark.parametrize("out", sized([None, "link"], [None, ".", "index/..", "link"]))
def test_queues_without_a_record_of_their_own_are_kept(spark, tmp_path, monkeypatch, out):
    write_log(tmp_path, [record(0)], 1 << 16)
    (tmp_path / "commitlog" / f"{0:020}").rename(tmp_path / "commitlog" / f"{1 << 16:020}")
    write_log(tmp_path / "moved", [record(0)], 1 << 16)
    light = tmp_path / "consumequeue" / "%LMQ%a" / "0" / f"{0:020}"
    expired = tmp_path / "consumequeue" / "Old" / "3" / f"{0:020}"
    stray = tmp_path / "consumequeue" / "Stray" / "0" / f"{0:020}"
    for path, offset in ((light, 1 << 16), (expired, 5), (stray, 1 << 16)):
        path.parent.mkdir(parents=True)
        entry = offset.to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
        path.write_bytes(entry.ljust(200, b"\0"))
    before = files_below(tmp_path / "consumequeue")
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to(tmp_path)
    Path("index").mkdir()
    result = dispatch(spark.sparkContext, tmp_path, queues=True, out=out)
    after = files_below(tmp_path / "consumequeue")
    assert after == {name: content for name, content in before.items() if "Stray" not in name}
    assert len(result.notes) == 2


def test_consume_queues_in_rocksdb_are_never_replaced(spark, tmp_path):
    write_log(tmp_path, [record(0)], 1 << 16)
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "CURRENT").write_text("MANIFEST-000004")
    for out in (None, tmp_path / "commitlog" / ".."):
        with pytest.raises(BadInput, match="RocksDB"):
            dispatch(spark.sparkContext, tmp_path, queues=True, out=out)
    assert dispatch(spark.sparkContext, tmp_path).index_entries == 2


def test_a_store_that_a_broker_runs_on_is_refused_and_untouched(spark, tmp_path):
    write_log(tmp_path, [record(0)], 1 << 16)
    leftover = tmp_path / ".rocketlens-work-of-someone"
    leftover.mkdir()
    with StoreLock(tmp_path), pytest.raises(StoreLocked):
        dispatch(spark.sparkContext, tmp_path)
    assert leftover.is_dir()
    assert not (tmp_path / "index").exists()
    dispatch(spark.sparkContext, tmp_path)
    assert not leftover.exists()


def test_a_directory_that_is_no_store_is_refused_and_left_alone(spark, tmp_path):
    with pytest.raises(NotAStore):
        dispatch(spark.sparkContext, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"slot_count": -1},
        {"entry_count": 1},
        {"entry_count": 2**30},
        {"queues": True, "queue_file_size": 33},
    ],
)
def test_impossible_counts_and_sizes_are_refused_in_one_line(spark, tmp_path, wrong):
    write_log(tmp_path, [record(0)], 1 << 16)
    with pytest.raises(BadInput) as refusal:
        dispatch(spark.sparkContext, tmp_path, **wrong)
    assert "\n" not in str(refusal.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["commitlog", "lock"]


def test_a_failed_task_leaves_the_store_as_it_was_and_says_why(spark, tmp_path):
    write_log(tmp_path, some_records(50), 1 << 16)
    dispatch(spark.sparkContext, tmp_path, slot_count=10, entry_count=1000)
    before = files_below(tmp_path)

    def cut_the_log(phase, done, total):
        if phase == "read" and done == 0:
            path.unlink()

    path = tmp_path / "commitlog" / f"{0:020}"
    content = path.read_bytes()
    with pytest.raises(StoreError, match=r"read failed: FileNotFoundError.*commitlog") as failure:
        dispatch(
            spark.sparkContext, tmp_path, slot_count=10, entry_count=1000, progress=cut_the_log
        )
    assert "\n" not in str(failure.value)
    path.write_bytes(content)
    assert files_below(tmp_path) == before


def test_progress_is_told_for_every_phase(spark, tmp_path):
    write_log(tmp_path, some_records(50), 1 << 16)
    told = defaultdict(list)
    dispatch(
        spark.sparkContext,
        tmp_path,
        queues=True,
        progress=lambda *say: told[say[0]].append(say[1:]),
    )
    assert list(told) == ["read", "build", "sync", "swap"]
    for steps in told.values():
        assert steps[0][0] == 0
        assert steps[-1][0] == steps[-1][1] > 0
        assert steps == sorted(steps)


def test_the_result_counts_what_was_made(spark, golden, tmp_path):
    real = golden("5.5.0").store
    result = dispatch(spark.sparkContext, real, out=tmp_path, queues=True)
    made = [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "lock"]
    assert result.bytes_written == sum(path.stat().st_size for path in made)
    assert result.index_files + result.queue_files == len(made)
    assert result.queue_entries == result.records
    assert set(result.seconds) == {"read", "build", "sync", "swap"}
    assert not list(tmp_path.glob(".rocketlens*"))


KILLED_JOB = Path(__file__).with_name("killed_job.py")
PARTS = ("commitlog", "consumequeue", "index", "config", "checkpoint")


@pytest.fixture
def store(golden, tmp_path):
    import shutil

    return Path(shutil.copytree(golden("5.5.0").store, tmp_path / "store"))


def content_of(store: Path) -> dict[str, dict[str, bytes]]:
    return {name: files_below(store / name) for name in PARTS[:-1]} | {
        PARTS[-1]: {"": (store / PARTS[-1]).read_bytes()}
    }


POINTS = sized(
    ["build 0", "swap 1", "swap 2"], ["read 0", "build 0", "sync 0", "swap 0", "swap 1", "swap 2"]
)


def assert_nothing_is_half_done(before, store, point: str) -> None:
    """Each directory is the old one or the new one. The new queues are the same bytes as the
    old; the new index has other counts, so other bytes."""
    after = content_of(store)
    changed = {name for name in PARTS if after[name] != before[name]}
    assert changed == ({"index"} if point == "swap 2" else set())


@pytest.mark.parametrize("point", POINTS)
def test_a_job_that_fails_at_any_point_leaves_each_directory_whole(spark, store, point):
    from rocketlens.pipeline.dispatch import dispatch

    class Failure(Exception):
        pass

    def fail(phase, done, total):
        if f"{phase} {done}" == point:
            raise Failure

    before = content_of(store)
    with pytest.raises(Failure):
        dispatch(
            spark.sparkContext, store, queues=True, slot_count=7, entry_count=500, progress=fail
        )
    assert_nothing_is_half_done(before, store, point)
    assert not list(store.glob(".rocketlens-work-*"))


@pytest.mark.parametrize("point", [pytest.param("build 0", marks=pytest.mark.slow), "swap 1"])
def test_a_killed_job_leaves_each_directory_whole_and_the_next_run_cleans_up(spark, store, point):
    from rocketlens.pipeline.dispatch import dispatch

    before = content_of(store)
    command = [sys.executable, KILLED_JOB, store, *point.split()]
    died = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    assert died.returncode == -9, died.stderr.decode()
    assert_nothing_is_half_done(before, store, point)
    assert list(store.glob(".rocketlens-work-*"))

    dispatch(spark.sparkContext, store, queues=True, slot_count=500, entry_count=1000)
    assert list(content_of(store)["index"].values()) == list(before["index"].values())
    assert content_of(store)["consumequeue"] == before["consumequeue"]
    assert not list(store.glob(".rocketlens-work-*"))
