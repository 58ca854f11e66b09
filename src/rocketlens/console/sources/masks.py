r"""Masking rules: parts of messages that only administrators see. Others see ``***``.

Rules are tables of the users file::

    [[masks]]
    topics = ["order-*"]
    properties = ["PHONE", "id_*"]         # names of properties, or patterns of them
    paths = ["$.card.number", "$.items[*].name", "$..phone"]
    pattern = '\b\d{16}\b'                 # a regular expression (RE2), in bodies and properties

Messages are masked as they leave a source, so pages, API, streams, previews, hexadecimal and
downloads show the same. If a rule with ``paths`` or ``pattern`` applies, the body becomes its
decoded text. The whole body is masked if it cannot be decoded, if its format is a guess, and, for
``paths``, if it has no fields. The CRC of a masked body is hidden: it would reveal short values.

The rules of a topic also apply to copies of its messages (retries, dead letters, delayed ones).
Topics in rules have no namespace and match every namespace, since a directory can have messages of
several. ``KEYS``, ``TAGS`` and ``UNIQ_KEY`` can be searched, so they cannot be masked by name.
"""

import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.console.login.viewer import Viewer
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput
from rocketlens.model import properties as props
from rocketlens.model.arrow import package
from rocketlens.model.life import origin_topics
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketlens.query.filters.pattern import TextPattern, TextTooLong

MASK: Final = "***"
SEARCHED: Final = frozenset({props.KEYS, props.TAGS, props.UNIQUE_KEY})
_STEP: Final = re.compile(
    r"\.\.(?P<deep>[^.\[\]*]+)|\.(?P<name>[^.\[\]*]+)|\['(?P<quoted>[^']+)'\]|\[(?P<index>\d{1,9})\]"
    r"|(?P<each>\.\*|\[\*\])"
)

_NAMESPACE: Final = re.compile(f"^({RETRY_PREFIX}|{DEAD_LETTER_PREFIX}|)[^%]+%")


class _Object(list[tuple[str, Any]]):
    """The members of a JSON object in order; names can repeat."""


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class FieldPath:
    """A path to values in JSON: ``$.a.b[0]``, ``$.a[*].b``, ``$['a b']``, ``$..b`` at any depth."""

    def __init__(self, text: str) -> None:
        """Parse a path.

        :raises BadInput: if it is not valid.
        """
        self._steps: Final[list[tuple[str, str]]] = []
        at = 1
        while at < len(text):
            match = _STEP.match(text, at)
            if match is None:
                break
            self._steps.append((match.lastgroup or "", match[match.lastgroup or 0]))
            at = match.end()
        if not text.startswith("$") or at < len(text) or len(text) > limits.MAX_AUDIT_CHARACTERS:
            raise BadInput(
                "invalid path: expected $.a.b[0], with [*] or .* for each, or $..b at any depth"
            )

    def masked(self, value: Any, step: int = 0) -> Any:
        """Return a JSON value with the values at the path masked."""
        if step == len(self._steps):
            return MASK
        kind, word = self._steps[step]
        if isinstance(value, _Object):
            return _Object((name, self._member(name, each, step)) for name, each in value)
        if isinstance(value, list):
            return [
                self.masked(each, step)
                if kind == "deep"
                else self.masked(each, step + 1)
                if kind == "each" or (kind == "index" and int(word) == number)
                else each
                for number, each in enumerate(value)
            ]
        return value

    def _member(self, name: str, value: Any, step: int) -> Any:
        kind, word = self._steps[step]
        if kind == "deep":
            value = self.masked(value, step)
        fits = kind == "each" or (kind in {"name", "quoted", "deep"} and word == name)
        return self.masked(value, step + 1) if fits else value


class MaskRule(Struct, frozen=True, dict=True):
    """The masks for the messages of some topics."""

    topics: tuple[str, ...]
    properties: tuple[str, ...] = ()
    paths: tuple[FieldPath, ...] = ()
    pattern: TextPattern | None = None

    def is_for(self, topics: Iterable[str]) -> bool:
        """Return whether the rule applies to a message or to one that it is a copy of."""
        return any(fnmatchcase(name, each) for name in topics for each in self.topics)

    def hides(self, name: str) -> bool:
        """Return whether a property is masked: by name, or because it can quote the body."""
        if name == props.CONSUME_FAILURE:
            return bool(self.paths or self.pattern or self.properties)
        return name not in SEARCHED and any(fnmatchcase(name, each) for each in self.properties)

    def without_pattern(self, text: str) -> str:
        """Return a text with all matches masked; ``***`` if the search takes too long."""
        if self.pattern is None:
            return text
        try:
            if not self.pattern.is_in(text):
                return text
        except TextTooLong:
            return MASK
        return str(self._expression.sub(MASK, text))

    @cached_property
    def _expression(self) -> Any:
        re2: Any = package("re2", "decode", "a pattern that masks")
        assert self.pattern is not None  # noqa: S101 - only asked for with one
        return re2.compile(self.pattern.text)


class Masks:
    """The masking rules of a console."""

    def __init__(self, rules: Iterable[MaskRule] = ()) -> None:
        self._rules: Final = tuple(rules)

    def hide_from(self, viewer: Viewer, source: str) -> bool:
        """Return whether anything of a source can be masked for a viewer."""
        return bool(self._rules) and not viewer.may_unmask_all(source)

    def masked(
        self,
        message: MessageExt,
        viewer: Viewer,
        source: ConsoleSource,
        decoded_by: BodyRules,
        max_body: int,
    ) -> MessageExt:
        """Return a message as a viewer may see it: the same object if nothing is masked.

        A body over ``max_body`` bytes is masked as a whole. Call it in a thread.
        """
        stored = [message.topic, *origin_topics(message.topic, message.properties)]
        topics = list(map(source.plain, stored))
        names = (*topics, *stored, *(_NAMESPACE.sub(r"\1", each) for each in stored))
        rules = [each for each in self._rules if each.is_for(names)]
        if not rules or all(viewer.may_unmask(source.name, each) for each in topics):
            return message
        properties = {
            name: MASK
            if any(each.hides(name) for each in rules)
            else _mask_patterns(rules, name, value)
            for name, value in message.properties.items()
        }
        masked = replace(
            message,
            properties=properties,
            tags=properties.get(props.TAGS),
            keys=props.split_keys(properties.get(props.KEYS)),
        )
        rules = [each for each in rules if each.paths or each.pattern is not None]
        if not rules or not message.body:
            return masked if properties != message.properties else message
        body = MASK
        if len(message.body) <= max_body:
            body = _mask_body(message, rules, decoded_by)
        return replace(masked, body=body.encode("utf-8", "replace"), body_crc=0, body_error=None)


def _mask_patterns(rules: Iterable[MaskRule], name: str, value: str) -> str:
    for each in () if name == props.UNIQUE_KEY else rules:
        value = each.without_pattern(value)
    return value


def _mask_body(message: MessageExt, rules: list[MaskRule], decoded_by: BodyRules) -> str:
    decoded = decoded_by.decode(message)
    if decoded.is_guess or decoded.error is not None:
        return MASK
    paths = [path for each in rules for path in each.paths]
    text = decoded.as_json() if decoded.is_tree else decoded.text
    if text is None or (paths and not decoded.is_tree):
        return MASK
    if decoded.is_tree:
        try:
            value = json.loads(
                text,
                object_pairs_hook=_Object,
                parse_float=_Number,
                parse_int=_Number,
                parse_constant=_Number,
            )
            for path in paths:
                value = path.masked(value)
            # Serialized again: escapes would hide text from a pattern.
            text = _serialize(value)
        except (ValueError, RecursionError):
            return MASK
    for each in rules:
        text = each.without_pattern(text)
    return text


def _serialize(value: Any) -> str:
    if isinstance(value, _Object):
        return "{" + ", ".join(f"{_serialize(n)}: {_serialize(each)}" for n, each in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_serialize, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
