"""The connection to a master's replication port: log bytes in, reports out.

The frames of one read of the socket are handled together, because many small appends cost more than
one. Reading pauses while the store has no room.
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
"""Handles log bytes, which are valid during the call; an error ends the connection."""
OnHeartbeat = Callable[[int], None]
"""Called with the master's next offset when it has no more log to send."""


class LogStream(asyncio.BufferedProtocol):
    """One connection. ``ended`` is done when it is closed; its exception is the reason."""

    def __init__(self, take: Take, on_heartbeat: OnHeartbeat, address: str) -> None:
        self._take: Final = take
        self._on_heartbeat: Final = on_heartbeat
        self._address: Final = address
        self._reader: Final = FrameReader()
        self._buffer: Final = memoryview(bytearray(_READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self.ended: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self.received_bytes = 0
        self.last_received_s = asyncio.get_running_loop().time()
        """Time of the last received bytes, on the loop's clock."""

    def report(self, physical_offset: int) -> None:
        """Report the offset of the copy; the first report requests the log from there."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_report(physical_offset))

    def pause(self, *, is_paused: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if is_paused else self._transport.resume_reading)()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received_bytes += nbytes
        self.last_received_s = asyncio.get_running_loop().time()
        try:
            self._handle(nbytes)
        except Exception as error:  # noqa: BLE001 - any failure ends this connection
            self.fail(error)

    def _handle(self, nbytes: int) -> None:
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
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the master closed the connection" if exc is None else str(exc)
        self.fail(ConnectionLost(self._address, reason))

    def fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
            # Mark it as retrieved: a caller need not wait for it.
            self.ended.exception()
        self.close()


async def open_stream(take: Take, on_heartbeat: OnHeartbeat, host: str, port: int) -> LogStream:
    """:raises ConnectFailed: if there is no connection in `CONNECT_S`."""
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
        # ValueError: an invalid host name.
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise ConnectFailed(address, reason + _EXPECTED) from None
    return stream
