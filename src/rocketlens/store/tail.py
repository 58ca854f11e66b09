"""The index in memory for the parts of the log that no index file answers for.

In a running broker that is the log's end, hence the name; after an index was lost or found
damaged it can be all of the log. It holds one hash and one physical offset per index entry, and
grows with the log: each look-up first reads what was added since the last.

What is kept is bounded (:data:`rocketlens.limits.TAIL_ENTRIES`); log beyond that is read again by
each look-up.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import SIZE_AND_MAGIC, Record
from rocketlens.store.commitlog import CommitLog, SegmentLost
from rocketlens.store.index import index_hashes
from rocketlens.store.resync import Confirm
from rocketlens.store.scan import Chunk, Damage, LogWalk

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_SORT_AFTER_LOOK_UPS: Final = 4
"""Entries are sorted once so many look-ups came: a single one is cheaper unsorted."""


_MOST_INTERPRETED: Final = 300_000
"""Hashes kept in a dictionary, at most: 200 bytes each, where a table has 12."""


class _Part(NamedTuple):
    """Entries of one stretch of the log: hashes and, beside them, physical offsets."""

    hashes: "npt.NDArray[np.int32]"
    offsets: "npt.NDArray[np.int64]"
    is_sorted: bool = False

    def find(self, wanted: "npt.NDArray[np.int32]") -> Iterator[int]:
        """Give the offsets of the entries that have one of the wanted hashes."""
        import numpy as np

        if not self.is_sorted:
            yield from self.offsets[np.isin(self.hashes, wanted)].tolist()
            return
        first = np.searchsorted(self.hashes, wanted, "left").tolist()
        last = np.searchsorted(self.hashes, wanted, "right").tolist()
        for begin, end in zip(first, last, strict=True):
            yield from self.offsets[begin:end].tolist()


def _merged(parts: list[_Part]) -> _Part:
    """Give all entries of some parts as one sorted part."""
    import numpy as np

    hashes = np.concatenate([part.hashes for part in parts])
    offsets = np.concatenate([part.offsets for part in parts])
    order = np.argsort(hashes)
    return _Part(hashes[order], offsets[order], is_sorted=True)


class Tail:
    """Answers key look-ups for given ranges of the log. Not for several threads at once.

    ``damage`` and ``torn_at`` tell what the reading met, ``topics`` whose messages it saw, and
    ``last_timestamp_ms`` the newest store time among them.
    """

    def __init__(self, log: CommitLog, confirm: Confirm) -> None:
        """Begin with no range."""
        self._log = log
        self._confirm = confirm
        self._closed: list[tuple[int, int]] = []
        self._open_at: int | None = None
        self._seen_there: bytes | None = None
        self._few: defaultdict[int, list[int]] = defaultdict(list)
        self._parts: list[_Part] = []
        self._look_ups = 0
        self._kept = 0
        self._interpreted_bytes = 0
        self._read_again: list[tuple[int, int]] = []
        self._topics: dict[int, str] = {}
        self.ranges: list[tuple[int, int | None]] = []
        self.damage: list[Damage] = []
        self.torn_at: int | None = None
        self.last_timestamp_ms = 0

    @property
    def entry_count(self) -> int:
        """How many index entries the memory holds, about."""
        return self._kept + len(self._few)

    @property
    def topics(self) -> Collection[str]:
        """The topics of the records read so far."""
        return set(self._topics.values())

    @property
    def end_offset(self) -> int | None:
        """Where the log ends, once :meth:`read_new` has come there."""
        return self._open_at if self._seen_there is not None else None

    def cover(self, ranges: Iterable[tuple[int, int | None]]) -> None:
        """Take on ranges; ``None`` ends the one at the log's growing end, of which there is one."""
        for start, stop in ranges:
            self.ranges.append((start, stop))
            if stop is None:
                self._open_at = start
            else:
                self._closed.append((start, stop))

    def read_new(self) -> None:
        """Read all that was taken on or appended since the last call."""
        self._interpreted_bytes = (
            limits.INTERPRETED_SCAN_BYTES if len(self._few) < _MOST_INTERPRETED else 0
        )
        while self._closed:
            self._read(LogWalk(self._log, *self._closed.pop(), confirm=self._confirm))
        if self._open_at is None or not self._has_grown():
            return
        self._log.refresh()
        walk = LogWalk(self._log, self._open_at, confirm=self._confirm)
        self._read(walk)
        self._open_at, self.torn_at = walk.position, walk.torn_at
        self._seen_there = self._at_open_end()

    def find(self, hashes: Collection[int]) -> set[int]:
        """Give the physical offsets of the entries with one of these hashes, in no order.

        They are candidates: other keys share a hash.
        """
        found = {offset for key_hash in hashes for offset in self._few.get(key_hash, ())}
        if self._parts or self._read_again:
            import numpy as np

            self._look_ups += 1
            if self._look_ups > _SORT_AFTER_LOOK_UPS:
                self._sort()
            wanted = np.array(sorted(hashes), dtype=np.int32)
            for part in self._parts:
                found.update(part.find(wanted))
            for start, stop in self._read_again:
                for chunk in LogWalk(self._log, start, stop, confirm=self._confirm).chunks():
                    found.update(_Part(*_entries(chunk)).find(wanted))
        return found

    def _sort(self) -> None:
        """Sort what is not, and keep each part at least twice as long as the next."""
        unsorted = [part for part in self._parts if not part.is_sorted]
        if not unsorted:
            return
        self._parts = [part for part in self._parts if part.is_sorted]
        self._parts.append(_merged(unsorted))
        while len(self._parts) > 1 and len(self._parts[-2].hashes) < 2 * len(
            self._parts[-1].hashes
        ):
            self._parts[-2:] = [_merged(self._parts[-2:])]

    def _has_grown(self) -> bool:
        """Say whether something was appended at the open end, or a record there became whole."""
        if self._at_open_end() != self._seen_there:
            return True
        if self.torn_at is None:
            return False
        try:
            self._log.record_at(self.torn_at, check_crc=False)
        except RecordError:
            return False
        return True

    def _at_open_end(self) -> bytes:
        """Give the bytes that change when something is appended at the open end."""
        segment = self._log.segment_of(self._open_at or 0)
        if segment is None:
            self._log.refresh()
            return str(self._log.max_offset).encode()
        place = (self._open_at or 0) - segment.base_offset
        try:
            return bytes(self._log.map(segment).view[place : place + SIZE_AND_MAGIC.size])
        except SegmentLost as error:
            return str(error).encode()

    def _read(self, walk: LogWalk) -> None:
        start = walk.position
        for record in walk.records() if self._interpreted_bytes > 0 else ():
            self._add_record(record)
            self._interpreted_bytes -= walk.position - start
            start = walk.position
            if self._interpreted_bytes <= 0:
                break
        for chunk in walk.chunks() if walk.position < walk.stop else ():
            self._add_chunk(chunk, walk)
        self.damage += walk.damage

    def _add_record(self, record: Record) -> None:
        for key_hash in index_hashes(record):
            self._few[key_hash].append(record.physical_offset)
        self._topics.setdefault(hash(record.topic), record.topic)
        self.last_timestamp_ms = max(self.last_timestamp_ms, record.store_timestamp_ms)

    def _add_chunk(self, chunk: Chunk, walk: LogWalk) -> None:
        rows = chunk.rows
        self.last_timestamp_ms = max(self.last_timestamp_ms, int(rows["store_timestamp_ms"].max()))
        chunk.learn_topics(self._topics)
        if self._kept > limits.TAIL_ENTRIES:
            self._read_again.append((int(rows[0]["physical_offset"]), walk.position))
        else:
            hashes, offsets = _entries(chunk)
            self._kept += len(hashes)
            self._parts.append(_Part(hashes, offsets))


def _entries(chunk: Chunk) -> tuple["npt.NDArray[np.int32]", "npt.NDArray[np.int64]"]:
    """Give the hashes and offsets of all index entries of a chunk, tags left out."""
    from rocketlens.formats import kernels

    content, base_offset, rows = chunk.content, chunk.base_offset, chunk.rows
    count = kernels.count_index_entries(content, base_offset, rows, with_tags=False)
    entries = kernels.EntryArrays.allocate(count)
    kernels.index_entries(content, base_offset, rows, entries, with_tags=False)
    return entries.hashes, entries.offsets
