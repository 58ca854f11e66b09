"""Delivers messages with their own delivery time (RocketMQ 5's timers) when they are due.

======================  ========================================================================
property                due
======================  ========================================================================
``TIMER_DELAY_SEC``     so many seconds from now
``TIMER_DELAY_MS``      so many milliseconds from now
``TIMER_DELIVER_MS``    at that time
======================  ========================================================================

The first of them counts; a delay level replaces all three. A message that is already due is stored
like any other. Otherwise ``TIMER_OUT_MS`` is the start of the second that contains the last
millisecond before the delivery time. The message is delivered when that second is over: up to a
second late, never early.

Timers wait in queue 0 of their topic, in the order of arrival. The broker reads this queue as it
grows, and keeps queue offsets in memory by the second of ``TIMER_OUT_MS``: 8 bytes a message. A due
message is stored again in its real topic, with two more properties. ``config/timercheck``
(:mod:`rocketlens.broker.tables.timer_progress`) has the progress, written every second: the broker
starts to read at the first waiting message.

A message with ``TIMER_DEL_UNIQKEY`` is not delivered. It deletes the message with that unique key
that is due in the same second. Sources: ``TimerMessageStore``, ``HookUtils``.
"""

import heapq
import logging
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct, field

from rocketlens.broker.delivery.schedule import CopyWriter, real_queue, waiting_record
from rocketlens.broker.tables.timer_progress import TimerProgress
from rocketlens.errors import MessageIllegal, ProtocolError, RecordError, StoreError
from rocketlens.formats.commitlog_record import Record, RecordView
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, FILLER_SIZE, QueueEntry
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import TIMER_TOPIC
from rocketlens.model.text.java import decode_utf8
from rocketlens.store.read.log.commitlog import SegmentLost
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.store.write.refused_writes import RefusedWrites
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.declare import read_i64

SECOND_MS: Final = 1000
"""RocketMQ's default ``timerPrecisionMs``."""
ROLL_WINDOW_MS: Final = 172_800 * SECOND_MS
"""Longer waits are stored again, because the log is deleted. RocketMQ: ``timerRollWindowSlot``."""


class TimerRefused(MessageIllegal):
    """The broker refuses a message with a delivery time, with RocketMQ's text."""

    code = ResponseCode.SYSTEM_ERROR


def out_time_ms(properties: Mapping[str, str], now_ms: int, max_delay_ms: int) -> int | None:
    """Return the ``TIMER_OUT_MS`` of a message; None if it is already due.

    :raises MessageIllegal: if the time is not a number or too late, or a deletion is already due.
    """
    illegal = MessageIllegal(
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{max_delay_ms}ms; or if set del msg, the delay time should be bigger than the "
        "current time"
    )
    try:
        deliver_ms = _deliver_ms(properties, now_ms)
    except ProtocolError:
        raise illegal from None
    if deliver_ms <= now_ms and props.TIMER_DELETED_KEY not in properties:
        return None
    if not now_ms < deliver_ms <= now_ms + max_delay_ms:
        raise illegal
    return (deliver_ms - 1) // SECOND_MS * SECOND_MS


def _deliver_ms(properties: Mapping[str, str], now_ms: int) -> int:
    name = props.TIMER_DELAY_SEC
    if name in properties:
        return _wrapped(now_ms + _wrapped(read_i64(properties[name], name) * SECOND_MS))
    name = props.TIMER_DELAY_MS
    if name in properties:
        return _wrapped(now_ms + read_i64(properties[name], name))
    name = props.TIMER_DELIVER_MS
    return read_i64(properties[name], name)


def _wrapped(number: int) -> int:
    """Return a number as a signed 64-bit integer of Java."""
    return (number + 2**63) % 2**64 - 2**63


def slot_ms(out_ms: int, store_timestamp_ms: int) -> int:
    """Return the ``TIMER_OUT_MS`` at which a stored message is handled: its own, or earlier.

    A message that waits longer than the window is stored again after the window, or after half of
    it if little would remain. The result depends only on the record, so each start of a broker
    computes the same.
    """
    since_ms = store_timestamp_ms // SECOND_MS * SECOND_MS
    rest_ms = out_ms - since_ms - ROLL_WINDOW_MS
    if rest_ms < 0:
        return out_ms
    return since_ms + (ROLL_WINDOW_MS // 2 if rest_ms < ROLL_WINDOW_MS // 3 else ROLL_WINDOW_MS)


MAX_WAITING_TIMERS: Final = 10_000_000
"""Timers that wait on a broker, 8 bytes each. RocketMQ: timerCongestNumEachSlot a second."""
_log: Final = logging.getLogger("rocketlens.broker")

READ_AT_ONCE: Final = 128
"""Timers that are read in one step: 1 to 2 ms."""
_MAX_DIGITS: Final = 18
_OUT_START: Final = f"{props.TIMER_OUT_MS}\x01".encode()
_DELETED_START: Final = f"{props.TIMER_DELETED_KEY}\x01".encode()

_DeletedKey = tuple[str, str]
"""Topic and unique key of a deleted message. The topic is empty if it does not count."""


class _Slot(Struct):
    """The messages of one second."""

    queue_offsets: "array[int]" = field(default_factory=lambda: array("q"))
    deletions: "array[int] | None" = None
    """The queue offsets of messages that delete others; ``queue_offsets`` has them, too."""
    deleted_keys: frozenset[_DeletedKey] | None = None
    """Keys of messages that are not delivered; None before the first delivery."""
    index: int = 0
    """Number of delivered messages."""


class Timers:
    """The timers of a broker. Belongs to the running event loop."""

    def __init__(
        self,
        store: MessageStore,
        copies: CopyWriter,
        progress: TimerProgress,
        config: StoreConfig,
        clock: Callable[[], int],
        *,
        by_topic: bool,
    ) -> None:
        """Create an empty set: :meth:`step` reads the queue.

        ``by_topic``: a message deletes only messages of its own topic. In RocketMQ it deletes those
        of any topic, even if its sender has no permission for them.
        """
        self._store: Final = store
        self._copies: Final = copies
        self.progress: Final = progress
        self._clock: Final = clock
        self._by_topic: Final = by_topic
        self._is_enabled: Final = config.timerWheelEnable
        self._max_delay_ms: Final = config.timerMaxDelaySec * SECOND_MS
        self._slots: Final[dict[int, _Slot]] = {}
        self._times: Final[list[int]] = []
        """The seconds of ``_slots``, as a heap."""
        self._first_offsets: Final[list[tuple[int, int]]] = []
        """First waiting queue offset and second of each slot, as a heap; can be outdated."""
        self.progress.fit_to_queue(*self._span())
        self.progress.oldest = lambda: (self._oldest_waiting(), self._oldest_late())
        self._next_offset = self.progress.queue_offset
        """The queue offset to read next."""
        self._read_store_ms = 0
        """The store time of the last message read."""
        self.waiting = 0
        """Number of messages that were read and wait."""
        self._refused: Final = RefusedWrites(
            clock,
            log=_log,
            begins="messages with a delivery time wait",
            over="messages with a delivery time are delivered again",
        )

    def redirect(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        """Return the topic and queue in which to store a message; add properties if it must wait.

        :raises MessageIllegal: as :meth:`check`.
        """
        out_ms = self.check(properties) if topic != TIMER_TOPIC else None
        if out_ms is None:
            return topic, queue_id
        properties[props.TIMER_OUT_MS] = str(out_ms)
        properties[props.REAL_TOPIC] = topic
        properties[props.REAL_QUEUE_ID] = str(queue_id)
        return TIMER_TOPIC, 0

    def check(self, properties: Mapping[str, str]) -> int | None:
        """:raises MessageIllegal: if the delivery time is invalid or not permitted."""
        if props.TIMER_OUT_MS in properties or props.TIMER_NAMES.isdisjoint(properties):
            return None
        if not self._is_enabled:
            raise TimerRefused("accurate timer message is not enabled, timerWheelEnable is false")
        out_ms = out_time_ms(properties, self._clock(), self._max_delay_ms)
        if out_ms is not None and self.waiting + self.unread >= MAX_WAITING_TIMERS:
            most = MAX_WAITING_TIMERS
            raise TimerRefused(
                f"timer message is under flow control, max num limit is {most} or the current value"
                f" is greater than {most} and less than {2 * most}, trigger random flow control"
            )
        return out_ms

    @property
    def unread(self) -> int:
        return self._span()[1] - self._next_offset

    @property
    def behind_ms(self) -> int:
        """Milliseconds by which the oldest waiting message is overdue."""
        if not self._times:
            return 0
        return max(self._clock() - self._times[0] - SECOND_MS, 0)

    def step(self, at_once: int) -> int:
        """Read new messages of the queue, and deliver up to ``at_once``; return the number of both.

        Stops at the first that cannot be stored now; the next call tries it again.
        """
        queue = self._store.queues.get(TIMER_TOPIC, 0) if self._is_enabled else None
        if queue is None:
            return 0
        try:
            count = self._read(queue) + self._deliver_due(queue, at_once)
        except (OSError, StoreError, SegmentLost) as error:
            self._refused.refuse(error)
            return 0
        if count:
            self._refused.accept()
        return count

    def _span(self) -> tuple[int, int]:
        queues = self._store.queues
        return queues.min_offset(TIMER_TOPIC, 0), queues.max_offset(TIMER_TOPIC, 0)

    def _read(self, queue: QueueWriter) -> int:
        low, high = self._span()
        self._next_offset = max(self._next_offset, low)
        if self._next_offset >= high:
            return 0
        entries = queue.read(self._next_offset, READ_AT_ONCE)
        for entry in entries:
            self._add(entry)
            self._next_offset += 1
        if not entries:
            # A file of the queue is missing: continue with the next one.
            file_entries = queue.file_bytes // ENTRY_BYTES
            self._next_offset += file_entries - self._next_offset % file_entries
        if self._next_offset > self.progress.next_queue_offset:
            self.progress.next_queue_offset = min(self._next_offset, high)
            self.progress.is_changed = True
        return max(len(entries), 1)

    def _add(self, entry: QueueEntry) -> None:
        if entry.store_size <= 0 or entry.store_size == FILLER_SIZE:
            return
        content = self._store.record(entry.physical_offset, entry.store_size)
        if content is None:
            return
        try:
            view = RecordView(content, 0, entry.physical_offset)
        except RecordError as error:
            _log.error("a message with a delivery time is lost: %s", error)
            return
        self._read_store_ms = view.store_timestamp_ms
        properties = view.properties
        out_ms = _number_after(properties, _OUT_START)
        if out_ms is None:
            line = "a message of %s at %d is skipped: it has no TIMER_OUT_MS"
            _log.error(line, TIMER_TOPIC, entry.physical_offset)
            return
        time_ms = slot_ms(out_ms, view.store_timestamp_ms)
        queue_offset = self._next_offset
        progress = self.progress
        if queue_offset < progress.next_queue_offset and progress.is_delivered(
            queue_offset, time_ms
        ):
            return
        slot = self._slots.get(time_ms)
        if slot is None:
            slot = self._slots[time_ms] = _Slot()
            heapq.heappush(self._times, time_ms)
            heapq.heappush(self._first_offsets, (queue_offset, time_ms))
        slot.queue_offsets.append(queue_offset)
        if _DELETED_START in properties:
            if slot.deletions is None:
                slot.deletions = array("q")
            slot.deletions.append(queue_offset)
        self.waiting += 1

    def _deliver_due(self, queue: QueueWriter, at_once: int) -> int:
        now_ms = self._clock()
        delivered = 0
        while delivered < at_once and self._times:
            time_ms = self._times[0]
            if time_ms + SECOND_MS > now_ms or not self._is_complete(queue, time_ms):
                break
            delivered += self._deliver(queue, time_ms, at_once - delivered)
        if not self._times and self._next_offset >= queue.next_offset:
            # After the clock was set back, new messages are not late.
            self.progress.set_back(now_ms // SECOND_MS * SECOND_MS)
        return delivered

    def _is_complete(self, queue: QueueWriter, time_ms: int) -> bool:
        """Return True if all messages of a second were read. None is stored after it is over."""
        if self._next_offset >= queue.next_offset:
            return True
        started = self._next_offset >= self.progress.next_queue_offset
        return started and self._read_store_ms > time_ms + SECOND_MS

    def _deliver(self, queue: QueueWriter, time_ms: int, at_once: int) -> int:
        slot = self._slots[time_ms]
        if slot.deleted_keys is None:
            slot.deleted_keys = self._deleted_keys(queue, slot)
        first = slot.index
        stop = min(first + at_once, len(slot.queue_offsets))
        try:
            while slot.index < stop:
                record = waiting_record(self._store, queue, slot.queue_offsets[slot.index])
                if record is not None:
                    self._store_again(record, time_ms, slot.deleted_keys)
                slot.index += 1
                self.waiting -= 1
        finally:
            if slot.index < len(slot.queue_offsets):
                heapq.heappush(self._first_offsets, (slot.queue_offsets[slot.index], time_ms))
                self.progress.advance(time_ms, slot.queue_offsets[slot.index])
            else:
                heapq.heappop(self._times)
                del self._slots[time_ms]
                self.progress.advance(time_ms + SECOND_MS, 0)
        return stop - first

    def _deleted_keys(self, queue: QueueWriter, slot: _Slot) -> frozenset[_DeletedKey]:
        keys = set()
        for queue_offset in slot.deletions or ():
            record = waiting_record(self._store, queue, queue_offset)
            if record is not None:
                keys.add(self._key_of(_properties_of(record), props.TIMER_DELETED_KEY))
        return frozenset(keys)

    def _key_of(self, properties: Mapping[str, str], name: str) -> _DeletedKey:
        topic = properties.get(props.REAL_TOPIC, "") if self._by_topic else ""
        return topic, properties.get(name, "")

    def _store_again(
        self, record: Record, time_ms: int, deleted_keys: frozenset[_DeletedKey]
    ) -> None:
        """Store a message in its real topic, or in the topic of timers if it must wait longer."""
        properties = _properties_of(record)
        topic, queue_id = TIMER_TOPIC, 0
        is_deleted = (
            props.TIMER_DELETED_KEY in properties
            or self._key_of(properties, props.UNIQUE_KEY) in deleted_keys
        )
        if properties.get(props.TIMER_OUT_MS) != str(time_ms):
            times = properties.get(props.TIMER_ROLL_TIMES, "0")
            rolled = int(times) if times.isdecimal() and len(times) < _MAX_DIGITS else 0
            properties[props.TIMER_ROLL_TIMES] = str(rolled + 1)
        elif is_deleted or (target := real_queue(properties)) is None:
            return
        else:
            topic, queue_id = target
        since_ms = record.store_timestamp_ms // SECOND_MS * SECOND_MS
        properties[props.TIMER_ENQUEUE_MS] = str(since_ms)
        properties[props.TIMER_DEQUEUE_MS] = str(self._clock())
        self._copies.write(record, topic, queue_id, properties)

    def _oldest_waiting(self) -> int:
        while self._first_offsets:
            queue_offset, time_ms = self._first_offsets[0]
            slot = self._slots.get(time_ms)
            if slot is not None and slot.queue_offsets[slot.index] == queue_offset:
                return queue_offset
            heapq.heappop(self._first_offsets)
        return self._next_offset

    def _oldest_late(self) -> int | None:
        slots = (self._slots[time_ms] for time_ms in self._late_times())
        return min((slot.queue_offsets[slot.index] for slot in slots), default=None)

    def _late_times(self) -> Iterator[int]:
        """Yield seconds before ``read_time_ms``, from the top of the heap."""
        positions = [0]
        while positions:
            position = positions.pop()
            if position < len(self._times) and self._times[position] < self.progress.read_time_ms:
                yield self._times[position]
                positions += (2 * position + 1, 2 * position + 2)


def _properties_of(record: Record) -> dict[str, str]:
    return props.parse(decode_utf8(record.properties))


def _number_after(properties: bytes, start: bytes) -> int | None:
    position = properties.find(start)
    while position > 0 and properties[position - 1] != 2:
        position = properties.find(start, position + 1)
    if position < 0:
        return None
    text = properties[position + len(start) :].partition(b"\x02")[0]
    return int(text) if text.isdigit() and len(text) <= _MAX_DIGITS else None
