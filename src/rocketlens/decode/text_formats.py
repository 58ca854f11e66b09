"""JSON and XML in a text, each within bounds.

An element of XML becomes a dict: attributes with ``@`` before their names, elements by their names
(those of one name as a list), text as ``#text``; an element that has text alone becomes that text.
A document type is refused: entities can name files, addresses, and each other without end.
"""

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import Final, NoReturn
from xml.parsers import expat

from rocketlens import limits
from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError, BodyTooLarge

MAX_DECODED_VALUES: Final = 200_000
"""Values of one message body of JSON or XML that are decoded: some 50 ms, and 50 MiB of objects."""
TEXT: Final = "#text"
_XML_STEP: Final = 64 << 10
_BEGINS: Final = re.compile(r'[ \t\r\n]*[\[{"]')
_DECODER: Final = json.JSONDecoder(strict=False)


def may_be_json(text: str) -> bool:
    """Return whether text begins as an object, an array or a string does.

    A number alone is JSON, too, and is as well shown as the text that it is.
    """
    return _BEGINS.match(text) is not None


def read_json(text: str) -> Tree:
    """Return the value of a JSON text; of names that come twice the last counts.

    :raises BodyTooLarge: when it is nested too deep, or has too many values.
    :raises BodyError: when it is not JSON, or has numbers of thousands of digits.
    """
    # No value is made before it is counted; texts can have commas and brackets, too.
    opened = text.count("{") + text.count("[")
    if opened + text.count(",") > 2 * MAX_DECODED_VALUES:
        raise BodyTooLarge(f"it has more than {MAX_DECODED_VALUES} values")
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise BodyTooLarge("JSON that is nested too deep") from None
    except ValueError as error:
        raise BodyError(f"it is not JSON: {error}") from error
    # A text with few signs cannot be beyond the bounds.
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
        level = list(chain.from_iterable(map(_members, inner)))
    raise BodyTooLarge(f"it is nested more than {limits.MAX_DECODED_LEVELS} levels deep")


def _members(value: Tree) -> Iterator[Tree]:
    return iter(value.values() if isinstance(value, dict) else value)


def may_be_xml(text: str) -> bool:
    """Return whether text begins as a document does."""
    return text.lstrip("\ufeff \t\r\n").startswith("<")


def read_xml(text: str) -> Tree:
    """Return a document as ``{name of its root: ...}``.

    :raises BodyTooLarge: when it is larger than the bounds.
    :raises BodyError: when it is not well-formed, or has a document type.
    """
    # Attributes are made before they are counted; texts can have such signs, too.
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
        # In parts: after an error, expat would read on to the end of what it has.
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
        # An element takes as long as three texts.
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
