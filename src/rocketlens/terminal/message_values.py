"""The values of a message that can be printed, by name: for ``--fields`` and ``--format``."""

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from string import Formatter
from typing import Final

from rocketlens.errors import BadInput
from rocketlens.model.message import MESSAGE_FIELDS, MessageExt
from rocketlens.model.text.escape import printable
from rocketlens.terminal.body_view import BodyView, body_text
from rocketlens.terminal.times import iso_text

PROPERTY: Final = "properties."
"""``properties.NAME`` is the value of one property."""

_SHORT: Final[Mapping[str, Callable[["MessageExt"], object]]] = {
    "time": lambda message: iso_text(message.store_timestamp_ms),
    "id": lambda message: message.msg_id,
    "position": lambda message: message.position,
    "size": lambda message: len(message.body),
}
"""Values that the table has, beside the fields of a message."""
PIPED_COLUMNS: Final = ("time", "topic", "tags", "keys", "id", "position", "size", "body")
"""Of tab-separated values and of CSV, where the caller does not choose."""
VALUE_NAMES: Final = (*_SHORT, *(field.name for field in MESSAGE_FIELDS))
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""How a cell begins that spreadsheet programs compute."""


def value_names(text: str, more: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of ``--fields``, which may be some that messages do not have themselves.

    :raises BadInput: naming one that a message does not have, and what was probably meant.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in more:
            check_value_name(name, "--fields")
    return names


def check_value_name(name: str, where: str) -> None:
    """Check that messages have a value of this name.

    :raises BadInput: when they have not.
    """
    if name in VALUE_NAMES or (name.startswith(PROPERTY) and name != PROPERTY):
        return
    from rocketlens.query.topic_choice import suggestion

    meant = suggestion(name, VALUE_NAMES) or f"; there are {', '.join(VALUE_NAMES)}"
    raise BadInput(f"{where}: messages have no value {printable(name)[:80]!r}{meant}")


def value_of(message: MessageExt, name: str) -> object:
    """Return one value of a message, as Python has it."""
    if name.startswith(PROPERTY):
        return message.properties.get(name.removeprefix(PROPERTY))
    short = _SHORT.get(name)
    return short(message) if short else getattr(message, name)


def text_of(message: MessageExt, name: str, bodies: BodyView) -> str:
    """Return one value as text; what a message does not have is empty."""
    if name == "body":
        return body_text(*bodies.shown(message))
    value = value_of(message, name)
    if value is None:
        return ""
    if name == "keys":
        return " ".join(message.keys)
    if name == "properties":
        return json.dumps(dict(message.properties), ensure_ascii=False)
    return str(value)


def csv_cell(message: MessageExt, name: str, bodies: BodyView) -> str:
    """Return one value of a message as a cell of CSV, which no spreadsheet program computes."""
    value = None if name == "body" else value_of(message, name)
    return defused(value if isinstance(value, int) else text_of(message, name, bodies))


def defused(value: object) -> str:
    """Return a cell of CSV that no spreadsheet program computes: text of others may be a formula.

    A text that would be one gets an apostrophe before it. Numbers stay as they are.
    """
    text = "" if value is None else str(value)
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{text}" if is_formula else text


def csv_row(cells: Iterable[str]) -> str:
    """Return a row of CSV with its line feed.

    A cell with a carriage return is quoted: a row would begin behind it in spreadsheet programs.
    """
    line = io.StringIO(newline="")
    # The writer of Python 3.11 quotes what is in its line terminator only.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()[: -len("\r\n")] + "\n"


class Template:
    r"""A template of ``--format``: ``{topic} {keys} {body}\n``."""

    def __init__(self, template: str) -> None:
        """Parse a template.

        :raises BadInput: when it is not well-formed, or names a value that messages do not have.
        """
        text = _unescaped(template)
        # A line each, unless it says how a message ends.
        self._parts: Final[Sequence[tuple[str, str]]] = list(
            _parts(text if text.endswith(("\n", "\0")) else f"{text}\n")
        )

    def text(self, message: MessageExt, bodies: BodyView) -> str:
        """Return the template with the values of a message."""
        return "".join(
            literal + (text_of(message, name, bodies) if name else "")
            for literal, name in self._parts
        )


def _parts(text: str) -> Iterable[tuple[str, str]]:
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise BadInput(f"--format: {error}; write {{{{ and }}}} for braces") from error
    for literal, name, form, conversion in parsed:
        if form or conversion or name == "":
            raise BadInput("--format: in braces stands the name of a value, and nothing else")
        if name is not None:
            check_value_name(name, "--format")
        yield literal, name or ""


def _unescaped(template: str) -> str:
    return re.sub(r"\\[nt0\\]", lambda match: _ESCAPES[match[0]], template)
