"""A line on stderr while a search goes on, and Ctrl-C that ends a search and not the program."""

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, Self, TextIO

from rocketlens.terminal.output import size_text

_SILENT_S: Final = 1.0
"""Nothing is shown of a search that takes no longer."""
_STEP_S: Final = 0.2
"""Between two looks of the line."""


class SearchProgress:
    """Shows how much was read, from a second on, if ``stream`` is a terminal. A context manager.

    In it the first Ctrl-C asks the search to stop, so that what was found can be shown, and a
    second one ends the program. ``report`` is what a search calls.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Use stderr unless told otherwise; ``clock`` returns seconds."""
        self._stream: Final = sys.stderr if stream is None else stream
        self._is_shown: Final = self._stream.isatty()
        self._clock: Final = clock
        self._began_s: Final = clock()
        self._shown_s = self._began_s + _SILENT_S - _STEP_S
        self._line = ""
        self._lock: Final = threading.Lock()
        """Some searches report from a thread of their own."""
        self._is_over = False
        self.is_interrupted = False
        """Whether Ctrl-C was pressed."""

    def report(self, read_bytes: int, total_bytes: int | None, messages: int) -> bool:
        """Show how many bytes and messages were read, of how many bytes if that is known; return
        False if the search is to stop.
        """
        with self._lock:
            now_s = self._clock()
            if self._is_shown and not self._is_over and now_s - self._shown_s >= _STEP_S:
                self._shown_s = now_s
                self._show(line_of(read_bytes, total_bytes, messages, now_s - self._began_s))
        return not self.is_interrupted

    def end(self) -> None:
        """Remove the line: results come."""
        with self._lock:
            self._is_over = True
            self._show("")

    def _show(self, line: str) -> None:
        if line or self._line:
            self._stream.write(f"\r{line.ljust(len(self._line))}")
            if not line:
                self._stream.write("\r")
            self._stream.flush()
        self._line = line

    def interrupt(self) -> None:
        """Record that Ctrl-C was pressed, where the search itself takes it."""
        self.is_interrupted = True

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.interrupt()

    def __enter__(self) -> Self:
        """Take Ctrl-C, where that is possible: in the main thread."""
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line, and leave Ctrl-C as it was."""
        self.end()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


def line_of(read_bytes: int, total_bytes: int | None, messages: int, seconds: float) -> str:
    """Return the line: messages, bytes, their share if it is known, and the rate."""
    share = ""
    if total_bytes is not None:
        part = min(read_bytes / total_bytes, 1) if total_bytes > 0 else 1
        share = f" of {size_text(total_bytes)}, {part:.0%}"
    rate = size_text(int(read_bytes / seconds)) if seconds > 0 else "0"
    return f"read {messages:,} messages, {size_text(read_bytes)}{share}, {rate}/s; Ctrl-C stops"
