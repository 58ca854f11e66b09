"""Writes messages as JSON, with the field names of the Python API."""

import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson

from rocketlens.formats.body_compression import COMPRESSED
from rocketlens.formats.commitlog_record import RecordView, message_of
from rocketlens.model import properties
from rocketlens.model.fields import LIFE_COLUMNS, NAMES
from rocketlens.model.life import life_of_fields
from rocketlens.model.message import MESSAGE_FIELDS, Host, MessageExt
from rocketlens.model.message_id import address_text
from rocketlens.model.text.escape import safe_json
from rocketlens.model.text.java import decode_utf8
from rocketlens.terminal.json_text import compact, is_unicode, json_line, json_of
from rocketlens.terminal.message_values import AS_IT_IS, BodyView, utf8_text, value_of

if TYPE_CHECKING:
    from rocketlens.formats.rows import Rows

_BODY_STEP: Final = 3 << 18
"""Bytes or characters of a body that are written at once; a multiple of 3, so that pieces of base64
can be concatenated."""


_TO_JSON: Final[dict[Any, Callable[[Any], Any]]] = {
    Host: str,
    tuple[str, ...]: list,
    Mapping[str, str]: dict,
}
_NAMES: Final = tuple(field.name for field in MESSAGE_FIELDS if field.name != "body")
_LINE_NAMES: Final = (*_NAMES, *LIFE_COLUMNS, "body", "body_encoding")
_values_of: Final = attrgetter(*_NAMES)
_CONVERTED: Final = {
    field.name: _TO_JSON[field.kind] for field in MESSAGE_FIELDS if field.kind in _TO_JSON
}


def message_fields(message: MessageExt) -> dict[str, Any]:
    """Return a message as JSON values: hosts as ``ip:port``, the body as text or base64.

    ``state`` and ``real_topic`` are those of `rocketlens.model.life`. ``body_error`` is set if the
    body is as stored because it cannot be decompressed.
    """
    text = utf8_text(message.body)
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

    ``names``: only these values, in this order. The member ``body_encoding`` is ``text``, ``json``
    (the body is a JSON value) or ``base64``; ``bodies`` selects the preferred one. Long bodies are
    written in pieces: as one line, a body of zeros would take twelve times its size in memory.
    ``more`` has additional members before the body.
    """
    fields: dict[str, Any] = {**_other_fields(message), **more}
    if names is not None:
        fields = {
            name: more[name] if name in more else _json_value(message, name, bodies)
            for name in names
            if name != "body"
        }
        if "body" not in names:
            sys.stdout.write(message_line(fields) + end)
            return
    body, form = bodies.shown(message)
    value = json_of(body) if form == "json" else None
    if value is not None:
        value = safe_json(compact(value, is_ascii=not is_unicode()))
    text = None if value is not None or form == "base64" else utf8_text(body)
    if text is not None and len(text) <= _BODY_STEP:
        line = message_line({**fields, "body": text, "body_encoding": "text"})
        sys.stdout.write(line + end)
        return
    sys.stdout.write(message_line(fields)[:-1] + (',"body":' if fields else '"body":'))
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
            sys.stdout.write(json_line(text[part])[1:-1])
    sys.stdout.write(f'","body_encoding":"{encoding}"}}{end}')


def write_rows(rows: "Rows") -> int:
    r"""Write the messages of rows like `write_message`, each with "\n"; return their number.

    Most are written from their records, in a third of the time that a `MessageExt` takes.
    """
    hosts: dict[tuple[bytes, int], str] = {}
    for physical_offset in rows.offsets():
        view = RecordView(rows.content, physical_offset - rows.base_offset)
        fields = _fields_of(view, hosts)
        if fields is None:
            write_message(message_of(view.record()), "\n")
        else:
            sys.stdout.write(message_line(fields) + "\n")
    return len(rows)


def _fields_of(view: RecordView, hosts: dict[tuple[bytes, int], str]) -> dict[str, Any] | None:
    """Return the members of a message; None if its body is compressed, long or not UTF-8.

    ``hosts`` caches host texts by address and port.
    """
    body = view.body
    if view.sys_flag & COMPRESSED or len(body) > _BODY_STEP or (text := utf8_text(body)) is None:
        return None
    (_, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms, *more) = (
        view.head
    )
    born_address, born_port, store_ms, store_address, store_port, reconsumed, prepared, _ = more
    born_host, store_host = (born_address, born_port), (store_address, store_port)
    for host in (born_host, store_host):
        if host not in hosts:
            hosts[host] = str(Host(address_text(host[0]), host[1]))
    named = properties.parse(decode_utf8(view.properties))
    unique_key = named.get(properties.UNIQUE_KEY)
    offset_msg_id = f"{store_address.hex()}{store_port:08x}{physical_offset:016x}".upper()
    values = (
        view.topic,
        named.get(properties.TAGS),
        properties.split_keys(named.get(properties.KEYS)),
        unique_key,
        unique_key or offset_msg_id,
        offset_msg_id,
        *(queue_id, queue_offset, physical_offset, view.total_size, sys_flag, flag, body_crc),
        *(born_ms, hosts[born_host], store_ms, hosts[store_host], reconsumed, prepared),
        *(named, None, None, None),
        *life_of_fields(view.topic, named, named.get(properties.TAGS), view.sys_flag)[:2],
        *(text, "text"),
    )
    return dict(zip(_LINE_NAMES, values, strict=True))


def _json_value(message: MessageExt, name: str, bodies: BodyView) -> Any:
    value, to_json = value_of(message, name, bodies), _CONVERTED.get(NAMES.get(name, ""))
    return value if to_json is None else to_json(value)


def _other_fields(message: MessageExt) -> dict[str, Any]:
    fields = dict(zip(_NAMES, _values_of(message), strict=True))
    for name, to_json in _CONVERTED.items():
        fields[name] = to_json(fields[name])
    life = life_of_fields(message.topic, message.properties, message.tags, message.sys_flag)
    return {**fields, **dict(zip(LIFE_COLUMNS, life[:2], strict=True))}


def message_line(fields: Mapping[str, Any]) -> str:
    """Return the members of a message like `json_line`, in a fifth of its time.

    orjson writes texts and 64-bit numbers like `json`, which writes what orjson refuses.
    """
    if is_unicode():
        try:
            return safe_json(orjson.dumps(fields).decode())
        except TypeError:
            pass  # A lone surrogate, or a larger number.
    return json_line(fields)
