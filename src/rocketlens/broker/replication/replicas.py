"""Sends the log to slaves, and holds responses to sends until their messages are safe.

The protocol is that of :mod:`rocketlens.wire.ha`. A slave is a RocketMQ broker with
``brokerRole=SLAVE``, or ``rocketlens tap``.

======================  ========================================================================
a slave that            is sent
======================  ========================================================================
requests offset 0       the log from the start of its last segment on, as RocketMQ does
requests another        the log from there on
is outside the log      heartbeats only
======================  ========================================================================

New records are sent at once if a producer waits for them, otherwise within :data:`TICK_S`. A
slave's report counts only up to the offset sent over this connection, so a slave with another log
acknowledges nothing. Source: ``DefaultHAService``, ``DefaultHAConnection``.

A send waits until its message is durable: here, at a slave, or both. The store's flush thread
reports the end of each sync. All responses for messages that became durable are sent in one step of
the event loop.

====================  =============================  ===========================================
``flushDiskType``     ``brokerRole``                 a send waits for
====================  =============================  ===========================================
ASYNC_FLUSH           ASYNC_MASTER                   nothing
SYNC_FLUSH            ASYNC_MASTER                   the disk
ASYNC_FLUSH           SYNC_MASTER                    a slave
SYNC_FLUSH            SYNC_MASTER                    both; if both are late, its code is the slave's
====================  =============================  ===========================================
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, cast

from rocketlens.errors import StoreError, StoreFailed
from rocketlens.net.channel import Response
from rocketlens.store.write.message_store import MessageStore
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.ha import ReportReader, encode_header

MAX_REPORTS_A_TICK: Final = 512
"""Reports of one slave address in 50 ms; then reading pauses. RocketMQ: no limit."""
MAX_REPLICAS: Final = 16
"""Slaves of a broker; half of them can have one address. RocketMQ: no limit."""
_log: Final = logging.getLogger("rocketlens.broker")

TICK_S: Final = 0.05
FRAME_BYTES: Final = 32_768
"""RocketMQ: ``haTransferBatchSize``."""
_FRAMES_AT_ONCE: Final = 8
"""Frames of one write to the socket."""
_WRITES_AT_ONCE: Final = 4
"""Writes for one slave in one turn of the event loop."""
_UNSENT_BYTES: Final = 4 * FRAME_BYTES * _FRAMES_AT_ONCE
FIRST_REPORT_S: Final = 5.0
"""Seconds without the first report after which a slave is disconnected."""
HEARTBEAT_S: Final = 5.0
"""RocketMQ: ``haSendHeartbeatInterval``."""
SILENCE_S: Final = 20.0
"""Seconds without a report after which a slave is disconnected: ``haHousekeepingInterval``."""


class SlaveConnection(asyncio.Protocol):
    """The connection of one slave."""

    def __init__(self, replicas: "Replicas") -> None:
        self._replicas: Final = replicas
        self._reports: Final = ReportReader()
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._start = self._position = -1
        self._reported_s = self._written_s = 0.0
        self._is_read = True
        self.host = self.address = ""
        self.acknowledged_offset = -1
        """The slave has the log durably up to here; -1 before its first report."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES)
        peer = transport.get_extra_info("peername") or ("a closed connection", 0)
        self.host, self.address = peer[0], f"{peer[0]}:{peer[1]}"
        self._reported_s = self._written_s = asyncio.get_running_loop().time()
        self._replicas.add(self)

    @property
    def has_reported(self) -> bool:
        return self._start >= 0

    def data_received(self, received: bytes) -> None:
        count = self._reports.feed(received)
        if self._reports.failure is not None:
            self.close(str(self._reports.failure))
            return
        if not self._replicas.may_read_on(self.host, max(count, 1)) and self._transport is not None:
            self._is_read = False
            self._transport.pause_reading()
        first, newest = self._reports.first, self._reports.newest
        if not count or first is None or newest is None:
            return
        self._reported_s = asyncio.get_running_loop().time()
        if self._start < 0:
            self._start = self._position = first or self._replicas.last_segment_offset
            _log.info("slave %s copies the log from offset %d on", self.address, self._position)
        if self._start <= newest <= self._position:
            self.acknowledged_offset = newest
            self._replicas.on_report()
        self.send()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.send()

    def send(self) -> None:
        for _ in range(_WRITES_AT_ONCE):
            if self._transport is None or self._is_paused or self._position < 0:
                return
            frames = self._next_frames()
            if not frames:
                return
            self._write(b"".join(frames))
        asyncio.get_running_loop().call_soon(self.send)

    def _next_frames(self) -> list[bytes | memoryview]:
        segment = self._replicas.log_from(self._position)
        if segment is None:
            return []
        view, base_offset = segment
        frames: list[bytes | memoryview] = []
        for _ in range(_FRAMES_AT_ONCE):
            start = self._position - base_offset
            body = view[start : start + FRAME_BYTES]
            if not body:
                break
            frames += (encode_header(self._position, len(body)), body)
            self._position += len(body)
        return frames

    def _write(self, content: bytes) -> None:
        if self._transport is not None:
            self._written_s = asyncio.get_running_loop().time()
            self._transport.write(content)

    def tick(self) -> None:
        """Send new records or a heartbeat; disconnect a silent slave; resume paused reading."""
        now_s = asyncio.get_running_loop().time()
        bound_s = SILENCE_S if self.has_reported else FIRST_REPORT_S
        if now_s - self._reported_s > bound_s:
            self.close(f"it did not report for {bound_s:g} s")
            return
        if not self._is_read and self._transport is not None:
            self._is_read = True
            self._transport.resume_reading()
        self.send()
        if self._position >= 0 and now_s - self._written_s > HEARTBEAT_S and not self._is_paused:
            self._write(encode_header(self._position, 0))

    def close(self, reason: str) -> None:
        if self._transport is not None:
            _log.warning("slave %s is disconnected: %s", self.address, reason)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._replicas.remove(self)


class Replicas:
    """All connected slaves. Belongs to the running event loop."""

    def __init__(self, store: MessageStore, timeout_ms: int, max_behind_bytes: int) -> None:
        """Sends wait ``timeout_ms`` for slaves that lack less than ``max_behind_bytes`` of log."""
        self._store: Final = store
        self._timeout_s: Final = timeout_ms / 1000
        self._max_behind_bytes: Final = max_behind_bytes
        self._loop: Final = asyncio.get_running_loop()
        self._slaves: Final[dict[SlaveConnection, None]] = {}
        self._reports: Final[Counter[str]] = Counter()
        self._waiting: Final[deque[tuple[int, PendingReply]]] = deque()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_woken = False

    async def listen(self, address: str, port: int) -> None:
        self._server = await self._loop.create_server(lambda: SlaveConnection(self), address, port)

    @property
    def count(self) -> int:
        return len(self._slaves)

    @property
    def behind_bytes(self) -> int:
        """Bytes of log that the most advanced slave lacks; 0 without a slave."""
        return max(self._store.end_offset - self._acknowledged_offset, 0) if self._slaves else 0

    @property
    def _acknowledged_offset(self) -> int:
        return max((slave.acknowledged_offset for slave in self._slaves), default=-1)

    @property
    def last_segment_offset(self) -> int:
        end_offset = self._store.end_offset
        return end_offset - end_offset % self._store.config.mappedFileSizeCommitLog

    def log_from(self, physical_offset: int) -> tuple[memoryview, int] | None:
        """Return a segment as `MessageStore.log_from`; None also if it cannot be read now."""
        try:
            return self._store.log_from(physical_offset)
        except (StoreError, OSError) as error:
            _log.warning("the log at offset %d cannot be sent now: %s", physical_offset, error)
            return None

    def reply_when_copied(
        self, end_offset: int, response: Response
    ) -> "Response | asyncio.Future[Response | None]":
        """Return ``response`` once a slave has the log durably up to ``end_offset``.

        Its code is SLAVE_NOT_AVAILABLE (11) if no slave is close enough, FLUSH_SLAVE_TIMEOUT (12)
        if late.
        """
        acknowledged_offset = self._acknowledged_offset
        if acknowledged_offset < 0 or end_offset - acknowledged_offset >= self._max_behind_bytes:
            return response._replace(code=ResponseCode.SLAVE_NOT_AVAILABLE)
        late = ResponseCode.FLUSH_SLAVE_TIMEOUT
        waiting = PendingReply(self._loop, response, self._timeout_s, late)
        self._waiting.append((end_offset, waiting))
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._send_all)
        return waiting.future

    def add(self, slave: SlaveConnection) -> None:
        """Add a new slave. If there are too many, disconnect the oldest one without a report."""
        same_host = [each for each in self._slaves if each.host == slave.host]
        for slaves, bound, of in (
            (same_host, MAX_REPLICAS // 2, f" of {slave.host}"),
            (self._slaves, MAX_REPLICAS, ""),
        ):
            if len(slaves) < bound:
                continue
            oldest = next((each for each in slaves if not each.has_reported), None)
            if oldest is None:
                slave.close(f"{bound} slaves{of} are connected, the maximum")
                return
            self.remove(oldest)
            oldest.close("it did not report, and another slave replaces it")
        self._slaves[slave] = None
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def may_read_on(self, host: str, reports: int) -> bool:
        """Count reports of a host; return False if it reached the bound of this tick."""
        self._reports[host] += reports
        return self._reports[host] < MAX_REPORTS_A_TICK

    def remove(self, slave: SlaveConnection) -> None:
        if slave in self._slaves:
            del self._slaves[slave]
            _log.info("slave %s is gone", slave.address)

    def on_report(self) -> None:
        offset = self._acknowledged_offset
        while self._waiting and self._waiting[0][0] <= offset:
            self._waiting.popleft()[1].end()

    def _send_all(self) -> None:
        self._is_woken = False
        for slave in tuple(self._slaves):
            slave.send()

    def _tick(self) -> None:
        self._timer = None
        self._reports.clear()
        while self._waiting and self._waiting[0][1].future.done():
            self._waiting.popleft()
        for slave in tuple(self._slaves):
            slave.tick()
        if self._slaves:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._timer is not None:
            self._timer.cancel()
        for slave in tuple(self._slaves):
            slave.close("the broker stops")


class PendingReply:
    """A response that waits; after the timeout it gets another code."""

    __slots__ = ("_response", "_timer", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        response: Response,
        timeout_s: float,
        late: ResponseCode,
    ) -> None:
        self._response = response
        self.future: asyncio.Future[Response | None] = loop.create_future()
        self._timer = loop.call_later(timeout_s, self._expire, late)

    def _expire(self, late: ResponseCode) -> None:
        if not self.future.done():
            self.future.set_result(self._response._replace(code=late))

    def end(self, failure: StoreError | None = None) -> None:
        self._timer.cancel()
        if self.future.done():
            return
        if failure is None:
            self.future.set_result(self._response)
        else:
            self.future.set_exception(failure)


Pending = Response | asyncio.Future[Response | None]
WhenDurable = Callable[[int, Callable[[StoreFailed | None], None]], None]


class SafeReplies:
    """Holds responses to sends until their messages are as safe as configured.

    ``when_durable`` and ``slaves`` are None if sends do not wait for them. ``when_durable`` calls
    back in any thread. Belongs to the running event loop.
    """

    def __init__(
        self, when_durable: WhenDurable | None, timeout_ms: int, slaves: Replicas | None
    ) -> None:
        self._when_durable: Final = when_durable
        self._timeout_s: Final = timeout_ms / 1000
        self._slaves: Final = slaves
        self.is_needed: Final = when_durable is not None or slaves is not None
        """True if a send waits for the disk or for slaves."""
        self._loop: Final = asyncio.get_running_loop()
        self._durable: Final[deque[tuple[PendingReply, StoreFailed | None]]] = deque()
        self._is_scheduled = False

    def reply(self, end_offset: int, response: Response) -> Pending:
        """Return ``response`` once the log is safe below ``end_offset``, or with the code of a
        failure.

        Its code is FLUSH_DISK_TIMEOUT (10) if the disk is late. Fails with StoreFailed if a sync
        failed.
        """
        if self._when_durable is None:
            return self._at_slave(end_offset, response)
        late = ResponseCode.FLUSH_DISK_TIMEOUT
        pending = PendingReply(self._loop, response, self._timeout_s, late)
        self._when_durable(end_offset, lambda failure: self._on_durable(pending, failure))
        if self._slaves is None:
            return pending.future
        return asyncio.ensure_future(
            _await_both(pending.future, self._at_slave(end_offset, response))
        )

    def _at_slave(self, end_offset: int, response: Response) -> Pending:
        slaves = self._slaves
        return response if slaves is None else slaves.reply_when_copied(end_offset, response)

    def _on_durable(self, pending: PendingReply, failure: StoreFailed | None) -> None:
        self._durable.append((pending, failure))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._send_all)

    def _send_all(self) -> None:
        self._is_scheduled = False
        while self._durable:
            pending, failure = self._durable.popleft()
            pending.end(failure)


async def _await_both(
    durable: asyncio.Future[Response | None], at_slave: Pending
) -> Response | None:
    here = await durable
    there = at_slave if isinstance(at_slave, Response) else await at_slave
    return here if there is None or there.code == ResponseCode.SUCCESS else there
