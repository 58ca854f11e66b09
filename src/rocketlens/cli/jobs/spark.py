"""Starts Spark for a command, and shows its progress on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from rocketlens.terminal.output import say

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_BAR: Final = 24
_open: "list[SparkContext]" = []
"""The context of an enclosing block, shared by the commands that run inside it."""


def session(master: str) -> "AbstractContextManager[SparkContext]":
    """Return a Spark that runs tasks, and ends with the outermost of such blocks.

    :raises SparkUnavailable: when Spark or a JDK is missing; the message says what to install.
    """

    def start() -> "SparkContext":
        from rocketlens.pipeline.session import start_tasks

        return start_tasks(master)

    return _shared(master, start)


@contextmanager
def sql_session(master: str, *, memory: str = "2g") -> Iterator["SparkSession"]:
    """Return a Spark that has SQL, too, which takes longer to start; see `session`.

    ``memory`` is the JVM's heap, as :func:`rocketlens.pipeline.session.start` takes it.
    """

    def start() -> "SparkContext":
        from rocketlens.pipeline.session import start

        return start(master, memory=memory).sparkContext

    with _shared(master, start) as context:
        from rocketlens.pipeline.session import sql_of

        yield sql_of(context)


@contextmanager
def _shared(master: str, start: Callable[[], "SparkContext"]) -> Iterator["SparkContext"]:
    if _open:
        yield _open[0]
        return
    from rocketlens.pipeline.session import check_available

    check_available()
    say(f"starting Spark on {master} ...")
    spark = start()
    _open.append(spark)
    try:
        yield spark
    except KeyboardInterrupt:
        # The JVM got the Ctrl-C, too, and may have exited already.
        _open.clear()
        with suppress(Exception):
            spark.stop()
        raise
    finally:
        if _open:
            _open.clear()
            spark.stop()


class ProgressLine:
    """Shows the phases of a job: one updated line on a terminal, one line per phase elsewhere."""

    def __init__(self) -> None:
        self._moves = sys.stderr.isatty()
        self._phase = ""
        self._begin = 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` tasks of a phase are finished."""
        if phase != self._phase:
            self._phase, self._begin = phase, time.monotonic()
        seconds = time.monotonic() - self._begin
        is_over = done == total
        if self._moves:
            filled = _BAR * done // total if total else _BAR
            bar = "█" * filled + "░" * (_BAR - filled)
            line = f"\r\x1b[K{phase:8} {bar} {done}/{total}  {seconds:.1f} s"
            print(line, end="\n" if is_over else "", file=sys.stderr, flush=True)
        elif is_over:
            say(f"{phase}: {total} of {total}, {seconds:.1f} s")
        if is_over:
            self._phase = ""
