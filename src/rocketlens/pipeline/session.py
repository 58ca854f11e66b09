"""Starts Spark, or reports in one line what is missing."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketlens.errors import SparkUnavailable
from rocketlens.model.installation import install_command
from rocketlens.pipeline import worker_daemon
from rocketlens.pipeline.jvm import (
    JAVA_OPTIONS,
    MEMORY,
    ClassArchive,
    active_context,
    ask_numpy_last,
    former_gateway,
    java_command,
    needs_scripts,
    start_jvm,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

OLDEST_JDK: Final = 17
"""Spark 4's classes have version 61, which older virtual machines refuse."""

WORKER_PYTHON: Final = "PYSPARK_PYTHON"
"""The environment variable that names the interpreter of Spark's workers."""

INSTALL_JDK: Final = f"install a JDK >= {OLDEST_JDK} and set JAVA_HOME to it"

_COMPILE_LATER: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000 -XX:MetaspaceSize=256m"
)
"""Ten times the JVM's own thresholds for compiling well, and no full collection for classes alone.

Until its first row a session runs thousands of methods some thousand times. To compile them well
takes a third of its processor time, and has no use before there are long loops, which come to these
thresholds within milliseconds.
"""

_VERSION: Final = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)')
_DAEMON: Final = "spark.python.daemon.module"
_MAX_WARM_TASKS: Final = 64
_STANDALONE: Final = "spark://"
_CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True)
class TaskSession:
    """Spark for tasks alone, without SQL, which takes as long to start as all the rest."""

    sparkContext: "SparkContext"  # noqa: N815 - as a SparkSession has it

    def stop(self) -> None:
        """End Spark in this process.

        A local JVM ends after this returns: removing its temporary files takes it a second, for
        which no command waits.
        """
        context: Any = self.sparkContext
        if not context.master.startswith("local"):
            context.stop()
            return
        gateway, context._jsc = context._gateway, None  # noqa: SLF001 - the JVM stops that itself
        context.stop()
        type(context)._gateway = type(context)._jvm = None  # noqa: SLF001 - others start a new JVM
        gateway.shutdown()
        # The JVM ends with its standard input.
        gateway.proc.stdin.close()


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
    config = dict(config or {})
    _start(master, memory, config, quick=quick, python=python, with_sql=True)

    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    for name, value in (settings(memory, is_local=True) | config).items():
        if name.startswith("spark.sql."):
            builder = builder.config(name, value)
    session = builder.getOrCreate()
    if warm:
        _warm(session.sparkContext, master)
    return session


def start_tasks(master: str = "local[*]", *, memory: str = "2g") -> TaskSession:
    """Return what `start` does, for jobs that are tasks alone: they need no SQL.

    :raises SparkUnavailable: as `start` does.
    """
    context = _start(master, memory, {}, quick=True, python=sys.executable, with_sql=False)
    if not master.startswith("local"):
        _warm(context, master)
    return TaskSession(context)


def _start(
    master: str, memory: str, config: Mapping[str, str], *, quick: bool, python: str, with_sql: bool
) -> "SparkContext":
    """Return the context of this process, which is started if there is none."""
    java = check_available()
    _check_master(master)
    os.environ[WORKER_PYTHON] = python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    is_local = master.startswith("local")
    if is_local:
        # Otherwise Spark looks up this machine's name, warns, and listens on what it finds.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    context = active_context()
    if context is not None:
        return context
    chosen = settings(memory, is_local=is_local, quick=quick) | dict(config)
    is_ours = chosen.get(_DAEMON) == worker_daemon.MODULE and python == sys.executable
    home = _home()
    # Before all else: it loads the kernels while the JVM starts.
    with worker_daemon.fork_server(with_sql=with_sql) if is_ours else nullcontext():
        archive = ClassArchive(java, home, with_sql=with_sql)
        chosen[JAVA_OPTIONS] = f"{chosen[JAVA_OPTIONS]} {archive.options}".rstrip()
        is_direct = is_local and not needs_scripts(config, os.environ, home)
        command = java_command(java, home, chosen) if is_direct else None
        with _explained(master):
            gateway = former_gateway() or start_jvm(master, chosen, command, with_sql=with_sql)
            context = _start_context(master, chosen, gateway)
        archive.keep(gateway.proc)
    return context


def _warm(context: "SparkContext", master: str) -> None:
    """Start the Python workers, and load the kernels in them."""
    from rocketlens.pipeline.warm import load_kernels

    tasks = min(context.defaultParallelism, _MAX_WARM_TASKS)
    with _explained(master):
        context.parallelize(range(tasks), tasks).foreach(load_kernels)


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
    try:
        yield
    except SparkUnavailable:
        raise
    except Exception as error:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from rocketlens.pipeline.jobs import reason_of

        if not isinstance(error, (Py4JError, PySparkException)):
            raise
        message = f"Spark does not start on {master}: {reason_of(error)}"
        raise SparkUnavailable(message) from error


def _home() -> Path:
    """Return the directory of pyspark, which need not be imported for that."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkUnavailable("pyspark is not installed as a directory")
    return Path(spec.origin).parent


def _start_context(master: str, chosen: Mapping[str, str], gateway: Any) -> "SparkContext":
    from pyspark import SparkConf, SparkContext

    ask_numpy_last(gateway)
    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName("rocketlens")
    return SparkContext(conf=conf.setAll(list(chosen.items())), gateway=gateway)


def settings(memory: str, *, is_local: bool, quick: bool = True) -> dict[str, str]:
    """Return the Spark configuration that :func:`start` uses."""
    log = Path(__file__).with_name("log4j2.properties")
    java_options = f"-Dlog4j2.configurationFile={log.as_uri()} -XX:+UseSerialGC"
    java_options += " -XX:TieredStopAtLevel=1" if quick else f" {_COMPILE_LATER}"
    chosen = {
        MEMORY: memory,
        JAVA_OPTIONS: java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
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
            _DAEMON: worker_daemon.MODULE,
        }
    return chosen


def check_available() -> Path:
    """Check that pyspark, a JDK and the kernels can be used, in milliseconds; start none of them.

    Return the ``java`` that Spark will run.

    :raises SparkUnavailable: saying what to install.
    :raises PackageMissing: if a kernel is missing.
    """
    # An import error in a worker reaches the user as a lost connection to it.
    import_module("rocketlens.formats.compiled")
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
