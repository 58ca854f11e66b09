"""The messages of one queue that a consumer holds, and how far it may commit.

A consumer commits the smallest offset that it holds: a message that takes long holds the offset
back, and those behind it that are done are consumed again if the consumer dies. Once nothing is
held it commits the offset behind the last one. Source: ``ProcessQueue``.
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
"""Messages of one queue that a consumer holds before it pulls on. RocketMQ: 1,000."""
MAX_QUEUE_CACHED_BYTES: Final = 100 * 1024 * 1024
"""The same in bytes, of bodies and what each message takes. RocketMQ: 100 MiB of bodies."""
MAX_QUEUE_SPAN: Final = 2_000
"""From the first to the last offset of one queue that is held. RocketMQ: 2,000."""


class Held(Struct):
    """A message that a consumer holds; ``began_s`` is None until a listener has it."""

    message: MessageExt
    began_s: float | None = None


class ProcessQueue:
    """One queue while it is this consumer's; of one event loop.

    Times in milliseconds are by the wall clock, and for people only.
    """

    owned: "OwnedQueue"
    """Its queue, which has another one of these once its offset is reset."""

    def __init__(self, queue: MessageQueue, next_offset: int, now_ms: int) -> None:
        self.queue = queue
        self.next_offset = next_offset
        """What is pulled next, and committed while nothing is held."""
        self.is_dropped = False
        """Whether another member has it now: the outcome of its messages does not count here."""
        self.is_locked = False
        self.locked_at_s = 0.0
        self.locked_at_ms = 0
        self.held_bytes = 0
        self.unlock_attempts = 0
        self.pulled_at_ms = now_ms
        self.consumed_at_ms = now_ms
        self._held: OrderedDict[int, Held] = OrderedDict()
        self._taken: OrderedDict[int, Held] = OrderedDict()
        """Of an ordered queue: those that its listener has."""
        self._last_offset = next_offset - 1

    def __len__(self) -> int:
        return len(self._held) + len(self._taken)

    def put(self, messages: Iterable[MessageExt], next_offset: int) -> list[MessageExt]:
        """Hold messages, and return those that are new: whose offsets are above all seen.

        ``next_offset`` is where to go on: what is before it and not among them is not for us.
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
        """Record that a listener has these now; return those that are still held."""
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
        """Return whether a message is still held."""
        return message.queue_offset in self._held or message.queue_offset in self._taken

    def expired(self, before_s: float) -> list[MessageExt]:
        """Return messages that a listener has had since before a time, from the oldest on.

        It ends at the first that is younger: one that hangs is at the front sooner or later.
        """
        messages = []
        for held in self._held.values():
            if held.began_s is None or held.began_s >= before_s:
                break
            messages.append(held.message)
        return messages

    @property
    def offset_to_commit(self) -> int:
        """The offset up to which all is consumed."""
        for table in (self._taken, self._held):
            if table:
                return next(iter(table))
        return self.next_offset

    def is_full(self, settings: "ConsumerSettings") -> bool:
        """Return whether pulling has to wait until some messages are consumed."""
        return (
            len(self) >= settings.max_cached_messages_of_queue
            or self.held_bytes >= settings.max_cached_bytes_of_queue
            or self.span > settings.max_span_of_queue
        )

    @property
    def span(self) -> int:
        """The distance from the first to the last offset that is held."""
        return self._last_offset - self.offset_to_commit if len(self) else 0

    @property
    def has_waiting(self) -> bool:
        """Whether there are messages that no listener has."""
        return bool(self._held)

    # Ordered queues: their messages are taken from the front, and put back there or removed.

    def take(self, count: int) -> list[MessageExt]:
        """Take the first messages for a listener."""
        taken: list[MessageExt] = []
        while self._held and len(taken) < count:
            offset, held = self._held.popitem(last=False)
            self._taken[offset] = held
            taken.append(held.message)
        return taken

    def commit_taken(self) -> int:
        """Remove what was taken, and return the offset to commit."""
        self.held_bytes -= sum(_size_of(each.message) for each in self._taken.values())
        self._taken.clear()
        return self.offset_to_commit

    def put_back(self, messages: Sequence[MessageExt]) -> None:
        """Put what was taken to the front again, as it is in ``messages`` now."""
        self._taken.clear()
        for message in reversed(messages):
            self._held[message.queue_offset] = Held(message)
            self._held.move_to_end(message.queue_offset, last=False)

    def described(self, commit_offset: int) -> ProcessQueueInfo:
        """Return what RocketMQ's tools show of it."""
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
    """Return what a message takes in memory, about."""
    return len(message.body) + limits.MESSAGE_OVERHEAD_BYTES
