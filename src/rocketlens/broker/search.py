"""Look-ups by key over the store that the broker is writing to.

A message is found as soon as its send is answered: each look-up first reads what was appended
since the last one into memory (:mod:`rocketlens.store.read.tail`). Every hit is compared with its
record before it is given out.

So that no look-up finds much to read, the log is read several times a second even if nobody asks,
in steps of some milliseconds. What index files have come to cover is then dropped from memory.
With no builder at all nothing is lost, and memory grows by 8 bytes for each key of a message, its
unique key included: 200 MiB for 12 million messages with a key each.

The memory and the index files are used by one look-up or step at a time. A look-up that has little
to read is done at once on the event loop; one that has much, or turns out to, goes to a thread, and
so do those that come while that works. There each connection has its turn for a millisecond
(:mod:`rocketlens.broker.turns`). Look-ups by tag, which read the entries of whole queues, have
another thread and a reader of the log of their own: look-ups by key and by id never wait for them.
Candidates are verified newest first, until as many answers are found as are wanted.

A look-up that takes too long ends with what it has found, and says what it did not compare. Those
of a connection that is gone are dropped.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from rocketlens import limits
from rocketlens.broker.tagged import deleted_part, tagged_newest_first
from rocketlens.broker.turns import Bounds, Busy, Owner, Piece, Turns, Work, result_of
from rocketlens.errors import IndexFileError, RecordError, RocketLensError
from rocketlens.formats.commitlog_record import Reason, Record
from rocketlens.formats.index_keys import key_hash
from rocketlens.query.source import StoreSource
from rocketlens.query.verify import SureMatch, Wanted
from rocketlens.store.read.commitlog import CommitLog, SegmentLost
from rocketlens.store.read.index import TakesLong
from rocketlens.store.read.index_files import CorruptIndexFile, Hit, newest_first
from rocketlens.store.read.tail import Tail, load_kernels
from rocketlens.store.write.message_store import MessageStore

T = TypeVar("T")

_log: Final = logging.getLogger("rocketlens.broker")

STEP_BYTES: Final = 2 * 1024 * 1024
"""Log that one step reads into memory: 2 ms."""
READ_INTERVAL_S: Final = 0.25
"""Seconds from one round of steps to the next."""
REOPEN_ENTRIES: Final = 1_000_000
"""With so many entries in memory, index files are opened anew once they cover half of them."""
THREAD_NAME: Final = "rocketlens-search"
TAG_THREAD_NAME: Final = "rocketlens-search-tags"
KEY_BOUNDS: Final = Bounds(
    limits.MAX_LOOK_UPS_OF_CONNECTION,
    limits.MAX_LOOK_UPS,
    limits.MAX_LOOK_UP_S,
    limits.MAX_LOOK_UP_WAIT_S,
)
TAG_BOUNDS: Final = KEY_BOUNDS._replace(
    of_one=limits.MAX_TAG_LOOK_UPS_OF_CONNECTION, of_all=limits.MAX_TAG_LOOK_UPS
)
_ALL_BYTES: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Found:
    """The records as they are stored, in the log's order; and what could not be searched."""

    body: bytes = b""
    count: int = 0
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
        self._unread: list[tuple[int, int]] = []
        """Stretches of log that index files leave out, apart from the one at its end."""
        self._open_at = self._read_to = 0
        """Where the stretch at the end begins, and how far of it is read."""
        self._reopen_at = 0
        self._tag_log: CommitLog | None = None
        """The reader of look-ups by tag, in their thread."""
        self._users: Final[Counter[StoreSource]] = Counter()
        """By how many look-ups that are under way a source is read."""
        self._turns: Final = Turns(THREAD_NAME, KEY_BOUNDS)
        self._tag_turns: Final = Turns(TAG_THREAD_NAME, TAG_BOUNDS)
        self._reader: asyncio.Task[None] | None = None
        self._loads_at: float | None = None

    @property
    def waiting(self) -> int:
        """How many look-ups wait, or are worked on in the threads."""
        return self._turns.waiting + self._tag_turns.waiting

    async def open(self, *, load_after_s: float | None = None) -> None:
        """Open the index files, and begin to read the log that they lack.

        The kernels are loaded ``load_after_s`` seconds from now, or else when there is much to
        read, by which time look-ups may have to wait for that.
        """
        await self._aside(self._open_files)
        if load_after_s is not None:
            self._loads_at = asyncio.get_running_loop().time() + load_after_s
        self._reader = asyncio.create_task(self._keep_reading())

    def by_key(self, query: Query, owner: Owner | None = None) -> "Found | asyncio.Future[Found]":
        """Give the newest records that have a key or unique key of a topic.

        ``owner`` is the connection that asks.

        :raises Busy: when too many look-ups wait, as the future does when this one waited too long.
        """
        rejected = None
        if self._turns.try_begin(owner):
            try:
                if self._can_do_at_once():
                    return result_of(self._by_key_once(query, at_once=True))
            except CorruptIndexFile as error:
                rejected = error
            except TakesLong:
                pass
            finally:
                self._turns.end()
        return self._turns.put(owner, self._by_key(query, rejected))

    def by_tag(self, query: Query, owner: Owner | None = None) -> "asyncio.Future[Found]":
        """Give the newest records that have a tag of a topic.

        O(entries of its queues): index files of before 5.5 have no tags.

        :raises Busy: as :meth:`by_key`.
        """
        return self._tag_turns.put(owner, self._by_tag(query))

    def is_record_start(
        self, record: Record, owner: Owner | None = None
    ) -> "bool | asyncio.Future[bool]":
        """Say whether a record that claims its place really begins there.

        :raises Busy: as :meth:`by_key`.
        """
        queue = self._store.queues.get(record.topic, record.queue_id)
        entry = queue.entry(record.queue_offset) if queue and record.queue_offset >= 0 else None
        if entry is not None and entry[:2] == (record.physical_offset, record.total_size):
            return True
        return self._turns.put(owner, self._is_record_start(record))

    def closed(self, owner: Owner) -> None:
        """Drop what a connection that is gone has asked for."""
        self._turns.drop(owner)
        self._tag_turns.drop(owner)

    def aside(self, work: Callable[[CommitLog], T]) -> "asyncio.Future[T]":
        """Do something with the log in the thread of look-ups, between two of them.

        The future raises what ``work`` raises.
        """
        return self._aside(lambda: work(self._source.log))

    def segments_changed(self) -> None:
        """Note that segments were deleted."""
        self._aside(self._refresh)
        if self._tag_log is not None:
            self._tag_turns.put(None, _once(self._tag_log.refresh))

    def close(self) -> None:
        """Wait for the piece of a look-up under way, if there is one, and unmap everything."""
        if self._reader is not None:
            self._reader.cancel()
        self._turns.close()
        self._tag_turns.close()
        self._source.close()
        if self._tag_log is not None:
            self._tag_log.close()

    def _can_do_at_once(self) -> bool:
        tail = self._tail
        return (
            tail is not None
            and not self._unread
            and not tail.is_spilled
            and self._store.end_offset - self._read_to <= tail.inline_read_budget_bytes
        )

    def _aside(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Do something in the thread, when it is its turn."""
        return self._turns.put(None, _once(work))

    def _refresh(self) -> None:
        self._source.log.refresh()

    async def _keep_reading(self) -> None:
        """Read what is appended, in steps between which look-ups have their turn."""
        while True:
            try:
                if self._is_time_to_load():
                    await asyncio.to_thread(load_kernels)
                while await self._aside(self._step):
                    pass
            except (OSError, RocketLensError) as error:
                _log.warning("the log could not be read for look-ups: %s", error)
            await asyncio.sleep(READ_INTERVAL_S)

    def _is_time_to_load(self) -> bool:
        if self._loads_at is not None and asyncio.get_running_loop().time() >= self._loads_at:
            self._loads_at = None
            return True
        return self._tail is not None and self._tail.should_load

    def _step(self) -> bool:
        """Read a little, and drop what index files cover; says whether there is more to read."""
        self._drop_indexed()
        self._read_some(STEP_BYTES)
        tail = self._tail
        if tail is not None:
            tail.compact()
        return bool(self._unread) or self._store.end_offset > self._read_to

    def _drop_indexed(self) -> None:
        """Let index files answer for what they cover by now, and memory for the rest."""
        tail, store = self._tail, self._store
        if tail is None:
            return
        if store.min_offset > self._open_at:
            self._open_at = min(store.min_offset, self._read_to)
            tail.drop_below(self._open_at)
        if tail.entry_count > REOPEN_ENTRIES and store.indexed_offset >= self._reopen_at:
            self._reopen()

    def _reopen(self) -> None:
        """Open the index files as they are now, unless they answer for less than before.

        So it is for a moment while a builder writes to them, and when one of them is damaged.
        """
        source = StoreSource(self._store.layout.root)
        left_out = source.index.uncovered()
        more_bytes = _gap_bytes(left_out) - _gap_bytes(self._source.index.uncovered())
        if left_out[-1][0] < self._open_at or more_bytes > limits.MAX_INDEX_GAP_BYTES:
            source.close()
            self._reopen_at += max(self._read_to - self._open_at, 0) // 2
            return
        old, self._source = self._source, source
        if not self._users[old]:
            old.close()
        self._open_files()

    @contextmanager
    def _using(self, source: StoreSource) -> Iterator[None]:
        """Keep a source open while a look-up that is done in pieces reads it."""
        self._users[source] += 1
        try:
            yield
        finally:
            self._users[source] -= 1
            if not self._users[source]:
                del self._users[source]
                if source is not self._source:
                    source.close()

    def _open_files(self) -> Tail:
        """Find what index files leave out; what was read of it is taken over."""
        source, tail = self._source, self._tail
        uncovered = source.index.uncovered()
        open_at = uncovered[-1][0]
        self._unread = [(start, stop) for start, stop in uncovered if stop is not None]
        if tail is None:
            tail = self._tail = Tail(source.log, source.knows)
        else:
            if open_at < self._open_at:
                self._unread.append((open_at, self._open_at))
            open_at = max(open_at, self._open_at)
            tail.rebind(source.log, source.knows, open_at)
        self._open_at = open_at
        self._read_to = max(open_at, self._read_to)
        indexed_offset = self._store.indexed_offset
        self._reopen_at = indexed_offset + max(self._read_to - indexed_offset, 0) // 2
        return tail

    def _read_some(self, at_most_bytes: int) -> Tail:
        """Read into memory what index files leave out, up to a number of bytes of it.

        The store says where its log ends. A reader that does not know looks behind the end for
        records after a gap, which takes a hundred times as long.
        """
        end = self._store.end_offset
        if end > self._source.log.max_offset:
            self._source.log.refresh()
        tail = self._tail or self._open_files()
        left = at_most_bytes
        while self._unread and left > 0:
            start, stop = self._unread[-1]
            come_to = tail.read(start, min(stop, start + left))
            left -= come_to - start
            if come_to < stop:
                self._unread[-1] = come_to, stop
            else:
                self._unread.pop()
        if left > 0 and end > self._read_to:
            self._read_to = tail.read(self._read_to, min(end, self._read_to + left))
        return tail

    def _by_key(self, query: Query, rejected: CorruptIndexFile | None = None) -> Work[Found]:
        while True:
            if rejected is not None:
                self._reject(rejected)
            while self._unread or self._store.end_offset - self._read_to > STEP_BYTES:
                self._read_some(STEP_BYTES)
                if (yield):
                    return Found(failures=(_late("the log was not read to its end"),))
            try:
                with self._using(self._source):
                    return (yield from self._by_key_once(query))
            except CorruptIndexFile as another:
                rejected = another

    def _is_record_start(self, record: Record) -> Work[bool]:
        """Walk to the record; one that was not come to in time is not said to be one."""
        source = self._source
        with self._using(source):
            for _ in source.approach_start(record):
                if (yield):
                    raise Busy(
                        _late(f"whether a record begins at {record.physical_offset} is open")
                    )
            return source.is_record_start(record)

    def _reject(self, rejected: CorruptIndexFile) -> None:
        """Use a damaged index file no more; its log is read again, so believe it again but late."""
        self._source.reject_index_file(rejected)
        self._open_files()
        begin = min((start for start, _ in self._unread), default=self._open_at)
        self._reopen_at = self._store.indexed_offset + self._read_to - begin

    def _by_key_once(self, query: Query, *, at_once: bool = False) -> Work[Found]:
        """Read all that is new, and search, newest first, until enough is found.

        :raises CorruptIndexFile: when an index file turns out to be damaged.
        :raises TakesLong: with ``at_once``, before anything that may take over some milliseconds.
        """
        wanted = query.wanted
        text = wanted.key if wanted.key is not None else wanted.unique_key
        hashes = {key_hash(wanted.topic or "", text or "")}
        tail, source = self._read_some(_ALL_BYTES), self._source
        hits = source.index.find(hashes, at_once=at_once, pauses=not at_once)
        candidates = newest_first(hits, tail.find(hashes))
        found = yield from self._verified(source.log, query, candidates, at_once=at_once)
        if not found.count and at_once:
            source.index.count_slots(at_once=True)
        elif not found.count and not found.failures:
            for _ in source.index.counting_slots():
                if (yield):
                    return Found(failures=(_late("the index was not checked to its end"),))
        if not tail.damage:
            return found
        damage = tuple(map(str, tail.damage[: limits.MAX_DAMAGE_REPORTS]))
        return replace(found, failures=damage + found.failures)

    def _verified(
        self,
        log: CommitLog,
        query: Query,
        candidates: Iterable[tuple[int, Hit | None]],
        *,
        at_once: bool = False,
    ) -> Work[Found]:
        """Return the newest of the candidates that are answers; they must come newest first."""
        records: list[memoryview] = []
        failures: list[str] = []
        left = limits.MAX_ANSWER_FRAME_BYTES
        sure = SureMatch(query.wanted)
        view, begin, end = memoryview(b""), 0, 0
        min_offset = self._store.min_offset
        compared_from = -1
        piece = None if at_once else Piece()
        for number, (offset, hit) in enumerate(candidates):
            if offset >= 0 and (len(records) == query.max_num or left <= 0 or offset < min_offset):
                break
            if piece is None:
                if number == limits.MAX_LOOP_CANDIDATES or (
                    limits.MAX_ANSWER_FRAME_BYTES - left > limits.MAX_LOOP_LOOK_UP_BYTES
                ):
                    raise TakesLong
            elif piece.is_over:
                if (yield):
                    before = "" if compared_from < 0 else f" before {compared_from}"
                    failures.append(_late(f"the log{before} was not searched"))
                    break
                piece.begin()
            if offset < 0:
                continue
            compared_from = offset
            if not begin <= offset < end:
                view, begin = _segment_at(log, offset)
                end = begin + len(view)
            size = sure.size_at(view, offset - begin, offset)
            if not size:
                record = self._read(log, query.wanted, offset, hit, failures, at_once=at_once)
                size = record.total_size if record else 0
            if size:
                left -= size
                if left >= 0 or not records:
                    records.append(view[offset - begin : offset - begin + size])
        return Found(b"".join(reversed(records)), len(records), tuple(failures))

    def _read(
        self,
        log: CommitLog,
        wanted: Wanted,
        offset: int,
        hit: Hit | None,
        failures: list[str],
        *,
        at_once: bool,
    ) -> Record | None:
        """Give the record at an offset if it is wanted; account for one that is damaged."""
        try:
            record = log.record_at(offset)
        except RecordError as error:
            if offset < self._store.min_offset:
                return None
            if error.reason != Reason.CRC:
                _check(log, hit, at_once=at_once)
                failures.append(str(error))
            elif wanted.matches(log.record_at(offset, check_crc=False)):
                failures.append(str(error))
            return None
        if wanted.matches(record):
            return record
        _check(log, hit, at_once=at_once)
        return None

    def _by_tag(self, query: Query) -> Work[Found]:
        log = self._tag_log
        if log is None:
            log = self._tag_log = CommitLog(self._store.layout.commit_log)
        if self._store.end_offset > log.max_offset:
            log.refresh()
        failures: list[str] = []
        candidates = tagged_newest_first(self._store, log, query.wanted, failures)
        found = yield from self._verified(log, query, candidates)
        if found.count < query.max_num:
            failures += deleted_part(self._store, query.wanted.topic or "")
        return replace(found, failures=found.failures + tuple(failures))


def _once(work: Callable[[], T]) -> Work[T]:
    """Make a look-up of one piece of something else."""
    return work()
    yield  # never come to: it makes this a generator


def _late(what: str) -> str:
    return f"the look-up took too long and was ended: {what}"


def _segment_at(log: CommitLog, offset: int) -> tuple[memoryview, int]:
    """Give the bytes of the segment that holds an offset, and where it begins.

    Nothing where it cannot be had: then the record cannot be read, either.
    """
    segment = log.segment_of(offset)
    if segment is None:
        return memoryview(b""), offset
    try:
        return log.map(segment).view, segment.base_offset
    except SegmentLost:
        return memoryview(b""), offset


def _check(log: CommitLog, hit: Hit | None, *, at_once: bool) -> None:
    """Make sure that an entry which led to nothing wanted is that of another key."""
    if hit is None:
        return
    if at_once:
        raise TakesLong
    try:
        hit.file.check_entry(log, hit.number)
    except IndexFileError as error:
        raise CorruptIndexFile(hit.file, error) from error


def _gap_bytes(uncovered: list[tuple[int, int | None]]) -> int:
    """Add up the stretches of log that have an end."""
    return sum(stop - start for start, stop in uncovered if stop is not None)
