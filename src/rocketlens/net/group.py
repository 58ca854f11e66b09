"""What the channels of one server or client share: bounds, a coarse clock, and the sweep.

Time is taken once a second by the sweep, never for each request, and no connection has a timer
of its own: the sweep looks at all of them, in O(connections). Tests move a clock and sweep.

Connections that sent more than fits one turn wait here for the next, first come, first served; new
ones wait apart and have half of the time, so a crowd of either kind does not keep the other from
its turn. A round of such turns takes a few milliseconds, and between two rounds the event loop
turns to all others: to connections that have little to say, timers, and answers that became ready.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits

if TYPE_CHECKING:
    from rocketlens.net.channel import Channel

SWEEP_INTERVAL_S: Final = 1.0
CLOSE_PATIENCE_S: Final = 1.0
"""Seconds that peers have to take what was sent to them last, when all channels are closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one server or client allows; see :mod:`rocketlens.limits` for reasons."""

    connections: int = limits.MAX_CONNECTIONS
    connections_of_address: int | None = None
    """None: three quarters of all."""
    requests_in_flight: int = limits.MAX_REQUESTS_IN_FLIGHT
    unanswered_requests: int = limits.MAX_UNANSWERED_REQUESTS
    """Of one connection."""
    unsent_bytes: int = limits.MAX_UNSENT_BYTES
    unsent_pause_bytes: int = limits.MAX_UNPAUSED_BYTES
    worked_on_bytes: int = limits.MAX_WORKED_ON_BYTES
    buffered_bytes: int = limits.MAX_BUFFERED_BYTES
    slowest_frame_bytes_per_s: int = limits.MIN_FRAME_BYTES_PER_S
    frame_deadline_s: float = limits.FRAME_DEADLINE_S
    idle_s: float | None = limits.IDLE_S
    """None: connections may be silent for ever, as a client's."""
    turn_s: float = limits.MAX_TURN_S
    first_turn_s: float = limits.MAX_FIRST_TURN_S
    turn_requests: int = limits.MAX_TURN_REQUESTS
    round_s: float = limits.MAX_ROUND_S

    @property
    def most_of_address(self) -> int:
        """Connections that one address may have."""
        if self.connections_of_address is not None:
            return self.connections_of_address
        return max(self.connections * 3 // 4, min(self.connections, limits.MIN_ADDRESS_CONNECTIONS))


class ChannelGroup:
    """The channels of one server or client, and what they have together."""

    def __init__(
        self,
        bounds: ConnectionLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_open: "Callable[[Channel], None] | None" = None,
        on_close: "Callable[[Channel], None] | None" = None,
    ) -> None:
        self.bounds: Final = bounds or ConnectionLimits()
        self.channels: Final[set[Channel]] = set()
        self.tasks: Final[set[asyncio.Future[Any]]] = set()
        """Handlers that are waiting for something."""
        self.awaited: Final[set[asyncio.Future[Any]]] = set()
        """What other handlers are waiting for; theirs, so never cancelled here."""
        self.in_flight = 0
        """Requests received on any channel, and not done with."""
        self.clock: Final = clock
        self.now_s = clock()
        """The clock at the last sweep."""
        self.refused = self.closed_idle = self.closed_large = 0
        """Connections so far that were refused; ended to make room for others; ended because all
        together had too much waiting."""
        self.buffered = 0
        """Bytes of all channels, unsent and received and not handled, as far as they were seen."""
        self._waiting: Final[tuple[deque[Channel], deque[Channel]]] = deque(), deque()
        """Who waits for a turn: new ones, others."""
        self._round_is_due = False
        self._ends_at: float | None = None
        self._on_open: Final = on_open
        self._on_close: Final = on_close
        self._timer: asyncio.TimerHandle | None = None
        self._changed: asyncio.Event = asyncio.Event()

    def wait_turn(self, channel: "Channel") -> None:
        """Have ``channel`` take its turn after those that wait already."""
        self._waiting[not channel.is_new].append(channel)
        if not self._round_is_due:
            self._round_is_due = True
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        """Let those that wait have a turn each, for as long as a round may take."""
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
        """Return whether answers that became ready may be sent in this turn of the event loop."""
        if self._ends_at is None:
            self._ends_at = perf_counter() + self.bounds.round_s
            asyncio.get_running_loop().call_soon(self._new_turn)
            return True
        return perf_counter() < self._ends_at

    def _new_turn(self) -> None:
        self._ends_at = None

    def count_bytes(self, channel: "Channel") -> None:
        """Take note of what a channel holds, and end the largest when all hold too much."""
        size = channel.connection.held_bytes + channel.unsent_bytes
        self.buffered += size - channel.counted_bytes
        channel.counted_bytes = size
        if self.buffered > self.bounds.buffered_bytes:
            self._count_all()
            if self.buffered > self.bounds.buffered_bytes:
                self._shed(self.buffered - self.bounds.buffered_bytes)

    def _count_all(self) -> None:
        self.buffered = 0
        for channel in self.channels:
            channel.counted_bytes = channel.connection.held_bytes + channel.unsent_bytes
            self.buffered += channel.counted_bytes

    def opened(self, channel: "Channel") -> None:
        """Register a channel."""
        self.channels.add(channel)
        if self._on_open is not None:
            self._on_open(channel)

    def closed(self, channel: "Channel") -> None:
        """Unregister a channel."""
        self.channels.discard(channel)
        self.buffered -= channel.counted_bytes
        channel.counted_bytes = 0
        self._changed.set()
        if self._on_close is not None:
            self._on_close(channel)

    def start(self, also: Callable[[], None] | None = None) -> None:
        """Sweep every second from now on, and call ``also`` after each sweep."""

        def tick() -> None:
            self._timer = loop.call_later(SWEEP_INTERVAL_S, tick)
            self.sweep()
            if also is not None:
                also()

        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._timer = loop.call_later(SWEEP_INTERVAL_S, tick)

    def sweep(self) -> None:
        """Take the time, and end every connection that is idle, too slow, or too much."""
        self.now_s = self.clock()
        self.buffered = 0
        for channel in list(self.channels):
            held = channel.connection.held_bytes
            unsent = channel.unsent_bytes
            channel.counted_bytes = held + unsent
            self.buffered += held + unsent
            reason = self._verdict(channel, held, unsent)
            if reason is not None:
                channel.abort(reason)
        if self.buffered > self.bounds.buffered_bytes:
            self._shed(self.buffered - self.bounds.buffered_bytes)

    def _verdict(self, channel: "Channel", held: int, unsent: int) -> str | None:
        """Return why a connection must end, if it must."""
        bounds = self.bounds
        events, since_s, unsent_before = channel.swept
        if events != channel.events_received or not held or channel.is_held_up:
            since_s = self.now_s
        if unsent != unsent_before:
            # The peer reads, if slowly; or something was sent to it.
            channel.last_active_s = self.now_s
        channel.swept = channel.events_received, since_s, unsent
        age_s = self.now_s - since_s
        if age_s >= bounds.frame_deadline_s and held < age_s * bounds.slowest_frame_bytes_per_s:
            return f"{held} bytes of a request in {age_s:.0f} s"
        silent_s = self.now_s - channel.last_active_s
        if bounds.idle_s is not None and silent_s >= bounds.idle_s:
            return f"nothing came for {silent_s:.0f} s"
        return None

    def _shed(self, excess: int) -> None:
        """End the connections that hold the most, until ``excess`` bytes are free."""
        for channel in sorted(self.channels, key=lambda each: each.counted_bytes, reverse=True):
            size, channel.counted_bytes = channel.counted_bytes, 0
            channel.abort("too much is waiting on all connections together")
            self.closed_large += 1
            self.buffered -= size
            excess -= size
            if excess <= 0:
                return

    async def close(self, grace_s: float) -> None:
        """Read nothing more, wait up to ``grace_s`` for answers under way, send them, and end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for channel in self.channels:
            channel.pause()
        under_way = self.tasks | self.awaited
        if under_way and self.in_flight:
            await asyncio.wait(under_way, timeout=grace_s)
        await self._cancel_tasks()
        for channel in list(self.channels):
            channel.close()
        await self._all_closed(CLOSE_PATIENCE_S)
        await self.abort()

    async def abort(self) -> None:
        """End all that is left, and wait for nobody."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._cancel_tasks()
        for channel in list(self.channels):
            channel.abort("it did not take what was sent to it")
        await self._all_closed(CLOSE_PATIENCE_S)

    async def _cancel_tasks(self) -> None:
        for task in set(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(set(self.tasks), timeout=CLOSE_PATIENCE_S)

    async def _all_closed(self, patience_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while self.channels and loop.time() < deadline:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), deadline - loop.time())
            except TimeoutError:
                return
