"""The columns of a list of messages, as the address of a search has them.

==========================  ====================================================================
column                      value
==========================  ====================================================================
``topic`` ``position``      where the message is
``tag`` ``keys`` ``id``     what its producer gave it; ``id`` is the message id
``born``                    when it was sent; when it was stored is the first column of each list
``body`` ``size``           the beginning of the body, and its bytes
``prop.NAME``               a property
``body.$.NAME``             a field of a body that is JSON, or can be shown as JSON
==========================  ====================================================================
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rocketlens import limits
from rocketlens.decode.bodies import DecodedBody
from rocketlens.errors import BadInput
from rocketlens.model.message import MessageExt
from rocketlens.model.text.escape import printable

USUAL: Final = ("topic", "position", "tag", "keys", "body", "size")
"""Those of a list for which none were chosen."""
NAMED: Final = (*USUAL, "born", "id")
PROPERTY: Final = "prop."
FIELD: Final = "body.$"
_PATH: Final = re.compile(r"body\.\$(?:\.[\w@$](?:-?[\w@$])*|\[[0-9]{1,9}\])+")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[([0-9]+)\]")


def columns_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that texts name, each with commas between them; none if they name none.

    :raises BadInput: if one of them is no column, or there are too many.
    """
    names = dict.fromkeys(each.strip() for text in texts for each in text.split(","))
    columns = tuple(filter(None, names))
    for each in columns:
        is_property = each.startswith(PROPERTY) and len(each) > len(PROPERTY)
        if not (each in NAMED or is_property or _PATH.fullmatch(each)):
            raise BadInput(
                f"unknown column {each[:80]!r}: expected {', '.join(NAMED)}, prop.NAME for a "
                "property, or body.$.NAME for a field of the body"
            )
    if len(columns) > limits.MAX_CONSOLE_COLUMNS:
        raise BadInput(f"{len(columns)} columns: at most {limits.MAX_CONSOLE_COLUMNS} are shown")
    return columns if columns != USUAL else ()


def own_values(columns: Sequence[str]) -> list[str]:
    """Return the columns whose values are of a message's properties or body."""
    return [each for each in columns if each not in NAMED]


def value_in(message: MessageExt, decoded: DecodedBody | None, column: str) -> str | None:
    """Return the value of such a column, safe to show; None if the message has none.

    ``decoded`` is the message's body, or None if it is too large to be decoded for a list.
    """
    if column.startswith(PROPERTY):
        value = message.properties.get(column.removeprefix(PROPERTY))
    else:
        text = None if decoded is None else decoded.as_json()
        value = None if text is None else _field(text, column)
    return None if value is None else _cut(printable(value))


def _field(text: str, path: str) -> str | None:
    try:
        # Numbers keep their digits.
        value: Any = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    for name, index in _STEP.findall(path.removeprefix(FIELD)):
        if isinstance(value, dict):
            value = value.get(name or index)
        elif isinstance(value, list) and index and int(index) < len(value):
            value = value[int(index)]
        else:
            return None
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    is_long = len(text) > limits.MAX_PREVIEW_CHARACTERS
    return text[: limits.MAX_PREVIEW_CHARACTERS - 1] + "…" if is_long else text
