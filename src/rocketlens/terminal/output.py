"""What every command prints with: notes on stderr, safe text, colour where it can be seen."""

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
    """Say one line on stderr, with the program's name."""
    print(f"rocketlens: {printable(text)}", file=sys.stderr, flush=True)


def say(text: str = "") -> None:
    """Say a line on stderr as it is: the caller has made what came from a message printable."""
    print(text, file=sys.stderr, flush=True)


def has_colour(stream: TextIO) -> bool:
    """Say whether a stream is a terminal whose user has nothing against colour."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, code: str, stream: TextIO) -> str:
    """Give text in a colour, or as it is where there are none."""
    return f"\x1b[{code}m{text}\x1b[0m" if has_colour(stream) else text
