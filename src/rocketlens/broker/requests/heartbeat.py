"""Clients: heartbeat (34), unregister (35), locks of queues (41, 42), and queries of tools.

The queries are members of groups (38, 203, 204, 328), consumer progress (208, 317), and groups of a
topic (300).

A consumer's first heartbeat creates its group and its retry topic, and is answered when the name
servers know that topic, by whose route tools find the brokers of a group.

Orderly consumers lock queues that they read. A queue that this broker does not have is not locked;
the broker name in the request is ignored. Sources: ``ClientManageProcessor``,
``ConsumerManageProcessor``, ``AdminBrokerProcessor``.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.delivery.large_answers import row_bytes
from rocketlens.broker.delivery.pull_filter import PullRefused, parse_filter
from rocketlens.broker.requests.answers import Handlers, system_error
from rocketlens.broker.requests.offset import store_time
from rocketlens.broker.tables.clients import Client
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.errors import BadInput
from rocketlens.model.rocketmq import RETRY_PREFIX, UNIT_SUB_FLAG, topic_problem
from rocketlens.net.channel import Channel, Response
from rocketlens.net.pace import ANSWER_THREAD, Pace, in_thread, parsed
from rocketlens.wire.bodies import clients as bodies
from rocketlens.wire.bodies.tables import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
)
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import groups as commands
from rocketlens.wire.declare import read_body, write_body

MAX_HEARTBEAT_GROUPS: Final = 1_000
"""Groups in one heartbeat. RocketMQ: no limit."""
T = TypeVar("T")
_PRODUCER_BYTES: Final = 60
"""Minimum bytes of a producer in the response with all producers, without its id."""


async def heartbeat(
    core: BrokerCore, command: RemotingCommand, channel: Channel
) -> Response | None:
    """Register all groups of a client, in pieces; stop if its connection is closed."""
    if core.access is not None:
        core.access.remember_producer(command, channel)
    beat = await _read(bodies.HeartbeatData, command, channel)
    groups = len(beat.producer_datas) + len(beat.consumer_datas)
    if groups > MAX_HEARTBEAT_GROUPS:
        return system_error(f"{groups} groups in one heartbeat, {MAX_HEARTBEAT_GROUPS} allowed")
    if not channel.is_open:
        return None
    core.clients.admit(beat, channel)
    client, pace = Client(beat.client_id, command.language, command.version), Pace()
    wants_subscriptions = beat.heartbeat_fingerprint == 0
    # These end when the name servers know new retry topics.
    announced: list[asyncio.Future[None]] = []
    for consumer in beat.consumer_datas:
        wants_subscriptions |= _add_consumer(core, consumer, channel, client, beat)
        topic = core.topics.pending.get(RETRY_PREFIX + consumer.group_name)
        announced += [] if topic is None else [topic]
        await pace.turn()
        if not channel.is_open:
            return None
    for producer in beat.producer_datas:
        core.clients.add_producer(producer.group_name, channel, client)
        await pace.turn()
    await asyncio.gather(*map(asyncio.shield, announced))
    fields = commands.HEART_BEAT.response.encode(
        commands.HeartbeatResponse(is_support_heart_beat_v2=True, is_sub_change=wants_subscriptions)
    )
    return Response(ext_fields=fields)


def _add_consumer(
    core: BrokerCore,
    consumer: bodies.ConsumerData,
    channel: Channel,
    client: Client,
    beat: bodies.HeartbeatData,
) -> bool:
    """Add a consumer, and its retry topic; return True if it must send its subscriptions again."""
    config = core.groups.find(consumer.group_name)
    if config is None:
        return False
    topic = RETRY_PREFIX + consumer.group_name
    if topic_problem(topic) is None and core.topics.has_room_for(topic):
        sys_flag = UNIT_SUB_FLAG if consumer.unit_mode else 0
        core.topics.create_for_group(topic, int(config.get("retryQueueNums", 1)), sys_flag)
    is_incomplete, is_resubscribed = core.clients.add_consumer(
        consumer,
        channel,
        client,
        fingerprint=beat.heartbeat_fingerprint,
        # A heartbeat without a fingerprint has its subscriptions, whatever the flag says.
        without_sub=beat.without_sub and beat.heartbeat_fingerprint != 0,
    )
    if is_resubscribed:
        core.held_pulls.on_group_change(consumer.group_name)
    return is_incomplete


def unregister(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response:
    request = commands.UNREGISTER_CLIENT.request.decode(command.ext_fields)
    if request.producer_group is not None:
        core.clients.remove_producer(request.producer_group, channel)
    if request.consumer_group is not None:
        core.clients.remove_consumer(request.consumer_group, channel)
    return Response()


def check(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    """Check a subscription. Consumers request this before they start, except for tags."""
    request = read_body(bodies.CheckClientRequest, command.body, limits.MAX_CLIENT_JSON_BODY_BYTES)
    subscription = request.subscription
    if subscription is not None:
        try:
            parse_filter(
                subscription.expression_type,
                subscription.sub_string,
                with_sql92=core.config.enablePropertyFilter,
            )
        except PullRefused as refusal:
            return Response(refusal.code, remark=refusal.remark)
    return Response()


def consumer_ids(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.GET_CONSUMER_LIST_BY_GROUP.request.decode(command.ext_fields)
    group = core.clients.consumers.get(request.consumer_group)
    if group is None:
        return system_error(f"no consumer for this group, {request.consumer_group[:300]}")
    ids = tuple(client.client_id for client in group.members.values())
    return Response(body=write_body(bodies.ConsumerIdList(consumer_ids=ids)))


def connections(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.GET_CONSUMER_CONNECTION_LIST.request.decode(command.ext_fields)
    group = core.clients.consumers.get(request.consumer_group)
    if group is None:
        remark = f"the consumer group[{request.consumer_group[:300]}] not online"
        return Response(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
    connection = bodies.ConsumerConnection(
        connections=_connections(group.members),
        subscription_table=dict(group.subscriptions),
        consume_type=group.consume_type,
        message_model=group.message_model,
        consume_from_where=group.consume_from_where,
    )
    return Response(body=write_body(connection))


async def consume_stats(
    core: BrokerCore, command: RemotingCommand, channel: Channel
) -> Response | None:
    request = commands.GET_CONSUME_STATS.request.decode(command.ext_fields)
    group = request.consumer_group
    names = [request.topic] if request.topic else core.offsets.topics_of(group)
    least_bytes, pace = 0, Pace()
    topics = _consumed_topics(core, group, names, is_order=False)
    for config in topics:
        least_bytes += _row_bytes(core, config.topic) * config.read_queue_count
        await pace.turn()
    async with core.large_answers.turn(channel, least_bytes, "ask for one topic at a time"):
        table: dict[MessageQueue, OffsetWrapper] = {}
        for config in topics:
            table |= await _progress_in(core, group, config, config.read_queue_count, pace)
        answer = ConsumeStats(offset_table=table, consume_tps=0.0)
        return Response(body=await in_thread(lambda: write_body(answer), ANSWER_THREAD))


async def broker_consume_stats(
    core: BrokerCore, command: RemotingCommand, channel: Channel
) -> Response | None:
    request = commands.GET_BROKER_CONSUME_STATS.request.decode(command.ext_fields)
    names: dict[str, list[str]] = {group: [] for group in core.groups.table.entries}
    pace = Pace()
    for topic, group in core.offsets.pairs():
        if group in names:
            names[group].append(topic)
        await pace.turn()
    least_bytes = 0
    topics: dict[str, list[StoredTopic]] = {}
    for group, of_group in names.items():
        topics[group] = _consumed_topics(core, group, of_group, is_order=bool(request.is_order))
        for config in topics[group]:
            least_bytes += _row_bytes(core, config.topic) * config.write_queue_count
            await pace.turn()
    advice = "ask for one group and topic at a time (208)"
    async with core.large_answers.turn(channel, least_bytes, advice):
        return await _all_progress(core, topics, pace)


def _consumed_topics(
    core: BrokerCore, group: str, names: list[str], *, is_order: bool
) -> list[StoredTopic]:
    online = core.clients.consumers.get(group)
    topics = []
    for name in names:
        config = core.topics.get(name)
        if (
            config is not None
            and (config.order or not is_order)
            and not (online and not online.may_follow(name))
        ):
            topics.append(config)
    return topics


async def _all_progress(
    core: BrokerCore, topics: Mapping[str, list[StoredTopic]], pace: Pace
) -> Response | None:
    rows: list[dict[str, tuple[ConsumeStats, ...]]] = []
    behind = 0
    for group, consumed in topics.items():
        stats: list[ConsumeStats] = []
        for config in consumed:
            table = await _progress_in(core, group, config, config.write_queue_count, pace)
            behind += sum(each.broker_offset - each.consumer_offset for each in table.values())
            stats.append(ConsumeStats(offset_table=table))
        rows.append({group: tuple(stats)})
        await pace.turn()
    answer = ConsumeStatsList(
        consume_stats_list=tuple(rows), broker_addr=core.address, total_diff=behind
    )
    return Response(body=await in_thread(lambda: write_body(answer), ANSWER_THREAD))


def _row_bytes(core: BrokerCore, topic: str) -> int:
    """Return the minimum bytes of one queue of a topic in a response with progress."""
    queue = MessageQueue(topic=topic, broker_name=core.config.brokerName, queue_id=0)
    return row_bytes(ConsumeStats(offset_table={queue: OffsetWrapper()}), ConsumeStats())


def producer_connections(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.GET_PRODUCER_CONNECTION_LIST.request.decode(command.ext_fields)
    members = core.clients.producers.get(request.producer_group)
    if members is None:
        return system_error(f"the producer group[{request.producer_group[:300]}] not exist")
    return Response(body=write_body(bodies.ProducerConnection(connections=_connections(members))))


async def producers(core: BrokerCore, _: RemotingCommand, channel: Channel) -> Response | None:
    now_ms = core.clock()
    least_bytes, pace = 0, Pace()
    by_group: dict[str, dict[Channel, Client]] = {}
    for group, members in list(core.clients.producers.items()):
        by_group[group] = dict(members)
        names_bytes = sum(len(client.client_id) for client in members.values())
        least_bytes += _PRODUCER_BYTES * len(members) + len(group) + names_bytes
        await pace.turn()
    async with core.large_answers.turn(channel, least_bytes, "ask for one group at a time (204)"):
        body = await in_thread(lambda: write_body(_producers(by_group, now_ms)), ANSWER_THREAD)
        return Response(body=body)


async def _progress_in(
    core: BrokerCore, group: str, topic: StoredTopic, queue_count: int, pace: Pace
) -> dict[MessageQueue, OffsetWrapper]:
    name, broker_name = topic.topic, core.config.brokerName
    progress: dict[MessageQueue, OffsetWrapper] = {}
    for queue_id in range(queue_count):
        queue = MessageQueue(topic=name, broker_name=broker_name, queue_id=queue_id)
        offset = max(core.offsets.get(group, name, queue_id) or 0, 0)
        progress[queue] = OffsetWrapper(
            broker_offset=core.store.queues.max_offset(name, queue_id),
            consumer_offset=offset,
            pull_offset=offset,
            last_timestamp_ms=max(store_time(core, name, queue_id, offset - 1), 0),
        )
        await pace.turn()
    return progress


def groups_of_topic(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.QUERY_TOPIC_CONSUME_BY_WHO.request.decode(command.ext_fields)
    groups = dict.fromkeys(core.clients.groups_of(request.topic))
    groups.update(dict.fromkeys(core.offsets.groups_of(request.topic)))
    return Response(body=write_body(bodies.GroupList(groups=tuple(groups))))


def _producers(
    by_group: Mapping[str, Mapping[Channel, Client]], now_ms: int
) -> bodies.ProducerTable:
    groups = {
        group: tuple(
            bodies.ProducerInfo(
                client_id=client.client_id,
                remote_ip=channel.address,
                language=client.language.name,
                version=client.version,
                last_update_timestamp_ms=now_ms,
            )
            for channel, client in members.items()
        )
        for group, members in by_group.items()
    }
    return bodies.ProducerTable(groups=groups)


def _connections(members: Mapping[Channel, Client]) -> tuple[bodies.ClientConnection, ...]:
    return tuple(
        bodies.ClientConnection(
            client_id=client.client_id,
            client_addr=channel.address,
            language=client.language.name,
            version=client.version,
        )
        for channel, client in members.items()
    )


async def lock(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response:
    """Lock queues; return those of which the client holds the lock."""
    request = await _read_locks(command, channel)
    group, client_id = request.consumer_group, request.client_id
    locked = tuple(
        queue
        for queue in _local(core, request.queues)
        if core.queue_locks.lock(group, queue.topic, queue.queue_id, client_id)
    )
    return Response(body=write_body(bodies.LockBatchResponse(locked_queues=locked)))


async def unlock(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response:
    request = await _read_locks(command, channel)
    for queue in request.queues:
        core.queue_locks.unlock(
            request.consumer_group, queue.topic, queue.queue_id, request.client_id
        )
    return Response()


def _local(core: BrokerCore, queues: Iterable[MessageQueue]) -> Iterable[MessageQueue]:
    for queue in queues:
        topic = core.topics.get(queue.topic)
        if topic is not None and 0 <= queue.queue_id < topic.queue_count:
            yield queue


async def _read_locks(command: RemotingCommand, channel: Channel) -> bodies.LockBatchRequest:
    request = await _read(bodies.LockBatchRequest, command, channel)
    for name, text, limit in (
        ("consumerGroup", request.consumer_group, limits.MAX_GROUP_CHARACTERS),
        ("clientId", request.client_id, limits.MAX_CLIENT_ID_CHARACTERS),
    ):
        if len(text) > limit:
            raise BadInput(f"{name} has {len(text)} characters, {limit} are allowed")
    return request


async def _read(cls: type[T], command: RemotingCommand, channel: Channel) -> T:
    """Parse the body of a request; a large one in a thread."""
    body, limit = command.body, limits.MAX_CLIENT_JSON_BODY_BYTES
    return await parsed(lambda: read_body(cls, body, limit), body, channel)


HANDLERS: Final[Handlers] = {
    RequestCode.HEART_BEAT: heartbeat,
    RequestCode.UNREGISTER_CLIENT: unregister,
    RequestCode.CHECK_CLIENT_CONFIG: check,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: consumer_ids,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: connections,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: producer_connections,
    RequestCode.GET_ALL_PRODUCER_INFO: producers,
    RequestCode.GET_CONSUME_STATS: consume_stats,
    RequestCode.GET_BROKER_CONSUME_STATS: broker_consume_stats,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: groups_of_topic,
    RequestCode.LOCK_BATCH_MQ: lock,
    RequestCode.UNLOCK_BATCH_MQ: unlock,
}
