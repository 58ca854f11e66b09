"""``rocketlens archive run``: what it is told to archive."""

import os
import signal
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from rocketlens import open_archive
from rocketlens.archive.journal import ArchiveTables
from rocketlens.cli.jobs import archive as archive_run
from rocketlens.errors import ArchiveError
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tap_note import TapNote
from tests.support.object_store import BUCKET, object_store
from tests.support.synthetic import record, write_log


@pytest.fixture(autouse=True)
def without_spark(monkeypatch):
    """Tasks run here, one after another."""
    monkeypatch.setattr("rocketlens.pipeline.session.check_available", lambda **_: None)
    monkeypatch.setattr("rocketlens.cli.jobs.archive.task_context", lambda _: None)
    monkeypatch.setattr(
        "rocketlens.pipeline.jobs.run", lambda _s, _p, tasks, work, _shown: list(map(work, tasks))
    )


@pytest.fixture
def handlers():
    """What signals do is as before again."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_job_runs_until_a_signal_comes(run, golden, tmp_path, monkeypatch, handlers):
    said = []

    def say(line):
        said.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(archive_run, "say", say)
    store = f"broker-a={golden('5.5.0').store}"
    done = run("archive", "run", "--table", tmp_path, "--store", store, "--topic", "Pay*")
    assert done.code == 0, done.err
    assert len(said) == 1
    with open_archive(tmp_path) as archive:
        assert {each.topic for each in archive.scan()} == {"PayTopic"}


def test_days_that_are_not_kept_are_deleted_and_the_others_have_few_files(run, tmp_path):
    now, day = time.time_ns() // 1_000_000, 86_400_000
    for count in (20, 40):
        records = [record(n, store_timestamp_ms=now - day * (n % 4)) for n in range(count)]
        write_log(tmp_path / "store", records, 1 << 14)
        store = f"broker-a={tmp_path / 'store'}"
        command = ("archive", "run", "--table", tmp_path / "lake", "--store", store, "--once")
        done = run(*command, "--keep-days", "2")
        assert done.code == 0, done.err
    with open_archive(tmp_path / "lake") as archive:
        days = {(now - each.store_timestamp_ms) // day for each in archive.scan()}
    assert days == {0, 1, 2}
    counts = Counter(file.day for file in ArchiveTables(str(tmp_path / "lake")).files("messages"))
    # A day is over an hour after its end.
    open_from = str((datetime.fromtimestamp(now / 1000, UTC) - timedelta(hours=1)).date())
    assert counts == {each: 2 if each >= open_from else 1 for each in counts}
    assert len(counts) == 3


@pytest.mark.parametrize("options", [["--decoded"], ["--body-rules", "bodies.toml"], []])
def test_bodies_are_archived_decoded_where_that_is_asked_for(run, golden, tmp_path, options):
    (tmp_path / "bodies.toml").write_text('[[body]]\ntopic = "PayTopic"\ncharset = "gbk"')
    lake, store = tmp_path / "lake", golden("5.5.0").store
    given = [tmp_path / each if each.endswith(".toml") else each for each in options]
    done = run("archive", "run", "--table", lake, "--store", store, "--once", *given)
    assert done.code == 0, done.err
    assert ArchiveTables(str(lake)).is_decoded is bool(options)


def test_rules_for_bodies_that_cannot_be_read_are_refused_before_anything_is_made(
    run, golden, tmp_path
):
    options = ("--table", tmp_path / "lake", "--store", golden("5.5.0").store, "--once")
    done = run("archive", "run", *options, "--body-rules", tmp_path / "none.toml")
    assert (done.code, "rules for bodies" in done.err) == (2, True), done.err
    assert not (tmp_path / "lake").exists()


def test_what_cannot_be_archived_is_named_and_the_exit_code_says_so(run, tmp_path):
    written = write_log(tmp_path / "store", map(record, range(20)), 1 << 14)
    (segment,) = (tmp_path / "store/commitlog").iterdir()
    content = bytearray(segment.read_bytes())
    content[content.index(b"body", written[3].physical_offset)] ^= 1
    segment.write_bytes(content)
    command = ("archive", "run", "--table", tmp_path / "lake", "--once")
    done = run(*command, "--store", f"broker-a={tmp_path / 'store'}")
    assert done.code == 3
    assert "DefaultCluster/broker-a: batch 1, 19 messages" in done.err
    assert f"physical offsets {written[3].physical_offset} to " in done.err
    assert run(*command, "--store", f"broker-a={tmp_path / 'store'}").code == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "no source is named: give --store DIR"),
        (("--store", "{bare}"), "does not name its broker"),
        (("--store", "a={store}", "-n", "127.0.0.1:1"), "give only one"),
        (("-n", "127.0.0.1:1"), "a cluster needs --topic"),
    ],
)
def test_what_is_not_clear_is_refused_before_anything_is_made(
    run, golden, tmp_path, options, error
):
    store, bare = golden("5.5.0").store, tmp_path / "store"
    write_log(bare, map(record, range(3)), 1 << 14)
    filled = [each.format(store=store, bare=bare) for each in options]
    done = run("archive", "run", "--table", tmp_path / "lake", "--once", *filled)
    assert (done.code, error in done.err) == (2, True), done.err
    assert not (tmp_path / "lake").exists()


def test_a_tap_knows_its_broker(tmp_path):
    path = StoreLayout(tmp_path).tap
    path.parent.mkdir(parents=True)
    path.write_bytes(TapNote("broker-b", "127.0.0.1:10911", 0).encode())
    assert archive_run._named_store(str(tmp_path), None) == (
        "DefaultCluster",
        "broker-b",
        str(tmp_path),
    )
    named = archive_run._named_store(f"broker-a={tmp_path}", "east")
    assert named == ("east", "broker-a", str(tmp_path))


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("cluster", [None, "east"])
def test_a_store_of_a_real_broker_is_archived_under_the_names_that_it_has(
    run, golden, tmp_path, version, cluster
):
    source, given = f"{cluster or 'DefaultCluster'}/broker-a", ("--cluster", cluster)
    store = golden(version).store
    done = run(
        "archive",
        "run",
        "--table",
        tmp_path,
        "--store",
        store,
        "--once",
        *(given if cluster else ()),
    )
    assert (done.code, f"{source}: batch 1" in done.err) == (0, True), done.err
    with open_archive(tmp_path) as archive:
        assert [each.name for each in archive.status().sources] == [source]


def test_a_store_that_lets_archivers_overwrite_each_other_is_refused_before_anything_is_written(
    run, tmp_path, monkeypatch
):
    write_log(tmp_path / "store", map(record, range(20)), 1 << 14)
    command = ("archive", "run", "--table", f"s3://{BUCKET}/lake", "--once")
    with object_store("overwrite") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        done = run(*command, "--store", f"broker-a={tmp_path / 'store'}")
        assert done.code == 2
        assert "ignores If-None-Match" in done.err
        with pytest.raises(ArchiveError, match="is not an archive"):
            open_archive(f"s3://{BUCKET}/lake")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--store", "a={store}", "--store", "a={other}"),
            "names the broker DefaultCluster/a twice",
        ),
        (("--store", "a={store}", "--store", "b={store}/"), "names the directory {store} twice"),
        (("--store", "a\x01={store}"), "invalid name"),
        (("--store", "a={store}", "--cluster", "x/y"), "invalid name"),
        (("--store", "a={store}", "--cluster", ""), "invalid name"),
        (("--store", "a={store}", "--table", ""), "is empty: give"),
    ],
)
def test_what_would_be_archived_under_a_wrong_name_is_refused(run, tmp_path, options, said):
    paths = {name: tmp_path / name for name in ("store", "other")}
    for path in paths.values():
        write_log(path, map(record, range(3)), 1 << 14)
    given = [each.format(**paths) for each in options]
    done = run("archive", "run", "--table", tmp_path / "lake", "--once", *given)
    assert (done.code, said.format(**paths) in done.err) == (2, True), done.err
    assert not (tmp_path / "lake").exists()
