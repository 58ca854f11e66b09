"""An index file: a hash table on disk from ``topic#key`` to physical offsets.

All integers are big-endian and signed. The file is a header, ``slot_count`` slots and
``entry_count`` entries; it contains neither of these counts.

======  =====  ==================  ============================================================
offset  type   field               notes
======  =====  ==================  ============================================================
0       i64    begin_timestamp_ms  store time of the first entry
8       i64    end_timestamp_ms    store time of the last entry
16      i64    begin_offset        physical offset of the first entry
24      i64    end_offset          physical offset of the last entry
32      i32    used_slot_count
36      i32    next_entry          number that the next entry will get; 0 on disk reads as 1
======  =====  ==================  ============================================================

A slot is an i32: the number of the newest entry of its chain, 0 for none. A hash has the slot hash
mod slot_count. Entry ``n`` is at ``40 + slot_count * 4 + n * 20``; entry 0 is never used, so a file
holds entry_count - 1.

======  =====  =================  =============================================================
offset  type   field              notes
======  =====  =================  =============================================================
0       i32    key_hash           abs(Java hash of ``topic#key``), 0 for -2**31
4       i64    physical_offset
12      i32    seconds            store time minus begin_timestamp_ms, in whole seconds
16      i32    previous_entry     of the same chain, 0 at its end; always less than this entry
======  =====  =================  =============================================================

Files are named by their creation time, ``yyyyMMddHHmmssSSS`` in the broker's zone. Until its first
entry, a new file has the end time of the previous file as its begin time. The ``seconds`` of the
first entry count from there, so its time seems to lie in the future.

Drawbacks: no checksum; only hashes, so other keys and topics match too; the end of a message's
entries is not marked, and a file can fill up in the middle of one message. Source: ``IndexFile``,
``IndexHeader``.

A record has one entry for each of its keys, in this order: the unique key, each of KEYS (with
repetitions), and with RocketMQ 5's tag index the tags. :mod:`rocketlens.formats.compiled.scan` has
the same rule compiled; a test compares the two. Source: ``IndexService.buildIndex``.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import IndexFileError
from rocketlens.formats.commitlog_record import Record, is_indexed
from rocketlens.formats.layout import Layout
from rocketlens.model import properties as props
from rocketlens.model.message import I32, I64
from rocketlens.model.text.java import decode_utf8, index_hash

if TYPE_CHECKING:
    from mmap import mmap

    Searchable = bytes | bytearray | mmap

MAX_INDEX_CANDIDATES: Final = 100_000
"""Positions in an index file that are tried for an entry to infer its geometry.

A real file has at most as many as one record has entries and slots; more would be a file made to be
searched for hours."""
SLOT: Final = struct.Struct(">i")
SLOT_BYTES: Final = SLOT.size
DEFAULT_SLOT_COUNT: Final = 5_000_000
DEFAULT_ENTRY_COUNT: Final = 20_000_000

_WITNESSES: Final = 32
_BLOCK_BYTES: Final = 1 << 20


class IndexHeader(NamedTuple):
    """The header fields in file order; times in epoch milliseconds."""

    begin_timestamp_ms: I64
    end_timestamp_ms: I64
    begin_offset: I64
    end_offset: I64
    used_slot_count: I32
    next_entry: I32

    def encode(self) -> bytes:
        return HEADER.pack(*self)

    @property
    def last_entry(self) -> int:
        """The number of the newest entry, 0 without entries."""
        return max(self.next_entry, 1) - 1


HEADER_LAYOUT: Final = Layout.of(IndexHeader)
HEADER: Final = HEADER_LAYOUT.struct
HEADER_BYTES: Final = HEADER_LAYOUT.size


class IndexEntry(NamedTuple):
    """One entry, fields in file order."""

    key_hash: I32
    physical_offset: I64
    seconds: I32
    previous_entry: I32

    def encode(self) -> bytes:
        return ENTRY.pack(*self)


ENTRY_LAYOUT: Final = Layout.of(IndexEntry)
ENTRY: Final = ENTRY_LAYOUT.struct
ENTRY_BYTES: Final = ENTRY_LAYOUT.size


class Geometry(NamedTuple):
    """The numbers of slots and entries that an index file has room for (entry 0 counted)."""

    slot_count: int
    entry_count: int

    @property
    def file_bytes(self) -> int:
        return self.entry_position(self.entry_count)

    def slot_position(self, slot: int) -> int:
        return HEADER_BYTES + slot * SLOT_BYTES

    def entry_position(self, entry: int) -> int:
        return HEADER_BYTES + self.slot_count * SLOT_BYTES + entry * ENTRY_BYTES


DEFAULT_GEOMETRY: Final = Geometry(DEFAULT_SLOT_COUNT, DEFAULT_ENTRY_COUNT)


def decode_header(content: bytes | bytearray | memoryview) -> IndexHeader:
    """Read the header; raise IndexFileError if it is too short or impossible."""
    if len(content) < HEADER_BYTES:
        raise IndexFileError(f"has {len(content)} bytes, its header alone needs {HEADER_BYTES}")
    header = IndexHeader(*HEADER.unpack_from(content))
    if min(header) < 0 or header.end_offset < header.begin_offset:
        raise IndexFileError("its header has negative counts or offsets, or ends before it begins")
    return header


def decode_entry(content: "Searchable | memoryview", geometry: Geometry, entry: int) -> IndexEntry:
    """Read entry ``entry``, which must be below ``geometry.entry_count``."""
    return IndexEntry(*ENTRY.unpack_from(content, geometry.entry_position(entry)))


class ChainCheck(NamedTuple):
    """The faults in the chains of an index file; without faults all are 0, and ``first_bad_slot``
    -1.

    An entry is bad if its hash is negative, or if it does not link to the newest entry before it on
    the slot of its hash. A slot is bad if it does not have the newest entry of its hash. So in a
    good file each entry is on exactly one chain, and chains only descend.
    """

    bad_entry_count: int
    first_bad_entry: int
    bad_slot_count: int
    first_bad_slot: int
    used_slot_count: int
    """Slots that are not 0, to compare with the header."""

    @property
    def is_good(self) -> bool:
        """True if putting the entries one by one gives the same chains."""
        return self.bad_entry_count == 0 and self.bad_slot_count == 0


def check_chains(hashes: Iterable[int], links: Iterable[int], slots: memoryview) -> ChainCheck:
    """Check the chains of entries 1, 2, ... by their hashes and links, and by the slots' bytes.

    :func:`rocketlens.formats.compiled.index.check` is the same, compiled: it takes 3 ms for 300,000
    entries, this function 290 ms. O(entries + slots).
    """
    slot_count = len(slots) // SLOT_BYTES
    newest: dict[int, int] = {}
    bad_entries: list[int] = []
    for entry, (key_hash, link) in enumerate(zip(hashes, links, strict=True), 1):
        slot = (key_hash & 0xFFFFFFFF) % slot_count
        if link != newest.get(slot, 0) or key_hash < 0:
            bad_entries.append(entry)
        newest[slot] = entry
    right = bytearray(len(slots))
    for slot, entry in newest.items():
        SLOT.pack_into(right, slot * SLOT_BYTES, entry)
    bad_slots: list[int] = []
    used_slot_count = len(newest)
    if right != slots:
        heads = [head for (head,) in SLOT.iter_unpack(slots)]
        bad_slots = [slot for slot, head in enumerate(heads) if head != newest.get(slot, 0)]
        used_slot_count = slot_count - heads.count(0)
    return ChainCheck(
        len(bad_entries),
        bad_entries[0] if bad_entries else 0,
        len(bad_slots),
        bad_slots[0] if bad_slots else -1,
        used_slot_count,
    )


def infer_geometry(content: "Searchable", likely: Iterable[Geometry] = ()) -> Geometry:
    """Infer the slot and entry counts of a file that has at least one entry.

    The file does not contain them, so they are the counts that fit its content: the first and last
    entry have the header's offsets, and the newest is in the slot of its hash. ``likely`` counts
    are tried first, then RocketMQ's defaults; the rest costs one search of the file.

    :raises IndexFileError: if no counts fit: the file is damaged, or is not an index file.
    """
    header = decode_header(content[:HEADER_BYTES])
    size = len(content)
    for geometry in (*likely, DEFAULT_GEOMETRY):
        if geometry.file_bytes == size and _endpoints_match(content, header, geometry):
            return geometry
    for slot_count in _possible_slot_counts(content, header) if header.last_entry else ():
        entry_count, odd_bytes = divmod(size - HEADER_BYTES - slot_count * SLOT_BYTES, ENTRY_BYTES)
        geometry = Geometry(slot_count, entry_count)
        # A message has several entries, so counts that differ by a few entries can fit, too.
        is_right = _recent_chains_match if header.end_offset else _all_chains_match
        if (
            not odd_bytes
            and _endpoints_match(content, header, geometry)
            and is_right(content, header, geometry)
        ):
            return geometry
    raise IndexFileError("no slot and entry counts fit its content")


def _endpoints_match(content: "Searchable", header: IndexHeader, geometry: Geometry) -> bool:
    """Return True if the first and last entry have the header's offsets with ``geometry``."""
    last = header.last_entry
    if geometry.slot_count < 1 or not 1 <= last < geometry.entry_count:
        return False
    first_entry = decode_entry(content, geometry, 1)
    last_entry = decode_entry(content, geometry, last)
    if min(first_entry.key_hash, last_entry.key_hash) < 0:
        return False
    head = geometry.slot_position(last_entry.key_hash % geometry.slot_count)
    return (
        first_entry.physical_offset == header.begin_offset
        and first_entry.previous_entry == 0
        and last_entry.physical_offset == header.end_offset
        and SLOT.unpack_from(content, head)[0] == last
    )


def _recent_chains_match(content: "Searchable", header: IndexHeader, geometry: Geometry) -> bool:
    """Return True if the newest entries are not newer than the newest entry of their chain."""
    last = header.last_entry
    for number in range(max(1, last - _WITNESSES), last):
        key_hash = decode_entry(content, geometry, number).key_hash
        head = geometry.slot_position(key_hash % geometry.slot_count)
        # A killed broker may have written one slot more than the header counts.
        if not number <= SLOT.unpack_from(content, head)[0] <= last + 1:
            return False
    # At the start of the log, an unused entry differs from the first one only in its hash.
    return header.begin_offset > 0 or decode_entry(content, geometry, 1).key_hash > 0


def _all_chains_match(content: "Searchable", header: IndexHeader, geometry: Geometry) -> bool:
    """Return True if all chains match the entries, and no bytes follow them. O(file).

    Entries with offset 0 look unused, so they need this check.
    """
    entries = [
        decode_entry(content, geometry, number) for number in range(1, header.last_entry + 1)
    ]
    chains = check_chains(
        (entry.key_hash for entry in entries),
        (entry.previous_entry for entry in entries),
        memoryview(content)[HEADER_BYTES : geometry.entry_position(0)],
    )
    behind = geometry.entry_position(header.last_entry + 1)
    return (
        not any(entry.physical_offset for entry in entries)
        and chains.is_good
        and chains.used_slot_count == header.used_slot_count
        and next(_nonzero_positions(content, behind), None) is None
    )


def _possible_slot_counts(content: "Searchable", header: IndexHeader) -> Iterator[int]:
    """Yield the slot counts with which the header's end offset is in the last entry.

    If that offset is 0, the whole file belongs to the first record of the log, and few positions
    are not zero: the first of them after the slots is the first entry's hash.
    """
    if header.end_offset:
        before = (
            HEADER_BYTES + header.last_entry * ENTRY_BYTES + ENTRY_LAYOUT.offsets["physical_offset"]
        )
        needle = header.end_offset.to_bytes(8, "big")
        for position in islice(_positions_of(content, needle, before), MAX_INDEX_CANDIDATES):
            slot_count, rest = divmod(position - before, SLOT_BYTES)
            if not rest:
                yield slot_count
        return
    if header.last_entry > limits.MAX_RECORD_ENTRIES:
        return
    before = HEADER_BYTES + ENTRY_BYTES
    for position in islice(_nonzero_positions(content, HEADER_BYTES), MAX_INDEX_CANDIDATES):
        for start in range(position - 3, position + 1):
            slot_count, rest = divmod(start - before, SLOT_BYTES)
            if not rest and slot_count > 0:
                yield slot_count


def _positions_of(content: "Searchable", needle: bytes, start: int) -> Iterator[int]:
    position = content.find(needle, start)
    while position >= 0:
        yield position
        position = content.find(needle, position + 1)


def _nonzero_positions(content: "Searchable", first: int) -> Iterator[int]:
    """Yield the positions from ``first`` on that are not zero; zero blocks cost a comparison."""
    zeros = bytes(_BLOCK_BYTES)
    for start in range(first, len(content), _BLOCK_BYTES):
        block = content[start : start + _BLOCK_BYTES]
        if block != zeros:
            yield from (start + match.start() for match in re.finditer(rb"[^\0]", block))


def key_hash(topic: str, key: str) -> int:
    return index_hash(f"{topic}#{key}")


def tags_hash(topic: str, tags: str) -> int:
    return key_hash(topic, f"T#{tags}")


def index_hashes(record: Record, *, with_tags: bool) -> list[int]:
    """Return the hashes of a record's index entries, in RocketMQ's order."""
    if not is_indexed(record.sys_flag):
        return []
    properties = props.parse(decode_utf8(record.properties))
    unique_key, tags = properties.get(props.UNIQUE_KEY), properties.get(props.TAGS)
    hashes = [key_hash(record.topic, unique_key)] if unique_key else []
    hashes += [key_hash(record.topic, key) for key in props.split_keys(properties.get(props.KEYS))]
    if with_tags and tags:
        hashes.append(tags_hash(record.topic, tags))
    return hashes
