"""Starts the Java virtual machine of a Spark session, as fast as it can be.

`session` decides what a session is; here is what it takes to have a JVM that pyspark can call: its
command, the archive of its classes, and what pyspark would do to each call. Apart from the session,
because none of it knows Spark's settings or masters.
"""

import atexit
import hashlib
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import TYPE_CHECKING, Any, Final

from rocketlens.errors import SparkUnavailable
from rocketlens.store.fs import user_cache

if TYPE_CHECKING:
    from pyspark import SparkContext

MAX_CLASS_ARCHIVE_S: Final = 120.0
"""Seconds for Spark's JVM to write its classes into an archive when it ends: 3 to 5 s on an idle
machine, once."""
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
MEMORY: Final = "spark.driver.memory"

_POLL_S: Final = 0.01
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
LAUNCHER_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""What Spark's launcher has every JVM started with."""

_SCRIPT_VARIABLES: Final = ("SPARK_", "PYSPARK_SUBMIT_", "PYSPARK_GATEWAY_", "HADOOP_", "YARN_")
_OTHER_VARIABLES: Final = frozenset(
    {"SPARK_LOCAL_IP", "SPARK_LOCAL_DIRS", "SPARK_USER"}
    # Pyspark sets them itself, in this process.
    | {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}
)
_LATE_SETTINGS: Final = (
    "spark.sql.", "spark.ui.", "spark.default.", "spark.python.", "spark.task.", "spark.local.dir",
    "spark.memory.", "spark.shuffle.", "spark.cleaner.", "spark.scheduler.", "spark.app.name",
    "spark.log.", "spark.eventLog.", "spark.rdd.", "spark.speculation", "spark.io.",
)  # fmt: skip
"""What Spark reads when a context starts, and not before."""


_QUIET: Final = "-Xshare:auto -Xlog:cds*=off -Xlog:class+path=off"
_UNUSED_S: Final = 30 * 86_400.0
_ODD: Final = frozenset(" \t\n\"'\\")
"""Characters that options of a JVM cannot have in a path, or not in each version of Spark."""


class ClassArchive:
    """An archive for one JVM and one Spark, or none where the user's cache cannot be written.

    A JVM that starts Spark spends most of that time with loading and verifying some 10,000 classes.
    It can write those that it loaded when it ends (application class-data sharing, JEP 350).
    Another one with the same jars maps that file, and starts in less than half the time. So the end
    of the first process of an installation takes some seconds longer; the file has about 110 MB. A
    JVM ignores an archive of other jars or of another JVM. One that was not used for a month, as
    those of installations that are gone, is removed when another is to be written. Sessions without
    SQL have a smaller one of their own, since the classes of SQL would be missing in theirs.

    ``java`` is the program, ``spark`` the directory of pyspark. ``options`` are for the JVM: they
    use the archive, or have it written if it is not there yet.
    """

    def __init__(
        self, java: Path, spark: Path, *, with_sql: bool, cache: Path | None = None
    ) -> None:
        home = java.resolve().parent.parent
        made_for = f"{home} {_stamp(home / 'release')} {spark} {_stamp(spark / 'jars')}"
        directory = (user_cache() if cache is None else cache) / "rocketlens"
        kind = "spark" if with_sql else "spark-tasks"
        name = f"{kind}-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}"
        self.path: Final = directory / f"{name}.jsa"
        self._written: Final = directory / f"{name}.{os.getpid()}.new"
        self.options = ""
        self._is_new = False
        if _ODD.isdisjoint(str(self.path)):
            with suppress(OSError):
                self._choose()

    def _choose(self) -> None:
        if self.path.exists():
            # It tells when it was used last.
            with suppress(OSError):
                os.utime(self.path)
            self.options = f"-XX:SharedArchiveFile={self.path} {_QUIET}"
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(self.path.parent, os.W_OK):
            self._remove_unfinished()
            self._remove_unused()
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
        # A context that still runs would complain about the end of its JVM.
        context = active_context()
        if context is not None:
            context.stop()
        # Ctrl-C means now: the next process writes the archive.
        with suppress(OSError, TimeoutExpired, KeyboardInterrupt):
            if jvm.stdin is not None:
                jvm.stdin.close()
            if jvm.wait(MAX_CLASS_ARCHIVE_S) == 0:
                self._written.replace(self.path)
        with suppress(OSError):
            self._written.unlink(missing_ok=True)

    def _remove_unfinished(self) -> None:
        """Remove what processes left that were killed before their JVM had ended."""
        for unfinished in self.path.parent.glob("spark-*.new"):
            pid = unfinished.suffixes[-2].removeprefix(".")
            if pid.isdecimal() and not _is_running(int(pid)):
                unfinished.unlink(missing_ok=True)

    def _remove_unused(self) -> None:
        """Remove archives that were not used for `_UNUSED_S`."""
        for archive in self.path.parent.glob("spark-*.jsa"):
            if time.time() - archive.stat().st_mtime > _UNUSED_S:
                archive.unlink(missing_ok=True)


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


def active_context() -> "SparkContext | None":
    """Return the context that this process has, without importing pyspark for that."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._active_spark_context  # noqa: SLF001 - there is no public way to ask


def former_gateway() -> Any:
    """Return the gateway that an earlier session left when it was stopped, or None."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._gateway  # noqa: SLF001 - there is no public way to ask


def start_jvm(
    master: str,
    chosen: Mapping[str, str],
    command: Sequence[str | Path] | None,
    *,
    with_sql: bool,
) -> Any:
    """Start the JVM, and return its gateway.

    ``command`` starts it, or Spark's own scripts do if it is None.

    :raises SparkUnavailable: with what the JVM says, which is not shown otherwise.
    """
    with tempfile.TemporaryFile() as output:
        # Streams to the format "console" print to the standard output of the JVM.
        streams = {"stderr": output} | ({} if with_sql else {"stdout": output})
        try:
            if command is None:
                return _start_by_scripts(master, chosen, streams)
            return _start_directly(command, streams)
        except ChildProcessError as error:
            output.seek(0)
            lines = output.read().decode("utf-8", "replace").split("\n")
            reason = next((line for line in lines if "rror" in line), str(error))
            raise SparkUnavailable(f"the JVM did not start: {reason.strip()}") from error


def _start_by_scripts(master: str, chosen: Mapping[str, str], streams: Mapping[str, Any]) -> Any:
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName("rocketlens")
    try:
        return launch_gateway(conf.setAll(list(chosen.items())), popen_kwargs=dict(streams))
    except PySparkRuntimeError as error:
        raise ChildProcessError(str(error)) from error


def _start_directly(command: Sequence[str | Path], streams: Mapping[str, Any]) -> Any:
    """Run a JVM that waits for calls, as pyspark does by three scripts and another JVM.

    Its workers import pyspark as this process does, and not from a ZIP file without bytecode, for
    which Spark needs SPARK_HOME.
    """
    with tempfile.TemporaryDirectory(prefix="rocketlens-") as directory:
        connection = Path(directory, "connection")
        environment = os.environ | {
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
            "SPARK_CONNECT_MODE": "0",
            # Workers must agree on hashes of text.
            "PYTHONHASHSEED": "0",
        }
        # Ctrl-C in a terminal is for this process, which ends the JVM by its standard input.
        jvm = Popen(command, stdin=PIPE, env=environment, process_group=0, **streams)

        from pyspark.java_gateway import launch_gateway

        while not connection.exists():
            if jvm.poll() is not None:
                jvm.communicate()
                raise ChildProcessError(f"it ended with {jvm.returncode}")
            time.sleep(_POLL_S)
        content = connection.read_bytes()
    # Spark writes a port, the length of a secret, and the secret.
    port, length = int.from_bytes(content[:4]), int.from_bytes(content[4:8])
    # For pyspark the JVM exists already, as for a program that was run by spark-submit.
    given = {
        "PYSPARK_GATEWAY_PORT": str(port),
        "PYSPARK_GATEWAY_SECRET": content[-length:].decode(),
    }
    os.environ.update(given)
    try:
        gateway = launch_gateway()
    finally:
        for name in given:
            del os.environ[name]
    gateway.proc = jvm
    return gateway


def java_command(java: Path, home: Path, chosen: Mapping[str, str]) -> list[str | Path]:
    """Return what Spark's launcher would run, but for the class that parses its command line."""
    jars = home / "jars"
    # The launcher puts it first, so the class path of the archive has it first.
    first = next(jars.glob("slf4j-api-*.jar"), jars)
    return [
        java,
        "-cp",
        f"{home / 'conf'}:{first}:{jars}/*",
        f"-Xmx{chosen[MEMORY]}",
        *shlex.split(chosen[JAVA_OPTIONS]),
        *LAUNCHER_OPTIONS,
        "org.apache.spark.api.python.PythonGatewayServer",
    ]


def needs_scripts(changed: Iterable[str], environment: Mapping[str, str], home: Path) -> bool:
    """Return whether a local JVM must be started by Spark's scripts.

    They read what users configure in files and variables of the environment, and fetch packages.
    ``changed`` are the settings that a user chose.
    """
    return (home / "conf").exists() or not (
        all(name == MEMORY or name.startswith(_LATE_SETTINGS) for name in changed)
        and all(
            name in _OTHER_VARIABLES or not name.startswith(_SCRIPT_VARIABLES)
            for name in environment
        )
    )


class _OfNumpy:
    """A converter of arguments for Java that is asked about objects of numpy alone."""

    def __init__(self, converter: Any) -> None:
        self.convert: Final = converter.convert
        self._converter: Final = converter

    def can_convert(self, argument: object) -> bool:
        """Return whether ``argument`` is of a class of numpy that can be converted."""
        is_numpy = any(one.__module__.startswith("numpy") for one in type(argument).__mro__)
        return is_numpy and bool(self._converter.can_convert(argument))


def ask_numpy_last(gateway: Any) -> None:
    """Avoid that the first call of the JVM imports pandas, Arrow and pyspark's tools for tests.

    Pyspark 4.2 does so for each argument, only to find out whether numpy is installed.
    """
    client = gateway._gateway_client  # noqa: SLF001 - py4j has no public name for it
    client.converters = [
        _OfNumpy(one) if type(one).__name__.startswith("Numpy") else one
        for one in client.converters
    ]
