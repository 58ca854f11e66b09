"""XML, read without what it may refer to.

An element becomes a dict: attributes with ``@`` before their names, elements by their names (those
of one name as a list), text as ``#text``; an element that has text alone becomes that text. A
document type is refused: entities can name files, addresses, and each other without end.

A module of its own, as every format of bodies.
"""

from typing import Final, NoReturn
from xml.parsers import expat

from rocketlens import limits
from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError, BodyTooLarge

TEXT: Final = "#text"


def may_be_xml(text: str) -> bool:
    """Return whether text begins as a document does."""
    return text.lstrip("\ufeff \t\r\n").startswith("<")


def read_xml(text: str) -> Tree:
    """Return a document as ``{name of its root: ...}``.

    :raises BodyTooLarge: when it is larger than the bounds.
    :raises BodyError: when it is not well-formed, or has a document type.
    """
    builder = _Builder()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(text.encode("utf-8", "surrogatepass"), True)  # noqa: FBT003 - the end
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
        self._values = 0

    def start(self, _: str, attributes: dict[str, str]) -> None:
        self._values += 1 + len(attributes)
        if self._values > limits.MAX_DECODED_VALUES:
            raise BodyTooLarge(f"it has more than {limits.MAX_DECODED_VALUES} values")
        if len(self._open) > limits.MAX_DECODED_LEVELS:
            raise BodyTooLarge(f"it is nested more than {limits.MAX_DECODED_LEVELS} levels deep")
        self._open.append({f"@{name}": value for name, value in attributes.items()})
        self._texts.append([])

    def text(self, part: str) -> None:
        self._texts[-1].append(part)

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
