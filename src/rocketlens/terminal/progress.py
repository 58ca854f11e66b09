"""A line on stderr while a search goes on, Ctrl-C that ends it, and a pager for its results."""

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

    def close(self) -> None:
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
        self.close()
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


PAGER_VARIABLE: Final = "PAGER"
_DEFAULT: Final = ("less", "-FRX")
"""It ends by itself where all fits the screen, shows colour, and leaves the text there."""
_NO_PAGERS: Final = ((), ("cat",))


@contextmanager
def paged(*, is_allowed: bool) -> Iterator[None]:
    """Let what is printed in the context go through a pager, if stdout is a terminal.

    The pager is started by the first text. Where none is installed text is printed as it is. When
    the user ends the pager, printing raises BrokenPipeError, as for any reader that has had enough.
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
    """A terminal to those that print, and a pipe to a pager."""

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
        """Wait until the user has seen enough."""
        if self._process is None or self._output is None:
            return
        with suppress(BrokenPipeError):
            self._output.close()
        # Ctrl-C belongs to the pager now.
        while True:
            try:
                self._process.wait()
            except KeyboardInterrupt:
                continue
            return
