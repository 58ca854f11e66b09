"""RocketMQ's ``config/*.json`` files, in both dialects that its JSON library writes.

Besides plain JSON that library (fastjson) writes, and these readers accept:

* integer map keys without quotes: ``{1:16,3:50}``;
* objects as map keys: ``{{"queueId":0,"topic":"t"}:{...}}``. The key becomes the canonical JSON
  text of the object, members sorted by name.

Written is plain JSON, or (``unquoted_integer_keys``) the first of the two, which RocketMQ itself
writes; it reads both. Source: ``ConfigManager``, ``TopicConfigManager``, ``ConsumerOffsetManager``.
"""

import json
import re
from typing import Any, Final

from rocketlens.errors import ConfigError

MAX_DEPTH: Final = 64
"""Nesting that is followed; RocketMQ's own files have 4 levels."""

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def loads(content: bytes | str) -> Any:
    """Read either dialect.

    :raises ConfigError: when it is neither, or nested deeper than 64 levels.
    """
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _Reader(text).read()
    except (ValueError, IndexError, RecursionError) as error:
        message = f"not JSON in either of RocketMQ's dialects: {error}"
        raise ConfigError(message) from error


def dumps(value: Any, *, unquoted_integer_keys: bool = False) -> str:
    """Write compact JSON; with unquoted integer map keys as RocketMQ writes them if asked."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not unquoted_integer_keys:
        return text
    parts: list[str] = []
    cursor = 0
    for match in _STRING.finditer(text):
        inner = match.group()[1:-1]
        is_key = text[match.end() : match.end() + 1] == ":"
        parts.append(text[cursor : match.start()])
        parts.append(inner if is_key and re.fullmatch(r"-?\d+", inner) else match.group())
        cursor = match.end()
    return "".join([*parts, text[cursor:]])


class _Reader:
    """A JSON reader whose map keys may be any JSON value."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.cursor = 0
        self.decoder = json.JSONDecoder()

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
        if depth > MAX_DEPTH:
            message = f"nested deeper than {MAX_DEPTH} levels"
            raise ValueError(message)
        self._skip_space()
        if self.text[self.cursor] == "{":
            return self._object(depth)
        if self.text[self.cursor] == "[":
            return self._array(depth)
        value, self.cursor = self.decoder.raw_decode(self.text, self.cursor)
        return value

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self.cursor += 1
        self._skip_space()
        if self.text[self.cursor] == "}":
            self.cursor += 1
            return members
        while True:
            key = self._value(depth + 1)
            self._expect(":")
            members[_key_text(key)] = self._value(depth + 1)
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


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if isinstance(key, dict):
        return json.dumps(key, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    message = f"a map key is {type(key).__name__}"
    raise ValueError(message)
