r"""Java properties files, as ``java.util.Properties`` reads them; ``broker.conf`` is one.

=====================  ===================  ===================================================
written                read as              notes
=====================  ===================  ===================================================
``a=1``                ``{"a":"1"}``        the key ends at the first ``=``, ``:`` or blank
``a : 1 = 2``          ``{"a":"1 = 2"}``    blanks around that separator are dropped
``  a 1 ``             ``{"a":"1 "}``       and before the key; blanks after the value stay
``a``                  ``{"a":""}``
``# a=1``              ``{}``               a comment, as is a line that begins with ``!``
``k\=\ y=\t\u00e9\x``  ``{"k= y":"\téx"}``  an escape, as are ``\n \r \f``; or a lost backslash
=====================  ===================  ===================================================

A line that ends with an odd number of backslashes continues on the next one, whose leading blanks
are dropped. If a key comes twice, the last value counts.

Drawback: the answer of RocketMQ's servers to ``getBrokerConfig`` looks like such a file, but is
written without escapes. Source: ``MixAll.properties2String``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_LINE_END: Final = re.compile("\r\n|\r|\n")
_KEY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*")


def loads(text: str) -> dict[str, str]:
    """Read the entries of a file. O(n); any text is valid."""
    return {key: value for _, key, value in _entries(text)}


def key_lines(text: str) -> dict[str, int]:
    """Return the number of the line, from 1 on, on which the value of each key ends."""
    return {key: number for number, key, _ in _entries(text)}


def _entries(text: str) -> Iterator[tuple[int, str, str]]:
    pending, number = "", 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = pending + raw.lstrip(" \t\f")
        pending = ""
        if not line or (line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        yield number, *_split(line)
    if pending:
        yield number, *_split(pending)


def dumps_unescaped(values: Mapping[str, str]) -> str:
    """Write a line for each entry, sorted, as RocketMQ returns its configuration."""
    return "".join(f"{key}={values[key]}\n" for key in sorted(values))


def _split(line: str) -> tuple[str, str]:
    match = _KEY.match(line)
    assert match is not None  # noqa: S101 - every part of it may be empty
    return _unescape(match[1]), _unescape(line[match.end() :])


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return _ESCAPE.sub(replaced, text)
