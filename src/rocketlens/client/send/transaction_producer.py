"""Sends messages in transactions: ``rocketlens.TransactionProducer``.

====================================  ==========================================================
what                                  then
====================================  ==========================================================
the half message is not stored        ``send_in_transaction`` raises what ``Producer.send`` does
it is stored, but not durably         it is rolled back
the local transaction returns         it is committed or rolled back, or stays open
the local transaction raises          it stays open, and the caller gets the error
the end is lost, or it stays open     the broker asks again (39): ``check`` decides
it is sent through a proxy            its end is lost: RocketMQ's proxy knows it only once the
                                      broker has asked; a warning says so, once
====================================  ==========================================================

Ends (37) are one-way, from brokers that ask, too. Source: ``DefaultMQProducerImpl``.
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
"""Checks that wait for ``check``; further ones are dropped: brokers ask again. RocketMQ: 2000."""


_OF_A_PROXY: Final = (
    "%s is a RocketMQ proxy, which passes on no end of a transaction before its broker has asked: "
    "messages are delivered late, and as `check` says"
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
"""Returns what became of the local transaction of a message; called like `Execute`."""


class TransactionSendResult(Struct, frozen=True):
    """Where the half message was stored, and the outcome of the local transaction."""

    send_result: SendResult
    local_transaction_state: LocalTransactionState


class TransactionSettings(SendingSettings, frozen=True, kw_only=True):
    """The settings of a producer of transactions beside these."""

    check: Check
    """Decides what became of a transaction whose end a broker lacks."""
    topics: Iterable[str] = ()
    """Brokers of these get a heartbeat at the start: they can ask about earlier messages."""
    check_threads: int = 4
    """How many plain ``check`` functions run at once."""

    def __post_init__(self) -> None:
        SendingSettings.__post_init__(self)
        if self.check_threads < 1:
            raise BadInput(f"check_threads is {self.check_threads}: give 1 or more")


class TransactionProducer(Producer):
    """Sends messages that are delivered only if a local transaction commits.

    ::

        async def book(message): ...        # returns a LocalTransactionState
        async def check(message): ...       # asked when a broker has not heard of the end

        async with rocketlens.TransactionProducer(group="orders", check=check) as producer:
            await producer.send_in_transaction(Message("Orders", b"..."), book)

    Any producer of the group may be asked about any message of the group, so ``check`` must decide
    by what is stored, not by what this process remembers. ``topics``: brokers of these are told of
    this producer at its start, so that they can ask it about messages of an earlier one. Other
    arguments as of `Producer`; ``check_threads`` is how many plain ``check`` functions run at once.
    """

    @takes_settings(TransactionSettings)
    def __init__(self, settings: TransactionSettings) -> None:
        handlers: Mapping[int, Handler] = {RequestCode.CHECK_TRANSACTION_STATE: self._asked}
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
                logger.warning("brokers of topic %s are not told of this one: %s", topic, error)

    async def close(self) -> None:
        """End the answers to checks, unregister, and close all connections."""
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
        """Send a half message, execute the local transaction, and end the message as it ended.

        If the end does not reach the broker, ``check`` is asked later.

        :raises BadInput: if the message is delayed.
        :raises Exception: what ``execute`` raises; the message stays open then. Otherwise as
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
                state = _state_of(await self._called(self._local_calls, execute, message))
            else:
                # It may be lost, so the local transaction must not happen.
                state = LocalTransactionState.ROLLBACK
        finally:
            await self._end(message, result, state)
        return TransactionSendResult(result, state)

    async def _end(
        self, message: Message, result: SendResult, state: LocalTransactionState
    ) -> None:
        """End a half message; a failure is logged: the broker asks later."""
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
                logger.warning("transaction %s: no end, broker is away", result.msg_id)
                return
            if broker.master in self._cluster.name_servers and not self._has_warned:
                self._has_warned = True
                logger.warning(_OF_A_PROXY, broker.master)
            await self._tell_end(message, request, state, broker.master)
        except RocketLensError as error:
            logger.warning("transaction %s: its end is not sent: %s", result.msg_id, error)

    async def _tell_end(
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

    def _asked(self, command: RemotingCommand, channel: Channel) -> None:
        """Hold a check of a broker until ``check`` is called."""
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
                logger.exception("a check of %s was not answered", held.address)
            finally:
                self._waiting.discard((held.address, held.request.commit_log_offset))

    async def _answer_check(self, held: "_HeldCheck") -> None:
        state = LocalTransactionState.UNKNOWN
        key = held.message.properties.get(props.UNIQUE_KEY) or held.message.offset_msg_id
        try:
            state = _state_of(await self._called(self._calls, self._check, held.message))
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
            await self._tell_end(held.message, request, state, held.address)
        except RocketLensError as error:
            logger.warning("transaction %s: its end is not sent: %s", key, error)

    async def _called(
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
    """Return a state; UNKNOWN for anything else, as RocketMQ does for null."""
    if isinstance(result, LocalTransactionState):
        return result
    logger.warning("a transaction's function returned %.80r, no LocalTransactionState", result)
    return LocalTransactionState.UNKNOWN
