r"""Reads and writes JSON in the dialects of RocketMQ's libraries.

fastjson (RocketMQ 4) and fastjson2 (5.5) write objects whose names are not strings, over
connections and in ``config/*.json``:

==============================  ========================================  ========================
written                         read as                                   used for
==============================  ========================================  ========================
``{"a":1,"b":[]}``              ``{"a":1,"b":[]}``                        plain JSON
``{1:16,3:50}``                 ``{"1":16,"3":50}``                       ids of queues and brokers
``{007:1,-0:2}``                ``{"007":1,"-0":2}``                      names of topics and groups
``{{"t":"T","q":0}:{"k":1}}``   ``{"{\"q\":0,\"t\":\"T\"}":{"k":1}}``     message queues
==============================  ========================================  ========================

So a number becomes its digits, and an object its compact JSON text, with members sorted by name.
:func:`loads`, for data from a connection, is stricter than :func:`loads_file`:

================================  =============================  ===========================
\                                 :func:`loads`                  :func:`loads_file`
================================  =============================  ===========================
nesting                           64 levels                      128 levels
a repeated name                   refused: parsers differ        the last one counts
a lone surrogate                  refused: not Unicode           accepted
NaN and infinities                refused                        accepted
integer names                     text                           optionally ``int``
long texts                        in pieces, limited values      at once if plain JSON
================================  =============================  ===========================

Both refuse integers of more than 4,300 digits.

Files are indented with tabs, one member a line, and integer names have no quotes
(:func:`dumps_file`). Source: ``RemotingSerializable``, ``ConfigManager``.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from rocketlens.errors import ConfigError, RocketLensError

MAX_JSON_DEPTH: Final = 64
"""Nesting of a command's body. RocketMQ's own bodies have 6 levels."""
MAX_CONFIG_DEPTH: Final = 128
"""Nesting of a file of ``config/``. RocketMQ's own files have 4 levels.

Larger than `MAX_JSON_DEPTH`, because a file nests the content of requests deeper.
"""
MAX_JSON_VALUES: Final = 1_000_000
"""Values in the large lists and objects of one JSON body, six times `MAX_TOPICS`; the members of
one topic or queue do not count. RocketMQ: unlimited.
"""
SPACE: Final = " \t\r\n"

PIECE_CHARACTERS: Final = 4 * 1024
"""Long texts are read in pieces of about this length, 0.2 ms each, so that other threads can run.
"""

LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")

_ODD_NAME: Final = re.compile(r"[0-9}][ \t\r\n]*:")
"""The end of a name in the dialect. Plain JSON has none, and needs no slow reader."""
_ODD_OBJECT: Final = re.compile(r"\{[ \t\r\n]*[-0-9{]")
_DIGITS: Final = re.compile(r"[ \t\r\n]*(-?\d{1,300})[ \t\r\n]*:", re.ASCII)
_INTEGER: Final = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
"""The text of a Java long."""


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


_TWICE: Final = "a name is repeated in an object"


def _reject_repeats(members: list[tuple[Any, Any]]) -> dict[Any, Any]:
    made = dict(members)
    if len(made) != len(members):
        raise ValueError(_TWICE)
    return made


# fastjson accepts unescaped control characters in strings.
FAST_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=refuse_constant)
"""Does not detect repeated names and lone surrogates."""

STRICT_DECODER: Final = json.JSONDecoder(
    strict=False, parse_constant=refuse_constant, object_pairs_hook=_reject_repeats
)
"""Does not detect lone surrogates."""

quote = json.encoder.encode_basestring
"""Return a string as JSON, with quotes and unescaped non-ASCII characters."""
_encode = json.JSONEncoder(ensure_ascii=False).encode


class _Rules(NamedTuple):
    decoder: json.JSONDecoder
    max_depth: int
    allows_twice: bool
    """Whether a name can be repeated in an object; the last one counts."""
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
    """Parse JSON in either dialect, or only plain JSON if ``is_plain``.

    Takes up to 0.3 µs per byte of plain JSON, and 1.5 µs in the dialect. ``check`` is called for
    each piece of a long text, and can raise ValueError to stop.

    :raises RocketLensError: (as ``error``) if the text is not JSON, or exceeds a limit. Nothing
        else is raised, whatever the bytes.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        value = _read(text, _WIRE._replace(is_plain=True) if is_plain else _WIRE, check)
        if _ESCAPED_SURROGATE.search(text):
            _check_surrogates(value)
    except (ValueError, RecursionError) as reason:
        raise error(f"not JSON: {_reason_text(reason)}") from None
    return value


def loads_file(content: bytes | str, *, integer_keys: bool = False) -> Any:
    """Parse a file of RocketMQ in any dialect. O(n); invalid UTF-8 becomes U+FFFD.

    ``integer_keys``: return integer names without quotes as ``int``, so that :func:`dumps_file`
    writes them unchanged.

    :raises ConfigError: if the text is not JSON, or exceeds a limit.
    """
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    try:
        return _read(text, _FILE._replace(keeps_integers=integer_keys), None)
    except (ValueError, RecursionError) as reason:
        raise ConfigError(
            f"not JSON in any of RocketMQ's dialects: {_reason_text(reason)}"
        ) from None


def dumps(value: Any) -> str:
    """Return compact JSON, with numbers in Java's notation if that is the shortest one.

    :raises ValueError: if a number is NaN or infinite.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dumps_file(value: Any) -> str:
    """Return JSON as RocketMQ 5 writes it in files: tabs, and ``int`` names without quotes."""
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


def _reason_text(reason: Exception) -> str:
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
    check_depth(value, rules.max_depth)
    return value


def check_depth(value: Any, max_depth: int) -> None:
    """Check the nesting of lists and objects, without recursion.

    :raises ValueError: if there are more than ``max_depth`` levels.
    """
    layer = [value] if isinstance(value, dict | list) else []
    for _ in range(max_depth):
        if not layer:
            return
        # Only containers get into the next layer; most values are scalars.
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
            raise ValueError("a lone surrogate")
    elif isinstance(value, dict):
        for name, member in value.items():
            _check_surrogates(name)
            _check_surrogates(member)
    elif isinstance(value, list):
        for item in value:
            _check_surrogates(item)


class _Reader:
    """Parses objects whose names can be any JSON value. Slower than the standard decoder.

    Reads long texts in pieces, so that other threads can run in between.
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
        """Skip white space and return the next character; empty at the end."""
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
        """Read the next object or list if it is plain JSON and no longer than a piece."""
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
        # Not via a list of pairs: a dict of a million of them takes 0.1 s.
        made: dict[str | int, Any] = {}
        self.cursor += 1
        more = not self._skip("}")
        while more:
            name = self._name()
            value = self._value()
            if name in made and not self.rules.allows_twice:
                raise ValueError(_TWICE)
            made[name] = value
            more = self._skip_comma("}")
        return made

    def _array(self) -> list[Any]:
        items: list[Any] = []
        self.cursor += 1
        more = not self._skip("]")
        while more:
            items.append(self._value())
            more = self._skip_comma("]")
        return items

    def _skip(self, mark: str) -> bool:
        """Skip ``mark`` if it is next, and return whether it was."""
        is_next = self._next_mark() == mark
        self.cursor += is_next
        return is_next

    def _skip_comma(self, closing: str) -> bool:
        """Skip a comma and return True, or skip the closing mark and return False."""
        self.values += 1
        if self.rules.in_pieces and self.values > MAX_JSON_VALUES:
            raise ValueError(f"more than {MAX_JSON_VALUES} values")
        mark = self._next_mark()
        if mark not in (",", closing):
            raise ValueError(f"expected ',' or {closing!r} at character {self.cursor}")
        self.cursor += 1
        return mark == ","

    def _name(self) -> str | int:
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
        if not self._skip(":"):
            raise ValueError(f"expected ':' at character {self.cursor}")
        return name
