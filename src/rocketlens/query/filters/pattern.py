"""Patterns that users search text for: a plain text, or a regular expression of RE2's.

RE2 searches in time that grows with the length of the text and never faster, whatever the pattern,
and in bounded memory; Python's own `re` can take hours for one line. What RE2 lacks for that reason
(references back, looking ahead and behind) is refused. A pattern without special characters is a
plain text, and needs no package. Source: https://github.com/google/re2/wiki/Syntax.
"""

import re
from functools import lru_cache
from typing import Any, Final

from rocketlens.errors import BadInput
from rocketlens.model.arguments import check_text
from rocketlens.model.text.sentences import Sentence

MAX_PATTERN_STEPS: Final = 1 << 28
"""Instructions of a regular expression, times bytes of a text: at worst 20 ns each, 5 s in all. A
longer text is not searched, and the answer says so.
"""
MAX_PATTERN_INSTRUCTIONS: Final = 4_096
"""Of a compiled regular expression: each byte of a text can cost as many steps."""
MAX_PATTERN_MEMORY_BYTES: Final = 8 << 20
"""Memory of one regular expression, its states while it searches included. RE2: 8 MiB."""
MAX_PATTERN_CHARACTERS: Final = 1_000
"""Longest pattern that text is searched for."""
_SPECIAL: Final = re.compile(r"[\\.^$|?*+()\[\]{}]")


class TextTooLong(Exception):
    """A text that takes too long to search."""


class TextPattern:
    """A pattern that text is searched for; equal to others of the same text."""

    __slots__ = ("_regexp", "max_bytes", "text")

    def __init__(self, text: str) -> None:
        """Compile a pattern.

        :raises WrongType: if it is not a str.
        :raises BadInput: if it is empty, longer than MAX_PATTERN_CHARACTERS, not well-formed, or
            takes more memory than MAX_PATTERN_MEMORY_BYTES or MAX_PATTERN_INSTRUCTIONS.
        :raises PackageMissing: if it is a regular expression, and google-re2 is not installed.
        """
        check_text(text, "pattern")
        if not text:
            raise BadInput(Sentence("pattern_empty"))
        if len(text) > MAX_PATTERN_CHARACTERS:
            limit = MAX_PATTERN_CHARACTERS
            raise BadInput(Sentence("pattern_too_long", count=len(text), limit=limit))
        self.text: Final = text
        self._regexp: Final[Any] = _compiled(text) if _SPECIAL.search(text) else None
        instructions = 1 if self._regexp is None else self._regexp.programsize
        self.max_bytes: Final = MAX_PATTERN_STEPS // max(instructions, 1)
        """Bytes of text that a search may take; of more it raises `TextTooLong`."""

    @property
    def is_regexp(self) -> bool:
        """Whether it is a regular expression, and no plain text."""
        return self._regexp is not None

    def is_in(self, text: str) -> bool:
        """Return whether a text has it somewhere. O(length).

        :raises TextTooLong: if that could take longer than MAX_PATTERN_STEPS allow.
        """
        if self._regexp is None:
            return self.text in text
        encoded = text.encode("utf-8", "replace")
        if len(encoded) > self.max_bytes:
            raise TextTooLong(
                f"{len(encoded)} bytes of text are too many for this pattern (limit: "
                f"{self.max_bytes}): a shorter pattern, or one without counted repetitions, can "
                "search more"
            )
        return self._regexp.search(encoded) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextPattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"TextPattern({self.text!r})"


def plain_pattern(text: str) -> TextPattern | None:
    """Return the pattern that is a text itself; None if a text is no such pattern."""
    if not text or len(text) > MAX_PATTERN_CHARACTERS or _SPECIAL.search(text):
        return None
    return TextPattern(text)


@lru_cache(maxsize=64)
def _compiled(text: str) -> Any:
    from rocketlens.model.arrow import package

    re2: Any = package("re2", "decode", "a regular expression")
    options = re2.Options()
    options.max_mem = MAX_PATTERN_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(text.encode("utf-8", "replace"), options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason_text = (
            reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        )
        wrong = Sentence("pattern_wrong", pattern=repr(text[:80]), why=reason_text[:200])
        raise BadInput(wrong) from error
    if compiled.programsize > MAX_PATTERN_INSTRUCTIONS:
        raise BadInput(
            Sentence(
                "pattern_too_large",
                pattern=repr(text[:80]),
                count=compiled.programsize,
                limit=MAX_PATTERN_INSTRUCTIONS,
            )
        )
    return compiled
