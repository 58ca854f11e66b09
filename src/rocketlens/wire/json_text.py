"""JSON as RocketMQ's library (fastjson) writes and reads it, within bounds.

Besides plain JSON it writes, in bodies, and this reads:

* integer map keys without quotes: ``{0:"10.0.0.1:10911"}``;
* objects as map keys: ``{{"queueId":0,"topic":"t"}:{...}}``. The key becomes the compact JSON
  text of the object, members sorted by name, just as if it had been a string.

Refused are: nesting deeper than 64, integers of more than 4,300 digits, NaN and infinities, text
that is no Unicode (lone surrogates), and a name that comes twice in an object, of which two
readers might take different ones.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from rocketlens import limits
from rocketlens.errors import ProtocolError

SPACE: Final = " \t\r\n"

PIECE_CHARACTERS: Final = 4 * 1024
"""Of longer texts, values of about so many characters are read at once: some 0.2 ms.

Meanwhile no other thread can run Python, which is why longer ones are read in pieces.
"""

LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")

ODD_KEY: Final = re.compile(r"[0-9}][ \t\r\n]*:")
"""The end of a key that plain JSON does not have. Without one the slow reader need not try."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _object_of(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    if len(made) != len(members):
        raise ValueError("a name comes twice in an object")
    return made


# Control characters may stand in strings as they are: fastjson takes them.
FAST_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)
"""Does everything but notice names that come twice, and lone surrogates."""

STRICT_DECODER: Final = json.JSONDecoder(
    strict=False, parse_constant=_refuse_constant, object_pairs_hook=_object_of
)
"""Does everything but notice lone surrogates."""

quote = json.encoder.encode_basestring
"""Write a string as JSON, in quotes, non-ASCII characters as they are."""


def loads(
    content: bytes | str,
    error: type[ProtocolError],
    *,
    is_plain: bool = False,
    check: Callable[[], None] | None = None,
) -> Any:
    """Read a JSON text in either dialect; only in plain JSON if ``is_plain``.

    Costs up to 0.3 µs for each byte of plain JSON, and 1.5 µs in the other dialect. ``check`` is
    called for each piece of a long text, and ends the reading with a ValueError.

    :raises ProtocolError: (as ``error``) when it is neither, or not within the bounds above.
        Nothing else is raised, whatever the bytes.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        if len(text) > PIECE_CHARACTERS:
            value = _Reader(text, check, is_plain=is_plain).read()
        else:
            try:
                value = STRICT_DECODER.decode(text)
            except (ValueError, RecursionError):
                if is_plain or not ODD_KEY.search(text):
                    raise
                value = _Reader(text, check).read()
        _check(value, 0)
    except (ValueError, IndexError, RecursionError) as reason:
        raise error(f"not JSON: {str(reason)[:200] or 'nested too deep'}") from None
    return value


def dumps(value: Any) -> str:
    """Write compact JSON; floating point numbers as Java does where that is shortest, too.

    :raises ValueError: for NaN and infinities.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _after_space(text: str, cursor: int) -> int:
    while cursor < len(text) and text[cursor] in SPACE:
        cursor += 1
    return cursor


def _check(value: Any, depth: int) -> None:
    """Refuse what is too deep, or holds text that cannot be written as UTF-8."""
    if depth > limits.MAX_JSON_DEPTH:
        raise ValueError(f"nested deeper than {limits.MAX_JSON_DEPTH} levels")
    if isinstance(value, str):
        if not value.isascii() and LONE_SURROGATE.search(value):
            raise ValueError("a surrogate without its other half")
    elif isinstance(value, dict):
        for name, member in value.items():
            _check(name, depth)
            _check(member, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)


class _Reader:
    """A reader of objects whose keys may be any JSON value; slower than the others.

    It reads long texts in pieces, between which other threads have their turn.
    """

    def __init__(
        self, text: str, check: Callable[[], None] | None, *, is_plain: bool = False
    ) -> None:
        self.text = text
        self.check = check
        self.cursor = 0
        self.is_plain = is_plain
        self.values = 0

    def read(self) -> Any:
        value = self._value(0)
        self._skip_space()
        if self.cursor != len(self.text):
            raise ValueError(f"text after the end, at character {self.cursor}")
        return value

    def _skip_space(self) -> None:
        self.cursor = _after_space(self.text, self.cursor)

    def _value(self, depth: int) -> Any:
        if depth > limits.MAX_JSON_DEPTH:
            raise ValueError(f"nested deeper than {limits.MAX_JSON_DEPTH} levels")
        self._skip_space()
        mark = self.text[self.cursor]
        if mark not in "{[":
            value, self.cursor = STRICT_DECODER.raw_decode(self.text, self.cursor)
            return value
        value = self._piece()
        if value is not None:
            return value
        return self._object(depth) if mark == "{" else self._array(depth)

    def _piece(self) -> Any:
        """Read the object or list here if it is plain JSON and no longer than a piece."""
        if self.check is not None:
            self.check()
        piece = self.text[self.cursor : self.cursor + PIECE_CHARACTERS]
        try:
            value, length = STRICT_DECODER.raw_decode(piece)
        except (ValueError, RecursionError):
            return None
        self.cursor += length
        return value

    def _count(self) -> None:
        self.values += 1
        if self.values > limits.MAX_JSON_VALUES:
            raise ValueError(f"more than {limits.MAX_JSON_VALUES} values")

    def _object(self, depth: int) -> dict[str, Any]:
        members: list[tuple[str, Any]] = []
        self.cursor += 1
        if self._at_end("}"):
            return {}
        while True:
            self._count()
            name = self._key(depth)
            self._skip_space()
            if self.text[self.cursor] != ":":
                raise ValueError(f"expected ':' at character {self.cursor}")
            self.cursor += 1
            members.append((name, self._value(depth + 1)))
            if not self._another("}"):
                return _object_of(members)

    def _key(self, depth: int) -> str:
        key = self._value(depth + 1)
        if self.is_plain and not isinstance(key, str):
            raise ValueError(f"expected a name in quotes before character {self.cursor}")
        return _key_text(key)

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.cursor += 1
        if self._at_end("]"):
            return items
        while True:
            self._count()
            items.append(self._value(depth + 1))
            if not self._another("]"):
                return items

    def _at_end(self, closing: str) -> bool:
        self._skip_space()
        if self.text[self.cursor] != closing:
            return False
        self.cursor += 1
        return True

    def _another(self, closing: str) -> bool:
        """Pass a comma and say yes, or the closing mark and say no."""
        self._skip_space()
        mark = self.text[self.cursor]
        if mark not in (",", closing):
            raise ValueError(f"expected ',' or {closing!r} at character {self.cursor}")
        self.cursor += 1
        return mark == ","


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if isinstance(key, dict):
        return json.dumps(key, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    raise ValueError(f"a map key is {type(key).__name__}")
