"""What every command prints with: notes on stderr, safe text, colour where it can be seen."""

import os
import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import Final, TextIO

from rocketlens.errors import BadInput

# Control characters (they move the cursor, or make a terminal do things), line separators that
# some programs split at, marks that reverse the direction of writing, and lone surrogates.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}

BOLD: Final = "1"
DIM: Final = "2"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"


def printable(text: str, keep: str = "") -> str:
    r"""Give text that a terminal shows and does not obey, on one line.

    Each unsafe character becomes its escape, ``\n`` or ``\x1b``, except those in ``keep``.
    """

    def escape(match: re.Match[str]) -> str:
        character = match[0]
        if character in keep:
            return character
        number = ord(character)
        return _SHORT.get(character) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")

    return _UNSAFE.sub(escape, text)


def safe_json(text: str) -> str:
    """Escape in JSON text what JSON allows and a terminal or a line splitter does not."""
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


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


def store_of(arguments: Namespace) -> Path:
    """Give the store directory that a command was given.

    :raises BadInput: when it was given none.
    """
    if not arguments.store:
        raise BadInput(
            "which store? Give --store DIR, the directory that holds commitlog/, or set "
            "ROCKETLENS_STORE"
        )
    if "\0" in arguments.store:
        raise BadInput("the store's path has a zero character in it")
    return Path(arguments.store)
