"""Rows of records: what a walk over the log finds.

They need no numpy, which takes longer to load than a short log to read: kernels fill and choose
them, and a column is a view of their memory. What computes much has them as an array.
"""

from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from struct import calcsize
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from rocketlens.errors import BadInput
from rocketlens.formats.commitlog_record import Record, RecordView
from rocketlens.formats.compiled import scan, text
from rocketlens.formats.compiled.record_constants import ROW_FIELDS
from rocketlens.model.text.java import decode_utf8

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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
"""The type of each column, and of numbers of that size its first in a row, and how many a row has.
"""
_MAX_NUMBER: Final = (1 << 63) - 1


class IndexEntries(NamedTuple):
    """Index entries, in the order in which RocketMQ puts them."""

    hashes: "array[int]"
    offsets: "array[int]"
    timestamps: "array[int]"

    @classmethod
    def allocate(cls, count: int) -> "IndexEntries":
        """Return room for ``count`` entries."""
        offsets, timestamps = array("q", bytes(8 * count)), array("q", bytes(8 * count))
        return cls(array("i", bytes(4 * count)), offsets, timestamps)


_NO_ENTRIES: Final = IndexEntries.allocate(0)
WITHOUT_ENTRIES: Final = (False, False, *_NO_ENTRIES)
"""The arguments of the scan of a log that is to write no index entries."""


class RowTopics(NamedTuple):
    """The topics of some rows: ``names[number_of_row[n]]`` is that of row ``n``.

    A name can be there twice: bytes that are not UTF-8 can decode to one text in several ways.
    """

    names: list[str]
    number_of_row: "array[int]"


class Rows:
    """Some records of one segment, in the order of the log; each row as `ROW_FIELDS` has it.

    ``content`` is the whole segment, and its first byte has physical offset ``base_offset``. Rows
    of a walk hold until it is asked for the next.
    """

    __slots__ = ("base_offset", "content", "memory")

    def __init__(self, content: memoryview, base_offset: int, memory: memoryview) -> None:
        """Take the bytes of rows."""
        self.content: Final = content
        self.base_offset: Final = base_offset
        self.memory: Final = memory

    @classmethod
    def of(cls, content: memoryview, base_offset: int, rows: "npt.NDArray[np.void]") -> "Rows":
        """Return the rows of an array."""
        import numpy as np

        return cls(content, base_offset, rows.view(np.uint8).data)

    def __len__(self) -> int:
        """Count the records."""
        return len(self.memory) // ROW_BYTES

    @property
    def as_array(self) -> "npt.NDArray[np.void]":
        """The rows as an array: `rocketlens.formats.compiled.kernels.RECORD_DTYPE`."""
        import numpy as np

        from rocketlens.formats.compiled.rows import RECORD_DTYPE

        return np.asarray(self.memory).view(RECORD_DTYPE)

    def column(self, name: str) -> memoryview:
        """Return a column, without copying it."""
        code, first, step = _COLUMNS[name]
        return self.memory.cast(code)[first::step]

    def offsets(self) -> list[int]:
        """Return the physical offsets."""
        offsets: list[int] = self.column("physical_offset").tolist()
        return offsets

    @property
    def newest_ms(self) -> int:
        """The latest store time; 0 without rows."""
        return scan.summarize(self.memory)[0]

    @property
    def sys_flags(self) -> int:
        """All bits that are set in a ``sys_flag`` of them."""
        return scan.summarize(self.memory)[1]

    def part(self, start: int, stop: int) -> "Rows":
        """Return rows ``start .. stop - 1``."""
        memory = self.memory[start * ROW_BYTES : stop * ROW_BYTES]
        return Rows(self.content, self.base_offset, memory)

    def compress(self, mask: bytes | bytearray) -> "Rows":
        """Return those rows for which a byte of the mask is not zero."""
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
        """Return the rows of store times, of a queue id and queue offset, and of some topics."""
        groups, wanted = array("i"), b""
        if takes_topic is not None:
            topics = self.topics()
            groups, wanted = topics.number_of_row, bytes(map(takes_topic, topics.names))
        mask = bytearray(len(self))
        low = -_MAX_NUMBER - 1 if begin is None else begin
        high = _MAX_NUMBER if end is None else min(end, _MAX_NUMBER)
        # No row has a larger number.
        if max((low, *(position or ()))) <= _MAX_NUMBER:
            numbers = array("q", position or ())
            scan.choose(self.memory, low, high, numbers, groups, wanted, mask)
        return self.compress(mask)

    def topics(self) -> RowTopics:
        """Return the topics of the rows, compared byte by byte: a hash has twins."""
        first_rows, number_of_row = self._groups(by_queue=False)
        columns = ("physical_offset", "topic_start", "topic_length")
        starts, parts, lengths = map(self.column, columns)
        names = []
        for row in first_rows:
            start = starts[row] - self.base_offset + parts[row]
            names.append(decode_utf8(bytes(self.content[start : start + lengths[row]])))
        return RowTopics(names, number_of_row)

    def queues(self) -> "Iterator[tuple[str, int, npt.NDArray[np.void]]]":
        """Return topic, queue id and rows of each queue: one can be there twice, as a topic can."""
        import numpy as np

        rows = self.as_array
        _, groups = self._groups(by_queue=True)
        # `rows[order]` copies each field by itself, which takes 30 times as long. So does
        # `rows[mask]`: masks are applied with `compress`.
        sorted_rows = rows.take(np.argsort(groups, kind="stable"))
        ends = np.cumsum(np.bincount(groups))
        for some in np.split(sorted_rows, ends[:-1]):
            first = some[0]
            start = int(first["physical_offset"]) - self.base_offset + int(first["topic_start"])
            topic = bytes(self.content[start : start + int(first["topic_length"])])
            yield decode_utf8(topic), int(first["queue_id"]), some

    def _groups(self, *, by_queue: bool) -> "tuple[array[int], array[int]]":
        """Return the first row of each topic, or each queue, and the number of that of each row."""
        table = array("q", bytes(8 * (2 << len(self).bit_length())))
        group_of_row = array("i", bytes(4 * len(self)))
        first_rows = array("q", bytes(8 * len(self)))
        count = text.group(
            self.content, self.base_offset, self.memory, by_queue, table, group_of_row, first_rows
        )
        self._check(count)
        return first_rows[:count], group_of_row

    def sound(self) -> bytearray:
        """Return for each row whether its record has its checksums: 1, or 0."""
        mask = bytearray(len(self))
        out = memoryview(mask).cast("?")
        self._check(text.check_records(self.content, self.base_offset, self.memory, out))
        return mask

    def index_entries(self, *, with_tags: bool) -> IndexEntries:
        """Return the index entries of the rows: see `kernels.scan_records`."""
        entries = _NO_ENTRIES
        while True:
            count = scan.entries_of_rows(
                self.content, self.base_offset, self.memory, with_tags, *entries
            )
            self._check(count)
            if count == len(entries.hashes):
                return entries
            entries = IndexEntries.allocate(count)

    def records(self) -> Iterator[Record]:
        """Yield the records, bodies not checked.

        :raises RecordError: if the bytes of one were changed since.
        """
        for offset in self.offsets():
            yield RecordView(self.content, offset - self.base_offset, offset).record()

    def _check(self, result: int) -> None:
        if result < 0:
            raise BadInput(f"row {-1 - result} does not belong to this buffer")
