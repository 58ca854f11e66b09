r"""Escapes foreign text for terminals, JSON and logs.

=====================================  ==========================================================
escaped                                because
=====================================  ==========================================================
control characters (C0, DEL, C1)       they move the cursor, fake lines, and control the terminal
U+2028, U+2029                         some programs start a new line there
marks of direction (U+061C, U+200E,    they reorder the displayed text
U+200F, U+202A .. E, U+2066 .. 9)
invisible characters                   different texts would look alike: zero-width spaces and
(Default_Ignorable_Code_Point,         joiners, U+FEFF, soft hyphens, variation selectors, fillers,
U+FFF9 .. B)                           tags
lone surrogates                        they cannot be encoded as UTF-8
=====================================  ==========================================================

A combined emoji is shown as its parts, with escaped joiners between them.
"""

import re
from typing import Final

INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
"""Escaped characters except controls and surrogates, as ranges of a regular expression."""

_UNSAFE: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff{INVISIBLE}]")
_UNSAFE_IN_JSON: Final = re.compile(f"[\x7f-\x9f{INVISIBLE}]")
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def printable(text: str, keep: str = "") -> str:
    r"""Return text on one line that is safe to print to a terminal.

    Unsafe characters that are not in ``keep`` are escaped: ``\n``, ``\x1b``, ``\u200b``,
    ``\U000e0001``.
    """
    if text.isascii() and text.isprintable():
        return text

    def escape(match: re.Match[str]) -> str:
        character = match[0]
        return character if character in keep else _escaped(character)

    return _UNSAFE.sub(escape, text)


def safe_json(text: str) -> str:
    """Escape unsafe characters that JSON allows; the parsed value does not change."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE_IN_JSON.sub(lambda match: _escaped_in_json(match[0]), text)


def _escaped(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return _SHORT.get(character) or f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _escaped_in_json(character: str) -> str:
    """Return the JSON escapes of a character's UTF-16 units."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))
