"""Reads JSON and XML in a text, within bounds.

An XML element becomes a dict: attributes with ``@`` before their names, elements by their names (a
list if there are several of a name), text as ``#text``. An element that has only text becomes that
text. A document type is an error, since entities can refer to files, addresses, and each other.
"""

import json
import re
from itertools import chain
from typing import Final, NoReturn
from xml.parsers import expat

from rocketlens import limits
from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError, BodyTooLarge

MAX_DECODED_VALUES: Final = 200_000
"""Values of one JSON or XML body that are decoded: some 50 ms, and 50 MiB of objects."""
TEXT: Final = "#text"
_XML_STEP: Final = 64 << 10
_BEGINS: Final = re.compile(r'[ \t\r\n]*[\[{"]')
_DECODER: Final = json.JSONDecoder(strict=False)


def may_be_json(text: str) -> bool:
    """Return True if the text begins like an object, an array or a string.

    A number alone is JSON, too, but its text shows it as well.
    """
    return _BEGINS.match(text) is not None


def read_json(text: str) -> Tree:
    """Return the value of a JSON text; the last of two members with one name counts.

    :raises BodyTooLarge: if it is nested too deep, or has too many values.
    :raises BodyError: if it is not JSON, or has numbers of thousands of digits.
    """
    # Values are counted before they are built; strings can contain commas and brackets, too.
    opened = text.count("{") + text.count("[")
    if opened + text.count(",") > 2 * MAX_DECODED_VALUES:
        raise BodyTooLarge(f"it has more than {MAX_DECODED_VALUES} values")
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise BodyTooLarge("JSON that is nested too deep") from None
    except ValueError as error:
        raise BodyError(f"it is not JSON: {error}") from error
    # A short text with few brackets is within the bounds.
    if opened > limits.MAX_DECODED_LEVELS or len(text) > MAX_DECODED_VALUES:
        _check_bounds(value)
    return value


def _check_bounds(value: Tree) -> None:
    values, level = 1, [value]
    for _ in range(limits.MAX_DECODED_LEVELS + 1):
        inner = [each for each in level if isinstance(each, dict | list)]
        values += sum(map(len, inner))
        if values > MAX_DECODED_VALUES:
            raise BodyTooLarge(f"it has more than {MAX_DECODED_VALUES} values")
        if not inner:
            return
        members = (each.values() if isinstance(each, dict) else each for each in inner)
        level = list(chain.from_iterable(members))
    raise BodyTooLarge(f"it is nested more than {limits.MAX_DECODED_LEVELS} levels deep")


def may_be_xml(text: str) -> bool:
    """Return True if the text begins like a document."""
    return text.lstrip("\ufeff \t\r\n").startswith("<")


def read_xml(text: str) -> Tree:
    """Return a document as ``{name of its root: ...}``.

    :raises BodyTooLarge: if it is larger than the bounds.
    :raises BodyError: if it is not well-formed, or has a document type.
    """
    # expat builds attributes before `_Builder` counts them; texts can have these signs, too.
    if 2 * text.count("=") + text.count("<") > MAX_DECODED_VALUES:
        raise BodyTooLarge(f"it has more than {MAX_DECODED_VALUES} values")
    builder = _Builder()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = parser.ordered_attributes = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.StartDoctypeDeclHandler = _refuse
    try:
        # In parts, since expat reads its whole input even after an error.
        for start in range(0, len(text), _XML_STEP):
            parser.Parse(text[start : start + _XML_STEP].encode("utf-8", "surrogatepass"))
        parser.Parse(b"", True)  # noqa: FBT003 - the end
    except expat.ExpatError as error:
        raise BodyError(f"it is not well-formed XML: {error}") from error
    return builder.document


def _refuse(*_: object) -> NoReturn:
    raise BodyError("XML with a document type is not read")


class _Builder:
    def __init__(self) -> None:
        self.document: dict[str, Tree] = {}
        self._open: list[dict[str, Tree]] = [self.document]
        self._texts: list[list[str]] = [[]]
        self._values_left = MAX_DECODED_VALUES

    def start(self, _: str, attributes: list[str]) -> None:
        # An element costs as much time as three texts.
        self._count(3 + len(attributes))
        if len(self._open) > limits.MAX_DECODED_LEVELS:
            raise BodyTooLarge(f"it is nested more than {limits.MAX_DECODED_LEVELS} levels deep")
        names = (f"@{name}" for name in attributes[::2])
        self._open.append(dict(zip(names, attributes[1::2], strict=True)))
        self._texts.append([])

    def text(self, part: str) -> None:
        self._count(1)
        self._texts[-1].append(part)

    def _count(self, values: int) -> None:
        self._values_left -= values
        if self._values_left < 0:
            raise BodyTooLarge(f"it has more than {MAX_DECODED_VALUES} values")

    def end(self, name: str) -> None:
        element: Tree = self._open.pop()
        text = "".join(self._texts.pop())
        if not element:
            element = text
        elif text.strip():
            element[TEXT] = text
        above = self._open[-1]
        if name not in above:
            above[name] = element
        elif isinstance(above[name], list):
            above[name].append(element)
        else:
            above[name] = [above[name], element]
