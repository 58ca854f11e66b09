"""Follows one broker: connects, appends, acknowledges, and reconnects after any failure.

======================  ========================================================================
action                  when
======================  ========================================================================
acknowledgement         when received log is synced, and at least every 5 s; with ``no_ack`` only
                        the first one, which requests an offset, is repeated
runtime information     every 10 s: first and last offset of the master's log
tables                  every 10 s: topics, groups, offsets
note                    every 10 s, and at each change of the problem
cleaning                every 10 s
a new connection        1 s after the old one ended, then 2 s and so on up to 10 s; at once if the
                        master deleted the next log, or another master is registered; 2 s after the
                        master had another log, then 4 s and so on up to 10 minutes
======================  ========================================================================

An acknowledged offset is durable here: with ``brokerRole=SYNC_MASTER`` a producer's send waits for
it.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.topology import Topology
from rocketlens.errors import (
    BadInput,
    BrokerError,
    CallTimeout,
    CopyFailed,
    RemotingError,
    RocketLensError,
    StoreBusy,
    StoreFailed,
    StoreFull,
    StoreLocked,
)
from rocketlens.store.disk import Disk
from rocketlens.tap.copy_log import LogCopy, LogReplaced
from rocketlens.tap.masters import Master, MasterAbsent, copy_tables, find_master
from rocketlens.tap.stream import LogStream, open_stream
from rocketlens.wire.ha import LogBytes

MAX_TAP_PAUSE_S: Final = 10.0
"""Maximum seconds between two connections to a broker that does not answer. RocketMQ: 5."""
MAX_REPLACED_PAUSE_S: Final = 600.0
"""Maximum seconds before the log of a broker is copied that had many other logs."""
_log: Final = logging.getLogger("rocketlens.tap")

REPORT_S: Final = 5.0
"""RocketMQ: ``haSendHeartbeatInterval``. A master closes a connection that is silent for 20 s."""
NO_DATA_S: Final = 20.0
POLL_S: Final = 10.0
FIRST_PAUSE_S: Final = 1.0
ROOM_S: Final = 1.0
"""Seconds between two attempts to write log that exceeded the room."""


def replaced_pause_s(copies: int) -> float:
    """Return the seconds before the next copy, after ``copies`` of other logs."""
    return float(min(FIRST_PAUSE_S * 2 ** min(copies, 30), MAX_REPLACED_PAUSE_S))


class Follower:
    """Follows one broker. Belongs to the running event loop.

    ``problem`` is the reason why no log is copied now, or why the rest of the log is unknown; empty
    if there is no problem.
    """

    def __init__(
        self,
        cluster: ClusterCalls,
        topology: Topology,
        copy: LogCopy,
        *,
        acknowledges: bool = True,
        disk: Disk | None = None,
    ) -> None:
        self._cluster: Final = cluster
        self._topology: Final = topology
        self._acknowledges: Final = acknowledges
        self._disk: Final = disk or Disk()
        self._tables: Final[dict[str, bytes]] = {}
        self.copy: Final = copy
        self.master: Master | None = None
        self.problem = "not connected yet"
        self.received_bytes = 0
        self.connections = 0
        self._stream: LogStream | None = None
        self._start = 0
        self._reported = -1
        self._waits = self._is_full = False
        self._tables_problem = ""
        self._room: asyncio.TimerHandle | None = None
        self.has_started: Final = asyncio.Event()
        """Set when the log was requested, or the master could not be reached; and at the end."""

    @property
    def is_receiving(self) -> bool:
        is_connected = self._stream is not None and not self._stream.ended.done()
        return is_connected and not self._is_full

    async def run(self) -> None:
        """Follow until this is cancelled, or fails permanently.

        :raises CopyFailed, StoreLocked, BadInput: before the first connection only.
        :raises StoreFailed: if a sync failed. The store must be closed abruptly.
        """
        pause_s = 0.0
        try:
            while True:
                before = self.received_bytes
                least_pause_s = 0.0
                try:
                    await self._follow()
                    continue
                except LogReplaced as error:
                    self._note(str(error))
                    least_pause_s = self._put_aside()
                except StoreFailed:
                    raise
                except (CopyFailed, StoreLocked, BadInput) as error:
                    if not (self.has_started.is_set() or self._is_temporary(error)):
                        raise
                    self._note(str(error))
                except (RocketLensError, OSError) as error:
                    self._note(str(error))
                except Exception as error:  # noqa: BLE001 - copies of other brokers must continue
                    _log.exception("broker %s: this is a bug", self.copy.broker_name)
                    self._note(repr(error))
                self.has_started.set()
                self._clean()
                # The master may have another address now.
                self._topology.forget(self.copy.broker_name)
                pause_s = FIRST_PAUSE_S if self.received_bytes > before else pause_s + FIRST_PAUSE_S
                pause_s = min(pause_s, MAX_TAP_PAUSE_S)
                await asyncio.sleep(max(pause_s, least_pause_s))
        finally:
            self._disconnect()
            self.has_started.set()

    def _is_temporary(self, error: Exception) -> bool:
        """Return True if the broker is only absent, and its name is not wrong."""
        return isinstance(error, MasterAbsent) and (error.is_known or self.copy.has_begun)

    def _put_aside(self) -> float:
        """Move the copy of another log aside, now or later; return the seconds to wait."""
        try:
            self.copy.put_aside()
            return replaced_pause_s(len(self.copy.replaced_copies()))
        except CopyFailed as error:
            self._note(str(error))
        except OSError as error:
            self._note(f"the copy of another log cannot be moved aside: {error}")
        return 0.0

    def _clean(self) -> None:
        store = self.copy.store
        if store is not None:
            with suppress(OSError, RocketLensError):
                store.clean()
                store.clean_queues()

    async def close(self, *, abruptly: bool = False) -> None:
        """Write the note, and close the store; :meth:`run` must have ended."""
        if not abruptly:
            with suppress(OSError):
                self.copy.note_progress(self.master, "the tap was stopped")
        await asyncio.to_thread(lambda: self.copy.close(abruptly=abruptly))

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem:
                _log.warning("broker %s: %s", self.copy.broker_name, problem)
            else:
                _log.info("broker %s: its log is received", self.copy.broker_name)
        with suppress(OSError):
            self.copy.note_progress(self.master, problem)

    async def _follow(self) -> None:
        """Follow over one connection; return if a new one is needed at once."""
        copy = self.copy
        self.master = master = await find_master(self._cluster, self._topology, copy.broker_name)
        store = copy.open(master)
        if store.config.mappedFileSizeCommitLog != master.segment_bytes:
            raise CopyFailed("the size of the broker's log files has changed")
        self._start = copy.start_offset(master)
        self._stream = stream = await open_stream(
            self._take, self._on_heartbeat, master.ha_host, master.ha_port
        )
        self.connections += 1
        self._reported = -1
        stream.report(self._start)
        self._note("")
        self.has_started.set()
        try:
            await self._copy_tables(master)
            await self._watch(stream)
        finally:
            self._disconnect()

    async def _watch(self, stream: LogStream) -> None:
        """Report, poll and clean; return if the master deleted the next log."""
        loop = asyncio.get_running_loop()
        polled_s = loop.time()
        while True:
            await asyncio.wait([stream.ended], timeout=REPORT_S)
            if stream.ended.done():
                stream.ended.result()
            if loop.time() - stream.last_received_s > NO_DATA_S and not self._is_full:
                address = "" if self.master is None else self.master.address
                raise CallTimeout(address, f"its log port was silent for {NO_DATA_S:g} s")
            self._report(is_due=True)
            if loop.time() - polled_s >= POLL_S:
                polled_s = loop.time()
                if not await self._poll():
                    return

    async def _poll(self) -> bool:
        """Get the state of the master's log, copy its tables, and clean; return False if the master
        deleted the next log, or another master is registered.

        If the master cannot be asked now, its log can still be received: name servers can be down.

        :raises LogReplaced: if the master's log ends before the copy does.
        :raises CopyFailed: if the broker cannot be followed any more.
        """
        store, before = self.copy.store, self.master
        assert store is not None  # noqa: S101 - it is open while there is a connection
        assert before is not None  # noqa: S101 - likewise
        # Before the request: the copy can grow past the master's answer in the meantime.
        end_offset = store.end_offset
        try:
            master = await find_master(self._cluster, self._topology, self.copy.broker_name)
        except (MasterAbsent, BrokerError, RemotingError) as error:
            self._topology.forget(self.copy.broker_name)
            self._clean()
            if not self._is_full:
                self._note(f"its log is received, but the end of the log is unknown: {error}")
            return True
        self.master = master
        if (master.ha_host, master.ha_port) != (before.ha_host, before.ha_port):
            _log.warning("broker %s: its master is %s now", master.name, master.address)
            return False
        if master.end_offset < end_offset:
            raise LogReplaced(
                f"the log of broker {master.name} ends at physical offset {master.end_offset}, "
                f"and the copy at {end_offset}"
            )
        await self._copy_tables(master)
        store.clean()
        store.clean_queues()
        self._note("" if not self._is_full else self.problem)
        return master.min_offset <= store.received_offset

    async def _copy_tables(self, master: Master) -> None:
        before, self._tables_problem = self._tables_problem, ""
        try:
            layout, disk = self.copy.layout, self._disk
            await copy_tables(self._cluster, master.address, layout, disk, self._tables)
        except (RocketLensError, OSError) as error:
            self._tables_problem = str(error)
            if self._tables_problem != before:
                _log.warning("broker %s: its tables are not copied: %s", master.name, error)

    # Callbacks of the connection.

    def _take(self, received: list[LogBytes]) -> None:
        self.received_bytes += sum(len(log.body) for log in received)
        try:
            self.copy.take(received)
        except (StoreFull, StoreBusy) as error:
            self._wait_for_room(error)
        self._report(is_due=False)

    def _on_heartbeat(self, next_offset: int) -> None:
        """Check that the master has sent the requested log.

        :raises CopyFailed: if it reached its end without the last record of the copy.
        """
        if not self.copy.is_compared:
            raise CopyFailed(
                f"broker {self.copy.broker_name} did not send its log from physical offset "
                f"{self._start} on, although it should have it; its next offset is {next_offset}"
            )

    def _wait_for_room(self, error: StoreFull | StoreBusy) -> None:
        assert self._stream is not None  # noqa: S101 - it called
        if not self._is_full:
            self.problem = str(error)
            _log.error("broker %s: %s", self.copy.broker_name, error)
            self._stream.pause(is_paused=True)
        self._is_full = True
        loop = asyncio.get_running_loop()
        self._room = loop.call_later(ROOM_S, self._try_again, self._stream)

    def _try_again(self, stream: LogStream) -> None:
        if stream is not self._stream or self.copy.store is None:
            return
        try:
            self.copy.store.clean()
            self.copy.take([])
        except (StoreFull, StoreBusy) as error:
            self._wait_for_room(error)
        except Exception as error:  # noqa: BLE001 - `_watch` raises it
            self._is_full = False
            stream.fail(error)
        else:
            self._is_full = False
            self.problem = ""
            _log.info("broker %s: its log is received again", self.copy.broker_name)
            stream.pause(is_paused=False)
            self._report(is_due=False)

    def _report(self, *, is_due: bool) -> None:
        """Report the synced offset; register for the next sync."""
        stream, store = self._stream, self.copy.store
        if stream is None or store is None:
            return
        if store.failure is not None:
            stream.fail(store.failure)
            return
        # Until the comparison is complete, the master can have another log.
        can = self._acknowledges and self.copy.is_compared
        offset = max(store.flushed_offset, self._start) if can else self._start
        if is_due or offset > self._reported >= 0 or (self._reported < 0 and offset > self._start):
            self._reported = offset
            stream.report(offset)
        if can and not self._waits and store.end_offset > store.flushed_offset:
            self._waits = True
            loop = asyncio.get_running_loop()

            def on_sync(_: StoreFailed | None) -> None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._on_sync)

            store.when_durable(store.end_offset, on_sync)

    def _on_sync(self) -> None:
        self._waits = False
        self._report(is_due=False)

    def _disconnect(self) -> None:
        if self._room is not None:
            self._room.cancel()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._is_full = False
