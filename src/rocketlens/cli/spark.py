"""Starts Spark for a command, and shows on stderr how far its job is."""

import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from rocketlens.terminal.output import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_BAR: Final = 24
_open: "list[SparkSession]" = []
"""The session of an enclosing block, which a command run inside it shares."""


@contextmanager
def session(master: str, *, memory: str = "2g") -> "Iterator[SparkSession]":
    """Give a Spark session that ends with the outermost of such blocks.

    ``memory`` is the JVM's heap, as :func:`rocketlens.pipeline.session.start` takes it.

    :raises SparkUnavailable: when it can't be had, saying what to install.
    """
    if _open:
        yield _open[0]
        return
    from rocketlens.pipeline.session import check_available, start

    check_available()
    say(f"starting Spark on {master} ...")
    spark = start(master, memory=memory)
    _open.append(spark)
    try:
        yield spark
    except KeyboardInterrupt:
        # The JVM got the Ctrl-C, too, and may have ended before it can be told to.
        _open.clear()
        with suppress(Exception):
            spark.stop()
        raise
    finally:
        if _open:
            _open.clear()
            spark.stop()


class ProgressLine:
    """Shows the phases of a job: one moving line on a terminal, a line a phase elsewhere."""

    def __init__(self) -> None:
        self._moves = sys.stderr.isatty()
        self._phase = ""
        self._begin = 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` tasks of a phase are done."""
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
