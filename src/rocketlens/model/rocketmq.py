"""RocketMQ's constants: topics, groups, prefixes, permissions, flags, delay levels.

Property names are in :mod:`rocketlens.model.properties`, codes in ``wire/codes``. Sources:
``TopicValidator``, ``Validators``, ``MixAll``, ``PermName``, ``TopicSysFlag``, ``MessageSysFlag``,
``FAQUrl`` and ``ScheduleMessageService`` of RocketMQ 4.9.7 and 5.5.0. If the two differ, the value
is that of 5.5.0.
"""

import re
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput, MessageIllegal

MAX_NEW_TOPIC_CHARACTERS: Final = 127
"""Longest name of other new topics. RocketMQ: the same (``TopicValidator``)."""
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
"""Light message queues (RocketMQ 5): their entries refer to records of other topics."""
LITE_PREFIX: Final = f"{LMQ_PREFIX}$"
"""Queues of lite topics (RocketMQ 5.5): see `lite_topic`."""
LITE_TYPE: Final = "LITE"
LITE_TTL: Final = "lite.topic.expiration"
LITE_PARENT: Final = "lite.bind.topic"
"""The ``message.type`` of a parent of lite topics; its attribute for the minutes that a lite topic
lives after its last message; and the attribute of groups that names the parent they read."""
MESSAGE_TYPE: Final = "message.type"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
NAMESPACE_SEPARATOR: Final = "%"

DEFAULT_TOPIC: Final = "TBW102"
"""Automatically created topics inherit the settings of this topic."""
DELAY_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_MESSAGE_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_MESSAGE_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_MESSAGE_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_MESSAGE_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
HEARTBEAT_TOPIC: Final = "DefaultHeartBeatSyncerTopic"
"""Proxies share their client lists through this topic."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
"""POP stores deliveries and acknowledgements in these topics."""
_TIMER: Final = "timer"
"""Part of the names of all timer topics, including RocksDB's."""

NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        DELAY_TOPIC,
        HALF_MESSAGE_TOPIC,
        OP_MESSAGE_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        ROCKSDB_HALF_MESSAGE_TOPIC,
        ROCKSDB_OP_MESSAGE_TOPIC,
    }
)
"""Topics that only brokers write to."""
SYSTEM_TOPICS: Final = NOT_ALLOWED_SEND_TOPICS | {
    DEFAULT_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
    CHECKPOINT_TOPIC,
}
"""Topics that clients cannot create, change or delete; see also `SYSTEM_TOPIC_PREFIX`."""

INTERNAL_TOPICS: Final = frozenset(
    {
        DEFAULT_TOPIC,
        BENCHMARK_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
        HEARTBEAT_TOPIC,
        OP_MESSAGE_TOPIC,
        ROCKSDB_OP_MESSAGE_TOPIC,
    }
)
"""Topics with RocketMQ's own records, not copies of users' messages."""

TAG_TYPE: Final = "TAG"
SQL92_TYPE: Final = "SQL92"
"""Subscription types: by tag, and by SQL92 expression (:mod:`rocketlens.model.sql92`)."""
ALL_TAGS: Final = "*"

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose offsets record the progress of transaction checks."""
SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
"""Groups that every broker has."""
BROADCAST_SUFFIX: Final = "@broadcast"
"""Suffix of a group name. A RocketMQ 5 broker stores under that name the smallest pull offset of a
broadcasting group, for clients that move between the broker and a proxy."""

MASTER_ID: Final = 0
"""Broker id of a master; slaves have larger ids."""
DEFAULT_CLUSTER: Final = "DefaultCluster"
DEFAULT_REGION: Final = "DefaultRegion"
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the name server's key-value pairs that list the queues of ordered topics."""
FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""The end of many remarks."""

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2
"""Bits of a topic's ``topicSysFlag``."""

SYS_FLAG_TRANSACTION_MASK: Final = 0xC
"""Bits of a message's ``sysFlag``; the compression bits are in `formats/body_compression`."""
SYS_FLAG_PREPARED: Final = 0x4
SYS_FLAG_COMMIT: Final = 0x8
SYS_FLAG_ROLLBACK: Final = 0xC
SYS_FLAG_BORN_HOST_V6: Final = 0x10
SYS_FLAG_STORE_HOST_V6: Final = 0x20
SYS_FLAG_NEED_UNWRAP: Final = 0x40
SYS_FLAG_INNER_BATCH: Final = 0x80
"""With the previous flag: a record that is a batch of messages, which clients unpack."""

NAME_SERVER_VARIABLES: Final = ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR")
"""Environment variables with name server addresses; the first one that is set counts."""

QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUE: Final = "BatchCQ"
"""A topic attribute, and its value for topics whose batches are stored as one record."""
CLEANUP_POLICY: Final = "cleanup.policy"
COMPACTION: Final = "COMPACTION"
"""A topic attribute, and its value for topics that keep the newest message of each key."""

CRC_MASK: Final = 0x7FFFFFFF
"""RocketMQ keeps 31 bits of a CRC-32."""

PRODUCER_RETRY_MS: Final = 60_000
"""Sends from one host within this time are retries of one send."""
DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Default of ``messageDelayLevel``; the first delay is level 1."""
DELAY_LEVEL_COUNT: Final = 18
_DELAY_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Ten digits of days plus a timestamp fit 64 bits.
_DELAY: Final = re.compile(r"(\d{1,10})([smhd])")

_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
_POP_RETRY_NAME: Final = re.compile(rf"{RETRY_PREFIX}[%|a-zA-Z0-9_-]+\+[%|a-zA-Z0-9_-]+\Z")
_LITE_NAME: Final = re.compile(rf"{LMQ_PREFIX}\$[%|a-zA-Z0-9_-]+\$[%|a-zA-Z0-9_-]+\Z")
_ILLEGAL: Final = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


def topic_problem(topic: str) -> str | None:
    """Return RocketMQ's text for why a topic cannot have this name, or None if it can."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    shown = topic[: limits.MAX_SHOWN_CHARACTERS]
    if not _LEGAL_NAME.match(topic):
        return f"The specified topic: {shown}, {_ILLEGAL}"
    longest = limits.MAX_TOPIC_CHARACTERS
    if is_group_topic(topic):
        if len(topic) > longest:
            return (
                f"The specified topic is DLQ or Retry topic: {shown}, "
                f"and it's longer than topic max length: {longest}"
            )
    elif len(topic) > MAX_NEW_TOPIC_CHARACTERS:
        longest = MAX_NEW_TOPIC_CHARACTERS
        return f"The specified topic: {shown}, is longer than topic max length: {longest}"
    return None


def check_topic(topic: str) -> None:
    """Check a topic name as RocketMQ does.

    :raises MessageIllegal: if the name is empty, too long, or has illegal characters; the text
        is RocketMQ's.
    """
    problem = topic_problem(topic)
    if problem is not None:
        raise MessageIllegal(problem)


def group_problem(group: str, longest: int = limits.MAX_GROUP_CHARACTERS) -> str | None:
    """Return RocketMQ's text for why a group cannot have this name, or None if it can.

    Operators are limited to fewer characters (`limits.MAX_NEW_GROUP_CHARACTERS`) than clients.
    """
    if not group or group.isspace():
        return "The specified group is blank."
    shown = group[: limits.MAX_SHOWN_CHARACTERS]
    if not _LEGAL_NAME.match(group):
        return f"The specified group: {shown}, {_ILLEGAL}"
    if len(group) > longest:
        return f"The specified group: {shown}, is longer than group max length: {longest}"
    return None


def is_topic_name(text: str) -> bool:
    """Return whether a store can have a topic of this name. The name is then safe in a path.

    Any topic can be as long as retry topics: brokers can be configured to allow it. Names with a
    plus (retry topics of POP, V2) or a dollar (lite topics) are valid, too, although clients cannot
    create them.
    """
    if len(text) > limits.MAX_TOPIC_CHARACTERS:
        return False
    return any(form.match(text) for form in (_LEGAL_NAME, _POP_RETRY_NAME, _LITE_NAME))


def is_group_topic(topic: str) -> bool:
    return topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def has_copies(topic: str) -> bool:
    """Return whether the messages of a topic are copies of those of other topics."""
    # Messages of the trace topic are not copies, whatever their properties say: clients write it.
    return is_group_topic(topic) or (is_system_topic(topic) and topic != TRACE_TOPIC)


def is_system_topic(topic: str) -> bool:
    """Return whether a topic is RocketMQ's own: brokers refuse to create, change or delete it."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_internal_topic(topic: str) -> bool:
    """Return whether a topic has RocketMQ's own messages: traces, events, checkpoints.

    False for the system topics with copies of users' messages: delays, timers, transactions.
    """
    return topic in INTERNAL_TOPICS or (
        topic.startswith(SYSTEM_TOPIC_PREFIX) and _TIMER not in topic
    )


def is_system_group(group: str) -> bool:
    """Return whether a group belongs to brokers or proxies."""
    return group in SYSTEM_GROUPS or group.startswith(
        (SYSTEM_GROUP_PREFIX, f"CID_{HEARTBEAT_TOPIC}")
    )


def lite_topic(parent: str, name: str) -> str:
    """Return the name of a lite topic's queue; ``name`` can be a pattern."""
    return f"{LITE_PREFIX}{parent}${name}"


def lite_parent(topic: str) -> str | None:
    """Return the parent of a lite topic's queue; None for other topics."""
    parent, separator, name = topic.removeprefix(LITE_PREFIX).partition("$")
    return parent if topic.startswith(LITE_PREFIX) and separator and name else None


def reply_topic(cluster_name: str) -> str:
    """Return the topic for replies to requests from clients of a cluster."""
    return f"{cluster_name}_REPLY_TOPIC"


def perm_text(perm: int) -> str:
    """Return a permission in RocketMQ's notation, such as ``RW-``."""
    return "".join(
        letter if perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Parse ``messageDelayLevel``: "1s 5s 1m" becomes (0, 1000, 5000, 60000).

    Element n is level n in milliseconds; element 0 is unused. As in Java, decimal digits of any
    script are valid.

    :raises BadInput: unless each word is a number of at most 10 digits and one of s, m, h and d.
    """
    delays_ms = [0]
    for word in text.split():
        match = _DELAY.fullmatch(word)
        if match is None:
            raise BadInput(f"messageDelayLevel: {word[:60]!r} is not a delay such as 10s, 5m or 2h")
        delays_ms.append(int(match[1]) * _DELAY_UNITS_MS[match[2]])
    return tuple(delays_ms)
