"""One end of a connection, without its socket: bytes in, events out; commands in, bytes out.

Both ends can send requests, each with its own opaques; answers come in any order. The connection
keeps the requests that wait for an answer (each with the caller's ``context``), and counts the
other end's unfinished requests. Both are bounded.

=========  ==============================  ===================================================
state      left by                         effect
=========  ==============================  ===================================================
open       an invalid frame or header      failed; ``ConnectionFailed`` is the last event
open       ``close()``                     closed
failed     ``close()``                     closed; until then bytes are dropped
closed     nothing                         bytes are dropped; a request raises ``BadInput``
=========  ==============================  ===================================================

``receive`` returns the same events however the bytes are split, and never raises.
"""

from typing import Any, Final, Generic, NamedTuple, TypeVar

from rocketlens import limits
from rocketlens.errors import BadInput, HeaderError, ProtocolError
from rocketlens.wire import frame, header_binary, header_json
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import NO_EXT_FIELDS, ONE_WAY_FLAG, RESPONSE_FLAG, RemotingCommand
from rocketlens.wire.frame import BINARY_CODEC, JSON_CODEC, NO_LIMIT, Frame, FrameSplitter

MAX_PENDING_REQUESTS: Final = 65_535
"""Requests that can wait on one connection. RocketMQ: 65,535 (clientAsyncSemaphoreValue)."""
C = TypeVar("C")

OVERLOAD_REMARK: Final = "[OVERLOAD]system busy, start flow control for a while"


class RequestReceived(NamedTuple):
    """A request of the other end. Answer it with ``respond``, or call ``done`` if it is one-way."""

    command: RemotingCommand


class RequestRefused(NamedTuple):
    """Too many requests of the other end: send only ``reply`` (empty if it was one-way)."""

    command: RemotingCommand
    reply: bytes


class ResponseReceived(NamedTuple):
    """The response to the request with this ``context``."""

    command: RemotingCommand
    context: Any


class ConnectionFailed(NamedTuple):
    """The other end violates the protocol: close. This is the last event."""

    error: ProtocolError


Event = RequestReceived | RequestRefused | ResponseReceived | ConnectionFailed


class Connection(Generic[C]):
    """The protocol's state for one connection. Not thread-safe."""

    def __init__(
        self,
        *,
        max_header_bytes: int = limits.MAX_HEADER_BYTES,
        max_unanswered: int = limits.MAX_UNANSWERED_REQUESTS,
    ) -> None:
        self.max_unanswered = max_unanswered
        self.unanswered = 0
        """Requests received that are neither answered nor done."""
        self.is_closed = False
        self._has_failed = False
        self._splitter = FrameSplitter(max_header_bytes=max_header_bytes)
        self._pending: dict[int, C] = {}
        self._last_opaque = -1

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete frame and of waiting input; 0 between frames."""
        return self._splitter.held_bytes

    @property
    def has_more(self) -> bool:
        """True if there are bytes that the last `receive` did not parse."""
        return self._splitter.has_more and not (self.is_closed or self._has_failed)

    @property
    def is_between_requests(self) -> bool:
        """True if the next byte begins a frame, and a request in it can be answered."""
        return (
            not self._splitter.held_bytes
            and not (self.is_closed or self._has_failed)
            and self.unanswered < self.max_unanswered
        )

    def receive(self, chunk: bytes, max_events: int = NO_LIMIT) -> list[Event]:
        """Parse bytes of the other end; return the events that they complete, in order.

        After ``max_events`` the rest waits: `has_more` is True, and an empty chunk continues. With
        ``max_events`` 0, bytes are only kept.
        """
        events: list[Event] = []
        if self.is_closed or self._has_failed:
            return events
        for received in self._splitter.feed(chunk, max_events):
            try:
                command = decode_command(received)
            except ProtocolError as error:
                return self._failed(events, error)
            if command.flag & RESPONSE_FLAG:
                # Responses that nothing waits for are dropped.
                if command.opaque in self._pending:
                    context = self._pending.pop(command.opaque)
                    events.append(ResponseReceived(command, context))
            elif self.unanswered < self.max_unanswered:
                self.unanswered += 1
                events.append(RequestReceived(command))
            else:
                events.append(RequestRefused(command, _busy(command)))
        if self._splitter.failure is not None:
            return self._failed(events, self._splitter.failure)
        return events

    def holds_run(self, chunk: bytes) -> bool:
        """Return True if a whole frame waits; for a new ``chunk``, if more than one does."""
        return not (self.is_closed or self._has_failed) and self._splitter.holds_run(chunk)

    def held(self) -> memoryview:
        """Return the waiting bytes, from the start of a frame; release the view soon."""
        return self._splitter.held()

    def drop(self, byte_count: int) -> None:
        """Remove whole frames that were handled elsewhere from the start of `held`."""
        self._splitter.drop(byte_count)

    def request(
        self, code: int, ext_fields: dict[str, str], body: bytes = b"", *, context: C
    ) -> tuple[int, bytes]:
        """Return the opaque of a new request, and the bytes to send.

        :raises BadInput: if the connection is closed, too many requests wait, or the command cannot
            be encoded.
        """
        if self.is_closed:
            raise BadInput("the connection is closed")
        if len(self._pending) >= MAX_PENDING_REQUESTS:
            raise BadInput(f"{len(self._pending)} requests wait on this connection already")
        opaque = self._next_opaque()
        sent = encode_command(RemotingCommand(code, opaque, 0, None, ext_fields, body))
        self._pending[opaque] = context
        return opaque, sent

    def one_way(self, code: int, ext_fields: dict[str, str], body: bytes = b"") -> bytes:
        """Return the bytes of a request that the other end must not answer.

        :raises BadInput: if the connection is closed, or the command cannot be encoded.
        """
        if self.is_closed:
            raise BadInput("the connection is closed")
        opaque = self._next_opaque()
        return encode_command(RemotingCommand(code, opaque, ONE_WAY_FLAG, None, ext_fields, body))

    def respond(
        self,
        request: RemotingCommand,
        code: int,
        ext_fields: dict[str, str] = NO_EXT_FIELDS,
        body: bytes = b"",
        *,
        remark: str | None = None,
    ) -> bytes:
        """Return the bytes of the response to a request, empty if it was one-way. Call it once.

        :raises BadInput: if the response cannot be encoded; the request still waits for one then.
        """
        sent = b""
        if not request.flag & ONE_WAY_FLAG:
            sent = _answer(request.opaque, code, ext_fields, body, remark)
        self.unanswered -= 1
        return sent

    def done(self, request: RemotingCommand) -> None:
        """Finish a request without a response: it was one-way, or its sender is gone."""
        del request
        self.unanswered -= 1

    def forget(self, opaque: int) -> C | None:
        """Stop waiting for a response; return its context, None if it came or was forgotten."""
        return self._pending.pop(opaque, None)

    def close(self) -> list[C]:
        """Close the connection; return the contexts of all waiting requests, oldest first."""
        self.is_closed = True
        self._splitter.clear()
        waiting = list(self._pending.values())
        self._pending.clear()
        return waiting

    def _failed(self, events: list[Event], error: ProtocolError) -> list[Event]:
        self._has_failed = True
        events.append(ConnectionFailed(error))
        return events

    def _next_opaque(self) -> int:
        """Return the next opaque: counts up, wraps to 0, and skips those in use."""
        opaque = self._last_opaque
        while True:
            opaque = 0 if opaque == limits.MAX_INT else opaque + 1
            if opaque not in self._pending:
                self._last_opaque = opaque
                return opaque


def _busy(command: RemotingCommand) -> bytes:
    if command.is_one_way:
        return b""
    return _answer(command.opaque, ResponseCode.SYSTEM_BUSY, NO_EXT_FIELDS, b"", OVERLOAD_REMARK)


def _answer(
    opaque: int, code: int, ext_fields: dict[str, str], body: bytes, remark: str | None
) -> bytes:
    return encode_command(RemotingCommand(code, opaque, RESPONSE_FLAG, remark, ext_fields, body))


def decode_command(received: Frame) -> RemotingCommand:
    """Parse the command in a frame.

    :raises HeaderError: if the header or its codec is invalid; no other error, for any bytes.
    """
    codec, header, body = received
    if codec == JSON_CODEC:
        return header_json.decode(header, body)
    if codec == BINARY_CODEC:
        return header_binary.decode(header, body)
    raise HeaderError(f"a header of the unknown codec {codec}")


def encode_command(command: RemotingCommand) -> bytes:
    """Encode a command as a frame.

    :raises BadInput: if a text in it is not valid Unicode, a number does not fit, or the frame
        would be over 16 MiB.
    """
    return frame.encode(header_json.encode(command), command.body)
