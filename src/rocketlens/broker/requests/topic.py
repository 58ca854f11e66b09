"""Topics: create or change (17), delete (215), statistics (202), configuration (351).

A change is answered when it is written and the name servers know it.
Source: ``AdminBrokerProcessor``.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.life.registration import wire_topic
from rocketlens.broker.requests.large_answers import Estimate, row_bytes
from rocketlens.broker.requests.offset import store_time
from rocketlens.broker.requests.topic_attributes import change
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.model.rocketmq import is_system_topic, topic_problem
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.pace import ANSWER_THREAD, Pace, WorkThreads, in_thread
from rocketlens.wire.bodies.stats import MessageQueueBody, TopicOffset, TopicStatsTable
from rocketlens.wire.bodies.topic import TopicFilterType
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import topic as commands
from rocketlens.wire.commands.topic import CreateTopicRequest
from rocketlens.wire.declare import write_body

_REMOVAL_THREAD: Final = WorkThreads(1, "queue-removal")
"""Deletes queue files; also for a connection that is closed, and only other deletions wait."""

Pending = Response | Awaitable[Response | None]


class TopicProcessor:
    """Creates, changes, deletes and returns topics (see the codes above)."""

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
        """Create a topic, or change it."""
        request = commands.UPDATE_AND_CREATE_TOPIC.request.decode(command.ext_fields)
        problem = _problem(request)
        if problem is not None:
            return Response(ResponseCode.INVALID_PARAMETER, remark=problem)
        previous = self.core.topics.get(request.topic)
        attributes = change(previous.attributes if previous else None, request.attributes or "")
        config = StoredTopic(
            request.topic,
            request.read_queue_nums,
            request.write_queue_nums,
            request.perm,
            request.topic_filter_type,
            request.topic_sys_flag or 0,
            request.order,
            attributes,
            dict(previous.others) if previous else {},
        )
        announced = self.core.topics.put(config)
        self.core.held_pulls.topic_changed(request.topic)
        return _when_announced(announced)

    def delete(self, command: RemotingCommand, _: Channel) -> Pending:
        """Delete a topic, its queues and the offsets of groups in it.

        As in RocketMQ, queries by key and id find its messages as long as the log has them.
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
        announced = core.topics.remove(topic)
        core.held_pulls.topic_changed(topic)
        core.offsets.remove_topic(topic)
        try:
            aside = core.store.deleted.remove_queues(topic)
        except OSError as error:
            words = f"topic[{topic}] is deleted, but not its queues: {error.strerror}"
            return Response(ResponseCode.SYSTEM_ERROR, remark=words)
        await in_thread(lambda: core.disk.remove_tree(aside), _REMOVAL_THREAD)
        await core.saver.save(core.offsets)
        if announced is not None:
            await asyncio.shield(announced)
        return Response()

    async def statistics(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Return the offsets of all queues of a topic, and the time of each one's last message."""
        request = commands.GET_TOPIC_STATS_INFO.request.decode(command.ext_fields)
        config = self.core.topics.get(request.topic)
        if config is None:
            words = f"topic[{request.topic[:300]}] not exist"
            return Response(ResponseCode.TOPIC_NOT_EXIST, remark=words)
        broker_name, pace = self.core.config.brokerName, Pace()
        queue_count = max(config.write_queue_count, config.read_queue_count)
        first = MessageQueueBody(topic=request.topic, broker_name=broker_name, queue_id=0)
        one = TopicStatsTable(offset_table={first: TopicOffset()})
        estimate = Estimate("the topic has too many queues for one response")
        estimate.add(row_bytes(one, TopicStatsTable()), queue_count)
        async with self.core.large_answers.turn(channel, estimate):
            table: dict[MessageQueueBody, TopicOffset] = {}
            for queue_id in range(queue_count):
                queue = MessageQueueBody(
                    topic=request.topic, broker_name=broker_name, queue_id=queue_id
                )
                table[queue] = self._offsets(request.topic, queue_id)
                await pace.turn()
            answer = TopicStatsTable(offset_table=table, topic_put_tps=0.0)
            body = await in_thread(lambda: write_body(answer), ANSWER_THREAD, owner=channel)
            return Response(body=body)

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
        request = commands.GET_TOPIC_CONFIG.request.decode(command.ext_fields)
        config = self.core.topics.get(request.topic)
        if config is None:
            words = f"No topic in this broker. topic: {request.topic[:300]}"
            return Response(ResponseCode.TOPIC_NOT_EXIST, remark=words)
        return Response(body=write_body(wire_topic(config)))


def _problem(request: CreateTopicRequest) -> str | None:
    """Return why a topic cannot be created so; None if it can."""
    problem = topic_problem(request.topic)
    if problem is not None:
        return problem
    if is_system_topic(request.topic):
        return f"The topic[{request.topic}] is conflict with system topic."
    for name, count in (
        ("readQueueNums", request.read_queue_nums),
        ("writeQueueNums", request.write_queue_nums),
    ):
        if not 0 <= count <= limits.MAX_TOPIC_QUEUES:
            return f"{name} {count}: give 0 to {limits.MAX_TOPIC_QUEUES}"
    if not 0 <= request.perm <= 7:
        return f"perm {request.perm}: give 0 to 7"
    if request.topic_filter_type not in TopicFilterType.__members__:
        return f"topicFilterType {request.topic_filter_type[:60]!r}: SINGLE_TAG or MULTI_TAG"
    return None


def _when_announced(announced: asyncio.Future[None] | None) -> Pending:
    """Return the response once the name servers know a change."""
    if announced is None:
        return Response()
    return _after(announced)


async def _after(announced: asyncio.Future[None]) -> Response | None:
    await asyncio.shield(announced)
    return Response()
