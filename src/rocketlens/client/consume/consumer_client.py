"""The base of push and lite pull consumers: a group, subscriptions, queues, offsets."""

import asyncio
import logging
import os
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from rocketlens.client.cluster_client import ClusterClient
from rocketlens.client.connect.connection_settings import ConnectionSettings, arguments_of
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume import timing
from rocketlens.client.consume.consume_service import ConsumeService
from rocketlens.client.consume.consumer_settings import (
    BEGINS,
    ConsumerSettings,
    MessageSelector,
    subscription_of,
)
from rocketlens.client.consume.group_offsets import LocalOffsetFile, RemoteOffsets
from rocketlens.client.consume.membership import GroupMember, QueueShare
from rocketlens.client.consume.pulling import OwnedQueue, Puller, PullStyle
from rocketlens.client.consume.serving import Serving
from rocketlens.client.consume.session import GroupSession, TaskSet
from rocketlens.client.send.producer import Producer
from rocketlens.client.send.trace import TRACE_GROUP, trace_writer
from rocketlens.client.send.unique_key import own_address
from rocketlens.errors import TopicNotFound, WrongUse
from rocketlens.model.arguments import check_text
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import RETRY_PREFIX, check_topic
from rocketlens.wire.bodies import clients as bodies
from rocketlens.wire.codes import version_name
from rocketlens.wire.command import OUR_VERSION

logger: Final = logging.getLogger("rocketlens.client")

BROADCASTING_INSTANCE: Final = "DEFAULT"
"""A fixed instance name, so that a broadcasting consumer finds its offsets again, as in Java."""


class ConsumerClient(ClusterClient):
    """A member of a consumer group; the base of `PushConsumer` and `LitePullConsumer`."""

    _consume_type: bodies.ConsumeType

    def __init__(self, settings: ConsumerSettings) -> None:
        handlers = Serving(self).handlers()
        super().__init__(**arguments_of(settings, ConnectionSettings), handlers=handlers)
        self.group: Final = self._full_topic(settings.group)
        self.begin: Final = BEGINS[settings.begin]
        self._started_ms: Final = time.time_ns() // 1_000_000
        begin_ms = settings.begin_timestamp_ms
        if begin_ms is None:
            begin_ms = self._started_ms - int(timing.BEGIN_BEFORE_S * 1000)
        self.begin_timestamp_ms: Final = begin_ms
        self.client_id: Final = _client_id(settings, str(id(self)))
        self._common: Final = settings
        self._session: Final = GroupSession(
            cluster=self._cluster,
            settings=settings,
            group=self.group,
            client_id=self.client_id,
            store=(
                LocalOffsetFile(self.client_id, self.group, settings.offsets_directory)
                if settings.broadcasting
                else RemoteOffsets(self._cluster, self.group)
            ),
            trace=trace_writer(
                self.group,
                lambda: Producer(self._cluster.name_servers, group=TRACE_GROUP, **self._connection),
                trace=settings.trace,
                namespace=self.namespace,
            ),
        )
        self._trace: Final = self._session.trace
        self._subscriptions: Final = self._session.subscriptions
        self._offsets: Final = self._session.offsets
        self._store: Final = self._session.store
        self._member: Final = GroupMember(self._session, self._heartbeat_data)
        self._queues: QueueShare | None = None
        """The queues of this consumer; None before its start."""
        self._commit_turn: Final = asyncio.Lock()
        self._tasks: Final = TaskSet(self.group)
        self._is_closing = False

    @property
    def message_model(self) -> bodies.MessageModel:
        """CLUSTERING if members share the messages, BROADCASTING if each gets all of them."""
        if self._common.broadcasting:
            return bodies.MessageModel.BROADCASTING
        return bodies.MessageModel.CLUSTERING

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer has now, in the order of broker name and queue id."""
        return tuple(sorted(map(self._session.queue_for_user, self._owned)))

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Subscribe to a topic, to all messages or by tags or an SQL92 expression.

        All members of a group must have the same subscriptions. A later call replaces the topic's
        subscription.

        :raises BadInput: if the topic or expression is not valid.
        """
        check_topic(check_text(topic, "topic"))
        self._subscribe(self._full_topic(topic), expression)

    def unsubscribe(self, topic: str) -> None:
        """Remove the subscription to a topic; other members soon get its queues."""
        full_topic = self._full_topic(check_text(topic, "topic"))
        if self._subscriptions.pop(full_topic, None) is not None and self._queues is not None:
            for queue in self._owned:
                if queue.topic == full_topic:
                    self._tasks.run(self._queues.end(queue))
            self._member.heartbeat_soon()

    async def commit(self) -> None:
        """Store the consumed offset of each queue. This also happens every 5 s and on close.

        A failure is logged, and the offset is stored next time.
        """
        async with self._commit_turn:
            await self._store.write(self._offsets.items())

    # Called for requests of brokers.

    def rebalance_soon(self) -> None:
        """Rebalance the queues soon."""
        if self._queues is not None:
            self._queues.rebalance_soon()

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at the offsets that an operator chose."""
        if self._queues is not None and not self._is_closing:
            await self._queues.reset(topic, offsets)

    def offsets_of(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the consumed offset of each queue of a topic."""
        return self._offsets.of_topic(topic)

    async def running_info(self) -> bodies.ConsumerRunningInfo:
        """Return the state of this consumer for RocketMQ's tools."""
        queues = sorted(self._owned.items())
        return bodies.ConsumerRunningInfo(
            properties=self._properties(),
            subscriptions=tuple(self._subscriptions.values()),
            queue_table={
                queue: owned.pq.snapshot(self._offsets.get(queue) or 0) for queue, owned in queues
            },
            status_table={
                topic: self._session.rates(topic).status() for topic in sorted(self._subscriptions)
            },
        )

    async def consume_directly(
        self, message: MessageExt, broker_name: str
    ) -> bodies.ConsumeMessageDirectlyResult | None:
        """Let the listener consume one message; return None if there is no listener."""
        del message, broker_name
        return None

    @property
    def _owned(self) -> Mapping[MessageQueue, OwnedQueue]:
        return {} if self._queues is None else self._queues.puller.owned

    @property
    def _assigned(self) -> frozenset[MessageQueue] | None:
        """The queues that the program assigned; None if it subscribes."""
        return None

    def _is_wanted(self, queue: MessageQueue) -> bool:
        return not self._is_closing and queue.topic in self._subscriptions

    async def _first_offset(self, queue: MessageQueue) -> int:
        """Return the stored offset, or the one in the table of `group_offsets`.

        :raises RocketLensError: if a broker or file cannot be read; the queue is tried again later.
        """
        stored = await self._store.read(queue)
        if stored is not None and stored >= 0:
            return stored
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if self.begin is bodies.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return 0
        if self.begin is bodies.ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and not is_retry:
            return await self.search_offset(queue, self.begin_timestamp_ms)
        if self.begin is not bodies.ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and is_retry:
            return 0
        return await self.max_offset(queue)

    def _subscribe(self, full_topic: str, expression: str | MessageSelector) -> None:
        version = time.time_ns() // 1_000_000
        before = self._subscriptions.get(full_topic)
        if before is not None:
            # Brokers accept only a newer version, so the clock may not go back.
            version = max(version, before.sub_version + 1)
        self._subscriptions[full_topic] = subscription_of(full_topic, expression, version)
        if self._queues is not None:
            self._tasks.run(self._join_topics([full_topic]))

    async def _join_topics(self, topics: Iterable[str]) -> None:
        await self._find_routes(topics)
        await self._member.send_heartbeats()
        self.rebalance_soon()

    async def _find_routes(self, topics: Iterable[str]) -> None:
        for topic in topics:
            try:
                await self._cluster.route(topic)
            except TopicNotFound as error:
                logger.warning(
                    "group %s: waiting for a topic that does not exist yet: %s", self.group, error
                )

    async def _start(
        self,
        service: ConsumeService,
        style: PullStyle,
        loops: Sequence[Coroutine[Any, Any, None]] = (),
    ) -> None:
        """Join the group. ``service`` gets its messages; ``loops`` run until close."""
        puller = Puller(self._session, style, service, self._member.send_heartbeat)
        self._queues = queues = QueueShare(
            *(self._session, self._member, puller, service),
            first_offset=self._first_offset,
            is_wanted=self._is_wanted,
            assigned=lambda: self._assigned,
        )
        await self._find_routes(self._named_topics())
        await self._member.send_heartbeats()
        await queues.rebalance()
        for loop in (self._member.run(), queues.run(), self._commit_periodically(), *loops):
            self._tasks.run(loop)

    def _named_topics(self) -> list[str]:
        """Return the topics that the user named. The first heartbeat creates the retry topic."""
        return [each for each in self._subscriptions if not each.startswith(RETRY_PREFIX)]

    async def _commit_periodically(self) -> None:
        while True:
            await asyncio.sleep(timing.COMMIT_S)
            await self.commit()

    async def _stop_pulling(self) -> None:
        await self._tasks.cancel()
        if self._queues is not None:
            await self._queues.stop()
            await self._queues.puller.stop()

    async def _end_connections(self) -> None:
        if self._trace is not None:
            await self._trace.close()
        await super().close()

    def _check_startable(self) -> None:
        self._check_open()
        if self._queues is not None:
            raise WrongUse("this consumer was started already")

    def _check_open(self) -> None:
        if self._is_closing:
            raise WrongUse("this consumer is closed")

    def _heartbeat_data(self) -> bodies.ConsumerData:
        return bodies.ConsumerData(
            group_name=self.group,
            consume_type=self._consume_type,
            message_model=self.message_model,
            consume_from_where=self.begin,
            subscription_datas=tuple(self._subscriptions.values()),
        )

    def _full_queue(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=self._full_topic(queue.topic))

    def _properties(self) -> dict[str, str]:
        """Return the settings for RocketMQ's tools, under RocketMQ's names."""
        return {
            "PROP_CLIENT_VERSION": version_name(OUR_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "PROP_CONSUME_TYPE": self._consume_type.name,
            "PROP_NAMESERVER_ADDR": ";".join(self._cluster.name_servers),
            "consumerGroup": self.group,
            "consumeFromWhere": self.begin.name,
            "instanceName": self.client_id.partition("@")[2],
            "messageModel": self.message_model.name,
            "namespace": self.namespace,
            "namesrvAddr": ";".join(self._cluster.name_servers),
        }


def _client_id(settings: ConsumerSettings, number: str) -> str:
    default = BROADCASTING_INSTANCE if settings.broadcasting else f"{os.getpid()}#{number}"
    return f"{own_address()}@{settings.instance_name or default}"
