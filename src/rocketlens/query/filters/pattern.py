"""Search patterns: plain texts, or regular expressions in RE2's syntax.

RE2 takes linear time and bounded memory for any pattern; Python's `re` can take hours for one line.
RE2 has no backreferences and no look-around. A pattern without special characters is a plain text,
which needs no package. Source: https://github.com/google/re2/wiki/Syntax.
"""

import re
from functools import lru_cache
from typing import Any, Final

from rocketlens.errors import BadInput
from rocketlens.model.arguments import check_text
from rocketlens.model.text.sentences import Sentence

MAX_PATTERN_STEPS: Final = 1 << 28
"""Instructions of a pattern times bytes of a text: up to 20 ns each, 5 s in all. Longer texts make
the answer incomplete.
"""
MAX_PATTERN_INSTRUCTIONS: Final = 4_096
"""Instructions of a compiled pattern: each byte of a text can need as many steps."""
MAX_PATTERN_MEMORY_BYTES: Final = 8 << 20
"""Memory of one pattern, including the states of a search. RE2: 8 MiB."""
MAX_PATTERN_CHARACTERS: Final = 1_000
"""Characters of a pattern."""
_SPECIAL: Final = re.compile(r"[\\.^$|?*+()\[\]{}]")


class TextTooLong(Exception):
    """A text would take too long to search."""


class TextPattern:
    """A search pattern. Patterns of the same text are equal."""

    __slots__ = ("_regexp", "max_bytes", "text")

    def __init__(self, text: str) -> None:
        """Compile a pattern.

        :raises WrongType: if it is not a str.
        :raises BadInput: if it is empty, malformed, longer than MAX_PATTERN_CHARACTERS, or larger
            than MAX_PATTERN_MEMORY_BYTES or MAX_PATTERN_INSTRUCTIONS.
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
        """The longest text that can be searched, in bytes."""

    @property
    def is_regexp(self) -> bool:
        """Whether it is a regular expression rather than a plain text."""
        return self._regexp is not None

    def is_in(self, text: str) -> bool:
        """Return whether the pattern occurs in a text. O(length).

        :raises TextTooLong: if the search could exceed MAX_PATTERN_STEPS.
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
    """Return a pattern for a plain text; None if the text has special characters or is too long."""
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
