"""The process that Spark forks its Python workers from, with what every job needs loaded already.

Spark runs it as ``python -m rocketlens.pipeline.worker_daemon WORKER_MODULE`` if its setting
``spark.python.daemon.module`` names it. Its own daemon has each new worker load numpy, Arrow and
the kernels for itself, and each worker looks through all their objects for garbage after every
task, which takes longer than many tasks.

Spark starts such a daemon with its first task, and one more for each kind of worker whose tasks a
query has (those that plan queries have a daemon of Spark's own, in Spark 4.2). Each would load all
of that again. So `ForkServer` runs beside the JVM and loads it while the
JVM starts. A daemon sends its standard streams to the server, which forks: the fork serves Spark
with them, and the process that Spark started only waits for its end. Without a server, or with one
of another Python, a daemon loads everything itself.
"""

import atexit
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SERVER: Final = "ROCKETLENS_FORK_SERVER"
"""The environment variable with the path of the server's socket, which only the JVM gets."""

MODULE: Final = "rocketlens.pipeline.worker_daemon"
_SERVE: Final = "--serve"
_FORKED: Final = b"\x01"
_REFUSED: Final = b"\x00"
_LENGTH_BYTES: Final = 4
_STREAMS: Final = (0, 1, 2)
_MAX_REQUEST_BYTES: Final = 1 << 24
_SQL_MODULES: Final = (
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.pandas.serializers",
    "pyspark_rocketmq",
)
"""What workers of queries import besides."""


class ForkServer:
    """A process that daemons of this interpreter are forked from; it ends with this one.

    ``with_sql`` loads what queries need, too, once tasks could start.
    """

    def __init__(self, *, with_sql: bool) -> None:
        self._directory: Final = tempfile.mkdtemp(prefix="rocketlens-")
        self.path: Final = str(Path(self._directory, "socket"))
        try:
            with closing(socket.socket(socket.AF_UNIX)) as listener:
                # Daemons may connect from now on. They wait until all is loaded.
                listener.bind(self.path)
                listener.listen()
                self._process: Final = self._serving(listener, _SQL_MODULES if with_sql else ())
        except OSError:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    def _serving(self, listener: socket.socket, modules: "Sequence[str]") -> "Popen[bytes]":
        number = listener.fileno()
        return Popen(
            [sys.executable, "-m", MODULE, _SERVE, str(number), self.path, *modules],
            # However this process ends, the server sees the end of it.
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            pass_fds=[number],
            # As Spark's scripts have it for workers, which must agree on hashes of text.
            env=os.environ | {"PYTHONHASHSEED": "0"},
        )

    @property
    def is_running(self) -> bool:
        """Return whether daemons can still be forked."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the server, but not what was forked from it."""
        self._process.kill()
        with self._process:
            pass
        shutil.rmtree(self._directory, ignore_errors=True)


_servers: "list[ForkServer]" = []
"""That of this process, if it has one."""


@contextmanager
def fork_server(*, with_sql: bool) -> "Iterator[None]":
    """Start a fork server, if there is none, and name it to the JVM that is started inside.

    Workers work without one as well.
    """
    if not _servers or not _servers[-1].is_running:
        # Such as a temporary directory whose path is too long for a socket.
        with suppress(OSError):
            _servers.append(ForkServer(with_sql=with_sql))
            atexit.register(_servers[-1].close)
    if not _servers:
        yield
        return
    os.environ[SERVER] = _servers[-1].path
    try:
        yield
    finally:
        del os.environ[SERVER]


def main() -> None:
    """Serve Spark as a daemon, or, as the command says, daemons as a fork server."""
    # Ctrl-C in a terminal is for the command, which ends Spark.
    os.setpgid(0, 0)
    if sys.argv[1] == _SERVE:
        number, path, *modules = sys.argv[2:]
        with closing(socket.socket(fileno=int(number))) as listener:
            _serve(listener, path, modules)
    elif not _is_served(sys.argv[1]):
        _load()
        _fork_workers(sys.argv[1])


def _load() -> None:
    import pyspark.daemon  # noqa: F401 - loaded for forks

    from rocketlens.pipeline.warm import load_kernels

    importlib.import_module("pyspark.worker")
    load_kernels()
    gc.collect()
    # Workers inherit what is exempt from garbage collection.
    gc.freeze()


def _fork_workers(worker_module: str) -> None:
    """Fork workers until Spark closes the standard input."""
    from pyspark import daemon

    importlib.import_module(worker_module)
    gc.freeze()
    daemon.manager()


def _identity() -> list[str]:
    """Return what must be equal for a fork to be like a new process."""
    return [sys.executable, sys.prefix, sys.version, os.path.realpath(__file__)]


def _is_served(worker_module: str) -> bool:
    """Return whether the fork server served Spark in place of this process, after it has."""
    path = os.environ.get(SERVER)
    if path is None:
        return False
    request = {
        "identity": _identity(),
        "worker_module": worker_module,
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
        "path": sys.path,
    }
    content = json.dumps(request).encode()
    with suppress(OSError), closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.connect(path)
        socket.send_fds(connection, [len(content).to_bytes(_LENGTH_BYTES)], _STREAMS)
        connection.sendall(content)
        if connection.recv(1) == _FORKED:
            # Until the fork and its workers have ended.
            connection.recv(1)
            return True
    return False


def _serve(listener: socket.socket, path: str, modules: list[str]) -> None:
    """Fork a daemon for each that connects, until the standard input is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        _load()
        while True:
            waited_for: list[Any] = [0, listener]
            ready, _, _ = select.select(waited_for, (), (), 0 if modules else None)
            if 0 in ready:
                return
            if ready:
                connection, _ = listener.accept()
                with closing(connection), suppress(OSError, ValueError):
                    _fork_daemon(listener, connection)
            elif modules:
                importlib.import_module(modules.pop(0))
                gc.freeze()
    finally:
        with suppress(OSError):
            Path(path).unlink()
            Path(path).parent.rmdir()


def _fork_daemon(listener: socket.socket, connection: socket.socket) -> None:
    head, streams, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, len(_STREAMS))
    try:
        request = _request(head, connection)
        if request["identity"] != _identity() or len(streams) != len(_STREAMS):
            connection.sendall(_REFUSED)
        elif os.fork() == 0:
            try:
                listener.close()
                connection.sendall(_FORKED)
                _become_daemon(streams, request)
            finally:
                os._exit(1)
    finally:
        for stream in streams:
            os.close(stream)


def _request(head: bytes, connection: socket.socket) -> dict[str, Any]:
    length = int.from_bytes(head)
    if length > _MAX_REQUEST_BYTES:
        raise ValueError(length)
    with connection.makefile("rb") as file:
        request: dict[str, Any] = json.loads(file.read(length))
    return request


def _become_daemon(streams: list[int], request: dict[str, Any]) -> None:
    """Do what the process would do that sent this, and end with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in zip(_STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.path[:] = request["path"]
    sys.argv[:] = [__file__, request["worker_module"]]
    _fork_workers(request["worker_module"])


if __name__ == "__main__":
    main()
