"""Look-ups by key over the store that the broker is writing to.

A message is found as soon as its send is answered: each look-up first reads what was appended
since the last one into memory (:mod:`rocketlens.store.tail`). Every hit is compared with its
record before it is given out.

The memory and the index files are used by one look-up at a time. A look-up that has little to read
is done at once on the event loop; one that has much goes to a thread, and so do those that come
while it runs.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.commitlog_record import Reason, Record
from rocketlens.model.java import index_hash, string_hash
from rocketlens.query.source import StoreSource
from rocketlens.query.verify import Wanted
from rocketlens.store.index_files import Hit, Rejected
from rocketlens.store.message_store import MessageStore
from rocketlens.store.tail import Tail

T = TypeVar("T")

READ_AT_ONCE_BYTES: Final = 4 * 1024 * 1024
"""Log up to this long is read into memory on the event loop: 2 ms."""
REOPEN_ENTRIES: Final = 2_000_000
"""With so many entries in memory, index files are opened anew if they grew, in the thread."""
LARGEST_ANSWER_BYTES: Final = limits.FRAME_BYTES - 64 * 1024
"""Records of one answer together: they must fit a frame."""
THREAD_NAME: Final = "rocketlens-search"
_ENTRIES_READ: Final = 4096


@dataclass(frozen=True, slots=True)
class Found:
    """Physical offset and size of each record, ascending; and what could not be searched."""

    places: tuple[tuple[int, int], ...]
    failures: tuple[str, ...] = ()


class Query(NamedTuple):
    """What is wanted, and the newest how many of it."""

    wanted: Wanted
    max_num: int


class LiveSearch:
    """Searches the store of a running broker."""

    def __init__(self, store: MessageStore, clock: Callable[[], int]) -> None:
        self._store: Final = store
        self._clock: Final = clock
        self._source = StoreSource(store.layout.root)
        self._tail: Tail | None = None
        self._reopen_above = REOPEN_ENTRIES
        self._threads: Final = ThreadPoolExecutor(1, THREAD_NAME)
        self._in_thread = 0
        self._read_to = 0

    async def open(self) -> None:
        """Open the index files and read the log that they lack, so that no query waits for it."""
        await self._aside(self._read_new)

    def by_key(self, query: Query) -> "Found | asyncio.Future[Found]":
        """Give the newest records that have a key or unique key of a topic."""
        if self._can_do_at_once():
            return self._by_key(query)
        return self._aside(lambda: self._by_key(query))

    def by_tag(self, query: Query) -> "asyncio.Future[Found]":
        """Give the newest records that have a tag of a topic.

        O(entries of its queues in the time range): index files of before 5.5 have no tags.
        """
        return self._aside(lambda: self._by_tag(query))

    def is_record_start(self, record: Record) -> "bool | asyncio.Future[bool]":
        """Say whether a record that claims its place really begins there."""
        queue = self._store.queue(record.topic, record.queue_id)
        entry = queue.entry(record.queue_offset) if queue and record.queue_offset >= 0 else None
        if entry is not None and entry[:2] == (record.physical_offset, record.total_size):
            return True
        return self._aside(lambda: self._source.is_record_start(record))

    def segments_changed(self) -> None:
        """Note that segments were deleted."""
        if self._in_thread == 0:
            self._source.log.refresh()
        else:
            self._aside(self._source.log.refresh)

    def close(self) -> None:
        """Wait for the look-up under way, if there is one, and unmap everything."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._source.close()

    def _can_do_at_once(self) -> bool:
        return (
            self._tail is not None
            and self._in_thread == 0
            and self._store.end_offset - self._read_to <= READ_AT_ONCE_BYTES
            and self._tail.entry_count <= self._reopen_above
        )

    def _aside(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Do something in the thread, after what is there to do."""
        self._in_thread += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(self._came_back)
        return future

    def _came_back(self, _: object) -> None:
        self._in_thread -= 1

    def _read_new(self) -> Tail:
        """Read into memory what was appended since the last time, and no farther.

        The store says where its log ends. A reader that does not know looks behind the end for
        records after a gap, which takes a hundred times as long.
        """
        end = self._store.end_offset
        tail = self._tail
        if tail is not None and tail.entry_count > self._reopen_above:
            self._reopen_above = 2 * tail.entry_count
            if self._source.index.has_grown():
                tail = None
                self._source.close()
                self._source = StoreSource(self._store.layout.root)
                self._reopen_above = REOPEN_ENTRIES
        if end > self._source.log.max_offset:
            self._source.log.refresh()
        if tail is None:
            tail = Tail(self._source.log, self._source.knows)
            uncovered = self._source.index.uncovered()
            tail.cover((start, end if stop is None else stop) for start, stop in uncovered)
        else:
            tail.cover([(self._read_to, end)])
        # Only who shows coverage needs them.
        tail.ranges.clear()
        tail.read_new()
        self._tail, self._read_to = tail, end
        return tail

    def _by_key(self, query: Query) -> Found:
        wanted = query.wanted
        text = wanted.key if wanted.key is not None else wanted.unique_key
        hashes = {index_hash(f"{wanted.topic}#{text}")}
        while True:
            tail = self._read_new()
            source = self._source
            try:
                candidates: dict[int, Hit | None] = dict.fromkeys(tail.find(hashes))
                candidates.update((hit.physical_offset, hit) for hit in source.index.find(hashes))
                found = self._verified(query, candidates)
                if not found.places:
                    source.index.count_slots()
            except Rejected as rejected:
                source.reject_index_file(rejected)
                self._tail = None
                continue
            damage = tuple(map(str, tail.damage[: limits.DAMAGE_REPORTS]))
            return Found(found.places, damage + found.failures)

    def _verified(self, query: Query, candidates: dict[int, Hit | None]) -> Found:
        """Give the newest of the candidates that are answers, with the sizes they have."""
        places: list[tuple[int, int]] = []
        failures: list[str] = []
        left = LARGEST_ANSWER_BYTES
        for offset in sorted(candidates, reverse=True):
            if len(places) == query.max_num or left <= 0:
                break
            if offset < self._store.min_offset:
                continue
            record = self._read(query.wanted, offset, candidates[offset], failures)
            if record is not None:
                left -= record.total_size
                if left >= 0 or not places:
                    places.append((offset, record.total_size))
        return Found(tuple(reversed(places)), tuple(failures))

    def _read(
        self, wanted: Wanted, offset: int, hit: Hit | None, failures: list[str]
    ) -> Record | None:
        """Give the record at an offset if it is wanted; account for one that is damaged."""
        log = self._source.log
        try:
            record = log.record_at(offset)
        except RecordError as error:
            if offset < self._store.min_offset:
                return None
            if error.reason != Reason.CRC:
                self._check(hit)
                failures.append(str(error))
            elif wanted.matches(log.record_at(offset, check_crc=False)):
                failures.append(str(error))
            return None
        if wanted.matches(record):
            return record
        self._check(hit)
        return None

    def _check(self, hit: Hit | None) -> None:
        """Make sure that an entry which led to nothing wanted is that of another key."""
        if hit is None:
            return
        try:
            hit.file.check_entry(self._source.log, hit.number)
        except IndexFileError as error:
            raise Rejected(hit.file, error) from error

    def _by_tag(self, query: Query) -> Found:
        wanted = query.wanted
        code = string_hash(next(iter(wanted.tags or {""})))
        candidates: dict[int, Hit | None] = {}
        for topic, queue_id in list(self._store.appender.queues):
            if topic == wanted.topic:
                offsets = self._tagged(topic, queue_id, code, wanted)
                for physical_offset, _ in zip(offsets, range(query.max_num), strict=False):
                    candidates[physical_offset] = None
        return self._verified(query, candidates)

    def _tagged(self, topic: str, queue_id: int, code: int, wanted: Wanted) -> Iterator[int]:
        """Give where the messages of a queue are that may have a tag, newest first."""
        store = self._store
        queue = store.queue(topic, queue_id)
        if queue is None:
            return
        first = store.offset_by_time(topic, queue_id, wanted.begin)
        stop = store.max_queue_offset(topic, queue_id)
        if wanted.end < self._clock():
            stop = min(stop, store.offset_by_time(topic, queue_id, wanted.end, upper=True) + 1)
        while stop > first:
            start = max(first, stop - _ENTRIES_READ)
            place = start
            entries: list[tuple[int, int]] = []
            while place < stop:
                read = queue.read(place, stop - place)
                if not read:
                    break
                entries += [(entry.tags_code, entry.physical_offset) for entry in read]
                place += len(read)
            for tags_code, physical_offset in reversed(entries):
                if tags_code == code:
                    yield physical_offset
            stop = start
