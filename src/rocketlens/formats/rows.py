"""Rows of records: the result of a walk over the log.

They need no numpy, which takes longer to load than a short log takes to read: kernels fill and
filter them, and a column is a view of their memory. Heavy computations use them as an array.
"""

from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from struct import calcsize
from typing import Final, Literal, NamedTuple

from rocketlens.errors import BadInput
from rocketlens.formats.commitlog_record import Record, RecordView, has_queue_entry
from rocketlens.formats.compiled import index, scan, text
from rocketlens.formats.compiled.record_constants import ROW_FIELDS
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.late import np, npt
from rocketlens.model.rocketmq import SYS_FLAG_PREPARED
from rocketlens.model.text.java import decode_utf8

_CODES: Final[dict[str, Literal["q", "Q", "i", "I"]]] = {
    "int64": "q",
    "uint64": "Q",
    "int32": "i",
    "uint32": "I",
}
_SIZES: Final = [calcsize(_CODES[kind]) for _, kind in ROW_FIELDS]
ROW_BYTES: Final = sum(_SIZES)
_COLUMNS: Final = {
    name: (_CODES[kind], at // size, ROW_BYTES // size)
    for (name, kind), size, at in zip(
        ROW_FIELDS, _SIZES, accumulate(_SIZES, initial=0), strict=False
    )
}
"""For each column: its type, and in units of its size, its position in a row and the size of a
row."""
_MAX_NUMBER: Final = (1 << 63) - 1
_NO_DELAYS: Final = array("q")
_ENTRIES_OF_ROW: Final = 4
"""Index entries per row that memory is first allocated for."""


class IndexEntries(NamedTuple):
    """Index entries in RocketMQ's order: three columns of one length."""

    hashes: "memoryview[int] | npt.NDArray[np.int32]"
    offsets: "memoryview[int] | npt.NDArray[np.int64]"
    timestamps: "memoryview[int] | npt.NDArray[np.int64]"

    @classmethod
    def allocate(cls, count: int) -> "IndexEntries":
        """Return room for ``count`` entries; a part of them is a view."""
        memory, middle, end = memoryview(bytearray(20 * count)), 8 * count, 16 * count
        return cls(memory[end:].cast("i"), memory[:middle].cast("q"), memory[middle:end].cast("q"))

    def part(self, start: int, stop: int) -> "IndexEntries":
        hashes, offsets, timestamps = self
        return IndexEntries(hashes[start:stop], offsets[start:stop], timestamps[start:stop])


class RowTopics(NamedTuple):
    """The topics of some rows: ``names[number_of_row[n]]`` is that of row ``n``.

    Names can repeat, since different malformed UTF-8 can decode to one text.
    """

    names: list[str]
    number_of_row: "array[int]"


class Rows:
    """Some records of one segment, in the order of the log; a row has the fields of `ROW_FIELDS`.

    ``content`` is the whole segment, and its first byte has physical offset ``base_offset``. Rows
    of a walk are valid until its next step.
    """

    __slots__ = ("base_offset", "content", "memory")

    def __init__(self, content: memoryview, base_offset: int, memory: memoryview) -> None:
        self.content: Final = content
        self.base_offset: Final = base_offset
        self.memory: Final = memory

    @classmethod
    def of(cls, content: memoryview, base_offset: int, rows: "npt.NDArray[np.void]") -> "Rows":
        return cls(content, base_offset, rows.view(np.uint8).data)

    def __len__(self) -> int:
        return len(self.memory) // ROW_BYTES

    @property
    def as_array(self) -> "npt.NDArray[np.void]":
        """The rows as an array: `rocketlens.formats.compiled.rows.RECORD_DTYPE`."""
        from rocketlens.formats.compiled.rows import RECORD_DTYPE

        return np.asarray(self.memory).view(RECORD_DTYPE)

    def column(self, name: str) -> memoryview:
        """Return a column without copying it."""
        code, first, step = _COLUMNS[name]
        return self.memory.cast(code)[first::step]

    def offsets(self) -> list[int]:
        offsets: list[int] = self.column("physical_offset").tolist()
        return offsets

    @property
    def newest_ms(self) -> int:
        """The latest store time; 0 without rows."""
        return scan.summarize(self.memory)[0]

    @property
    def sys_flags(self) -> int:
        """The union of the bits of all ``sys_flag`` values."""
        return scan.summarize(self.memory)[1]

    def part(self, start: int, stop: int) -> "Rows":
        memory = self.memory[start * ROW_BYTES : stop * ROW_BYTES]
        return Rows(self.content, self.base_offset, memory)

    def compress(self, mask: bytes | bytearray) -> "Rows":
        """Return the rows for which the mask has a byte that is not zero."""
        count = len(mask) - mask.count(0)
        if count == len(self):
            return self
        memory = bytearray(count * ROW_BYTES)
        scan.compress(self.memory, mask, memory)
        return Rows(self.content, self.base_offset, memoryview(memory))

    def choose(
        self,
        *,
        begin: int | None = None,
        end: int | None = None,
        position: tuple[int, int] | None = None,
        takes_topic: Callable[[str], bool] | None = None,
    ) -> "Rows":
        """Return the rows with a store time, with a queue id and offset, and of some topics."""
        groups, wanted = array("i"), b""
        if takes_topic is not None:
            topics = self.topics()
            groups, wanted = topics.number_of_row, bytes(map(takes_topic, topics.names))
        mask = bytearray(len(self))
        low = -_MAX_NUMBER - 1 if begin is None else begin
        high = _MAX_NUMBER if end is None else min(end, _MAX_NUMBER)
        # No row has a larger value.
        if max((low, *(position or ()))) <= _MAX_NUMBER:
            numbers = array("q", position or ())
            scan.choose(self.memory, low, high, numbers, groups, wanted, mask)
        return self.compress(mask)

    def topics(self) -> RowTopics:
        """Return the topics of the rows, compared byte by byte, since hashes can collide."""
        first_rows, number_of_row = self._groups(by_queue=False)
        return RowTopics(list(map(self._topic, first_rows)), number_of_row)

    def queue_names(self) -> "tuple[list[tuple[str, int]], array[int]]":
        """Return topic and queue id of each queue, and the queue's number for each row.

        Names can repeat, as those of topics.
        """
        first_rows, number_of_row = self._groups(by_queue=True)
        queue_ids = self.column("queue_id")
        return [(self._topic(row), queue_ids[row]) for row in first_rows], number_of_row

    def queued(self) -> "Rows":
        if not self.sys_flags & SYS_FLAG_PREPARED:
            return self
        return self.compress(has_queue_entry(self.as_array["sys_flag"]).tobytes())

    def queues(self) -> "Iterator[tuple[str, int, Rows]]":
        """Yield topic, queue id and rows of each queue; names can repeat, as those of topics."""
        names, number_of_row = self.queue_names()
        if not names:
            return
        # `rows[order]` copies each field separately, which takes 30 times as long. So does
        # `rows[mask]`: use `compress`.
        sorted_rows = self.as_array.take(np.argsort(number_of_row, kind="stable"))
        ends = np.cumsum(np.bincount(number_of_row))
        for name, some in zip(names, np.split(sorted_rows, ends[:-1]), strict=True):
            yield *name, Rows.of(self.content, self.base_offset, some)

    def _topic(self, row: int) -> str:
        columns = ("physical_offset", "topic_start", "topic_length")
        offset, start, length = (self.column(name)[row] for name in columns)
        start += offset - self.base_offset
        return decode_utf8(bytes(self.content[start : start + length]))

    def _groups(self, *, by_queue: bool) -> "tuple[array[int], array[int]]":
        """Return the first row of each topic, or each queue, and the group number of each row."""
        table = array("q", bytes(8 * (2 << len(self).bit_length())))
        group_of_row = array("i", bytes(4 * len(self)))
        first_rows = array("q", bytes(8 * len(self)))
        count = text.group(
            self.content, self.base_offset, self.memory, by_queue, table, group_of_row, first_rows
        )
        check_rows(count)
        return first_rows[:count], group_of_row

    def sound(self) -> bytearray:
        """Check the checksums of each row's record: 1 if they are right, else 0."""
        mask = bytearray(len(self))
        out = memoryview(mask).cast("?")
        check_rows(text.check_records(self.content, self.base_offset, self.memory, out))
        return mask

    def index_entries(self, *, with_tags: bool) -> IndexEntries:
        """Return the index entries of the rows.

        Per row, in this order: ``topic#unique key``, ``topic#key`` for each key, and with
        ``with_tags`` (RocketMQ 5.5) ``topic#T#tags``; a rollback record has none.
        """
        room = _ENTRIES_OF_ROW * len(self)
        while True:
            entries = IndexEntries.allocate(room)
            count = scan.entries_of_rows(
                self.content, self.base_offset, self.memory, with_tags, *entries
            )
            check_rows(count)
            if count <= room:
                return entries.part(0, count)
            room = count

    def queue_entries(
        self, first_queue_offset: int, delays_ms: "array[int]" = _NO_DELAYS
    ) -> memoryview:
        """Return the consume queue entries of rows of one queue, in the order of queue offsets.

        There is one for each row, from ``first_queue_offset`` on; it is zero if no row has that
        offset, or the row has no entry. ``delays_ms`` is for the queues of delay levels only:
        element n is the delay of level n (element 0 unused), and a record with a level gets its
        delivery time instead of its tags' hash.
        """
        entries = memoryview(bytearray(len(self) * ENTRY_BYTES))
        index.queue_entries(self.memory, first_queue_offset, delays_ms, entries)
        return entries

    def records(self) -> Iterator[Record]:
        """Yield the records, bodies not checked; raise RecordError if their bytes changed."""
        for offset in self.offsets():
            yield RecordView(self.content, offset - self.base_offset, offset).record()


def scan_rows(
    content: memoryview, base_offset: int, start: int, stop: int, memory: memoryview
) -> tuple[Rows, int, int]:
    """Walk the records that begin in ``start .. stop - 1`` of a segment, as far as there is room.

    Return their rows, which are in ``memory``, the next position, and why the walk ended: STOP,
    FULL, BLANK, END or BAD of `rocketlens.formats.compiled.record_constants`. The last record can
    end after ``stop``, but not after the content. Checksums are not compared (:meth:`Rows.sound`).
    Starts of parts in a row are relative to the record; a length of -1 means that the property is
    absent. ``tags_hash`` is Java's, 0 without tags; ``delay_level`` is 0 if DELAY is missing or no
    ``int``; ``topic_hash`` is internal; ``key_seed`` is Java's hash of ``topic#``.

    :raises ValueError: if ``start`` is outside, or ``base_offset`` is not an offset.
    """
    count, position, reason = scan.scan(content, base_offset, start, stop, memory)
    return Rows(content, base_offset, memory[: count * ROW_BYTES]), position, reason


def check_rows(result: int) -> None:
    """Raise BadInput if a kernel returned -1 - n: row n does not belong to the content."""
    if result < 0:
        raise BadInput(f"row {-1 - result} does not belong to this buffer")
