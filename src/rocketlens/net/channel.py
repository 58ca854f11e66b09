"""One connection with its socket: both ends may ask, and both answer.

What arrives is handled at once, in order, on the event loop: a handler that can answer returns
its :class:`Response`; one that must wait for something gives an awaitable, or None and responds
itself later. Answers that are ready together leave in one write.

A connection has its turn for a few milliseconds or some hundred requests. What it sent beyond that
waits as bytes, nothing more is read of it, and it gets its next turn after all others that wait
(:meth:`ChannelGroup.wait_turn`). One whose last turn was enough for all it had sent has the next at
once when more comes; others only as long as there is time in that turn of the event loop.

Once a peer is behind in reading, no more of what it sends is read or handled until it has caught
up, so a peer that asks without reading costs one write buffer; if its answers were under way
already, they are held up to a cap, and beyond that the connection ends.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Final, NamedTuple, cast

from rocketlens import limits
from rocketlens.errors import (
    BadInput,
    CallTimeout,
    ConnectionLost,
    ProtocolError,
    RocketLensError,
)
from rocketlens.model.message import Host
from rocketlens.net.group import ChannelGroup
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import ONE_WAY_FLAG, RemotingCommand
from rocketlens.wire.connection import (
    OVERLOAD_REMARK,
    Connection,
    ConnectionFailed,
    Event,
    RequestReceived,
    RequestRefused,
    ResponseReceived,
)

logger: Final = logging.getLogger("rocketlens.net")

NO_FIELDS: Final[dict[str, str]] = {}
"""Never changed."""

_JOINED_BYTES: Final = 64 * 1024
"""Answers of more bytes than this together are written one by one, which saves a copy."""


REQUESTS_AT_ONCE: Final = 16
"""Requests that are parsed before the first of them is handled."""


class Response(NamedTuple):
    """What a request is answered with; as short as ``Response()`` for plain success."""

    code: int = ResponseCode.SUCCESS
    ext_fields: dict[str, str] = NO_FIELDS
    body: bytes = b""
    remark: str | None = None


Answer = Response | Awaitable[Response | None] | None
Handler = Callable[[RemotingCommand, "Channel"], Answer]
"""Answers requests of one code; whatever it raises becomes an answer, too (`failure`)."""


class Waiting:
    """Who waits for an answer, and until when."""

    __slots__ = ("future", "timer")

    def __init__(self, future: asyncio.Future[RemotingCommand]) -> None:
        self.future: Final = future
        self.timer: asyncio.TimerHandle | None = None

    def fail(self, error: RocketLensError) -> None:
        """Wait no longer."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_exception(error)


class Channel(asyncio.Protocol):
    """One connection, as its server or client sees it; hashed by identity."""

    def __init__(
        self,
        group: ChannelGroup,
        handlers: Mapping[int, Handler],
        connection: Connection[Waiting],
        address: str = "",
    ) -> None:
        self.group: Final = group
        self.handlers: Final = handlers
        self.connection: Final = connection
        self.address = address
        """The peer, as ``ip:port``; for a client what it was told to dial."""
        self.is_open = False
        self.last_active_s = group.now_s
        self.events_received = 0
        self.swept: tuple[int, float, int] = (-1, 0.0, 0)
        """For the sweep: events received and time when a frame was first seen incomplete; bytes
        unsent."""
        self.makes_room = False
        """Whether it was ended so that another can be taken, and does not count any more."""
        self.counted_bytes = 0
        """Its part of `ChannelGroup.buffered`."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._corked = False
        self._flush_is_due = False
        self._reason: str | None = None
        self._backlog: deque[Event] = deque()
        """What was parsed and not handled: fewer than REQUESTS_AT_ONCE."""
        self._done_later: deque[tuple[RemotingCommand, asyncio.Future[Response | None]]] = deque()
        """Requests whose handler came to an end after a wait, and that are to be answered."""
        self.is_light = False
        """Whether all that it sent until its last turn was handled in that turn."""
        self.is_new = True
        """Whether it has had no turn yet."""
        self._waits_turn = False
        self._worked_on_bytes = 0
        """Of the bodies of requests whose handlers have not come to an end."""
        self._is_stopped = False
        self._writable: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"Channel({self.address})"

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self.group.bounds.unsent_pause_bytes)
        if not self.address:
            peer = transport.get_extra_info("peername")
            self.address = str(Host(peer[0], peer[1])) if peer else "unknown"
        self.is_open = True
        self.last_active_s = self.group.now_s
        self.group.opened(self)

    def data_received(self, chunk: bytes) -> None:
        """Handle what was received, as much as one turn allows."""
        self.last_active_s = self.group.now_s
        if self._waits_turn or self._must_wait:
            self.connection.receive(chunk, 0)
        elif self.is_light or self.group.has_time():
            self._take(chunk)
        else:
            self.connection.receive(chunk, 0)
            self._wait_turn()
        if self.counted_bytes or self.connection.held_bytes:
            self.group.count_bytes(self)

    def pause_writing(self) -> None:
        """Read and handle no more: the peer does not read either."""
        self._writable = asyncio.Event()
        self._read_or_not()

    def resume_writing(self) -> None:
        """Go on where it was left."""
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        if not self._waits_turn:
            self.take_turn()

    def take_turn(self) -> None:
        """Go on with what waits, for one turn; called by the group when it is this one's."""
        self._waits_turn = False
        if not self.is_open:
            return
        if self._done_later:
            self._answer_done()
        if not self._waits_turn and not self._must_wait:
            self._take(b"")
        self._read_or_not()

    def connection_lost(self, error: Exception | None) -> None:
        """End: whoever still waits for an answer gets ConnectionLost."""
        self.is_open = False
        if self._reason is None:
            self._reason = "the connection was closed by the other end"
            if error is not None:
                self._reason = f"the connection broke: {error}"
        if self._waits_turn and not self._is_stopped:
            self._serve_one_way()
        waiting = self.connection.close()
        # Those of the backlog were never counted.
        uncounted = sum(type(event) is RequestReceived for event in self._backlog)
        self.group.in_flight -= self.connection.unanswered - uncounted
        self._backlog.clear()
        for _, done in self._done_later:
            _leave(done)
        self._done_later.clear()
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        for each in waiting:
            each.fail(ConnectionLost(self.address, self._reason))
        self.group.closed(self)

    def _serve_one_way(self) -> None:
        """Handle what came before the end and needs no answer, as the last commit of a consumer."""
        while True:
            while self._backlog:
                event = self._backlog.popleft()
                if type(event) is RequestReceived:
                    self.group.in_flight += 1
                    if event.command.flag & ONE_WAY_FLAG:
                        self._serve(event.command)
            if not self.connection.has_more:
                return
            self._backlog.extend(self.connection.receive(b"", REQUESTS_AT_ONCE))

    # What handlers and callers use.

    @property
    def is_encrypted(self) -> bool:
        """Return whether TLS is spoken."""
        return (
            self._transport is not None and self._transport.get_extra_info("ssl_object") is not None
        )

    @property
    def is_behind(self) -> bool:
        """Return whether the peer has yet to read much of what was sent to it."""
        return self._writable is not None

    @property
    def is_held_up(self) -> bool:
        """Return whether what it sent waits here, rather than that it is slow to send."""
        return self._waits_turn or self._must_wait or self.connection.has_more

    @property
    def _must_wait(self) -> bool:
        """Whether nothing more of it is to be handled now."""
        return (
            self._writable is not None
            or self._is_stopped
            or self._worked_on_bytes > self.group.bounds.worked_on_bytes
        )

    @property
    def local_address(self) -> str:
        """The address of this end, as ``ip:port``."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(Host(name[0], name[1])) if name else "unknown"

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the peer to read."""
        if self._transport is None:
            return self._unsent_bytes
        return self._unsent_bytes + self._transport.get_write_buffer_size()

    def respond(self, request: RemotingCommand, response: Response) -> None:
        """Answer a request, once. Nothing happens if it was one-way, or the channel has ended."""
        if not self.is_open:
            return
        code, ext_fields, body, remark = response
        try:
            sent = self.connection.respond(request, code, ext_fields, body, remark=remark)
        except BadInput as error:
            logger.warning("request %d of %s: %s", request.code, self.address, error)
            words = "the answer cannot be sent: over the limit, or no Unicode"
            sent = self.connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=words)
        self.group.in_flight -= 1
        if sent:
            self._write(sent)

    def request(
        self,
        code: int,
        ext_fields: dict[str, str] = NO_FIELDS,
        body: bytes = b"",
        *,
        timeout_s: float,
    ) -> asyncio.Future[RemotingCommand]:
        """Ask the peer, and wait for its answer, whatever its code.

        The future fails with CallTimeout, or ConnectionLost.

        :raises BadInput: when the request cannot be written, or too many wait already.
        :raises ConnectionLost: when the channel has ended.
        """
        if not self.is_open:
            raise ConnectionLost(self.address, self._reason or "the connection is not open")
        waiting = Waiting(self._loop.create_future())
        opaque, sent = self.connection.request(code, ext_fields, body, context=waiting)
        waiting.timer = self._loop.call_later(timeout_s, self._expire, opaque, timeout_s)
        self._write(sent)
        return waiting.future

    def tell(self, code: int, ext_fields: dict[str, str] = NO_FIELDS, body: bytes = b"") -> None:
        """Send a request that is not answered (one-way).

        :raises BadInput: when it cannot be written.
        :raises ConnectionLost: when the channel has ended.
        """
        if not self.is_open:
            raise ConnectionLost(self.address, self._reason or "the connection is not open")
        self._write(self.connection.one_way(code, ext_fields, body))

    async def writable(self) -> None:
        """Wait until the peer has read most of what was sent, or the channel ends."""
        if self._writable is not None:
            await self._writable.wait()

    def pause(self) -> None:
        """Read and handle nothing more, for good; what is under way is still answered."""
        self._is_stopped = True
        self._read_or_not()

    def close(self, reason: str = "the connection was closed by this end") -> None:
        """Send what is unsent, then end."""
        if self._transport is None or self._transport.is_closing():
            return
        self._reason = reason
        self._flush()
        self._transport.close()

    def abort(self, reason: str) -> None:
        """End at once; what is unsent is lost."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    # How it is done.

    def _take(self, chunk: bytes) -> None:
        """Handle requests in order, until the turn is over or the peer is seen to be behind."""
        backlog, connection = self._backlog, self.connection
        events = connection.receive(chunk, 0 if backlog else REQUESTS_AT_ONCE)
        if not events and not backlog:
            return
        self.events_received += len(events)
        backlog.extend(events)
        bounds = self.group.bounds
        ends_at = perf_counter() + (bounds.first_turn_s if self.is_new else bounds.turn_s)
        left = bounds.turn_requests
        self.is_new = self.is_light = False
        self._corked = True
        try:
            while True:
                while backlog:
                    event = backlog.popleft()
                    if type(event) is RequestReceived:
                        self.group.in_flight += 1
                        self._serve(event.command)
                    else:
                        self._take_other(event)
                    if self._unsent_bytes > _JOINED_BYTES:
                        self._flush()
                    if self._must_wait:
                        self._read_or_not()
                        return
                    left -= 1
                    if left <= 0 or perf_counter() >= ends_at:
                        self.is_light = not backlog and not connection.has_more
                        if not self.is_light:
                            self._wait_turn()
                        return
                if not connection.has_more:
                    self.is_light = True
                    return
                events = connection.receive(b"", REQUESTS_AT_ONCE)
                self.events_received += len(events)
                backlog.extend(events)
        finally:
            self._corked = False
            if self._unsent:
                self._flush()

    def _wait_turn(self) -> None:
        """Let others have their turn, and go on with what is left afterwards."""
        if not self._waits_turn:
            self._waits_turn = True
            self.group.wait_turn(self)
            self._read_or_not()

    def _read_or_not(self) -> None:
        """Read more only if what was read can be handled."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._waits_turn or self._must_wait:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _take_other(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            waiting: Waiting = event.context
            if waiting.timer is not None:
                waiting.timer.cancel()
            if not waiting.future.done():
                waiting.future.set_result(event.command)
        elif isinstance(event, RequestRefused):
            if event.reply:
                self._write(event.reply)
        elif isinstance(event, ConnectionFailed):
            logger.debug("%s: %s", self.address, event.error)
            self.close(f"the other end does not speak the protocol: {event.error}")

    def _serve(self, command: RemotingCommand) -> None:
        handler = self.handlers.get(command.code)
        if handler is None:
            self.respond(command, _unsupported(command.code))
            return
        if self.group.in_flight > self.group.bounds.requests_in_flight:
            self.respond(command, BUSY)
            return
        try:
            answer = handler(command, self)
        except Exception as error:  # noqa: BLE001 - whatever it is, only this request fails
            self.respond(command, failure(command, error))
            return
        if type(answer) is Response:
            self.respond(command, answer)
        elif answer is None:
            if command.flag & ONE_WAY_FLAG:
                self._done(command)
        elif asyncio.isfuture(answer):
            self._worked_on_bytes += len(command.body)
            self.group.awaited.add(answer)
            answer.add_done_callback(lambda done: self._answer_later(command, done))
        else:
            self._worked_on_bytes += len(command.body)
            task = self._loop.create_task(_result_of(cast("Awaitable[Response | None]", answer)))
            self.group.tasks.add(task)
            task.add_done_callback(lambda done: self._answer_later(command, done))

    def _answer_later(
        self, command: RemotingCommand, done: asyncio.Future[Response | None]
    ) -> None:
        """Answer a request whose handler has come to an end; in a turn of this connection's."""
        self.group.tasks.discard(done)
        self.group.awaited.discard(done)
        if not self.is_open:
            _leave(done)
            return
        had_to_wait = self._must_wait
        self._worked_on_bytes -= len(command.body)
        if had_to_wait and not self._must_wait:
            self._wait_turn()
        if not self._done_later and self.group.has_time():
            self._answer_one(command, done)
        else:
            self._done_later.append((command, done))
            self._wait_turn()

    def _answer_done(self) -> None:
        ends_at = perf_counter() + self.group.bounds.turn_s
        while self._done_later:
            self._answer_one(*self._done_later.popleft())
            if self._done_later and perf_counter() >= ends_at:
                self._wait_turn()
                return

    def _answer_one(self, command: RemotingCommand, done: asyncio.Future[Response | None]) -> None:
        try:
            response = done.result()
        except asyncio.CancelledError:
            response = STOPPING
        except Exception as error:  # noqa: BLE001 - whatever it is, only this request fails
            response = failure(command, error)
        if response is not None:
            self.respond(command, response)
        elif command.flag & ONE_WAY_FLAG:
            self._done(command)

    def _done(self, command: RemotingCommand) -> None:
        if self.is_open:
            self.connection.done(command)
            self.group.in_flight -= 1

    def _expire(self, opaque: int, timeout_s: float) -> None:
        waiting = self.connection.forget(opaque)
        if waiting is not None:
            waiting.fail(CallTimeout(self.address, f"no answer in {timeout_s:g} s"))

    def _write(self, sent: bytes) -> None:
        """Send with whatever else is ready in this turn of the event loop."""
        self._unsent.append(sent)
        self._unsent_bytes += len(sent)
        if not self._corked and not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        unsent = self._unsent
        transport = self._transport
        if not unsent or transport is None:
            return
        sent_bytes = self._unsent_bytes
        if transport.is_closing():
            pass
        elif len(unsent) == 1:
            transport.write(unsent[0])
        elif sent_bytes <= _JOINED_BYTES:
            transport.write(b"".join(unsent))
        else:
            transport.writelines(unsent)
        unsent.clear()
        self._unsent_bytes = 0
        if sent_bytes > _JOINED_BYTES:
            self.group.count_bytes(self)
        if self._writable is not None:
            behind = transport.get_write_buffer_size()
            if behind > self.group.bounds.unsent_bytes:
                logger.warning("%s does not read: %d bytes wait for it", self.address, behind)
                self.abort(f"{behind} bytes waited for the other end to read them")


BUSY: Final = Response(ResponseCode.SYSTEM_BUSY, remark=OVERLOAD_REMARK)
STOPPING: Final = Response(ResponseCode.SYSTEM_ERROR, remark="the server is stopping")


def failure(command: RemotingCommand, error: Exception) -> Response:
    """Make the answer to a request whose handler raised ``error``.

    An error of this package says itself what is wrong; anything else is a defect, and logged.
    """
    if isinstance(error, ProtocolError):
        return Response(error.code, remark=error.remark[: limits.MAX_REMARK_CHARACTERS])
    if isinstance(error, RocketLensError):
        code = ResponseCode.SYSTEM_ERROR if error.code is None else error.code
        return Response(code, remark=str(error)[: limits.MAX_REMARK_CHARACTERS])
    logger.error("request %d could not be handled", command.code, exc_info=error)
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Response(ResponseCode.SYSTEM_ERROR, remark=words[: limits.MAX_REMARK_CHARACTERS])


def _unsupported(code: int) -> Response:
    return Response(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {code} not supported"
    )


def _leave(done: asyncio.Future[Response | None]) -> None:
    """Take note of how a handler ended, so that the loop logs no failure: nobody is to be told."""
    if not done.cancelled():
        done.exception()


async def _result_of(answer: Awaitable[Response | None]) -> Response | None:
    return await answer
