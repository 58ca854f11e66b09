"""stdout and stderr: prepared for any text and any start, lines of notes, colour on terminals."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Final, TextIO

from rocketlens.model.text.escape import printable

BOLD: Final = "1"
DIM: Final = "2"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"
CYAN: Final = "36"
MATCH: Final = "1;31"
"""What was searched for, where it is found."""

_COLOUR_CODE: Final = re.compile(r"\x1b\[[0-9;]*m")

COLOUR_CHOICES: Final = ("auto", "always", "never")
_CHOSEN: Final = ["auto"]
"""The choice of this process."""


def note(text: str) -> None:
    """Print one line on stderr, with the program's name, and escaped for terminals."""
    print(f"rocketlens: {printable(text)}", file=sys.stderr, flush=True)


def say(text: str = "") -> None:
    """Print a line on stderr, wrapped on a terminal.

    The caller has escaped what came from a message.
    """
    if sys.stderr.isatty():
        text = "\n".join(_wrapped(text, _columns_of(sys.stderr)))
    print(text, file=sys.stderr, flush=True)


def _columns_of(terminal: TextIO) -> int:
    """Return the columns of a terminal; those of stdout may be known, or stdout may be a pipe."""
    try:
        columns = os.get_terminal_size(terminal.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return shutil.get_terminal_size((columns or 100, 24)).columns


def _wrapped(text: str, columns: int) -> Iterator[str]:
    """Return the lines of a text that is wrapped at words; colours take no columns."""
    line, used = "", 0
    for word in text.split(" "):
        width = len(_COLOUR_CODE.sub("", word))
        if line and used + 1 + width > columns:
            yield line
            line, used = f"  {word}", 2 + width
        else:
            line, used = (f"{line} {word}", used + 1 + width) if line else (word, width)
    yield line


def fitted_lines(text: str, before: int) -> list[str]:
    """Return a text in lines that fit stdout behind ``before`` columns, if it is a terminal.

    Only spaces are broken: what is between them is copied.
    """
    if not sys.stdout.isatty():
        return [text]
    room = max(shutil.get_terminal_size((100, 24)).columns - before - 1, before)
    return textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False) or [""]


def choose_colour(choice: str) -> None:
    """Use colour always, never, or on terminals (``auto``): one of `COLOUR_CHOICES`."""
    _CHOSEN[0] = choice


def has_colour(stream: TextIO) -> bool:
    """Return whether text for a stream is coloured.

    Unless it was chosen, a stream has colour if it is a terminal that can show it, and
    ``NO_COLOR`` is not set.
    """
    if _CHOSEN[0] != "auto":
        return _CHOSEN[0] == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, code: str, stream: TextIO) -> str:
    """Return text in a colour, or as it is if the stream has none."""
    return f"\x1b[{code}m{text}\x1b[0m" if has_colour(stream) else text


def size_text(count: int) -> str:
    """Return a number of bytes in at most six characters."""
    size = float(count)
    for unit in ("", "K", "M"):
        if size < 1000:
            return f"{count}" if not unit else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}G"


def prepare_streams() -> None:
    """Make stdout and stderr take any text.

    In a process that was started without one (``>&-``) it leads nowhere.
    """
    # In this order: the system returns the lowest number, so no file opened later becomes stdout.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        # A locale that lacks a letter shows its number; an odd argument can be shown at all.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")


def discard_stdout() -> None:
    """Send what is still unwritten nowhere, so that the interpreter's own flush is quiet."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass


def print_ready(line: str) -> None:
    """Print that a server is ready, and tell systemd if it runs the server."""
    from rocketlens.net.event_loop import READY, notify

    print(f"ready: {line}", flush=True)
    notify(READY)
