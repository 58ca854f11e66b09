"""Tracks which half messages are ended, by their marks.

A mark is a message of OP_MESSAGE_TOPIC. It names half messages by queue offset, and is
behind them in the log. So only marks behind a half message can name it:

* marks written since the broker started are added as they are written;
* older marks are read backwards in the thread of look-ups, as far as a half message from before the
  start needs. Each is read once.

One bit is kept for each half message, and none for those that the log has no more.
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
"""Marks that are read in one piece."""
_PAGE_BITS: Final = 12
_PAGE_SIZE: Final = 1 << _PAGE_BITS
_MAX_DIGITS: Final = 19


class _Read(NamedTuple):
    """Marks that were read: half messages, as pages of bits, and the first mark among them."""

    pages: dict[int, int]
    first: int
    """The queue offset of the oldest mark read; 0 if no older one matters."""
    known_from: int | None
    """The physical offset of that mark; None if there is no mark."""


class EndedHalves:
    """The ended half messages of a store; belongs to the running event loop."""

    def __init__(self, store: MessageStore, search: LiveSearch) -> None:
        self._store: Final = store
        self._search: Final = search
        self._pages: Final[dict[int, int]] = {}
        self._known_from = store.end_offset
        """Marks behind this physical offset are known."""
        self._unread_end = store.queues.max_offset(OP_MESSAGE_TOPIC, 0)
        """Marks at or above this queue offset are known."""
        self._reading: Final = asyncio.Lock()

    def knows(self, physical_offset: int) -> bool:
        """Return whether all marks are known that may name half messages from an offset on."""
        return physical_offset >= self._known_from

    def is_ended(self, queue_offset: int) -> bool:
        """Return whether a known mark names a half message."""
        page = self._pages.get(queue_offset >> _PAGE_BITS, 0)
        return bool(page >> (queue_offset % _PAGE_SIZE) & 1)

    def open_halves(self, start: int, stop: int) -> Iterator[int]:
        """Yield the queue offsets from ``start`` to below ``stop`` that no known mark names.

        Half messages may be ended between two of them.
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
        """Add the mark of a half message."""
        self._merge(_pages_of((queue_offset,)))

    async def read_back(self, physical_offset: int) -> None:
        """Read the unknown marks that may name half messages from a physical offset on.

        :raises OSError: if the queue of marks cannot be read.
        """
        while not self.knows(physical_offset):
            async with self._reading:
                if self.knows(physical_offset):
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
        """Read the marks before the known ones in the thread of look-ups."""
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
    """Read marks below queue offset ``stop``, and return those that name half messages in
    ``there``.
    """
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
            # Older marks name only half messages that the log has no more.
            return _Read(_pages_of(named), 0, 0)
        oldest = physical_offset
        named += [each for each in _named_at(log, physical_offset) if each in there]
    return _Read(_pages_of(named), start, oldest if start else 0)


def _pages_of(queue_offsets: Iterable[int]) -> dict[int, int]:
    """Return queue offsets as bits: 4,096 of them in the number of one page."""
    pages: dict[int, bytearray] = {}
    for each in queue_offsets:
        page = pages.setdefault(each >> _PAGE_BITS, bytearray(_PAGE_SIZE // 8))
        page[each % _PAGE_SIZE // 8] |= 1 << each % 8
    return {number: int.from_bytes(page, "little") for number, page in pages.items()}


def _named_at(log: CommitLog, physical_offset: int) -> list[int]:
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
