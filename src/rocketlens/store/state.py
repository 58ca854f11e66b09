"""What is known to be durable: written after each sync, read by the next start.

``synced`` holds the physical offset below which the log is synced, and its complement, as two i64
big endian. It is written in place after every sync of the log and not synced itself: after a
killed process it is exact, after a power cut it may be older, which is still true.

``state.json`` is written whole, and synced, after the consume queues were synced: everything
below ``queues_offset`` has its queue entry on the disk, and each queue has at least as many
entries as the table says. The record at ``last_record_offset``, which ends there, shows that
this state is of this log; the checksums of RocketMQ's ``checkpoint`` as it was and as it was to be
written next show whether a real broker has run since.
"""

import json
import struct
from dataclasses import dataclass, field
from typing import Any, Final, Self

from rocketlens.errors import RecordError
from rocketlens.store import fs
from rocketlens.store.commitlog import CommitLog
from rocketlens.store.fs import Disk, WritableFile
from rocketlens.store.layout import StoreLayout

_SYNCED: Final = struct.Struct(">qq")
_STATE_BYTES: Final = 256 * 1024 * 1024
_LARGEST_OFFSET: Final = 2**62


@dataclass(slots=True)
class StoreState:
    """The content of ``state.json``."""

    queues_offset: int
    last_record_offset: int | None
    last_record_timestamp_ms: int
    queue_offsets: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """For each topic and queue id the queue offset at which its first file begins, and the one
    that the next message gets, at least."""
    checkpoint_crcs: tuple[int, ...] = ()
    boot: str = ""
    """Which start of the machine it was written in."""

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps(
            {
                "queuesOffset": self.queues_offset,
                "lastRecordOffset": self.last_record_offset,
                "lastRecordTimestamp": self.last_record_timestamp_ms,
                "queueOffsets": self.queue_offsets,
                "checkpoints": self.checkpoint_crcs,
                "boot": self.boot,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, content: bytes) -> Self | None:
        """Read it; None when it is damaged."""
        try:
            value: Any = json.loads(content)
            last = value["lastRecordOffset"]
            return cls(
                int(value["queuesOffset"]),
                None if last is None else int(last),
                int(value["lastRecordTimestamp"]),
                {
                    str(topic): {
                        int(queue): (int(first), int(end)) for queue, (first, end) in queues.items()
                    }
                    for topic, queues in value["queueOffsets"].items()
                },
                tuple(int(crc) for crc in value["checkpoints"]),
                str(value["boot"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def is_of(self, log: CommitLog) -> bool:
        """Say whether it is about this log, and not about one that was here before."""
        if self.last_record_offset is None:
            return self.queues_offset == log.min_offset
        try:
            record = log.record_at(self.last_record_offset, check_crc=False)
        except RecordError:
            return False
        end = self.last_record_offset + record.total_size
        return (
            end == self.queues_offset and record.store_timestamp_ms == self.last_record_timestamp_ms
        )


def read_state(layout: StoreLayout) -> StoreState | None:
    """Read ``state.json``; None when it is not there or damaged."""
    content = fs.read_bytes(layout.state, _STATE_BYTES)
    return None if content is None else StoreState.decode(content)


def read_synced_offset(layout: StoreLayout) -> int | None:
    """Read ``synced``; None when it is not there or damaged."""
    content = fs.read_bytes(layout.synced, _SYNCED.size) or b""
    if len(content) < _SYNCED.size:
        return None
    offset, complement = _SYNCED.unpack(content)
    return offset if complement == ~offset and 0 <= offset < _LARGEST_OFFSET else None


class SyncedFile:
    """``synced``, open for writing."""

    def __init__(self, layout: StoreLayout, disk: Disk) -> None:
        """Open it, or make it.

        :raises OSError: when the disk is full.
        """
        if len(fs.read_bytes(layout.synced, _SYNCED.size + 1) or b"") != _SYNCED.size:
            disk.make_file(layout.synced, _SYNCED.size, layout.scratch)
        self._file: WritableFile = disk.open_file(layout.synced)
        self._file.reserve(0, _SYNCED.size)

    def write(self, offset: int) -> None:
        """Say that the log is synced below ``offset``. Costs no system call."""
        self._file.content[:] = _SYNCED.pack(offset, ~offset)

    def sync(self) -> None:
        """Wait until it is on the disk."""
        self._file.sync()

    def close(self) -> None:
        """Unmap it."""
        self._file.close()
