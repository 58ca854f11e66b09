"""Answers as JSON, with the field names of the Python API."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.escape import safe_json
from rocketlens.model.message import MESSAGE_FIELDS, Host, MessageExt

_BODY_STEP: Final = 3 << 18
"""Bytes of a body written at once; a multiple of 3, so that pieces of base64 can be joined."""


_TO_JSON: Final[dict[Any, Callable[[Any], Any]]] = {
    Host: str,
    tuple[str, ...]: list,
    Mapping[str, str]: dict,
}
_FIELDS: Final = {
    field.name: _TO_JSON.get(field.kind, lambda value: value)
    for field in MESSAGE_FIELDS
    if field.name != "body"
}


def message_fields(message: MessageExt) -> dict[str, Any]:
    """Return a message as JSON values: hosts as ``ip:port``, the body in base64.

    ``body_error`` is the reason if the body is as stored because it cannot be decompressed.
    """
    return {**_other_fields(message), "body_base64": b64encode(message.body).decode("ascii")}


def write_message(message: MessageExt, end: str = "") -> None:
    """Write a message to stdout as one line of JSON, followed by ``end``.

    The body is written in pieces: as one text it would take five times its size in memory.
    """
    head = json_line(_other_fields(message))
    sys.stdout.write(f'{head[:-1]},"body_base64":"')
    for start in range(0, len(message.body), _BODY_STEP):
        piece = message.body[start : start + _BODY_STEP]
        sys.stdout.write(b64encode(piece).decode("ascii"))
    sys.stdout.write(f'"}}{end}')


def _other_fields(message: MessageExt) -> dict[str, Any]:
    """Return all of a message except its body."""
    return {name: to_json(getattr(message, name)) for name, to_json in _FIELDS.items()}


def coverage_fields(coverage: Coverage) -> dict[str, Any]:
    """Return one source of an answer as JSON values."""
    return {
        "source": coverage.source,
        "kind": coverage.kind,
        "state": coverage.state,
        "indexed_to_ms": coverage.indexed_to_ms,
        "error": coverage.error,
        "begin_offset": coverage.begin_offset,
        "end_offset": coverage.end_offset,
        "log_end_offset": coverage.log_end_offset,
    }


def answer_fields(answer: Answer) -> dict[str, Any]:
    """Return all of an answer except its messages, as JSON values."""
    return {
        "query": answer.query,
        "complete": answer.complete,
        "truncated": answer.truncated,
        "coverage": [coverage_fields(coverage) for coverage in answer.coverage],
    }


def json_line(fields: Mapping[str, Any]) -> str:
    """Return one line of JSON, with the characters that stdout can show unescaped."""
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(fields, ensure_ascii=not is_unicode, separators=(",", ":"))
    return safe_json(text)
