"""Sends output that does not fit the screen through a pager: ``$PAGER``, or ``less -FRX``."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    import subprocess

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
    command = _command() if is_allowed and sys.stdout.isatty() and sys.stdin.isatty() else ()
    if command in _NO_PAGERS:
        yield
        return
    stream = _PagerStream(sys.stdout, command)
    try:
        with redirect_stdout(stream):
            yield
    finally:
        stream.close()


def _command() -> tuple[str, ...]:
    # Imported late, as below: the usual search prints to a terminal or a pipe without a pager.
    import shlex

    chosen = os.environ.get(PAGER_VARIABLE)
    return _DEFAULT if chosen is None else tuple(shlex.split(chosen))


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
