"""``rocketlens archive run``: Spark writes an archive, from which messages are found."""

import itertools
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rocketlens
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.maintenance import compact, write_merged
from rocketlens.cli.jobs import archive as archive_command
from rocketlens.main import main
from tests.support.archives import (
    BATCHES,
    DAYS,
    archive_of_days,
    archive_store,
    check_days,
    delete_all_unused,
)


@pytest.fixture
def in_session(spark, monkeypatch):
    """Have commands use the session of the tests."""
    monkeypatch.setattr(archive_command, "task_context", lambda _: spark.sparkContext)


def test_a_store_that_is_archived_by_a_job_is_found_when_it_is_gone(
    in_session, golden, tmp_path, capsys
):
    store, lake = tmp_path / "store", tmp_path / "lake"
    shutil.copytree(golden("5.5.0").store, store)
    command = ["archive", "run", "--table", lake, "--store", store, "--once", "--decoded"]
    assert main(list(map(str, command))) == 0
    assert "DefaultCluster/broker-a: batch 1, " in capsys.readouterr().err
    assert main(list(map(str, command))) == 0
    assert "batch" not in capsys.readouterr().err
    with rocketlens.open_store(store) as opened:
        messages = sorted(map(repr, opened.scan()))
    shutil.rmtree(store)
    assert ArchiveTables(str(lake)).is_decoded
    with rocketlens.open_archive(lake) as archive:
        assert sorted(map(repr, archive.scan())) == messages


@pytest.mark.slow
@pytest.mark.parametrize("point", ["task", "journal", "messages", "message_keys"])
def test_a_job_that_is_killed_is_resumed_with_nothing_twice_and_nothing_missing(
    golden, tmp_path, point, jdk
):
    store, lake = golden("4.9.7").store, tmp_path / "lake"
    job = [sys.executable, Path(__file__).with_name("archiving_job.py"), lake, store, point]
    for number in ("2", "3"):
        done = subprocess.run([*job, number], capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
    archive_store(lake, store)
    with rocketlens.open_store(store) as opened:
        messages = sorted(map(repr, opened.scan(all_topics=True)))
    with rocketlens.open_archive(lake) as archive:
        assert sorted(map(repr, archive.scan(all_topics=True))) == messages
    tables = ArchiveTables(str(lake))
    rows = sum(each.rows for each in tables.files("messages"))
    assert rows == len(messages)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "number"),
    [
        ("task", 1),
        *itertools.product(("before", "after"), (1, 2, DAYS + 1, 2 * DAYS)),
        ("vacuum", 1),
        ("vacuum", BATCHES * DAYS + 2),
    ],
)
def test_a_compaction_by_spark_that_is_killed_loses_nothing_and_the_next_one_goes_on(
    tmp_path, point, number, jdk
):
    lake = archive_of_days(tmp_path)
    job = [sys.executable, "-m", "tests.pipeline.compacting_job", lake, point, str(number)]
    done = subprocess.run(job, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    check_days(lake)
    tables = ArchiveTables(str(lake))
    compact(tables, lambda tasks: list(map(write_merged, tasks)))
    names = ("messages", "message_keys")
    assert [len(tables.files(name)) for name in names] == [DAYS] * 2
    check_days(lake)
    delete_all_unused(lake)
    check_days(lake)
    assert len(list(lake.glob("*/*/*.parquet"))) == 2 * DAYS
