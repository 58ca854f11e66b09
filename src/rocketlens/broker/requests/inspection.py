"""Inspection by tools and slaves: topics, entries of a queue, the configuration, offsets.

All topics (21), system topics (305), entries of a consume queue (321), configuration (26). Expired
files can be deleted at once (306). A change of the configuration (25) is refused: any client that
can connect could change the paths of files. Statistics by name (315) do not exist; the response is
RocketMQ's for a topic without recent messages.

Slaves copy, besides the log, topics (21) and groups (201) in the form of tools, and

====  ============================  ===========================================================
code  name                          body
====  ============================  ===========================================================
43    GET_ALL_CONSUMER_OFFSET       as ``config/consumerOffset.json``
45    GET_ALL_DELAY_OFFSET          as ``config/delayOffset.json``
60    GET_TIMER_CHECK_POINT         the first 56 bytes of ``config/timercheck``
61    GET_TIMER_METRICS             a table without entries: RocketLens counts no timers by topic
402   GET_ALL_MESSAGE_REQUEST_MODE  a table without entries: all consumers pull
====  ============================  ===========================================================

The last three belong to RocketMQ 5. Sources: ``AdminBrokerProcessor``, ``SlaveSynchronize``.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.broker.requests.answers import Handlers, system_error
from rocketlens.broker.tables.topics import topic_table
from rocketlens.formats import java_properties
from rocketlens.model.rocketmq import RETRY_PREFIX, SYSTEM_TOPICS
from rocketlens.model.text import json_dialect
from rocketlens.net.channel import Channel, Response
from rocketlens.net.pace import ANSWER_THREAD, Pace, in_thread
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.wire.bodies.clients import ConsumeQueueAnswer, ConsumeQueueData
from rocketlens.wire.bodies.tables import DataVersion, TopicList
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import groups as commands
from rocketlens.wire.declare import members_of, write_body, write_object

MAX_QUEUE_ENTRIES_ANSWERED: Final = 10_000
"""Entries of a queue in one response (321). RocketMQ: no limit."""
_ENTRIES_READ: Final = 500
_NAME_BYTES: Final = 40
_OFFSET_BYTES: Final = 24
_TOPIC_BYTES: Final = 100
"""Minimum bytes of a topic in the response with all, without its name, which occurs twice."""


async def topics(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response | None:
    topics = core.topics.table.entries
    least_bytes = _TOPIC_BYTES * len(topics) + 2 * sum(map(len, topics))
    advice = "ask for one topic at a time (351)"
    async with core.large_answers.turn(channel, least_bytes, advice):
        access = core.access
        is_shown = None if access is None else access.seen_by(command, channel)
        table_of = topic_table(core.topics.table, is_shown=is_shown)
        body = await in_thread(lambda: write_body(table_of()), ANSWER_THREAD, owner=channel)
        return Response(body=body)


def system_topics(core: BrokerCore, _: RemotingCommand, __: Channel) -> Response:
    config = core.config
    names = SYSTEM_TOPICS | {config.brokerName, config.brokerClusterName}
    return Response(body=write_body(TopicList(topic_list=tuple(sorted(names)))))


def configuration(core: BrokerCore, _: RemotingCommand, __: Channel) -> Response:
    values = core.settings.properties_in_effect(core.store.store_host.port)
    version = commands.GetBrokerConfigResponse(
        version=write_object(DataVersion(timestamp_ms=core.stats.started_ms))
    )
    return Response(
        ext_fields=commands.GET_BROKER_CONFIG.response.encode(version),
        body=java_properties.dumps_unescaped(values).encode(),
    )


def update_configuration(_: BrokerCore, __: RemotingCommand, ___: Channel) -> Response:
    remark = "the configuration cannot be changed remotely: edit the broker's file"
    return Response(ResponseCode.NO_PERMISSION, remark=remark)


def count(_: BrokerCore, command: RemotingCommand, __: Channel) -> Response:
    """Return RocketMQ's error for a count that does not exist."""
    request = commands.VIEW_BROKER_STATS_DATA.request.decode(command.ext_fields)
    return system_error(
        f"The stats <{request.stats_name[:300]}> <{request.stats_key[:300]}> not exist"
    )


async def clean(core: BrokerCore, _: RemotingCommand, __: Channel) -> Response | None:
    """Delete expired files now, and queue files without messages.

    Any client that can connect can request this, so a full disk alone is not a reason to delete.
    """
    if core.store.clean(may_force=False):
        core.search.refresh_readers()
    while core.store.clean_queues():  # noqa: ASYNC110 - it does the work
        await asyncio.sleep(0)
    return Response()


async def queue(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response | None:
    request = commands.QUERY_CONSUME_QUEUE.request.decode(command.ext_fields)
    store, name = core.store, f"{request.queue_id}@{request.topic[:300]}"
    queue = store.queues.get(request.topic, request.queue_id)
    if queue is None:
        return system_error(f"{name} is not exist!")
    low = store.queues.min_offset(request.topic, request.queue_id)
    if not low <= request.index < queue.next_offset:
        return Response(remark=f"Index {request.index} of {name} is not exist!")
    subscription, missing = None, None
    if request.consumer_group is not None:
        group = core.clients.consumers.get(request.consumer_group)
        subscription = group.subscriptions.get(request.topic) if group else None
        if subscription is None:
            missing = f"{request.consumer_group[:300]}@{request.topic} is not online!"
    entries = await _entries(queue, request.index, min(request.count, MAX_QUEUE_ENTRIES_ANSWERED))
    answer = ConsumeQueueAnswer(
        subscription=subscription,
        filter_data=missing,
        entries=entries,
        max_offset=queue.next_offset,
        min_offset=low,
    )
    return Response(body=await in_thread(lambda: write_body(answer), ANSWER_THREAD, owner=channel))


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


async def consumer_offsets(
    core: BrokerCore, command: RemotingCommand, channel: Channel
) -> Response | None:
    offsets, access = core.offsets, core.access
    least_bytes, pace = 0, Pace()
    for name, queues in list(offsets.table.items()):
        least_bytes += _NAME_BYTES + len(name) + _OFFSET_BYTES * len(queues)
        await pace.turn()
    async with core.large_answers.turn(channel, least_bytes, "ask for one group at a time"):
        is_shown = None if access is None else _sees_both(access.seen_by(command, channel))
        value = offsets.value()

        def encode() -> bytes:
            if is_shown is not None:
                shown = {name: of for name, of in value["offsetTable"].items() if is_shown(name)}
                value["offsetTable"] = shown
            return json_dialect.dumps(value).encode()

        return Response(body=await in_thread(encode, ANSWER_THREAD, owner=channel))


def delay_offsets(core: BrokerCore, _: RemotingCommand, __: Channel) -> Response:
    """Return the offset up to which each delay level is delivered.

    A slave can have the offset before the delivered message. If this broker then ends, the slave
    lacks that message, as in RocketMQ.
    """
    return _json(core.delay_offsets.value())


def timers(core: BrokerCore, _: RemotingCommand, __: Channel) -> Response:
    return Response(body=core.timers.progress.checkpoint().encode_for_slave())


def timer_metrics(core: BrokerCore, _: RemotingCommand, __: Channel) -> Response:
    version = members_of(DataVersion(timestamp_ms=core.stats.started_ms))
    return _json({"dataVersion": version, "timingCount": {}})


def request_modes(_: BrokerCore, __: RemotingCommand, ___: Channel) -> Response:
    return _json({"messageRequestModeMap": {}})


def _sees_both(is_seen: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return a predicate for ``topic@group``: True if the client can see both."""

    def is_shown(name: str) -> bool:
        topic, _, group = name.partition("@")
        return is_seen(topic) and is_seen(RETRY_PREFIX + group)

    return is_shown


def _json(value: object) -> Response:
    return Response(body=json_dialect.dumps(value).encode())


HANDLERS: Final[Handlers] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: topics,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: system_topics,
    RequestCode.QUERY_CONSUME_QUEUE: queue,
    RequestCode.GET_BROKER_CONFIG: configuration,
    RequestCode.UPDATE_BROKER_CONFIG: update_configuration,
    RequestCode.VIEW_BROKER_STATS_DATA: count,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: clean,
    RequestCode.GET_ALL_CONSUMER_OFFSET: consumer_offsets,
    RequestCode.GET_ALL_DELAY_OFFSET: delay_offsets,
    RequestCode.GET_TIMER_CHECK_POINT: timers,
    RequestCode.GET_TIMER_METRICS: timer_metrics,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: request_modes,
}
