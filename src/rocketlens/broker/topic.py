"""Topics: create or change (17), delete (215), statistics (202), configuration (351).

Creating, changing and deleting are answered when that is written and the name servers know.
Source: ``AdminBrokerProcessor``.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.large_answers import Estimate, row_bytes
from rocketlens.broker.offset import store_time
from rocketlens.broker.registration import wire_topic
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.broker.topic_attributes import change
from rocketlens.model.rocketmq import is_system_topic, topic_problem
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.pace import Pace, in_thread
from rocketlens.wire.bodies.stats import MessageQueueBody, TopicOffset, TopicStatsTable
from rocketlens.wire.bodies.topic import TopicFilterType
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import topic as commands
from rocketlens.wire.commands.topic import CreateTopicRequest
from rocketlens.wire.declare import write_body

Pending = Response | Awaitable[Response | None]


class TopicProcessor:
    """Keeps topics for operators and tools."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_TOPIC_STATS_INFO: self.statistics,
            RequestCode.GET_TOPIC_CONFIG: self.configuration,
        }

    def create(self, command: RemotingCommand, _: Channel) -> Pending:
        """Make a topic, or change it."""
        asked = commands.UPDATE_AND_CREATE_TOPIC.request.decode(command.ext_fields)
        problem = _problem(asked)
        if problem is not None:
            return Response(ResponseCode.INVALID_PARAMETER, remark=problem)
        known = self.core.topics.get(asked.topic)
        attributes = change(known.attributes if known else None, asked.attributes or "")
        made = StoredTopic(
            asked.topic,
            asked.read_queue_nums,
            asked.write_queue_nums,
            asked.perm,
            asked.topic_filter_type,
            asked.topic_sys_flag or 0,
            asked.order,
            attributes,
            dict(known.others) if known else {},
        )
        return _when_told(self.core.topics.put(made))

    def delete(self, command: RemotingCommand, _: Channel) -> Pending:
        """Forget a topic, its messages and how far groups came in it.

        Queries by key and id find its messages as long as the log has them, as in RocketMQ.
        """
        topic = commands.DELETE_TOPIC_IN_BROKER.request.decode(command.ext_fields).topic
        if not topic.strip():
            words = "The specified topic is blank."
            return Response(ResponseCode.INVALID_PARAMETER, remark=words)
        if is_system_topic(topic):
            words = f"The topic[{topic[:300]}] is conflict with system topic."
            return Response(ResponseCode.INVALID_PARAMETER, remark=words)
        return self._delete(topic)

    async def _delete(self, topic: str) -> Response:
        core = self.core
        # First: a broker that is killed in between must not bring the messages back later.
        if core.store.deleted.mark(topic) and not await core.saver.save(core.store.deleted):
            words = f"topic[{topic}] is not deleted: the disk cannot be written"
            return Response(ResponseCode.SYSTEM_ERROR, remark=words)
        told = core.topics.remove(topic)
        core.offsets.remove_topic(topic)
        try:
            aside = core.store.deleted.remove_queues(topic)
        except OSError as error:
            words = f"topic[{topic}] is deleted, but not its queues: {error.strerror}"
            return Response(ResponseCode.SYSTEM_ERROR, remark=words)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, core.disk.remove_tree, aside)
        await core.saver.save(core.offsets)
        if told is not None:
            await asyncio.shield(told)
        return Response()

    async def statistics(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Return the offsets of all queues of a topic, and when each got its last message."""
        asked = commands.GET_TOPIC_STATS_INFO.request.decode(command.ext_fields)
        config = self.core.topics.get(asked.topic)
        if config is None:
            words = f"topic[{asked.topic[:300]}] not exist"
            return Response(ResponseCode.TOPIC_NOT_EXIST, remark=words)
        broker_name, pace = self.core.config.brokerName, Pace()
        queue_count = max(config.write_queue_count, config.read_queue_count)
        first = MessageQueueBody(topic=asked.topic, broker_name=broker_name, queue_id=0)
        one = TopicStatsTable(offset_table={first: TopicOffset()})
        estimate = Estimate("a topic of so many queues cannot be told of")
        estimate.add(row_bytes(one, TopicStatsTable()), queue_count)
        async with self.core.large_answers.turn(channel, estimate):
            table: dict[MessageQueueBody, TopicOffset] = {}
            for queue_id in range(queue_count):
                queue = MessageQueueBody(
                    topic=asked.topic, broker_name=broker_name, queue_id=queue_id
                )
                table[queue] = self._offsets(asked.topic, queue_id)
                await pace.turn()
            answer = TopicStatsTable(offset_table=table, topic_put_tps=0.0)
            return Response(body=await in_thread(lambda: write_body(answer)))

    def _offsets(self, topic: str, queue_id: int) -> TopicOffset:
        store = self.core.store
        high = store.queues.max_offset(topic, queue_id)
        last_ms = store_time(self.core, topic, queue_id, high - 1)
        return TopicOffset(
            min_offset=store.queues.min_offset(topic, queue_id),
            max_offset=high,
            last_update_timestamp_ms=max(last_ms, 0),
        )

    def configuration(self, command: RemotingCommand, _: Channel) -> Response:
        """Return a topic's configuration."""
        asked = commands.GET_TOPIC_CONFIG.request.decode(command.ext_fields)
        config = self.core.topics.get(asked.topic)
        if config is None:
            words = f"No topic in this broker. topic: {asked.topic[:300]}"
            return Response(ResponseCode.TOPIC_NOT_EXIST, remark=words)
        return Response(body=write_body(wire_topic(config)))


def _problem(asked: CreateTopicRequest) -> str | None:
    """Return why a topic cannot be made like this; None when it can."""
    problem = topic_problem(asked.topic)
    if problem is not None:
        return problem
    if is_system_topic(asked.topic):
        return f"The topic[{asked.topic}] is conflict with system topic."
    for name, count in (
        ("readQueueNums", asked.read_queue_nums),
        ("writeQueueNums", asked.write_queue_nums),
    ):
        if not 0 <= count <= limits.MAX_TOPIC_QUEUES:
            return f"{name} {count}: give 0 to {limits.MAX_TOPIC_QUEUES}"
    if not 0 <= asked.perm <= 7:
        return f"perm {asked.perm}: give 0 to 7"
    if asked.topic_filter_type not in TopicFilterType.__members__:
        return f"topicFilterType {asked.topic_filter_type[:60]!r}: SINGLE_TAG or MULTI_TAG"
    return None


def _when_told(told: asyncio.Future[None] | None) -> Pending:
    """Answer when the name servers know."""
    if told is None:
        return Response()
    return _after(told)


async def _after(told: asyncio.Future[None]) -> Response | None:
    await asyncio.shield(told)
    return Response()
