"""A server for remoting connections: accepts, bounds, and passes requests to handlers.

Connections are accepted here, not by the event loop's server, for two reasons. When file
descriptors run out, asyncio's server stops accepting for a second at a time, and uvloop's may stop
for good; this one accepts and closes the connection with a reserved descriptor. Bounds for each
address and in total should prevent that. And a connection may use TLS or not: the first byte is
read without consuming it.

At the bound, a connection of the address with the most connections is closed: first one that never
sent a request, then one that waits for no response, each time the one that was silent longest. A
connection that was active in the last two seconds is not closed; if all were, the new one is
refused.
"""

import asyncio
import os
import socket
import ssl
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.message import Host
from rocketlens.net.channel import Channel, Handler, logger
from rocketlens.net.channel_group import OUT_OF_RESOURCES, ChannelGroup, ConnectionLimits, Waiting
from rocketlens.net.tls import ServerTls, TlsMode
from rocketlens.wire.connection import Connection
from rocketlens.wire.frame import TLS_HANDSHAKE

if TYPE_CHECKING:
    from prometheus_client import Metric


BACKLOG: Final = 1024
ACCEPTS_AT_ONCE: Final = 16


def reason_of(error: OSError) -> str:
    """Return why an address cannot be bound, without the address."""
    return os.strerror(error.errno) if error.errno else str(error)


class RemotingServer:
    """Handles requests on any number of ports; created and used in one event loop.

    ``handlers`` maps request codes to functions; other codes get response code 3. ``on_close`` is
    called for every closed connection, also while the server stops.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        bounds: ConnectionLimits | None = None,
        tls: ServerTls | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_close: Callable[[Channel], None] | None = None,
    ) -> None:
        self.handlers: Final = handlers
        self.tls: Final = tls or ServerTls()
        if self.tls.mode is TlsMode.ENFORCING and self.tls.context is None:
            raise BadInput("TLS is enforced, but there is no certificate")
        self.group: Final = ChannelGroup(bounds, clock=clock, on_close=self._closed)
        self._on_close: Final = on_close
        self._accepted: Final[Counter[str]] = Counter()
        self._being_evicted: Final[set[Channel]] = set()
        """Connections that are being closed to make room; not in `_accepted`."""
        self._idle: Final[dict[str | None, list[Channel]]] = {}
        """Connections that may be closed, of one address or of all; cached for a sweep."""
        self._listeners: list[socket.socket] = []
        self._paused_listeners: list[socket.socket] = []
        self._arriving: dict[asyncio.Task[None], tuple[float, str]] = {}
        """The time and address of each connection without a channel."""
        self._reserve: int | None = None

    @property
    def addresses(self) -> tuple[Host, ...]:
        """The bound addresses, in the order of `listen`."""
        return tuple(Host(*each.getsockname()[:2]) for each in self._listeners)

    def listen(self, host: str, port: int) -> Host:
        """Accept connections on one more port, 0 for any free one; return the bound address.

        :raises OSError: if the port is in use, or the host is not of this machine.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            # The error's text would repeat the address.
            raise OSError(error.errno, reason_of(error), str(Host(host, port))) from None
        listener.settimeout(0)
        if self._reserve is None:
            self._reserve = _spare_descriptor()
        self._listeners.append(listener)
        self._watch(listener)
        self.group.start(also=self.sweep_arrivals)
        return Host(*listener.getsockname()[:2])

    def sweep_arrivals(self) -> None:
        """Close connections that never sent a byte, and resume accepting after a pause."""
        self._idle.clear()
        oldest_s = self.group.now_s - limits.FRAME_DEADLINE_S
        for task, (since_s, _) in self._arriving.items():
            if since_s <= oldest_s:
                task.cancel()
        paused_listeners, self._paused_listeners = self._paused_listeners, []
        for listener in paused_listeners:
            self._watch(listener)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop accepting, wait for current responses, then close all connections."""
        await self._stop_accepting()
        await self.group.close(grace_s)
        self._give_up_reserve()

    async def abort(self) -> None:
        """Close all connections at once, without waiting; also during or after `stop`."""
        await self._stop_accepting()
        await self.group.abort()
        self._give_up_reserve()

    async def _stop_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()
        self._paused_listeners.clear()
        arriving = list(self._arriving)
        for task in arriving:
            task.cancel()
        if arriving:
            await asyncio.wait(arriving)

    def _give_up_reserve(self) -> None:
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _watch(self, listener: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                accepted, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._reject_when_out_of_fds(listener, error)
                return
            host = str(peer[0])
            if not self._has_room(host):
                accepted.close()
                continue
            accepted.settimeout(0)
            self._accepted[host] += 1
            task = asyncio.get_running_loop().create_task(self._begin(accepted, host))
            self._arriving[task] = self.group.clock(), host
            task.add_done_callback(self._end_arrival)

    def _end_arrival(self, task: asyncio.Task[None]) -> None:
        _, host = self._arriving.pop(task)
        if task.cancelled():
            self._release(host)
        elif task.exception() is not None:
            self._release(host)
            logger.error("a connection could not start", exc_info=task.exception())

    def _closed(self, channel: Channel) -> None:
        if channel in self._being_evicted:
            self._being_evicted.remove(channel)
        else:
            self._release(host_of(channel))
        if self._on_close is not None:
            self._on_close(channel)

    def _release(self, host: str) -> None:
        self._accepted[host] -= 1
        if not self._accepted[host]:
            del self._accepted[host]

    def _has_room(self, host: str) -> bool:
        """Return True if a connection from ``host`` may be accepted; may close an idle one."""
        bounds = self.group.bounds
        if self._accepted[host] >= bounds.max_of_address and not self._close_idle(host):
            self._refuse(f"{self._accepted[host]} connections of {host}")
            return False
        if self._accepted.total() >= bounds.connections and not self._close_idle(None):
            self._refuse(f"{self._accepted.total()} connections")
            return False
        return True

    def _close_idle(self, host: str | None) -> bool:
        """Close the idlest connection, of one address or of any; return False if none is idle."""
        idle = self._idle.get(host)
        if idle is None:
            channels = self.group.channels
            some = channels if host is None else {c for c in channels if host_of(c) == host}
            idle = self._idle[host] = idle_channels(some, self.group.now_s)
        while idle:
            channel = idle.pop()
            is_idle = self.group.now_s - channel.last_active_s >= limits.MIN_IDLE_S
            if channel.is_open and is_idle and channel not in self._being_evicted:
                self._being_evicted.add(channel)
                self._release(host_of(channel))
                self.group.closed_idle += 1
                channel.abort("it was idle, and there are too many connections")
                return True
        return False

    def _refuse(self, many: str) -> None:
        self.group.refused += 1
        self._warn(f"{many} and none of them idle: no more are accepted")

    def _warn(self, problem: str) -> None:
        """Log at most once a minute, since this may happen thousands of times a second."""
        if self.group.may_warn("connections"):
            logger.warning("%s (%d refused so far)", problem, self.group.refused)

    def _reject_when_out_of_fds(self, listener: socket.socket, error: OSError) -> None:
        """Close a connection without a free descriptor, or pause accepting until the next sweep.

        Otherwise the listener would stay readable, and the event loop would spin.
        """
        self.group.refused += 1
        self._warn(f"cannot accept a connection: {error}")
        if error.errno in OUT_OF_RESOURCES and self._reserve is not None:
            os.close(self._reserve)
            try:
                listener.accept()[0].close()
            except OSError as error_again:
                logger.debug("cannot reject it either: %s", error_again)
            else:
                error = OSError()
            self._reserve = _spare_descriptor()
        if error.errno is not None:
            asyncio.get_running_loop().remove_reader(listener)
            self._paused_listeners.append(listener)

    async def _begin(self, accepted: socket.socket, host: str) -> None:
        """Create the channel of a connection; an error here concerns only its peer."""
        try:
            context = await self._context_for(accepted)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._new_channel,
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else limits.FRAME_DEADLINE_S,
            )
        except (OSError, ssl.SSLError, EOFError) as error:
            logger.debug("a connection failed to start: %s", error)
            accepted.close()
            self._release(host)
        except asyncio.CancelledError:
            accepted.close()
            raise

    async def _context_for(self, accepted: socket.socket) -> ssl.SSLContext | None:
        mode, context = self.tls
        if mode is TlsMode.PERMISSIVE and context is not None:
            first = await _peek(accepted)
            return context if first[:1] == bytes([TLS_HANDSHAKE]) else None
        return context if mode is TlsMode.ENFORCING else None

    def _new_channel(self) -> Channel:
        connection: Connection[Waiting] = Connection(
            max_header_bytes=limits.MAX_REQUEST_HEADER_BYTES,
            max_unanswered=self.group.bounds.unanswered_requests,
        )
        return Channel(self.group, self.handlers, connection)


def _spare_descriptor() -> int | None:
    with suppress(OSError):
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return None


async def _peek(accepted: socket.socket) -> bytes:
    """Return the first byte without consuming it; empty if the peer closed."""
    loop = asyncio.get_running_loop()
    while True:
        readable = asyncio.Event()
        loop.add_reader(accepted, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(accepted)
        with suppress(BlockingIOError, InterruptedError):
            return accepted.recv(1, socket.MSG_PEEK)


def host_of(channel: Channel) -> str:
    return channel.address.rpartition(":")[0].strip("[]")


def idle_channels(channels: Iterable[Channel], now_s: float) -> list[Channel]:
    """Return the connections that may be closed, the first to close last. O(n log n)."""
    counts: Counter[str] = Counter()
    idle: defaultdict[str, list[Channel]] = defaultdict(list)
    for channel in channels:
        host = host_of(channel)
        counts[host] += 1
        if now_s - channel.last_active_s >= limits.MIN_IDLE_S:
            idle[host].append(channel)
    ranked: list[tuple[int, int, Channel]] = []
    for host, some in idle.items():
        some.sort(key=_worth)
        # The first value is the number of connections its address has at that point.
        ranked += [(counts[host] - n, n, channel) for n, channel in enumerate(some)]
    ranked.sort(key=lambda row: (row[0], -row[1]))
    return [channel for _, _, channel in ranked]


def _worth(channel: Channel) -> tuple[bool, bool, float]:
    return (channel.events_received > 0, channel.connection.unanswered > 0, channel.last_active_s)


def network_metrics(
    network: ChannelGroup, labels: Sequence[str], node: Sequence[str]
) -> "list[Metric]":
    """Return the metrics of a server's connections; ``node`` has the values of its labels."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    gauges = {
        "connections": ("Open connections.", len(network.channels)),
        "connections_max": ("Connections allowed.", network.bounds.connections),
        "connections_buffered_bytes": ("Bytes that wait on all connections.", network.buffered),
        "requests_in_flight": ("Requests not answered yet.", network.in_flight),
    }
    idle, large = "Idle connections closed for others.", "Connections closed with too many bytes."
    counters = {
        "connections_refused": ("Connections refused.", network.refused),
        "connections_closed_idle": (idle, network.closed_idle),
        "connections_closed_large": (large, network.closed_large),
    }
    metrics: list[Metric] = []
    for family, rows in ((GaugeMetricFamily, gauges), (CounterMetricFamily, counters)):
        for name, (meaning, number) in rows.items():
            metric = family(f"rocketlens_{name}", meaning, labels=labels)
            metric.add_metric(node, float(number))
            metrics.append(metric)
    return metrics
