r"""JSON as RocketMQ's libraries write and read it, over connections and in ``config/*.json``.

Besides plain JSON those libraries (fastjson in RocketMQ 4, fastjson2 in 5.5) write, and this reads,
objects with names that are no strings:

==============================  ========================================  ========================
written                         read as                                   where
==============================  ========================================  ========================
``{"a":1,"b":[]}``              ``{"a":1,"b":[]}``                        plain
``{1:16,3:50}``                 ``{"1":16,"3":50}``                       ids of queues and brokers
``{007:1,-0:2}``                ``{"007":1,"-0":2}``                      names of topics and groups
``{{"t":"T","q":0}:{"k":1}}``   ``{"{\"q\":0,\"t\":\"T\"}":{"k":1}}``     message queues
==============================  ========================================  ========================

So digits become text, and an object its compact JSON text with members sorted by name, as if they
had been strings. What comes over a connection (:func:`loads`) is read more strictly than a file
that a broker has written (:func:`loads_file`):

================================  =============================  ===========================
what                              :func:`loads`                  :func:`loads_file`
================================  =============================  ===========================
nesting                           64 levels                      128 levels
a name that comes twice           refused: readers would differ  the last counts
a surrogate without its other     refused: it is not Unicode     read
NaN and infinities                refused                        read
digits as a name, if asked        text                           integers, if Java writes them so
long texts                        in pieces, of bounded number   at once where they are plain
================================  =============================  ===========================

Integers of more than 4,300 digits are refused by both.

Files are indented with tabs, one member a line, and integer names have no quotes
(:func:`dumps_file`). Source: ``RemotingSerializable``, ``ConfigManager``.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from rocketlens.errors import ConfigError, RocketLensError

MAX_JSON_DEPTH: Final = 64
"""Nesting that is followed in a command's body; RocketMQ's own have 6 levels."""
MAX_CONFIG_DEPTH: Final = 128
"""Nesting that is followed in a file of ``config/``; RocketMQ's own have 4 levels.

More than in a request (`MAX_JSON_DEPTH`): what came in one is kept a few levels further in.
"""
MAX_JSON_VALUES: Final = 1_000_000
"""Values in the large lists and objects of one JSON body: members of a topic or a queue do not
count, so this is six times `MAX_TOPICS`. RocketMQ: no limit.
"""
SPACE: Final = " \t\r\n"

PIECE_CHARACTERS: Final = 4 * 1024
"""Of longer texts, values of about so many characters are read at once: some 0.2 ms.

Meanwhile no other thread can run Python, which is why longer ones are read in pieces.
"""

LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")

_ODD_NAME: Final = re.compile(r"[0-9}][ \t\r\n]*:")
"""The end of a name that plain JSON does not have. Without one the slow reader need not try."""
_ODD_OBJECT: Final = re.compile(r"\{[ \t\r\n]*[-0-9{]")
_DIGITS: Final = re.compile(r"[ \t\r\n]*(-?\d{1,300})[ \t\r\n]*:", re.ASCII)
_INTEGER: Final = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
"""As a long of Java is written."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


_TWICE: Final = "a name comes twice in an object"


def _distinct(members: list[tuple[Any, Any]]) -> dict[Any, Any]:
    made = dict(members)
    if len(made) != len(members):
        raise ValueError(_TWICE)
    return made


# Control characters may stand in strings as they are: fastjson takes them.
FAST_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)
"""Does everything but notice names that come twice, and lone surrogates."""

STRICT_DECODER: Final = json.JSONDecoder(
    strict=False, parse_constant=_refuse_constant, object_pairs_hook=_distinct
)
"""Does everything but notice lone surrogates."""

quote = json.encoder.encode_basestring
"""Write a string as JSON, in quotes, non-ASCII characters as they are."""
_encode = json.JSONEncoder(ensure_ascii=False).encode


class _Rules(NamedTuple):
    decoder: json.JSONDecoder
    max_depth: int
    allows_twice: bool
    """Whether a name may come twice in an object; the last one counts."""
    in_pieces: bool
    """Whether long texts are read in pieces, and their values counted."""
    keeps_integers: bool = False
    is_plain: bool = False


_WIRE: Final = _Rules(STRICT_DECODER, MAX_JSON_DEPTH, allows_twice=False, in_pieces=True)
_FILE: Final = _Rules(
    json.JSONDecoder(strict=False), MAX_CONFIG_DEPTH, allows_twice=True, in_pieces=False
)


def loads(
    content: bytes | str,
    error: type[RocketLensError],
    *,
    is_plain: bool = False,
    check: Callable[[], None] | None = None,
) -> Any:
    """Read a JSON text in either dialect; only in plain JSON if ``is_plain``.

    Costs up to 0.3 µs for each byte of plain JSON, and 1.5 µs in the other dialect. ``check`` is
    called for each piece of a long text, and ends the reading with a ValueError.

    :raises RocketLensError: (as ``error``) when it is neither, or not within the bounds above.
        Nothing else is raised, whatever the bytes.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        value = _read(text, _WIRE._replace(is_plain=True) if is_plain else _WIRE, check)
        if _ESCAPED_SURROGATE.search(text):
            _check_surrogates(value)
    except (ValueError, RecursionError) as reason:
        raise error(f"not JSON: {_words(reason)}") from None
    return value


def loads_file(content: bytes | str, *, integer_keys: bool = False) -> Any:
    """Read a file of RocketMQ's in any dialect. O(n); bytes that are not UTF-8 become U+FFFD.

    ``integer_keys``: return names that are integers without quotes as ``int``, not as their text,
    so that :func:`dumps_file` can write them as they were.

    :raises ConfigError: when it is not one of them, or not within the bounds above.
    """
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    try:
        return _read(text, _FILE._replace(keeps_integers=integer_keys), None)
    except (ValueError, RecursionError) as reason:
        raise ConfigError(f"not JSON in any of RocketMQ's dialects: {_words(reason)}") from None


def dumps(value: Any) -> str:
    """Write compact JSON; floating point numbers as Java does where that is shortest, too.

    :raises ValueError: for NaN and infinities.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dumps_file(value: Any) -> str:
    """Write JSON as RocketMQ 5 does in files: tabs, and names that are ``int`` without quotes."""
    return _indented(value, "\n")


def _indented(value: Any, line: str) -> str:
    if isinstance(value, str):
        return quote(value)
    if type(value) is int:
        return str(value)
    if type(value) is bool:
        return "true" if value else "false"
    inner = f"{line}\t"
    if isinstance(value, dict) and value:
        members = [
            f"{inner}{name if type(name) is int else quote(name)}:{_indented(member, inner)}"
            for name, member in value.items()
        ]
        return f"{{{','.join(members)}{line}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{','.join([inner + _indented(item, inner) for item in value])}{line}]"
    return _encode(value)


def _words(reason: Exception) -> str:
    return "nested too deep" if isinstance(reason, RecursionError) else str(reason)[:200]


def _read(text: str, rules: _Rules, check: Callable[[], None] | None) -> Any:
    if not rules.in_pieces or len(text) <= PIECE_CHARACTERS:
        try:
            value = rules.decoder.decode(text)
        except (ValueError, RecursionError):
            if rules.is_plain or not _ODD_NAME.search(text):
                raise
            value = _Reader(text, rules, check).read()
    else:
        value = _Reader(text, rules, check).read()
    _check_depth(value, rules.max_depth)
    return value


def _check_depth(value: Any, max_depth: int) -> None:
    layer = [value] if isinstance(value, dict | list) else []
    for _ in range(max_depth):
        if not layer:
            return
        # Only containers get into the next layer; most values are not.
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
    if any(layer):
        raise ValueError(f"nested deeper than {max_depth} levels")


def _check_surrogates(value: Any) -> None:
    if isinstance(value, str):
        if LONE_SURROGATE.search(value):
            raise ValueError("a surrogate without its other half")
    elif isinstance(value, dict):
        for name, member in value.items():
            _check_surrogates(name)
            _check_surrogates(member)
    elif isinstance(value, list):
        for item in value:
            _check_surrogates(item)


class _Reader:
    """A reader of objects whose names may be any JSON value; slower than the others.

    It reads long texts in pieces, between which other threads have their turn.
    """

    def __init__(self, text: str, rules: _Rules, check: Callable[[], None] | None) -> None:
        self.text = text
        self.rules = rules
        self.check = check
        self.cursor = 0
        self.values = 0

    def read(self) -> Any:
        value = self._value()
        if self._next_mark():
            raise ValueError(f"text after the end, at character {self.cursor}")
        return value

    def _next_mark(self) -> str:
        """Pass white space and return the character behind it; at the end it is empty."""
        text, cursor = self.text, self.cursor
        while cursor < len(text) and text[cursor] in SPACE:
            cursor += 1
        self.cursor = cursor
        return text[cursor : cursor + 1]

    def _value(self) -> Any:
        mark = self._next_mark()
        if mark not in ("{", "["):
            value, self.cursor = self.rules.decoder.raw_decode(self.text, self.cursor)
            return value
        value = self._piece()
        if value is not None:
            return value
        return self._object() if mark == "{" else self._array()

    def _piece(self) -> Any:
        """Read the object or list here if it is plain JSON and no longer than a piece."""
        if self.check is not None:
            self.check()
        if _ODD_OBJECT.match(self.text, self.cursor):
            return None
        piece = self.text[self.cursor : self.cursor + PIECE_CHARACTERS]
        try:
            value, length = self.rules.decoder.raw_decode(piece)
        except (ValueError, RecursionError):
            return None
        self.cursor += length
        return value

    def _object(self) -> dict[Any, Any]:
        # Not by way of a list of pairs: making a dict of a million takes a tenth of a second.
        made: dict[str | int, Any] = {}
        self.cursor += 1
        more = not self._passes("}")
        while more:
            name = self._name()
            value = self._value()
            if name in made and not self.rules.allows_twice:
                raise ValueError(_TWICE)
            made[name] = value
            more = self._another("}")
        return made

    def _array(self) -> list[Any]:
        items: list[Any] = []
        self.cursor += 1
        more = not self._passes("]")
        while more:
            items.append(self._value())
            more = self._another("]")
        return items

    def _passes(self, mark: str) -> bool:
        """Pass ``mark`` if it is next, and return whether it was."""
        is_next = self._next_mark() == mark
        self.cursor += is_next
        return is_next

    def _another(self, closing: str) -> bool:
        """Pass a comma and return True, or the closing mark and return False."""
        self.values += 1
        if self.rules.in_pieces and self.values > MAX_JSON_VALUES:
            raise ValueError(f"more than {MAX_JSON_VALUES} values")
        mark = self._next_mark()
        if mark not in (",", closing):
            raise ValueError(f"expected ',' or {closing!r} at character {self.cursor}")
        self.cursor += 1
        return mark == ","

    def _name(self) -> str | int:
        """Read a name and pass its colon."""
        digits = None if self.rules.is_plain else _DIGITS.match(self.text, self.cursor)
        if digits is not None:
            self.cursor = digits.end()
            is_integer = self.rules.keeps_integers and _INTEGER.fullmatch(digits[1])
            return int(digits[1]) if is_integer else digits[1]
        name = self._value()
        if isinstance(name, dict) and not self.rules.is_plain:
            name = json.dumps(name, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        if type(name) is not str:
            raise ValueError(f"{type(name).__name__} for a name, before character {self.cursor}")
        if not self._passes(":"):
            raise ValueError(f"expected ':' at character {self.cursor}")
        return name
