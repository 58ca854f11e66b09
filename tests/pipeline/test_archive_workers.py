"""An archive is written by the workers of a cluster of Spark, as by a job on one machine."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

import rocketlens
from bench.synthetic import write_store
from tests.support.patience import PATIENCE_S

SPARK_CLASS = Path(pyspark.__file__).parent / "bin/spark-class"
DEPLOY = "org.apache.spark.deploy"


@contextmanager
def daemon(name, *arguments, until):
    """Start a daemon of Spark, and wait for the line of its log that has a text."""
    environment = {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(
        [str(SPARK_CLASS), f"{DEPLOY}.{name}", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            assert any(until in line for line in process.stderr), f"{name} ended"
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield
        finally:
            process.kill()


@pytest.mark.slow
def test_two_workers_of_a_cluster_archive_each_message_once(tmp_path, jdk):
    store = write_store(tmp_path / "store", 200 << 20)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    local = ("--host", "127.0.0.1", "--webui-port", 0)
    master = f"spark://127.0.0.1:{port}"
    worker = ("worker.Worker", *local, "--cores", 1, "--memory", "1g")
    registered = "Successfully registered with master"
    with (
        daemon("master.Master", *local, "--port", port, until="New state: ALIVE"),
        daemon(*worker, "--work-dir", tmp_path / "first", master, until=registered),
        daemon(*worker, "--work-dir", tmp_path / "second", master, until=registered),
    ):
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
    for name in ("first", "second"):
        # Each ran an executor.
        assert list((tmp_path / name).glob("app-*/*/stderr"))
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        assert sum(each["num_records"] for each in files_of(archive)) == store.messages
        for number in range(0, store.messages, store.messages // 20):
            for text in (store.key(number), store.unique_key(number)):
                (message,) = archive.find(text).messages
                assert message.physical_offset == store.physical_offset(number)


def files_of(archive):
    files = archive.source.reader.tables.files("messages")
    assert len(files) > 2
    return files
