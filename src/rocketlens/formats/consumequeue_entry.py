"""One entry of a consume queue: the position of message ``n`` in the commit log.

Entry ``n`` is at byte ``n * 20`` of the queue; files of equal size are named by the byte offset of
their first entry, as 20 decimal digits. All integers are big-endian and signed.

======  =====  ================  ==============================================================
offset  type   field             notes
======  =====  ================  ==============================================================
0       i64    physical_offset
8       i32    store_size        0 and below: the queue ends before this entry
12      i64    tags_code         Java hash of TAGS; of delay levels the delivery time, ms;
                                 below -2^31 an address in ``consumequeue_ext``
======  =====  ================  ==============================================================

If the queue begins in the middle of a file, the unused entries before are ``{0, 0x7FFFFFFF, 0}``.

Drawbacks: no checksum; an entry can be checked only against its record. Source: ``ConsumeQueue``.
"""

from typing import Final, NamedTuple

from rocketlens.formats.layout import Layout
from rocketlens.model.message import I32, I64

FILLER_SIZE: Final = 0x7FFFFFFF
LOWEST_TAGS_CODE: Final = -(2**31)
"""The smallest tags code; with ``enableConsumeQueueExt`` smaller numbers are addresses."""
DEFAULT_FILE_BYTES: Final = 6_000_000


class QueueEntry(NamedTuple):
    """The position of a record, its length, and the hash of its tags."""

    physical_offset: I64
    store_size: I32
    tags_code: I64

    @property
    def is_end(self) -> bool:
        """True if the entry was never written."""
        return self.store_size <= 0

    @property
    def is_filler(self) -> bool:
        """True if the entry fills the file before the queue's first one."""
        return self.physical_offset == 0 and self.store_size == FILLER_SIZE

    @property
    def has_tags_code(self) -> bool:
        """False if `tags_code` is an address in ``consumequeue_ext``."""
        return self.tags_code >= LOWEST_TAGS_CODE

    def encode(self) -> bytes:
        return ENTRY.pack(*self)


ENTRY_LAYOUT: Final = Layout.of(QueueEntry)
ENTRY: Final = ENTRY_LAYOUT.struct
ENTRY_BYTES: Final = ENTRY_LAYOUT.size
FILLER: Final = QueueEntry(0, FILLER_SIZE, 0)


def decode(buffer: bytes | memoryview, position: int = 0) -> QueueEntry:
    """Read the entry at byte ``position``; 20 bytes must follow."""
    return QueueEntry(*ENTRY.unpack_from(buffer, position))
