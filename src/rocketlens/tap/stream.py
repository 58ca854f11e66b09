"""The connection to a master's replication port: log bytes in, reports out.

A master sends as fast as it is read. The frames of one read of the socket are passed on together,
because many small appends cost more than one. While there is no room for more, nothing is read.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from rocketlens.errors import ConnectFailed, ConnectionLost, ProtocolError
from rocketlens.net.server import reason_of
from rocketlens.wire.ha import FrameReader, Heartbeat, LogBytes, encode_report

_READ_BYTES: Final = 2 * 1024 * 1024
"""Room for one read of the socket."""
CONNECT_S: Final = 3.0
_EXPECTED: Final = (
    "; the broker's port for slaves is expected there: check haListenPort and brokerIP2, and that "
    "this machine reaches it"
)


Take = Callable[[list[LogBytes]], None]
"""Takes log bytes, which are valid during the call; an error ends the connection."""
OnHeartbeat = Callable[[int], None]
"""Called when the master has nothing to send, with the offset at which its next frame begins."""


class LogStream(asyncio.BufferedProtocol):
    """One connection. ``ended`` is done when it is over; its exception says why."""

    def __init__(self, take: Take, on_heartbeat: OnHeartbeat, address: str) -> None:
        """Create it for ``asyncio.create_connection``."""
        self._take: Final = take
        self._on_heartbeat: Final = on_heartbeat
        self._address: Final = address
        self._reader: Final = FrameReader()
        self._buffer: Final = memoryview(bytearray(_READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self.ended: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self.received_bytes = 0
        self.last_received_s = asyncio.get_running_loop().time()
        """When the master sent something last, on the loop's clock."""

    def report(self, physical_offset: int) -> None:
        """Report up to where the log is here; at first, where the master is to begin."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_report(physical_offset))

    def pause(self, *, is_paused: bool) -> None:
        """Read nothing more, or go on reading."""
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if is_paused else self._transport.resume_reading)()

    def close(self) -> None:
        """Close the connection; what was not sent is dropped."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what came; a failure ends the connection."""
        self.received_bytes += nbytes
        self.last_received_s = asyncio.get_running_loop().time()
        try:
            self._pass_on(nbytes)
        except Exception as error:  # noqa: BLE001 - whatever it is, this connection is over
            self.fail(error)

    def _pass_on(self, nbytes: int) -> None:
        log: list[LogBytes] = []
        next_offset = None
        for event in self._reader.feed(self._buffer[:nbytes]):
            if isinstance(event, Heartbeat):
                next_offset = event.physical_offset
            else:
                log.append(event)
        if log:
            self._take(log)
        if next_offset is not None:
            self._on_heartbeat(next_offset)
        if self._reader.failure is not None:
            raise ProtocolError(f"{self._address}: {self._reader.failure}")

    def eof_received(self) -> bool:
        """Close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        reason = "the master closed the connection" if exc is None else str(exc)
        self.fail(ConnectionLost(self._address, reason))

    def fail(self, error: Exception) -> None:
        """End the connection, with a reason."""
        if not self.ended.done():
            self.ended.set_exception(error)
            # Marked as retrieved, because a caller need not wait for it.
            self.ended.exception()
        self.close()


async def open_stream(take: Take, on_heartbeat: OnHeartbeat, host: str, port: int) -> LogStream:
    """Connect to a master's replication port; see `LogStream`.

    :raises ConnectFailed: if that is not possible.
    """
    address = f"{host}:{port}"
    try:
        async with asyncio.timeout(CONNECT_S):
            _, stream = await asyncio.get_running_loop().create_connection(
                lambda: LogStream(take, on_heartbeat, address), host, port
            )
    except TimeoutError:
        reason = f"no connection in {CONNECT_S:g} s"
        raise ConnectFailed(address, reason + _EXPECTED) from None
    except (OSError, ValueError) as error:
        # ValueError: a name that cannot be one of a host.
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise ConnectFailed(address, reason + _EXPECTED) from None
    return stream
