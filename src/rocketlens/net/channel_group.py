"""Shared state of one server's or client's channels: bounds, a coarse clock, the sweep.

The sweep reads the clock once a second; requests never do, and connections have no timers. It
visits all connections, in O(connections). Tests move a clock and sweep.

Connections with more requests than fit into one turn wait here for the next, first come, first
served. New connections have a queue of their own with half of the time, so that a large number of
one kind does not starve the other. A round of turns takes a few milliseconds. Between two rounds
the event loop runs everything else: connections with few requests, timers, and ready responses.
"""

import asyncio
import errno
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from rocketlens import limits
from rocketlens.errors import RocketLensError
from rocketlens.net.channel_state import NEW_WAITS
from rocketlens.wire import frame
from rocketlens.wire.command import RemotingCommand

if TYPE_CHECKING:
    from rocketlens.net.channel import Channel

IDLE_S: Final = 120.0
"""Seconds without a byte either way after which a server closes a connection. RocketMQ: 120."""
MIN_FRAME_BYTES_PER_S: Final = 1024
"""A frame that is slower than this over FRAME_DEADLINE_S ends its connection."""
MAX_BUFFERED_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of all connections, unsent or of incomplete frames; then the largest are closed."""
MAX_UNPAUSED_BYTES: Final = 256 * 1024
"""Unsent bytes of one peer from which on no more of its requests are read."""
MAX_WORKED_ON_BYTES: Final = 8 * 1024 * 1024
"""Bodies of one connection's requests in progress; beyond that no more requests are read.

One body may be larger, up to a frame. RocketMQ: 10,000 requests of any size.
"""
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""Bytes that wait for one peer to read them; beyond that the connection is closed.

A server reads no more requests of a peer that is far behind, so only responses in progress count
here. RocketMQ: no limit.
"""
MAX_ROUND_S: Final = 0.002
"""Seconds of work for waiting connections before those with few requests have their turn. With 50
busy connections, others wait for this time instead of 50 turns.
"""
MAX_TURN_REQUESTS: Final = 128
"""Requests of one connection that are handled before others have their turn."""
MAX_REQUESTS_IN_FLIGHT: Final = 100_000
"""Requests of all connections in progress; more are answered with "busy"."""
MIN_ADDRESS_CONNECTIONS: Final = 16
"""Connections that one address may have even if the total bound is small."""
_log: Final = logging.getLogger("rocketlens.net")

SWEEP_INTERVAL_S: Final = 1.0
OUT_OF_RESOURCES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Error numbers after which the same call can succeed later."""
_CODEC_AT: Final = 4
_HEAD_BYTES: Final = len(b'{"code":10,')
"""The bytes after the lengths that have a request's code, as RocketMQ's clients write it."""
_USUAL_HEAD: Final = re.compile(rb'\{"code":\d')
_CODE: Final = re.compile(rb'"code"[ \t\r\n]*:[ \t\r\n]*"?(\d{1,5})')
CLOSE_PATIENCE_S: Final = 1.0
"""Seconds that peers have to read the last bytes when all channels are closed."""


class Waiting:
    """A caller that waits for a response, with its deadline."""

    __slots__ = ("future", "timer")

    def __init__(self, future: asyncio.Future[RemotingCommand]) -> None:
        self.future: Final = future
        self.timer: asyncio.TimerHandle | None = None

    def fail(self, error: RocketLensError) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_exception(error)


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """Bounds of one server or client; see :mod:`rocketlens.limits` for reasons."""

    connections: int = limits.MAX_CONNECTIONS
    connections_of_address: int | None = None
    """None: three quarters of all."""
    requests_in_flight: int = MAX_REQUESTS_IN_FLIGHT
    unanswered_requests: int = limits.MAX_UNANSWERED_REQUESTS
    """Maximum of one connection."""
    unsent_bytes: int = MAX_UNSENT_BYTES
    unsent_pause_bytes: int = MAX_UNPAUSED_BYTES
    worked_on_bytes: int = MAX_WORKED_ON_BYTES
    buffered_bytes: int = MAX_BUFFERED_BYTES
    slowest_frame_bytes_per_s: int = MIN_FRAME_BYTES_PER_S
    frame_deadline_s: float = limits.FRAME_DEADLINE_S
    idle_s: float | None = IDLE_S
    """None: connections may be silent forever, as those of a client."""
    turn_s: float = limits.MAX_TURN_S
    turn_requests: int = MAX_TURN_REQUESTS
    round_s: float = MAX_ROUND_S

    @property
    def max_of_address(self) -> int:
        if self.connections_of_address is not None:
            return self.connections_of_address
        return max(self.connections * 3 // 4, min(self.connections, MIN_ADDRESS_CONNECTIONS))


class Runs(Protocol):
    """Handles plain requests of a connection together, from their bytes to those of the replies.

    The result is the same as that of the handlers, one by one. Requests are answered at once, or
    held and answered later: `Channel.hold`, `Channel.answer_held`.
    """

    def take(
        self, channel: "Channel", received: memoryview, max_count: int
    ) -> tuple[int, int, bytes]:
        """Handle requests from the start of ``received``, up to one that is not plain.

        Return their number, the end of the last one, and the replies.
        """

    def answer(self, channel: "Channel", received: bytes) -> bytes | None:
        """Return the reply to the only request in ``received``; None if it is not plain."""


class RunsByCode:
    """Dispatches requests by their code, read from the first bytes of either header."""

    def __init__(self, runs: Mapping[tuple[int, ...], Runs], others: Runs) -> None:
        """Create a dispatcher; ``others`` handle requests of other codes."""
        self._others: Final = others
        codes = [(code, each) for codes, each in runs.items() for code in codes]
        self._by_text: Final = {(b'{"code":%d,' % code)[:_HEAD_BYTES]: each for code, each in codes}
        self._by_number: Final = {code.to_bytes(2): each for code, each in codes}

    def take(
        self, channel: "Channel", received: memoryview, max_count: int
    ) -> tuple[int, int, bytes]:
        """Run `Runs.take`, up to a request of another kind than the first."""
        runs = self._of(received) or self._others
        return runs.take(channel, received, max_count)

    def answer(self, channel: "Channel", received: bytes) -> bytes | None:
        runs = self._of(received)
        return None if runs is None else runs.answer(channel, received)

    def _of(self, received: bytes | memoryview) -> Runs | None:
        head = bytes(received[frame.PREFIX_BYTES : frame.PREFIX_BYTES + _HEAD_BYTES])
        runs = self._by_text.get(head)
        if runs is not None or not head or _USUAL_HEAD.match(head):
            return runs
        if received[_CODEC_AT] == frame.BINARY_CODEC:
            return self._by_number.get(head[:2])
        # Other clients write the code at another position, or with blanks.
        end = frame.PREFIX_BYTES + int.from_bytes(received[_CODEC_AT + 1 : frame.PREFIX_BYTES])
        code = _CODE.search(received, frame.PREFIX_BYTES, end)
        return code and self._by_text.get((b'{"code":%b,' % code[1])[:_HEAD_BYTES])


class ChannelGroup:
    """The channels of one server or client, and their shared counts."""

    def __init__(
        self,
        bounds: ConnectionLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_close: "Callable[[Channel], None] | None" = None,
    ) -> None:
        self.bounds: Final = bounds or ConnectionLimits()
        self.channels: Final[set[Channel]] = set()
        self.tasks: Final[set[asyncio.Future[Any]]] = set()
        """Handlers that are waiting."""
        self.awaited: Final[set[asyncio.Future[Any]]] = set()
        """Futures of others that handlers wait for; never cancelled here."""
        self.runs: Runs | None = None
        """Handles plain requests together; None if each is handled alone. Any thread may set it."""
        self.in_flight = 0
        """Unfinished requests of all channels."""
        self.clock: Final = clock
        self.now_s = clock()
        """Time of the last sweep."""
        self.refused = self.closed_idle = self.closed_large = 0
        """Total connections refused, closed to make room, and closed to free buffers."""
        self.buffered = 0
        """Unsent and unhandled bytes of all channels when last counted."""
        self._waiting: Final[tuple[deque[Channel], deque[Channel]]] = deque(), deque()
        """Channels that wait for a turn: new ones, others."""
        self._round_is_due = False
        self._ends_at: float | None = None
        self._quiet_until_s: Final[dict[str, float]] = {}
        self._on_close: Final = on_close
        self._timer: asyncio.TimerHandle | None = None
        self._changed: asyncio.Event = asyncio.Event()

    def answer(self, channel: "Channel", received: bytes) -> bytes | None:
        """Return the reply to the only request in ``received`` if it is plain and may be handled.

        No other request of the connection may wait.
        """
        if (
            self.runs is None
            or not channel.connection.is_between_requests
            or self.in_flight >= self.bounds.requests_in_flight
        ):
            return None
        return self.runs.answer(channel, received)

    def wait_turn(self, channel: "Channel") -> None:
        """Queue ``channel`` for a turn."""
        self._waiting[channel.state is not NEW_WAITS].append(channel)
        if not self._round_is_due:
            self._round_is_due = True
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        """Run turns of waiting channels, for the time of one round."""
        try:
            for waiting in self._waiting:
                ends_at = perf_counter() + self.bounds.round_s / 2
                for _ in range(len(waiting)):
                    waiting.popleft().take_turn()
                    if perf_counter() >= ends_at:
                        break
        finally:
            self._round_is_due = any(self._waiting)
            if self._round_is_due:
                asyncio.get_running_loop().call_soon(self._take_turns)

    def has_time(self) -> bool:
        """Return True if ready responses may be sent in this turn of the event loop."""
        if self._ends_at is None:
            self._ends_at = perf_counter() + self.bounds.round_s
            asyncio.get_running_loop().call_soon(self._new_turn)
            return True
        return perf_counter() < self._ends_at

    def _new_turn(self) -> None:
        self._ends_at = None

    def may_warn(self, subject: str) -> bool:
        """Return True once a minute for each ``subject``, to limit log lines."""
        if self.now_s < self._quiet_until_s.get(subject, self.now_s):
            return False
        self._quiet_until_s[subject] = self.now_s + limits.MIN_WARNING_INTERVAL_S
        return True

    def count_bytes(self, channel: "Channel") -> None:
        """Update the bytes of a channel; close the largest channels if the total is too large."""
        size = channel.connection.held_bytes + channel.unsent_bytes
        self.buffered += size - channel.counted_bytes
        channel.counted_bytes = size
        if self.buffered > self.bounds.buffered_bytes:
            self._count_all()
            if self.buffered > self.bounds.buffered_bytes:
                self._drop_largest(self.buffered - self.bounds.buffered_bytes)

    def _count_all(self) -> None:
        self.buffered = 0
        for channel in self.channels:
            channel.counted_bytes = channel.connection.held_bytes + channel.unsent_bytes
            self.buffered += channel.counted_bytes

    def opened(self, channel: "Channel") -> None:
        self.channels.add(channel)

    def closed(self, channel: "Channel") -> None:
        self.channels.discard(channel)
        self.buffered -= channel.counted_bytes
        channel.counted_bytes = 0
        self._changed.set()
        if self._on_close is not None:
            self._on_close(channel)

    def start(self, also: Callable[[], None] | None = None) -> None:
        """Start to sweep every second, and to call ``also`` after each sweep."""

        def tick() -> None:
            self._timer = loop.call_later(SWEEP_INTERVAL_S, tick)
            self.sweep()
            if also is not None:
                also()

        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._timer = loop.call_later(SWEEP_INTERVAL_S, tick)

    def sweep(self) -> None:
        """Read the clock, and close every connection that is idle, too slow, or too large."""
        self.now_s = self.clock()
        self.buffered = 0
        for channel in list(self.channels):
            byte_count = channel.connection.held_bytes
            unsent = channel.unsent_bytes
            channel.counted_bytes = byte_count + unsent
            self.buffered += byte_count + unsent
            reason = self._close_reason(channel, byte_count, unsent)
            if reason is not None:
                channel.abort(reason)
        if self.buffered > self.bounds.buffered_bytes:
            self._drop_largest(self.buffered - self.bounds.buffered_bytes)

    def _close_reason(self, channel: "Channel", byte_count: int, unsent: int) -> str | None:
        """Return why a connection must be closed; None if it need not be."""
        bounds = self.bounds
        events, since_s, unsent_before = channel.swept
        if events != channel.events_received or not byte_count or channel.is_held_up:
            since_s = self.now_s
        if unsent != unsent_before:
            # The peer reads slowly, or something was sent to it.
            channel.last_active_s = self.now_s
        channel.swept = channel.events_received, since_s, unsent
        age_s = self.now_s - since_s
        if (
            age_s >= bounds.frame_deadline_s
            and byte_count < age_s * bounds.slowest_frame_bytes_per_s
        ):
            return f"{byte_count} bytes of a request in {age_s:.0f} s"
        silent_s = self.now_s - channel.last_active_s
        if bounds.idle_s is not None and silent_s >= bounds.idle_s:
            return f"nothing came for {silent_s:.0f} s"
        return None

    def _drop_largest(self, excess: int) -> None:
        """Close the connections with the largest buffers, until ``excess`` bytes are free."""
        for channel in sorted(self.channels, key=lambda each: each.counted_bytes, reverse=True):
            size, channel.counted_bytes = channel.counted_bytes, 0
            channel.abort("too many bytes wait on all connections together")
            self.closed_large += 1
            self.buffered -= size
            excess -= size
            if excess <= 0:
                return

    async def close(self, grace_s: float) -> None:
        """Stop reading, wait up to ``grace_s`` for current responses, send them, and close."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for channel in list(self.channels):
            channel.pause()
        under_way = self.tasks | self.awaited
        if under_way and self.in_flight:
            await asyncio.wait(under_way, timeout=grace_s)
        await self._cancel_tasks()
        for channel in list(self.channels):
            channel.close()
        await self._wait_until_closed()
        await self.abort()

    async def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._cancel_tasks()
        for channel in list(self.channels):
            channel.abort("it did not read the last bytes in time")
        await self._wait_until_closed()

    async def _cancel_tasks(self) -> None:
        for task in set(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(set(self.tasks), timeout=CLOSE_PATIENCE_S)

    async def _wait_until_closed(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                while self.channels:
                    self._changed.clear()
                    await self._changed.wait()
