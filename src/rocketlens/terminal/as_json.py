"""Answers as JSON, with the field names of the Python API."""

import dataclasses
import json
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.message import MESSAGE_FIELDS, Host, MessageExt
from rocketlens.model.text.escape import safe_json
from rocketlens.terminal.body_view import BodyView
from rocketlens.terminal.message_values import value_of

if TYPE_CHECKING:
    from rocketlens.store.read.log.scan import Chunk

AS_IT_IS: Final = BodyView()
_BODY_STEP: Final = 3 << 18
"""Bytes or characters of a body that are written at once; a multiple of 3, so that pieces of base64
can be joined."""


_TO_JSON: Final[dict[Any, Callable[[Any], Any]]] = {
    Host: str,
    tuple[str, ...]: list,
    Mapping[str, str]: dict,
}
_NAMES: Final = tuple(field.name for field in MESSAGE_FIELDS if field.name != "body")
_values_of: Final = attrgetter(*_NAMES)
_CONVERTED: Final = {
    field.name: _TO_JSON[field.kind] for field in MESSAGE_FIELDS if field.kind in _TO_JSON
}


def message_fields(message: MessageExt) -> dict[str, Any]:
    """Return a message as JSON values: hosts as ``ip:port``, the body as text, else in base64.

    ``body_error`` is the reason if the body is as stored because it cannot be decompressed.
    """
    text = _utf8(message.body)
    encoding = "base64" if text is None else "text"
    body = b64encode(message.body).decode("ascii") if text is None else text
    return {**_other_fields(message), "body": body, "body_encoding": encoding}


def write_message(
    message: MessageExt,
    end: str = "",
    *,
    names: Sequence[str] | None = None,
    bodies: BodyView = AS_IT_IS,
    more: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Write a message to stdout as one line of JSON, followed by ``end``.

    ``names``: only these values, in this order. The body is the member ``body``, and
    ``body_encoding`` says what that is: ``text``, ``json`` (a value of JSON) or ``base64``.
    ``bodies`` says which is preferred: text by default. Long text and base64 are written in pieces:
    as one line a body of zeros would take twelve times its size in memory. ``more`` are members
    before the body.
    """
    fields: dict[str, Any] = {**_other_fields(message), **more}
    if names is not None:
        fields = {
            name: more[name] if name in more else _json_value(message, name)
            for name in names
            if name != "body"
        }
        if "body" not in names:
            sys.stdout.write(json_line(fields) + end)
            return
    body, form = bodies.shown(message)
    value = _json_of(body) if form == "json" else None
    text = None if value is not None or form == "base64" else _utf8(body)
    if text is not None and len(text) <= _BODY_STEP:
        line = json_line({**fields, "body": text, "body_encoding": "text"})
        sys.stdout.write(line + end)
        return
    sys.stdout.write(json_line(fields)[:-1] + (',"body":' if fields else '"body":'))
    if value is not None:
        sys.stdout.write(f'{value},"body_encoding":"json"}}{end}')
        return
    sys.stdout.write('"')
    encoding = "base64" if text is None else "text"
    for start in range(0, len(message.body if text is None else text), _BODY_STEP):
        part = slice(start, start + _BODY_STEP)
        if text is None:
            sys.stdout.write(b64encode(message.body[part]).decode("ascii"))
        else:
            sys.stdout.write(_escaped(text[part]))
    sys.stdout.write(f'","body_encoding":"{encoding}"}}{end}')


def write_chunk(chunk: "Chunk") -> int:
    """Write the messages of a chunk as lines of JSON, as `write_message` does; return how many.

    The usual ones are written by a kernel, the others one by one.
    """
    from rocketlens.formats import commitlog_record
    from rocketlens.formats.json_lines import json_lines

    rows = iter(chunk.rows["physical_offset"].tolist())
    for lines in json_lines(chunk.content, chunk.base_offset, chunk.rows):
        text = lines.text.tobytes().decode("ascii")
        written = before = 0
        for end in lines.ends.tolist():
            physical_offset = next(rows)
            if end == before:
                sys.stdout.write(text[written:end])
                written = end
                position = physical_offset - chunk.base_offset
                record = commitlog_record.decode(
                    chunk.content.data,
                    position,
                    physical_offset=physical_offset,
                    check_crc=False,
                )
                write_message(commitlog_record.message_of(record), "\n")
            before = end
        sys.stdout.write(text[written:])
    return len(chunk.rows)


def _json_value(message: MessageExt, name: str) -> Any:
    value, to_json = value_of(message, name), _CONVERTED.get(name)
    return value if to_json is None else to_json(value)


def _json_of(body: bytes) -> str | None:
    """Return a body that is JSON as JSON on one line; None if it is not."""
    from rocketlens.terminal.json_text import compact, json_of

    value = json_of(body)
    return None if value is None else safe_json(compact(value, is_ascii=not _is_unicode()))


def _utf8(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _other_fields(message: MessageExt) -> dict[str, Any]:
    """Return all of a message except its body."""
    fields = dict(zip(_NAMES, _values_of(message), strict=True))
    for name, to_json in _CONVERTED.items():
        fields[name] = to_json(fields[name])
    return fields


def coverage_fields(coverage: Coverage) -> dict[str, Any]:
    """Return one source of an answer as JSON values."""
    return {each.name: getattr(coverage, each.name) for each in dataclasses.fields(coverage)}


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
    return safe_json(_encoder(ensure_ascii=not _is_unicode()).encode(fields))


def _escaped(text: str) -> str:
    """Return text as it stands between the quotes of a line of JSON."""
    return safe_json(_encoder(ensure_ascii=not _is_unicode()).encode(text))[1:-1]


@cache
def _encoder(*, ensure_ascii: bool) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=ensure_ascii, separators=(",", ":"))


def _is_unicode() -> bool:
    """Return whether stdout takes any character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
