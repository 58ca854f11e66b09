"""The durable state of a store: written after each sync, read by the next start.

``synced`` says below which physical offset the log is synced. It is 1,024 bytes: two slots of 512,
written in turn, of which the sound one with the higher number counts. A slot is, big endian:

======  =====  ========================  ======================================================
offset  type   field                     notes
======  =====  ========================  ======================================================
0       4 B    magic                     ``RLs2``
4       i64    number                    one more than that of the other slot
12      i64    offset                    the log is synced below it
20      i64    last_record_offset        the record that ends there; -1 when there is none
28      i64    last_record_timestamp_ms  its store time: by it the log is known again
36      u32    crc32                     of the 36 bytes before
======  =====  ========================  ======================================================

It is written in place after every sync of the log, and synced itself only when the store is saved,
and before a message with a zero byte in its properties is acknowledged (see
:mod:`rocketlens.store.write.torn`). So after a killed process it is exact, and after a power cut it
may be older, which is still true.

``state.json`` is a note (:mod:`rocketlens.store.read.note`), written whole, and synced, after the
consume queues were synced: everything below ``queues_offset`` has its queue entry on the disk, and
each queue has at least as many entries as the table says. Its mark is the record that ends there.
The contents of RocketMQ's ``checkpoint`` as it was and as it was to be written next help to see
whether a real broker has run since.

Neither is believed when its checksum is wrong, when it was written in another form by an earlier
version, or when its record is not in the log.
"""

import struct
import zlib
from typing import Any, Final, NamedTuple, Self

from msgspec import Struct, field

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.checkpoint import CHECKPOINT_BYTES
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.note import LogMark, Note, decode_note, encode_note

_SLOT: Final = struct.Struct(">4sqqqq")
_CHECKSUM: Final = struct.Struct(">I")
_MAGIC: Final = b"RLs2"
_SLOT_BYTES: Final = 512
"""Bytes that a disk writes whole or not at all."""
SYNCED_BYTES: Final = 2 * _SLOT_BYTES
_KIND: Final = "state"


class StoreState(Struct):
    """The content of ``state.json``."""

    queues_offset: int
    mark: LogMark | None
    """The last record, which ends at ``queues_offset``; None for a log without records."""
    last_record_timestamp_ms: int = 0
    queue_offsets: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """For each topic and queue id the queue offset at which its first file begins, and the one
    that the next message gets, at least."""
    checkpoints: tuple[str, ...] = ()
    """In hexadecimal, without trailing zeros."""
    boot: str = ""
    """The boot of the machine in which it was written."""
    queue_file_bytes: int = 0
    """The size of consume queue files."""

    @property
    def last_record_offset(self) -> int | None:
        """The physical offset of the last record; None for a log without records."""
        return None if self.mark is None else self.mark.record_offset

    def encode(self) -> bytes:
        """Return the bytes of the note."""
        value = {
            "queuesOffset": self.queues_offset,
            "lastRecordTimestamp": self.last_record_timestamp_ms,
            "queueOffsets": self.queue_offsets,
            "checkpoints": self.checkpoints,
            "boot": self.boot,
            "queueFileBytes": self.queue_file_bytes,
        }
        return encode_note(_KIND, value, self.mark)

    @classmethod
    def decode(cls, content: bytes) -> Self | None:
        """Parse the note; return None if it is damaged or of an earlier version."""
        note = decode_note(_KIND, content)
        try:
            return None if note is None else cls._of(note)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    @classmethod
    def _of(cls, note: Note) -> Self:
        value: dict[str, Any] = note.value
        return cls(
            int(value["queuesOffset"]),
            note.mark,
            int(value["lastRecordTimestamp"]),
            {
                str(topic): {
                    int(queue): (int(first), int(end)) for queue, (first, end) in queues.items()
                }
                for topic, queues in value["queueOffsets"].items()
            },
            tuple(str(content) for content in value["checkpoints"]),
            str(value["boot"]),
            int(value["queueFileBytes"]),
        )

    def is_of(self, log: CommitLog) -> bool:
        """Return whether it is of this log, not of an earlier one in the directory.

        :raises OSError: when the log cannot be read now.
        """
        if self.mark is None:
            return self.queues_offset == log.min_offset
        return self.mark.end_offset == self.queues_offset and self.mark.is_of(log)

    def is_last_writer(self, layout: StoreLayout) -> bool:
        """Return whether no RocketMQ broker has run since: it would have written its checkpoint."""
        content = fs.read_bytes(layout.checkpoint, CHECKPOINT_BYTES) or b""
        return content.rstrip(b"\0").hex() in self.checkpoints


def read_state(layout: StoreLayout) -> StoreState | None:
    """Read ``state.json``; return None if it is missing, damaged, or of an earlier version."""
    content = fs.read_bytes(layout.state, limits.MAX_STATE_BYTES)
    return None if content is None else StoreState.decode(content)


class Synced(NamedTuple):
    """The offset up to which a log is synced, and the record that ends there."""

    offset: int
    last_record_offset: int = -1
    """-1 when there is none."""
    last_record_timestamp_ms: int = 0

    def encode(self, number: int) -> tuple[int, bytes]:
        """Return the position of this number's slot in ``synced``, and its bytes."""
        slot = _SLOT.pack(_MAGIC, number, *self)
        return number % 2 * _SLOT_BYTES, slot + _CHECKSUM.pack(zlib.crc32(slot))

    def may_be_of(self, log: CommitLog) -> bool:
        """Return False if another record ends at its offset.

        :raises OSError: when the log cannot be read now.
        """
        if self.last_record_offset < 0:
            return True
        try:
            record = log.record_at(self.last_record_offset, check_crc=False)
        except RecordError:
            # Damaged later, or cut off with the log's end.
            return True
        end_offset = self.last_record_offset + record.total_size
        return (end_offset, record.store_timestamp_ms) == (
            self.offset,
            self.last_record_timestamp_ms,
        )


def read_synced(layout: StoreLayout) -> Synced | None:
    """Read ``synced``; return None if it is missing, damaged, or of an earlier version.

    May be called while a broker writes it.
    """
    return newest_slot(fs.read_bytes(layout.synced, SYNCED_BYTES) or b"")[1]


def read_synced_offset(layout: StoreLayout) -> int | None:
    """Read from ``synced`` the physical offset below which the log is synced; None as above."""
    synced = read_synced(layout)
    return None if synced is None else synced.offset


def newest_slot(content: bytes) -> tuple[int, Synced | None]:
    """Return the number and content of the newest sound slot; 0 and None if there is none."""
    newest: tuple[int, Synced | None] = (0, None)
    for start in (0, _SLOT_BYTES):
        slot = content[start : start + _SLOT.size + _CHECKSUM.size]
        if len(slot) < _SLOT.size + _CHECKSUM.size:
            continue
        magic, number, *fields = _SLOT.unpack_from(slot)
        is_sound = _CHECKSUM.unpack_from(slot, _SLOT.size)[0] == zlib.crc32(slot[: _SLOT.size])
        if (
            is_sound
            and magic == _MAGIC
            and number > newest[0]
            and 0 <= fields[0] < limits.MAX_PHYSICAL_OFFSET
        ):
            newest = (number, Synced(*fields))
    return newest
