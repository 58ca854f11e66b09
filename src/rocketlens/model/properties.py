"""Message properties: their string form, the system names, and keys.

String form: name U+0001 value U+0002, repeated. The last separator is optional when reading
(RocketMQ 4.9.1 to 5.1 leave it out, all others write it). A segment without a name or without a
value is dropped; of two with the same name the last one counts.
Source: ``MessageDecoder.string2messageProperties``.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from rocketlens.errors import BadInput
from rocketlens.model.text import java

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "
_SURE_DIGITS: Final = 10
"""Numbers of fewer ASCII digits are an ``int`` of Java's."""

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQUE_KEY: Final = "UNIQ_KEY"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
LITE_TOPIC: Final = "__LITE_TOPIC"
"""The name of the message's lite topic, without its parent, which is the message's topic."""
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
ORIGIN_TOPICS: Final = (REAL_TOPIC, RETRY_TOPIC, DLQ_ORIGIN_TOPIC)
"""Properties of copies that name the topic of another copy."""
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PRODUCER_GROUP: Final = "PGROUP"
WAIT: Final = "WAIT"
SHARDING_KEY: Final = "__SHARDINGKEY"
INSTANCE_ID: Final = "INSTANCE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MESSAGE_TYPE: Final = "MSG_TYPE"
REPLY_TYPE: Final = "reply"
"""Value of MSG_TYPE on replies to requests."""
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
POP_CHECKPOINT: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
"""On retries that POP made: when a consumer was first given the message, and its group."""
MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
INNER_NUM: Final = "INNER_NUM"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_NAMES: Final = frozenset({TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS})
"""What a producer sets for a delivery time of its own (RocketMQ 5)."""
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DELETED_KEY: Final = "TIMER_DEL_UNIQKEY"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
BORN_HOST: Final = "__BORNHOST"
"""The host of a client that sent through a proxy; a record's own born host is the proxy then."""
CRC32: Final = "__CRC32#"
RESENT: Final = "RESENT_BY_ROCKETLENS"
RESENT_WHY: Final = "RESENT_BY_ROCKETLENS_WHY"
"""Job and number of a message that RocketLens sent again, who did it, and why; no words of
RocketMQ.
"""
CONSUME_FAILURE: Final = "CONSUME_FAILURE"
"""Why the group's consumer gave the message back: see `rocketlens.model.life.ConsumeFailure`."""
TRANSACTION_OFFSET: Final = "TRANS_OFFSET"
"""On the mark of a transaction in RocksDB: the physical offset of its half message."""

SYSTEM_PROPERTIES: Final = frozenset(
    {
        *(KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED),
        *(PRODUCER_GROUP, "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", ORIGIN_MESSAGE_ID),
        *("TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", RECONSUME_TIME, MSG_REGION, TRACE_ON),
        *(UNIQUE_KEY, "EXTEND_UNIQ_INFO", MAX_RECONSUME_TIMES, "CONSUME_START_TIME", INSTANCE_ID),
        *(CORRELATION_ID, REPLY_TO_CLIENT, TTL, "ARRIVE_TIME", PUSH_REPLY_TIME, CLUSTER),
        *(MESSAGE_TYPE, POP_CHECKPOINT, "POP_CK_OFFSET", FIRST_POP_TIME, "REDIRECT", "PROPAGATION"),
        *(*TIMER_NAMES, TIMER_OUT_MS, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES),
        *("TIMER_DELAY_LEVEL", TIMER_DELETED_KEY),
        *(TRANSACTION_ID, TRANSACTION_PREPARED_QUEUE_OFFSET, TRANSACTION_CHECK_TIMES),
        *(CHECK_IMMUNITY_TIME, INNER_NUM, "INNER_BASE", "DUP_INFO"),
        *(MULTI_DISPATCH, MULTI_QUEUE_OFFSET, ORIGIN_GROUP, DLQ_ORIGIN_TOPIC),
        *("DLQ_ORIGIN_MESSAGE_ID", BORN_TIMESTAMP, "_SYS_MSG_PRIORITY_", BORN_HOST),
        *(LITE_TOPIC, CRC32),
    }
)
"""Names that users may not set: ``MessageConst.STRING_HASH_SET`` of RocketMQ 4.9 and 5.5, and more
that mean something to brokers.
"""


def remove_timers(properties: dict[str, str]) -> None:
    """Remove what sets a delivery time."""
    for name in TIMER_NAMES & properties.keys():
        del properties[name]


def delay_level(properties: Mapping[str, str]) -> int:
    """Return the delay level of a message as Java's ``Integer.parseInt`` reads it; 0 for none."""
    text = properties.get(DELAY, "")
    if text.isascii() and text.isdigit() and len(text) < _SURE_DIGITS:
        return int(text)
    encoded = text.encode("utf-8", "replace")
    level = java.utf8_parse_int(encoded, 0, len(encoded))
    return 0 if level == java.NOT_AN_INTEGER else level


def parse(text: str) -> dict[str, str]:
    """Read the string form, in order of first appearance."""
    properties: dict[str, str] = {}
    for part in text.split(PROPERTY_SEPARATOR):
        name, _, value = part.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def format_properties(properties: Mapping[str, str], *, trailing_separator: bool = True) -> str:
    """Write the string form in the mapping's order; empty names and values are left out.

    ``trailing_separator``: as RocketMQ up to 4.9.0 and from 5.2.0; without it, as 4.9.1 to 5.1.
    """
    text = PROPERTY_SEPARATOR.join(
        f"{name}{NAME_VALUE_SEPARATOR}{value}"
        for name, value in properties.items()
        if name and value
    )
    return text + PROPERTY_SEPARATOR if text and trailing_separator else text


def java_order(properties: Mapping[str, str], table_size: int = 128) -> dict[str, str]:
    """Return properties in the order in which Java's ``HashMap`` iterates over them.

    That is the order in which a broker writes the properties of a single message; those of batch
    members stay as the producer's map had them. ``table_size``: what the map began with, 128 from
    RocketMQ 5.1 on, 16 before (and in producers); it doubles while more than three quarters full.
    Names of one bucket keep their order, as in Java as long as they are fewer than nine.
    O(n log n). Source: ``java.util.HashMap``.

    :raises BadInput: when ``table_size`` is not a power of two.
    """
    if table_size < 1 or table_size & (table_size - 1):
        message = f"{table_size} is no size of a hash table: it is a power of two"
        raise BadInput(message)
    while len(properties) * 4 > table_size * 3:
        table_size *= 2
    last_bucket = table_size - 1
    names = sorted(properties, key=lambda name: _spread_hash(name) & last_bucket)
    return {name: properties[name] for name in names}


@lru_cache(maxsize=256)
def _spread_hash(name: str) -> int:
    """Return the hash of a name as ``HashMap`` uses it; most messages have the same few names."""
    hashed = java.string_hash(name) & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def split_keys(text: str | None) -> tuple[str, ...]:
    """Split the KEYS property at single spaces; empty tokens are none, nothing else is trimmed.

    A key that stands in it twice is returned twice, as RocketMQ indexes it twice.
    """
    return tuple(filter(None, text.split(KEY_SEPARATOR))) if text else ()
