"""The stream of the log from a master to a replica: bytes in, events out; values in, bytes out.

It has a connection of its own, without remoting frames. A replica sends only reports: the physical
offset up to which it has the log. The first report also tells the master where to begin.

A master sends frames of a header and log bytes:

======  =====  ===============  ==============================================================
offset  type   field            notes
======  =====  ===============  ==============================================================
0       i64    physical_offset  of the first byte of the body
8       i32    body_bytes       0: a heartbeat, every 5 s when there is nothing to send
12      rest   body             bytes of the log, which need not begin or end with a record
======  =====  ===============  ==============================================================

All integers are big-endian. Frames are contiguous, and none crosses a segment of the log. RocketMQ
sends at most ``haTransferBatchSize`` bytes in one, 32,768 by default.

Bodies are copies of the master's files, including the filler at the end of a segment.

Drawbacks: no greeting, no checksum and no name of the log, so a replica has to compare records to
notice that a master has another log than before; neither authentication nor TLS. Source:
``HAConnection``, ``HAClient`` (4.9), ``DefaultHAConnection``, ``DefaultHAClient`` (5).
"""

import struct
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import FrameError

MAX_HA_FRAME_BYTES: Final = 64 * 1024 * 1024
"""The largest frame of log bytes from a master. RocketMQ: any, by default 32 KiB
(``haTransferBatchSize``); its slaves read into a buffer of 4 MiB."""
REPORT: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qi")


class LogBytes(NamedTuple):
    """Log bytes of the master. ``body`` is valid until the next call of the reader."""

    physical_offset: int
    body: memoryview

    @property
    def end_offset(self) -> int:
        """The physical offset after the last byte."""
        return self.physical_offset + len(self.body)


class Heartbeat(NamedTuple):
    """The master has nothing to send; its next frame begins at ``physical_offset``."""

    physical_offset: int


HaEvent = LogBytes | Heartbeat


def encode_report(physical_offset: int) -> bytes:
    """Encode a replica's report of the physical offset up to which it has the log."""
    return REPORT.pack(physical_offset)


def encode_header(physical_offset: int, body_bytes: int) -> bytes:
    """Encode the header of a body; a heartbeat has a body of 0 bytes."""
    return HEADER.pack(physical_offset, body_bytes)


class FrameReader:
    """Reads a master's frames, wherever their bytes are split.

    Bodies are not collected: a frame that arrives in pieces becomes one event for each piece, with
    its own offset, since a follower only appends bytes. So only an incomplete header is held. Each
    frame must begin at the end of the previous one; the caller checks the start of the first.
    """

    __slots__ = ("_body_left", "_head", "_next_offset", "failure")

    def __init__(self) -> None:
        self.failure: FrameError | None = None
        """Why nothing more is read; set once, permanently."""
        self._head = b""
        self._next_offset = -1
        self._body_left = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete header."""
        return len(self._head)

    def feed(self, chunk: bytes | bytearray | memoryview) -> list[HaEvent]:
        """Parse the next bytes; return the events that they complete, in order.

        Never raises: after an invalid header, ``failure`` is set, and all further bytes are
        dropped.
        """
        events: list[HaEvent] = []
        view = memoryview(chunk)
        start, stop = 0, len(view)
        while start < stop and self.failure is None:
            if self._body_left:
                count = min(self._body_left, stop - start)
                events.append(LogBytes(self._next_offset, view[start : start + count]))
                self._next_offset += count
                self._body_left -= count
                start += count
                continue
            count = min(HEADER.size - len(self._head), stop - start)
            self._head += view[start : start + count]
            start += count
            if len(self._head) == HEADER.size:
                offset, body_bytes = HEADER.unpack(self._head)
                self._head = b""
                if self._take_header(offset, body_bytes) and not body_bytes:
                    events.append(Heartbeat(offset))
        return events

    def _take_header(self, offset: int, body_bytes: int) -> bool:
        """Check a header; return False and set ``failure`` if it is invalid."""
        if not 0 <= offset < limits.MAX_PHYSICAL_OFFSET:
            self.failure = FrameError(f"a frame of the log begins at physical offset {offset}")
        elif not 0 <= body_bytes <= MAX_HA_FRAME_BYTES:
            self.failure = FrameError(
                f"a frame of the log says that it has {body_bytes} bytes, "
                f"the limit is {MAX_HA_FRAME_BYTES}"
            )
        elif body_bytes and self._next_offset not in (-1, offset):
            self.failure = FrameError(
                f"a frame of the log begins at physical offset {offset}, "
                f"the one before ended at {self._next_offset}"
            )
        else:
            if body_bytes:
                self._next_offset, self._body_left = offset, body_bytes
            return True
        return False


class ReportReader:
    """Reads a replica's reports: only the newest one counts."""

    __slots__ = ("_held", "failure", "first", "newest")

    def __init__(self) -> None:
        self.first: int | None = None
        """The offset at which the master is to begin; None before the first report."""
        self.newest: int | None = None
        """The offset up to which the replica has the log, by its newest report."""
        self.failure: FrameError | None = None
        """Why nothing more is read; set once, permanently."""
        self._held = b""

    def feed(self, chunk: bytes | bytearray | memoryview) -> int:
        """Parse the next bytes; return how many reports they complete. Never raises.

        Only the very first and the last report of a chunk are read, so that the work for a chunk
        does not grow with the number of its reports.
        """
        if self.failure is not None:
            return 0
        held = self._held + chunk
        count = len(held) // REPORT.size
        self._held = held[count * REPORT.size :]
        if not count:
            return 0
        (first,) = REPORT.unpack_from(held)
        (newest,) = REPORT.unpack_from(held, (count - 1) * REPORT.size)
        for offset in (first, newest):
            if not 0 <= offset < limits.MAX_PHYSICAL_OFFSET:
                self.failure = FrameError(f"a replica reports physical offset {offset}")
                return 0
        if self.first is None:
            self.first = first
        self.newest = newest
        return count
