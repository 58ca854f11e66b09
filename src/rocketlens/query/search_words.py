"""Parses words of the form ``name:value`` in search texts of the console and of ``find``::

    ORDER-42 topic:order-paid since:2h tag:"PAY || REFUND"

==================  ============================================================================
word                meaning
==================  ============================================================================
``topic:``          a topic, or a pattern
``tag:``            a tag expression
``since:`` ``until:``  store times
``broker:``         a broker: a condition of the filter (``where``)
``key:`` ``id:``    the search text, as a key or an id
``source:``         a source of the console, or a context of the command line
==================  ============================================================================
"""

import re
from typing import Final

WORDS: Final = ("topic", "tag", "since", "until", "broker", "key", "id", "source")
_WORD: Final = re.compile(r"(?:(?P<name>[a-z]{2,6}):)?(?P<value>\"[^\"]*\"|\S+)")


def words_in(text: str) -> tuple[str, dict[str, str]]:
    """Return a text without its words, and their values by name; the last of equal names counts.

    A text without words is returned unchanged.
    """
    named: dict[str, str] = {}
    rest: list[str] = []
    for match in _WORD.finditer(text):
        name, value = match["name"], match["value"]
        if name in WORDS:
            named[name] = value.strip('"')
        else:
            rest.append(match[0])
    return (" ".join(rest), named) if named else (text, named)


def with_broker(broker: str | None, where: str) -> str:
    """Add the condition of ``broker:`` to a filter; an empty filter is allowed."""
    if broker is None:
        return where
    name = broker.replace("'", "''")
    return f"broker = '{name}'" + (f" AND ({where})" if where else "")
