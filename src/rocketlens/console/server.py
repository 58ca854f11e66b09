"""Serves the console over HTTP, with uvicorn, and bounds its connections: how many of one address,
and how long each may take.


============================================  ======================================================
a connection                                  ends
============================================  ======================================================
whose request has no complete head            after MAX_CONSOLE_HEAD_S, with status 408
whose request has no complete body            after MAX_CONSOLE_BODY_S, with status 408
that does not take what was sent to it        after MAX_CONSOLE_UNREAD_S
that is idle between two requests             after KEEP_ALIVE_S
that waits for a request or the rest of one   for a new one, when there is no room for that
============================================  ======================================================

There is no room when an address has MAX_ADDRESS_CONNECTIONS, or all have MAX_CONSOLE_CONNECTIONS.
Then the one that has waited for longest is closed, of the same address, or of the one with most
connections. If none has waited for MIN_IDLE_S, the new one gets status 503. Trusted proxies have
the connections of many, and no share of their own.
"""

import asyncio
import contextlib
import math
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.message import Host
from rocketlens.model.text.escape import printable
from rocketlens.net.event_loop import StopRequest

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp

MAX_CONSOLE_CONNECTIONS: Final = 256
"""Open connections to the console: one that waits is closed for another, or that gets status 503.
"""
MAX_ADDRESS_CONNECTIONS: Final = 128
"""Of these from one address, or one IPv6 network of 64 bits: others are served beside it."""
MAX_CONSOLE_HEAD_S: Final = 20.0
"""Seconds for a request to the console without its body, from the first byte or the connection on.
"""
MAX_CONSOLE_BODY_S: Final = 60.0
"""Seconds for the body of a request to the console: 16 MiB at 2.2 MBit/s."""
MAX_CONSOLE_UNREAD_S: Final = 60.0
"""Seconds in which the reader of an answer of the console takes nothing of what was sent."""
MAX_CONSOLE_HEAD_BYTES: Final = 160 << 10
"""Of one request to the console without its body: a text in its address has up to three bytes for
each of its own.
"""
ProxyNetwork = IPv4Network | IPv6Network
_IPV6_BITS: Final = 64
"""Of an IPv6 address, what a provider gives to one customer at least: the rest is free to choose.
"""
KEEP_ALIVE_S: Final = 30
_TOO_MANY: Final = "too many connections are open: try again in a moment"
_TOO_SLOW: Final = "the request did not arrive in time"


def client_of(address: str) -> str:
    """Return what addresses of one client have in common: of IPv6 the first 64 bits.

    A text that is not an address is returned as it is.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ip_network((parsed, _IPV6_BITS), strict=False))
    return str(parsed)


def parse_proxy(text: str) -> ProxyNetwork:
    """Return the address of a proxy, or a range of them such as ``10.0.0.0/8``.

    :raises BadInput: if it is neither.
    """
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise BadInput(f"{printable(text)[:60]} is not an address or a range of them") from None


def is_proxy(address: str, proxies: Sequence[ProxyNetwork]) -> bool:
    """Return whether an address is that of a trusted proxy."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return any(parsed in each or parsed.ipv4_mapped in each for each in proxies)
    return any(parsed in each for each in proxies)


class ConnectionRules:
    """Decides which connections of a server stay."""

    def __init__(
        self, proxies: Sequence[ProxyNetwork] = (), clock: Callable[[], float] = monotonic
    ) -> None:
        """Trust these proxies; ``clock`` is in seconds."""
        self.clock: Final = clock
        self._proxies: Final = proxies

    def make_room(
        self, joining: "ConsoleConnection", present: "Collection[ConsoleConnection]"
    ) -> bool:
        """Return whether there is room for a connection, which may close another one."""
        others = [each for each in present if each is not joining and not each.is_ended]
        own = [each for each in others if each.client_name == joining.client_name]
        is_full = len(own) >= MAX_ADDRESS_CONNECTIONS
        if is_full and not is_proxy(joining.address, self._proxies):
            return self._close_one(own)
        if len(others) < MAX_CONSOLE_CONNECTIONS:
            return True
        counts = Counter(each.client_name for each in others)
        largest = max(counts.values())
        return self._close_one([each for each in others if counts[each.client_name] == largest])

    def _close_one(self, connections: "Sequence[ConsoleConnection]") -> bool:
        before = self.clock() - limits.MIN_IDLE_S
        longest = min(connections, key=attrgetter("waits_since"))
        if longest.waits_since >= before:
            return False
        longest.end(HTTPStatus.REQUEST_TIMEOUT, _TOO_SLOW)
        return True

    def end_slow(self, present: "Collection[ConsoleConnection]") -> None:
        """Close connections that take too long. Call it often."""
        now = self.clock()
        for each in tuple(present):
            if each.is_unread(now):
                each.transport.abort()
            elif each.is_late(now):
                each.end(HTTPStatus.REQUEST_TIMEOUT, _TOO_SLOW)


class ConsoleConnection(H11Protocol):
    """One connection, which knows since when it waits for its peer."""

    def __init__(self, *, rules: ConnectionRules, **options: Any) -> None:
        super().__init__(**options)
        self.address = ""
        self.client_name = ""
        self.is_ended = False
        """Whether it was closed before its time."""
        self.waits_since = math.inf
        """Since when its peer has something to send; infinite while it is answered."""
        self._limit_s = 0.0
        """Seconds that it may take for that; infinite before the first byte of another request."""
        self._rules: Final = rules
        self._unread_bytes = 0
        self._unread_since = 0.0

    def connection_made(  # type: ignore[override]  # as uvicorn has it
        self, transport: "asyncio.Transport"
    ) -> None:
        """Wait for a request, unless there are too many connections."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client is not None else ""
        self.client_name = client_of(self.address)
        self._await(MAX_CONSOLE_HEAD_S)
        if not self._rules.make_room(self, cast("set[ConsoleConnection]", self.connections)):
            self.end(HTTPStatus.SERVICE_UNAVAILABLE, _TOO_MANY)

    def data_received(self, piece: bytes) -> None:
        """Take a piece of a request."""
        super().data_received(piece)
        self._await_rest(MAX_CONSOLE_HEAD_S)

    def on_response_complete(self) -> None:
        """Wait for another request."""
        super().on_response_complete()
        # What ends such a connection, if nothing comes, is uvicorn's own time limit.
        self._await_rest(math.inf)

    def _await_rest(self, head_limit_s: float) -> None:
        state = self.conn.their_state
        if state is h11.IDLE:
            self._await(head_limit_s)
        elif state is h11.SEND_BODY:
            self._await(MAX_CONSOLE_BODY_S)
        else:
            self._limit_s, self.waits_since = 0.0, math.inf

    def _await(self, limit_s: float) -> None:
        # Another byte of the same part gives no more time.
        if limit_s != self._limit_s:
            self._limit_s, self.waits_since = limit_s, self._rules.clock()

    def is_late(self, now: float) -> bool:
        """Return whether the rest of a request did not come in time."""
        return not self.is_ended and now - self.waits_since >= self._limit_s

    def is_unread(self, now: float) -> bool:
        """Return whether the peer took nothing for too long of what waits for it."""
        waiting = self.transport.get_write_buffer_size()
        if waiting == 0 or waiting < self._unread_bytes or not self._unread_bytes:
            self._unread_since = now
        self._unread_bytes = waiting
        return now - self._unread_since >= MAX_CONSOLE_UNREAD_S

    def end(self, status: HTTPStatus, text: str) -> None:
        """Close it, with a status if no answer has begun."""
        self.is_ended = True
        # None before the first request, whatever its declared type is.
        cycle: RequestResponseCycle | None = self.cycle
        is_begun = False
        if cycle is not None and not cycle.response_complete:
            is_begun = cycle.response_started
            # The handler is stopped at once, and writes nothing behind the status.
            cycle.disconnected = True
            cycle.message_event.set()
        if not is_begun and self._limit_s != math.inf:
            self.transport.write(_answer(status, text))
        self.transport.close()


def _answer(status: HTTPStatus, text: str) -> bytes:
    body = f"{text}\n".encode("ascii")
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


_SWEEP_S: Final = 1.0
"""Seconds between two looks for connections that take too long."""
_STOP_S: Final = 3
"""Seconds for answers that are under way when the server stops."""


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle none."""
        yield


@contextlib.contextmanager
def listening(bound: Host) -> Iterator[socket.socket]:
    """Return a socket that is bound to an address; port 0 is any free one.

    :raises BadInput: if it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in bound.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((bound.address, bound.port))
            # At once: a program that reads that the console is ready can connect.
            listener.listen(MAX_CONSOLE_CONNECTIONS)
        except OSError as error:
            raise BadInput(f"cannot listen on {bound}: {error.strerror or error}") from error
        yield listener


async def serve(
    app: "ASGIApp",
    listener: socket.socket,
    ending: StopRequest,
    proxies: Sequence[ProxyNetwork] = (),
) -> None:
    """Serve until a stop is requested; a second request does not wait for answers.

    :param proxies: Whose X-Forwarded-For and X-Forwarded-Proto are believed.
    """
    rules = ConnectionRules(proxies)
    server = _Server(
        uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(ConsoleConnection, rules=rules)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(map(str, proxies)),
            h11_max_incomplete_event_size=MAX_CONSOLE_HEAD_BYTES,
        )
    )

    async def stop() -> None:
        await ending.ended.wait()
        server.should_exit = True
        await ending.hurried.wait()
        server.force_exit = True

    async def sweep() -> None:
        present = cast("set[ConsoleConnection]", server.server_state.connections)
        while True:
            await asyncio.sleep(_SWEEP_S)
            rules.end_slow(present)

    beside = [asyncio.create_task(stop()), asyncio.create_task(sweep())]
    try:
        await server.serve(sockets=[listener])
    finally:
        for each in beside:
            each.cancel()
