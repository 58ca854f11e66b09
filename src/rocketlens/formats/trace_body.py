"""The body of a trace message: records of producers' and consumers' actions, as Java writes them.

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

Older clients omit offsetMsgId of Pub, and contextCode, time and group of SubAfter. Times are epoch
milliseconds, the cost is in milliseconds, msgType is a number of MessageType. Drawback: a text with
0x01 or 0x02 shifts all later fields. RocketMQ 4.9.7 and 5.5.0 write the same. Source:
``TraceDataEncoder``.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final

from msgspec import Struct

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
    """The action that a record describes."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


class TraceRecord(Struct, frozen=True):
    """One record; fields that its type does not have are empty or None.

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
    """Return the records of a trace message, in their order; errors are added to ``damage``.

    Records of unknown types are skipped, as in Java. O(bytes).

    :raises BodyError: if the body is longer than that of any message.
    """
    if len(body) > limits.MAX_BODY_BYTES:
        raise BodyError(f"a trace of {len(body)} bytes, {limits.MAX_BODY_BYTES} are allowed")
    records = []
    for line in decode_utf8(body).split(RECORD_END):
        name, *texts = line.split(FIELD_END)
        if name not in _TYPES:
            continue
        try:
            records.append(_record_of(_TYPES[name], texts))
        except ValueError as error:
            if len(damage) < limits.MAX_DAMAGE_REPORTS:
                damage.append(f"a {name} record of {len(texts) + 1} fields: {error}")
    return tuple(records)


def encode(record: TraceRecord) -> bytes:
    """Encode a record as Java does, with its end mark; a body is any number of them.

    An empty text is written as ``null``: Java cannot read a SubBefore whose last field is empty.

    :raises BodyError: if clients do not write records of this type, or a field is missing.
    """
    if record.trace_type is TraceType.RECALL:
        raise BodyError(f"records of type {record.trace_type.value} are not written")
    words = [record.trace_type.value]
    for name in _FIELDS[record.trace_type]:
        if name == "client_host":
            continue
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
    # Properties cannot contain these marks; only a caller's own text could.
    text = text.replace(FIELD_END, "").replace(RECORD_END, "")
    return text or "null"


_TYPES: Final = {each.value: each for each in TraceType}
_FIELDS: Final[Mapping[TraceType, tuple[str, ...]]] = {
    TraceType.PUB: (
        *("timestamp_ms", "region_id", "group", "topic", "msg_id", "tags", "keys", "store_host"),
        *("body_length", "cost_ms", "message_type", "offset_msg_id", "is_success", "client_host"),
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
    TraceType.RECALL: ("timestamp_ms", "region_id", "group", "topic", "msg_id", "is_success"),
}
"""The fields of each type in their order, after the type."""
_NEEDED: Final = {TraceType.PUB: 11, TraceType.SUB_AFTER: 5}
"""The minimum number of fields of each type; all, if the type is not here."""


def _integer(text: str, maximum: int) -> int:
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not digits.isdecimal() or len(digits) > limits.MAX_NUMBER_CHARACTERS:
        raise ValueError(f"{text[: limits.MAX_QUOTATION_CHARACTERS]!r} is not a number")
    number = int(text)
    if not -maximum - 1 <= number <= maximum:
        raise ValueError(f"{text[: limits.MAX_QUOTATION_CHARACTERS]} is out of range")
    return number


_int: Final = partial(_integer, maximum=limits.MAX_INT)
_long: Final = partial(_integer, maximum=limits.MAX_LONG)


def _boolean(text: str) -> bool:
    return text.lower() == "true"


def _message_type(text: str) -> str:
    number = _int(text)
    if not 0 <= number < len(MESSAGE_TYPES):
        raise ValueError(f"{number} is not the number of a message type")
    return MESSAGE_TYPES[number]


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "timestamp_ms": _long,
    "body_length": _int,
    "cost_ms": _int,
    "message_type": _message_type,
    "is_success": _boolean,
    "retry_times": _int,
    "context_code": _int,
    "from_transaction_check": _boolean,
}
"""Parse the fields that are not texts."""


def _record_of(trace_type: TraceType, texts: Sequence[str]) -> TraceRecord:
    """Return the record with these field texts; raise ValueError if one is missing or invalid."""
    names = _FIELDS[trace_type]
    count, needed = len(texts), _NEEDED.get(trace_type, len(names))
    # Like Java's `split`, except that a client without keys ends SubBefore with an empty field.
    while count > needed and not texts[count - 1]:
        count -= 1
    if count < needed:
        raise ValueError(f"it has fewer than {needed} after its type")
    if trace_type is TraceType.PUB and count < 13:
        names = tuple(name for name in names if name != "offset_msg_id")
    if trace_type is TraceType.SUB_AFTER and count < 8:
        # A time is followed by a group.
        count = min(count, 6)
    # Java's trace context is a success until a record says otherwise.
    values: dict[str, Any] = {"is_success": True}
    for name, text in zip(names, texts[:count], strict=False):
        values[name] = _READERS.get(name, str)(text)
    return TraceRecord(trace_type, **values)
