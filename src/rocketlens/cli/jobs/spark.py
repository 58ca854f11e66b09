"""Starts Spark for a command, and shows its progress on stderr."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rocketlens.terminal.output import say

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_BAR: Final = 24
_running: "list[SparkContext]" = []
"""The context of this process, if it started one.

It ends with the process, because stopping Spark takes half a second.
"""


def task_context(master: str) -> "SparkContext":
    """Return the Spark of this process, for jobs without SQL; start it if necessary.

    :raises SparkUnavailable: if Spark or a JDK is missing; the message says what to install.
    """
    from rocketlens.pipeline.session import start_tasks

    return _context(master, lambda: start_tasks(master))


def sql_session(master: str, *, memory: str = "2g") -> "SparkSession":
    """Return a session of a Spark with SQL, which takes longer to start.

    `memory` is the heap of the JVM, as for :func:`rocketlens.pipeline.session.start`.

    :raises SparkUnavailable: as `task_context`.
    """
    from rocketlens.pipeline.session import sql_of, start

    return sql_of(_context(master, lambda: start(master, memory=memory).sparkContext))


def _context(master: str, start: Callable[[], "SparkContext"]) -> "SparkContext":
    from rocketlens.pipeline.session import check_available

    if not _running:
        check_available()
        say(f"starting Spark on {master} ...")
        _running.append(start())
    return _running[0]


class ProgressLine:
    """Shows the phases of a job: one updated line on a terminal, else one line per phase."""

    def __init__(self) -> None:
        self._moves = sys.stderr.isatty()
        self._phase = ""
        self._begin = 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
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
