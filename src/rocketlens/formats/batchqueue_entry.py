"""One entry of a batch queue: the position of a record that is a batch, or a single message.

``batchconsumequeue/TOPIC/QUEUE`` of a topic with ``queue.type=BatchCQ`` has files of equal size,
named by the byte offset of their first entry, as 20 decimal digits. Entries are contiguous, and so
are the queue offsets of their messages. All integers are big-endian and signed.

======  =====  ===================  ===========================================================
offset  type   field                notes
======  =====  ===================  ===========================================================
0       i64    physical_offset
8       i32    store_size           0 and below: the queue ends before this entry
12      i64    tags_code            Java hash of TAGS; 0 for a batch
20      i64    store_timestamp_ms
28      i64    first_queue_offset   of the first message
36      i16    message_count        1 and above
38      i32    compacted_offset     -1: none
42      i32    reserved             0
======  =====  ===================  ===========================================================

Drawbacks: no checksum, and the entry of a queue offset has to be searched for. Source:
``BatchConsumeQueue``.
"""

from typing import Final, NamedTuple

from rocketlens.formats.layout import Layout
from rocketlens.model.message import I16, I32, I64


class BatchEntry(NamedTuple):
    """The position of a record, and the queue offsets of its messages."""

    physical_offset: I64
    store_size: I32
    tags_code: I64
    store_timestamp_ms: I64
    first_queue_offset: I64
    message_count: I16
    compacted_offset: I32 = -1
    reserved: I32 = 0

    @property
    def is_end(self) -> bool:
        """True if the entry was never written."""
        return self.store_size <= 0 or self.message_count <= 0

    @property
    def stop(self) -> int:
        """The queue offset after the last message."""
        return self.first_queue_offset + self.message_count

    def encode(self) -> bytes:
        return ENTRY.pack(*self)


ENTRY_LAYOUT: Final = Layout.of(BatchEntry)
ENTRY: Final = ENTRY_LAYOUT.struct
ENTRY_BYTES: Final = ENTRY_LAYOUT.size


def decode(buffer: bytes | memoryview, position: int = 0) -> BatchEntry:
    """Read the entry at byte ``position``; 46 bytes must follow."""
    return BatchEntry(*ENTRY.unpack_from(buffer, position))
