"""``rocketlens.Producer``, which sends messages.

Without a connection or an answer, or after a retriable code, a send tries another broker, up to
``retries`` times and with the same unique key. A send to a chosen queue or sharding key has one
attempt, because another queue would change the order. After a timeout the message may be stored.
Source: ``DefaultMQProducerImpl``.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from rocketlens import limits
from rocketlens.client.cluster_client import ClusterClient
from rocketlens.client.connect.cluster import broker_error, fields_of, request_name, within
from rocketlens.client.connect.connection_settings import (
    ConnectionSettings,
    arguments_of,
    takes_settings,
)
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.client.connect.route import MessageQueue, Route
from rocketlens.client.send.message import Message, check_message
from rocketlens.client.send.request_reply import PendingRequests, ReplyMessage
from rocketlens.client.send.send_request import (
    COMPRESS_OVER_BYTES,
    Compression,
    Sending,
    SendRequest,
    result_of,
)
from rocketlens.client.send.send_result import STATUS_OF_CODE, SendResult, SendStatus
from rocketlens.client.send.trace import TRACE_GROUP, trace_writer
from rocketlens.client.send.unique_key import own_address
from rocketlens.errors import (
    BadAnswer,
    BadInput,
    BrokerError,
    MessageIllegal,
    ProtocolError,
    RemotingError,
    RocketLensError,
    SendFailed,
    TopicNotFound,
)
from rocketlens.model.arguments import check_text
from rocketlens.model.rocketmq import (
    DEFAULT_TOPIC,
    check_topic,
    group_problem,
    is_group_topic,
    reply_topic,
)
from rocketlens.model.text.java import string_hash
from rocketlens.net.channel import Channel, Handler
from rocketlens.net.pace import wait_at_most
from rocketlens.wire.bodies.clients import HeartbeatData, ProducerData
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.commands.groups import HEART_BEAT, UNREGISTER_CLIENT, UnregisterClientRequest
from rocketlens.wire.commands.messages import RECALL_MESSAGE, RecallMessageRequest
from rocketlens.wire.declare import NoFields, write_body
from rocketlens.wire.recall_handle import RecallHandle

SEND_TIMEOUT_S: Final = 3.0
"""Seconds for a send with all its attempts. RocketMQ: 3 (sendMsgTimeout)."""
LEFT_ALONE_S: Final = ((15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0))
"""Latency, and the seconds for which a broker is then avoided, the longest first."""
FAILED_S: Final = 10.0


class QueueChooser:
    """Chooses a producer's next queue: round robin, avoiding brokers that just failed.

    Without latency isolation, RocketMQ's default, only the brokers of the same send's failed
    attempts are avoided. (RocketMQ avoids only the last one, so of three brokers it may never try
    the healthy one.) With it, a broker that was slow or failed is avoided for some time:

    ===============  ====  ====  ====  ====  ====  ====  ======
    latency (s)      0.05  0.1   0.55  1.8   3     5     15
    avoided (s)      0     0     2     5     6     10    30
    ===============  ====  ====  ====  ====  ====  ====  ======

    A failed attempt counts as 10 s. If all are to be avoided, the one that is available soonest is
    used. Source: ``MQFaultStrategy``, ``TopicPublishInfo`` of 5.x.
    """

    def __init__(
        self, *, isolates_latency: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._isolates_latency: Final = isolates_latency
        self._clock: Final = clock
        self._counters: dict[str, itertools.count[int]] = {}
        self._back_at_s: dict[str, float] = {}

    def choose(self, queues: Sequence[MessageQueue], tried: Sequence[str] = ()) -> MessageQueue:
        """Return the next queue, on a broker that is not in ``tried`` if possible.

        ``tried`` are the brokers of this send's failed attempts, in order; if all have been tried,
        the last one is avoided. ``queues`` are one or more queues of one topic. O(queues) at worst.
        """
        topic = queues[0].topic
        counter = self._counters.get(topic)
        if counter is None:
            # Producers that start together must not all start with the same queue.
            counter = self._counters[topic] = itertools.count(secrets.randbelow(1 << 16))
        start = next(counter) % len(queues)
        if not tried and not self._back_at_s:
            return queues[start]
        now_s = self._clock()

        def reluctance(queue: MessageQueue) -> tuple[bool, bool, float]:
            name = queue.broker_name
            away_s = max(0.0, self._back_at_s.get(name, now_s) - now_s)
            return name in tried[-1:], name in tried, away_s

        # Of equal queues min() returns the first, which is next in turn.
        return min([*queues[start:], *queues[:start]], key=reluctance)

    def record(self, broker_name: str, seconds: float, *, failed: bool) -> None:
        if not self._isolates_latency:
            return
        latency_s = FAILED_S if failed else seconds
        alone_s = next((rest for least, rest in LEFT_ALONE_S if latency_s >= least), 0.0)
        if alone_s:
            self._back_at_s[broker_name] = self._clock() + alone_s
        else:
            self._back_at_s.pop(broker_name, None)


logger: Final = logging.getLogger("rocketlens.client")

DEFAULT_TOPIC_QUEUE_NUMS: Final = 4
DEFAULT_GROUP: Final = "rocketlens_producer"


class SendContext(Struct):
    """Context of an attempt for a send hook. After the attempt ``result`` or ``error`` is set;
    neither if a one-way send succeeded.
    """

    producer_group: str
    message: Message | Sequence[Message]
    queue: MessageQueue
    broker_address: str
    mode: Literal["sync", "oneway"]
    result: SendResult | None = None
    error: RocketLensError | None = None


class SendHook:
    """Called before and after each send attempt; its errors are logged and ignored."""

    def before(self, context: SendContext) -> None:
        """Called before an attempt."""

    def after(self, context: SendContext) -> None:
        """Called after an attempt."""


_ALLOW_RECALLS: Final = (
    "set recallMessageEnable=true in its broker.conf (rocketlens serve -c broker.conf)"
)


class SendingSettings(ConnectionSettings, frozen=True, kw_only=True):
    """Settings of both kinds of producers, checked by the constructor."""

    group: str = DEFAULT_GROUP
    retries: int = 2
    """The number of other brokers tried after the first."""
    send_timeout_s: float = SEND_TIMEOUT_S
    """For one send with all its attempts."""
    attempt_timeout_s: float | None = None
    """For one attempt, so that a hanging broker leaves time for another."""
    retries_when_not_safe: bool = False
    compression: Compression | None = Compression.ZLIB
    compression_level: int = 5
    compress_over_bytes: int = COMPRESS_OVER_BYTES
    """Bodies of this size or more are compressed; batches never are."""
    max_message_bytes: int = limits.MAX_MESSAGE_BYTES
    default_topic_queue_nums: int = DEFAULT_TOPIC_QUEUE_NUMS
    isolates_latency: bool = False
    """Avoid slow brokers for a while."""
    hooks: Iterable[SendHook] = ()
    trace: bool | str = False
    """Write message trace to RocketMQ's trace topic, or to the named topic."""

    def __post_init__(self) -> None:
        """Check the settings.

        :raises BadInput: if a setting is not valid.
        """
        problem = group_problem(check_text(self.group, "group"))
        if problem is not None:
            raise BadInput(problem)
        if self.retries < 0:
            raise BadInput(f"retries is {self.retries}: give 0 (no retry) or more")


class ProducerSettings(SendingSettings, frozen=True, kw_only=True):
    """Additional settings of a producer."""

    handlers: Mapping[int, Handler] | None = None
    """Handlers of brokers' requests, by request code."""


class Producer(ClusterClient):
    """Sends messages to a RocketMQ cluster. An async context manager, bound to one event loop.

    ::

        async with rocketlens.Producer("127.0.0.1:9876", group="orders") as producer:
            result = await producer.send(Message("Orders", b"...", keys=["ORDER-1"]))

    Any number of sends may run concurrently. ``send_timeout_s`` is for one send with all its
    attempts, ``attempt_timeout_s`` for one of them, so that a hanging broker leaves time for
    another. Bodies of ``compress_over_bytes`` or more are compressed; batches never are. With
    ``isolates_latency`` slow brokers are avoided for some time. ``trace`` writes message trace to
    RocketMQ's trace topic, or to the named topic; it never delays or fails a send. Methods raise
    `RemotingError` if no name server or broker answers.
    """

    @takes_settings(ProducerSettings)
    def __init__(self, settings: ProducerSettings) -> None:
        self._requests: Final = PendingRequests()
        handlers = {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._requests.receive}
        super().__init__(
            **arguments_of(settings, ConnectionSettings),
            handlers=handlers | dict(settings.handlers or {}),
        )
        self._settings: Final = settings
        self.group: Final = self._full_topic(settings.group)
        self.retries: Final = settings.retries
        self.send_timeout_s: Final = settings.send_timeout_s
        self.attempt_timeout_s: Final = settings.attempt_timeout_s
        self.retries_when_not_safe: Final = settings.retries_when_not_safe
        self.hooks: Final = tuple(settings.hooks)
        self._sending: Final = Sending(self.group, self._full_topic, settings)
        self._trace: Final = trace_writer(
            self.group,
            lambda: Producer(self._cluster.name_servers, group=TRACE_GROUP, **self._connection),
            trace=settings.trace,
            namespace=self.namespace,
        )
        self._now_s: Final = settings.clock
        self._chooser: Final = QueueChooser(
            isolates_latency=settings.isolates_latency, clock=settings.clock
        )
        self._client_id: Final = f"{own_address()}@{os.getpid()}#{id(self)}"
        self._heartbeats: asyncio.Task[None] | None = None
        self._known_addresses: set[str] = set()
        self._registered: dict[str, Channel] = {}
        """Connections on which the broker has a heartbeat, so it can push replies."""
        self._topics: set[str] = set()
        self._new_route: Final = asyncio.Event()

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message, and wait until a broker has stored it.

        With ``sharding_key`` all messages of that key go to one queue; with ``queue`` to that
        queue.

        :raises BadInput: if the message is not valid; no broker was asked.
        :raises TopicNotFound: if no broker has the topic, or creates topics on demand.
        :raises BrokerError: if a broker refuses it for a reason that others share.
        :raises SendFailed: if all attempts failed.
        """
        request = self._sending.request(message, sharding_key)
        return await self._send(request, queue, sharding_key, timeout_s)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send several messages of one topic at once; they are stored side by side, or not at all.

        :raises BadInput: if there are no messages, they differ in topic or WAIT, one is delayed, or
            together they are too large. Otherwise as `send`.
        """
        request = self._sending.batch_request(tuple(messages))
        return await self._send(request, queue, None, timeout_s)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send a message without waiting for a response: if it is lost, no error is raised.

        :raises BadInput: if the message is not valid.
        :raises TopicNotFound: if no broker has the topic or creates topics on demand.
        """
        request = self._sending.request(message, sharding_key)
        route = await self._write_route(request.topic)
        chosen = self._chosen_queue(route, queue, sharding_key) or self._chooser.choose(
            route.write_queues
        )
        context = await self._context(request, route, chosen, "oneway")
        with self._with_hooks(context):
            await self._cluster.tell(
                context.broker_address, request.command, request.header(chosen), request.body
            )

    async def request(
        self,
        message: Message,
        timeout_s: float,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> ReplyMessage:
        """Send a message, and return the reply of the consumer that processed it.

        The consumer creates the reply with `reply_to`, and sends it. Java's clients can be on
        either side. ``timeout_s`` includes both the message and the reply. Otherwise as `send`.

        :raises ReplyTimeout: if the message is stored, but no reply arrived in time.
        :raises BadAnswer: if the body of the reply cannot be decompressed.
        """
        check_message(message)
        deadline_s = self._now_s() + timeout_s
        with self._requests.open(message.topic, timeout_s) as pending:
            pending.mark(message, self._client_id)
            await self._register_for_replies(message.topic, timeout_s / 2)
            left_s = deadline_s - self._now_s()
            await self.send(message, queue=queue, sharding_key=sharding_key, timeout_s=left_s)
            return await pending.wait(deadline_s - self._now_s())

    async def recall(
        self, topic: str, recall_handle: str, *, timeout_s: float | None = None
    ) -> str:
        """Recall a message before it is delivered; return its unique key.

        ``recall_handle`` comes from its `SendResult`. No consumer gets the message then. Brokers do
        not check that it is still stored, so a second recall succeeds, too.

        :raises BadInput: if it is not a handle, or the topic is a group's; no broker was asked.
        :raises TopicNotFound: if no broker has the topic, or the message's broker has no master.
        :raises BrokerError: 16 if the broker allows no recalls (``recallMessageEnable``), 604 if
            the message is due, or of another topic, 3 if it is older than RocketMQ 5.5.
        :raises RemotingError: if there is no response; the message may have been recalled.
        """
        full_topic = self._full_topic(check_text(topic, "topic"))
        check_topic(full_topic)
        if is_group_topic(full_topic):
            raise MessageIllegal(f"topic {full_topic}: messages of a group cannot be recalled")
        handle = RecallHandle.decode(check_text(recall_handle, "recall_handle"))
        total_s = self.send_timeout_s if timeout_s is None else timeout_s
        deadline_s = self._now_s() + total_s
        route = await self._route_in(full_topic, total_s)
        broker = route.brokers.get(handle.broker_name)
        if broker is None or broker.master is None:
            shown = handle.broker_name[: limits.MAX_SHOWN_CHARACTERS]
            problem = f"topic {topic}: broker {shown}, with the message, has no master now"
            raise TopicNotFound(problem)
        request = RecallMessageRequest(
            producer_group=self.group,
            topic=full_topic,
            recall_handle=recall_handle,
            broker_name=broker.name,
        )
        left_s = max(0.0, deadline_s - self._now_s())
        try:
            answer = await self._cluster.ask(
                broker.master, RECALL_MESSAGE, request, timeout_s=left_s
            )
        except BrokerError as error:
            if "operation is forbidden" in (error.remark or ""):
                remark = f"{error.remark}: {_ALLOW_RECALLS}"
                code = ResponseCode.NO_PERMISSION
                raise BrokerError(error.address, code, remark, retriable=False) from error
            raise
        return fields_of(broker.master, RECALL_MESSAGE, answer).msg_id

    async def write_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return a topic's writable queues, in the order of broker name and id.

        :raises TopicNotFound: if no broker has the topic, or creates topics on demand.
        """
        route = await self._write_route(self._full_topic(topic))
        return tuple(queue._replace(topic=topic) for queue in route.write_queues)

    async def start(self) -> None:
        """Start to send heartbeats to brokers, every 30 s."""
        if self._heartbeats is None:
            self._heartbeats = asyncio.get_running_loop().create_task(self._send_heartbeats())

    async def close(self) -> None:
        """Unregister from the brokers and close all connections; pending sends fail."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.wait([self._heartbeats])
            self._heartbeats = None
        header = UnregisterClientRequest(client_id=self._client_id, producer_group=self.group)
        goodbyes = [
            self._cluster.call(address, UNREGISTER_CLIENT, header, timeout_s=1)
            for address in self._known_addresses
        ]
        await asyncio.gather(*goodbyes, return_exceptions=True)
        if self._trace is not None:
            await self._trace.close()
        await super().close()

    async def _send(
        self,
        request: SendRequest,
        queue: MessageQueue | None,
        sharding_key: str | None,
        timeout_s: float | None,
    ) -> SendResult:
        total_s = self.send_timeout_s if timeout_s is None else timeout_s
        deadline_s = self._now_s() + total_s
        route = await self._route_in(request.topic, total_s)
        chosen = self._chosen_queue(route, queue, sharding_key)
        attempts: list[tuple[str, RocketLensError]] = []
        unsafe: SendResult | None = None
        tried: list[str] = []
        for _ in range(1 if chosen is not None else 1 + self.retries):
            left_s = deadline_s - self._now_s()
            if left_s <= 0:
                break
            target = chosen or self._chooser.choose(route.write_queues, tried)
            tried.append(target.broker_name)
            try:
                result = await self._attempt(request, route, target, left_s)
            except RocketLensError as error:
                if not (error.retriable or isinstance(error, RemotingError)):
                    if unsafe is not None:
                        return unsafe
                    raise
                attempts.append((target.broker_name, error))
            else:
                unsafe = result
                if result.send_status is SendStatus.SEND_OK or not self.retries_when_not_safe:
                    return result
        if unsafe is not None:
            return unsafe
        self._cluster.forget_route(request.topic)
        each = dict.fromkeys(f"{name}: {error}" for name, error in attempts)
        reasons = "; ".join(each) or "no time was left"
        raise SendFailed(
            f"sending to topic {request.topic} failed {len(attempts)} times: {reasons}", attempts
        )

    async def _attempt(
        self, request: SendRequest, route: Route, queue: MessageQueue, left_s: float
    ) -> SendResult:
        context = await self._context(request, route, queue, "sync")
        if self.attempt_timeout_s is not None:
            left_s = min(left_s, self.attempt_timeout_s)
        with self._with_hooks(context), self._record_latency(context):
            answer = await self._cluster.call(
                context.broker_address,
                request.command,
                request.header(queue),
                request.body,
                timeout_s=left_s,
            )
            if answer.code not in STATUS_OF_CODE:
                raise broker_error(context.broker_address, answer)
            try:
                context.result = result_of(request, queue, answer, self._short_topic(queue.topic))
            except ProtocolError as error:
                name = request_name(request.command)
                raise BadAnswer(context.broker_address, name, str(error)) from None
        return context.result

    @contextlib.contextmanager
    def _with_hooks(self, context: SendContext) -> Iterator[None]:
        _call_hooks([hook.before for hook in self.hooks], context)
        begin_ms = time.time_ns() // 1_000_000
        try:
            yield
        except RocketLensError as error:
            context.error = error
            raise
        except asyncio.CancelledError:
            problem = "the send was cancelled: the message may be stored"
            context.error = RemotingError(context.broker_address, problem)
            raise
        finally:
            _call_hooks([hook.after for hook in self.hooks], context)
            if self._trace is not None and context.result is not None:
                sent = context.message
                messages = (sent,) if isinstance(sent, Message) else sent
                self._trace.sent(messages, context.result, context.broker_address, begin_ms)

    @contextlib.contextmanager
    def _record_latency(self, context: SendContext) -> Iterator[None]:
        begun_s = self._now_s()
        try:
            yield
        finally:
            took_s = self._now_s() - begun_s
            self._chooser.record(context.queue.broker_name, took_s, failed=context.result is None)

    async def _route_in(self, topic: str, timeout_s: float) -> Route:
        """Return a route with writable queues.

        :raises CallTimeout: if it takes too long.
        """
        async with within(timeout_s, ";".join(self._cluster.name_servers), "no route"):
            return await self._write_route(topic)

    async def _write_route(self, topic: str) -> Route:
        """Return a route with writable queues; the default topic's if the topic is new."""
        try:
            route = await self._cluster.route(topic, wait=False)
        except TopicNotFound as error:
            try:
                default = await self._cluster.route(DEFAULT_TOPIC, wait=False)
            except TopicNotFound:
                raise error from None
            route = default.as_default_of(topic, self._settings.default_topic_queue_nums)
        if not route.write_queues:
            route = await self._cluster.fresh_route(topic)
        if not route.write_queues:
            raise TopicNotFound(f"topic {topic}: none of its brokers can be written to now")
        if topic not in self._topics:
            self._topics.add(topic)
            self._new_route.set()
        return route

    def _chosen_queue(
        self, route: Route, queue: MessageQueue | None, sharding_key: str | None
    ) -> MessageQueue | None:
        """Return the queue that the caller chose; None if any will do.

        :raises BadInput: if it is of another topic, or of an unknown broker.
        """
        if queue is not None:
            full = queue._replace(topic=self._full_topic(queue.topic))
            if full.topic != route.topic or full.broker_name not in route.brokers:
                raise BadInput(f"{queue} is not a queue of topic {route.topic}")
            return full
        if sharding_key is not None:
            # As Java's remainder of the absolute value.
            return route.write_queues[abs(string_hash(sharding_key)) % len(route.write_queues)]
        return None

    async def _context(
        self,
        request: SendRequest,
        route: Route,
        queue: MessageQueue,
        mode: Literal["sync", "oneway"],
    ) -> SendContext:
        address = route.brokers[queue.broker_name].master
        if address is None:
            raise TopicNotFound(f"broker {queue.broker_name} has no master now")
        shown = queue._replace(topic=self._short_topic(queue.topic))
        return SendContext(self.group, request.sent, shown, address, mode)

    async def _register_for_replies(self, topic: str, timeout_s: float) -> None:
        """Send a heartbeat to each broker that may push the reply and has none yet.

        A broker that fails is skipped: another may get the reply.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                route = await self._write_route(self._full_topic(topic))
                for cluster in {each.cluster_name for each in route.brokers.values()} - {""}:
                    with contextlib.suppress(TopicNotFound):
                        await self._cluster.route(reply_topic(cluster), wait=False)
                await asyncio.gather(*map(self._register_at, self._cluster.known_masters()))

    async def _register_at(self, address: str) -> None:
        try:
            channel = await self._cluster.channel(address)
            if self._registered.get(address) is not channel:
                await self._send_heartbeat(address)
                self._registered[address] = channel
        except RocketLensError as error:
            logger.warning("broker %s cannot push replies: %s", address, error)

    def _short_topic(self, topic: str) -> str:
        return without_namespace(self.namespace, topic)

    async def _send_heartbeat(self, address: str) -> None:
        self._known_addresses.add(address)
        groups = (ProducerData(group_name=self.group),)
        body = write_body(HeartbeatData(client_id=self._client_id, producer_datas=groups))
        await self._cluster.ask(address, HEART_BEAT, NoFields(), body)

    async def _send_heartbeats(self) -> None:
        async def beat(address: str) -> None:
            try:
                await self._send_heartbeat(address)
            except RocketLensError as error:
                logger.warning("group %s: no heartbeat reached %s: %s", self.group, address, error)

        while True:
            self._new_route.clear()
            await asyncio.gather(*map(beat, self._cluster.known_masters()))
            await wait_at_most(limits.HEARTBEAT_S, self._new_route)


def _call_hooks(listeners: Iterable[Callable[[SendContext], None]], context: SendContext) -> None:
    for listener in listeners:
        try:
            listener(context)
        except Exception:
            logger.exception("a send hook failed")
