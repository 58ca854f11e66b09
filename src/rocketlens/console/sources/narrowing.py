"""Topics that are asked for, narrowed to those that may be seen: patterns by patterns.

What two patterns both match can take several patterns: of ``ab*`` and ``*bc`` these are ``ab*bc``
and ``abc``. So sources search what may be seen, and nothing else.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.query.topic_choice import is_pattern


def narrowed_topics(asked: Iterable[str], seen: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return for each name or pattern what is left of it; nothing if all of it is hidden.

    :raises BadInput: for a pattern with brackets, and for one that is cut into too many.
    """
    seen = tuple(seen)
    return {each: _narrowed(each, seen) for each in asked}


def _narrowed(asked: str, seen: tuple[str, ...]) -> tuple[str, ...]:
    if not is_pattern(asked):
        return (asked,) if any(fnmatchcase(asked, each) for each in seen) else ()
    if "[" in asked:
        raise BadInput(f"{asked[:80]!r}: of patterns, you can use those with * and ? only")
    if len(asked) > limits.MAX_TOPIC_CHARACTERS or asked.count("*") > limits.MAX_NARROWED_STARS:
        raise BadInput(f"{asked[:80]!r} is too complicated: use fewer *")
    found: set[str] = set()
    for each in seen:
        found |= _both(_plain(asked), _plain(each))
        if len(found) > limits.MAX_NARROWED_PATTERNS:
            raise BadInput(f"{asked[:80]!r} is too complicated: use fewer *")
    wider = {each for each in found if "*" in each and "?" not in each}
    # Without those that another one has all of: the * of the one is a character for the other.
    kept = {each for each in found if not any(fnmatchcase(each, w) for w in wider - {each})}
    return tuple(sorted(kept))


def _plain(pattern: str) -> str:
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    return pattern


@lru_cache(maxsize=4096)
def _both(one: str, other: str) -> frozenset[str]:
    """Return patterns that together match what both match."""
    if not one or not other:
        return frozenset({""}) if not (one or other).strip("*") else frozenset()
    first, second = one[0], other[0]
    if first == second == "*":
        found = {"*" + each for each in _both(one[1:], other) | _both(one, other[1:])}
    elif first == "*":
        found = set(_both(one[1:], other)) | {second + each for each in _both(one, other[1:])}
    elif second == "*":
        found = set(_both(one, other[1:])) | {first + each for each in _both(one[1:], other)}
    elif "?" in (first, second) or first == second:
        single = second if first == "?" else first
        found = {single + each for each in _both(one[1:], other[1:])}
    else:
        return frozenset()
    found = {_plain(each) for each in found}
    if len(found) > limits.MAX_NARROWED_PATTERNS:
        raise BadInput("this pattern is too complicated: use fewer *")
    return frozenset(found)
