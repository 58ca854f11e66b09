"""Suggests known names for a misspelled one."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

_MAX_NEAREST: Final = 3
_MAX_CHARACTERS: Final = 100
"""Characters of a name that are compared: the cost is quadratic."""


def suggestion(
    name: str, known: Iterable[str], synonyms: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return "; did you mean A or B?" with the nearest known names, or an empty text."""
    meant = nearest(name, known, synonyms)
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def nearest(
    name: str,
    known: Iterable[str],
    synonyms: Mapping[str, str] = MappingProxyType({}),
    *,
    similarity: float = 0.6,
) -> list[str]:
    """Return up to three similar known names, the nearest first, ignoring case.

    A name similar to a key of ``synonyms`` counts as its value. ``similarity`` is the minimum, up
    to 1.
    """
    # Late: needed only after a mistake.
    from difflib import get_close_matches

    if name in synonyms:
        return [synonyms[name]]
    by_folded: dict[str, str] = {}
    for word in sorted({*known, *synonyms}):
        by_folded.setdefault(word.casefold(), synonyms.get(word, word))
    folded = name.casefold()[:_MAX_CHARACTERS]
    close = get_close_matches(folded, by_folded, _MAX_NEAREST, similarity)
    return list(dict.fromkeys(by_folded[each] for each in close))
