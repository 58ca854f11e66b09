"""The index in memory for the parts of the log that no index file covers.

In a running broker that is the log's tail. It can be the whole log if the index was lost or is
damaged. The index has a hash and a physical offset for each entry. Each look-up first reads the log
that was added since the last one.

At most `MAX_TAIL_ENTRIES` are kept; each look-up reads the log beyond them again. The first entries
are in a dictionary, because loading numpy takes longer than a look-up among some thousands.

A look-up that reads the records of a key from the newest to the oldest uses `TimeBounds` to stop
early. Store times do not always rise, because clocks are set back, so the maximum store time of all
records up to an offset decides.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from rocketlens import limits
from rocketlens.formats.commitlog_record import HEADS, SIZE_AND_MAGIC
from rocketlens.formats.rows import Rows
from rocketlens.late import np
from rocketlens.store.read.index.entry_runs import EntryRun, EntryRuns, merge_descending
from rocketlens.store.read.log.commitlog import CommitLog, SegmentLost
from rocketlens.store.read.log.resync import Confirm, last_written
from rocketlens.store.read.log.scan import Damage, LogWalk

MAX_TAIL_ENTRIES: Final = 64_000_000
"""Index entries that are kept in memory: 512 MiB, 8 bytes each.

A message has one for its unique key and one for each of its keys. So 12 million messages with one
key, ten minutes at 20,000 a second, take 190 MiB. RocketMQ finds nothing without index files.
"""
AT_ONCE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of log that are read in about 2 ms."""
_MAX_DICTIONARY_ENTRIES: Final = 4096
"""Hashes in the dictionary until they are packed: 200 bytes each there, and 8 when packed."""
_MAX_SMALL_ENTRIES: Final = 64
"""Entries at once that still go into the dictionary after others were packed."""
_FIRST_ROWS: Final = 512
"""Rows of the first step: a step costs more than the entries of a hundred rows."""
_TORN_BYTES: Final = 4096
"""Bytes at the start of a torn record, and after it, that are compared to detect later writes."""

Pieces = list[tuple[tuple[int, int], bytes]]
"""Pieces of the log: physical offset, byte count, and content."""
_BLOCK_BYTES = 1024 * 1024
"""Records that begin within this many bytes of log share one maximum."""


class Tail:
    """Answers key look-ups for some ranges of the log. For one thread at a time.

    ``topics`` and ``last_timestamp_ms`` are the topics and the newest store time of the records
    read so far, ``damage`` and ``torn_at`` the unreadable ranges. ``unfinished_at`` is the physical
    offset of a record that a broker may still be writing, and that is not found yet.
    """

    def __init__(self, log: CommitLog, confirm: Confirm) -> None:
        self._log = log
        self._confirm = confirm
        self._closed: list[tuple[int, int]] = []
        self._open_at: int | None = None
        self._is_at_end = False
        self._torn_pieces: Pieces | None = None
        self._last_read = -1
        self._last: tuple[int, bytes] | None = None
        self._few: defaultdict[int, list[int]] = defaultdict(list)
        self._few_count = 0
        self._is_packed = False
        self._runs = EntryRuns()
        self._time_bounds = TimeBounds()
        self._read_again: list[tuple[int, int]] = []
        self.topics: set[str] = set()
        self._damage: list[Damage] = []
        self._unread: list[Damage] = []
        self._unread_end: Damage | None = None
        self.ranges: list[tuple[int, int | None]] = []
        self.torn_at: int | None = None
        self.unfinished_at: int | None = None
        self.last_timestamp_ms = 0
        self.version = 0
        """Incremented when the content or the damage may have changed."""

    @property
    def entry_count(self) -> int:
        return self._runs.count + len(self._few)

    @property
    def is_spilled(self) -> bool:
        return bool(self._read_again)

    @property
    def damage(self) -> list[Damage]:
        """Ranges without readable records, and files that could not be opened at the last try."""
        if not self._unread and self._unread_end is None:
            return self._damage
        end = [] if self._unread_end is None else [self._unread_end]
        return [*self._damage, *self._unread, *end]

    @property
    def end_offset(self) -> int | None:
        """The end of the log at the last :meth:`read_new`; None before the first."""
        return self._open_at if self._is_at_end else None

    def cover(self, ranges: Iterable[tuple[int, int | None]]) -> None:
        """Add ranges. The one at the log's growing end has the end None."""
        self.version += 1
        for start, stop in ranges:
            self.ranges.append((start, stop))
            if stop is None:
                self._open_at = start
            else:
                self._closed.append((start, stop))

    def read_new(self) -> None:
        """Read the log that `cover` added, or a broker appended, since the last call.

        Files that could not be opened before are tried again.
        """
        self._retry_unread()
        while self._closed:
            self._read(LogWalk(self._log, *self._closed.pop(), confirm=self._confirm))
        while self._open_at is not None and self._has_grown(self._open_at):
            self._log.refresh()
            start, pieces = self._open_at, None
            if self.torn_at is not None:
                pieces = self._pieces_after(start)
            walk = LogWalk(self._log, start, confirm=self._confirm, grows=True)
            self._read(walk)
            self._open_at, self.torn_at = walk.position, walk.torn_at
            self.unfinished_at = walk.unfinished_at
            self._unread_end = None
            if self._unread and self._unread[-1].stop == walk.position == walk.stop:
                # The end of the log is unknown: the next read begins here.
                self._unread_end = self._unread.pop()
                self._open_at = self._unread_end.start
                self._is_at_end = False
                return
            # The pieces were read before the walk, so later writes of a broker show.
            self._torn_pieces = pieces if walk.torn_at == start else None
            self._is_at_end = True
            if self._last_read >= start:
                self._last = self._last_read, self._log.bytes_at(self._last_read, HEADS[0].size)
            if walk.unfinished_at is not None:
                return

    def read(self, start: int, stop: int) -> int:
        """Read the records that begin in the written range ``[start, stop)``; return their end.

        If the range cannot be read to its end, the rest is damage.
        """
        walk = LogWalk(self._log, start, stop, confirm=self._confirm)
        self._read(walk)
        if walk.position >= stop:
            return walk.position
        if not self._is_unlisted(walk.position, stop):
            self._damage.append(Damage(walk.position, stop, "no record could be found here"))
        return stop

    def read_end(self, start: int, stop: int) -> int:
        """Do :meth:`read` for a range at the end of a growing log; return where to continue.

        A range that cannot be opened is damage until the next call, which must begin with it: its
        segment gets records after ``stop``, so a later retry could not begin at a record.
        """
        self._unread_end = None
        walk = LogWalk(self._log, start, stop, confirm=self._confirm)
        self._read(walk)
        if self._unread and self._unread[-1].stop > stop:
            self._unread_end = self._unread.pop()
        elif walk.position < stop and self._log.unlisted is not None:
            why = self._log.unlisted
            self._unread_end = Damage(walk.position, stop, why, is_unread=True)
        elif walk.position < stop:
            self._damage.append(Damage(walk.position, stop, "no record could be found here"))
            return stop
        return walk.position if self._unread_end is None else self._unread_end.start

    def _is_unlisted(self, start: int, stop: int) -> bool:
        """Record a range outside the known segments while the segments cannot be listed."""
        why = self._log.unlisted
        if why is None or start < self._log.max_offset:
            return False
        self._unread.append(Damage(start, stop, why, is_unread=True))
        return True

    def _retry_unread(self) -> None:
        for damage in self._unread[:]:
            self._unread.remove(damage)
            if damage.stop > self._log.max_offset:
                self._log.refresh()
            walk = LogWalk(self._log, damage.start, damage.stop, confirm=self._confirm)
            self._read(walk)
            if walk.position < damage.stop:
                self._is_unlisted(walk.position, damage.stop)

    def rebind(self, log: CommitLog, confirm: Confirm, start: int) -> None:
        """Switch to another view of the same log, and drop the entries before ``start``."""
        self._log, self._confirm = log, confirm
        self.drop_below(start)

    def is_stale(self) -> bool:
        """Return True if the last record read has changed: the log was cut or replaced."""
        if self._last is None or self._last[0] < self._log.min_offset:
            return False
        physical_offset, head = self._last
        now = self._log.bytes_at(physical_offset, len(head))
        return bool(now) and now != head

    def drop_below(self, physical_offset: int) -> None:
        self.version += 1
        self._runs.drop_below(physical_offset)
        self._time_bounds.drop_below(physical_offset)
        few = ((key, [o for o in kept if o >= physical_offset]) for key, kept in self._few.items())
        self._few = defaultdict(list, {key: kept for key, kept in few if kept})
        self._few_count = sum(map(len, self._few.values()))
        self._read_again = [one for one in self._read_again if one[1] > physical_offset]
        self._damage = [damage for damage in self._damage if damage.stop > physical_offset]
        self._unread = [damage for damage in self._unread if damage.stop > physical_offset]

    def compact(self) -> None:
        """Sort and merge the entries, so that look-ups need not do it."""
        self.pack()
        self._runs.compact()

    def pack(self) -> None:
        """Move all entries into runs, unsorted."""
        self._is_packed = True
        if not self._few:
            return
        pairs = [(offset, key) for key, offsets in self._few.items() for offset in offsets]
        offsets, hashes = np.array(sorted(pairs), dtype=np.int64).T
        self._runs.add(hashes.astype(np.int32), offsets)
        self._few.clear()
        self._few_count = 0

    @property
    def packed_runs(self) -> Sequence[EntryRun] | None:
        """The runs, which never change, if they have all entries; None otherwise."""
        return None if self._few or self._read_again or self._unread else self._runs.runs

    def find(self, hashes: Collection[int]) -> Iterator[int]:
        """Return the physical offsets of the entries with one of these hashes, newest first.

        They are candidates: other keys can have the same hash, and a record can come more than
        once. Iterate before anything else is read into the index.
        """
        if self._unread:
            self._retry_unread()
        few: set[int] = set()
        if self._few:
            few = {o for key_hash in self._few.keys() & hashes for o in self._few[key_hash]}
        if not self._runs.count and not self._read_again:
            return iter(sorted(few, reverse=True))
        parts = [self._runs.find(hashes, few)]
        if self._read_again:
            parts.append(self._find_again(hashes))
        return merge_descending(parts)

    def first_offset(self, begin_ms: int) -> int | None:
        """Return an offset before which no record is of ``begin_ms`` or later; None if none is."""
        return self._time_bounds.first_offset(begin_ms)

    def _find_again(self, hashes: Collection[int]) -> Iterator[int]:
        """Do :meth:`find` for log whose entries are not in memory, reading the newest part first.

        The first record of each part is a candidate, too, so that the caller gets control.
        """
        wanted = np.array(sorted(hashes), dtype=np.int32)
        for start, stop in sorted(self._read_again, reverse=True):
            starts = {start}
            walk = LogWalk(self._log, start, stop, confirm=self._confirm)
            for rows in walk.rows():
                entries = rows.index_entries(with_tags=False)
                is_wanted = np.isin(entries.hashes, wanted)
                starts.update(np.asarray(entries.offsets)[is_wanted].tolist())
            self._unread += [damage for damage in walk.damage if damage.is_unread]
            yield from sorted(starts, reverse=True)

    def _has_grown(self, open_at: int) -> bool:
        """Return whether the log may have grown, or can be read farther than before.

        Bytes that were not a record are compared with their content before the walk, so no later
        write is missed.
        """
        if not self._is_at_end or self.unfinished_at is not None:
            return True
        if self.torn_at is not None:
            pieces = self._torn_pieces
            return pieces is None or any(self._log.bytes_at(*one) != was for one, was in pieces)
        head = self._log.bytes_at(open_at, SIZE_AND_MAGIC.size)
        if not head and self._log.segment_of(open_at) is None:
            self._log.refresh()
            return open_at < self._log.max_offset
        return not head or any(head)

    def _pieces_after(self, torn_at: int) -> Pieces:
        """Return the bytes that change if a torn record is completed, or another follows it.

        These are its first bytes, those around the last written byte, and the first bytes of each
        later segment.
        """
        try:
            last = last_written(self._log, torn_at, torn_at + limits.MAX_UNWRITTEN_SEARCH_BYTES)
        except (OSError, SegmentLost):
            last = None
        end = torn_at if last is None else last + 1
        spans = [(torn_at, _TORN_BYTES), (end, _TORN_BYTES), (max(end - 8, torn_at), 8)]
        spans += [
            (segment.base_offset, SIZE_AND_MAGIC.size)
            for segment in self._log.segments
            if segment.base_offset > torn_at
        ]
        return [(span, self._log.bytes_at(*span)) for span in spans]

    def _read(self, walk: LogWalk) -> None:
        self.version += 1
        for rows in walk.rows(_FIRST_ROWS):
            self._add(rows, walk)
        self._damage += [damage for damage in walk.damage if not damage.is_unread]
        self._unread += [damage for damage in walk.damage if damage.is_unread]

    def _add(self, rows: Rows, walk: LogWalk) -> None:
        offsets, newest_ms = rows.column("physical_offset"), rows.newest_ms
        self._time_bounds.add(offsets[0], newest_ms)
        self.last_timestamp_ms = max(self.last_timestamp_ms, newest_ms)
        self.topics.update(rows.topics().names)
        self._last_read = offsets[-1]
        if self._runs.count + self._few_count > MAX_TAIL_ENTRIES:
            self._read_again.append((offsets[0], walk.position))
            return
        entries = rows.index_entries(with_tags=False)
        count = len(entries.hashes)
        is_small = count <= _MAX_SMALL_ENTRIES or not self._is_packed
        if is_small and self._few_count + count <= _MAX_DICTIONARY_ENTRIES:
            self._few_count += count
            for key_hash, offset in zip(entries.hashes, entries.offsets, strict=True):
                self._few[key_hash].append(offset)
            return
        self.pack()
        self._runs.add(np.asarray(entries.hashes), np.asarray(entries.offsets))


class TimeBounds:
    """The maximum store time up to each block of records. A look-up costs O(log blocks)."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._max_ms: list[int] = []
        """For each block the maximum of it and all blocks before."""

    def add(self, physical_offset: int, max_ms: int) -> None:
        """Add records from an offset on. In log order this costs O(1), otherwise O(blocks)."""
        if not self._starts or physical_offset >= self._starts[-1] + _BLOCK_BYTES:
            self._starts.append(physical_offset)
            self._max_ms.append(max(max_ms, self._max_ms[-1]) if self._max_ms else max_ms)
            return
        if physical_offset < self._starts[-1]:
            index = bisect_right(self._starts, physical_offset)
            self._starts.insert(index, physical_offset)
            self._max_ms.insert(index, max_ms)
            self._max_ms = list(accumulate(self._max_ms, max))
        self._max_ms[-1] = max(max_ms, self._max_ms[-1])

    def first_offset(self, begin_ms: int) -> int | None:
        """Return an offset before which no record is of ``begin_ms`` or later; None if none is."""
        index = bisect_left(self._max_ms, begin_ms)
        return self._starts[index] if index < len(self._starts) else None

    def drop_below(self, physical_offset: int) -> None:
        count = max(bisect_right(self._starts, physical_offset) - 1, 0)
        del self._starts[:count], self._max_ms[:count]
