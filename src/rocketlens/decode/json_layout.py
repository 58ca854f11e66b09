"""JSON text, laid out for people piece by piece: numbers keep their digits, and names that are
repeated stay.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.\w]+|[{}\[\],:]')
_INDENT: Final = "  "


class JsonPart(StrEnum):
    """The kind of a piece of JSON."""

    NAME = "name"
    STRING = "string"
    OTHER = "other"
    """A number, true, false or null."""
    LAYOUT = "layout"
    """Brackets, commas, colons, spaces and line ends."""


def laid_out(text: str) -> Iterator[tuple[JsonPart, str]]:
    """Yield the pieces of a JSON text, two spaces deeper at each level."""
    pieces = [match[0] for match in TOKEN.finditer(text)]
    depth = 0
    for number, piece in enumerate(pieces):
        following = pieces[number + 1] if number + 1 < len(pieces) else ""
        if piece in "{[":
            is_empty = following in ("}", "]")
            depth += not is_empty
            yield JsonPart.LAYOUT, piece if is_empty else f"{piece}\n{_INDENT * depth}"
        elif piece in "}]":
            if pieces[number - 1] not in ("{", "["):
                depth -= 1
                yield JsonPart.LAYOUT, f"\n{_INDENT * depth}"
            yield JsonPart.LAYOUT, piece
        elif piece == ",":
            yield JsonPart.LAYOUT, f",\n{_INDENT * depth}"
        elif piece == ":":
            yield JsonPart.LAYOUT, ": "
        elif piece[0] == '"':
            yield JsonPart.NAME if following == ":" else JsonPart.STRING, piece
        else:
            yield JsonPart.OTHER, piece
