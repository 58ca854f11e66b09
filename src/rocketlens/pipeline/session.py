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
"""Spark 4 is compiled to class file version 61."""

WORKER_PYTHON: Final = "PYSPARK_PYTHON"
"""The environment variable that names the interpreter of Spark's workers."""

OF_SQL: Final = ("pyspark", "pyarrow")
"""The packages that Spark's SQL needs to read a source in Python; tasks without SQL need only the
first."""

INSTALL_JDK: Final = f"install a JDK >= {OLDEST_JDK} and set JAVA_HOME to it"

_COMPILE_LATER: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000 -XX:MetaspaceSize=256m"
)
"""Ten times the JVM's default thresholds for the optimizing compiler, and no full collection caused
by class loading alone.

Until its first row, a session runs thousands of methods some thousand times. Optimizing them takes
a third of its processor time in vain. Long loops reach these thresholds within milliseconds."""

_VERSION: Final = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)')
_DAEMON: Final = "spark.python.daemon.module"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_RENEWING_JDK: Final = 19
"""From this version on, a JVM replaces an archive of classes that does not fit."""
_UNUSED_S: Final = 30 * 86_400.0
_QUOTED: Final = frozenset(" \t\n\"'\\")
"""Characters that a path in the options of a JVM must not contain."""
_STANDALONE: Final = "spark://"
_CONNECT_SECONDS: Final = 5.0


def use_this_python() -> None:
    """Use this interpreter for the workers of later sessions, unless PYSPARK_PYTHON names another.

    Spark would run the ``python3`` of PATH. Outside the virtual environment of this process, that
    would not find the source ``rocketmq``.
    """
    os.environ.setdefault(WORKER_PYTHON, sys.executable)


def spark(
    master: str = "local[*]", *, memory: str = "2g", config: Mapping[str, str] | None = None
) -> "SparkSession":
    """Return a Spark session that has the source ``rocketmq``.

    Its workers run this interpreter with its virtual environment, unless PYSPARK_PYTHON names
    another one. ``memory`` is the driver's heap; a local ``master`` has no other memory. ``config``
    has other settings of Spark. If the process already has a session, that one is returned. The
    first call takes some seconds, and longer the first time on a machine.

    :raises SparkUnavailable: if pyspark or a JDK of at least 17 is missing, no standalone master
        answers, or Spark does not start.
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

    ``memory`` is the driver's heap; a local ``master`` has no other memory. ``quick`` makes the JVM
    compile fast rather than well, which suits jobs that work in Python; without it, long SQL runs
    twice as fast, and the session starts a few seconds later. ``config`` overrides the settings
    made here. If the process already has a session, that one is returned, with the settings that
    can still change.

    :raises SparkUnavailable: before a JVM is started, if pyspark or a JDK of at least 17 is
        missing, or no standalone master answers; also if Spark does not start.
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
    """Return the SQL session of a context; created if necessary."""
    from pyspark.sql import SparkSession

    return SparkSession(context)


def start_tasks(master: str = "local[*]", *, memory: str = "2g") -> "SparkContext":
    """Return a context for jobs without SQL, which starts a second earlier; errors as `start`."""
    chosen = settings(memory, is_local=master.startswith("local"))
    return _start(master, chosen, sys.executable, with_sql=False)


def _start(
    master: str, chosen: Mapping[str, str], python: str, *, with_sql: bool
) -> "SparkContext":
    """Return the context of this process; started if necessary."""
    java, java_version = check_available(with_sql=with_sql)
    _check_master(master)
    os.environ[WORKER_PYTHON] = python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        # Otherwise Spark resolves this machine's name, warns, and listens on that address.
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
        # Captures the JVM's warnings; its output stays for streams with the format "console".
        streams = {"stderr": output} | ({} if with_sql else {"stdout": output})
        try:
            if SparkContext._gateway is not None:  # noqa: SLF001 - an earlier session's JVM
                return SparkContext.getOrCreate(conf)
            gateway = launch_gateway(conf, streams)
            client = gateway._gateway_client  # noqa: SLF001 - py4j has no public name for it
            client.converters = list(map(_numpy_only, client.converters))
            return SparkContext(conf=conf, gateway=gateway)
        except (Py4JError, PySparkException) as error:
            output.seek(0)
            lines = output.read().decode("utf-8", "replace").split("\n")
            reason = next((line.strip() for line in lines if "rror" in line), reason_of(error))
            raise SparkUnavailable(f"Spark does not start on {master}: {reason}") from error


@contextmanager
def _installed_pyspark() -> Iterator[None]:
    """Make a JVM that starts inside, and its processes, import PySpark as it is installed.

    They would import it from a ZIP file in Spark's home, which has no bytecode and costs each of
    them half a second. So SPARK_HOME is a directory with links to PySpark's programs and jars,
    without that file.
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


def _numpy_only(converter: Any) -> Any:
    """Return a converter of arguments for Java that is used only for objects of numpy.

    For the first argument of any call, Pyspark 4.2 would import pandas, Arrow and its test tools to
    find out whether numpy is installed.
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
    """Return JVM options that map an archive of classes, or create it.

    Half of Spark's start is loading and verifying some 10,000 classes. A JVM can write them to a
    file when it ends (JEP 350), of about 110 MB. From JDK 19 on it replaces a file that does not
    fit; for older JDKs the file name identifies the installation. Files that were not used for a
    month are removed. Contexts without SQL have their own, smaller file, which lacks the classes of
    SQL.
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
    """Return True if a JVM finished writing the file: it writes the first bytes last."""
    with archive.open("rb") as file:
        return any(file.read(4))


def _check_master(master: str) -> None:
    """Check that a standalone master accepts connections: Spark would wait longer than a minute."""
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
        # Tasks read files that every node sees: waiting for a certain node is useless.
        "spark.locality.wait": "0s",
    }
    if is_local:
        chosen |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            # On a cluster, workers may have another interpreter, or a RocketLens sent with the job.
            _DAEMON: "rocketlens.pipeline.worker_daemon",
        }
    return chosen


def check_available(*, with_sql: bool = False) -> tuple[Path, int]:
    """Check in milliseconds that pyspark, a JDK and the kernels are installed; start nothing.

    ``with_sql``: also check what Spark's SQL needs to read the source rocketmq. Return the result
    of `find_java`.

    :raises SparkUnavailable: if one is missing; the message says what to install.
    :raises PackageMissing: if a kernel is missing.
    """
    # A worker that cannot import them would only lose its connection to Spark.
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

    As in Spark, this is the one in JAVA_HOME if that is set, else the first on PATH.

    :raises SparkUnavailable: if there is no Java, or its version is unknown.
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
    """Read the major version from the file ``release`` beside ``bin``, else from the program."""
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
