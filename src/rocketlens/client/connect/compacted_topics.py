"""Topic attributes, and the physical offsets of messages that brokers read from other logs.

Brokers of RocketMQ 5 store a topic with ``cleanup.policy=COMPACTION``, and tiered storage, in
separate logs. Pulled messages have the physical offsets of those logs, which are wrong in an offset
message id. Consume queues always refer to the commit log, so the offsets are taken from there. A
message that is no longer in the commit log has none.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rocketlens import limits
from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.route import MessageQueue, Route
from rocketlens.errors import BrokerError
from rocketlens.formats.commitlog_record import HEADS, TOTAL_SIZE
from rocketlens.model.answer import Coverage
from rocketlens.model.message_id import NOT_IN_LOG
from rocketlens.model.rocketmq import CLEANUP_POLICY, COMPACTION
from rocketlens.wire.bodies.clients import ConsumeQueueData
from rocketlens.wire.bodies.static_topics import StaticTopic
from rocketlens.wire.bodies.tables import TopicConfig
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.brokers import GET_TOPIC_CONFIG, TopicRequest

_NO_CONFIG: Final = frozenset(
    {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.TOPIC_NOT_EXIST}
)
_QUEUE_OFFSET: Final = HEADS[0].struct_of("queue_offset")
_PHYSICAL_OFFSET_AT: Final = HEADS[0].offsets["physical_offset"]


async def topic_config(cluster: ClusterCalls, topic: str, address: str) -> TopicConfig:
    """Return a broker's configuration of a topic, at most 30 s old.

    It is empty if the broker does not have the topic, or runs RocketMQ 4, which does not support
    the request.
    """

    async def ask() -> TopicConfig | BrokerError:
        header = TopicRequest(topic=topic, lo=True)
        try:
            return await cluster.ask_for(TopicConfig, address, GET_TOPIC_CONFIG, header)
        except BrokerError as error:
            return TopicConfig(topic_name=topic) if error.code in _NO_CONFIG else error

    config = await cluster.topic_configs.get((topic, address), ask)
    if isinstance(config, BrokerError):
        raise config
    return config


async def static_topic(
    cluster: ClusterCalls, route: Route
) -> tuple[StaticTopic, tuple[Coverage, ...]]:
    """Return the brokers' mappings of a static topic, and the brokers that failed."""
    answers = await cluster.ask_brokers(
        route.brokers.values(), lambda _, address: topic_config(cluster, route.topic, address)
    )
    configs = [each.value for each in answers if each.value is not None]
    mappings = [each.mapping_detail for each in configs if each.mapping_detail is not None]
    failures = tuple(each.coverage for each in answers if each.coverage.is_failure)
    return StaticTopic(mappings), failures


async def topic_attributes(cluster: ClusterCalls, topic: str, address: str) -> Mapping[str, str]:
    return (await topic_config(cluster, topic, address)).attributes or {}


async def is_compacted(cluster: ClusterCalls, topic: str, address: str) -> bool:
    """Return True if a broker compacts a topic; False if it does not return the attributes."""
    try:
        attributes = await topic_attributes(cluster, topic, address)
    except BrokerError:
        return False
    return attributes.get(CLEANUP_POLICY) == COMPACTION


async def broker_config(cluster: ClusterCalls, address: str) -> Mapping[str, str]:
    """Return the configuration of a broker, at most 30 s old; empty if it refuses."""

    async def ask() -> Mapping[str, str]:
        try:
            return await broker_calls.configuration(cluster, address)
        except BrokerError:
            return {}

    return await cluster.broker_configs.get(address, ask)


async def _has_other_logs(cluster: ClusterCalls, topic: str, address: str) -> bool:
    if await is_compacted(cluster, topic, address):
        return True
    config = await broker_config(cluster, address)
    return "TieredMessageStore" in config.get("messageStorePlugIn", "")


async def with_log_offsets(
    cluster: ClusterCalls, address: str, queue: MessageQueue, body: bytes
) -> tuple[bytes, int]:
    """Return pulled records with offsets of the commit log, and the number of compacted ones.

    Records change only if the broker compacts the topic or has tiered storage. The offset is
    NOT_IN_LOG if the queue does not lead to the record, or the broker does not return the entry.
    The number is 0 if the topic is not compacted.
    """
    if not await _has_other_logs(cluster, queue.topic, address):
        return body, 0
    content = bytearray(body)
    pulled = dict(_record_starts(content))
    entries = await queue_entries(cluster, address, queue, pulled)
    for queue_offset, start in pulled.items():
        entry = entries.get(queue_offset)
        is_there = entry is not None and entry.store_size == TOTAL_SIZE.unpack_from(body, start)[0]
        physical_offset = entry.physical_offset if entry is not None and is_there else NOT_IN_LOG
        at = start + _PHYSICAL_OFFSET_AT
        content[at : at + 8] = physical_offset.to_bytes(8, "big", signed=True)
    is_whole = not await is_compacted(cluster, queue.topic, address)
    return bytes(content), 0 if is_whole else len(pulled)


def _record_starts(content: bytearray) -> Iterator[tuple[int, int]]:
    """Yield the queue offset of each record, and the position at which it starts."""
    start = 0
    while len(content) - start >= HEADS[0].size:
        yield _QUEUE_OFFSET.unpack_from(content, start)[0], start
        # The decoder reports bytes that are not a record.
        start += max(TOTAL_SIZE.unpack_from(content, start)[0], HEADS[0].size)


async def queue_entries(
    cluster: ClusterCalls, address: str, queue: MessageQueue, queue_offsets: Iterable[int]
) -> dict[int, ConsumeQueueData]:
    entries: dict[int, ConsumeQueueData] = {}
    rest = sorted(queue_offsets)
    while rest:
        first = rest[0]
        count = min(rest[-1] + 1 - first, limits.MAX_PULL_MESSAGES)
        answer = await broker_calls.consume_queue(cluster, address, queue, first, count)
        entries.update(enumerate(answer.entries or () if answer else (), first))
        rest = [each for each in rest if each >= first + count]
    return entries
