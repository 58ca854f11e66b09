"""Keeps the classes of Spark's JVM in an archive, from which the next one starts faster.

A JVM that starts Spark spends most of that time with loading and verifying some 10,000 classes. It
can write those that it loaded when it ends (application class-data sharing, JEP 350). Another one
with the same jars maps that file, and starts in less than half the time. So the end of the first
process of an installation takes some seconds longer; the file has about 110 MB. A JVM ignores an
archive of other jars or of another JVM.
"""

import atexit
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final

from rocketlens import limits
from rocketlens.store.fs import user_cache

_QUIET: Final = "-Xshare:auto -Xlog:cds*=off -Xlog:class+path=off"
_ODD: Final = frozenset(" \t\n\"'\\")
"""Characters that options of a JVM cannot have in a path, or not in each version of Spark."""


class ClassArchive:
    """The archive for one JVM and one Spark, or none where the user's cache cannot be written.

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
