"""``config/timercheck``: how far a broker has delivered messages with a delivery time.

4096 bytes, the fields first, zeros after. All integers are big-endian and signed. The first seven
are RocketMQ's. The others are ours: RocketMQ keeps them when it writes its own, which makes the
checksum wrong.

======  =====  ========================  ======================================================
offset  type   field                     notes
======  =====  ========================  ======================================================
0       i64    read_time_ms              messages due in an earlier second are delivered
8       i64    timer_log_flushed_offset  end of the synced part of RocketMQ's ``timerlog``
16      i64    queue_offset              where a broker starts to read the topic of timers
24      i64    master_queue_offset       the same of the master
32      i64    state_version             RocketMQ's DataVersion
40      i64    version_timestamp_ms
48      i64    version_counter
56      i64    own_mark                  ours: "RLTIMER1"; the rest is valid only with it
64      i64    next_queue_offset         messages before it were read, and wait or are delivered
72      i64    second_queue_offset       of those due at ``read_time_ms``, the rest waits
80      i64    log_segment_offset        base offset of a segment of the log; -1: unknown
88      i64    log_segment_crc           CRC-32 of its first record
96      i64    checksum                  CRC-32 of the fields before
======  =====  ========================  ======================================================

Source: ``TimerCheckpoint``.
"""

import zlib
from typing import Final, NamedTuple

from rocketlens.errors import CheckpointError
from rocketlens.formats.checkpoint import CHECKPOINT_BYTES
from rocketlens.formats.layout import Layout
from rocketlens.model.message import I64

OWN_MARK: Final = int.from_bytes(b"RLTIMER1", "big")


class TimerCheckpoint(NamedTuple):
    """The fields in file order; times in epoch milliseconds."""

    read_time_ms: I64 = 0
    timer_log_flushed_offset: I64 = 0
    queue_offset: I64 = 0
    master_queue_offset: I64 = 0
    state_version: I64 = 0
    version_timestamp_ms: I64 = 0
    version_counter: I64 = 0
    own_mark: I64 = 0
    next_queue_offset: I64 = 0
    second_queue_offset: I64 = 0
    log_segment_offset: I64 = -1
    log_segment_crc: I64 = 0
    checksum: I64 = 0

    @property
    def is_own(self) -> bool:
        """True if our fields are valid: RocketMQ has not written the file since."""
        return self.own_mark == OWN_MARK and self.checksum == _crc(self)

    def encode_for_slave(self) -> bytes:
        """Return RocketMQ's fields, for the answer to a slave (code 60)."""
        return FIELDS.pack(*self)[: LAYOUT.offsets["own_mark"]]

    def encode(self) -> bytes:
        """Return the whole file, with our mark and checksum."""
        marked = self._replace(own_mark=OWN_MARK)
        return FIELDS.pack(*marked._replace(checksum=_crc(marked))).ljust(CHECKPOINT_BYTES, b"\0")


LAYOUT: Final = Layout.of(TimerCheckpoint)
FIELDS: Final = LAYOUT.struct
_CHECKSUM_BYTE: Final = LAYOUT.offsets["checksum"]


def _crc(checkpoint: TimerCheckpoint) -> int:
    return zlib.crc32(FIELDS.pack(*checkpoint)[:_CHECKSUM_BYTE])


def decode(content: bytes | memoryview) -> TimerCheckpoint:
    """Read the fields; raise CheckpointError if there are too few bytes."""
    if len(content) < FIELDS.size:
        raise CheckpointError(f"timercheck has {len(content)} bytes, its fields need {FIELDS.size}")
    return TimerCheckpoint(*FIELDS.unpack_from(content))
