"""Sends messages: ``rocketlens.Producer``.

=========================  ====================================================================
case                       what ``send`` does, within its timeout
=========================  ====================================================================
no connection, no answer,  tries another broker (at most ``retries`` times more), with the same
or a retriable code        unique key; SendFailed when all attempts failed
any other code             BrokerError
send to a queue or key     one attempt, because another queue would change the order
timeout                    SendFailed; the message may be stored
=========================  ====================================================================

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
"""Seconds that a send may take, all its attempts together. RocketMQ: 3 (sendMsgTimeout)."""
LEFT_ALONE_S: Final = ((15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0))
"""Latency, and for how long a broker is then avoided, the longest first."""
FAILED_S: Final = 10.0


class QueueChooser:
    """Chooses the next queue of a producer: round robin, avoiding brokers that just failed.

    Without latency isolation, as is RocketMQ's default, only the brokers of the same send's failed
    attempts are avoided (RocketMQ: only the last one, so that of three brokers it may never try the
    one that is well). With it, a broker that was slow or failed is left alone for a while:

    ===============  ====  ====  ====  ====  ====  ====  ======
    took (s)         0.05  0.1   0.55  1.8   3     5     15
    left alone (s)   0     0     2     5     6     10    30
    ===============  ====  ====  ====  ====  ====  ====  ======

    A failed attempt counts as 10 s. When all are to be left alone, the one that may be used soonest
    is taken. Source: ``MQFaultStrategy``, ``TopicPublishInfo`` of 5.x.
    """

    def __init__(
        self, *, isolates_latency: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._isolates_latency: Final = isolates_latency
        self._clock: Final = clock
        self._counters: dict[str, itertools.count[int]] = {}
        self._back_at_s: dict[str, float] = {}

    def choose(self, queues: Sequence[MessageQueue], tried: Sequence[str] = ()) -> MessageQueue:
        """Return the next queue, on a broker that is not in ``tried`` if there is one.

        ``tried`` are the brokers of this send's failed attempts, the last one last; once all have
        been tried, another than the last is taken. ``queues`` are those of one topic, and there is
        at least one. O(queues) at worst.
        """
        topic = queues[0].topic
        counter = self._counters.get(topic)
        if counter is None:
            # Producers that start together must not all begin with the same queue.
            counter = self._counters[topic] = itertools.count(secrets.randbelow(1 << 16))
        start = next(counter) % len(queues)
        if not tried and not self._back_at_s:
            return queues[start]
        now_s = self._clock()

        def reluctance(queue: MessageQueue) -> tuple[bool, bool, float]:
            name = queue.broker_name
            away_s = max(0.0, self._back_at_s.get(name, now_s) - now_s)
            return name in tried[-1:], name in tried, away_s

        # Of equal ones min() returns the first, which is the next in turn.
        return min([*queues[start:], *queues[:start]], key=reluctance)

    def took(self, broker_name: str, seconds: float, *, failed: bool) -> None:
        """Record the latency and outcome of an attempt."""
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
    """Context of an attempt for a send hook. After the attempt ``result`` or ``error`` is set, of
    one that is one-way and succeeded neither.
    """

    producer_group: str
    message: Message | Sequence[Message]
    queue: MessageQueue
    broker_address: str
    mode: Literal["sync", "oneway"]
    result: SendResult | None = None
    error: RocketLensError | None = None


class SendHook:
    """Called before and after each attempt to send; errors that it raises are logged and
    ignored.
    """

    def before(self, context: SendContext) -> None:
        """Called before an attempt."""

    def after(self, context: SendContext) -> None:
        """Called after an attempt."""


_ALLOW_RECALLS: Final = (
    "set recallMessageEnable=true in its broker.conf (rocketlens serve -c broker.conf)"
)


class SendingSettings(ConnectionSettings, frozen=True, kw_only=True):
    """The settings of both kinds of producers, checked when they are made."""

    group: str = DEFAULT_GROUP
    retries: int = 2
    """How many other brokers are tried after the first."""
    send_timeout_s: float = SEND_TIMEOUT_S
    """For one send with all its attempts."""
    attempt_timeout_s: float | None = None
    """For one attempt, so that a broker that hangs leaves time for another."""
    retries_when_not_safe: bool = False
    compression: Compression | None = Compression.ZLIB
    compression_level: int = 5
    compress_over_bytes: int = COMPRESS_OVER_BYTES
    """Bodies of this size or more are compressed, those of batches never."""
    max_message_bytes: int = limits.MAX_MESSAGE_BYTES
    default_topic_queue_nums: int = DEFAULT_TOPIC_QUEUE_NUMS
    isolates_latency: bool = False
    """Avoid slow brokers for a while."""
    hooks: Iterable[SendHook] = ()
    trace: bool | str = False
    """Write message trace to RocketMQ's own topic, or to the one that it names."""

    def __post_init__(self) -> None:
        """Check the settings.

        :raises BadInput: if one is not valid.
        """
        problem = group_problem(check_text(self.group, "group"))
        if problem is not None:
            raise BadInput(problem)
        if self.retries < 0:
            raise BadInput(f"retries is {self.retries}; give how often to try again, 0 for never")


class ProducerSettings(SendingSettings, frozen=True, kw_only=True):
    """The settings of a producer beside these."""

    handlers: Mapping[int, Handler] | None = None
    """Answer what brokers ask of clients, by request code."""


class Producer(ClusterClient):
    """Sends messages to a RocketMQ cluster. An async context manager; belongs to one event loop.

    ::

        async with rocketlens.Producer("127.0.0.1:9876", group="orders") as producer:
            result = await producer.send(Message("Orders", b"...", keys=["ORDER-1"]))

    Any number of sends may run at once. ``send_timeout_s`` is for one send with all its
    attempts, ``attempt_timeout_s`` for one of them, so that a hung broker leaves time for another.
    Bodies of ``compress_over_bytes`` or more are compressed, those of batches never.
    With ``isolates_latency`` slow brokers are avoided for a while. ``trace`` writes message trace
    to RocketMQ's own topic, or to the one that it names; it never delays or fails a send.
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
        self._greeted: set[str] = set()
        self._introduced: dict[str, Channel] = {}
        """Connections over which brokers had a heartbeat, so that they can pass replies on."""
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

        With ``sharding_key`` all messages of that key go to one queue; with ``queue`` to that.

        :raises BadInput: when the message cannot be sent: no broker was asked.
        :raises TopicNotFound: when no broker has the topic, or creates topics on demand.
        :raises BrokerError: when a broker refuses it, and another would, too.
        :raises SendFailed: when all attempts failed.
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
        """Send several messages of one topic at once; they are stored side by side, or none is.

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

        :raises BadInput: if the message cannot be sent.
        :raises TopicNotFound: if no broker has the topic or creates topics on demand.
        :raises RemotingError: if there is no connection.
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
        """Send a message, and return the reply to it of the consumer that handled it.

        The consumer makes the reply with `reply_to`, and sends it; Java's clients can be on either
        side. ``timeout_s`` is for both, the message and the reply; the rest is as of `send`.

        :raises ReplyTimeout: when the message is stored, and no reply came in time.
        :raises BadAnswer: when the body of the reply cannot be decompressed.
        """
        check_message(message)
        deadline_s = self._now_s() + timeout_s
        with self._requests.begun(message.topic, timeout_s) as pending:
            pending.mark(message, self._client_id)
            await self._register_for_replies(message.topic, timeout_s / 2)
            left_s = deadline_s - self._now_s()
            await self.send(message, queue=queue, sharding_key=sharding_key, timeout_s=left_s)
            return await pending.wait(deadline_s - self._now_s())

    async def recall(
        self, topic: str, recall_handle: str, *, timeout_s: float | None = None
    ) -> str:
        """Take back a message before it is delivered; return its unique key.

        ``recall_handle`` is what its `SendResult` has. No consumer gets the message then. Brokers
        do not check that it is there: what was taken back already can be taken back again.

        :raises BadInput: if it is not a handle, or the topic is a group's: no broker was asked.
        :raises TopicNotFound: if no broker has the topic, or the message's broker has no master.
        :raises BrokerError: 16 if the broker allows no recalls (``recallMessageEnable``), 604 if
            the message is due, or of another topic, 3 if it is older than RocketMQ 5.5.
        :raises RemotingError: if there is no response; the message may be taken back.
        """
        full_topic = self._full_topic(check_text(topic, "topic"))
        check_topic(full_topic)
        if is_group_topic(full_topic):
            raise MessageIllegal(f"topic {full_topic}: a consumer group's has nothing to take back")
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
        """Return the queues that a topic's messages go to, in the order of broker name and id.

        :raises TopicNotFound: when no broker has the topic, or creates topics on demand.
        :raises RemotingError: when no name server answers.
        """
        route = await self._write_route(self._full_topic(topic))
        return tuple(queue._replace(topic=topic) for queue in route.write_queues)

    async def start(self) -> None:
        """Start to send heartbeats to brokers, every 30 s."""
        if self._heartbeats is None:
            self._heartbeats = asyncio.get_running_loop().create_task(self._beat())

    async def close(self) -> None:
        """Unregister from the brokers and close all connections; current sends fail."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.wait([self._heartbeats])
            self._heartbeats = None
        header = UnregisterClientRequest(client_id=self._client_id, producer_group=self.group)
        goodbyes = [
            self._cluster.call(address, UNREGISTER_CLIENT, header, timeout_s=1)
            for address in self._greeted
        ]
        await asyncio.gather(*goodbyes, return_exceptions=True)
        if self._trace is not None:
            await self._trace.close()
        await super().close()

    # Implementation.

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
        _tell([hook.before for hook in self.hooks], context)
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
            _tell([hook.after for hook in self.hooks], context)
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
            self._chooser.took(context.queue.broker_name, took_s, failed=context.result is None)

    async def _route_in(self, topic: str, timeout_s: float) -> Route:
        """Return a route with queues to write to.

        :raises CallTimeout: if there is none in time.
        """
        async with within(timeout_s, ";".join(self._cluster.name_servers), "no route"):
            return await self._write_route(topic)

    async def _write_route(self, topic: str) -> Route:
        """Return a route with queues to write to; that of the default topic if the topic is new."""
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
            raise TopicNotFound(f"topic {topic}: no broker of it can be written to now")
        if topic not in self._topics:
            self._topics.add(topic)
            self._new_route.set()
        return route

    def _chosen_queue(
        self, route: Route, queue: MessageQueue | None, sharding_key: str | None
    ) -> MessageQueue | None:
        """Return the queue that the caller chose.

        :raises BadInput: if it is of another topic, or of a broker that does not exist.
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
        """Send a heartbeat to brokers that may get replies, unless they had one.

        A broker that fails is left out: another may get the reply.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                route = await self._write_route(self._full_topic(topic))
                for cluster in {each.cluster_name for each in route.brokers.values()} - {""}:
                    with contextlib.suppress(TopicNotFound):
                        await self._cluster.route(reply_topic(cluster), wait=False)
                await asyncio.gather(*map(self._introduce, self._cluster.known_masters()))

    async def _introduce(self, address: str) -> None:
        try:
            channel = await self._cluster.channel(address)
            if self._introduced.get(address) is not channel:
                await self._greet(address)
                self._introduced[address] = channel
        except RocketLensError as error:
            logger.warning("replies cannot come through broker %s: %s", address, error)

    def _short_topic(self, topic: str) -> str:
        return without_namespace(self.namespace, topic)

    async def _greet(self, address: str) -> None:
        self._greeted.add(address)
        groups = (ProducerData(group_name=self.group),)
        body = write_body(HeartbeatData(client_id=self._client_id, producer_datas=groups))
        await self._cluster.ask(address, HEART_BEAT, NoFields(), body)

    async def _beat(self) -> None:
        async def beat(address: str) -> None:
            try:
                await self._greet(address)
            except RocketLensError as error:
                logger.warning("group %s: no heartbeat reached %s: %s", self.group, address, error)

        while True:
            self._new_route.clear()
            await asyncio.gather(*map(beat, self._cluster.known_masters()))
            await wait_at_most(limits.HEARTBEAT_S, self._new_route)


def _tell(listeners: Iterable[Callable[[SendContext], None]], context: SendContext) -> None:
    for listener in listeners:
        try:
            listener(context)
        except Exception:
            logger.exception("a send hook failed")
