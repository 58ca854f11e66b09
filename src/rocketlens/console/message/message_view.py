"""Messages as lists and pages show them. It decodes bodies, so call it in a thread."""

import base64
import time
from collections.abc import Sequence
from typing import Final, Literal, get_args

from rocketlens import limits
from rocketlens.console.search.columns import preview_of, value_columns, value_in
from rocketlens.console.sources.sources import message_path
from rocketlens.console.values import BodyValue, DecodedId, IdPart, MessageDetail, MessageRow
from rocketlens.decode.bodies import BINARY, TEXT, DecodedBody
from rocketlens.decode.plain_text import find_text
from rocketlens.decode.rules import BodyRules
from rocketlens.decode.tree import FIELD
from rocketlens.errors import BadInput
from rocketlens.model.life import due_ms, life_of
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId, UniqueKey
from rocketlens.model.properties import SYSTEM_PROPERTIES
from rocketlens.model.text.escape import printable
from rocketlens.model.topic import TopicKind
from rocketlens.terminal.message_values import hex_lines

MAX_PAGE_BODY_CHARACTERS: Final = 256 << 10
"""Characters of a body on its page; a download has all of it."""
MAX_PAGE_HEX_BYTES: Final = 16 << 10
"""Bytes of a body in hexadecimal, about four characters each."""
BodyForm = Literal["decoded", "text", "json", "hex", "base64"]
BODY_FORMS: Final[tuple[BodyForm, ...]] = get_args(BodyForm)
_LAYOUT: Final = "\n\t\r"


def row_of(
    message: MessageExt, source: str, broker: str, rules: BodyRules, columns: Sequence[str] = ()
) -> MessageRow:
    """Return a message as a row, with the values of the additional columns."""
    name, preview = _preview(message, rules)
    life = life_of(message)
    return MessageRow.of(
        message,
        source=source,
        topic_kind=TopicKind.of(message.topic).value,
        state=life.state,
        real_topic=life.topic,
        group=life.group,
        broker=broker,
        path=message_path(source, message, broker),
        body_bytes=len(message.body),
        body_format=name,
        preview=preview,
        values=_values(message, rules, value_columns(columns)),
    )


def deliveries_after_the_first(row: MessageRow) -> int:
    """Return how often a group got a message again, as its story counts it.

    A broker counts one more when it makes a dead letter.
    """
    is_dead = row.topic_kind == "dead_letter"
    return max(0, row.reconsume_times - 1) if is_dead else row.reconsume_times


def detail_of(
    message: MessageExt, row: MessageRow, rules: BodyRules, form: BodyForm
) -> MessageDetail:
    ours = {name: value for name, value in message.properties.items() if name in SYSTEM_PROPERTIES}
    return MessageDetail.of(
        message,
        message=row,
        properties={k: v for k, v in message.properties.items() if k not in ours},
        system_properties=ours,
        ids=decoded_ids(message),
        store_host=str(message.store_host),
        born_host=message.sent_from,
        due_ms=due_ms(message),
        body=body_of(message, rules, form),
    )


def _values(message: MessageExt, rules: BodyRules, columns: Sequence[str]) -> dict[str, str]:
    is_read = any(each.startswith(FIELD) for each in columns) and _is_previewed(message)
    decoded = rules.decode(message) if is_read else None
    values = ((each, value_in(message, decoded, each)) for each in columns)
    return {each: value for each, value in values if value is not None}


def _is_previewed(message: MessageExt) -> bool:
    return len(message.body) <= limits.MAX_PREVIEW_BYTES and message.body_error is None


def _preview(message: MessageExt, rules: BodyRules) -> tuple[str, str]:
    body = message.body
    if not body:
        return TEXT, ""
    if not _is_previewed(message):
        # A cut character would not be text.
        plain = find_text(
            body[: limits.MAX_PREVIEW_CHARACTERS * 4].decode("utf-8", "ignore").encode()
        )
        if plain is not None and plain[0]:
            return TEXT, preview_of(plain[0])
        return BINARY, preview_of("0x" + body[: limits.MAX_PREVIEW_CHARACTERS].hex())
    decoded = rules.decode(message)
    text = decoded.text if decoded.text is not None else decoded.as_json()
    if text is None:
        text = "0x" + body[: limits.MAX_PREVIEW_CHARACTERS].hex()
    return decoded.format, preview_of(" ".join(text[: limits.MAX_PREVIEW_CHARACTERS * 4].split()))


def body_of(message: MessageExt, rules: BodyRules, form: BodyForm) -> BodyValue:
    """Return a body in a form. ``decoded`` is JSON if possible, else text, else hexadecimal."""
    decoded = rules.decode(message)
    content, is_json, is_hex = _content_of(message, decoded, form)
    bound = MAX_PAGE_BODY_CHARACTERS
    is_cut = len(content) > bound or (is_hex and len(message.body) > MAX_PAGE_HEX_BYTES)
    return BodyValue.of(
        decoded, form=form, content=content[:bound], is_cut=is_cut, is_json=is_json and not is_cut
    )


def _content_of(
    message: MessageExt, decoded: DecodedBody, form: BodyForm
) -> tuple[str, bool, bool]:
    """Return a body as text, and whether that is JSON, and whether it is hexadecimal."""
    as_json = decoded.as_json() if form in {"decoded", "json"} else None
    if as_json is not None or form == "json":
        return as_json or "", as_json is not None, False
    if form == "base64":
        return base64.b64encode(message.body).decode("ascii"), False, False
    if form == "hex" or (form == "decoded" and decoded.text is None):
        return "\n".join(hex_lines(message.body, MAX_PAGE_HEX_BYTES)), False, True
    text = decoded.text
    if text is None:
        text = message.body[: MAX_PAGE_BODY_CHARACTERS + 1].decode("utf-8", "replace")
    return printable(text, _LAYOUT), False, False


def decoded_ids(message: MessageExt) -> list[DecodedId]:
    """Return the ids of a message and their parts."""
    offset_id = message.offset_msg_id
    ids = []
    if offset_id:
        parts = _offset_id_parts(offset_id)
        ids.append(DecodedId(name="offset_msg_id", text=offset_id, parts=parts))
    key = message.unique_key
    if key is not None:
        stored_ms = message.store_timestamp_ms
        # The key counts from the month in which it was made; a producer's clock can be ahead.
        now_ms = min(stored_ms + 3_600_000, time.time_ns() // 1_000_000)
        ids.insert(0, DecodedId(name="unique_key", text=key, parts=_unique_key_parts(key, now_ms)))
    return ids


def _offset_id_parts(text: str) -> list[IdPart]:
    try:
        decoded = OffsetMessageId.decode(text)
    except BadInput:
        return []
    return [
        IdPart(name="store_host", value=str(decoded.store_host)),
        IdPart(name="physical_offset", value=str(decoded.physical_offset)),
    ]


def _unique_key_parts(text: str, now_ms: int) -> list[IdPart]:
    try:
        decoded = UniqueKey.decode(text)
        made_ms = decoded.nearly_time_ms(now_ms)
    except (BadInput, ValueError, OverflowError):
        return []
    return [
        IdPart(name="client_address", value=decoded.address),
        IdPart(name="process_number", value=str(decoded.process_number)),
        IdPart(name="client_hash", value=f"{decoded.client_hash:08x}"),
        IdPart(name="made_about", value=str(made_ms), epoch_ms=made_ms),
        IdPart(name="counter", value=str(decoded.counter)),
    ]
