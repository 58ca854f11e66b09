"""The index of a store that is being written: index files, and memory for the log that they lack.

====================================  ==========================================================
log                                   is answered for by
====================================  ==========================================================
that sound index files cover          them
between index files                   memory: ``unread`` lists what of it was not read yet
from ``open_at`` to ``read_to``       memory
from ``read_to`` on                   nothing yet: `catch_up` reads it, each look-up first does
====================================  ==========================================================

Once index files cover half of what is in memory they are opened anew, and memory drops what they
cover. With no builder at all nothing is lost, and memory grows by 8 bytes for each key of a
message, its unique key included: 200 MiB for 12 million messages with a key each.

Used by one thread at a time, which may change between two calls. A look-up that is done in pieces
keeps the reader that it began with open by `using`.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rocketlens import limits
from rocketlens.query.store_reader import StoreReader
from rocketlens.store.read.index_files import CorruptIndexFile
from rocketlens.store.read.tail import Tail
from rocketlens.store.write.message_store import MessageStore

STEP_BYTES: Final = 2 * 1024 * 1024
"""Log that one step reads into memory: 2 ms."""
REOPEN_ENTRIES: Final = 1_000_000
"""With so many entries in memory, index files are opened anew once they cover half of them."""
_ALL_BYTES: Final = 1 << 62


class LiveIndex:
    """Finds what was stored a moment ago as well as what index files cover."""

    def __init__(self, store: MessageStore) -> None:
        self.store: Final = store
        self.reader = StoreReader(store.layout.root)
        self.tail: Tail | None = None
        self.unread: list[tuple[int, int]] = []
        self.open_at = self.read_to = 0
        self._reopen_at = 0
        self._users: Final[Counter[StoreReader]] = Counter()
        """By how many look-ups that are under way a reader is used."""

    @property
    def is_at_hand(self) -> bool:
        """Whether so little is to be read first that a look-up can be done on the event loop."""
        tail = self.tail
        return (
            tail is not None
            and not self.unread
            and not tail.is_spilled
            and self.store.end_offset - self.read_to <= tail.inline_read_budget_bytes
        )

    @property
    def is_far_behind(self) -> bool:
        """Whether more than one step is to be read first."""
        return bool(self.unread) or self.store.end_offset - self.read_to > STEP_BYTES

    @property
    def should_load_kernels(self) -> bool:
        """Whether there is so much to read that the compiled kernels pay."""
        return self.tail is not None and self.tail.should_load

    def open(self) -> Tail:
        """Find what index files leave out; what was read of it is taken over."""
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
        """Read a little, drop what index files cover, and return whether there is more to read."""
        self._evict_indexed()
        self.catch_up().compact()
        return bool(self.unread) or self.store.end_offset > self.read_to

    def catch_up(self, *, to_end: bool = False) -> Tail:
        """Read into memory what index files leave out: a step of it, or all.

        The store says where its log ends. A reader that does not know looks behind the end for
        records after a gap, which takes a hundred times as long.
        """
        end = self.store.end_offset
        if end > self.reader.log.max_offset:
            self.reader.log.refresh()
        tail = self.tail or self.open()
        left = _ALL_BYTES if to_end else STEP_BYTES
        while self.unread and left > 0:
            start, stop = self.unread[-1]
            come_to = tail.read(start, min(stop, start + left))
            left -= come_to - start
            if come_to < stop:
                self.unread[-1] = come_to, stop
            else:
                self.unread.pop()
        if left > 0 and end > self.read_to:
            self.read_to = tail.read(self.read_to, min(end, self.read_to + left))
        return tail

    def refresh_log(self) -> None:
        """Look which segments there are now."""
        self.reader.log.refresh()

    def reject(self, corrupt: CorruptIndexFile) -> None:
        """Use a damaged index file no more; its log is read again, so believe it again but late."""
        self.reader.reject_index_file(corrupt)
        self.open()
        begin = min((start for start, _ in self.unread), default=self.open_at)
        self._reopen_at = self.store.indexed_offset + self.read_to - begin

    @contextmanager
    def using(self, reader: StoreReader) -> Iterator[None]:
        """Keep a reader open while a look-up that is done in pieces reads it."""
        self._users[reader] += 1
        try:
            yield
        finally:
            self._users[reader] -= 1
            if not self._users[reader]:
                del self._users[reader]
                if reader is not self.reader:
                    reader.close()

    @property
    def users(self) -> int:
        """How many look-ups that are done in pieces are under way."""
        return self._users.total()

    def close(self) -> None:
        """Unmap everything."""
        self.reader.close()

    def _evict_indexed(self) -> None:
        """Let index files answer for what they cover by now, and memory for the rest."""
        tail, store = self.tail, self.store
        if tail is None:
            return
        if store.min_offset > self.open_at:
            self.open_at = min(store.min_offset, self.read_to)
            tail.drop_below(self.open_at)
        if tail.entry_count > REOPEN_ENTRIES and store.indexed_offset >= self._reopen_at:
            self._reopen()

    def _reopen(self) -> None:
        """Open the index files as they are now, unless they answer for less than before.

        So it is for a moment while a builder writes to them, and when one of them is damaged.
        """
        reader = StoreReader(self.store.layout.root)
        left_out = reader.index.uncovered()
        more_bytes = _gap_bytes(left_out) - _gap_bytes(self.reader.index.uncovered())
        if left_out[-1][0] < self.open_at or more_bytes > limits.MAX_INDEX_GAP_BYTES:
            reader.close()
            self._reopen_at += max(self.read_to - self.open_at, 0) // 2
            return
        old, self.reader = self.reader, reader
        if not self._users[old]:
            old.close()
        self.open()


def _gap_bytes(uncovered: list[tuple[int, int | None]]) -> int:
    """Add up the stretches of log that have an end."""
    return sum(stop - start for start, stop in uncovered if stop is not None)
