"""The logs of servers: safe lines on stderr, as text or JSON.

::

    2026-11-21T21:13:56.674+00:00 INFO  broker: listens on 127.0.0.1:10911
    {"time": "2026-11-21T21:13:56.674+00:00", "level": "info", "area": "broker", "message": "..."}

A thread writes the lines, so that a paused terminal or a slow reader never blocks the server. Lines
that do not fit into its queue are counted. Lines that differ only in their values are bounded,
because clients cause most of them.
"""

import json
import logging
import os
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from queue import Full, Queue
from typing import Any, Final, TextIO

from rocketlens import limits
from rocketlens.cli.options import LOG_FORMATS, LOG_LEVELS, LOG_VARIABLE
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable, safe_json

_SPAN_S: Final = 10.0
"""Interval in which similar lines are counted."""
_FLUSH_S: Final = 2.0
"""How long the end of the program waits for unwritten lines."""


class EscapingFormatter(logging.Formatter):
    """Writes each message on one line, with control characters escaped.

    Logged text comes from clients and name servers. Tracebacks keep their lines.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-5s %(area)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.area = area_of(record)
        return printable(super().formatMessage(record))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's name
        return time_of(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return printable(super().formatException(ei), keep="\n")


class JsonFormatter(logging.Formatter):
    """Writes each message as one JSON object on one line; a traceback is a member."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": time_of(record),
            "level": record.levelname.lower(),
            "area": area_of(record),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        # A lone surrogate, which UTF-8 cannot encode, becomes an escape.
        text = json.dumps(fields, ensure_ascii=False)
        return safe_json(text.encode("utf-8", "backslashreplace").decode())


def area_of(record: logging.LogRecord) -> str:
    """Return the package of a record: ``broker``, ``store``, ``net``."""
    parts = record.name.split(".")
    return parts[1] if parts[0] == "rocketlens" and len(parts) > 1 else record.name


def time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class LineBudget(logging.Filter):
    """Bounds lines below ERROR that differ only in their values.

    The next such line that is written has the number of those left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock: Final = clock
        self._since_s = clock()
        self._written: Final[dict[tuple[str, str], int]] = {}
        self._left_out: Final[dict[tuple[str, str], int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        now_s = self._clock()
        if now_s - self._since_s >= _SPAN_S:
            self._since_s = now_s
            self._written.clear()
        kind = record.name, str(record.msg)
        count = self._written[kind] = self._written.get(kind, 0) + 1
        if count > limits.MAX_LIKE_LOG_LINES:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} like it before it are not shown)"
            record.args = ()
        return True


class LineWriter(logging.Handler):
    """Writes lines in a thread; :meth:`emit` never waits for their reader."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream: Final = stream
        self._lines: Final[Queue[str]] = Queue(limits.MAX_WAITING_LOG_LINES)
        self._dropped = 0
        threading.Thread(target=self._write, name="rocketlens-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of a record, or count it if the queue is full."""
        line = self.format(record)
        if self._dropped:
            line += f" ({self._dropped} lines before it are lost: they were not read in time)"
        try:
            self._lines.put_nowait(line)
            self._dropped = 0
        except Full:
            self._dropped += 1

    def flush(self) -> None:
        """Wait up to `_FLUSH_S` seconds until all lines are written."""
        with self._lines.all_tasks_done:
            is_written = self._lines.all_tasks_done.wait_for
            is_written(lambda: not self._lines.unfinished_tasks, _FLUSH_S)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            # stderr may be closed.
            with suppress(OSError, ValueError):
                self._stream.write(f"{line}\n")
                self._stream.flush()
            self._lines.task_done()


def log_to_stderr(arguments: Namespace) -> None:
    """Log to stderr, one line per record.

    :raises BadInput: if the environment variable contains a word that is neither level nor format.
    """
    level, form = _settings(os.environ.get(LOG_VARIABLE, ""))
    level, form = arguments.log_level or level, arguments.log_format or form
    handler = LineWriter(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else EscapingFormatter())
    handler.addFilter(LineBudget())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _settings(text: str) -> tuple[str, str]:
    """Return level and format of a text such as ``debug`` or ``info,json``."""
    level, form = "info", "text"
    for word in filter(None, (each.strip().lower() for each in text.split(","))):
        if word in LOG_LEVELS:
            level = word
        elif word in LOG_FORMATS:
            form = word
        else:
            raise BadInput(
                f"{LOG_VARIABLE}: {word[: limits.MAX_SHOWN_CHARACTERS]!r} is neither a level "
                f"({', '.join(LOG_LEVELS)}) nor a format ({', '.join(LOG_FORMATS)})"
            )
    return level, form
