"""Attempts at tasks that Spark kills, or that lose against a speculative one."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import rocketlens
from bench.synthetic import write_store
from rocketlens.archive.journal import ArchiveTables
from rocketlens.testing import cluster
from tests.pipeline.losing_attempts import ROWS, SENT_BY_EACH_LOSER
from tests.support.archives import delete_all_unused
from tests.support.patience import PATIENCE_S
from tests.support.spark_cluster import running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def master(jdk, tmp_path_factory):
    with running(tmp_path_factory.mktemp("workers"), 2) as address:
        yield address


def run(master, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.losing_attempts", master, *map(str, arguments)],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_speculative_attempt_and_a_killed_one_archive_no_row_twice_and_add_no_file(
    master, tmp_path
):
    store, lake = write_store(tmp_path / "store", 4 << 20), tmp_path / "lake"
    run(master, "archive", lake, store.path)
    with rocketlens.open_archive(lake) as archive:
        offsets = [message.physical_offset for message in archive.scan()]
    assert sorted(offsets) == [store.physical_offset(n) for n in range(store.messages)]
    in_table = sum(len(ArchiveTables(str(lake)).files(t)) for t in ("messages", "message_keys"))
    # The attempt that lost had written its files.
    assert len(list(lake.glob("messages/*/*.parquet"))) > in_table // 2
    delete_all_unused(lake)
    assert len(list(lake.glob("*/*/*.parquet"))) == in_table
    with rocketlens.open_archive(lake) as archive:
        assert sum(1 for _ in archive.scan()) == store.messages


def test_rows_that_lost_attempts_have_sent_are_there_twice_with_one_unique_key_each(
    master, tmp_path
):
    with cluster() as brokers:
        found = int(run(master, "send", brokers.name_server))
        count = ROWS + 2 * SENT_BY_EACH_LOSER
        with brokers.admin() as admin:
            answer = admin.find(topic="Lost", max_num=2 * count)
    assert answer.complete
    assert sorted({int(m.body) for m in answer.messages}) == list(range(ROWS))
    assert len(answer.messages) == count
    copies = Counter((m.unique_key, m.body) for m in answer.messages)
    assert Counter(copies.values()) == {1: ROWS - 2 * SENT_BY_EACH_LOSER, 2: 2 * SENT_BY_EACH_LOSER}
    assert len({m.unique_key for m in answer.messages}) == ROWS
    assert found == 2 * SENT_BY_EACH_LOSER
