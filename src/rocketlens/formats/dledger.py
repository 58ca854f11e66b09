"""The files of a DLedger log: entries of a replicated log, each of which holds one record.

``dledger-ID/data`` has files with the names of a commit log's segments. Entries are contiguous; all
integers are big-endian.

======  =====  ==============  ================================================================
offset  type   field           notes
======  =====  ==============  ================================================================
0       i32    magic           1: an entry; -1: nothing to the file's end
4       i32    size            of the entry, or up to the file's end
8       i64    entry_index     the number of the entry
16      i64    term            of its leader
24      i64    position        the entry's offset in the log
32      i32    channel
36      i32    chain_crc
40      i32    body_crc
44      i32    body_length     size - 48
======  =====  ==============  ================================================================

The record follows; its physical offset is ``position`` + 48.

``dledger-ID/index`` has one item for each entry, by its index: magic i32, position i64, size i32,
index i64, term i64. ``dledger-ID/checkpoint`` has the ``committedIndex`` of some seconds ago.

Source: ``DLedgerEntryCoder``, ``DLedgerMmapFileStore``.
"""

import re
from struct import Struct
from typing import Final, NamedTuple

from rocketlens.formats.layout import Layout
from rocketlens.model.message import I32, I64


class EntryHeader(NamedTuple):
    """The fields in file order."""

    magic: I32
    size: I32
    entry_index: I64
    term: I64
    position: I64
    channel: I32
    chain_crc: I32
    body_crc: I32
    body_length: I32


ENTRY_FIELDS: Final = Layout.of(EntryHeader)
ENTRY_HEADER_BYTES: Final = ENTRY_FIELDS.size
ENTRY_MAGIC: Final = 1
BLANK_MAGIC: Final = -1

INDEX_ITEM: Final = Struct(">iqiqq")
_IDENTITY: Final = ENTRY_FIELDS.struct_of("magic", "size", "position", "body_length")
_COMMITTED: Final = re.compile(rb"^committedIndex=(\d{1,19})\s*$", re.MULTILINE)


def bytes_before_record(view: memoryview, position: int, physical_offset: int) -> int:
    """Return the distance from a position to the next record: the size of an entry's header, or 0
    if no entry begins there.

    A header identifies itself: it has its own offset in the log, and its size twice.
    """
    if position + ENTRY_HEADER_BYTES > len(view):
        return 0
    magic, size, own_offset, body_length = _IDENTITY.unpack_from(view, position)
    is_entry = (
        magic == ENTRY_MAGIC
        and own_offset == physical_offset
        and size == body_length + ENTRY_HEADER_BYTES > ENTRY_HEADER_BYTES
    )
    return ENTRY_HEADER_BYTES if is_entry else 0


def committed_index(checkpoint: bytes) -> int | None:
    """Return the index of the last committed entry of a checkpoint file; None if it has none."""
    match = _COMMITTED.search(checkpoint)
    return None if match is None else int(match[1])
