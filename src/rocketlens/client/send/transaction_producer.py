"""``rocketlens.TransactionProducer``, which sends messages in transactions.

A half message that is stored, but not durably, is rolled back. If the local transaction raises, or
the end (37, one-way) is lost, the message stays open until the broker asks again (39) and ``check``
decides. RocketMQ's proxy always loses the end: it does not know the message before the broker has
asked. One warning is logged then. Source: ``DefaultMQProducerImpl``.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from rocketlens.client.connect.connection_settings import arguments_of, takes_settings
from rocketlens.client.send.message import Message, check_message
from rocketlens.client.send.producer import Producer, SendingSettings
from rocketlens.client.send.send_result import SendResult, SendStatus
from rocketlens.errors import BadInput, FieldError, MessageIllegal, RecordError, RocketLensError
from rocketlens.formats.commitlog_record import decode, message_of
from rocketlens.model import properties as props
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.net.channel import Channel, Handler
from rocketlens.net.pace import WorkThreads
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import messages as commands

logger: Final = logging.getLogger("rocketlens.client")

CHECKS_HELD: Final = 2000
"""Checks that wait for ``check``; more are dropped, and brokers repeat them. RocketMQ: 2000."""


_OF_A_PROXY: Final = (
    "%s is a RocketMQ proxy, which forwards the end of a transaction only after its broker has "
    "asked: messages are delivered late, as `check` decides"
)


class LocalTransactionState(Enum):
    """The outcome of a local transaction. Values are RocketMQ's names."""

    COMMIT = "COMMIT_MESSAGE"
    """The message is delivered."""
    ROLLBACK = "ROLLBACK_MESSAGE"
    """The message is dropped."""
    UNKNOWN = "UNKNOW"
    """The broker asks again later."""


_ENDS: Final = {
    LocalTransactionState.COMMIT: commands.COMMIT,
    LocalTransactionState.ROLLBACK: commands.ROLLBACK,
    LocalTransactionState.UNKNOWN: commands.UNKNOWN,
}

Execute = Callable[[Message], LocalTransactionState | Awaitable[LocalTransactionState]]
"""A local transaction; a plain function runs in a thread, an async one in the event loop."""
Check = Callable[[MessageExt], LocalTransactionState | Awaitable[LocalTransactionState]]
"""Returns the outcome of a message's local transaction; called like `Execute`."""


class TransactionSendResult(Struct, frozen=True):
    """The position of the half message, and the outcome of the local transaction."""

    send_result: SendResult
    local_transaction_state: LocalTransactionState


class TransactionSettings(SendingSettings, frozen=True, kw_only=True):
    """Additional settings of a transaction producer."""

    check: Check
    """Returns the outcome of a transaction whose end the broker does not have."""
    topics: Iterable[str] = ()
    """Their brokers get a heartbeat at the start, so they can check earlier messages."""
    check_threads: int = 4
    """The number of concurrent plain ``check`` functions."""

    def __post_init__(self) -> None:
        SendingSettings.__post_init__(self)
        if self.check_threads < 1:
            raise BadInput(f"check_threads is {self.check_threads}: give 1 or more")


class TransactionProducer(Producer):
    """Sends messages that are delivered only if a local transaction commits.

    ::

        async def book(message): ...        # returns a LocalTransactionState
        async def check(message): ...       # called if a broker does not know the outcome

        async with rocketlens.TransactionProducer(group="orders", check=check) as producer:
            await producer.send_in_transaction(Message("Orders", b"..."), book)

    A broker may ask any producer of the group about any of its messages, so ``check`` must decide
    from stored data, not from this process's memory. Brokers of ``topics`` learn of this producer
    at its start, so that they can ask about messages of an earlier one. ``check_threads`` is the
    number of concurrent plain ``check`` functions. Other arguments are those of `Producer`.
    """

    @takes_settings(TransactionSettings)
    def __init__(self, settings: TransactionSettings) -> None:
        handlers: Mapping[int, Handler] = {RequestCode.CHECK_TRANSACTION_STATE: self._hold_check}
        super().__init__(**arguments_of(settings, SendingSettings), handlers=handlers)
        self._check: Final = settings.check
        self._first_topics: Final = tuple(settings.topics)
        self._check_threads: Final = settings.check_threads
        self._calls: Final = WorkThreads(settings.check_threads, "listener")
        self._local_calls: Final = WorkThreads(settings.check_threads, "listener")
        self._held: Final[asyncio.Queue[_HeldCheck]] = asyncio.Queue(CHECKS_HELD)
        self._waiting: Final[set[tuple[str, int]]] = set()
        self._workers: Final[set[asyncio.Task[None]]] = set()
        self._has_warned = False

    async def start(self) -> None:
        """Start to send heartbeats, and to answer the checks of brokers."""
        await super().start()
        if not self._workers:
            for _ in range(self._check_threads):
                self._workers.add(asyncio.create_task(self._answer_checks()))
        for topic in self._first_topics:
            try:
                await self.write_queues(topic)
            except RocketLensError as error:
                logger.warning("brokers of topic %s do not know this producer: %s", topic, error)

    async def close(self) -> None:
        """Stop answering checks, unregister, and close all connections."""
        for worker in self._workers:
            worker.cancel()
        if self._workers:
            await asyncio.wait(self._workers)
        self._workers.clear()
        self._calls.close()
        self._local_calls.close()
        await super().close()

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout_s: float | None = None
    ) -> TransactionSendResult:
        """Send a half message, execute the local transaction, and commit or roll back the message.

        If the broker does not get the outcome, it calls ``check`` later.

        :raises BadInput: if the message is delayed.
        :raises Exception: if ``execute`` raises it; the message stays open. Otherwise as
            `Producer.send`.
        """
        check_message(message)
        if message.delay_level or props.TIMER_NAMES & message.properties.keys():
            raise MessageIllegal("a message in a transaction cannot be delayed: send it plainly")
        message.put(props.TRANSACTION_PREPARED, "true")
        message.put(props.PRODUCER_GROUP, self.group)
        result = await self.send(message, timeout_s=timeout_s)
        state = LocalTransactionState.UNKNOWN
        try:
            if result.send_status is SendStatus.SEND_OK:
                state = _state_of(await self._call_user(self._local_calls, execute, message))
            else:
                # The half message may be lost, so the local transaction must not run.
                state = LocalTransactionState.ROLLBACK
        finally:
            await self._end(message, result, state)
        return TransactionSendResult(result, state)

    async def _end(
        self, message: Message, result: SendResult, state: LocalTransactionState
    ) -> None:
        """End a half message. A failure is logged; the broker asks later."""
        request = commands.EndTransactionRequest(
            producer_group=self.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=OffsetMessageId.decode(result.offset_msg_id).physical_offset,
            commit_or_rollback=_ENDS[state],
            from_transaction_check=False,
            msg_id=result.msg_id,
            transaction_id=result.transaction_id,
            topic=self._full_topic(message.topic),
            broker_name=result.message_queue.broker_name,
        )
        broker_name = result.message_queue.broker_name
        try:
            route = await self._write_route(self._full_topic(message.topic))
            broker = route.brokers.get(broker_name)
            if broker is None or broker.master is None:
                logger.warning("transaction %s: not ended, its broker has no master", result.msg_id)
                return
            if broker.master in self._cluster.name_servers and not self._has_warned:
                self._has_warned = True
                logger.warning(_OF_A_PROXY, broker.master)
            await self._send_end(message, request, state, broker.master)
        except RocketLensError as error:
            logger.warning("transaction %s: its end was not sent: %s", result.msg_id, error)

    async def _send_end(
        self,
        message: Message | MessageExt,
        request: commands.EndTransactionRequest,
        state: LocalTransactionState,
        address: str,
    ) -> None:
        await self._cluster.tell(address, commands.END_TRANSACTION, request)
        if self._trace is not None:
            self._trace.transaction_ended(
                message,
                request.msg_id or "",
                state=state.value,
                broker_address=address,
                transaction_id=request.transaction_id or "",
                from_check=request.from_transaction_check,
            )

    def _hold_check(self, command: RemotingCommand, channel: Channel) -> None:
        """Queue a broker's check for ``check``."""
        try:
            request = commands.CHECK_TRANSACTION_STATE.request.decode(command.ext_fields)
            message = message_of(decode(command.body, check_crc=False))
        except (FieldError, RecordError) as error:
            logger.warning("a check of %s cannot be read: %s", channel.address, error)
            return
        key = channel.address, request.commit_log_offset
        if message.properties.get(props.PRODUCER_GROUP) != self.group or key in self._waiting:
            return
        try:
            self._held.put_nowait(_HeldCheck(request, message, channel.address))
        except asyncio.QueueFull:
            logger.warning("a check of %s is dropped: %d wait", channel.address, CHECKS_HELD)
        else:
            self._waiting.add(key)

    async def _answer_checks(self) -> None:
        while True:
            held = await self._held.get()
            try:
                await self._answer_check(held)
            except Exception:
                # A defect must not end this worker: later checks are still answered.
                logger.exception("a check of %s was not answered", held.address)
            finally:
                self._waiting.discard((held.address, held.request.commit_log_offset))

    async def _answer_check(self, held: "_HeldCheck") -> None:
        state = LocalTransactionState.UNKNOWN
        key = held.message.properties.get(props.UNIQUE_KEY) or held.message.offset_msg_id
        try:
            state = _state_of(await self._call_user(self._calls, self._check, held.message))
        except Exception:
            logger.exception("transaction %s: its check failed; it stays open", key)
        request = commands.EndTransactionRequest(
            producer_group=self.group,
            tran_state_table_offset=held.request.tran_state_table_offset,
            commit_log_offset=held.request.commit_log_offset,
            commit_or_rollback=_ENDS[state],
            from_transaction_check=True,
            msg_id=key,
            transaction_id=held.request.transaction_id,
            topic=held.request.topic,
        )
        try:
            await self._send_end(held.message, request, state, held.address)
        except RocketLensError as error:
            logger.warning("transaction %s: its end was not sent: %s", key, error)

    async def _call_user(
        self, threads: WorkThreads, function: Callable[[Any], object], argument: object
    ) -> object:
        if inspect.iscoroutinefunction(function):
            return await function(argument)
        result = await threads.call(lambda: function(argument))
        return await result if inspect.isawaitable(result) else result


class _HeldCheck(Struct, frozen=True):
    request: commands.CheckTransactionStateRequest
    message: MessageExt
    address: str


def _state_of(result: object) -> LocalTransactionState:
    """Return the state; UNKNOWN for any other object, as RocketMQ does for null."""
    if isinstance(result, LocalTransactionState):
        return result
    logger.warning("a transaction's function returned %.80r, no LocalTransactionState", result)
    return LocalTransactionState.UNKNOWN
