"""An archive is written by the workers of a cluster of Spark, as by a job on one machine."""

import os
import subprocess
import sys

import pytest

import rocketlens
from bench.synthetic import write_store
from tests.support.patience import PATIENCE_S
from tests.support.spark_cluster import running


@pytest.mark.slow
def test_two_workers_of_a_cluster_archive_each_message_once(tmp_path, jdk):
    store = write_store(tmp_path / "store", 200 << 20)
    with running(tmp_path / "workers", 2) as master:
        command = ["archive", "run", "--table", tmp_path / "lake", "--once", "--master", master]
        done = subprocess.run(
            [sys.executable, "-m", "rocketlens.main", *command, "--store", f"a={store.path}"],
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    for name in ("0", "1"):
        # Each ran an executor.
        assert list((tmp_path / "workers" / name).glob("app-*/*/stderr"))
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        assert sum(each.rows for each in files_of(archive)) == store.messages
        for number in range(0, store.messages, store.messages // 20):
            for text in (store.key(number), store.unique_key(number)):
                (message,) = archive.find(text).messages
                assert message.physical_offset == store.physical_offset(number)


def files_of(archive):
    files = archive.source.reader.tables.files("messages")
    assert len(files) > 2
    return files
