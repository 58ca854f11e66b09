"""Client connections by address: one each, opened on demand, with pipelined requests.

If a connection is refused, calls fail with ConnectFailed until the next attempt, 0.05 s later,
doubled up to 1 s with each failure. If it closes, every pending request fails with ConnectionLost,
and the next call reconnects. After CallTimeout the connection stays, and a late response is
dropped. All three errors name the address and are retriable.

The pool connects only to addresses for which ``allows`` returns True, never to one from a message
id, or from the response of an unknown server.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final

from rocketlens import limits
from rocketlens.errors import (
    AddressNotAllowed,
    BadInput,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    WrongUse,
)
from rocketlens.model.message import Host
from rocketlens.net.channel import NO_FIELDS, Channel, Handler
from rocketlens.net.channel_group import ChannelGroup, ConnectionLimits, Waiting
from rocketlens.net.pace import WorkThreads
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import Connection

RECONNECT_DELAYS_S: Final = (0.05, 1.0)
"""Seconds before a refusing address is tried again: the first, doubled up to the last."""
CALL_TIMEOUT_S: Final = 3.0
"""Default seconds to wait for an answer. RocketMQ: 3, its admin tools 5."""
_ADDRESS: Final = re.compile(
    r"(\[(?P<v6>[^][\s]*:[^][\s]*)\]|(?P<host>[^][:\s]+)):(?P<port>[0-9]{1,5})"
)

_NAME_THREADS: Final = WorkThreads(8, "names")

NO_HANDLERS: Final[Mapping[int, Handler]] = {}


def parse_address(text: str) -> Host:
    """Parse ``10.0.0.1:10911``, ``broker.example:10911`` or ``[::1]:10911``.

    :raises BadInput: if it is not one of these.
    """
    match = _ADDRESS.fullmatch(text) if len(text) <= limits.MAX_ADDRESS_CHARACTERS else None
    if match is None or not 0 < int(match["port"]) < 65_536:
        shown = text[: limits.MAX_ADDRESS_CHARACTERS]
        raise BadInput(f"address {shown!r}: give host:port, such as 10.0.0.1:9876 or [::1]:9876")
    return Host(match["v6"] or match["host"], int(match["port"]))


NAME_SERVER_EXPECTED: Final = (
    "; a name server is expected there: check the address, and that it runs (`rocketlens serve` "
    "starts one with a broker)"
)
"""A possible result of `ClientPool.expected`."""


class _Peer:
    """State of one address."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.dialling: asyncio.Task[Channel] | None = None
        self.failures = 0
        self.next_dial_s = 0.0
        self.last_failure = ""


class ClientPool:
    """Client connections to any number of servers; created and used in one event loop.

    ``handlers`` handle requests of servers (codes 39, 40, 307, 309 and the like) on any connection.
    ``tls`` is used for every connection. ``expected`` returns a hint for errors: the server
    expected at an address, and what to check.
    """

    def __init__(
        self,
        allows: Callable[[str], bool],
        *,
        handlers: Mapping[int, Handler] = NO_HANDLERS,
        tls: ssl.SSLContext | None = None,
        connect_timeout_s: float = limits.CONNECT_TIMEOUT_S,
        call_timeout_s: float = CALL_TIMEOUT_S,
        expected: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.allows: Final = allows
        self.expected: Final = expected
        self.handlers: Final = handlers
        self.tls: Final = tls
        self.connect_timeout_s: Final = connect_timeout_s
        self.call_timeout_s: Final = call_timeout_s
        self.group: Final = ChannelGroup(ConnectionLimits(idle_s=None))
        self._peers: dict[str, _Peer] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    async def call(
        self,
        address: str,
        code: int,
        ext_fields: dict[str, str] = NO_FIELDS,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request; return its response with any code. ``timeout_s`` starts with the send.

        :raises AddressNotAllowed: if the address is not allowed.
        :raises BadInput: if the address is invalid, or the request cannot be written.
        :raises RemotingError: if there is no response; see the module docstring.
        """
        channel = await self.channel(address)
        if channel.is_behind:
            await self._until_writable(channel, timeout_s)
        wait_s = self.call_timeout_s if timeout_s is None else timeout_s
        return await channel.request(code, ext_fields, body, timeout_s=wait_s)

    async def tell(
        self, address: str, code: int, ext_fields: dict[str, str] = NO_FIELDS, body: bytes = b""
    ) -> None:
        """Send a one-way request; its arrival is not confirmed.

        :raises RemotingError: if there is no connection. Otherwise as `call`.
        """
        channel = await self.channel(address)
        if channel.is_behind:
            await self._until_writable(channel, None)
        channel.tell(code, ext_fields, body)

    async def channel(self, address: str) -> Channel:
        """Return the connection to ``address``; open it if there is none.

        :raises AddressNotAllowed: if the address is not allowed.
        :raises BadInput: if the address is invalid.
        :raises WrongUse: if the pool is closed, or used in another event loop than before.
        :raises ConnectFailed: if it cannot be opened.
        """
        self._check_loop(address)
        peer = self._peers.get(address)
        if peer is not None and peer.channel is not None and peer.channel.is_open:
            return peer.channel
        if self._is_closed:
            raise WrongUse(f"{address}: this client is closed")
        if not self.allows(address):
            shown = address[: limits.MAX_ADDRESS_CHARACTERS]
            raise AddressNotAllowed(f"address {shown!r} is in no configuration or route")
        host = parse_address(address)
        peer = self._peers.setdefault(address, _Peer())
        if peer.dialling is None:
            loop = asyncio.get_running_loop()
            if peer.failures and peer.next_dial_s > loop.time():
                # The text stays the same, so that coverage has it once for a broker's topics.
                raise ConnectFailed(address, peer.last_failure)
            peer.dialling = loop.create_task(self._dial(address, host, peer))
        # Shielded: other callers wait for the same connection.
        return await asyncio.shield(peer.dialling)

    def ready_channel(self, address: str) -> Channel | None:
        """Return the connection to ``address`` if it can send at once, else None.

        :raises WrongUse: if the pool is used in another event loop than before.
        """
        self._check_loop(address)
        peer = self._peers.get(address)
        channel = None if peer is None else peer.channel
        if channel is None or not channel.is_open or channel.is_behind:
            return None
        return channel

    async def close(self) -> None:
        self._is_closed = True
        dialling = [peer.dialling for peer in self._peers.values() if peer.dialling is not None]
        for task in dialling:
            task.cancel()
        if dialling:
            await asyncio.wait(dialling)
        await self.group.close(0)

    def _check_loop(self, address: str) -> None:
        """Raise WrongUse in a second event loop: connections belong to the first."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise WrongUse(
                f"{address}: this client was used in another event loop: create one inside each "
                "asyncio.run, or use SyncProducer or SyncMQAdmin"
            )

    async def _until_writable(self, channel: Channel, timeout_s: float | None) -> None:
        wait_s = self.call_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(wait_s):
                await channel.writable()
        except TimeoutError:
            raise CallTimeout(channel.address, f"it read nothing for {wait_s:g} s") from None

    async def _dial(self, address: str, host: Host, peer: _Peer) -> Channel:
        def new_channel() -> Channel:
            connection: Connection[Waiting] = Connection()
            return Channel(self.group, self.handlers, connection, address)

        try:
            async with asyncio.timeout(self.connect_timeout_s):
                channel = await self._connect(host, new_channel)
        except TimeoutError:
            reason = f"no connection in {self.connect_timeout_s:g} s"
            raise self._record_failure(address, peer, reason + self.expected(address)) from None
        except ssl.SSLCertVerificationError as error:
            reason = f"its certificate is not trusted: {error.verify_message or error}"
            raise self._record_failure(address, peer, reason) from None
        except ssl.SSLError as error:
            raise self._record_failure(address, peer, f"no TLS: {error.reason or error}") from None
        except OSError as error:
            reason = self._reason_of(error) + self.expected(address)
            raise self._record_failure(address, peer, reason) from None
        finally:
            peer.dialling = None
        peer.failures = 0
        peer.channel = channel
        if not channel.is_open:
            raise ConnectionLost(address, "the connection was closed at once")
        return channel

    async def _connect(self, host: Host, new_channel: Callable[[], Channel]) -> Channel:
        """Connect to the first address of a host that accepts. Raises the error of the last.

        Each address has an equal share of the time.
        """
        addresses = await _addresses(host.address)
        share_s = self.connect_timeout_s / len(addresses)
        while True:
            address = addresses.pop(0)
            try:
                async with asyncio.timeout(share_s if addresses else None):
                    _, channel = await asyncio.get_running_loop().create_connection(
                        new_channel,
                        address,
                        host.port,
                        ssl=self.tls,
                        server_hostname=self._name_to_check(host),
                    )
            except OSError:
                if not addresses:
                    raise
            else:
                return channel

    def _name_to_check(self, host: Host) -> str | None:
        if self.tls is None:
            return None
        return host.address if self.tls.check_hostname else ""

    def _reason_of(self, error: OSError) -> str:
        reason = error.strerror or str(error)
        if self.tls is not None and (not reason or isinstance(error, ConnectionError)):
            if isinstance(error, ConnectionRefusedError):
                return f"no connection: {reason}"
            return "no TLS: the other end closed the connection; does it accept TLS on this port?"
        return f"no connection: {reason or type(error).__name__}"

    def _record_failure(self, address: str, peer: _Peer, reason: str) -> ConnectFailed:
        first_s, last_s = RECONNECT_DELAYS_S
        delay_s = min(first_s * 2**peer.failures, last_s)
        peer.failures = min(peer.failures + 1, 30)
        peer.next_dial_s = asyncio.get_running_loop().time() + delay_s
        peer.last_failure = reason
        return ConnectFailed(address, reason)


async def _addresses(host: str) -> list[str]:
    """Return the IP addresses of a host, in the order to try.

    Names are resolved in daemon threads. Those of the event loop would delay the end of the
    process, and one slow name would delay others.

    :raises OSError: if the name is invalid or unknown.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [host]

    def look_up() -> list[str]:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except UnicodeError:
            raise OSError("a host name has labels of 1 to 63 characters") from None
        # IPv6 link addresses need their interface.
        return [
            f"{address[0]}%{address[3]}" if len(address) == 4 and address[3] else str(address[0])
            for *_, address in answers
        ]

    return await asyncio.wrap_future(_NAME_THREADS.submit(look_up, host))
