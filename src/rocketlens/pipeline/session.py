"""Starts Spark, or reports in one line what is missing."""

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from rocketlens.errors import SparkUnavailable
from rocketlens.model.installation import install_command
from rocketlens.pipeline.jobs import reason_of
from rocketlens.store.fs import user_cache

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

OLDEST_JDK: Final = 17
"""Spark 4's classes have version 61, which older virtual machines refuse."""

WORKER_PYTHON: Final = "PYSPARK_PYTHON"
"""The environment variable that names the interpreter of Spark's workers."""

OF_SQL: Final = ("pyspark", "pyarrow")
"""The packages without which Spark's SQL reads no source in Python; tasks alone need the first."""

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
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_RENEWING_JDK: Final = 19
"""From this version on, a JVM writes an archive of classes anew if it does not fit."""
_UNUSED_S: Final = 30 * 86_400.0
_QUOTED: Final = frozenset(" \t\n\"'\\")
"""Characters that a path in the options of a JVM cannot have."""
_STANDALONE: Final = "spark://"
_CONNECT_SECONDS: Final = 5.0


def use_this_python() -> None:
    """Use this interpreter for the workers of later sessions, unless PYSPARK_PYTHON names another.

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
    return start(master, memory=memory, quick=False, config=config, python=python)


def start(
    master: str = "local[*]",
    *,
    memory: str = "2g",
    quick: bool = True,
    config: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> "SparkSession":
    """Return a session whose workers run this interpreter and whose log is silent.

    ``memory`` is the driver's heap, which is everything when ``master`` is local. ``quick`` has the
    JVM compile fast rather than well, which suits jobs whose work is done in Python; long SQL runs
    twice as fast without it, and starts a few seconds later. ``config`` overrides any setting made
    here. If the process has a session already, that one is returned with the settings applied that
    can still change.

    :raises SparkUnavailable: when pyspark is not installed, there is no JDK of at least 17, or no
        standalone master answers, before any JVM is started; or when Spark does not start.
    """
    chosen = settings(memory, is_local=master.startswith("local"), quick=quick) | dict(config or {})
    _start(master, chosen, python, with_sql=True)

    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    for name, value in chosen.items():
        if name.startswith("spark.sql."):
            builder = builder.config(name, value)
    return builder.getOrCreate()


def sql_of(context: "SparkContext") -> "SparkSession":
    """Return the session of a Spark that has SQL or gets it now."""
    from pyspark.sql import SparkSession

    return SparkSession(context)


def start_tasks(master: str = "local[*]", *, memory: str = "2g") -> "SparkContext":
    """Return a context for jobs that are tasks alone: without SQL it starts a second earlier.

    :raises SparkUnavailable: as `start` does.
    """
    chosen = settings(memory, is_local=master.startswith("local"))
    return _start(master, chosen, sys.executable, with_sql=False)


def _start(
    master: str, chosen: Mapping[str, str], python: str, *, with_sql: bool
) -> "SparkContext":
    """Return the context of this process, which is started if there is none."""
    java, java_version = check_available(with_sql=with_sql)
    _check_master(master)
    os.environ[WORKER_PYTHON] = python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        # Otherwise Spark looks up this machine's name, warns, and listens on what it finds.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName("rocketlens")
    conf.setAll(list(chosen.items()))
    is_own = master.startswith("local") and python == sys.executable
    with _installed_pyspark() if is_own else nullcontext(), tempfile.TemporaryFile() as output:
        archive = class_archive(java, java_version, with_sql=with_sql)
        conf.set(_JAVA_OPTIONS, f"{chosen[_JAVA_OPTIONS]} {archive}".rstrip())
        # The JVM warns of its modules. Streams to the format "console" print to its output.
        streams = {"stderr": output} | ({} if with_sql else {"stdout": output})
        try:
            if SparkContext._gateway is not None:  # noqa: SLF001 - an earlier session's JVM
                return SparkContext.getOrCreate(conf)
            gateway = launch_gateway(conf, streams)
            client = gateway._gateway_client  # noqa: SLF001 - py4j has no public name for it
            client.converters = list(map(_asked_last, client.converters))
            return SparkContext(conf=conf, gateway=gateway)
        except (Py4JError, PySparkException) as error:
            output.seek(0)
            lines = output.read().decode("utf-8", "replace").split("\n")
            reason = next((line.strip() for line in lines if "rror" in line), reason_of(error))
            raise SparkUnavailable(f"Spark does not start on {master}: {reason}") from error


@contextmanager
def _installed_pyspark() -> Iterator[None]:
    """Let the processes of a JVM that is started inside import PySpark as it is installed.

    They would import it from a ZIP file in Spark's home, which has no bytecode: half a second for
    each. So their home is a directory with links to PySpark's programs and jars, without that file.
    """
    home = Path(getattr(find_spec("pyspark"), "origin", "")).parent
    links = user_cache() / "rocketlens" / f"pyspark-{_digest(str(home))}"
    if "SPARK_HOME" in os.environ or not _QUOTED.isdisjoint(str(links)):
        yield
        return
    with suppress(OSError):
        links.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("bin", "jars", "conf"):
            if (home / name).exists() and not (links / name).exists():
                (links / name).symlink_to(home / name)
        os.environ["SPARK_HOME"] = str(links)
    try:
        yield
    finally:
        os.environ.pop("SPARK_HOME", None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _asked_last(converter: Any) -> Any:
    """Return a converter of arguments for Java that is asked about objects of numpy alone.

    Pyspark 4.2 imports pandas, Arrow and its tools for tests for the first argument of any call,
    only to find out whether numpy is installed.
    """
    if not type(converter).__name__.startswith("Numpy"):
        return converter

    def can_convert(argument: object) -> bool:
        is_numpy = any(one.__module__.startswith("numpy") for one in type(argument).__mro__)
        return is_numpy and bool(converter.can_convert(argument))

    return SimpleNamespace(can_convert=can_convert, convert=converter.convert)


def class_archive(
    java: Path, java_version: int, *, with_sql: bool, cache: Path | None = None
) -> str:
    """Return options with which a JVM maps the classes that an earlier one has loaded.

    Half of the time that Spark needs to start is for loading and verifying some 10,000 classes. A
    JVM can write them into a file when it ends (JEP 350), of about 110 MB. From JDK 19 on it
    replaces a file that does not fit by itself; for older ones the file's name says what it is for.
    Files that were not used for a month are removed. Without SQL there is a smaller one, since the
    classes of SQL would be missing in it.
    """
    directory = (user_cache() if cache is None else cache) / "rocketlens"
    home = os.environ.get("SPARK_HOME") or getattr(find_spec("pyspark"), "origin", "")
    made_for = f"{java.resolve()} {java_version} {home} {version('pyspark')}"
    kind = "spark" if with_sql else "spark-tasks"
    path = directory / f"{kind}-{_digest(made_for)}.jsa"
    if not _QUOTED.isdisjoint(str(path)):
        return ""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_there = path.exists() and _is_whole(path)
        if is_there:
            os.utime(path)
        for other in directory.glob("spark-*.jsa"):
            if time.time() - other.stat().st_mtime > _UNUSED_S:
                other.unlink(missing_ok=True)
    except OSError:
        return ""
    option = "SharedArchiveFile" if is_there else "ArchiveClassesAtExit"
    if java_version >= _RENEWING_JDK:
        option = "+AutoCreateSharedArchive -XX:SharedArchiveFile"
    return f"-XX:{option}={path} -Xshare:auto -Xlog:disable"


def _is_whole(archive: Path) -> bool:
    """Return whether a JVM has written a file of classes to its end, which it begins at last."""
    with archive.open("rb") as file:
        return any(file.read(4))


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


def settings(memory: str, *, is_local: bool, quick: bool = True) -> dict[str, str]:
    """Return the Spark configuration that :func:`start` uses."""
    log = Path(__file__).with_name("log4j2.properties")
    java_options = f"-Dlog4j2.configurationFile={log.as_uri()} -XX:+UseSerialGC"
    java_options += " -XX:TieredStopAtLevel=1" if quick else f" {_COMPILE_LATER}"
    chosen = {
        "spark.driver.memory": memory,
        _JAVA_OPTIONS: java_options,
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
            _DAEMON: "rocketlens.pipeline.worker_daemon",
        }
    return chosen


def check_available(*, with_sql: bool = False) -> tuple[Path, int]:
    """Check that pyspark, a JDK and the kernels can be used, in milliseconds; start none of them.

    ``with_sql``: also what Spark's SQL needs to read the source rocketmq. Return what `find_java`
    does.

    :raises SparkUnavailable: saying what to install.
    :raises PackageMissing: if a kernel is missing.
    """
    # An import error in a worker reaches the user as a lost connection to it.
    import_module("rocketlens.formats.compiled")
    for name in OF_SQL if with_sql else OF_SQL[:1]:
        if find_spec(name) is None:
            raise SparkUnavailable(
                f"{name} is not installed for {sys.executable}: install it with: "
                f"{install_command('spark')}"
            )
    java, java_version = find_java()
    if java_version < OLDEST_JDK:
        raise SparkUnavailable(f"{java} is Java {java_version}, too old for Spark: {INSTALL_JDK}")
    return java, java_version


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
