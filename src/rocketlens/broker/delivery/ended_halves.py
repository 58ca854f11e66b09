"""Tracks which half messages are ended, by their marks.

A mark is a message of OP_MESSAGE_TOPIC. It names half messages by queue offset, and follows them in
the log:

* marks written since the broker started are added as they are written;
* older marks are read backwards in the thread of look-ups, as far as an older half message needs.
  Each is read once.

One bit is kept for each half message that the log still has.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rocketlens.broker.lookup.search import LiveSearch
from rocketlens.errors import RecordError
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, FILLER_SIZE
from rocketlens.model.rocketmq import HALF_MESSAGE_TOPIC, OP_MESSAGE_TOPIC
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.write.message_store import MessageStore
from rocketlens.store.write.queue.queue_append import QueueWriter, read_entries

MARKS_PER_READ: Final = 1024
"""Marks that are read in one step."""
_PAGE_BITS: Final = 12
_PAGE_SIZE: Final = 1 << _PAGE_BITS
_MAX_DIGITS: Final = 19


class _Read(NamedTuple):
    """Half messages named by marks, as pages of bits, and the oldest of these marks."""

    pages: dict[int, int]
    first: int
    """The queue offset of the oldest mark read; 0 if older marks do not matter."""
    known_from: int | None
    """The physical offset of that mark; None if there is no mark."""


class EndedHalves:
    """The ended half messages of a store. Belongs to the running event loop."""

    def __init__(self, store: MessageStore, search: LiveSearch) -> None:
        self._store: Final = store
        self._search: Final = search
        self._pages: Final[dict[int, int]] = {}
        self._known_from = store.end_offset
        """All marks after this physical offset are known."""
        self._unread_end = store.queues.max_offset(OP_MESSAGE_TOPIC, 0)
        """All marks from this queue offset on are known."""
        self._reading: Final = asyncio.Lock()

    def has_marks_from(self, physical_offset: int) -> bool:
        """Return True if all marks after a half message at ``physical_offset`` are known."""
        return physical_offset >= self._known_from

    def is_ended(self, queue_offset: int) -> bool:
        page = self._pages.get(queue_offset >> _PAGE_BITS, 0)
        return bool(page >> (queue_offset % _PAGE_SIZE) & 1)

    def open_halves(self, start: int, stop: int) -> Iterator[int]:
        """Yield the queue offsets from ``start`` to below ``stop`` that no known mark names.

        The caller can add marks between two offsets.
        """
        while start < stop:
            page = start >> _PAGE_BITS
            base = page << _PAGE_BITS
            below = min(stop - base, _PAGE_SIZE)
            bits = ~self._pages.get(page, 0) & ((1 << below) - 1) & (-1 << (start - base))
            if not bits:
                start = base + _PAGE_SIZE
                continue
            queue_offset = base + (bits & -bits).bit_length() - 1
            yield queue_offset
            start = queue_offset + 1

    def add(self, queue_offset: int) -> None:
        self._merge(_pages_of((queue_offset,)))

    async def read_back(self, physical_offset: int) -> None:
        """Read the unknown marks of half messages from a physical offset on.

        :raises OSError: if the queue of marks cannot be read.
        """
        while not self.has_marks_from(physical_offset):
            async with self._reading:
                if self.has_marks_from(physical_offset):
                    return
                queue = self._store.queues.get(OP_MESSAGE_TOPIC, 0)
                if queue is None or self._unread_end <= 0:
                    self._known_from = 0
                    return
                read = await self._read_in_thread(queue)
                self._merge(read.pages)
                self._unread_end = read.first
                if read.known_from is not None:
                    self._known_from = read.known_from

    def _read_in_thread(self, queue: QueueWriter) -> "asyncio.Future[_Read]":
        store, stop = self._store, self._unread_end
        lowest = store.queues.min_offset(HALF_MESSAGE_TOPIC, 0)
        there = range(lowest, store.queues.max_offset(HALF_MESSAGE_TOPIC, 0))
        min_offset = store.min_offset
        index = self._search.index
        return self._search.between_look_ups(
            lambda: _read_marks(index.reader.log, queue, stop, there, min_offset)
        )

    def _merge(self, pages: dict[int, int]) -> None:
        for number, bits in pages.items():
            if number not in self._pages:
                self._drop_deleted()
            self._pages[number] = self._pages.get(number, 0) | bits

    def _drop_deleted(self) -> None:
        min_page = self._store.queues.min_offset(HALF_MESSAGE_TOPIC, 0) >> _PAGE_BITS
        for number in [number for number in self._pages if number < min_page]:
            del self._pages[number]


def _read_marks(
    log: CommitLog, queue: QueueWriter, stop: int, there: range, min_offset: int
) -> _Read:
    """Read marks below queue offset ``stop``, for half messages in ``there``."""
    file_entries = queue.file_bytes // ENTRY_BYTES
    start = max(stop - MARKS_PER_READ, (stop - 1) // file_entries * file_entries)
    if start < min((base // ENTRY_BYTES for base, _ in queue.files()), default=stop):
        return _Read({}, 0, 0)
    named: list[int] = []
    oldest: int | None = None
    for physical_offset, size, _ in reversed(read_entries(queue, start, stop).tolist()):
        if size <= 0 or size == FILLER_SIZE:
            continue
        if physical_offset < min_offset:
            # Older marks name only half messages that were deleted from the log.
            return _Read(_pages_of(named), 0, 0)
        oldest = physical_offset
        named += [each for each in _halves_named_at(log, physical_offset) if each in there]
    return _Read(_pages_of(named), start, oldest if start else 0)


def _pages_of(queue_offsets: Iterable[int]) -> dict[int, int]:
    """Return queue offsets as bits: 4,096 in each page."""
    pages: dict[int, bytearray] = {}
    for each in queue_offsets:
        page = pages.setdefault(each >> _PAGE_BITS, bytearray(_PAGE_SIZE // 8))
        page[each % _PAGE_SIZE // 8] |= 1 << each % 8
    return {number: int.from_bytes(page, "little") for number, page in pages.items()}


def _halves_named_at(log: CommitLog, physical_offset: int) -> list[int]:
    """Return the half messages that a mark names: body ``0`` in RocketMQ 4, ``0,1,`` in 5."""
    try:
        record = log.record_at(physical_offset)
    except RecordError:
        return []
    numbers = record.body.decode(errors="replace").split(",")
    return [
        int(word)
        for word in numbers
        if word.isascii() and word.isdigit() and len(word) <= _MAX_DIGITS
    ]
