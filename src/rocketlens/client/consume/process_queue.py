"""The messages of one queue that a consumer holds, and the offset that it can commit.

A consumer commits the smallest offset that it holds. A slow message holds the offset back, so later
messages that are done are consumed again if the consumer dies. If it holds no message, it commits
the offset after the last one. Source: ``ProcessQueue``.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.model.message import MessageExt
from rocketlens.wire.bodies.clients import ProcessQueueInfo

if TYPE_CHECKING:
    from rocketlens.client.consume.consumer_settings import ConsumerSettings
    from rocketlens.client.consume.pulling import OwnedQueue

MAX_QUEUE_CACHED_MESSAGES: Final = 1_000
"""Messages of one queue at which a consumer stops pulling. RocketMQ: 1,000."""
MAX_QUEUE_CACHED_BYTES: Final = 100 * 1024 * 1024
"""The same in bytes: bodies and overhead. RocketMQ: 100 MiB of bodies."""
MAX_QUEUE_SPAN: Final = 2_000
"""The largest span between the first and last held offset. RocketMQ: 2,000."""


class Held(Struct):
    """A message that a consumer holds; ``began_s`` is None before its listener call."""

    message: MessageExt
    began_s: float | None = None


class ProcessQueue:
    """One queue that this consumer has; bound to one event loop.

    Times in milliseconds are wall-clock times for display.
    """

    owned: "OwnedQueue"
    """The owned queue, which gets a new ProcessQueue at an offset reset."""

    def __init__(self, queue: MessageQueue, next_offset: int, now_ms: int) -> None:
        self.queue = queue
        self.next_offset = next_offset
        """The next offset to pull; also the offset to commit if no message is held."""
        self.is_dropped = False
        """True if another member has the queue: results of its messages no longer count."""
        self.is_locked = False
        self.locked_at_s = 0.0
        self.locked_at_ms = 0
        self.held_bytes = 0
        self.unlock_attempts = 0
        self.pulled_at_ms = now_ms
        self.consumed_at_ms = now_ms
        self._held: OrderedDict[int, Held] = OrderedDict()
        self._taken: OrderedDict[int, Held] = OrderedDict()
        """Messages of an ordered queue that its listener has."""
        self._last_offset = next_offset - 1

    def __len__(self) -> int:
        return len(self._held) + len(self._taken)

    def put(self, messages: Iterable[MessageExt], next_offset: int) -> list[MessageExt]:
        """Add messages, and return the new ones, whose offsets are above all seen.

        Messages below ``next_offset`` that are not among them do not match the subscription.
        """
        fresh = []
        for message in sorted(messages, key=lambda each: each.queue_offset):
            if message.queue_offset > self._last_offset:
                self._last_offset = message.queue_offset
                self._held[message.queue_offset] = Held(message)
                self.held_bytes += _size_of(message)
                fresh.append(message)
        self.next_offset = next_offset
        return fresh

    def begin(self, messages: Iterable[MessageExt], now_s: float) -> list[MessageExt]:
        """Record the start of a listener call; return the messages that are still held."""
        begun = []
        for message in messages:
            held = self._held.get(message.queue_offset)
            if held is not None:
                held.began_s = now_s
                begun.append(message)
        return begun

    def remove(self, messages: Iterable[MessageExt]) -> int:
        """Remove messages, and return the offset to commit."""
        for message in messages:
            if self._held.pop(message.queue_offset, None) is not None:
                self.held_bytes -= _size_of(message)
        return self.offset_to_commit

    def holds(self, message: MessageExt) -> bool:
        return message.queue_offset in self._held or message.queue_offset in self._taken

    def expired(self, before_s: float) -> list[MessageExt]:
        """Return messages whose listener call began before a time, from the oldest on.

        The scan ends at the first younger call: a hanging one reaches the front sooner or later.
        """
        messages = []
        for held in self._held.values():
            if held.began_s is None or held.began_s >= before_s:
                break
            messages.append(held.message)
        return messages

    @property
    def offset_to_commit(self) -> int:
        """The offset before which all messages are consumed."""
        for table in (self._taken, self._held):
            if table:
                return next(iter(table))
        return self.next_offset

    def is_full(self, settings: "ConsumerSettings") -> bool:
        return (
            len(self) >= settings.max_cached_messages_of_queue
            or self.held_bytes >= settings.max_cached_bytes_of_queue
            or self.span > settings.max_span_of_queue
        )

    @property
    def span(self) -> int:
        """The distance from the first to the last held offset."""
        return self._last_offset - self.offset_to_commit if len(self) else 0

    @property
    def has_waiting(self) -> bool:
        """True if some messages have no listener yet."""
        return bool(self._held)

    # Messages of ordered queues are taken from the front, and put back there or removed.

    def take(self, count: int) -> list[MessageExt]:
        taken: list[MessageExt] = []
        while self._held and len(taken) < count:
            offset, held = self._held.popitem(last=False)
            self._taken[offset] = held
            taken.append(held.message)
        return taken

    def commit_taken(self) -> int:
        """Remove the taken messages, and return the offset to commit."""
        self.held_bytes -= sum(_size_of(each.message) for each in self._taken.values())
        self._taken.clear()
        return self.offset_to_commit

    def put_back(self, messages: Sequence[MessageExt]) -> None:
        """Return taken messages to the front, with their new content."""
        self._taken.clear()
        for message in reversed(messages):
            self._held[message.queue_offset] = Held(message)
            self._held.move_to_end(message.queue_offset, last=False)

    def snapshot(self, commit_offset: int) -> ProcessQueueInfo:
        """Return this queue's state for RocketMQ's tools."""
        offsets = sorted({*self._held, *self._taken})
        taken = list(self._taken)
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=offsets[0] if offsets else 0,
            cached_msg_max_offset=offsets[-1] if offsets else 0,
            cached_msg_count=len(self),
            cached_msg_size_mib=self.held_bytes >> 20,
            transaction_msg_min_offset=taken[0] if taken else 0,
            transaction_msg_max_offset=taken[-1] if taken else 0,
            transaction_msg_count=len(taken),
            locked=self.is_locked,
            try_unlock_times=self.unlock_attempts,
            last_lock_timestamp_ms=self.locked_at_ms,
            dropped=self.is_dropped,
            last_pull_timestamp_ms=self.pulled_at_ms,
            last_consume_timestamp_ms=self.consumed_at_ms,
        )


def _size_of(message: MessageExt) -> int:
    return len(message.body) + limits.MESSAGE_OVERHEAD_BYTES
