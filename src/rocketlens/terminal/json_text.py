"""Formats JSON for people or on one line, without changing numbers and names.

JSON is formatted token by token instead of parsed, so numbers keep their digits, and repeated names
are kept. `json_line` writes the JSON lines of commands.
"""

import json
import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import Any, Final

from msgspec.structs import asdict

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer
from rocketlens.model.text.escape import printable, safe_json
from rocketlens.model.text.json_dialect import check_depth, refuse_constant
from rocketlens.terminal.output import CYAN, GREEN, YELLOW, coloured

TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.\w]+|[{}\[\],:]')
_INDENT: Final = "  "


def json_of(body: bytes) -> str | None:
    try:
        return checked_json(body)
    except BadInput:
        return None


def checked_json(body: bytes) -> str:
    """Return the text of a JSON body.

    :raises BadInput: if it is not JSON, or too large or nested too deep to be shown.
    """
    if len(body) > limits.MAX_SHOWN_JSON_BYTES:
        raise BadInput(
            f"the body has {len(body)} bytes, too many to show as JSON (limit: "
            f"{limits.MAX_SHOWN_JSON_BYTES}): try --body raw"
        )
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not JSON ({str(error)[:100]}): try --body text") from error
    try:
        check_depth(value, limits.MAX_DECODED_LEVELS)
    except ValueError as error:
        raise BadInput(f"the body is {error}: try --body text") from error
    return text


def indented(text: str) -> Iterator[str]:
    """Return JSON in pieces, indented by two spaces per level, coloured and safe to print."""
    for part, token in layout_json(text):
        if part is JsonPart.LAYOUT:
            yield token
        elif part is JsonPart.OTHER:
            yield coloured(token, YELLOW, sys.stdout)
        else:
            colour = CYAN if part is JsonPart.NAME else GREEN
            yield coloured(printable(_readable(token)), colour, sys.stdout)


def compact(text: str, *, is_ascii: bool = False) -> str:
    """Return JSON on one line, without spaces between its parts."""
    parts = (match[0] for match in TOKEN.finditer(text))
    return "".join(_readable(part, is_ascii=is_ascii) if part[0] == '"' else part for part in parts)


def _readable(token: str, *, is_ascii: bool = False) -> str:
    r"""Return a JSON string without ``\u`` escapes, or with ``is_ascii`` only with these."""
    if is_ascii or "\\u" in token:
        return json.dumps(json.loads(token), ensure_ascii=is_ascii)
    return token


class JsonPart(StrEnum):
    """The kind of a piece of JSON."""

    NAME = "name"
    STRING = "string"
    OTHER = "other"
    """A number, true, false or null."""
    LAYOUT = "layout"
    """Brackets, commas, colons, spaces and line ends."""


def layout_json(text: str) -> Iterator[tuple[JsonPart, str]]:
    """Yield the pieces of a JSON text, indented by two spaces per level."""
    pieces = [match[0] for match in TOKEN.finditer(text)]
    depth = 0
    for number, piece in enumerate(pieces):
        following = pieces[number + 1] if number + 1 < len(pieces) else ""
        if piece in "{[":
            is_empty = following in ("}", "]")
            depth += not is_empty
            yield JsonPart.LAYOUT, piece if is_empty else f"{piece}\n{_INDENT * depth}"
        elif piece in "}]":
            if pieces[number - 1] not in ("{", "["):
                depth -= 1
                yield JsonPart.LAYOUT, f"\n{_INDENT * depth}"
            yield JsonPart.LAYOUT, piece
        elif piece == ",":
            yield JsonPart.LAYOUT, f",\n{_INDENT * depth}"
        elif piece == ":":
            yield JsonPart.LAYOUT, ": "
        elif piece[0] == '"':
            yield JsonPart.NAME if following == ":" else JsonPart.STRING, piece
        else:
            yield JsonPart.OTHER, piece


def answer_fields(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON values, without its messages."""
    return {
        "query": answer.query,
        "complete": answer.complete,
        "truncated": answer.truncated,
        "coverage": [asdict(coverage) for coverage in answer.coverage],
    }


def json_line(fields: object) -> str:
    """Return one line of JSON; characters that stdout cannot show are escaped."""
    return safe_json(_encoder(ensure_ascii=not is_unicode()).encode(fields))


@cache
def _encoder(*, ensure_ascii: bool) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=ensure_ascii, separators=(",", ":"), default=asdict)


def is_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
