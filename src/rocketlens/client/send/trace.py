"""Writes message trace to the trace topic, as RocketMQ's clients do.

Records wait in a bounded queue, and a separate producer sends them in batches, so a trace neither
delays nor fails a send or a listener. Records that do not fit, or cannot be sent, are dropped and
counted in `TraceWriter.dropped`. Closing a client sends the waiting records.

| record | written |
|---|---|
| Pub | for each message that a broker stored, with any success code; not one-way |
| SubBefore, SubAfter | before and after each listener call, for each of its messages |
| EndTransaction | when a half message is ended, also after a broker's check |

Messages whose property ``TRACE_ON`` is ``false``, which brokers with ``traceOn=false`` set, have no
records. Sources: ``AsyncTraceDispatcher``, ``SendMessageTraceHookImpl``,
``ConsumeMessageTraceHookImpl``, ``EndTransactionTraceHookImpl``.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from rocketlens import limits
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.client.send.message import Message
from rocketlens.client.send.send_result import SendResult, SendStatus
from rocketlens.client.send.unique_key import new_unique_key
from rocketlens.errors import RocketLensError
from rocketlens.formats.trace_body import MESSAGE_TYPES, TraceRecord, TraceType, encode, keys_of
from rocketlens.model import properties as props
from rocketlens.model.arguments import check_text
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import DEFAULT_REGION, TRACE_TOPIC, check_topic
from rocketlens.net.pace import wait_at_most

if TYPE_CHECKING:
    from rocketlens.client.send.producer import Producer

MAX_TRACE_QUEUE: Final = 2_048
"""Waiting trace records; more are dropped and counted. RocketMQ: 2,048 contexts."""
MAX_TRACE_BATCH: Final = 100
"""Trace records in one message. RocketMQ: 100 contexts."""
MAX_TRACE_BYTES: Final = 118_000
"""Bytes of one trace message. RocketMQ: maxMsgSize 128,000, less 10,000."""
MAX_TRACE_KEYS_BYTES: Final = 16_000
"""Bytes of the keys of one trace message: properties may have 32,767 in all."""
logger: Final = logging.getLogger("rocketlens.client")

TRACE_GROUP: Final = "_INNER_TRACE_PRODUCER"
_LINGER_S: Final = 0.5
"""Seconds that records wait for more. RocketMQ: 500 ms."""
_SEND_TIMEOUT_S: Final = 5.0
"""Seconds for sending a message, with retries. RocketMQ: 5,000 ms."""
_NORMAL, _HALF, _COMMIT, _DELAY, _ = MESSAGE_TYPES

ContextCode = Literal[0, 1, 2, 3, 4]
SUCCESS: Final[ContextCode] = 0
TIME_OUT: Final[ContextCode] = 1
EXCEPTION: Final[ContextCode] = 2
FAILED: Final[ContextCode] = 4


def trace_topic_of(*, trace: bool | str) -> str | None:
    """Return the topic of a ``trace`` option: True is RocketMQ's trace topic, False or "" none.

    :raises BadInput: if it is not a valid topic name.
    """
    if not trace:
        return None
    if trace is True:
        return TRACE_TOPIC
    check_topic(check_text(trace, "trace"))
    return trace


class TracedCall(Struct, frozen=True):
    """A traced listener call that has started."""

    request_id: str
    begin_ms: int
    messages: tuple[MessageExt, ...]


class TraceWriter:
    """Sends trace records of one client. Bound to one event loop. Its methods raise no errors.

    ``make_producer`` is called with the first record; ``now_ms`` returns epoch milliseconds.
    """

    def __init__(
        self,
        topic: str,
        make_producer: Callable[[], AbstractAsyncContextManager["Producer"]],
        *,
        group: str,
        namespace: str,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.topic: Final = topic
        self.dropped = 0
        """Records that were not written: too many waited, or no broker stored them."""
        self._make_producer: Final = make_producer
        self._namespace: Final = namespace
        self._group: Final = without_namespace(namespace, group)
        self._now_ms: Final = now_ms
        self._waiting: Final[deque[TraceRecord]] = deque()
        self._wake: Final = asyncio.Event()
        self._full: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def sent(
        self, messages: Sequence[Message], result: SendResult, broker_address: str, begin_ms: int
    ) -> None:
        """Record a broker's answer to a send that began at ``begin_ms``."""
        with self._harmless():
            if not result.trace_on or any(each.topic.startswith(self.topic) for each in messages):
                return
            cost_ms = _cost_ms(self._now_ms() - begin_ms, len(messages))
            # A batch in a queue of type BatchCQ has one offset id for all.
            offset_ids = result.offset_msg_ids
            for number, (message, msg_id) in enumerate(zip(messages, result.msg_ids, strict=False)):
                self._add_sent(
                    TraceType.PUB,
                    *(msg_id, message, message.topic, broker_address),
                    timestamp_ms=begin_ms,
                    region_id=result.region_id,
                    body_length=len(message.body),
                    cost_ms=cost_ms,
                    message_type=_type_of(message),
                    offset_msg_id=offset_ids[min(number, len(offset_ids) - 1)],
                    is_success=result.send_status is SendStatus.SEND_OK,
                )

    def transaction_ended(
        self,
        message: Message | MessageExt,
        msg_id: str,
        *,
        state: str,
        broker_address: str,
        transaction_id: str,
        from_check: bool,
    ) -> None:
        """Record the end of a half message."""
        given = message.properties
        topic = given.get(props.REAL_TOPIC, message.topic)
        with self._harmless():
            self._add_sent(
                TraceType.END_TRANSACTION,
                *(msg_id, message, topic, broker_address),
                timestamp_ms=self._now_ms(),
                region_id=given.get(props.MSG_REGION) or DEFAULT_REGION,
                message_type=_COMMIT,
                transaction_id=transaction_id,
                transaction_state=state,
                from_transaction_check=from_check,
            )

    def start_consume(self, messages: Sequence[MessageExt]) -> TracedCall:
        """Record the start of a listener call."""
        traced = tuple(each for each in messages if each.properties.get(props.TRACE_ON) != "false")
        begun = TracedCall(new_unique_key(), self._now_ms(), traced)
        with self._harmless():
            for each in traced:
                self._add(
                    TraceRecord(
                        TraceType.SUB_BEFORE,
                        each.msg_id,
                        timestamp_ms=begun.begin_ms,
                        region_id=each.properties.get(props.MSG_REGION, ""),
                        group=self._group,
                        request_id=begun.request_id,
                        retry_times=each.reconsume_times,
                        keys=each.properties.get(props.KEYS, ""),
                    )
                )
        return begun

    def end_consume(self, begun: TracedCall, code: ContextCode) -> None:
        """Record the outcome of a listener call."""
        end_ms = self._now_ms()
        cost_ms = _cost_ms(end_ms - begun.begin_ms, len(begun.messages))
        with self._harmless():
            for each in begun.messages:
                self._add(
                    TraceRecord(
                        TraceType.SUB_AFTER,
                        each.msg_id,
                        timestamp_ms=end_ms,
                        group=self._group,
                        request_id=begun.request_id,
                        cost_ms=cost_ms,
                        is_success=code == SUCCESS,
                        keys=each.properties.get(props.KEYS, ""),
                        context_code=code,
                    )
                )

    async def close(self) -> None:
        """Send the waiting records, within the timeout of one message, and end."""
        self._is_closing = True
        self._wake.set()
        self._full.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=_SEND_TIMEOUT_S)
            for task in late:
                task.cancel()
                await asyncio.wait([task])
        self._drop(len(self._waiting), "the client is closed")
        self._waiting.clear()
        if self.dropped:
            logger.warning("group %s: %d trace records were dropped", self._group, self.dropped)

    @contextlib.contextmanager
    def _harmless(self) -> Iterator[None]:
        """Log a defect of the trace instead of raising it in a send or a listener."""
        try:
            yield
        except Exception:
            logger.exception("group %s: a trace record is dropped", self._group)
            self.dropped += 1

    def _add_sent(
        self,
        trace_type: TraceType,
        msg_id: str,
        message: Message | MessageExt,
        topic: str,
        broker_address: str,
        **more: Any,
    ) -> None:
        record = TraceRecord(
            trace_type,
            msg_id,
            group=self._group,
            topic=without_namespace(self._namespace, topic),
            tags=message.properties.get(props.TAGS, ""),
            keys=message.properties.get(props.KEYS, ""),
            store_host=broker_address,
            **more,
        )
        self._add(record)

    def _add(self, record: TraceRecord) -> None:
        if self._is_closing or len(self._waiting) >= MAX_TRACE_QUEUE:
            self._drop(1, "too many are waiting, or the client is closed")
            return
        self._waiting.append(record)
        self._wake.set()
        if len(self._waiting) >= MAX_TRACE_BATCH:
            self._full.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def _drop(self, count: int, reason: str) -> None:
        if count and not self.dropped:
            logger.warning("group %s: trace records are dropped: %s", self._group, reason)
        self.dropped += count

    async def _run(self) -> None:
        async with self._make_producer() as producer:
            while self._waiting or not self._is_closing:
                await self._wake.wait()
                self._wake.clear()
                await wait_at_most(_LINGER_S, self._full)
                if not self._is_closing:
                    self._full.clear()
                while self._waiting:
                    await self._send(producer)

    async def _send(self, producer: "Producer") -> None:
        """Send the first waiting records, as many as one message can hold."""
        body, keys, count = bytearray(), dict[str, None](), 0
        keys_bytes = 0
        while self._waiting and count < MAX_TRACE_BATCH:
            record = self._waiting[0]
            encoded = encode(record)
            more = [key for key in keys_of(record) if key not in keys]
            keys_bytes += sum(len(key.encode("utf-8", "replace")) + 1 for key in more)
            is_full = len(body) + len(encoded) > MAX_TRACE_BYTES
            if count and (is_full or keys_bytes > MAX_TRACE_KEYS_BYTES):
                break
            if is_full or keys_bytes > MAX_TRACE_KEYS_BYTES:
                # Its message id still finds it.
                more = [record.msg_id]
            body += encoded
            keys.update(dict.fromkeys(more))
            self._waiting.popleft()
            count += 1
        try:
            message = Message(self.topic, bytes(body), keys=list(keys))
            await producer.send(message, timeout_s=_SEND_TIMEOUT_S)
        except asyncio.CancelledError:
            self._drop(count, "the client is closed")
            raise
        except RocketLensError as error:
            self._drop(count, str(error))
        except Exception as error:
            # A defect must not end this task: later records are still sent.
            logger.exception("group %s: a trace message cannot be sent", self._group)
            self._drop(count, str(error))


def trace_writer(
    group: str, make_producer: "Callable[[], Producer]", *, trace: bool | str, namespace: str
) -> TraceWriter | None:
    """Return the trace writer of a group's client; None if ``trace`` is off.

    :raises BadInput: if ``trace`` is not a valid topic name.
    """
    topic = trace_topic_of(trace=trace)
    if topic is None:
        return None
    return TraceWriter(topic, make_producer, group=group, namespace=namespace)


def _cost_ms(took_ms: int, count: int) -> int:
    """Return the milliseconds of each message, as Java's int: the clock may have jumped."""
    return min(max(0, took_ms) // max(1, count), limits.MAX_INT)


def _type_of(message: Message) -> str:
    given = message.properties
    if given.get(props.TRANSACTION_PREPARED, "").lower() == "true":
        return _HALF
    if message.delay_level or props.TIMER_NAMES & given.keys():
        return _DELAY
    return _NORMAL
