"""The body of a trace message: what producers and consumers say they did, as Java writes it.

Records end in 0x02, their fields are separated by 0x01. All of it is UTF-8 text; numbers are
decimal, booleans ``true`` or ``false``. A text that the client did not have is ``null``.

Pub
    time, region, group, topic, msgId, tags, keys, storeHost, bodyLength, cost, msgType,
    offsetMsgId, success; clients of some releases add clientHost
SubBefore
    time, region, group, requestId, msgId, retryTimes, keys
SubAfter
    requestId, msgId, cost, success, keys, contextCode, time, group
EndTransaction
    time, region, group, topic, msgId, tags, keys, storeHost, msgType, transactionId, state,
    fromTransactionCheck
Recall
    time, region, group, topic, msgId, success

Older clients left out offsetMsgId of Pub, and contextCode, time and group of SubAfter. Times are
epoch milliseconds, the cost is in milliseconds, msgType is a number of MessageType. Drawback: a
text with 0x01 or 0x02 in it shifts all fields behind it. RocketMQ 4.9.7 and 5.5.0 write the same.
Source: ``TraceDataEncoder``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rocketlens import limits
from rocketlens.errors import BodyError
from rocketlens.model.properties import split_keys
from rocketlens.model.text.java import decode_utf8

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
MESSAGE_TYPES: Final = (
    "Normal_Msg",
    "Trans_Msg_Half",
    "Trans_msg_Commit",
    "Delay_Msg",
    "Order_Msg",
)


class TraceType(Enum):
    """The event that a record is about."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One record; what its type does not have is empty, or None.

    ``context_code`` is a number of ConsumeReturnType: 0 success, 1 timeout, 2 exception, 3 null
    returned, 4 failed.
    """

    trace_type: TraceType
    msg_id: str
    timestamp_ms: int | None = None
    region_id: str = ""
    group: str | None = None
    topic: str = ""
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    client_host: str | None = None
    body_length: int | None = None
    cost_ms: int = 0
    message_type: str | None = None
    offset_msg_id: str | None = None
    is_success: bool | None = None
    request_id: str | None = None
    retry_times: int | None = None
    context_code: int | None = None
    transaction_id: str | None = None
    transaction_state: str | None = None
    from_transaction_check: bool | None = None


def decode(body: bytes, damage: list[str]) -> tuple[TraceRecord, ...]:
    """Return the records of a trace message, in their order; what cannot be read is in ``damage``.

    Records of other types are left out, as Java leaves them out. O(bytes).

    :raises BodyError: if the body is longer than a message can be.
    """
    if len(body) > limits.MAX_BODY_BYTES:
        raise BodyError(f"a trace of {len(body)} bytes, {limits.MAX_BODY_BYTES} are allowed")
    records = []
    for line in decode_utf8(body).split(RECORD_END):
        fields = line.split(FIELD_END)
        reader = _READERS.get(fields[0])
        if reader is None:
            continue
        try:
            records.append(reader(fields))
        except (IndexError, ValueError) as error:
            if len(damage) < limits.MAX_DAMAGE_REPORTS:
                damage.append(f"a {fields[0]} record of {len(fields)} fields: {error}")
    return tuple(records)


def encode(record: TraceRecord) -> bytes:
    """Return a record as Java writes it, its end included; a body is any number of them.

    A text that is empty is written as ``null``: Java cannot read a SubBefore that ends in nothing.

    :raises BodyError: if the record is of a type that clients do not write, or lacks a field.
    """
    fields = _WRITERS.get(record.trace_type)
    if fields is None:
        raise BodyError(f"records of type {record.trace_type.value} are not written")
    words = [record.trace_type.value]
    for name in fields:
        value = getattr(record, name)
        if name == "message_type":
            if value not in MESSAGE_TYPES:
                raise BodyError(f"a {words[0]} record of message type {value!r}")
            value = MESSAGE_TYPES.index(value)
        words.append(_word(value))
    return (FIELD_END.join(words) + RECORD_END).encode("utf-8", "replace")


def keys_of(record: TraceRecord) -> tuple[str, ...]:
    """Return the keys by which a trace message with this record is found."""
    return tuple(dict.fromkeys((record.msg_id, *split_keys(record.keys))))


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = "" if value is None else str(value)
    # As properties cannot have them either, only a text of the caller's own could.
    text = text.replace(FIELD_END, "").replace(RECORD_END, "")
    return text or "null"


_WRITERS: Final[Mapping[TraceType, tuple[str, ...]]] = {
    TraceType.PUB: (
        *("timestamp_ms", "region_id", "group", "topic", "msg_id", "tags", "keys", "store_host"),
        *("body_length", "cost_ms", "message_type", "offset_msg_id", "is_success"),
    ),
    TraceType.SUB_BEFORE: (
        *("timestamp_ms", "region_id", "group", "request_id", "msg_id", "retry_times", "keys"),
    ),
    TraceType.SUB_AFTER: (
        *("request_id", "msg_id", "cost_ms", "is_success", "keys", "context_code"),
        *("timestamp_ms", "group"),
    ),
    TraceType.END_TRANSACTION: (
        *("timestamp_ms", "region_id", "group", "topic", "msg_id", "tags", "keys", "store_host"),
        *("message_type", "transaction_id", "transaction_state", "from_transaction_check"),
    ),
}
"""The fields of each type in their order, behind the type."""


def _integer(text: str, maximum: int) -> int:
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not digits.isdecimal() or len(digits) > limits.MAX_NUMBER_CHARACTERS:
        raise ValueError(f"{text[: limits.MAX_QUOTATION_CHARACTERS]!r} is not a number")
    number = int(text)
    if not -maximum - 1 <= number <= maximum:
        raise ValueError(f"{text[: limits.MAX_QUOTATION_CHARACTERS]} is out of range")
    return number


def _int(text: str) -> int:
    return _integer(text, limits.MAX_INT)


def _long(text: str) -> int:
    return _integer(text, limits.MAX_LONG)


def _boolean(text: str) -> bool:
    return text.lower() == "true"


def _message_type(text: str) -> str:
    number = _int(text)
    if not 0 <= number < len(MESSAGE_TYPES):
        raise ValueError(f"{number} is not the number of a message type")
    return MESSAGE_TYPES[number]


def _without_empty_end(fields: Sequence[str]) -> list[str]:
    """Return the fields without empty ones at the end, as Java's ``split`` does."""
    kept = list(fields)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _pub(fields: Sequence[str]) -> TraceRecord:
    given = _without_empty_end(fields)
    is_new = len(given) >= 14
    return TraceRecord(
        TraceType.PUB,
        given[5],
        timestamp_ms=_long(given[1]),
        region_id=given[2],
        group=given[3],
        topic=given[4],
        tags=given[6],
        keys=given[7],
        store_host=given[8],
        body_length=_int(given[9]),
        cost_ms=_int(given[10]),
        message_type=_message_type(given[11]),
        offset_msg_id=given[12] if is_new else None,
        # Java's trace context is a success until a record says otherwise.
        is_success=_boolean(given[13 if is_new else 12]) if len(given) >= 13 else True,
        client_host=given[14] if len(given) >= 15 else None,
    )


def _sub_before(fields: Sequence[str]) -> TraceRecord:
    # A client without keys ends the record with an empty field, which Java refuses to read.
    return TraceRecord(
        TraceType.SUB_BEFORE,
        fields[5],
        timestamp_ms=_long(fields[1]),
        region_id=fields[2],
        group=fields[3],
        request_id=fields[4],
        retry_times=_int(fields[6]),
        keys=fields[7],
        is_success=True,
    )


def _sub_after(fields: Sequence[str]) -> TraceRecord:
    given = _without_empty_end(fields)
    has_time = len(given) >= 9
    return TraceRecord(
        TraceType.SUB_AFTER,
        fields[2],
        request_id=fields[1],
        cost_ms=_int(fields[3]),
        is_success=_boolean(fields[4]),
        keys=fields[5],
        context_code=_int(given[6]) if len(given) >= 7 else None,
        timestamp_ms=_long(given[7]) if has_time else None,
        group=given[8] if has_time else None,
    )


def _end_transaction(fields: Sequence[str]) -> TraceRecord:
    return TraceRecord(
        TraceType.END_TRANSACTION,
        fields[5],
        timestamp_ms=_long(fields[1]),
        region_id=fields[2],
        group=fields[3],
        topic=fields[4],
        tags=fields[6],
        keys=fields[7],
        store_host=fields[8],
        message_type=_message_type(fields[9]),
        transaction_id=fields[10],
        transaction_state=fields[11],
        from_transaction_check=_boolean(fields[12]),
        is_success=True,
    )


def _recall(fields: Sequence[str]) -> TraceRecord:
    return TraceRecord(
        TraceType.RECALL,
        fields[5],
        timestamp_ms=_long(fields[1]),
        region_id=fields[2],
        group=fields[3],
        topic=fields[4],
        is_success=_boolean(fields[6]),
    )


_READERS: Final[Mapping[str, Callable[[Sequence[str]], TraceRecord]]] = {
    TraceType.PUB.value: _pub,
    TraceType.SUB_BEFORE.value: _sub_before,
    TraceType.SUB_AFTER.value: _sub_after,
    TraceType.END_TRANSACTION.value: _end_transaction,
    TraceType.RECALL.value: _recall,
}
