"""The known names that one without meaning resembles, for errors that say what was meant."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

_MAX_NEAREST: Final = 3
_MAX_CHARACTERS: Final = 100
"""Of a name that are compared: the time grows with their square."""


def suggestion(
    name: str, known: Iterable[str], synonyms: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return "; did you mean A or B?" with the known names that a name resembles, or nothing."""
    meant = nearest(name, known, synonyms)
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def nearest(
    name: str,
    known: Iterable[str],
    synonyms: Mapping[str, str] = MappingProxyType({}),
    *,
    similarity: float = 0.6,
) -> list[str]:
    """Return up to three known names that a name resembles, the nearest first, in any case.

    A name that resembles one of ``synonyms`` means what that stands for. ``similarity`` is how
    much alike they are at least, up to 1.
    """
    # Late: only a mistake needs it.
    from difflib import get_close_matches

    if name in synonyms:
        return [synonyms[name]]
    by_folded: dict[str, str] = {}
    for word in sorted({*known, *synonyms}):
        by_folded.setdefault(word.casefold(), synonyms.get(word, word))
    folded = name.casefold()[:_MAX_CHARACTERS]
    close = get_close_matches(folded, by_folded, _MAX_NEAREST, similarity)
    return list(dict.fromkeys(by_folded[each] for each in close))
