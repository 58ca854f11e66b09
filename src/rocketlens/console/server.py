"""Serves the console over HTTP with uvicorn, and limits its connections.

============================================  ======================================================
a connection                                  is closed
============================================  ======================================================
without a complete request head               after MAX_CONSOLE_HEAD_S, with status 408
without a complete request body               after MAX_CONSOLE_BODY_S, with status 408
whose client does not read                    after MAX_CONSOLE_UNREAD_S
idle between two requests                     after KEEP_ALIVE_S
that waits for its client                     if a new connection needs its slot
============================================  ======================================================

If an address has MAX_ADDRESS_CONNECTIONS, or all addresses together MAX_CONSOLE_CONNECTIONS, a new
connection replaces the one that has waited longest: of the same address, or of the address with the
most connections. If none has waited for MIN_IDLE_S, the new connection gets status 503. The limit
per address does not apply to trusted proxies.
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
from rocketlens.net.event_loop import StopRequest

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp

MAX_CONSOLE_CONNECTIONS: Final = 256
"""Open connections to the console."""
MAX_ADDRESS_CONNECTIONS: Final = 128
"""Open connections of one address, or of one IPv6 /64 network."""
MAX_CONSOLE_HEAD_S: Final = 20.0
"""Seconds for the head of a request, from its first byte or from the connection on."""
MAX_CONSOLE_BODY_S: Final = 60.0
"""Seconds for the body of a request: 16 MiB at 2.2 MBit/s."""
MAX_CONSOLE_UNREAD_S: Final = 60.0
"""Seconds in which a client reads nothing of an answer."""
MAX_CONSOLE_HEAD_BYTES: Final = 160 << 10
"""Bytes of a request head: texts in an address are percent-encoded, three bytes for one."""
ProxyNetwork = IPv4Network | IPv6Network
_IPV6_BITS: Final = 64
"""The prefix of an IPv6 address that identifies a customer; the customer chooses the rest."""
KEEP_ALIVE_S: Final = 30
_TOO_MANY: Final = "too many connections are open: try again in a moment"
_TOO_SLOW: Final = "the request did not arrive in time"


def client_of(address: str) -> str:
    """Return the key that counts connections of one client: the address, or the /64 of IPv6.

    Other texts are returned unchanged.
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


def is_proxy(address: str, proxies: Sequence[ProxyNetwork]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return any(parsed in each or parsed.ipv4_mapped in each for each in proxies)
    return any(parsed in each for each in proxies)


class ConnectionRules:
    """Decides which connections stay open."""

    def __init__(
        self, proxies: Sequence[ProxyNetwork] = (), clock: Callable[[], float] = monotonic
    ) -> None:
        self.clock: Final = clock
        self._proxies: Final = proxies

    def make_room(
        self, joining: "ConsoleConnection", present: "Collection[ConsoleConnection]"
    ) -> bool:
        """Return whether a new connection may stay. Can close another one."""
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
        """Close connections that exceed a time limit. Call it about once a second."""
        now = self.clock()
        for each in tuple(present):
            if each.is_unread(now):
                each.transport.abort()
            elif each.is_late(now):
                each.end(HTTPStatus.REQUEST_TIMEOUT, _TOO_SLOW)


class ConsoleConnection(H11Protocol):
    """A connection that measures how long it waits for its client."""

    def __init__(self, *, rules: ConnectionRules, **options: Any) -> None:
        super().__init__(**options)
        self.address = ""
        self.client_name = ""
        self.is_ended = False
        """True if `end` has closed it."""
        self.waits_since = math.inf
        """When it began to wait for its client; infinite while a request is answered."""
        self._limit_s = 0.0
        """Seconds that it may wait; infinite before the first byte of a further request."""
        self._rules: Final = rules
        self._unread_bytes = 0
        self._unread_since = 0.0

    def connection_made(  # type: ignore[override]  # as uvicorn has it
        self, transport: "asyncio.Transport"
    ) -> None:
        super().connection_made(transport)
        self.address = self.client[0] if self.client is not None else ""
        self.client_name = client_of(self.address)
        self._await(MAX_CONSOLE_HEAD_S)
        if not self._rules.make_room(self, cast("set[ConsoleConnection]", self.connections)):
            self.end(HTTPStatus.SERVICE_UNAVAILABLE, _TOO_MANY)

    def data_received(self, piece: bytes) -> None:
        super().data_received(piece)
        self._await_rest(MAX_CONSOLE_HEAD_S)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # uvicorn closes idle connections.
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
        # Further bytes of the same part do not extend the time.
        if limit_s != self._limit_s:
            self._limit_s, self.waits_since = limit_s, self._rules.clock()

    def is_late(self, now: float) -> bool:
        return not self.is_ended and now - self.waits_since >= self._limit_s

    def is_unread(self, now: float) -> bool:
        """Return whether the client has read nothing for MAX_CONSOLE_UNREAD_S. Call it often."""
        waiting = self.transport.get_write_buffer_size()
        if waiting == 0 or waiting < self._unread_bytes or not self._unread_bytes:
            self._unread_since = now
        self._unread_bytes = waiting
        return now - self._unread_since >= MAX_CONSOLE_UNREAD_S

    def end(self, status: HTTPStatus, text: str) -> None:
        """Close the connection, with this status if no answer has begun."""
        self.is_ended = True
        # None before the first request, although declared otherwise.
        cycle: RequestResponseCycle | None = self.cycle
        is_begun = False
        if cycle is not None and not cycle.response_complete:
            is_begun = cycle.response_started
            # Stop the handler at once, so that it writes nothing after the status.
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
"""Seconds between two checks for slow connections."""
_STOP_S: Final = 3
"""Seconds for running answers when the server stops."""


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def listening(bound: Host) -> Iterator[socket.socket]:
    """Yield a socket that listens on an address; port 0 is any free one.

    :raises BadInput: if the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in bound.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((bound.address, bound.port))
            # Now: programs connect as soon as the console reports that it is ready.
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
    """Serve until a stop is requested. A second stop request cancels running answers.

    :param proxies: Trusted proxies, whose X-Forwarded-For and X-Forwarded-Proto are used.
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
