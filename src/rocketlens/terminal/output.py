"""stdout and stderr of commands: notes, colours, times, and exit codes.

=====  ============  ==============================================================================
code   name          meaning
=====  ============  ==============================================================================
0      OK            found; done; consistent; healthy
1      NO            not found, and everything was searched; inconsistent; unhealthy
2      FAILED        wrong usage, or an error
3      INCOMPLETE    something could not be searched, even if something was found
130    INTERRUPTED   ended by Ctrl-C
=====  ============  ==============================================================================
"""

import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, TextIO

from rocketlens.model.text import time_words
from rocketlens.model.text.escape import printable

BOLD: Final = "1"
DIM: Final = "2"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"
CYAN: Final = "36"
MATCH: Final = "1;31"
"""The colour of search matches."""

_WORD_END: Final = re.compile(r" (?!\d\d:\d\d:\d\d)")
_COLOUR_CODE: Final = re.compile(r"\x1b\[[0-9;]*m")

COLOUR_CHOICES: Final = ("auto", "always", "never")
_CHOSEN: Final = ["auto"]
"""The colour choice of this process."""


def note(text: str) -> None:
    """Print one line on stderr, with the program's name, escaped for terminals."""
    print(f"rocketlens: {printable(text)}", file=sys.stderr, flush=True)


def say(text: str = "") -> None:
    """Print a line on stderr, wrapped if it is a terminal. The caller escapes foreign text."""
    if sys.stderr.isatty():
        text = "\n".join(_wrapped(text, _columns_of(sys.stderr)))
    print(text, file=sys.stderr, flush=True)


def _columns_of(terminal: TextIO) -> int:
    """Return the width of a terminal; falls back to that of stdout."""
    try:
        columns = os.get_terminal_size(terminal.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return shutil.get_terminal_size((columns or 100, 24)).columns


def _wrapped(text: str, columns: int) -> Iterator[str]:
    """Wrap a text at words and yield its lines; colour codes have no width, times stay whole."""
    line, used = "", 0
    for word in _WORD_END.split(text):
        width = len(_COLOUR_CODE.sub("", word))
        if line and used + 1 + width > columns:
            yield line
            line, used = f"  {word}", 2 + width
        else:
            line, used = (f"{line} {word}", used + 1 + width) if line else (word, width)
    yield line


def wrap_lines(text: str, before: int) -> list[str]:
    """Wrap a text to the width of stdout minus ``before`` columns, if it is a terminal.

    Lines break only at spaces, so that users can copy long words.
    """
    if not sys.stdout.isatty():
        return [text]
    room = max(shutil.get_terminal_size((100, 24)).columns - before - 1, before)
    return textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False) or [""]


def choose_colour(choice: str) -> None:
    """Set the colour mode of this process, one of `COLOUR_CHOICES`."""
    _CHOSEN[0] = choice


def has_colour(stream: TextIO) -> bool:
    """Return whether to colour text for a stream.

    In mode ``auto``, true for a terminal with colours, unless ``NO_COLOR`` is set.
    """
    if _CHOSEN[0] != "auto":
        return _CHOSEN[0] == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, code: str, stream: TextIO) -> str:
    """Return text in a colour, or unchanged if the stream has none."""
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
    """Make stdout and stderr accept any text, and open them if they are closed (``>&-``)."""
    # In this order: the system assigns the lowest number, so later files cannot become stdout.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        # Letters outside the locale's charset are shown as numbers.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")


def discard_stdout() -> None:
    """Discard unwritten output, so that the interpreter's final flush does not fail."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass


def print_ready(line: str) -> None:
    """Print that a server is ready, and notify systemd."""
    from rocketlens.net.event_loop import READY, notify

    print(f"ready: {line}", flush=True)
    notify(READY)


SEARCH_EXIT_CODES: Final = (
    "exit codes: 0 found, 1 not found and everything was searched, 2 wrong usage or an error,\n"
    "3 incomplete: something could not be searched, whether or not something was found."
)
"""Help of the commands that search."""


class ExitCode(IntEnum):
    """The result of a command."""

    OK = 0
    NO = 1
    FAILED = 2
    INCOMPLETE = 3
    INTERRUPTED = 130


TIMES_HELP: Final = (
    "times: 2h, 30m, 1d12h (that long ago), in 2h, now, today, yesterday, 10:31, 2026-11-20,\n"
    "2026-11-20T10:31:02.114+08:00 (without a zone: local time), 20261120103102, epoch\n"
    "seconds or milliseconds. A day alone means the whole day."
)


def parse_time(text: str, option: str, *, is_end: bool, now_ms: int | None = None) -> int:
    """Parse a time like `rocketlens.model.text.time_words`; ``now_ms`` defaults to the clock.

    :raises BadInput: if the text is not a time; the message names ``option``.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return time_words.parse_time(text, option, is_end=is_end, now_ms=now_ms)


def time_text(epoch_ms: int) -> str:
    """Return local time in milliseconds, or the number itself if it is out of range.

    Damaged or forged records can have any number.
    """
    try:
        local = time.localtime(epoch_ms // 1000)
    except (OverflowError, OSError, ValueError):
        return f"{epoch_ms} ms"
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', local)}.{epoch_ms % 1000:03d}"


def zone_text(epoch_ms: int) -> str:
    """Return the offset of local time at a moment, such as ``+08:00``."""
    try:
        seconds = time.localtime(epoch_ms // 1000).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        seconds = time.localtime().tm_gmtoff
    sign = "-" if seconds < 0 else "+"
    return f"{sign}{abs(seconds) // 3600:02d}:{abs(seconds) // 60 % 60:02d}"


def iso_text(epoch_ms: int) -> str:
    """Return local time with its zone in ISO 8601."""
    text = time_text(epoch_ms)
    if text.endswith("ms"):
        return text
    return text.replace(" ", "T") + zone_text(epoch_ms)


def moment_text(epoch_ms: int) -> str:
    """Return local time with its zone for sentences; `iso_text` is for values."""
    return iso_text(epoch_ms).replace("T", " ")


def range_text(begin: int | None, end: int | None) -> str:
    """Describe a range of store times; both ends in milliseconds, with zone."""
    first = "" if begin is None else moment_text(begin)
    last = "" if end is None else moment_text(end)
    if first and last:
        return f"stored from {first} to {last}"
    return f"stored at or after {first}" if first else f"stored at or before {last}"
