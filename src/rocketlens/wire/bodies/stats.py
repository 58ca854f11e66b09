"""Offsets of many queues at once, by queue: of a topic (202), of a group (208), of all (317).

And where a reset put them (222), what a broker counts (315), and tables of text: its runtime
information (28), a name server's values (219).
"""

from collections.abc import Mapping

from rocketlens.wire.codes import V5_0_0
from rocketlens.wire.declare import (
    I32,
    I64,
    REAL,
    TEXT,
    array_of,
    declare,
    map_of,
    member,
    object_key_of,
    object_of,
)


@declare("MessageQueue")
class MessageQueueBody:
    """One queue of a topic on the brokers of one name."""

    topic: str = member("topic", TEXT)
    broker_name: str = member("brokerName", TEXT)
    queue_id: int = member("queueId", I32)


@declare("TopicOffset")
class TopicOffset:
    """Offsets of a queue: the first one, the next one, and when the last message was stored."""

    min_offset: int = member("minOffset", I64, default=0)
    max_offset: int = member("maxOffset", I64, default=0)
    last_update_timestamp_ms: int = member("lastUpdateTimestamp", I64, default=0)


@declare("TopicStatsTable")
class TopicStatsTable:
    """All queues of a topic on one broker."""

    offset_table: Mapping[MessageQueueBody, TopicOffset] = member(
        "offsetTable",
        map_of(object_key_of(MessageQueueBody), object_of(TopicOffset)),
        default_factory=dict,
    )
    topic_put_tps: float | None = member("topicPutTps", REAL, default=None, since=V5_0_0)


@declare("BrokerStatsItem")
class BrokerStatsItem:
    """A count of a broker's over a time."""

    sum: int = member("sum", I64, default=0)
    per_second: float = member("tps", REAL, default=0.0)
    per_put: float = member("avgpt", REAL, default=0.0)


@declare("BrokerStatsData")
class BrokerStatsData:
    """A count of a broker's over the last minute, hour and day."""

    minute: BrokerStatsItem = member(
        "statsMinute", object_of(BrokerStatsItem), default_factory=BrokerStatsItem
    )
    hour: BrokerStatsItem = member(
        "statsHour", object_of(BrokerStatsItem), default_factory=BrokerStatsItem
    )
    day: BrokerStatsItem = member(
        "statsDay", object_of(BrokerStatsItem), default_factory=BrokerStatsItem
    )


@declare("OffsetWrapper")
class OffsetWrapper:
    """The progress of a group in a queue."""

    broker_offset: int = member("brokerOffset", I64, default=0)
    consumer_offset: int = member("consumerOffset", I64, default=0)
    pull_offset: int | None = member("pullOffset", I64, default=None, since=V5_0_0)
    last_timestamp_ms: int = member("lastTimestamp", I64, default=0)


@declare("ConsumeStats")
class ConsumeStats:
    """The progress of a group on one broker."""

    offset_table: Mapping[MessageQueueBody, OffsetWrapper] = member(
        "offsetTable",
        map_of(object_key_of(MessageQueueBody), object_of(OffsetWrapper)),
        default_factory=dict,
    )
    consume_tps: float = member("consumeTps", REAL, default=0.0)


@declare("ConsumeStatsList")
class ConsumeStatsList:
    """The progress of each group on one broker: a map of one group for each."""

    consume_stats_list: tuple[Mapping[str, tuple[ConsumeStats, ...]], ...] = member(
        "consumeStatsList", array_of(map_of(TEXT, array_of(object_of(ConsumeStats)))), default=()
    )
    broker_addr: str | None = member("brokerAddr", TEXT, default=None)
    total_diff: int = member("totalDiff", I64, default=0)
    """Messages that the groups have not consumed."""
    total_inflight_diff: int = member("totalInflightDiff", I64, default=0, since=V5_0_0)
    """Messages that the groups have pulled and not consumed."""


@declare("ResetOffsetBody")
class ResetOffsets:
    """The offsets from which the consumers of a group continue after a reset."""

    offset_table: Mapping[MessageQueueBody, int] = member(
        "offsetTable", map_of(object_key_of(MessageQueueBody), I64), default_factory=dict
    )


@declare("KVTable")
class KvTable:
    """Names and values, in their order."""

    table: Mapping[str, str] = member("table", map_of(TEXT, TEXT), default_factory=dict)
