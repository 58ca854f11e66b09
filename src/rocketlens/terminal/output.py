"""Lines on stderr, and colour on terminals."""

import os
import sys
from typing import Final, TextIO

from rocketlens.model.escape import printable

BOLD: Final = "1"
DIM: Final = "2"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"


def note(text: str) -> None:
    """Print one line on stderr, with the program's name, and escaped for terminals."""
    print(f"rocketlens: {printable(text)}", file=sys.stderr, flush=True)


def say(text: str = "") -> None:
    """Print a line on stderr as it is: the caller has escaped what came from a message."""
    print(text, file=sys.stderr, flush=True)


def has_colour(stream: TextIO) -> bool:
    """Return whether a stream is a terminal with colour, and the user did not switch it off."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, code: str, stream: TextIO) -> str:
    """Return text in a colour, or as it is if the stream has none."""
    return f"\x1b[{code}m{text}\x1b[0m" if has_colour(stream) else text
