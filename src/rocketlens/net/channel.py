"""One connection. Both ends send requests and responses.

Received commands are handled at once, in order, on the event loop. A handler returns its
:class:`Response`, or an awaitable, or None to respond later itself. Responses that are ready
together are sent in one write. If several requests wait, plain ones may be handled together
(:attr:`ChannelGroup.runs`).

A connection's turn lasts half a millisecond, or 128 requests. More bytes are kept and reading
pauses until its next turn, after all waiting connections (:meth:`ChannelGroup.wait_turn`);
:mod:`rocketlens.net.channel_state` has the states. While a peer is slow to read, no more of its
requests are read or handled, so it costs one write buffer. Responses in progress are kept up to a
bound, beyond which the connection is closed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Final, NamedTuple, cast

from rocketlens import limits
from rocketlens.errors import BadInput, CallTimeout, ConnectionLost, ProtocolError, RocketLensError
from rocketlens.model.message import Host
from rocketlens.net import channel_state as states
from rocketlens.net.channel_group import OUT_OF_RESOURCES, ChannelGroup, Waiting
from rocketlens.net.channel_state import CUT, EMPTY, LIGHT, NEXT, OPEN, QUEUED, STOPPED, TURN, Step
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

_JOINED_BYTES: Final = 16 * 1024
"""Larger responses are written one by one, without a copy, before more requests are handled: a
consumer that pulls eight queues at once consumes the first response meanwhile.
"""

REQUESTS_AT_ONCE: Final = 16
"""Requests that are parsed before the first of them is handled."""


logger: Final = logging.getLogger("rocketlens.net")

NO_FIELDS: Final[dict[str, str]] = {}
"""Must not be changed."""


class Response(NamedTuple):
    """A response to a request; ``Response()`` is success without fields."""

    code: int = ResponseCode.SUCCESS
    ext_fields: dict[str, str] = NO_FIELDS
    body: bytes = b""
    remark: str | None = None


BUSY: Final = Response(ResponseCode.SYSTEM_BUSY, remark=OVERLOAD_REMARK)
STOPPING: Final = Response(ResponseCode.SYSTEM_ERROR, remark="the server is stopping")


def failure(
    command: RemotingCommand, error: BaseException, may_warn: Callable[[str], bool]
) -> Response:
    """Return the response to a request whose handler raised ``error``, or was cancelled.

    An error of this package explains itself; any other is a defect, and logged. ``may_warn`` limits
    the rate of frequent log lines.
    """
    if isinstance(error, asyncio.CancelledError):
        return STOPPING
    if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
        if may_warn("requests"):
            logger.warning("request %d cannot be handled now: %s", command.code, error)
        remark = f"the server is out of files or memory, try again: {error.strerror}"
        return Response(ResponseCode.SYSTEM_BUSY, remark=remark)
    if isinstance(error, ProtocolError):
        return Response(error.code, remark=error.remark[: limits.MAX_REMARK_CHARACTERS])
    if isinstance(error, RocketLensError):
        code = ResponseCode.SYSTEM_ERROR if error.code is None else error.code
        return Response(code, remark=str(error)[: limits.MAX_REMARK_CHARACTERS])
    logger.error("request %d could not be handled", command.code, exc_info=error)
    remark = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Response(ResponseCode.SYSTEM_ERROR, remark=remark[: limits.MAX_REMARK_CHARACTERS])


def discard_result(done: asyncio.Future[Response | None]) -> None:
    """Retrieve a handler's result, so that the event loop logs no error."""
    if not done.cancelled():
        done.exception()


Answer = Response | Awaitable[Response | None] | None
_Later = asyncio.Future[Response | None]


class Channel(asyncio.Protocol):
    """One connection, of a server or a client; hashed by identity."""

    def __init__(
        self,
        group: ChannelGroup,
        handlers: Mapping[int, "Handler"],
        connection: Connection[Waiting],
        address: str = "",
    ) -> None:
        self.group: Final = group
        self.handlers: Final = handlers
        self.connection: Final = connection
        self.address = address
        """The peer, as ``ip:port``; for a client the address that it connected to."""
        self.state = states.CONNECTING
        self.is_open = False
        self.last_active_s = group.now_s
        self.events_received = 0
        self.swept: tuple[int, float, int] = (-1, 0.0, 0)
        """For the sweep: events received, when a frame was first incomplete, unsent bytes."""
        self.counted_bytes = 0
        """Its part of `ChannelGroup.buffered`."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._reason: str | None = None
        self._backlog: deque[Event] = deque()
        """Parsed events that are not handled yet: fewer than REQUESTS_AT_ONCE."""
        self._ended: deque[tuple[RemotingCommand, _Later]] = deque()
        """Requests whose handlers have ended, with responses to send."""
        self._worked_on_bytes = 0
        """Bytes of the bodies of requests whose handlers have not ended."""
        self._writable: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"Channel({self.address}, {self.state.name})"

    def _move(self, step: Step) -> None:
        self.state = NEXT[self.state][step]
        self.is_open = self.state in OPEN

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self.group.bounds.unsent_pause_bytes)
        if not self.address:
            peer = transport.get_extra_info("peername")
            self.address = str(Host(peer[0], peer[1])) if peer else "unknown"
        self._move(states.OPENED)
        self.last_active_s = self.group.now_s
        self.group.opened(self)

    def data_received(self, chunk: bytes) -> None:
        self.last_active_s = self.group.now_s
        if self.state in QUEUED or self._must_wait:
            self.connection.receive(chunk, 0)
        elif self.state is LIGHT or self.group.has_time():
            self._take(chunk)
        else:
            self.connection.receive(chunk, 0)
            self._wait_turn()
        if self.counted_bytes or self.connection.held_bytes:
            self.group.count_bytes(self)

    def pause_writing(self) -> None:
        """Stop reading and handling: the peer does not read."""
        self._writable = asyncio.Event()
        self._read_or_not()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        if self.is_open and self.state not in QUEUED:
            self._go_on()

    def take_turn(self) -> None:
        self._move(states.CALL)
        if self.is_open:
            self._go_on()

    def _go_on(self) -> None:
        if self._ended:
            self._answer_done()
        if self.state not in QUEUED and not self._must_wait:
            self._take(b"")
        self._read_or_not()

    def connection_lost(self, error: Exception | None) -> None:
        """Raise ConnectionLost in all callers that wait for a response."""
        if self._reason is None:
            self._reason = "the connection was closed by the other end"
            if error is not None:
                self._reason = f"the connection broke: {error}"
            if self.state in (states.NEW_WAITS, states.WAITS):
                self._serve_one_way()
        self._move(states.END)
        waiting = self.connection.close()
        # Requests in the backlog were never counted.
        uncounted = sum(type(event) is RequestReceived for event in self._backlog)
        self.group.in_flight -= self.connection.unanswered - uncounted
        self._backlog.clear()
        for _, done in self._ended:
            discard_result(done)
        self._ended.clear()
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        for each in waiting:
            each.fail(ConnectionLost(self.address, self._reason or "the connection is closed"))
        self.group.closed(self)

    def _serve_one_way(self) -> None:
        """Handle waiting requests that need no response, such as a consumer's last commit.

        Only for one turn: later requests of the closed connection are dropped.
        """
        ends_at = perf_counter() + self.group.bounds.turn_s
        for _ in range(self.group.bounds.turn_requests):
            if not self._backlog:
                self._backlog.extend(self.connection.receive(b"", REQUESTS_AT_ONCE))
            if not self._backlog or perf_counter() >= ends_at:
                return
            event = self._backlog.popleft()
            if type(event) is RequestReceived:
                self.group.in_flight += 1
                if event.command.flag & ONE_WAY_FLAG:
                    self._serve(event.command)

    @property
    def is_behind(self) -> bool:
        """True if many sent bytes wait for the peer to read them."""
        return self._writable is not None

    @property
    def is_held_up(self) -> bool:
        """True if received requests wait to be handled; False if the peer sends slowly."""
        return self.state in QUEUED or self._must_wait or self.connection.has_more

    @property
    def _must_wait(self) -> bool:
        """True if no more of its requests may be handled now."""
        return (
            self._writable is not None
            or self.state is STOPPED
            or self._worked_on_bytes > self.group.bounds.worked_on_bytes
        )

    @property
    def local_address(self) -> str:
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(Host(name[0], name[1])) if name else "unknown"

    @property
    def unsent_bytes(self) -> int:
        if self._transport is None:
            return self._unsent_bytes
        return self._unsent_bytes + self._transport.get_write_buffer_size()

    def respond(self, request: RemotingCommand, response: Response) -> None:
        """Respond to a request, once. No effect if it was one-way, or the channel is closed."""
        if not self.is_open:
            return
        code, ext_fields, body, remark = response
        try:
            sent = self.connection.respond(request, code, ext_fields, body, remark=remark)
        except BadInput as error:
            logger.warning("request %d of %s: %s", request.code, self.address, error)
            problem = "the answer cannot be sent: over the limit, or not valid Unicode"
            sent = self.connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=problem)
        self.group.in_flight -= 1
        if sent:
            self._write(sent)

    def set_aside(self, request: RemotingCommand) -> None:
        """Stop counting a request that waits for another connection, or for a message.

        It no longer counts against the bounds of its connection and of all connections. Its handler
        returns None and bounds the number of these requests; `respond_late` answers them.
        """
        if not request.flag & ONE_WAY_FLAG:
            self._done(request)

    def respond_late(self, request: RemotingCommand, answer: Response | _Later | None) -> None:
        """Answer a request that was set aside, once; ``answer`` may be a future."""
        if asyncio.isfuture(answer):
            answer.add_done_callback(lambda a: self.respond_late(request, self._result(request, a)))
        elif answer is not None and self.is_open and not request.flag & ONE_WAY_FLAG:
            self.connection.unanswered += 1
            self.group.in_flight += 1
            self.respond(request, answer)

    def hold(self, count: int) -> None:
        """Count requests that are handled together and wait for `answer_held`."""
        self.connection.unanswered += count
        self.group.in_flight += count

    def answer_held(self, count: int, replies: bytes) -> None:
        """Answer held requests with the bytes of all their responses."""
        if self.is_open:
            self.connection.unanswered -= count
            self.group.in_flight -= count
            if replies:
                self._write(replies)

    def request(
        self,
        code: int,
        ext_fields: dict[str, str] = NO_FIELDS,
        body: bytes = b"",
        *,
        timeout_s: float,
    ) -> asyncio.Future[RemotingCommand]:
        """Send a request, and return a future of its response, whatever its code.

        The future fails with CallTimeout or ConnectionLost.

        :raises BadInput: if the request cannot be written, or too many responses are awaited.
        :raises ConnectionLost: if the channel is closed.
        """
        if not self.is_open:
            raise ConnectionLost(self.address, self._reason or "the connection is not open")
        waiting = Waiting(self._loop.create_future())
        opaque, sent = self.connection.request(code, ext_fields, body, context=waiting)
        waiting.timer = self._loop.call_later(timeout_s, self._expire, opaque, timeout_s)
        self._write(sent)
        return waiting.future

    def tell(self, code: int, ext_fields: dict[str, str] = NO_FIELDS, body: bytes = b"") -> None:
        """Send a one-way request.

        :raises BadInput: if it cannot be written.
        :raises ConnectionLost: if the channel is closed.
        """
        if not self.is_open:
            raise ConnectionLost(self.address, self._reason or "the connection is not open")
        self._write(self.connection.one_way(code, ext_fields, body))

    async def writable(self) -> None:
        """Wait until the peer has read most of the sent bytes, or the channel is closed."""
        if self._writable is not None:
            await self._writable.wait()

    def pause(self) -> None:
        """Stop reading and handling for good; current requests are still answered."""
        self._move(states.STOP)
        self._read_or_not()

    def close(self, reason: str = "the connection was closed by this end") -> None:
        """Send unsent bytes, then close."""
        if self._transport is None or self._transport.is_closing():
            return
        self._reason = reason
        self._flush()
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; unsent bytes are lost."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    def _take(self, chunk: bytes) -> None:
        """Handle requests in order, until the turn is over or the peer is behind in reading."""
        # These steps neither open nor close the channel, so `is_open` stays.
        backlog = self._backlog
        reply = self.group.answer(self, chunk) if chunk and not backlog else None
        if reply is not None:
            self.events_received += 1
            self.state = NEXT[NEXT[self.state][states.BEGIN]][EMPTY]
            self._unsent.append(reply)
            self._unsent_bytes += len(reply)
            self._flush()
            return
        is_run = not backlog and self.group.runs is not None and self._may_be_run(chunk)
        events = self.connection.receive(chunk, 0 if backlog or is_run else REQUESTS_AT_ONCE)
        if not events and not backlog and not is_run:
            self.state = NEXT[self.state][EMPTY]
            return
        self.events_received += len(events)
        backlog.extend(events)
        step = CUT
        self.state = NEXT[self.state][states.BEGIN]
        try:
            step = self._handle_in_turn()
        finally:
            self.state = NEXT[self.state][step]
            if self._unsent:
                self._flush()
        if step is CUT:
            if self._must_wait:
                self._read_or_not()
            else:
                self._wait_turn()

    def _handle_in_turn(self) -> Step:
        """Handle the backlog and the bytes after it; return the step that ends the turn."""
        backlog, connection = self._backlog, self.connection
        bounds = self.group.bounds
        ends_at = perf_counter() + bounds.turn_s
        budget, at_once = bounds.turn_requests, REQUESTS_AT_ONCE
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
                    return CUT
                budget -= 1
                if budget <= 0 or perf_counter() >= ends_at:
                    return self._turn_end()
            if not connection.has_more:
                return EMPTY
            count = self._take_run(budget)
            if not count:
                events = connection.receive(b"", at_once)
                self.events_received += len(events)
                backlog.extend(events)
                continue
            # The next request has another code, is not plain, or is incomplete.
            at_once = 1
            budget -= count
            if self._must_wait:
                return CUT
            if budget <= 0 or perf_counter() >= ends_at:
                return self._turn_end()

    def _turn_end(self) -> Step:
        return CUT if self._backlog or self.connection.has_more else EMPTY

    def _may_be_run(self, chunk: bytes = b"") -> bool:
        """Return True if requests wait (more than one if ``chunk`` is new) and may be handled."""
        connection, group = self.connection, self.group
        return (
            connection.holds_run(chunk)
            and connection.unanswered + REQUESTS_AT_ONCE <= connection.max_unanswered
            and group.in_flight + REQUESTS_AT_ONCE <= group.bounds.requests_in_flight
        )

    def _take_run(self, budget: int) -> int:
        runs = self.group.runs
        if runs is None or not self._may_be_run():
            return 0
        with self.connection.held() as held:
            count, end, replies = runs.take(self, held, budget)
        if count:
            self.connection.drop(end)
            self.events_received += count
            if replies:
                self._write(replies)
                self._flush()
        return count

    def _wait_turn(self) -> None:
        if self.state not in QUEUED:
            self._move(states.WAIT)
            self.group.wait_turn(self)
            self._read_or_not()

    def _read_or_not(self) -> None:
        """Read more only if it can be handled."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.state in QUEUED or self._must_wait:
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
            level = logging.WARNING if self.group.may_warn("protocol") else logging.DEBUG
            logger.log(level, "%s: %s", self.address, event.error)
            self.close(f"the other end does not speak the protocol: {event.error}")

    def _serve(self, command: RemotingCommand) -> None:
        handler = self.handlers.get(command.code)
        if handler is None:
            remark = f" request type {command.code} not supported"
            self.respond(command, Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))
            return
        if self.group.in_flight > self.group.bounds.requests_in_flight:
            self.respond(command, BUSY)
            return
        try:
            answer = handler(command, self)
        except Exception as error:  # noqa: BLE001 - whatever it is, only this request fails
            self.respond(command, failure(command, error, self.group.may_warn))
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
            task = asyncio.ensure_future(cast("Awaitable[Response | None]", answer))
            self.group.tasks.add(task)
            task.add_done_callback(lambda done: self._answer_later(command, done))

    def _answer_later(self, command: RemotingCommand, done: _Later) -> None:
        """Send the response of an ended handler in a turn of this connection."""
        self.group.tasks.discard(done)
        self.group.awaited.discard(done)
        if not self.is_open:
            discard_result(done)
            return
        had_to_wait = self._must_wait
        self._worked_on_bytes -= len(command.body)
        if had_to_wait and not self._must_wait:
            self._wait_turn()
        if not self._ended and self.group.has_time():
            self._answer_one(command, done)
        else:
            self._ended.append((command, done))
            self._wait_turn()

    def _answer_done(self) -> None:
        ends_at = perf_counter() + self.group.bounds.turn_s
        while self._ended:
            self._answer_one(*self._ended.popleft())
            if self._ended and perf_counter() >= ends_at:
                self._wait_turn()
                return

    def _answer_one(self, command: RemotingCommand, done: _Later) -> None:
        response = self._result(command, done)
        if response is not None:
            self.respond(command, response)
        elif command.flag & ONE_WAY_FLAG:
            self._done(command)

    def _result(self, command: RemotingCommand, done: _Later) -> Response | None:
        try:
            return done.result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - only it fails
            return failure(command, error, self.group.may_warn)

    def _done(self, command: RemotingCommand) -> None:
        if self.is_open:
            self.connection.done(command)
            self.group.in_flight -= 1

    def _expire(self, opaque: int, timeout_s: float) -> None:
        waiting = self.connection.forget(opaque)
        if waiting is not None:
            waiting.fail(CallTimeout(self.address, f"no answer in {timeout_s:g} s"))

    def _write(self, sent: bytes) -> None:
        """Send together with other bytes that are ready in this turn of the event loop."""
        if not self._unsent and self.state is not TURN:
            self._loop.call_soon(self._flush)
        self._unsent.append(sent)
        self._unsent_bytes += len(sent)

    def _flush(self) -> None:
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


Handler = Callable[[RemotingCommand, Channel], Answer]
"""Handles requests of one code; its errors become responses (`failure`)."""
