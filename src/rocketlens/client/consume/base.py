"""What push and lite pull consumers have in common: a group, subscriptions, queues, offsets."""

import asyncio
import logging
import os
import re
import ssl
import time
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Final, Literal

from rocketlens import limits
from rocketlens.client.connect.cluster import Credentials
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume import timing
from rocketlens.client.consume.allocation import AllocateStrategy, allocate_averagely
from rocketlens.client.consume.begin import first_offset
from rocketlens.client.consume.consume_stats import ConsumeRates
from rocketlens.client.consume.member import GroupMember
from rocketlens.client.consume.offsets import (
    LocalOffsetFile,
    OffsetStore,
    OffsetTable,
    RemoteOffsets,
)
from rocketlens.client.consume.process_queue import CacheBounds
from rocketlens.client.consume.pulling import OwnedQueue, Puller, PullSettings
from rocketlens.client.consume.rebalance import Rebalance
from rocketlens.client.consume.received import as_sent
from rocketlens.client.consume.serving import Serving, body_of
from rocketlens.client.consume.subscription import MessageSelector, subscription_of
from rocketlens.client.mq_admin import ClusterClient
from rocketlens.client.send.message import check_topic
from rocketlens.client.send.unique_key import own_address
from rocketlens.errors import BadInput, RocketLensError, TopicNotFound, WrongUse
from rocketlens.model.arguments import check_int, check_text
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import RETRY_PREFIX, group_problem
from rocketlens.wire.bodies.consumer import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketlens.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketlens.wire.codes import version_name
from rocketlens.wire.command import OUR_VERSION

logger: Final = logging.getLogger("rocketlens.client")

_INSTANCE_NAME: Final = re.compile(r"[A-Za-z0-9_.#-]{1,200}")
BROADCASTING_INSTANCE: Final = "DEFAULT"
"""So that a broadcasting consumer finds its offsets again, as one in Java does."""

Begin = Literal["last", "first", "timestamp"]

BEGINS: Final = {
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "timestamp": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
}


class ConsumerClient(ClusterClient):
    """A member of a consumer group: what `PushConsumer` and `LitePullConsumer` are made of."""

    _consume_type: ConsumeType

    def __init__(
        self,
        name_servers: str | Iterable[str] | None,
        *,
        group: str,
        namespace: str,
        broadcasting: bool,
        begin: Begin,
        begin_timestamp_ms: int | None,
        pull_batch: int,
        bounds: CacheBounds,
        max_cached_bytes: int,
        allocate: AllocateStrategy | None,
        commits: bool,
        instance_name: str | None,
        offsets_directory: str | PathLike[str] | None,
        trace: bool | str,
        credentials: Credentials | None,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        connect_timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        check_range("pull_batch", pull_batch, limits.MAX_PULL_BATCH)
        self.begin: Final = begin_of(begin)
        check_group(group)
        super().__init__(
            name_servers,
            namespace=namespace,
            credentials=credentials,
            tls=tls,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            handlers=Serving(self).handlers(),
            clock=clock,
        )
        self.group: Final = self._full_topic(group)
        self._trace: Final = self._trace_writer(self.group, trace=trace)
        self._started_ms: Final = time.time_ns() // 1_000_000
        if begin_timestamp_ms is None:
            begin_timestamp_ms = self._started_ms - int(timing.BEGIN_BEFORE_S * 1000)
        self.begin_timestamp_ms: Final = check_int(begin_timestamp_ms, "begin_timestamp_ms")
        self._clock: Final = clock
        self._is_broadcasting: Final = broadcasting
        self._pull_batch: Final = pull_batch
        self._bounds: Final = bounds
        self._max_cached_bytes: Final = max_cached_bytes
        self.client_id: Final = self._make_client_id(instance_name)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._rates: dict[str, ConsumeRates] = {}
        self._offsets: Final = OffsetTable()
        self._store: Final = self._offset_store(offsets_directory)
        self._member: Final = GroupMember(
            self._cluster, self.client_id, self.group, self._described
        )
        self._rebalance: Final = self._make_rebalance(allocate or allocate_averagely)
        self._puller: Final = Puller(
            self._cluster,
            self._pull_settings(commits=commits and not self._is_broadcasting),
            self,
            offsets=self._offsets,
            rates=self._rates_of,
            clock=clock,
        )
        self._commit_turn: Final = asyncio.Lock()
        self._loops: Final[set[asyncio.Task[None]]] = set()
        self._leaving: Final[dict[MessageQueue, asyncio.Task[None]]] = {}
        self._is_started = False
        self._is_closing = False

    # What users call.

    @property
    def message_model(self) -> MessageModel:
        """Whether members share the messages, or each gets all of them."""
        return MessageModel.BROADCASTING if self._is_broadcasting else MessageModel.CLUSTERING

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are this consumer's now, in the order of broker name and queue id."""
        return tuple(sorted(map(self._short_queue, self._puller.owned)))

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Subscribe to a topic: all of it, or by tags or an SQL92 expression.

        All members of a group must subscribe to the same. A later call for a topic replaces what
        was subscribed to before.

        :raises BadInput: when topic or expression cannot be used.
        """
        check_topic(check_text(topic, "topic"))
        self._subscribe(self._full_topic(topic), expression)

    def unsubscribe(self, topic: str) -> None:
        """Subscribe to a topic no longer; its queues go to other members soon."""
        full_topic = self._full_topic(check_text(topic, "topic"))
        if self._subscriptions.pop(full_topic, None) is not None and self._is_started:
            for queue in self.owned_queues(full_topic):
                self._run(self.end_queue(queue))
            self._member.beat_soon()

    async def commit(self) -> None:
        """Store how far each queue is consumed; this happens every 5 s and when closing anyway.

        What cannot be stored is logged, and stored the next time.
        """
        async with self._commit_turn:
            await self._store.write(self._offsets.items())

    # What a consumer's parts call.

    def all_queues(self) -> list[MessageQueue]:
        """Return all queues that are pulled."""
        return list(self._puller.owned)

    def owned_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that are pulled."""
        return [queue for queue in self._puller.owned if queue.topic == topic]

    async def acquire(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Return those of the queues that can be begun now.

        One that was this consumer's a moment ago may have messages in a listener still.
        """
        return {queue for queue in queues if queue not in self._leaving}

    async def begin_queue(self, queue: MessageQueue) -> None:
        """Pull a queue from where the group came to.

        :raises RocketLensError: when that cannot be learnt.
        """
        self._offsets.forget(queue)
        offset = await first_offset(
            self._store, queue, self.begin, self.max_offset, self._offset_at_begin
        )
        if self._takes(queue) and not self._is_closing:
            self._puller.add(queue, offset)

    async def end_queue(self, queue: MessageQueue) -> None:
        """Pull a queue no longer, and commit how far it was consumed."""
        owned = self._puller.drop(queue)
        if owned is None:
            return
        offset = self._offsets.get(queue)
        self._offsets.forget(queue)
        task = self._run(self._leave(owned, offset))
        self._leaving[queue] = task
        task.add_done_callback(lambda _: self._leaving.pop(queue, None))
        if not self._awaits_listener:
            await asyncio.wait([task])

    def subscription_to(self, topic: str) -> SubscriptionData | None:
        """Return what the group subscribes to in a topic, by its full name."""
        return self._subscriptions.get(topic)

    async def moved(self, owned: OwnedQueue, queue_offset: int) -> None:
        """Record that consumption continues at an offset that the broker named."""
        self._offsets.update(owned.queue, queue_offset, increase_only=False)
        await self._store.write([(owned.queue, queue_offset)])

    async def greet(self, address: str) -> None:
        """Send a broker a heartbeat."""
        await self._member.greet(address)

    # What brokers ask.

    def members_changed(self) -> None:
        """Share out the queues anew."""
        self._rebalance.look_soon()

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from other offsets, those that an operator chose."""
        changed = []
        for queue, offset in offsets.items():
            owned = self._puller.owned.get(queue)
            if owned is not None and queue.topic == topic and offset >= 0 and not self._is_closing:
                logger.warning("group %s: %s is reset to offset %d", self.group, queue, offset)
                self._puller.restart(owned, offset)
                self._offsets.update(queue, offset, increase_only=False)
                changed.append((queue, offset))
        await self._store.write(changed)

    def offsets_of(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return how far each queue of a topic is consumed."""
        return self._offsets.of_topic(topic)

    async def running_info(self) -> ConsumerRunningInfo:
        """Return how this consumer does, as RocketMQ's tools show it."""
        queues = sorted(self._puller.owned.items())
        return ConsumerRunningInfo(
            properties=self._properties(),
            subscriptions=tuple(self._subscriptions.values()),
            queue_table={
                body_of(queue): owned.pq.described(self._offsets.get(queue) or 0)
                for queue, owned in queues
            },
            status_table={
                topic: self._rates_of(topic).status() for topic in sorted(self._subscriptions)
            },
        )

    async def consume_directly(
        self, message: MessageExt, broker_name: str
    ) -> ConsumeMessageDirectlyResult | None:
        """Let the listener consume one message; None if there is no listener."""
        del message, broker_name
        return None

    # How it is done.

    def _offset_store(self, directory: str | PathLike[str] | None) -> OffsetStore:
        if self._is_broadcasting:
            return LocalOffsetFile(self.client_id, self.group, directory)
        return RemoteOffsets(self._cluster, self.group)

    def _make_rebalance(self, allocate: AllocateStrategy) -> Rebalance:
        return Rebalance(
            self._cluster,
            self._member,
            self,
            lambda: self._subscriptions,
            None if self._is_broadcasting else allocate,
        )

    @abstractmethod
    def _pull_settings(self, *, commits: bool) -> PullSettings:
        """Return how this consumer pulls."""

    @abstractmethod
    def received(self, owned: OwnedQueue, messages: list[MessageExt]) -> None:
        """Handle messages that were just put into the queue's ``pq``."""

    async def may_pull(self, owned: OwnedQueue) -> bool:
        """Return whether a queue may be pulled now."""
        del owned
        return True

    @property
    def _awaits_listener(self) -> bool:
        """Whether a queue is let go only when a listener has come to its end with it."""
        return False

    def _takes(self, queue: MessageQueue) -> bool:
        """Return whether a queue is still one that this consumer wants."""
        return queue.topic in self._subscriptions

    async def _release(self, owned: OwnedQueue) -> None:
        """Let a queue go that was dropped."""

    async def _leave(self, owned: OwnedQueue, offset: int | None) -> None:
        if offset is not None:
            await self._store.write([(owned.queue, offset)])
        await self._release(owned)

    async def _offset_at_begin(self, queue: MessageQueue) -> int:
        return await self.search_offset(queue, self.begin_timestamp_ms)

    def _subscribe(self, full_topic: str, expression: str | MessageSelector) -> None:
        version = time.time_ns() // 1_000_000
        before = self._subscriptions.get(full_topic)
        if before is not None:
            # Brokers take a newer version only, also if the clock went back meanwhile.
            version = max(version, before.sub_version + 1)
        self._subscriptions[full_topic] = subscription_of(full_topic, expression, version)
        if self._is_started:
            self._run(self._subscribed(full_topic))

    async def _subscribed(self, full_topic: str) -> None:
        await self._find_routes([full_topic])
        await self._member.beat()
        self._rebalance.look_soon()

    async def _find_routes(self, topics: Iterable[str]) -> None:
        """Look up the brokers.

        :raises RemotingError: when no name server answers.
        """
        for topic in topics:
            try:
                await self._cluster.route(topic)
            except TopicNotFound as error:
                logger.warning("group %s waits for it: %s", self.group, error)

    async def _start(self, loops: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Join the group; the loops run until the consumer is closed."""
        self._is_started = True
        await self._find_routes(self._named_topics())
        await self._member.beat()
        await self._rebalance.look()
        for loop in (self._member.run(), self._rebalance.run(), self._commit_again(), *loops):
            self._run(loop)

    def _named_topics(self) -> list[str]:
        """Return the topics that users named: the retry topic comes with the first heartbeat."""
        return [each for each in self._subscriptions if not each.startswith(RETRY_PREFIX)]

    async def _commit_again(self) -> None:
        while True:
            await asyncio.sleep(timing.COMMIT_S)
            await self.commit()

    def _run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._loops.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._loops.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, RocketLensError):
                logger.warning("group %s: %s", self.group, error)
            else:
                logger.error("group %s: a task ended", self.group, exc_info=error)

    async def _end_loops(self) -> None:
        loops = [each for each in self._loops if each not in self._leaving.values()]
        for task in loops:
            task.cancel()
        if loops:
            await asyncio.wait(loops, timeout=limits.MAX_STOP_ANSWERS_S)
        if self._leaving:
            await asyncio.wait(self._leaving.values(), timeout=limits.MAX_STOP_ANSWERS_S)

    async def _end_connections(self) -> None:
        if self._trace is not None:
            await self._trace.close()
        await super().close()

    def _check_open(self) -> None:
        if self._is_closing:
            raise WrongUse("this consumer is closed")

    def _described(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=self._consume_type,
            message_model=self.message_model,
            consume_from_where=self.begin,
            subscription_datas=tuple(self._subscriptions.values()),
        )

    def _rates_of(self, topic: str) -> ConsumeRates:
        rates = self._rates.get(topic)
        if rates is None:
            rates = self._rates[topic] = ConsumeRates(self._clock)
        return rates

    def _shown(self, message: MessageExt) -> MessageExt:
        return as_sent(message, self.group, self.namespace)

    def _short_queue(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=without_namespace(self.namespace, queue.topic))

    def _full_queue(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=self._full_topic(queue.topic))

    def _make_client_id(self, instance_name: str | None) -> str:
        if instance_name is None:
            instance_name = f"{os.getpid()}#{id(self)}"
            if self._is_broadcasting:
                instance_name = BROADCASTING_INSTANCE
        elif not _INSTANCE_NAME.fullmatch(instance_name):
            raise BadInput(f"instance_name {instance_name!r}: use letters, digits and _ . # -")
        return f"{own_address()}@{instance_name}"

    def _properties(self) -> dict[str, str]:
        """Return the settings that RocketMQ's tools show, under its names."""
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


def begin_of(begin: Begin) -> ConsumeFromWhere:
    """Return RocketMQ's word for where a group begins.

    :raises BadInput: when it is none of "last", "first" and "timestamp".
    """
    found = BEGINS.get(begin)
    if found is None:
        raise BadInput(f"begin {begin!r}: expected one of {', '.join(BEGINS)}")
    return found


def check_group(group: str) -> None:
    """Refuse a group of a name that it cannot have.

    :raises BadInput: if it is one.
    """
    problem = group_problem(check_text(group, "group"))
    if problem is not None:
        raise BadInput(problem)


def check_range(name: str, value: int, maximum: int) -> None:
    """Refuse what is not a number from 1 to ``maximum``.

    :raises BadInput: when it is not.
    """
    if not 1 <= check_int(value, name) <= maximum:
        raise BadInput(f"{name} {value}: expected 1 to {maximum}")
