"""Schedules look-ups in the store that the broker is writing.

A message can be found as soon as its send is answered: each look-up first reads the new part of the
log into memory (:mod:`rocketlens.broker.lookup.live_index`). Every hit is compared with its record
(:mod:`rocketlens.broker.lookup.look_up`). The log is also read several times a second, in steps of
some milliseconds, so that look-ups have little to read.

One look-up or step at a time uses memory and index files. Compiled code answers plain look-ups on
the event loop (:mod:`rocketlens.broker.lookup.compiled`). Others run in a thread, in which each
connection has turns of a millisecond (:mod:`rocketlens.broker.lookup.turns`). Look-ups by tag,
which read whole queues, have a second thread and their own reader of the log, so that look-ups by
key and id do not wait for them. Look-ups of a closed connection are dropped.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from rocketlens import limits
from rocketlens.broker.lookup import look_up as look_ups
from rocketlens.broker.lookup.live_index import LiveIndex
from rocketlens.broker.lookup.look_up import FoundRecords, LookUp
from rocketlens.broker.lookup.turns import LookUpLimits, Turns, Work
from rocketlens.formats.commitlog_record import Record
from rocketlens.net.pace import Owner
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.write.message_store import MessageStore

if TYPE_CHECKING:
    from rocketlens.broker.lookup.compiled import LogSnapshot

MAX_LOOK_UPS_OF_CONNECTION: Final = 1_000
"""Look-ups by key and id of one connection that can wait; more get "busy". RocketMQ: no limit."""
MAX_LOOK_UP_S: Final = 10.0
"""Seconds of processor time after which a look-up returns its matches. RocketMQ: no limit."""
MAX_LOOK_UP_WAIT_S: Final = 60.0
"""Seconds of elapsed time after which a look-up returns its matches."""
MAX_TAG_LOOK_UPS_OF_CONNECTION: Final = 64
"""Look-ups by tag of one connection that can wait: each reads a topic's entries."""
MAX_TAG_LOOK_UPS: Final = 1_000
"""Look-ups by tag of all connections that can wait."""
T = TypeVar("T")

_log: Final = logging.getLogger("rocketlens.broker")

READ_INTERVAL_S: Final = 0.25
"""Seconds between two rounds of steps."""
THREAD_NAME: Final = "rocketlens-search"
TAG_THREAD_NAME: Final = "rocketlens-search-tags"
KEY_BOUNDS: Final = LookUpLimits(
    MAX_LOOK_UPS_OF_CONNECTION, limits.MAX_LOOK_UPS, MAX_LOOK_UP_S, MAX_LOOK_UP_WAIT_S
)
TAG_BOUNDS: Final = KEY_BOUNDS._replace(
    of_one=MAX_TAG_LOOK_UPS_OF_CONNECTION, of_all=MAX_TAG_LOOK_UPS
)


class LiveSearch:
    """Searches the store of a running broker. ``index`` belongs to the thread of ``turns``."""

    def __init__(self, store: MessageStore) -> None:
        self._store: Final = store
        self.index: Final = LiveIndex(store)
        self.snapshot: LogSnapshot | None = None
        """The snapshot of compiled look-ups, which they set."""
        self.has_read: Callable[[], None] = lambda: None
        """Called when memory has read more, or the log has changed. Compiled look-ups set it."""
        self._tag_log: CommitLog | None = None
        """The reader of look-ups by tag, for their thread only."""
        self.turns: Final = Turns(THREAD_NAME, KEY_BOUNDS)
        self.tag_turns: Final = Turns(TAG_THREAD_NAME, TAG_BOUNDS)
        self._reader: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return self.turns.waiting + self.tag_turns.waiting

    async def open(self) -> None:
        """Open the index files, and start to read the part of the log that they do not cover."""
        await self.between_look_ups(self.index.open)
        self._reader = asyncio.create_task(self._catch_up_loop())

    def by_key(self, look_up: LookUp, owner: Owner | None = None) -> "asyncio.Future[FoundRecords]":
        """Return the newest records of a topic with a key or unique key.

        :raises Busy: if too many look-ups wait. The future raises it if this one waited too long.
        """
        return self.turns.put(owner, look_ups.by_key(self.index, look_up))

    def by_tag(self, look_up: LookUp, owner: Owner | None = None) -> "asyncio.Future[FoundRecords]":
        """Return the newest records of a topic with a tag, as :meth:`by_key`. O(queue entries)."""
        return self.tag_turns.put(owner, self._by_tag(look_up))

    async def is_record_start(self, record: Record, owner: Owner | None = None) -> bool:
        """:raises Busy: as :meth:`by_key`."""
        position = record.queue_id, record.queue_offset
        if self.has_entry(record.topic, position, record.physical_offset, record.total_size):
            return True
        return await self.turns.put(owner, look_ups.is_record_start(self.index, record))

    def has_entry(self, topic: str, position: tuple[int, int], offset: int, size: int) -> bool:
        """Return True if the queue entry at ``position`` (id and offset) refers to the record."""
        queue_id, queue_offset = position
        queue = self._store.queues.get(topic, queue_id)
        entry = queue.entry(queue_offset) if queue and queue_offset >= 0 else None
        return entry is not None and entry[:2] == (offset, size)

    def on_close(self, owner: Owner) -> None:
        self.turns.drop(owner)
        self.tag_turns.drop(owner)

    def between_look_ups(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run work on the index in the thread of look-ups, between two pieces."""
        return self.turns.put(None, _once(work))

    def _step(self) -> bool:
        is_more = self.index.step()
        self.has_read()
        return is_more

    def refresh_readers(self) -> None:
        """Update the readers after segments were deleted, so that they release the files."""
        self.between_look_ups(self._refresh_log)
        if self._tag_log is not None:
            self.tag_turns.put(None, _once(self._tag_log.refresh))

    def _refresh_log(self) -> None:
        self.index.reader.log.refresh()
        self.snapshot = None
        self.has_read()

    def close(self) -> None:
        """Wait for the current piece of a look-up, and unmap all files."""
        if self._reader is not None:
            self._reader.cancel()
        self.turns.close()
        self.tag_turns.close()
        # It has views of segments and index files.
        self.snapshot = None
        self.index.close()
        if self._tag_log is not None:
            self._tag_log.close()

    async def _catch_up_loop(self) -> None:
        while True:
            try:
                while await self.between_look_ups(self._step):
                    pass
            except Exception as error:  # noqa: BLE001 - try again in the next round
                _log.warning("the log could not be read for look-ups: %s", error)
            await asyncio.sleep(READ_INTERVAL_S)

    def _by_tag(self, look_up: LookUp) -> Work[FoundRecords]:
        if self._tag_log is None:
            self._tag_log = CommitLog.of(self._store.layout)
        return (yield from look_ups.by_tag(self._store, self._tag_log, look_up))


def _once(work: Callable[[], T]) -> Work[T]:
    """Return a look-up of one piece that runs ``work``."""
    return work()
    yield  # never reached: it makes this a generator
