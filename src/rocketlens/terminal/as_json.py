"""Answers as JSON, with the field names of the Python API."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
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


def write_message(
    message: MessageExt,
    end: str = "",
    *,
    names: Sequence[str] | None = None,
    bodies: BodyView = AS_IT_IS,
) -> None:
    """Write a message to stdout as one line of JSON, followed by ``end``.

    ``names``: only these values, in this order. ``bodies`` says how bodies are shown: the member is
    ``body`` where that is JSON, ``body_text`` where it is text, else ``body_base64``. In base64
    it is written in pieces: as one text it would take five times its size in memory.
    """
    fields: Mapping[str, Any] = _other_fields(message)
    if names is not None:
        fields = {name: _json_value(message, name) for name in names if name != "body"}
    before = json_line(fields)[:-1] + ("," if fields else "")
    if names is not None and "body" not in names:
        sys.stdout.write(f"{before.removesuffix(',')}}}{end}")
        return
    text = _json_body(*bodies.shown(message))
    if text is not None:
        sys.stdout.write(f"{before}{text}}}{end}")
        return
    sys.stdout.write(f'{before}"body_base64":"')
    for start in range(0, len(message.body), _BODY_STEP):
        piece = message.body[start : start + _BODY_STEP]
        sys.stdout.write(b64encode(piece).decode("ascii"))
    sys.stdout.write(f'"}}{end}')


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
    to_json = _FIELDS.get(name, lambda value: value)
    return to_json(value_of(message, name))


def _json_body(body: bytes, form: str | None) -> str | None:
    """Return the member of a body that is JSON or text, as ``form`` asks; None for base64."""
    if form == "json":
        from rocketlens.terminal.json_text import compact, json_of

        found = json_of(body)
        if found is not None:
            return f'"body":{safe_json(compact(found, is_ascii=not _is_unicode()))}'
    if form in {"json", "text"}:
        try:
            return json_line({"body_text": body.decode("utf-8")})[1:-1]
        except UnicodeDecodeError:
            pass
    return None


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
        "relies_on": coverage.relies_on,
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
    text = json.dumps(fields, ensure_ascii=not _is_unicode(), separators=(",", ":"))
    return safe_json(text)


def _is_unicode() -> bool:
    """Return whether stdout takes any character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
