r"""RocketMQ's ``config/*.json`` files, in the dialects that its JSON libraries write.

Besides plain JSON those libraries (fastjson in RocketMQ 4, fastjson2 in 5.5) write, and these
readers accept, maps with keys that are no strings:

==============================  ========================================  ========================
written                         read as                                   where
==============================  ========================================  ========================
``{"a":1,"b":[]}``              ``{"a":1,"b":[]}``                        plain
``{1:16,3:50}``                 ``{"1":16,"3":50}``                       queue ids, delay levels
``{{"t":"T","q":0}:{"k":1}}``   ``{"{\"q\":0,\"t\":\"T\"}":{"k":1}}``     message queues
==============================  ========================================  ========================

So an integer key becomes its text (or stays an integer, if asked), and an object that is a key its
compact JSON text, members sorted by name. Of two members with one name the last counts. A key of
digits that is not an integer's text (``007``, ``-0``) is text, though it has no quotes.

RocketMQ indents with tabs, one member a line; only fastjson leaves integer keys on the line of what
is before them. Source: ``ConfigManager``, ``TopicConfigManager``, ``ConsumerOffsetManager``.
"""

import json
import re
from enum import StrEnum
from typing import Any, Final

from rocketlens import limits
from rocketlens.errors import ConfigError

_DIGITS: Final = re.compile(r"-?\d{1,300}(?=\s*:)", re.ASCII)
_INTEGER: Final = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
"""As a long of Java is written."""


class Dialect(StrEnum):
    """How a file is written; each is read by every version."""

    PLAIN = "plain"
    """Compact JSON that any reader takes: every key is a string."""
    FASTJSON = "fastjson"
    """As RocketMQ 4 writes its files."""
    FASTJSON2 = "fastjson2"
    """As RocketMQ 5.5 writes its files."""


def loads(content: bytes | str, *, integer_keys: bool = False) -> Any:
    """Read any of the dialects. O(n).

    ``integer_keys``: return keys that are unquoted integers as ``int``, not as their text, so that
    :func:`dumps` can write them as they were.

    :raises ConfigError: when it is none of them, or nested deeper than 128 levels.
    """
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _read_dialect(text, integer_keys=integer_keys)
    if isinstance(value, dict | list) and _is_too_deep(value):
        message = f"nested deeper than {limits.MAX_CONFIG_DEPTH} levels"
        raise ConfigError(message)
    return value


def dumps(value: Any, dialect: Dialect = Dialect.PLAIN) -> str:
    """Write a value of dictionaries, lists, strings, numbers, booleans and None.

    Keys that are ``int`` are written without quotes, except in plain JSON.
    """
    if dialect is Dialect.PLAIN:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _indented(value, dialect, "\n")


def _indented(value: Any, dialect: Dialect, line_start: str) -> str:
    inner_start = line_start + "\t"
    if isinstance(value, dict) and value:
        members = []
        for key, member in value.items():
            is_integer = isinstance(key, int)
            before = "" if is_integer and dialect is Dialect.FASTJSON else inner_start
            name = str(key) if is_integer else json.dumps(key, ensure_ascii=False)
            members.append(f"{before}{name}:{_indented(member, dialect, inner_start)}")
        return "{" + ",".join(members) + line_start + "}"
    if isinstance(value, list) and value:
        items = [inner_start + _indented(item, dialect, inner_start) for item in value]
        return "[" + ",".join(items) + line_start + "]"
    return json.dumps(value, ensure_ascii=False)


def _is_too_deep(value: Any) -> bool:
    layer = [value]
    for _ in range(limits.MAX_CONFIG_DEPTH):
        # What is no container has no place in the next layer, which is most of all.
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not layer:
            return False
    return any(layer)


def _read_dialect(text: str, *, integer_keys: bool) -> Any:
    try:
        return _Reader(text, integer_keys=integer_keys).read()
    except IndexError:
        message = "not JSON in any of RocketMQ's dialects: it ends too early"
    except ValueError as error:
        message = f"not JSON in any of RocketMQ's dialects: {error}"
    raise ConfigError(message)


class _Reader:
    """A JSON reader whose map keys may be any JSON value."""

    def __init__(self, text: str, *, integer_keys: bool) -> None:
        self.text = text
        self.integer_keys = integer_keys
        self.cursor = 0
        self.decoder = json.JSONDecoder(strict=False)

    def read(self) -> Any:
        value = self._value(0)
        self._skip_space()
        if self.cursor != len(self.text):
            message = f"unexpected text at character {self.cursor}"
            raise ValueError(message)
        return value

    def _skip_space(self) -> None:
        while self.cursor < len(self.text) and self.text[self.cursor] in " \t\r\n":
            self.cursor += 1

    def _value(self, depth: int) -> Any:
        if depth > limits.MAX_CONFIG_DEPTH:
            message = f"nested deeper than {limits.MAX_CONFIG_DEPTH} levels"
            raise ValueError(message)
        self._skip_space()
        if self.text[self.cursor] == "{":
            return self._object(depth)
        if self.text[self.cursor] == "[":
            return self._array(depth)
        value, self.cursor = self.decoder.raw_decode(self.text, self.cursor)
        return value

    def _object(self, depth: int) -> dict[str | int, Any]:
        members: dict[str | int, Any] = {}
        self.cursor += 1
        self._skip_space()
        if self.text[self.cursor] == "}":
            self.cursor += 1
            return members
        while True:
            digits = self._digits()
            key = self._key(self._value(depth + 1)) if digits is None else digits
            self._expect(":")
            members[key] = self._value(depth + 1)
            if not self._another("}"):
                return members

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.cursor += 1
        self._skip_space()
        if self.text[self.cursor] == "]":
            self.cursor += 1
            return items
        while True:
            items.append(self._value(depth + 1))
            if not self._another("]"):
                return items

    def _expect(self, mark: str) -> None:
        self._skip_space()
        if self.text[self.cursor] != mark:
            message = f"expected {mark!r} at character {self.cursor}"
            raise ValueError(message)
        self.cursor += 1

    def _another(self, closing: str) -> bool:
        """Pass a comma and say yes, or the closing mark and say no."""
        self._skip_space()
        mark = self.text[self.cursor]
        if mark not in (",", closing):
            message = f"expected ',' or {closing!r} at character {self.cursor}"
            raise ValueError(message)
        self.cursor += 1
        return mark == ","

    def _digits(self) -> str | int | None:
        """Read a key of digits without quotes; None if something else is there."""
        self._skip_space()
        match = _DIGITS.match(self.text, self.cursor)
        if match is None:
            return None
        self.cursor = match.end()
        is_integer = self.integer_keys and _INTEGER.fullmatch(match[0]) is not None
        return int(match[0]) if is_integer else match[0]

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            return key
        if isinstance(key, dict):
            return json.dumps(key, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        message = f"a map key is {type(key).__name__}"
        raise ValueError(message)
