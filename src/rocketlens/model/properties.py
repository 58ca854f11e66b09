"""Message properties: their string form, RocketMQ's property names, and keys.

String form: name U+0001 value U+0002, repeated. The last separator is optional (RocketMQ 4.9.1 to
5.1 omit it). Segments without a name or value are ignored; the last of two equal names counts.
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
"""ASCII numbers with fewer digits fit a Java ``int``."""

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQUE_KEY: Final = "UNIQ_KEY"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
LITE_TOPIC: Final = "__LITE_TOPIC"
"""The name of the message's lite topic without its parent, which is the message's topic."""
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
"""Value of MSG_TYPE for replies to requests."""
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
POP_CHECKPOINT: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
"""In retries by POP: the time of the first delivery to a consumer, and the consumer's group."""
MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
INNER_NUM: Final = "INNER_NUM"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_NAMES: Final = frozenset({TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS})
"""Set by producers to choose a delivery time (RocketMQ 5)."""
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DELETED_KEY: Final = "TIMER_DEL_UNIQKEY"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
BORN_HOST: Final = "__BORNHOST"
"""The host of a client that sent through a proxy; the record's born host is the proxy then."""
CRC32: Final = "__CRC32#"
RESENT: Final = "RESENT_BY_ROCKETLENS"
RESENT_WHY: Final = "RESENT_BY_ROCKETLENS_WHY"
"""Set by RocketLens: job and number of a message that it sent again, and the user and reason."""
CONSUME_FAILURE: Final = "CONSUME_FAILURE"
"""Set by RocketLens: why the consumer failed. See `rocketlens.model.life.ConsumeFailure`."""
TRANSACTION_OFFSET: Final = "TRANS_OFFSET"
"""In the mark of a RocksDB transaction: the physical offset of its half message."""

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
"""Names that users cannot set: ``MessageConst.STRING_HASH_SET`` of RocketMQ 4.9 and 5.5, and other
names that brokers use.
"""


def remove_timers(properties: dict[str, str]) -> None:
    for name in TIMER_NAMES & properties.keys():
        del properties[name]


def delay_level(properties: Mapping[str, str]) -> int:
    """Return the delay level, parsed like Java's ``Integer.parseInt``; 0 for none."""
    text = properties.get(DELAY, "")
    if text.isascii() and text.isdigit() and len(text) < _SURE_DIGITS:
        return int(text)
    encoded = text.encode("utf-8", "replace")
    level = java.utf8_parse_int(encoded, 0, len(encoded))
    return 0 if level == java.NOT_AN_INTEGER else level


def parse(text: str) -> dict[str, str]:
    """Parse the string form; properties keep the order of their first appearance."""
    properties: dict[str, str] = {}
    for part in text.split(PROPERTY_SEPARATOR):
        name, _, value = part.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def format_properties(properties: Mapping[str, str], *, trailing_separator: bool = True) -> str:
    """Return the string form, in the order of the mapping, without empty names and values.

    ``trailing_separator``: written by RocketMQ up to 4.9.0 and since 5.2.0, but not by 4.9.1 to
    5.1.
    """
    text = PROPERTY_SEPARATOR.join(
        f"{name}{NAME_VALUE_SEPARATOR}{value}"
        for name, value in properties.items()
        if name and value
    )
    return text + PROPERTY_SEPARATOR if text and trailing_separator else text


def java_order(properties: Mapping[str, str], table_size: int = 128) -> dict[str, str]:
    """Return properties in the iteration order of Java's ``HashMap``.

    A broker writes the properties of a single message in this order, and those of batch members in
    the order of the producer's map. ``table_size`` is the map's initial size: 128 since RocketMQ
    5.1, 16 before, and 16 in producers. The table doubles when it is more than three quarters full.
    Names in one bucket keep their order, which holds in Java for up to eight names.
    O(n log n). Source: ``java.util.HashMap``.

    :raises BadInput: if ``table_size`` is not a power of two.
    """
    if table_size < 1 or table_size & (table_size - 1):
        raise BadInput(f"invalid table size {table_size}: expected a power of two")
    while len(properties) * 4 > table_size * 3:
        table_size *= 2
    last_bucket = table_size - 1
    names = sorted(properties, key=lambda name: _spread_hash(name) & last_bucket)
    return {name: properties[name] for name in names}


@lru_cache(maxsize=256)
def _spread_hash(name: str) -> int:
    """Return the hash as ``HashMap`` uses it. Cached: most messages have the same few names."""
    hashed = java.string_hash(name) & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def split_keys(text: str | None) -> tuple[str, ...]:
    """Split the KEYS property at single spaces; empty parts are dropped, nothing is trimmed.

    A repeated key is returned twice, as RocketMQ indexes it twice.
    """
    return tuple(filter(None, text.split(KEY_SEPARATOR))) if text else ()
