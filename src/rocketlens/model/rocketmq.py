"""The words of RocketMQ, each once: topics, groups, prefixes, permissions, flags, delay levels.

Names of properties are in :mod:`rocketlens.model.properties`, codes in ``wire/codes``. Sources:
``TopicValidator``, ``Validators``, ``MixAll``, ``PermName``, ``TopicSysFlag``, ``MessageSysFlag``,
``FAQUrl`` and ``ScheduleMessageService`` of RocketMQ 4.9.7 and 5.5.0. Where the two differ, this is
what 5.5.0 has.
"""

import re
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput, MessageIllegal

MAX_NEW_TOPIC_CHARACTERS: Final = 127
"""Longest name of other topics that are created. RocketMQ: the same (``TopicValidator``)."""
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
"""Light message queues, of RocketMQ 5: their entries lead to records of other topics."""
LITE_PREFIX: Final = f"{LMQ_PREFIX}$"
"""Those of lite topics, of RocketMQ 5.5: see `lite_topic`."""
LITE_TYPE: Final = "LITE"
LITE_TTL: Final = "lite.topic.expiration"
LITE_PARENT: Final = "lite.bind.topic"
"""The ``message.type`` of topics whose messages are in lite topics; how many minutes a lite topic
stays after its last message, an attribute of their parent; and that of groups which read it."""
MESSAGE_TYPE: Final = "message.type"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
NAMESPACE_SEPARATOR: Final = "%"

DEFAULT_TOPIC: Final = "TBW102"
"""Topics that brokers create by themselves inherit from this one."""
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
"""Proxies tell each other in it which clients they have."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
"""Topics in which POP keeps what it gave to consumers, and what they acknowledged."""
_TIMER: Final = "timer"
"""What the names of all topics for timers have, those of RocksDB's, too."""

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
"""Topics that clients may not create, change or delete; see also `SYSTEM_TOPIC_PREFIX`."""

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
"""Topics of records that are RocketMQ's own, and no copies of users' messages."""

TAG_TYPE: Final = "TAG"
SQL92_TYPE: Final = "SQL92"
"""Types of subscriptions: by tags, and by an expression (:mod:`rocketlens.model.sql92`)."""
ALL_TAGS: Final = "*"

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose offsets say how far transactions are checked."""
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
"""Groups that each broker has from the start."""
BROADCAST_SUFFIX: Final = "@broadcast"
"""Behind a group's name where a broker of RocketMQ 5 stores how far the slowest client of a group
that broadcasts has pulled: for clients that move between it and a proxy."""

MASTER_ID: Final = 0
"""Broker id of a master; slaves have larger ones."""
DEFAULT_CLUSTER: Final = "DefaultCluster"
DEFAULT_REGION: Final = "DefaultRegion"
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of a name server's key-value pairs that has the queues of ordered topics."""
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
"""Bits of a message's ``sysFlag``; those of compression are in `formats/body_compression`."""
SYS_FLAG_PREPARED: Final = 0x4
SYS_FLAG_COMMIT: Final = 0x8
SYS_FLAG_ROLLBACK: Final = 0xC
SYS_FLAG_BORN_HOST_V6: Final = 0x10
SYS_FLAG_STORE_HOST_V6: Final = 0x20
SYS_FLAG_NEED_UNWRAP: Final = 0x40
SYS_FLAG_INNER_BATCH: Final = 0x80
"""A record that is a batch of messages, which clients take apart: so is the flag before."""

NAME_SERVER_VARIABLES: Final = ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR")
"""Variables of the environment with the addresses of name servers; the first that is set counts."""

QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUE: Final = "BatchCQ"
"""An attribute of a topic, and its value for one whose batches are such records."""
CLEANUP_POLICY: Final = "cleanup.policy"
COMPACTION: Final = "COMPACTION"
"""An attribute of a topic, and its value for one that keeps the newest message of each key."""

CRC_MASK: Final = 0x7FFFFFFF
"""RocketMQ keeps 31 bits of each CRC-32."""

PRODUCER_RETRY_MS: Final = 60_000
"""Sends of one host whose born times are nearer than this are attempts of one send."""
DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Default of ``messageDelayLevel``; the first is level 1."""
DELAY_LEVEL_COUNT: Final = 18
_DELAY_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Ten digits of days and a time stamp still fit 64 bits.
_DELAY: Final = re.compile(r"(\d{1,10})([smhd])")

_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
_POP_RETRY_NAME: Final = re.compile(rf"{RETRY_PREFIX}[%|a-zA-Z0-9_-]+\+[%|a-zA-Z0-9_-]+\Z")
_LITE_NAME: Final = re.compile(rf"{LMQ_PREFIX}\$[%|a-zA-Z0-9_-]+\$[%|a-zA-Z0-9_-]+\Z")
_ILLEGAL: Final = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


def topic_problem(topic: str) -> str | None:
    """Return in RocketMQ's words why a topic of this name cannot be created, None if it can."""
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
    """Check a topic as RocketMQ does.

    :raises MessageIllegal: if it is empty, too long, or has characters that are not allowed; the
        text is RocketMQ's own.
    """
    problem = topic_problem(topic)
    if problem is not None:
        raise MessageIllegal(problem)


def group_problem(group: str, longest: int = limits.MAX_GROUP_CHARACTERS) -> str | None:
    """Return in RocketMQ's words why a group cannot have this name, None if it can.

    ``longest``: operators may use fewer characters (`limits.MAX_NEW_GROUP_CHARACTERS`) than groups
    that clients bring along.
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
    """Return whether a store may have a topic of this name, so that it is safe in a path.

    Any topic may be as long as those of groups here: brokers can be configured to allow that. Retry
    topics of POP have a plus in their names (V2), and lite topics have dollars, which those that
    clients create may not have.
    """
    if len(text) > limits.MAX_TOPIC_CHARACTERS:
        return False
    return any(form.match(text) for form in (_LEGAL_NAME, _POP_RETRY_NAME, _LITE_NAME))


def is_group_topic(topic: str) -> bool:
    """Return whether a topic is for the retries or the dead letters of a consumer group."""
    return topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def has_copies(topic: str) -> bool:
    """Return whether messages of a topic are copies of those of other topics."""
    # The trace topic is a system topic, but its messages are not copies, whatever their properties
    # say: anyone may write there.
    return is_group_topic(topic) or (is_system_topic(topic) and topic != TRACE_TOPIC)


def is_system_topic(topic: str) -> bool:
    """Return whether a topic is RocketMQ's own: brokers refuse to create, change or delete it."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_internal_topic(topic: str) -> bool:
    """Return whether the messages of a topic are RocketMQ's own: traces, events, checkpoints.

    Unlike `is_system_topic` not where brokers keep copies of users' messages, for delays, timers
    and transactions.
    """
    return topic in INTERNAL_TOPICS or (
        topic.startswith(SYSTEM_TOPIC_PREFIX) and _TIMER not in topic
    )


def is_system_group(group: str) -> bool:
    """Return whether a group is RocketMQ's own: of brokers, or of proxies."""
    return group in SYSTEM_GROUPS or group.startswith(
        (SYSTEM_GROUP_PREFIX, f"CID_{HEARTBEAT_TOPIC}")
    )


def lite_topic(parent: str, name: str) -> str:
    """Return the queue of a lite topic, as brokers name it; ``name`` may be a pattern."""
    return f"{LITE_PREFIX}{parent}${name}"


def lite_parent(topic: str) -> str | None:
    """Return the parent topic of a lite topic's queue; None for other topics."""
    parent, separator, name = topic.removeprefix(LITE_PREFIX).partition("$")
    return parent if topic.startswith(LITE_PREFIX) and separator and name else None


def reply_topic(cluster_name: str) -> str:
    """Return the topic that replies to requests of a cluster's clients go to."""
    return f"{cluster_name}_REPLY_TOPIC"


def perm_text(perm: int) -> str:
    """Return a permission as RocketMQ prints it, such as ``RW-``."""
    return "".join(
        letter if perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Parse ``messageDelayLevel``: "1s 5s 1m" is (0, 1000, 5000, 60000).

    Element n is level n in milliseconds; 0 is not used. Decimal digits of any script will do, as in
    Java.

    :raises BadInput: when a word is not a number of at most 10 digits and one of s, m, h and d.
    """
    delays_ms = [0]
    for word in text.split():
        match = _DELAY.fullmatch(word)
        if match is None:
            raise BadInput(f"messageDelayLevel: {word[:60]!r} is not a delay such as 10s, 5m or 2h")
        delays_ms.append(int(match[1]) * _DELAY_UNITS_MS[match[2]])
    return tuple(delays_ms)
