"""Clients: heartbeat (34), unregister (35), members and progress of groups for tools.

Members of groups (38, 203, 204, 328), consumer progress (208, 317), groups of a topic (300).

A consumer's first heartbeat creates its group and its ``%RETRY%`` topic, and is answered when the
name servers know that topic: tools find a group's brokers by its route. Sources:
``ClientManageProcessor``, ``ConsumerManageProcessor``, ``AdminBrokerProcessor``.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.delivery.pull_filter import PullRefused, parse_filter
from rocketlens.broker.requests.offset import store_time
from rocketlens.broker.tables.clients import Client
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.model.rocketmq import RETRY_PREFIX, UNIT_SUB_FLAG, topic_problem
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.large_answers import Estimate, row_bytes
from rocketlens.net.pace import ANSWER_THREAD, LARGE_BODY_BYTES, Pace, in_thread
from rocketlens.wire.bodies.clients import (
    CheckClientRequest,
    ClientConnection,
    ConsumerConnection,
    ConsumerData,
    ConsumerIdList,
    GroupList,
    HeartbeatData,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from rocketlens.wire.bodies.tables import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
)
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.groups import (
    GET_BROKER_CONSUME_STATS,
    GET_CONSUME_STATS,
    GET_CONSUMER_CONNECTION_LIST,
    GET_CONSUMER_LIST_BY_GROUP,
    GET_PRODUCER_CONNECTION_LIST,
    HEART_BEAT,
    QUERY_TOPIC_CONSUME_BY_WHO,
    UNREGISTER_CLIENT,
    HeartbeatResponse,
)
from rocketlens.wire.declare import read_body, write_body

MAX_HEARTBEAT_GROUPS: Final = 1_000
"""Groups in one heartbeat. RocketMQ: no limit."""
Pending = Response | Awaitable[Response | None]

GROUPS_PER_TURN: Final = 20
"""Groups that are registered in one piece of work on the event loop."""


_PRODUCER_BYTES: Final = 60
"""Bytes of a producer in the response with all producers at least, without its id."""


class Registration:
    """The result of a heartbeat so far."""

    def __init__(self, heartbeat: HeartbeatData) -> None:
        self.fingerprint: Final = heartbeat.heartbeat_fingerprint
        # Without a fingerprint it is not the short form, whatever it says.
        self.without_sub: Final = heartbeat.without_sub and self.fingerprint != 0
        self.is_sub_change = self.fingerprint == 0
        """Whether the client is to send its subscriptions again."""
        self.announced: Final[list[asyncio.Future[None]]] = []
        """End when the name servers know new retry topics."""

    def response(self) -> Pending:
        """Return the response, or what gives it once the retry topics are known."""
        fields = HEART_BEAT.response.encode(
            HeartbeatResponse(is_support_heart_beat_v2=True, is_sub_change=self.is_sub_change)
        )
        response = Response(ext_fields=fields)
        return _after(self.announced, response) if self.announced else response


class ClientProcessor:
    """Registers clients, and answers tools about them (see the codes above)."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_ids,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.producers,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
        }

    def heartbeat(self, command: RemotingCommand, channel: Channel) -> Pending:
        """Register all groups of a client."""
        if self.core.access is not None:
            self.core.access.remember_producer(command, channel)
        if len(command.body) > LARGE_BODY_BYTES:
            return self._large_heartbeat(command, channel)
        heartbeat = read_body(HeartbeatData, command.body, limits.MAX_CLIENT_JSON_BODY_BYTES)
        if len(heartbeat.producer_datas) + len(heartbeat.consumer_datas) > GROUPS_PER_TURN:
            return self._register_many(heartbeat, command, channel)
        self.core.clients.admit(heartbeat, channel)
        client = Client(heartbeat.client_id, command.language, command.version)
        registration = Registration(heartbeat)
        for consumer in heartbeat.consumer_datas:
            self._add_consumer(consumer, channel, client, registration)
        for producer in heartbeat.producer_datas:
            self.core.clients.add_producer(producer.group_name, channel, client)
        return registration.response()

    async def _large_heartbeat(self, command: RemotingCommand, channel: Channel) -> Response | None:
        limit = limits.MAX_CLIENT_JSON_BODY_BYTES
        heartbeat = await in_thread(
            lambda: read_body(HeartbeatData, command.body, limit), owner=channel
        )
        return await self._register_many(heartbeat, command, channel)

    async def _register_many(
        self, heartbeat: HeartbeatData, command: RemotingCommand, channel: Channel
    ) -> Response | None:
        """Register many groups, with turns for others; stop if the connection is closed."""
        groups = len(heartbeat.producer_datas) + len(heartbeat.consumer_datas)
        if groups > MAX_HEARTBEAT_GROUPS:
            remark = f"{groups} groups in one heartbeat, {MAX_HEARTBEAT_GROUPS} allowed"
            return Response(ResponseCode.SYSTEM_ERROR, remark=remark)
        if not channel.is_open:
            return None
        self.core.clients.admit(heartbeat, channel)
        client = Client(heartbeat.client_id, command.language, command.version)
        registration = Registration(heartbeat)
        pace = Pace()
        for consumer in heartbeat.consumer_datas:
            if channel.is_open:
                self._add_consumer(consumer, channel, client, registration)
            await pace.turn()
        for producer in heartbeat.producer_datas:
            if channel.is_open:
                self.core.clients.add_producer(producer.group_name, channel, client)
            await pace.turn()
        response = registration.response()
        return response if isinstance(response, Response) else await response

    def _add_consumer(
        self, consumer: ConsumerData, channel: Channel, client: Client, registration: "Registration"
    ) -> None:
        """Add a consumer, and its retry topic."""
        config = self.core.groups.find(consumer.group_name)
        if config is None:
            return
        self._create_retry_topic(consumer, int(config.get("retryQueueNums", 1)))
        added = self.core.clients.add_consumer(
            consumer,
            channel,
            client,
            fingerprint=registration.fingerprint,
            without_sub=registration.without_sub,
        )
        registration.is_sub_change |= added.is_incomplete
        if added.is_other:
            self.core.held_pulls.group_changed(consumer.group_name)
        announcement = self.core.topics.pending.get(RETRY_PREFIX + consumer.group_name)
        if announcement is not None:
            registration.announced.append(announcement)

    def _create_retry_topic(self, consumer: ConsumerData, queue_count: int) -> None:
        topic = RETRY_PREFIX + consumer.group_name
        if topic_problem(topic) is None and self.core.topics.has_room_for(topic):
            sys_flag = UNIT_SUB_FLAG if consumer.unit_mode else 0
            self.core.topics.create_for_group(topic, queue_count, sys_flag)

    def unregister(self, command: RemotingCommand, channel: Channel) -> Response:
        """Unregister a client's producer or consumer."""
        request = UNREGISTER_CLIENT.request.decode(command.ext_fields)
        if request.producer_group is not None:
            self.core.clients.remove_producer(request.producer_group, channel)
        if request.consumer_group is not None:
            self.core.clients.remove_consumer(request.consumer_group, channel)
        return Response()

    def check(self, command: RemotingCommand, _: Channel) -> Response:
        """Check a subscription; consumers ask this before they start, unless it is by tags."""
        request = read_body(CheckClientRequest, command.body, limits.MAX_CLIENT_JSON_BODY_BYTES)
        subscription = request.subscription
        if subscription is not None:
            try:
                parse_filter(
                    subscription.expression_type,
                    subscription.sub_string,
                    with_sql92=self.core.config.enablePropertyFilter,
                )
            except PullRefused as refusal:
                return Response(refusal.code, remark=refusal.remark)
        return Response()

    def consumer_ids(self, command: RemotingCommand, _: Channel) -> Response:
        """Return the client ids of a group."""
        request = GET_CONSUMER_LIST_BY_GROUP.request.decode(command.ext_fields)
        group = self.core.clients.consumers.get(request.consumer_group)
        if group is None:
            remark = f"no consumer for this group, {request.consumer_group[:300]}"
            return Response(ResponseCode.SYSTEM_ERROR, remark=remark)
        ids = tuple(client.client_id for client in group.members.values())
        return Response(body=write_body(ConsumerIdList(consumer_ids=ids)))

    def connections(self, command: RemotingCommand, _: Channel) -> Response:
        """Return the clients of a group, and their subscriptions."""
        request = GET_CONSUMER_CONNECTION_LIST.request.decode(command.ext_fields)
        group = self.core.clients.consumers.get(request.consumer_group)
        if group is None:
            remark = f"the consumer group[{request.consumer_group[:300]}] not online"
            return Response(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        connection = ConsumerConnection(
            connections=_connections(group.members),
            subscription_table=dict(group.subscriptions),
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return Response(body=write_body(connection))

    async def consume_stats(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Return a group's progress in each queue of one topic, or of all it has offsets in."""
        request = GET_CONSUME_STATS.request.decode(command.ext_fields)
        group = request.consumer_group
        names = [request.topic] if request.topic else self.core.offsets.topics_of(group)
        online = self.core.clients.consumers.get(group)
        estimate, pace = Estimate("ask for one topic at a time"), Pace()
        topics: list[StoredTopic] = []
        for name in names:
            config = self.core.topics.get(name)
            if config is None or (online and not online.may_follow(name)):
                continue
            topics.append(config)
            estimate.add(self._row_bytes(name), config.read_queue_count)
            await pace.turn()
        async with self.core.large_answers.turn(channel, estimate):
            table: dict[MessageQueue, OffsetWrapper] = {}
            for config in topics:
                table |= await self._progress_in(group, config, config.read_queue_count, pace)
            answer = ConsumeStats(offset_table=table, consume_tps=0.0)
            return Response(body=await in_thread(lambda: write_body(answer), ANSWER_THREAD))

    async def broker_consume_stats(
        self, command: RemotingCommand, channel: Channel
    ) -> Response | None:
        """Return the progress of every group in every topic it has offsets in."""
        request = GET_BROKER_CONSUME_STATS.request.decode(command.ext_fields)
        names: dict[str, list[str]] = {group: [] for group in self.core.groups.table.groups}
        pace = Pace()
        for topic, group in self.core.offsets.pairs():
            if group in names:
                names[group].append(topic)
            await pace.turn()
        estimate = Estimate("ask for one group and topic at a time (208)")
        topics: dict[str, list[StoredTopic]] = {}
        for group, of_group in names.items():
            topics[group] = self._consumed_topics(group, of_group, is_order=bool(request.is_order))
            for config in topics[group]:
                estimate.add(self._row_bytes(config.topic), config.write_queue_count)
                await pace.turn()
        async with self.core.large_answers.turn(channel, estimate):
            return await self._all_progress(topics, pace)

    def _consumed_topics(
        self, group: str, names: list[str], *, is_order: bool
    ) -> list[StoredTopic]:
        """Return the topics for which a group's progress is returned."""
        online = self.core.clients.consumers.get(group)
        topics = []
        for name in names:
            config = self.core.topics.get(name)
            if (
                config is not None
                and (config.order or not is_order)
                and not (online and not online.may_follow(name))
            ):
                topics.append(config)
        return topics

    async def _all_progress(
        self, topics: Mapping[str, list[StoredTopic]], pace: Pace
    ) -> Response | None:
        rows: list[dict[str, tuple[ConsumeStats, ...]]] = []
        behind = 0
        for group, consumed in topics.items():
            stats: list[ConsumeStats] = []
            for config in consumed:
                table = await self._progress_in(group, config, config.write_queue_count, pace)
                behind += sum(each.broker_offset - each.consumer_offset for each in table.values())
                stats.append(ConsumeStats(offset_table=table))
            rows.append({group: tuple(stats)})
            await pace.turn()
        answer = ConsumeStatsList(
            consume_stats_list=tuple(rows), broker_addr=self.core.address, total_diff=behind
        )
        return Response(body=await in_thread(lambda: write_body(answer), ANSWER_THREAD))

    def _row_bytes(self, topic: str) -> int:
        """Return the minimum bytes of one queue of a topic in a response with progress."""
        queue = MessageQueue(topic=topic, broker_name=self.core.config.brokerName, queue_id=0)
        return row_bytes(ConsumeStats(offset_table={queue: OffsetWrapper()}), ConsumeStats())

    def producer_connections(self, command: RemotingCommand, _: Channel) -> Response:
        """Return the clients of a producer group."""
        request = GET_PRODUCER_CONNECTION_LIST.request.decode(command.ext_fields)
        members = self.core.clients.producers.get(request.producer_group)
        if members is None:
            remark = f"the producer group[{request.producer_group[:300]}] not exist"
            return Response(ResponseCode.SYSTEM_ERROR, remark=remark)
        return Response(body=write_body(ProducerConnection(connections=_connections(members))))

    async def producers(self, _: RemotingCommand, channel: Channel) -> Response | None:
        """Return the clients of all producer groups."""
        now_ms = self.core.clock()
        estimate, pace = Estimate("ask for one group at a time (204)"), Pace()
        by_group: dict[str, dict[Channel, Client]] = {}
        for group, members in list(self.core.clients.producers.items()):
            by_group[group] = dict(members)
            names_bytes = sum(len(client.client_id) for client in members.values())
            estimate.add(_PRODUCER_BYTES, len(members))
            estimate.add(len(group) + names_bytes)
            await pace.turn()
        async with self.core.large_answers.turn(channel, estimate):
            body = await in_thread(lambda: write_body(_producers(by_group, now_ms)), ANSWER_THREAD)
            return Response(body=body)

    async def _progress_in(
        self, group: str, topic: StoredTopic, queue_count: int, pace: Pace
    ) -> dict[MessageQueue, OffsetWrapper]:
        broker_name = self.core.config.brokerName
        progress: dict[MessageQueue, OffsetWrapper] = {}
        for queue_id in range(queue_count):
            queue = MessageQueue(topic=topic.topic, broker_name=broker_name, queue_id=queue_id)
            progress[queue] = self._progress(group, topic.topic, queue_id)
            await pace.turn()
        return progress

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        offset = max(self.core.offsets.get(group, topic, queue_id) or 0, 0)
        return OffsetWrapper(
            broker_offset=self.core.store.queues.max_offset(topic, queue_id),
            consumer_offset=offset,
            pull_offset=offset,
            last_timestamp_ms=max(store_time(self.core, topic, queue_id, offset - 1), 0),
        )

    def groups_of_topic(self, command: RemotingCommand, _: Channel) -> Response:
        """Return the groups that subscribe to a topic or have offsets in it."""
        request = QUERY_TOPIC_CONSUME_BY_WHO.request.decode(command.ext_fields)
        groups = dict.fromkeys(self.core.clients.groups_of(request.topic))
        groups.update(dict.fromkeys(self.core.offsets.groups_of(request.topic)))
        return Response(body=write_body(GroupList(groups=tuple(groups))))


def _producers(by_group: Mapping[str, Mapping[Channel, Client]], now_ms: int) -> ProducerTable:
    groups = {
        group: tuple(
            ProducerInfo(
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
    return ProducerTable(groups=groups)


def _connections(members: Mapping[Channel, Client]) -> tuple[ClientConnection, ...]:
    return tuple(
        ClientConnection(
            client_id=client.client_id,
            client_addr=channel.address,
            language=client.language.name,
            version=client.version,
        )
        for channel, client in members.items()
    )


async def _after(announced: list[asyncio.Future[None]], response: Response) -> Response | None:
    for each in announced:
        await asyncio.shield(each)
    return response
