"""``rocketlens doctor`` over an archive."""

import pytest

import rocketlens
from rocketlens.cli.doctor import doctor_sources as doctor_archive
from tests.support.archives import archive_of_days, archive_store
from tests.support.synthetic import record, write_log

pytest.importorskip("deltalake")


@pytest.fixture
def lake(tmp_path):
    return archive_of_days(tmp_path)


def line_of(done, name):
    return next(line for line in done.out.splitlines() if line.split()[1] == name)


def test_a_whole_archive_is_ok_with_what_it_has_of_each_source(run, lake):
    done = run("doctor", "--archive", lake)
    assert done.code == 0
    assert line_of(done, "archive").startswith("ok")
    assert "DefaultCluster/broker-a: 120 messages archived" in line_of(done, "source")
    assert line_of(done, "gaps").startswith("ok")
    assert line_of(done, "files").split(maxsplit=2)[2] == "24 files can be opened"


def test_the_archive_of_a_context_is_checked(run, lake, monkeypatch, tmp_path):
    (tmp_path / "config.toml").write_text(f'[contexts.old]\narchive = "{lake}"\n')
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(tmp_path / "config.toml"))
    done = run("doctor", "--context", "old")
    assert (done.code, line_of(done, "archive").split()[0]) == (0, "ok")


def test_a_file_that_is_gone_or_damaged_is_a_failure(run, lake):
    gone, damaged = sorted(lake.glob("messages/*/*.parquet"))[:2]
    gone.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-100])
    done = run("doctor", "--archive", lake)
    assert done.code == 1
    failed = [line for line in done.out.splitlines() if line.startswith("fail")]
    assert {path for path in (gone, damaged) if any(str(path) in each for each in failed)} == {
        gone,
        damaged,
    }
    assert "restore it from a backup" in done.out


def test_a_file_that_was_replaced_meanwhile_is_no_failure(lake, monkeypatch):
    with rocketlens.open_archive(lake) as archive:
        lost = archive.source.reader.listing.keys[0]
        monkeypatch.setattr(
            doctor_archive,
            "_problem",
            lambda _, file: "it is gone" if file is lost else None,
        )
        monkeypatch.setattr(
            archive.source, "refresh", lambda: archive.source.reader.listing.keys.remove(lost)
        )
        assert [each.state for each in doctor_archive._files(archive.source)] == ["ok"]


def test_a_gap_is_a_warning(run, tmp_path):
    store = tmp_path / "store"
    write_log(store, map(record, range(30)), 1 << 14)
    (segment,) = (store / "commitlog").iterdir()
    content = segment.read_bytes()
    at = content.index(b"body", 1000)
    segment.write_bytes(content[:at] + b"BODY" + content[at + 4 :])
    archive_store(tmp_path / "lake", store)
    done = run("doctor", "--archive", tmp_path / "lake")
    assert done.code == 0
    assert line_of(done, "gap").startswith("warn")
    assert "checksum" in line_of(done, "gap")


def test_what_is_no_archive_is_a_failure(run, tmp_path):
    done = run("doctor", "--archive", tmp_path)
    assert done.code == 1
    assert "is not an archive" in line_of(done, "archive")


def test_an_archive_beside_another_source_is_refused(run, lake):
    done = run("doctor", "--archive", lake, "--store", lake)
    assert (done.code, "stands alone" in done.err) == (2, True)
