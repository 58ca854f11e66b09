"""Inspection by tools: topics, entries of a queue, the configuration.

All topics (21), system topics (305), entries of a consume queue (321), configuration (26). A change
of the configuration (25) is refused: any client that can connect could decide where files are
written. Expired files can be deleted at once (306). Counts by name (315) are not kept; the response
is RocketMQ's own for a topic without recent messages. Source: ``AdminBrokerProcessor``.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.broker.tables.config_table import TableVersion
from rocketlens.broker.tables.topics import topic_table
from rocketlens.formats import java_properties
from rocketlens.model.rocketmq import SYSTEM_TOPICS
from rocketlens.model.text import json_dialect
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.large_answers import Estimate
from rocketlens.net.pace import ANSWER_THREAD, Pace, in_thread
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.wire.bodies.clients import ConsumeQueueAnswer, ConsumeQueueData
from rocketlens.wire.bodies.tables import TopicList
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.groups import (
    GET_BROKER_CONFIG,
    QUERY_CONSUME_QUEUE,
    VIEW_BROKER_STATS_DATA,
    GetBrokerConfigResponse,
)
from rocketlens.wire.declare import write_body

MAX_QUEUE_ENTRIES_ANSWERED: Final = 10_000
"""Entries of a queue in one answer (321). RocketMQ: no limit."""
_ENTRIES_READ: Final = 500
_TOPIC_BYTES: Final = 100
"""Minimum bytes of a topic in the response with all, without its name, which occurs twice."""


class InspectionProcessor:
    """Answers requests of tools about topics, queues and configuration (see the codes above)."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        self._version: Final = TableVersion(core.clock())

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: self.topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.QUERY_CONSUME_QUEUE: self.queue,
            RequestCode.GET_BROKER_CONFIG: self.configuration,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_configuration,
            RequestCode.VIEW_BROKER_STATS_DATA: self.count,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean,
        }

    async def topics(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Return the configuration of all topics that may be seen, and the table's version."""
        topics = self.core.topics.table.topics
        estimate = Estimate("ask for one topic at a time (351)")
        estimate.add(_TOPIC_BYTES, len(topics))
        estimate.add(2 * sum(map(len, topics)))
        async with self.core.large_answers.turn(channel, estimate):
            access = self.core.access
            is_shown = None if access is None else access.seen_by(command, channel)
            table_of = topic_table(self.core.topics.table, is_shown=is_shown)
            body = await in_thread(lambda: write_body(table_of()), ANSWER_THREAD, owner=channel)
            return Response(body=body)

    def system_topics(self, _: RemotingCommand, __: Channel) -> Response:
        """Return the topics that clients may not create, change or delete."""
        config = self.core.config
        names = SYSTEM_TOPICS | {config.brokerName, config.brokerClusterName}
        return Response(body=write_body(TopicList(topic_list=tuple(sorted(names)))))

    def configuration(self, _: RemotingCommand, __: Channel) -> Response:
        """Return the configuration in effect, a line for each key."""
        values = self.core.settings.properties_in_effect(self.core.store.store_host.port)
        version = GetBrokerConfigResponse(version=json_dialect.dumps(self._version.encode()))
        return Response(
            ext_fields=GET_BROKER_CONFIG.response.encode(version),
            body=java_properties.dumps_unescaped(values).encode(),
        )

    def update_configuration(self, _: RemotingCommand, __: Channel) -> Response:
        """Refuse to change the configuration."""
        remark = "the configuration cannot be updated from afar: change the broker's file"
        return Response(ResponseCode.NO_PERMISSION, remark=remark)

    def count(self, command: RemotingCommand, _: Channel) -> Response:
        """Return RocketMQ's error for a count that is not kept."""
        request = VIEW_BROKER_STATS_DATA.request.decode(command.ext_fields)
        remark = f"The stats <{request.stats_name[:300]}> <{request.stats_key[:300]}> not exist"
        return Response(ResponseCode.SYSTEM_ERROR, remark=remark)

    async def clean(self, _: RemotingCommand, __: Channel) -> Response | None:
        """Delete expired files now, not at the next round, and queue files without messages.

        Any client that can connect can request this: a full disk alone is not a reason to delete.
        """
        if self.core.store.clean(may_force=False):
            self.core.search.segments_changed()
        while self.core.store.clean_queues():  # noqa: ASYNC110 - it does the work
            await asyncio.sleep(0)
        return Response()

    async def queue(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Return entries of a queue, and the subscription of a group to its topic."""
        request = QUERY_CONSUME_QUEUE.request.decode(command.ext_fields)
        store, name = self.core.store, f"{request.queue_id}@{request.topic[:300]}"
        queue = store.queues.get(request.topic, request.queue_id)
        if queue is None:
            return Response(ResponseCode.SYSTEM_ERROR, remark=f"{name} is not exist!")
        low = store.queues.min_offset(request.topic, request.queue_id)
        if not low <= request.index < queue.next_offset:
            return Response(remark=f"Index {request.index} of {name} is not exist!")
        subscription, missing = None, None
        if request.consumer_group is not None:
            group = self.core.clients.consumers.get(request.consumer_group)
            subscription = group.subscriptions.get(request.topic) if group else None
            if subscription is None:
                missing = f"{request.consumer_group[:300]}@{request.topic} is not online!"
        entries = await _entries(
            queue, request.index, min(request.count, MAX_QUEUE_ENTRIES_ANSWERED)
        )
        answer = ConsumeQueueAnswer(
            subscription=subscription,
            filter_data=missing,
            entries=entries,
            max_offset=queue.next_offset,
            min_offset=low,
        )
        body = await in_thread(lambda: write_body(answer), ANSWER_THREAD, owner=channel)
        return Response(body=body)


async def _entries(queue: QueueWriter, offset: int, count: int) -> tuple[ConsumeQueueData, ...]:
    stop = offset + count
    rows: list[ConsumeQueueData] = []
    pace = Pace()
    while offset < stop:
        entries = queue.read(offset, min(stop - offset, _ENTRIES_READ))
        if not entries:
            break
        rows += [
            ConsumeQueueData(
                physical_offset=entry.physical_offset,
                store_size=entry.store_size,
                tags_code=entry.tags_code,
            )
            for entry in entries
        ]
        offset += len(entries)
        await pace.turn()
    return tuple(rows)
