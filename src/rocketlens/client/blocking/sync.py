"""``Producer`` and ``MQAdmin`` for programs without an event loop; any threads may share one.

Each has a thread with an event loop of its own, in which the async one does the work.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, overload

from rocketlens import limits
from rocketlens.client import mq_admin
from rocketlens.client.admin.consume_directly import ConsumedDirectly
from rocketlens.client.admin.offset_reset import RollbackStats
from rocketlens.client.admin.track import MessageTrack
from rocketlens.client.blocking.sync_scan import SyncClusterMessages
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.mq_admin import ClusterClient
from rocketlens.client.search.cluster_source import ClusterSource
from rocketlens.client.search.tail import TopicTail
from rocketlens.client.send import producer, transaction
from rocketlens.client.send.message import Message
from rocketlens.client.send.request_reply import ReplyMessage
from rocketlens.client.send.send_result import SendResult
from rocketlens.errors import RocketLensError
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.group import GroupsAnswer, ProducersAnswer
from rocketlens.model.message import MessageExt
from rocketlens.model.status import BrokersAnswer, BrokerStatus, ClusterStatus
from rocketlens.model.topic import TopicsAnswer
from rocketlens.net.sync import LoopThread
from rocketlens.query.answer_builder import Findings
from rocketlens.query.options import meant_keyword
from rocketlens.query.request import FindRequest
from rocketlens.query.story.story import Story
from rocketlens.wire.bodies.consumer import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
)
from rocketlens.wire.bodies.stats import ConsumeStats
from rocketlens.wire.bodies.subscription_group import SubscriptionGroupConfig

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    from rocketlens.client.blocking.options import (
        AdminOptions,
        CreateTopicOptions,
        DeleteGroupOptions,
        FollowOptions,
        GroupBrokersOptions,
        ProducerOptions,
        ReadOptions,
        TransactionProducerOptions,
    )
    from rocketlens.query.options import FindOptions, StoryOptions

C = TypeVar("C", bound=ClusterClient)
T = TypeVar("T")


def takes_arguments_of(
    original: Callable[..., Any],
    passed_on_to: Callable[..., Any] | None = None,
    but_not: str = "",
) -> Callable[[T], T]:
    """Return a decorator: ``help()`` shows a blocking function with the arguments of an async one.

    ``passed_on_to`` gets those that ``original`` passes on, and not ``but_not``, which that sets.
    Type checkers know all of them by `rocketlens.client.blocking.options`.
    """

    def shown(function: T) -> T:
        own: Any = _checked(function)
        found = dict(inspect.signature(original).parameters)
        if passed_on_to is not None:
            found = dict(inspect.signature(passed_on_to).parameters) | found
            found.pop(but_not, None)
        kept = [each for each in found.values() if each.kind is not each.VAR_KEYWORD]
        signature = inspect.signature(own)
        own.__signature__ = signature.replace(parameters=kept)
        checked: T = own
        return checked

    return shown


def _checked(function: Any) -> Any:
    """Return a function that refuses keyword arguments that its signature lacks, under its name."""

    @functools.wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        known = inspect.signature(checked).parameters
        for name in options:
            if name not in known:
                said = f"{function.__qualname__}() has no argument {name!r}"
                raise TypeError(said + meant_keyword(name, known))
        return function(*arguments, **options)

    return checked


class SyncClient(Generic[C]):
    """The methods of `rocketlens.client.mq_admin.ClusterClient`, as blocking calls."""

    def __init__(self, make: Callable[[], C], *, starts: bool = True) -> None:
        self._thread: Final = LoopThread()
        self._is_closed = False
        try:
            self._client: Final = self._thread.run(_made(make, starts=starts))
        except BaseException:
            self._thread.close()
            raise
        self.source: Final = SourceInLoop(self._thread, self._client.source)
        """The source for `rocketlens.find`."""

    @overload
    def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...
    def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message: by its offset message id, or by either id of a topic."""
        if second is None:
            return self._thread.run(self._client.view_message(first))
        return self._thread.run(self._client.view_message(first, second))

    @takes_arguments_of(ClusterClient.find)
    def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        **options: "Unpack[FindOptions]",
    ) -> Answer:
        """Find messages by id, key, queue offset, time, content: see `MQAdmin.find`."""
        return self._thread.run(self._client.find(text, topic, **options))

    @takes_arguments_of(ClusterClient.story)
    def story(
        self,
        text: str,
        topic: str | Iterable[str] | None = None,
        **options: "Unpack[StoryOptions]",
    ) -> Story:
        """Return the story of one message; arguments as in `MQAdmin.story`."""
        return self._thread.run(self._client.story(text, topic, **options))

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime | str" = 0,
        end: "int | datetime | str" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a key or unique key: the newest ``max_num``."""
        return self._thread.run(self._client.query_message(topic, key, max_num, begin, end))

    def query_message_by_unique_key(
        self,
        topic: str,
        unique_key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime | str" = 0,
        end: "int | datetime | str" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a unique key, whatever their age."""
        return self._thread.run(
            self._client.query_message_by_unique_key(topic, unique_key, max_num, begin, end)
        )

    def forget_broker(self, broker_name: str) -> bool:
        """Remove a broker that is gone for good; return False if it is not remembered."""
        return self._call(lambda client: client.forget_broker(broker_name))

    def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that can be read."""
        return self._thread.run(self._client.message_queues(topic))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return about the offset of the first message in a queue stored at a time or later."""
        return self._thread.run(self._client.search_offset(queue, timestamp_ms))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue."""
        return self._thread.run(self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of a queue's next message."""
        return self._thread.run(self._client.max_offset(queue))

    def earliest_message_store_time(self, queue: MessageQueue) -> int:
        """Return the store time of a queue's oldest message; -1 if it is empty."""
        return self._thread.run(self._client.earliest_message_store_time(queue))

    @takes_arguments_of(ClusterClient.create_topic)
    def create_topic(
        self, topic: str, queue_nums: int = 8, **options: "Unpack[CreateTopicOptions]"
    ) -> None:
        """Create a topic, or change it; ``options`` as in `ClusterClient.create_topic`."""
        self._thread.run(self._client.create_topic(topic, queue_nums, **options))

    def _call(self, work: Callable[[C], T]) -> T:
        """Do what takes no time in the client's own thread."""

        async def call() -> T:
            return work(self._client)

        return self._thread.run(call())

    def close(self) -> None:
        """Close all connections and end the thread. Later calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.run(self._client.close())
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        """Return this client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


class SourceInLoop:
    """The source of a cluster for other event loops: it runs in its own."""

    def __init__(self, thread: LoopThread, source: ClusterSource) -> None:
        self._thread: Final = thread
        self.cluster_source: Final = source
        self.name: Final = source.name
        self.kind: Final = source.kind
        self.is_one_log: Final = source.is_one_log

    async def find(self, request: FindRequest, findings: Findings) -> None:
        """Add the messages that match."""
        await self.run(self.cluster_source.find(request, findings))

    async def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        """Add the topics that the cluster does not have."""
        await self.run(self.cluster_source.check_topics(names, findings))

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that belongs to the loop of the cluster."""
        return await asyncio.wrap_future(self._thread.submit(work))


class SyncMQAdmin(SyncClient[mq_admin.MQAdmin]):
    """`rocketlens.MQAdmin` with blocking calls; the same arguments, results and errors."""

    @takes_arguments_of(mq_admin.MQAdmin.__init__)
    def __init__(
        self, name_servers: str | Iterable[str] | None = None, **options: "Unpack[AdminOptions]"
    ) -> None:
        super().__init__(lambda: mq_admin.MQAdmin(name_servers, **options))

    def examine_consumer_connection_info(
        self, group: str, broker_addr: str | None = None
    ) -> ConsumerConnection:
        """Return the clients of a group that are online, and what they subscribe to."""
        work = self._client.examine_consumer_connection_info(group, broker_addr)
        return self._thread.run(work)

    def examine_producer_connection_info(self, group: str, topic: str) -> ProducerConnection:
        """Return the producers of a group that are connected to the brokers of a topic."""
        return self._thread.run(self._client.examine_producer_connection_info(group, topic))

    def get_consumer_running_info(
        self, group: str, client_id: str, *, jstack: bool = False
    ) -> ConsumerRunningInfo:
        """Return what a client of a group is doing."""
        work = self._client.get_consumer_running_info(group, client_id, jstack=jstack)
        return self._thread.run(work)

    def examine_consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return how far a group came in each queue."""
        return self._thread.run(self._client.examine_consume_stats(group, topic))

    def message_track_detail(self, message: MessageExt) -> tuple[MessageTrack, ...]:
        """Return what each consumer group of a message's topic did with it."""
        return self._thread.run(self._client.message_track_detail(message))

    def get_broker_config(self, broker_addr: str) -> dict[str, str]:
        """Return the configuration of a broker."""
        return self._thread.run(self._client.get_broker_config(broker_addr))

    def consume_message_directly(
        self, group: str, client_id: str | None, topic: str, msg_id: str
    ) -> ConsumedDirectly:
        """Let a client of a group, or the first that is online, consume a stored message."""
        work = self._client.consume_message_directly(group, client_id, topic, msg_id)
        return self._thread.run(work)

    def consume_message_directly_by_all(
        self, group: str, topic: str, msg_id: str
    ) -> dict[str, ConsumedDirectly | RocketLensError]:
        """Let every client of a group that is online consume a stored message."""
        return self._thread.run(self._client.consume_message_directly_by_all(group, topic, msg_id))

    def resend(self, message: MessageExt) -> SendResult:
        """Send a stored message again, as it was."""
        return self._thread.run(self._client.resend(message))

    def reset_offset_by_time(
        self, group: str, topic: str, time: "int | datetime | str", *, is_force: bool = True
    ) -> dict[MessageQueue, int]:
        """Move the running clients of a group to a time."""
        work = self._client.reset_offset_by_time(group, topic, time, is_force=is_force)
        return self._thread.run(work)

    def reset_offset_by_time_old(
        self, group: str, topic: str, time: "int | datetime | str", *, is_force: bool = True
    ) -> tuple[RollbackStats, ...]:
        """Write a group's offsets at a time to the brokers, for when it is not running."""
        work = self._client.reset_offset_by_time_old(group, topic, time, is_force=is_force)
        return self._thread.run(work)

    @takes_arguments_of(mq_admin.MQAdmin.create_and_update_subscription_group)
    def create_and_update_subscription_group(
        self, config: SubscriptionGroupConfig, **where: "Unpack[GroupBrokersOptions]"
    ) -> tuple[str, ...]:
        """Make a group, or change it as a whole; return the brokers."""
        work = self._client.create_and_update_subscription_group(config, **where)
        return self._thread.run(work)

    @takes_arguments_of(mq_admin.MQAdmin.delete_subscription_group)
    def delete_subscription_group(
        self, group: str, **options: "Unpack[DeleteGroupOptions]"
    ) -> tuple[str, ...]:
        """Delete a group; return the brokers."""
        return self._thread.run(self._client.delete_subscription_group(group, **options))

    def topics(self, topic: str | Iterable[str] | None = None) -> TopicsAnswer:
        """Return the topics of the cluster, or some of them, each with its queues."""
        return self._thread.run(self._client.topics(topic))

    def groups(self, group: str | None = None) -> GroupsAnswer:
        """Return all consumer groups of the cluster, or one."""
        return self._thread.run(self._client.groups(group))

    def producers(self) -> ProducersAnswer:
        """Return the producers that are connected to the cluster, by group."""
        return self._thread.run(self._client.producers())

    def brokers(self, *, on_answer: Callable[[BrokerStatus], None] | None = None) -> BrokersAnswer:
        """Return the brokers of the cluster, and how far each is behind."""
        return self._thread.run(self._client.brokers(on_answer=on_answer))

    def status(self) -> ClusterStatus:
        """Return the state of the cluster."""
        return self._thread.run(self._client.status())

    @takes_arguments_of(mq_admin.MQAdmin.tail)
    def tail(
        self, topic: str, newest: int | None = 10, **options: "Unpack[FollowOptions]"
    ) -> "SyncTopicTail":
        """Return an iterator over the newest messages of a topic; ``options`` as in `MQAdmin.tail`.

        ``on_event`` is called in the client's thread, and must not block.
        """
        tailed = self._call(lambda client: client.tail(topic, newest, **options))
        return SyncTopicTail(self._thread, tailed)

    @takes_arguments_of(mq_admin.MQAdmin.scan)
    def scan(
        self, topic: str | Iterable[str] | None = None, **options: "Unpack[ReadOptions]"
    ) -> "SyncClusterMessages":
        """Return an iterator over the messages of topics; ``options`` as in `MQAdmin.scan`.

        It is also a table of Arrow: ``to_reader()``, ``to_arrow()``, ``to_pandas()``,
        ``to_polars()``. ``on_event`` is called in the client's thread, and must not block.
        """
        scan = self._call(lambda client: client.scan(topic, **options))
        return SyncClusterMessages(self._thread, scan)


class SyncTopicTail:
    """`rocketlens.client.search.tail.TopicTail` with blocking calls; a context manager."""

    def __init__(self, thread: LoopThread, tailed: TopicTail) -> None:
        self._thread: Final = thread
        self._tailed: Final = tailed

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """What was read."""
        return self._tailed.coverage

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for could be read, once the iteration has ended."""
        return self._tailed.complete

    def close(self) -> None:
        """Stop reading."""
        self._thread.run(self._tailed.aclose())

    def __enter__(self) -> Self:
        """Return this tail."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop reading."""
        self.close()

    def __iter__(self) -> Self:
        """Return this tail."""
        return self

    def __next__(self) -> MessageExt:
        """Return the next message; waits for it if the tail follows."""
        message = self._thread.run(self._next())
        if message is None:
            raise StopIteration
        return message

    async def _next(self) -> MessageExt | None:
        # A coroutine cannot raise StopIteration.
        return await anext(self._tailed, None)


class SyncProducer(SyncClient[producer.Producer]):
    """`rocketlens.Producer` with blocking calls; the same arguments."""

    @takes_arguments_of(producer.Producer.__init__)
    def __init__(
        self, name_servers: str | Iterable[str] | None = None, **options: "Unpack[ProducerOptions]"
    ) -> None:
        super().__init__(lambda: producer.Producer(name_servers, **options))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message, and wait until a broker has stored it."""
        return self._thread.run(
            self._client.send(message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s)
        )

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> "Future[SendResult]":
        """Start to send; the future has the result, and takes callbacks.

        Callbacks run in the client's thread: they must not block, nor call this client.
        """
        result: Future[SendResult] = Future()
        result.set_running_or_notify_cancel()
        work = self._client.send(
            message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s
        )
        self._thread.run(_begin(work, result))
        return result

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send several messages of one topic at once."""
        return self._thread.run(self._client.send_batch(messages, queue=queue, timeout_s=timeout_s))

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send a message without waiting for a response."""
        self._thread.run(self._client.send_oneway(message, queue=queue, sharding_key=sharding_key))

    def request(
        self,
        message: Message,
        timeout_s: float,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> ReplyMessage:
        """Send a message, and wait for the reply of a consumer."""
        work = self._client.request(message, timeout_s, queue=queue, sharding_key=sharding_key)
        return self._thread.run(work)

    def recall(self, topic: str, recall_handle: str, *, timeout_s: float | None = None) -> str:
        """Take back a message before it is delivered; return its unique key."""
        return self._thread.run(self._client.recall(topic, recall_handle, timeout_s=timeout_s))

    def write_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that a topic's messages go to."""
        return self._thread.run(self._client.write_queues(topic))


async def _made(make: Callable[[], C], *, starts: bool) -> C:
    client = make()
    if starts:
        await client.start()
    return client


async def _begin(work: Coroutine[Any, Any, T], result: "Future[T]") -> None:
    """Start ``work`` in the background; ``result`` gets its result or error."""
    task = asyncio.get_running_loop().create_task(work)

    def done(_: object) -> None:
        if task.cancelled():
            result.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    _UNDER_WAY.add(task)
    task.add_done_callback(_UNDER_WAY.discard)
    task.add_done_callback(done)


_UNDER_WAY: Final[set["asyncio.Task[Any]"]] = set()
"""A reference: the event loop keeps none to a task."""


class SyncTransactionProducer(SyncProducer):
    """`rocketlens.TransactionProducer` with blocking calls; the same arguments.

    Plain functions run in threads, async ones in the event loop of this producer's own thread.
    """

    @takes_arguments_of(
        transaction.TransactionProducer.__init__, producer.Producer.__init__, "handlers"
    )
    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        **options: "Unpack[TransactionProducerOptions]",
    ) -> None:
        SyncClient.__init__(self, lambda: transaction.TransactionProducer(name_servers, **options))

    def send_in_transaction(
        self, message: Message, execute: transaction.Execute, *, timeout_s: float | None = None
    ) -> transaction.TransactionSendResult:
        """Send a half message, execute the local transaction, and end the message as it ended."""
        client = self._client
        assert isinstance(client, transaction.TransactionProducer)  # noqa: S101 - it is made above
        return self._thread.run(client.send_in_transaction(message, execute, timeout_s=timeout_s))
