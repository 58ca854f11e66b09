"""What Spark's Python workers have from the process that they are forked from."""

import gc
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from rocketlens.pipeline import worker_daemon

STARTS_A_SERVER = """
import sys
from rocketlens.pipeline import worker_daemon
with worker_daemon.fork_server(with_sql=False):
    print(worker_daemon._servers[0].path, flush=True)
    sys.stdin.read()
"""


def state_of_worker(_):
    return sys.orig_argv, "numpy" in sys.modules, gc.get_freeze_count()


def daemon_with(environment):
    """Start a daemon as Spark does."""
    return subprocess.Popen(
        [sys.executable, "-m", worker_daemon.MODULE, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHON_WORKER_FACTORY_SECRET": "secret"} | environment,
    )


def port_of(daemon):
    return struct.unpack(">i", daemon.stdout.read(4))[0]


def pid_of_new_worker(port):
    """Have a daemon fork a worker, and return its process."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        return struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]


@pytest.fixture
def server():
    server = worker_daemon.ForkServer(with_sql=False)
    yield server
    server.close()


def test_a_worker_has_the_kernels_at_once_and_never_looks_at_them_for_garbage(spark):
    command, has_kernels, frozen = (
        spark.sparkContext.parallelize([0], 1).map(state_of_worker).first()
    )
    assert worker_daemon.MODULE in command
    assert has_kernels
    assert frozen > 10_000


def test_workers_of_all_kinds_are_forked_from_one_server(spark):
    tasks = spark.sparkContext.parallelize([0], 1).map(state_of_worker).collect()
    query = spark.range(1).rdd.map(state_of_worker).collect()
    servers = {tuple(command) for command, _, _ in tasks + query}
    assert len(servers) == 1
    assert "--serve" in servers.pop()


def test_a_daemon_serves_by_a_fork_until_spark_closes_its_input(server):
    with daemon_with({worker_daemon.SERVER: server.path}) as daemon:
        worker = pid_of_new_worker(port_of(daemon))
        assert worker > 0
        assert "--serve" in Path(f"/proc/{worker}/cmdline").read_text()
        daemon.stdin.close()
        assert daemon.wait() == 0


@pytest.mark.parametrize("path", ["", "nothing/there"])
def test_without_a_server_a_daemon_loads_everything_itself(tmp_path, path):
    environment = {worker_daemon.SERVER: str(tmp_path / path)} if path else {}
    with daemon_with(environment) as daemon:
        assert pid_of_new_worker(port_of(daemon)) > 0
        daemon.stdin.close()


def test_a_server_that_ends_before_it_has_forked_leaves_the_daemon_to_load_everything(tmp_path):
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with daemon_with({worker_daemon.SERVER: path}) as daemon:
            listener.accept()[0].close()
            assert port_of(daemon) > 0
            daemon.stdin.close()


def test_a_daemon_of_another_python_is_refused(server):
    request = json.dumps({"identity": ["/opt/python3", "/opt", "3.99", "elsewhere"]}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server.path)
        with Path(os.devnull).open() as stream:
            streams = [stream.fileno()] * 3
            socket.send_fds(connection, [struct.pack(">I", len(request))], streams)
        connection.sendall(request)
        assert connection.recv(1) == b"\x00"


def test_a_request_that_is_none_costs_its_own_connection_only(server):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server.path)
        connection.sendall(b"\xff\xff\xff\xff")
        assert connection.recv(1) == b""
    with daemon_with({worker_daemon.SERVER: server.path}) as daemon:
        assert port_of(daemon) > 0
        daemon.stdin.close()
        assert daemon.wait() == 0
    assert server.is_running


def test_a_killed_process_takes_its_server_with_it():
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        path = process.stdout.readline().strip()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            process.send_signal(signal.SIGKILL)
            # Only the end of the server closes what it has not accepted, or is reading from.
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    assert not Path(path).exists()


def test_a_path_too_long_for_a_socket_means_no_server_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_daemon, "_servers", [])
    long = tmp_path / ("a" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with worker_daemon.fork_server(with_sql=False):
        assert worker_daemon.SERVER not in os.environ
    assert list(long.iterdir()) == []
