"""What brokers of RocketMQ 5 pull from other logs than the commit log, and attributes of topics.

Messages of a topic with ``cleanup.policy=COMPACTION``, and those in tiered storage, are pulled from
a log of their own, with the physical offsets of that log: an offset message id made of one leads to
another message, or to none. Consume queues lead to the commit log, as those of any topic, so
offsets are taken from there; of what is not in the commit log any more there is none.
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
    """Return the configuration that a broker has of a topic, at most 30 s old.

    It is empty if the broker has none, or is of RocketMQ 4, which does not know the request.

    :raises BrokerError: if the broker refuses to answer.
    :raises RemotingError: if there is no response.
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
    """Return the mappings that brokers have of a static topic, and which failed to answer."""
    answers = await cluster.ask_brokers(
        route.brokers.values(), lambda _, address: topic_config(cluster, route.topic, address)
    )
    configs = [each.value for each in answers if each.value is not None]
    mappings = [each.mapping_detail for each in configs if each.mapping_detail is not None]
    failures = tuple(each.coverage for each in answers if each.coverage.is_failure)
    return StaticTopic(mappings), failures


async def topic_attributes(cluster: ClusterCalls, topic: str, address: str) -> Mapping[str, str]:
    """Return the attributes that a broker has for a topic; errors as `topic_config`."""
    return (await topic_config(cluster, topic, address)).attributes or {}


async def is_compacted(cluster: ClusterCalls, topic: str, address: str) -> bool:
    """Return whether a broker compacts a topic; False if it does not tell.

    :raises RemotingError: if there is no response.
    """
    try:
        attributes = await topic_attributes(cluster, topic, address)
    except BrokerError:
        return False
    return attributes.get(CLEANUP_POLICY) == COMPACTION


async def broker_config(cluster: ClusterCalls, address: str) -> Mapping[str, str]:
    """Return the configuration of a broker, at most 30 s old; empty if it does not tell.

    :raises RemotingError: if there is no response.
    """

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
    """Return pulled records with the physical offsets of the commit log, if the broker compacts the
    topic or has tiered storage; and how many there are of a compacted topic, 0 of any other.

    That is NOT_IN_LOG for a record that the queue does not lead to, or if the broker does not tell.

    :raises RemotingError: if there is no response.
    """
    if not await _has_other_logs(cluster, queue.topic, address):
        return body, 0
    content = bytearray(body)
    pulled = dict(_pulled(content))
    entries = await queue_entries(cluster, address, queue, pulled)
    for queue_offset, start in pulled.items():
        entry = entries.get(queue_offset)
        is_there = entry is not None and entry.store_size == TOTAL_SIZE.unpack_from(body, start)[0]
        physical_offset = entry.physical_offset if entry is not None and is_there else NOT_IN_LOG
        at = start + _PHYSICAL_OFFSET_AT
        content[at : at + 8] = physical_offset.to_bytes(8, "big", signed=True)
    is_whole = not await is_compacted(cluster, queue.topic, address)
    return bytes(content), 0 if is_whole else len(pulled)


def _pulled(content: bytearray) -> Iterator[tuple[int, int]]:
    """Yield the queue offset of each record, and where the record starts."""
    start = 0
    while len(content) - start >= HEADS[0].size:
        yield _QUEUE_OFFSET.unpack_from(content, start)[0], start
        # What is not a record is reported by who decodes it.
        start += max(TOTAL_SIZE.unpack_from(content, start)[0], HEADS[0].size)


async def queue_entries(
    cluster: ClusterCalls, address: str, queue: MessageQueue, queue_offsets: Iterable[int]
) -> dict[int, ConsumeQueueData]:
    """Return the entries that a consume queue has at some offsets.

    :raises RemotingError: if there is no response.
    """
    entries: dict[int, ConsumeQueueData] = {}
    rest = sorted(queue_offsets)
    while rest:
        first = rest[0]
        count = min(rest[-1] + 1 - first, limits.MAX_PULL_MESSAGES)
        answer = await broker_calls.consume_queue(cluster, address, queue, first, count)
        entries.update(enumerate(answer.entries or () if answer else (), first))
        rest = [each for each in rest if each >= first + count]
    return entries
