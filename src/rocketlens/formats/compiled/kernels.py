"""The compiled scans and builders, shared by offline reader, broker and Spark.

Everything here works on arrays in memory (or mapped), releases the GIL, opens no file and keeps
nothing between calls. Input is not trusted: whatever the bytes are, no call reads or writes outside
its arrays, and no record is reported where there is none.

A ``buffer`` is a one-dimensional ``uint8`` array (``np.frombuffer`` over bytes or a map) whose
byte 0 stands at physical offset ``base_offset`` of the log. Positions are indexes into it, offsets
are the log's. Work in pieces of a few thousand rows: they stay in the processor's cache between two
calls. Entries go into three arrays side by side, see :class:`EntryArrays`.

==============================  ===================================================================
records                         :func:`scan_records`, :func:`find_record`,
                                :func:`walk_to`, :func:`crc_ok`, :func:`group_rows`
index files                     :func:`build_index_file`
consume queues                  :func:`consume_queue_entries`, :func:`take_records`
columns (Arrow layout)          :func:`part_slices`, :func:`gather`, :func:`key_slices`,
                                :func:`property_slices`
==============================  ===================================================================

Importing this module loads numpy, which takes 0.1 s, and the kernels, which takes 5 ms. For a few
records :func:`rocketlens.formats.commitlog_record.decode` is faster than that.
"""

from enum import IntEnum
from typing import Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.formats.compiled import index as kernels_index
from rocketlens.formats.compiled import pull as kernels_pull
from rocketlens.formats.compiled import record_constants
from rocketlens.formats.compiled import scan as kernels_scan
from rocketlens.formats.compiled import text as kernels_text
from rocketlens.formats.compiled.rows import RECORD_DTYPE, ByteArray, RowArray
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES as QUEUE_ENTRY_BYTES

__all__ = [
    "RECORD_DTYPE",
    "EntryArrays",
    "Gathered",
    "KeySlices",
    "PropertySlices",
    "RowGroups",
    "ScanEnd",
    "ScanReason",
    "TakenRecords",
    "build_index_file",
    "consume_queue_entries",
    "crc_ok",
    "find_record",
    "gather",
    "group_rows",
    "key_slices",
    "part_slices",
    "property_slices",
    "scan_records",
    "take_records",
    "walk_to",
]


_NO_INT32S: Final = np.empty(0, np.int32)
_NO_INT64S: Final = np.empty(0, np.int64)

Part = Literal["topic", "properties", "unique_key", "keys", "tags", "body"]


class ScanReason(IntEnum):
    """Why a walk over records ended where it did."""

    STOP = record_constants.STOP
    """The next record begins at or after the position asked for."""
    FULL = record_constants.FULL
    """The next record had no room in the output arrays."""
    BLANK = record_constants.BLANK
    """Filler: go on with the next segment. Its size word is not looked at, as in RocketMQ."""
    END = record_constants.END
    """Size and magic are zero, or fewer than 8 bytes are left."""
    BAD = record_constants.BAD
    """Anything else: no consistent record with its own physical offset starts there."""


class ScanEnd(NamedTuple):
    """``count`` rows were filled, with ``entry_count`` entries; the walk ended at
    ``next_position`` for ``reason``.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count, which is not needed here
    entry_count: int
    next_position: int
    reason: ScanReason


class EntryArrays(NamedTuple):
    """Index entries, in the order in which RocketMQ puts them; 20 bytes each."""

    hashes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]

    @classmethod
    def allocate(cls, count: int) -> Self:
        """Return uninitialized arrays for ``count`` entries."""
        return cls(np.empty(count, np.int32), np.empty(count, np.int64), np.empty(count, np.int64))

    def part(self, start: int, stop: int) -> Self:
        """Return a view of entries ``start .. stop - 1``."""
        return type(self)(
            self.hashes[start:stop], self.offsets[start:stop], self.timestamps[start:stop]
        )


_NO_ENTRIES: Final = EntryArrays.allocate(0)


class TakenRecords(NamedTuple):
    """The result of :func:`take_records`, which has dealt with the first ``entry_count`` entries.

    ``record_count`` and ``record_bytes`` include what was taken before. ``slices`` are start and
    stop in the buffer of one record, or of several that follow one another. ``is_full``: there is
    no room for the next record. If it is false, the caller looks at the next entry itself.
    """

    entry_count: int
    record_count: int
    record_bytes: int
    slices: list[tuple[int, int]]
    is_full: bool


class RowGroups(NamedTuple):
    """``group_of_row[i]`` is row i's group; ``first_rows[g]`` the first row of group g."""

    group_of_row: NDArray[np.int32]
    first_rows: NDArray[np.int64]


class Gathered(NamedTuple):
    """Slices laid side by side: slice i is ``values[offsets[i]:offsets[i + 1]]``."""

    offsets: NDArray[np.int32]
    values: ByteArray


class KeySlices(NamedTuple):
    """Row i has keys ``list_offsets[i] .. list_offsets[i + 1] - 1``, each a slice of the buffer."""

    list_offsets: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int32]


class PropertySlices(NamedTuple):
    """As :class:`KeySlices`, with a name and a value for each; a row has each name once."""

    list_offsets: NDArray[np.int32]
    name_starts: NDArray[np.int64]
    name_lengths: NDArray[np.int32]
    value_starts: NDArray[np.int64]
    value_lengths: NDArray[np.int32]


def scan_records(  # noqa: PLR0917 - the second output beside the first
    buffer: ByteArray,
    base_offset: int,
    start: int,
    stop: int,
    rows: RowArray,
    entries: EntryArrays | None = None,
    *,
    with_tags: bool = False,
) -> ScanEnd:
    """Walk the records that begin in ``start .. stop - 1`` and fill one row each.

    The last of them may end behind ``stop``, not behind the buffer. Body checksums are not looked
    at (:func:`crc_ok`). Part starts in a row are relative to the record; ``-1`` as a length means
    that the property isn't there; ``tags_hash`` is Java's, 0 without tags; ``delay_level`` is 0
    where DELAY is missing or no ``int``; ``topic_hash`` is 64 bits of no outside meaning;
    ``key_seed`` is Java's hash of ``topic#``. O(bytes of header and properties).

    With ``entries`` the index entries of the rows are written in the same pass. Per row, in this
    order: ``topic#unique key``, ``topic#key`` for each key, and with ``with_tags`` (RocketMQ 5.5)
    ``topic#T#tags``; a rollback record has none. A record of which not all find room is left for
    the next call (FULL), so there must be room for
    :data:`rocketlens.limits.MAX_RECORD_ENTRIES` at least, or the walk may stand still.

    :raises ValueError: when ``start`` lies outside the buffer, or ``base_offset`` is no offset.
    """
    count, entry_count, next_position, reason = kernels_scan.scan(
        buffer,
        base_offset,
        start,
        stop,
        rows,
        entries is not None,
        with_tags,
        *(entries or _NO_ENTRIES),
    )
    return ScanEnd(count, entry_count, next_position, ScanReason(reason))


def find_record(buffer: ByteArray, base_offset: int, start: int, stop: int) -> int:
    """Return the first position in ``start .. stop - 1`` at which a record begins, or -1.

    A record identifies itself: its magic is known, its parts add up, and it says that it belongs
    exactly there. A forged one inside a body does so too, which only a walk from a known start
    (:func:`walk_to`) tells. Several GB/s.

    :raises ValueError: as :func:`scan_records`.
    """
    return kernels_scan.find_start(buffer, base_offset, start, stop)


def walk_to(buffer: ByteArray, base_offset: int, start: int, target: int) -> tuple[int, ScanReason]:
    """Step from the record at ``start`` to the first that begins at ``target`` or later.

    Returns its position with STOP; or, where no record begins, that position with the reason. The
    record at the position returned has not been looked at. O(records between).

    :raises ValueError: as :func:`scan_records`.
    """
    position, reason = kernels_scan.walk(buffer, base_offset, start, target)
    return position, ScanReason(reason)


def crc_ok(buffer: ByteArray, base_offset: int, rows: RowArray) -> NDArray[np.bool_]:
    """Return for each row whether the checksums of its record are right, by the rules of `decode`.

    A body that is not empty has one. RocketMQ 5 can write another, of the whole record: it is
    ``__CRC32#`` at the end of the properties.

    :raises BadInput: when a row doesn't belong to the buffer.
    """
    result = np.empty(len(rows), np.bool_)
    _check_rows(kernels_text.check_records(buffer, base_offset, rows, result))
    return result


def group_rows(buffer: ByteArray, base_offset: int, rows: RowArray, *, by_queue: bool) -> RowGroups:
    """Number the rows by topic bytes, and by queue id with ``by_queue``, in order of appearance.

    Topics that differ only in malformed UTF-8 are different groups here, and one topic to Java.

    :raises BadInput: when a row doesn't belong to the buffer.
    """
    table = np.zeros(2 << len(rows).bit_length(), np.int64)
    group_of_row = np.empty(len(rows), np.int32)
    first_rows = np.empty(len(rows), np.int64)
    count = kernels_text.group(buffer, base_offset, rows, by_queue, table, group_of_row, first_rows)
    _check_rows(count)
    return RowGroups(group_of_row, first_rows[:count].copy())


def build_index_file(
    new: EntryArrays,
    slots: ByteArray,
    entries: ByteArray,
    *,
    slot_count: int,
    begin_timestamp_ms: int,
    first_entry: int = 1,
    slot_range: tuple[int, int] | None = None,
) -> int:
    """Put entries into an index file's slots and entries, as ``IndexFile.putKey`` does.

    ``slots``: the bytes from 40 on, ``slot_count * 4``, all zero for a new file; ``entries``: the
    bytes behind them. ``begin_timestamp_ms``: for a new file (``first_entry`` 1) the end time of
    the file before or 0, else what this file's header says. ``slot_range``: only the entries of
    slots in ``low .. high - 1``; calls for ranges that together are all slots, in any order or at
    once, give the same bytes as one call. Returns the number of slots filled that were empty:
    the header is the caller's.

    :raises ValueError: when the entries don't fit, or a range or count is impossible.
    """
    low, high = slot_range or (0, slot_count)
    return kernels_index.build(
        *new, first_entry, begin_timestamp_ms, slot_count, low, high, slots, entries
    )


def consume_queue_entries(
    rows: RowArray,
    chosen: NDArray[np.int64],
    out: ByteArray,
    *,
    first_queue_offset: int,
    delays_ms: NDArray[np.int64] | None = None,
) -> int:
    """Write the consume queue entries of the chosen rows (all of one queue) into ``out``.

    Entry of queue offset q goes to byte ``(q - first_queue_offset) * 20``; one that does not fit
    ``out`` is not written, nor are prepared and rollback records, which have none. Returns how
    many were written. ``delays_ms`` for the queues of delay levels only: element n is the
    delay of level n (element 0 unused), and a record with a level gets its delivery time, not its
    tags' hash. Rows may come from different buffers.
    """
    delays = _NO_INT64S if delays_ms is None else delays_ms
    return kernels_index.queue_entries(rows, chosen, first_queue_offset, delays, out)


def take_records(  # noqa: PLR0917 - what an entry is compared with, and what there is room for
    entries: bytes | memoryview,
    queue: tuple[bytes, int, int],
    tag_codes: NDArray[np.int32] | None,
    buffer: ByteArray,
    base_offset: int,
    stretch: tuple[int, int],
    taken: tuple[int, int],
    room: tuple[int, int],
) -> TakenRecords:
    """Take the records of consecutive consume queue entries, up to the first doubtful one.

    ``queue``: topic, queue id and the queue offset of the first entry. Entries are skipped unless
    their tags code is in ``tag_codes``, in ascending order; None skips nothing. A record is taken
    if it is whole, its checksums are right, it belongs to its entry, and it begins in ``stretch``:
    physical offsets, inside the buffer. ``taken`` is how many records and bytes were taken before,
    ``room`` how many there may be together. The first record is taken whatever its size.

    :raises ValueError: when the stretch lies outside the buffer, or ``base_offset`` is no offset.
    """
    first, stop = stretch
    topic, queue_id, queue_offset = queue
    slices = np.empty((len(entries) // QUEUE_ENTRY_BYTES, 2), np.int64)
    entry_count, count, total_bytes, slice_count, is_full = kernels_pull.take(
        np.frombuffer(entries, np.uint8),
        queue_id,
        queue_offset,
        np.frombuffer(topic, np.uint8),
        _NO_INT32S if tag_codes is None else tag_codes,
        tag_codes is not None,
        buffer,
        base_offset,
        first,
        stop,
        *taken,
        *room,
        slices.reshape(-1),
    )
    return TakenRecords(
        entry_count, count, total_bytes, slices[:slice_count].tolist(), bool(is_full)
    )


def part_slices(
    rows: RowArray, base_offset: int, part: Part
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return start positions in the buffer and lengths (-1: absent) of one part of every row."""
    starts = rows["physical_offset"] - base_offset + rows[f"{part}_start"]
    return starts, np.ascontiguousarray(rows[f"{part}_length"])


def gather(
    buffer: ByteArray,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int32],
    *,
    as_text: bool,
) -> Gathered:
    """Copy slices of the buffer side by side, with the offsets that Arrow's arrays want.

    A length of 0 or less gives an empty slice (for an absent value, the null mask is the
    caller's). ``as_text`` replaces malformed UTF-8 by U+FFFD exactly as Java does, so that the
    values are valid UTF-8; without it, bytes are copied as they are.

    :raises BadInput: when a slice lies outside the buffer, or all together exceed 2**31 - 1 bytes.
    """
    if len(starts) != len(lengths):
        message = f"{len(starts)} starts and {len(lengths)} lengths make no slices"
        raise BadInput(message)
    offsets = np.empty(len(starts) + 1, np.int64)
    total = kernels_text.offsets_of(buffer, starts, lengths, as_text, offsets)
    if total < 0:
        message = f"slice {-1 - total} lies outside the buffer"
        raise BadInput(message)
    if total > limits.MAX_INT:
        message = f"{total} bytes are more than one Arrow array holds: gather fewer rows"
        raise BadInput(message)
    values = np.empty(total, np.uint8)
    kernels_text.copy_slices(buffer, starts, lengths, offsets, as_text, values)
    return Gathered(offsets.astype(np.int32), values)


def key_slices(buffer: ByteArray, base_offset: int, rows: RowArray) -> KeySlices:
    """Cut every row's KEYS at single spaces; drop empty keys, and keep repeated ones.

    :raises BadInput: when a row doesn't belong to the buffer.
    """
    list_offsets = np.empty(len(rows) + 1, np.int32)
    room = 2 * len(rows)
    while True:
        starts = np.empty(room, np.int64)
        lengths = np.empty(room, np.int32)
        count = kernels_text.key_slices(buffer, base_offset, rows, list_offsets, starts, lengths)
        _check_rows(count)
        if count <= room:
            return KeySlices(list_offsets, starts[:count], lengths[:count])
        room = count


def property_slices(buffer: ByteArray, base_offset: int, rows: RowArray) -> PropertySlices:
    """Cut every row's properties into names and values, as Java's parser reads them.

    A segment without name or value is dropped; of several with one name (as decoded) the first
    has the position and the last the value.

    :raises BadInput: when a row doesn't belong to the buffer.
    """
    list_offsets = np.zeros(len(rows) + 1, np.int32)
    starts = np.empty((2, 8 * len(rows) + limits.MAX_RECORD_ENTRIES), np.int64)
    lengths = np.empty(starts.shape, np.int32)
    done = 0
    while True:
        done, count = kernels_text.property_slices(
            buffer, base_offset, rows, done, list_offsets, *starts, *lengths
        )
        _check_rows(done)
        if done == len(rows):
            return PropertySlices(
                list_offsets,
                starts[0, :count],
                lengths[0, :count],
                starts[1, :count],
                lengths[1, :count],
            )
        starts = np.concatenate([starts, np.empty_like(starts)], axis=1)
        lengths = np.concatenate([lengths, np.empty_like(lengths)], axis=1)


def _check_rows(result: int) -> None:
    if result < 0:
        message = f"row {-1 - result} does not belong to this buffer"
        raise BadInput(message)
