"""The progress of a search on stderr, Ctrl-C to stop it, and a pager for its results."""

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from types import FrameType
from typing import IO, TYPE_CHECKING, Final, Self, TextIO

from rocketlens.terminal.output import size_text

if TYPE_CHECKING:
    import subprocess

_SILENT_S: Final = 1.0
"""Shorter searches show no progress."""
_STEP_S: Final = 0.2
"""Seconds between updates of the line."""


class SearchProgress:
    """Shows the progress of a search on a terminal, after a second. A context manager.

    Within the context, the first Ctrl-C stops the search, so that its results can be shown; the
    second one ends the program. The search calls ``report``.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream: Final = sys.stderr if stream is None else stream
        self._is_shown: Final = self._stream.isatty()
        self._clock: Final = clock
        self._began_s: Final = clock()
        self._shown_s = self._began_s + _SILENT_S - _STEP_S
        self._line = ""
        self._lock: Final = threading.Lock()
        """Some searches report from another thread."""
        self._is_over = False
        self.is_interrupted = False
        """Whether Ctrl-C was pressed."""

    def report(self, read_bytes: int, total_bytes: int | None, messages: int) -> bool:
        """Show the bytes and messages read; return False to stop the search."""
        with self._lock:
            now_s = self._clock()
            if self._is_shown and not self._is_over and now_s - self._shown_s >= _STEP_S:
                self._shown_s = now_s
                self._show(line_of(read_bytes, total_bytes, messages, now_s - self._began_s))
        return not self.is_interrupted

    def close(self) -> None:
        """Remove the line before results are printed."""
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
        """Record Ctrl-C, for searches that handle it themselves."""
        self.is_interrupted = True

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.interrupt()

    def __enter__(self) -> Self:
        """Handle Ctrl-C, if this is the main thread."""
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line, and restore the handling of Ctrl-C."""
        self.close()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


def line_of(read_bytes: int, total_bytes: int | None, messages: int, seconds: float) -> str:
    """Return the line: messages, bytes, percentage if known, and rate."""
    share = ""
    if total_bytes is not None:
        part = min(read_bytes / total_bytes, 1) if total_bytes > 0 else 1
        share = f" of {size_text(total_bytes)}, {part:.0%}"
    rate = size_text(int(read_bytes / seconds)) if seconds > 0 else "0"
    return f"read {messages:,} messages, {size_text(read_bytes)}{share}, {rate}/s; Ctrl-C stops"


PAGER_VARIABLE: Final = "PAGER"
_DEFAULT: Final = ("less", "-FRX")
"""Ends by itself if the text fits the screen, shows colours, and keeps the text on the screen."""
_NO_PAGERS: Final = ((), ("cat",))


@contextmanager
def paged(*, is_allowed: bool) -> Iterator[None]:
    """Redirect printed text to a pager, if stdout is a terminal.

    The first text starts the pager. If it is not installed, text is printed directly. When the user
    quits the pager, printing raises BrokenPipeError.
    """
    chosen = os.environ.get(PAGER_VARIABLE)
    command = _DEFAULT if chosen is None else tuple(shlex.split(chosen))
    is_terminal = sys.stdout.isatty() and sys.stdin.isatty()
    if not (is_allowed and is_terminal) or command in _NO_PAGERS:
        yield
        return
    stream = _PagerStream(sys.stdout, command)
    try:
        with redirect_stdout(stream):
            yield
    finally:
        stream.close()


class _PagerStream:
    """A text stream that behaves like a terminal and writes to a pager."""

    def __init__(self, terminal: TextIO, command: tuple[str, ...]) -> None:
        self._terminal: Final = terminal
        self._command: Final = command
        self._process: subprocess.Popen[str] | None = None
        self._output: IO[str] | None = None
        self.encoding: Final = terminal.encoding

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._output is None:
            self._start()
        assert self._output is not None  # noqa: S101 - it was started
        return self._output.write(text)

    def flush(self) -> None:
        if self._output is not None:
            self._output.flush()

    def _start(self) -> None:
        import subprocess

        self._terminal.flush()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                encoding=self.encoding,
                errors="backslashreplace",
            )
            self._output = self._process.stdin
        except OSError:
            self._output = self._terminal

    def close(self) -> None:
        """Wait until the user quits the pager."""
        if self._process is None or self._output is None:
            return
        with suppress(BrokenPipeError):
            self._output.close()
        # The pager handles Ctrl-C.
        while True:
            try:
                self._process.wait()
            except KeyboardInterrupt:
                continue
            return
