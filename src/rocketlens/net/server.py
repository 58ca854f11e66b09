"""A server for remoting connections: accepts, bounds, and hands requests to handlers.

Connections are accepted here, not by the event loop's own server, for two reasons. When file
descriptors run out, asyncio's stops accepting for a second at a time and uvloop's may stop for
good; this one has a descriptor in reserve, with which it takes such connections and closes them.
It should not come to that: connections are bounded, for each address and in all, and where there
are too many the idle ones end first (:mod:`rocketlens.net.crowd`).
And whether a connection is TLS must be known before its transport is made: the first byte is
looked at, without taking it.
"""

import asyncio
import errno
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.message import Host
from rocketlens.net.channel import Channel, Handler, Waiting, logger
from rocketlens.net.crowd import host_of, idle_channels
from rocketlens.net.group import ChannelGroup, ConnectionLimits
from rocketlens.net.tls import ServerTls, TlsMode
from rocketlens.wire.connection import Connection
from rocketlens.wire.frame import TLS_HANDSHAKE

BACKLOG: Final = 1024
ACCEPTS_AT_ONCE: Final = 16
QUIET_S: Final = 60.0
"""Seconds from one warning of connections that cannot be taken to the next."""
OUT_OF_RESOURCES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class RemotingServer:
    """Answers requests on any number of ports; made and used in one event loop.

    ``handlers`` has a function for each request code; other codes are answered with code 3.
    ``on_close`` hears of every connection that ends, also while the server stops.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        bounds: ConnectionLimits | None = None,
        tls: ServerTls | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_open: Callable[[Channel], None] | None = None,
        on_close: Callable[[Channel], None] | None = None,
    ) -> None:
        self.handlers: Final = handlers
        self.tls: Final = tls or ServerTls()
        if self.tls.mode is TlsMode.ENFORCING and self.tls.context is None:
            raise BadInput("TLS is to be enforced, but there is no certificate")
        self.group: Final = ChannelGroup(
            bounds, clock=clock, on_open=on_open, on_close=self._closed
        )
        self._on_close: Final = on_close
        self._accepted: Final[Counter[str]] = Counter()
        """Connections that were accepted and have not ended, by address."""
        self._idle: Final[dict[str | None, list[Channel]]] = {}
        """Those that may end for others, of one address or of all; found once for each sweep."""
        self._quiet_until_s = 0.0
        self._listeners: list[socket.socket] = []
        self._resting: list[socket.socket] = []
        self._arriving: dict[asyncio.Task[None], tuple[float, str]] = {}
        """When and from where they came."""
        self._reserve: int | None = None

    @property
    def addresses(self) -> tuple[Host, ...]:
        """Where it listens, in the order of `listen`."""
        return tuple(Host(*each.getsockname()[:2]) for each in self._listeners)

    def listen(self, host: str, port: int) -> Host:
        """Accept connections on one more port, 0 for any; return what was bound.

        :raises OSError: when the port is taken, or the host is not of this machine.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        listener.settimeout(0)
        if self._reserve is None:
            self._reserve = _spare_descriptor()
        self._listeners.append(listener)
        self._watch(listener)
        self.group.start(also=self.sweep_arrivals)
        return Host(*listener.getsockname()[:2])

    def sweep(self) -> None:
        """End what is idle, too slow or too much; done every second once it listens."""
        self.group.sweep()
        self.sweep_arrivals()

    def sweep_arrivals(self) -> None:
        """End connections that never sent a byte, and accept again after a shortage."""
        self._idle.clear()
        oldest_s = self.group.now_s - limits.FRAME_DEADLINE_S
        for task, (since_s, _) in self._arriving.items():
            if since_s <= oldest_s:
                task.cancel()
        resting, self._resting = self._resting, []
        for listener in resting:
            self._watch(listener)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Accept nothing more, wait for answers under way, then close all connections."""
        await self._stop_accepting()
        await self.group.close(grace_s)
        self._give_up_reserve()

    async def abort(self) -> None:
        """End at once, without waiting for anybody; also while `stop` waits, or after it."""
        await self._stop_accepting()
        await self.group.abort()
        self._give_up_reserve()

    async def _stop_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()
        self._resting.clear()
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
                self._turn_away(listener, error)
                return
            host = str(peer[0])
            if not self._has_room(host):
                accepted.close()
                continue
            accepted.settimeout(0)
            self._accepted[host] += 1
            task = asyncio.get_running_loop().create_task(self._begin(accepted, host))
            self._arriving[task] = self.group.clock(), host
            task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        _, host = self._arriving.pop(task)
        if task.cancelled():
            self._ended(host)
        elif task.exception() is not None:
            self._ended(host)
            logger.error("a connection could not begin", exc_info=task.exception())

    def _closed(self, channel: Channel) -> None:
        if not channel.makes_room:
            self._ended(host_of(channel))
        if self._on_close is not None:
            self._on_close(channel)

    def _ended(self, host: str) -> None:
        self._accepted[host] -= 1
        if not self._accepted[host]:
            del self._accepted[host]

    def _has_room(self, host: str) -> bool:
        """Return whether a connection from ``host`` may be taken; idle ones may end for it."""
        bounds = self.group.bounds
        if self._accepted[host] >= bounds.most_of_address and not self._make_room(host):
            self._refuse(f"{self._accepted[host]} connections of {host}")
            return False
        if self._accepted.total() >= bounds.connections and not self._make_room(None):
            self._refuse(f"{self._accepted.total()} connections")
            return False
        return True

    def _make_room(self, host: str | None) -> bool:
        """End the connection, of one address or of any, that is missed least, if there is one."""
        idle = self._idle.get(host)
        if idle is None:
            channels = self.group.channels
            some = channels if host is None else {c for c in channels if host_of(c) == host}
            idle = self._idle[host] = idle_channels(some, self.group.now_s)
        while idle:
            channel = idle.pop()
            is_idle = self.group.now_s - channel.last_active_s >= limits.MIN_IDLE_S
            if channel.is_open and is_idle and not channel.makes_room:
                channel.makes_room = True
                self._ended(host_of(channel))
                self.group.closed_idle += 1
                channel.abort("it was idle, and there are too many connections")
                return True
        return False

    def _refuse(self, many: str) -> None:
        self.group.refused += 1
        self._warn(f"{many} and none of them idle: no more are taken")

    def _warn(self, words: str) -> None:
        """Log what may happen thousands of times a second, once a minute."""
        if self.group.now_s >= self._quiet_until_s:
            self._quiet_until_s = self.group.now_s + QUIET_S
            logger.warning("%s (%d refused so far)", words, self.group.refused)

    def _turn_away(self, listener: socket.socket, error: OSError) -> None:
        """Close the connection that cannot be had, or accept no more until the next sweep.

        Left alone, the listener would stay readable and the event loop spin.
        """
        self.group.refused += 1
        self._warn(f"cannot accept a connection: {error}")
        if error.errno in OUT_OF_RESOURCES and self._reserve is not None:
            os.close(self._reserve)
            try:
                listener.accept()[0].close()
            except OSError as still:
                logger.debug("nor turn it away: %s", still)
            else:
                error = OSError()
            self._reserve = _spare_descriptor()
        if error.errno is not None:
            asyncio.get_running_loop().remove_reader(listener)
            self._resting.append(listener)

    async def _begin(self, accepted: socket.socket, host: str) -> None:
        """Make a channel of a connection; what goes wrong here concerns only its peer."""
        try:
            context = await self._context_for(accepted)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._new_channel,
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else limits.FRAME_DEADLINE_S,
            )
        except (OSError, ssl.SSLError, EOFError) as error:
            logger.debug("a connection did not come about: %s", error)
            accepted.close()
            self._ended(host)
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
    """Wait for the first byte and leave it where it is; nothing when the peer closed."""
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
