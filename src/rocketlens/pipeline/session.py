"""Starts Spark, or reports in one line what is missing."""

import atexit
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.errors import SparkUnavailable
from rocketlens.model.installation import install_command
from rocketlens.store.fs import user_cache

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

OLDEST_JDK: Final = 17
"""Spark 4's classes have version 61, which older virtual machines refuse."""

WORKER_PYTHON: Final = "PYSPARK_PYTHON"
"""The environment variable that names the interpreter of Spark's workers."""

INSTALL_JDK: Final = f"install a JDK >= {OLDEST_JDK} and set JAVA_HOME to it"

_VERSION: Final = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)')
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_MAX_WARM_TASKS: Final = 64
_STANDALONE: Final = "spark://"
_CONNECT_SECONDS: Final = 5.0


_QUIET: Final = "-Xshare:auto -Xlog:cds*=off -Xlog:class+path=off"
_ODD: Final = frozenset(" \t\n\"'\\")
"""Characters that options of a JVM cannot have in a path, or not in each version of Spark."""


class ClassArchive:
    """The archive for one JVM and one Spark, or none where the user's cache cannot be written.

    A JVM that starts Spark spends most of that time with loading and verifying some 10,000 classes.
    It can write those that it loaded when it ends (application class-data sharing, JEP 350).
    Another one with the same jars maps that file, and starts in less than half the time. So the end
    of the first process of an installation takes some seconds longer; the file has about 110 MB. A
    JVM ignores an archive of other jars or of another JVM.

    ``java`` is the program, ``spark`` the directory of pyspark. ``options`` are for the JVM: they
    use the archive, or have it written if it is not there yet.
    """

    def __init__(self, java: Path, spark: Path, *, cache: Path | None = None) -> None:
        home = java.resolve().parent.parent
        made_for = f"{home} {_stamp(home / 'release')} {spark} {_stamp(spark / 'jars')}"
        directory = (user_cache() if cache is None else cache) / "rocketlens"
        name = f"spark-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}"
        self.path: Final = directory / f"{name}.jsa"
        self._written: Final = directory / f"{name}.{os.getpid()}.new"
        self.options = ""
        self._is_new = False
        if _ODD.isdisjoint(str(self.path)):
            with suppress(OSError):
                self._choose()

    def _choose(self) -> None:
        if self.path.exists():
            self.options = f"-XX:SharedArchiveFile={self.path} {_QUIET}"
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(self.path.parent, os.W_OK):
            self._remove_unfinished()
            self._is_new = True
            self.options = f"-XX:ArchiveClassesAtExit={self._written} {_QUIET}"

    def keep(self, jvm: "Popen[Any]") -> None:
        """Keep the archive that a JVM writes, when this process ends, if it is a new one.

        The JVM ends with its standard input. An archive counts only if the JVM ended well: one that
        was killed may have left a part of it.
        """
        if self._is_new:
            atexit.register(self._wait_for, jvm)

    def _wait_for(self, jvm: "Popen[Any]") -> None:
        from pyspark import SparkContext

        # A context that still runs would complain about the end of its JVM.
        context = SparkContext._active_spark_context  # noqa: SLF001 - there is no public way to ask
        if context is not None:
            context.stop()
        # Ctrl-C means now: the next process writes the archive.
        with suppress(OSError, TimeoutExpired, KeyboardInterrupt):
            if jvm.stdin is not None:
                jvm.stdin.close()
            if jvm.wait(limits.MAX_CLASS_ARCHIVE_S) == 0:
                self._written.replace(self.path)
        with suppress(OSError):
            self._written.unlink(missing_ok=True)

    def _remove_unfinished(self) -> None:
        """Remove what processes left that were killed before their JVM had ended."""
        for unfinished in self.path.parent.glob("spark-*.new"):
            pid = unfinished.suffixes[-2].removeprefix(".")
            if pid.isdecimal() and not _is_running(int(pid)):
                unfinished.unlink(missing_ok=True)


def _stamp(path: Path) -> str:
    """Return what changes when a file or a directory is replaced by another version."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def use_this_python() -> None:
    """Set this interpreter as that of workers of later sessions, if no other one is chosen.

    Spark would run the ``python3`` of PATH, which need not be that of the virtual environment of
    this process, and would then not find the source ``rocketmq`` there.
    """
    os.environ.setdefault(WORKER_PYTHON, sys.executable)


def spark(
    master: str = "local[*]", *, memory: str = "2g", config: Mapping[str, str] | None = None
) -> "SparkSession":
    """Return a Spark session that has the source ``rocketmq``.

    Its workers run this interpreter, in whatever virtual environment it is, unless PYSPARK_PYTHON
    names another one. ``memory`` is the driver's heap, which is everything when ``master`` is
    local. ``config`` has other settings of Spark. If the process has a session already, that one
    is returned. The first call takes some seconds, and more at the first time on a machine.

    :raises SparkUnavailable: when pyspark is not installed, there is no JDK of at least 17, no
        standalone master answers, or Spark does not start.
    """
    use_this_python()
    python = os.environ[WORKER_PYTHON]
    return start(master, memory=memory, warm=False, quick=False, config=config, python=python)


def start(
    master: str = "local[*]",
    *,
    memory: str = "2g",
    warm: bool = True,
    quick: bool = True,
    config: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> "SparkSession":
    """Return a session whose workers run this interpreter and whose log is silent.

    ``memory`` is the driver's heap, which is everything when ``master`` is local. ``warm`` starts
    the Python workers and loads the compiled kernels in them, so that the first job does not pay
    for it. ``quick`` has the JVM compile fast rather than well, which suits jobs whose work is done
    in Python; long SQL runs twice as fast without it, and starts a few seconds later. ``config``
    overrides any setting made here. If the process has a session already, that one is returned
    with the settings applied that can still change. Takes 2 to 4 s with two free cores, and more at
    the first time on a machine (`ClassArchive`).

    :raises SparkUnavailable: when pyspark is not installed, there is no JDK of at least 17, or no
        standalone master answers, before any JVM is started; or when Spark does not start.
    """
    java = check_available()
    _check_master(master)
    os.environ[WORKER_PYTHON] = python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    is_local = master.startswith("local")
    if is_local:
        # Otherwise Spark looks up this machine's name, warns, and listens on what it finds.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from rocketlens.pipeline.warm import load_kernels

    chosen = settings(memory, is_local=is_local, quick=quick) | dict(config or {})
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - there is no public way to ask
        archive = ClassArchive(java, Path(pyspark.__file__).parent)
        chosen[_JAVA_OPTIONS] = f"{chosen[_JAVA_OPTIONS]} {archive.options}".rstrip()
        conf = SparkConf(loadDefaults=False).setMaster(master).setAppName("rocketlens")
        with _explained(master):
            archive.keep(_start_context(conf.setAll(list(chosen.items()))).proc)
    builder = SparkSession.Builder()
    for name, value in chosen.items():
        if name.startswith("spark.sql."):
            builder = builder.config(name, value)
    session = builder.getOrCreate()
    if warm:
        tasks = min(session.sparkContext.defaultParallelism, _MAX_WARM_TASKS)
        with _explained(master):
            session.sparkContext.parallelize(range(tasks), tasks).foreach(load_kernels)
    return session


def _check_master(master: str) -> None:
    """Connect to a standalone master, which Spark would wait for more than a minute.

    :raises SparkUnavailable: when none of ``spark://HOST:PORT[,HOST:PORT]`` takes a connection.
    """
    if not master.startswith(_STANDALONE):
        return
    reasons: list[str] = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        except ValueError:
            reasons.append(f"{address!r} is not HOST:PORT")
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
        else:
            return
    raise SparkUnavailable(f"no Spark master answers at {master} ({'; '.join(reasons)})")


@contextmanager
def _explained(master: str) -> "Iterator[None]":
    """Convert Spark's errors to errors of one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from rocketlens.pipeline.jobs import reason_of

    try:
        yield
    except (Py4JError, PySparkException) as error:
        message = f"Spark does not start on {master}: {reason_of(error)}"
        raise SparkUnavailable(message) from error


def _start_context(conf: "SparkConf") -> Any:
    """Start the JVM, show its output on stderr only if it fails, and return its gateway."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    gateway = SparkContext._gateway  # noqa: SLF001 - left by an earlier, stopped session
    if gateway is None:
        with tempfile.TemporaryFile() as output:
            try:
                gateway = launch_gateway(conf, popen_kwargs={"stderr": output})
            except PySparkRuntimeError as error:
                output.seek(0)
                lines = output.read().decode("utf-8", "replace").split("\n")
                reason = next((line for line in lines if "rror" in line), str(error))
                raise SparkUnavailable(f"the JVM did not start: {reason.strip()}") from error
    SparkContext(conf=conf, gateway=gateway)
    return gateway


def settings(memory: str, *, is_local: bool, quick: bool = True) -> dict[str, str]:
    """Return the Spark configuration that :func:`start` uses."""
    log = Path(__file__).with_name("log4j2.properties")
    java_options = f"-Dlog4j2.configurationFile={log.as_uri()} -XX:+UseSerialGC"
    if quick:
        java_options += " -XX:TieredStopAtLevel=1"
    chosen = {
        "spark.driver.memory": memory,
        _JAVA_OPTIONS: java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        # Pushes filters to sources whose option filterPushdown asks for it; see source.py.
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
        "spark.sql.shuffle.partitions": "8",
        # Tasks read local files, so waiting for a node with the data has no use.
        "spark.locality.wait": "0s",
    }
    if is_local:
        chosen |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            # Elsewhere RocketLens may be installed for another interpreter, or sent with the job.
            "spark.python.daemon.module": "rocketlens.pipeline.worker_daemon",
        }
    return chosen


def check_available() -> Path:
    """Check that pyspark and a JDK can be used, in milliseconds and without starting them.

    Return the ``java`` that Spark will run.

    :raises SparkUnavailable: saying what to install.
    """
    if find_spec("pyspark") is None:
        raise SparkUnavailable(
            f"PySpark is not installed for {sys.executable}: install it with: "
            f"{install_command('spark')}"
        )
    java, version = find_java()
    if version < OLDEST_JDK:
        raise SparkUnavailable(f"{java} is Java {version}, too old for Spark: {INSTALL_JDK}")
    return java


def find_java() -> tuple[Path, int]:
    """Return the ``java`` that Spark will run, and its major version.

    As Spark does: the one in JAVA_HOME if that is set, else the first on PATH.

    :raises SparkUnavailable: when there is none, or it does not say its version.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise SparkUnavailable(f"JAVA_HOME is {home}, which has no bin/java: {INSTALL_JDK}")
    else:
        program = shutil.which("java")
        if program is None:
            raise SparkUnavailable(f"no Java found, which Spark needs: {INSTALL_JDK}")
        java = Path(program)
    return java, _java_version(java)


def _java_version(java: Path) -> int:
    """Read the major version from the file ``release`` beside ``bin``, else ask the program."""
    release = java.resolve().parent.parent / "release"
    try:
        text = release.read_text("utf-8", "replace")
    except OSError:
        text = ""
    match = _VERSION.search(text)
    if match is None:
        try:
            output = subprocess.run(
                [java, "-version"], capture_output=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SparkUnavailable(f"{java} does not run ({error}): {INSTALL_JDK}") from error
        match = _VERSION.search((output.stderr + output.stdout).decode("utf-8", "replace"))
    if match is None:
        raise SparkUnavailable(f"{java} does not say its version: {INSTALL_JDK}")
    return int(match.group(1))
