"""The index of a store that is being written: index files, and memory for the rest of the log.

====================================  ==========================================================
part of the log                       searched in
====================================  ==========================================================
covered by sound index files          index files
between index files                   memory; ``unread`` lists ranges not read yet
from ``open_at`` to ``read_to``       memory
from ``read_to`` on                   nothing: each look-up calls `catch_up` first
====================================  ==========================================================

When index files cover half of the entries in memory, they are opened again and memory drops those
entries. Without a builder, memory grows by 8 bytes for each key and unique key: 200 MiB for 12
million messages with one key each.

Not thread-safe; any thread can use it in turn. A look-up in pieces keeps its first reader open with
`using`.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rocketlens.query.store_reader import StoreReader
from rocketlens.store.read.index.index_files import CorruptIndexFile
from rocketlens.store.read.index.tail import AT_ONCE_BYTES, Tail
from rocketlens.store.write.message_store import MessageStore

MAX_INDEX_GAP_BYTES: Final = 16 * 1024 * 1024
"""Log between index files that can be read again after a reopening: 20 ms."""
STEP_BYTES: Final = 2 * 1024 * 1024
"""Bytes of log that one step reads into memory: 2 ms."""
REOPEN_ENTRIES: Final = 1_000_000
"""With more entries in memory, index files are opened again when they cover half."""
_ALL_BYTES: Final = 1 << 62


class LiveIndex:
    """Finds messages in index files and in the part of the log that they do not cover."""

    def __init__(self, store: MessageStore) -> None:
        self.store: Final = store
        self.reader = StoreReader(store.layout)
        self.tail: Tail | None = None
        self.unread: list[tuple[int, int]] = []
        self.open_at = self.read_to = 0
        self._reopen_at = 0
        self._users: Final[Counter[StoreReader]] = Counter()
        """Number of running look-ups that use a reader."""

    @property
    def needs_few_reads(self) -> bool:
        """True if a look-up needs few enough reads to run on the event loop."""
        tail = self.tail
        return (
            tail is not None
            and not self.unread
            and not tail.is_spilled
            and self.store.end_offset - self.read_to <= AT_ONCE_BYTES
        )

    @property
    def is_far_behind(self) -> bool:
        """True if a look-up must read more than one step first."""
        return bool(self.unread) or self.store.end_offset - self.read_to > STEP_BYTES

    def open(self) -> Tail:
        """Compute the parts of the log that index files do not cover."""
        reader, tail = self.reader, self.tail
        uncovered = reader.index.uncovered()
        open_at = uncovered[-1][0]
        self.unread = [(start, stop) for start, stop in uncovered if stop is not None]
        if tail is None:
            tail = self.tail = Tail(reader.log, reader.is_indexed)
        else:
            if open_at < self.open_at:
                self.unread.append((open_at, self.open_at))
            open_at = max(open_at, self.open_at)
            tail.rebind(reader.log, reader.is_indexed, open_at)
        self.open_at = open_at
        self.read_to = max(open_at, self.read_to)
        indexed_offset = self.store.indexed_offset
        self._reopen_at = indexed_offset + max(self.read_to - indexed_offset, 0) // 2
        return tail

    def step(self) -> bool:
        """Read one step, and evict covered entries; return True if there is more to read."""
        self._evict_indexed()
        self.catch_up().compact()
        return bool(self.unread) or self.store.end_offset > self.read_to

    def catch_up(self, *, to_end: bool = False) -> Tail:
        """Read one step, or all, of the uncovered log into memory.

        The end comes from the store: without it, a reader searches for records after the end, as
        after a gap, which takes a hundred times as long.
        """
        end = self.store.end_offset
        if end > self.reader.log.max_offset:
            self.reader.log.refresh()
        tail = self.tail or self.open()
        budget = _ALL_BYTES if to_end else STEP_BYTES
        while self.unread and budget > 0:
            start, stop = self.unread[-1]
            read_end = tail.read(start, min(stop, start + budget))
            budget -= read_end - start
            if read_end < stop:
                self.unread[-1] = read_end, stop
            else:
                self.unread.pop()
        if budget > 0 and end > self.read_to:
            self.read_to = tail.read_end(self.read_to, min(end, self.read_to + budget))
        return tail

    def first_offset(self, begin_ms: int | None) -> int:
        """Return an offset before which no record was stored at ``begin_ms`` or later."""
        if begin_ms is None:
            return 0
        in_files = self.reader.index.first_offset(begin_ms)
        in_memory = self.tail.first_offset(begin_ms) if self.tail else None
        offsets = [each for each in (in_files, in_memory) if each is not None]
        return min(offsets, default=self.read_to)

    def reject(self, corrupt: CorruptIndexFile) -> None:
        """Stop using a damaged index file: read its log again, and reopen index files later."""
        self.reader.reject_index_file(corrupt)
        self.open()
        unread_start = min((start for start, _ in self.unread), default=self.open_at)
        self._reopen_at = self.store.indexed_offset + self.read_to - unread_start

    @contextmanager
    def using(self, reader: StoreReader) -> Iterator[None]:
        """Keep a reader open during a look-up in pieces."""
        self._users[reader] += 1
        try:
            yield
        finally:
            self._users[reader] -= 1
            if not self._users[reader]:
                del self._users[reader]
                if reader is not self.reader:
                    reader.close()

    def close(self) -> None:
        self.reader.close()

    def _evict_indexed(self) -> None:
        tail, store = self.tail, self.store
        if tail is None:
            return
        if store.min_offset > self.open_at:
            self.open_at = min(store.min_offset, self.read_to)
            tail.drop_below(self.open_at)
        if tail.entry_count > REOPEN_ENTRIES and store.indexed_offset >= self._reopen_at:
            self._reopen()

    def _reopen(self) -> None:
        """Open the index files again, unless they cover less than before.

        They cover less while a builder writes to them, or if one of them is damaged.
        """
        reader = StoreReader(self.store.layout)
        uncovered = reader.index.uncovered()
        more_bytes = _gap_bytes(uncovered) - _gap_bytes(self.reader.index.uncovered())
        if uncovered[-1][0] < self.open_at or more_bytes > MAX_INDEX_GAP_BYTES:
            reader.close()
            self._reopen_at += max(self.read_to - self.open_at, 0) // 2
            return
        old, self.reader = self.reader, reader
        if not self._users[old]:
            old.close()
        self.open()


def _gap_bytes(uncovered: list[tuple[int, int | None]]) -> int:
    return sum(stop - start for start, stop in uncovered if stop is not None)
