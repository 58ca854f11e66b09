"""The durable state of a store: written after each sync, read by the next start.

``synced`` has the physical offset below which the log is synced. It has 1,024 bytes: two slots of
512, written in turn. The sound slot with the higher number counts. A slot is, big endian:

======  =====  ========================  ======================================================
offset  type   field                     notes
======  =====  ========================  ======================================================
0       4 B    magic                     ``RLs2``
4       i64    number                    one more than that of the other slot
12      i64    offset                    the log is synced below it
20      i64    last_record_offset        the record that ends there; -1 without one
28      i64    last_record_timestamp_ms  its store time, which identifies the log
36      u32    crc32                     of the 36 bytes before
======  =====  ========================  ======================================================

It is written in place after every sync of the log. It is synced only when the store is saved, and
before a message with a zero byte in its properties is acknowledged (see
:mod:`rocketlens.store.write.torn`). So it is exact after the process was killed, and can be older,
but still true, after a power cut.

``state.json`` is a note (:mod:`rocketlens.store.read.note`), written whole and synced after the
consume queues were synced. All records below ``queues_offset`` have their queue entry on the disk,
and each queue has at least as many entries as in the table. The note's mark is the record that
ends there. It has the content of RocketMQ's ``checkpoint`` before and after the save: another
content shows that a RocketMQ broker has run since.

Both files are ignored if their checksum is wrong, an earlier version wrote another form, or their
record is not in the log.
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
SYNCED_BYTES: Final = 2 * _SLOT_BYTES
_KIND: Final = "state"


class StoreState(Struct):
    """The content of ``state.json``."""

    queues_offset: int
    mark: LogMark | None
    """The last record, which ends at ``queues_offset``; None for a log without records."""
    last_record_timestamp_ms: int = 0
    queue_offsets: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """By topic and queue id: the queue offset at which the first file begins, and the least one
    that the next message can get."""
    checkpoints: tuple[str, ...] = ()
    """In hexadecimal, without trailing zeros."""
    boot: str = ""
    """The id of the machine's boot in which the state was written."""
    queue_file_bytes: int = 0

    @property
    def last_record_offset(self) -> int | None:
        return None if self.mark is None else self.mark.record_offset

    def encode(self) -> bytes:
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
        """Return None if the note is damaged or of an earlier version."""
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
        """Return True if the state belongs to this log, not to an earlier one in the directory."""
        if self.mark is None:
            return self.queues_offset == log.min_offset
        return self.mark.end_offset == self.queues_offset and self.mark.is_of(log)

    def is_last_writer(self, layout: StoreLayout) -> bool:
        """Return True if no RocketMQ broker has run since: it would have written a checkpoint."""
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
    """-1 without one."""
    last_record_timestamp_ms: int = 0

    def encode(self, number: int) -> tuple[int, bytes]:
        """Return the position of slot ``number`` in ``synced``, and its bytes."""
        slot = _SLOT.pack(_MAGIC, number, *self)
        return number % 2 * _SLOT_BYTES, slot + _CHECKSUM.pack(zlib.crc32(slot))

    def may_be_of(self, log: CommitLog) -> bool:
        """Return False if another record ends at its offset."""
        if self.last_record_offset < 0:
            return True
        try:
            record = log.record_at(self.last_record_offset, check_crc=False)
        except RecordError:
            # The record was damaged later, or cut off with the end of the log.
            return True
        end_offset = self.last_record_offset + record.total_size
        return (end_offset, record.store_timestamp_ms) == (
            self.offset,
            self.last_record_timestamp_ms,
        )


def read_synced(layout: StoreLayout) -> Synced | None:
    """Read ``synced``, also while a broker writes it; None if missing, damaged or too old."""
    return newest_slot(fs.read_bytes(layout.synced, SYNCED_BYTES) or b"")[1]


def read_synced_offset(layout: StoreLayout) -> int | None:
    """Return the physical offset below which the log is synced; None as `read_synced`."""
    synced = read_synced(layout)
    return None if synced is None else synced.offset


def newest_slot(content: bytes) -> tuple[int, Synced | None]:
    """Return the number and content of the newest sound slot; 0 and None without one."""
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
