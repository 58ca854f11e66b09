"""Which half messages were ended, by the marks that say so.

A mark is a message of RMQ_SYS_TRANS_OP_HALF_TOPIC that names half messages by queue offset, and
stands in the log behind them. So only marks behind a half message matter to it:

* marks that were written since the broker started are noted as they are written;
* those from before are read backwards, in the thread of look-ups, as far as a half message needs
  that is older than the broker's start. Each is read once.

One bit is kept for each half message, and nothing for those that the log has no more.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from rocketlens.broker.queue_entries import read_entries
from rocketlens.broker.search import LiveSearch
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Record
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, FILLER_SIZE
from rocketlens.model.rocketmq import HALF_TOPIC, OP_HALF_TOPIC
from rocketlens.store.read.commitlog import CommitLog
from rocketlens.store.write.message_store import MessageStore
from rocketlens.store.write.queue_append import QueueWriter

MARKS_READ: Final = 1024
"""Marks that are read at once."""
_PAGE_BITS: Final = 12
_PAGE_SIZE: Final = 1 << _PAGE_BITS
_MAX_DIGITS: Final = 19


class _Read(NamedTuple):
    """What was read of the marks: half messages, as pages of bits, and how far back it came."""

    pages: dict[int, int]
    first: int
    """The queue offset of the oldest mark that was read; 0 when no older one matters."""
    known_from: int | None
    """Its physical offset; None when no mark was there."""


class EndedHalves:
    """The half messages of a store that were ended; belongs to the running event loop."""

    def __init__(self, store: MessageStore, search: LiveSearch) -> None:
        """Read nothing yet."""
        self._store: Final = store
        self._search: Final = search
        self._pages: Final[dict[int, int]] = {}
        self._known_from = store.end_offset
        """Marks that stand behind this physical offset are known."""
        self._unread_end = store.queues.max_offset(OP_HALF_TOPIC, 0)
        """Marks from this queue offset on are known."""
        self._reading: Final = asyncio.Lock()

    def knows(self, half: Record) -> bool:
        """Return whether all marks are known that may name a half message."""
        return half.physical_offset >= self._known_from

    def is_ended(self, half: Record) -> bool:
        """Return whether a mark that is known names a half message."""
        page = self._pages.get(half.queue_offset >> _PAGE_BITS, 0)
        return bool(page >> (half.queue_offset % _PAGE_SIZE) & 1)

    def add(self, half: Record) -> None:
        """Note a mark that was written for a half message."""
        self._merge(_pages_of((half.queue_offset,)))

    async def read_back(self, half: Record) -> None:
        """Read the marks behind a half message that are not known yet.

        :raises OSError: when the queue of marks cannot be read.
        """
        while not self.knows(half):
            async with self._reading:
                if self.knows(half):
                    return
                queue = self._store.queues.get(OP_HALF_TOPIC, 0)
                if queue is None or self._unread_end <= 0:
                    self._known_from = 0
                    return
                read = await self._read_aside(queue)
                self._merge(read.pages)
                self._unread_end = read.first
                if read.known_from is not None:
                    self._known_from = read.known_from

    def _read_aside(self, queue: QueueWriter) -> "asyncio.Future[_Read]":
        """Read the marks before those that are known in the thread of look-ups."""
        store, stop = self._store, self._unread_end
        least = store.queues.min_offset(HALF_TOPIC, 0)
        there = range(least, store.queues.max_offset(HALF_TOPIC, 0))
        min_offset = store.min_offset
        index = self._search.index
        return self._search.between_look_ups(
            lambda: _read_marks(index.reader.log, queue, stop, there, min_offset)
        )

    def _merge(self, pages: dict[int, int]) -> None:
        for number, bits in pages.items():
            if number not in self._pages:
                self._forget_old()
            self._pages[number] = self._pages.get(number, 0) | bits

    def _forget_old(self) -> None:
        """Forget half messages that the log has no more."""
        least = self._store.queues.min_offset(HALF_TOPIC, 0) >> _PAGE_BITS
        for number in [number for number in self._pages if number < least]:
            del self._pages[number]


def _read_marks(
    log: CommitLog, queue: QueueWriter, stop: int, there: range, min_offset: int
) -> _Read:
    """Read marks below queue offset ``stop``, and keep what they say of the halves ``there``."""
    file_entries = queue.file_bytes // ENTRY_BYTES
    start = max(stop - MARKS_READ, (stop - 1) // file_entries * file_entries)
    if start < min((base // ENTRY_BYTES for base, _ in queue.files()), default=stop):
        return _Read({}, 0, 0)
    named: list[int] = []
    oldest: int | None = None
    for physical_offset, size, _ in reversed(read_entries(queue, start, stop).tolist()):
        if size <= 0 or size == FILLER_SIZE:
            continue
        if physical_offset < min_offset:
            # What is older names half messages that the log has no more.
            return _Read(_pages_of(named), 0, 0)
        oldest = physical_offset
        named += [each for each in _named_at(log, physical_offset) if each in there]
    return _Read(_pages_of(named), start, oldest if start else 0)


def _pages_of(queue_offsets: Iterable[int]) -> dict[int, int]:
    """Return queue offsets as bits: those of one page of 4,096 in one number."""
    pages: dict[int, bytearray] = {}
    for each in queue_offsets:
        page = pages.setdefault(each >> _PAGE_BITS, bytearray(_PAGE_SIZE // 8))
        page[each % _PAGE_SIZE // 8] |= 1 << each % 8
    return {number: int.from_bytes(page, "little") for number, page in pages.items()}


def _named_at(log: CommitLog, physical_offset: int) -> list[int]:
    """Return the half messages that a mark names: ``0`` in RocketMQ 4, ``0,1,`` in 5."""
    try:
        record = log.record_at(physical_offset)
    except RecordError:
        return []
    words = record.body.decode(errors="replace").split(",")
    return [
        int(word)
        for word in words
        if word.isascii() and word.isdigit() and len(word) <= _MAX_DIGITS
    ]
