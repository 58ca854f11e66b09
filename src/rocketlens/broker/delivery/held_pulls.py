"""Holds pulls until messages arrive.

A pull that allows it (``sysFlag`` 2), and has the offset of the end of its queue, is held. It is
repeated and answered when

* an entry that passes its filter is appended to its queue;
* its time is over;
* its topic, its group or its group's subscriptions change, or the broker stops.

It is dropped when its connection ends. Held pulls of one queue with the same filter are checked
together: new entries are compared once for each filter, and pulls with equal requests share the
messages that are read. An append only checks if the queue has held pulls. Work is done in turns of
a few milliseconds. Source: ``PullRequestHoldService``, which checks times every five seconds.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple, Self, TypeVar

from msgspec import Struct, field

from rocketlens import limits
from rocketlens.broker.delivery.pull_filter import PullFilter
from rocketlens.net.channel import Channel, Response
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import PULL_MESSAGE

MAX_SUSPEND_S: Final = 600.0
"""Maximum seconds for which a pull is held. RocketMQ: no limit; its clients request 15 or 20."""
MAX_HELD_PULLS_OF_CONNECTION: Final = 10_000
"""Held pulls of one connection; further ones are answered at once. RocketMQ: no limit."""
MAX_HELD_PULLS_BYTES: Final = 256 * 1024 * 1024
"""Memory for held pulls: 120,000 typical ones. RocketMQ: no limit."""
TICK_S: Final = 0.2
"""Maximum delay of the answer after the time of a pull is over."""

_PULL_BYTES: Final = 2_000
"""Memory of a held pull without the characters and codes of its subscription."""
_CODE_BYTES: Final = 100

K = TypeVar("K")

Queue = tuple[str, int]


class PullFields(NamedTuple):
    """The fields of a pull's header that the broker reads.

    A named tuple of these only: the whole header takes four times as long to create.
    """

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_message_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_ms: int
    subscription: str | None
    subscription_version: int
    expression_type: str | None
    max_message_bytes: int | None

    @classmethod
    def of(cls, ext_fields: Mapping[str, str]) -> Self:
        """:raises FieldError: as :meth:`HeaderCodec.decode`, for these fields."""
        return cls._make(_pick(ext_fields))


_pick: Final = PULL_MESSAGE.request.picker(*PullFields._fields)


class HeldPull(Struct, eq=False):
    """A pull that waits; the fields of ``command`` are in ``request``."""

    command: RemotingCommand
    channel: Channel
    request: PullFields
    pull_filter: PullFilter
    is_held: bool = False
    tick: int = 0
    size_bytes: int = 0
    pull_set: "_PullSet | None" = None

    def __post_init__(self) -> None:
        """Drop data that ``request`` has, and estimate the memory."""
        self.command = self.command._replace(ext_fields={}, body=b"")
        texts = (self.request.consumer_group, self.request.topic, self.request.subscription or "")
        codes = len(self.pull_filter.tag_codes or ())
        self.size_bytes = _PULL_BYTES + codes * _CODE_BYTES + 4 * sum(map(len, texts))


class _PullSet(Struct, eq=False):
    """Held pulls of one queue with one filter; no entry below ``scanned`` passes it."""

    queue: Queue
    pull_filter: PullFilter
    scanned: int
    pulls: dict[HeldPull, None] = field(default_factory=dict)


class QueueScan(NamedTuple):
    """The result of a check of new entries."""

    match: int | None
    """Offset of the first entry that passes; None if none does."""
    scanned: int
    """No entry below it passes, except ``match``."""
    is_end: bool
    """True at the end of the queue."""


class ReadOnce(Struct, eq=False):
    """The last result, which equal pulls reuse: all pulls of a queue wake together."""

    question: object = None
    result: Any = None


class _Due(NamedTuple):
    """Pulls to answer, in reverse order."""

    pulls: list[HeldPull]
    from_offset: int
    """No entry below it passes their filter."""
    must_answer: bool
    """True if they are answered even if they find nothing."""
    read: ReadOnce


class HeldPulls:
    """All held pulls of a broker. Belongs to the running event loop."""

    def __init__(
        self,
        scan: Callable[[Queue, PullFilter, int], QueueScan],
        answer: Callable[[HeldPull, int, ReadOnce], Response],
        clock: Callable[[], float],
    ) -> None:
        """``scan`` checks the entries of a queue from an offset on; ``answer`` repeats a pull, of
        which no entry below the offset passes the filter. ``clock`` is monotonic, in seconds.
        """
        self.scan: Final = scan
        self.answer = answer
        self.queues: Final[dict[Queue, dict[PullFilter, _PullSet]]] = {}
        self.count = self.kept_bytes = 0
        self.not_held = 0
        """Number of pulls that exceeded a bound."""
        self._clock: Final = clock
        self._groups: Final[dict[str, dict[HeldPull, None]]] = {}
        self._channels: Final[dict[Channel, dict[HeldPull, None]]] = {}
        self._ticks: Final[dict[int, dict[HeldPull, None]]] = {}
        """By the tick at which their time is over."""
        self._arrived: Final[deque[Queue]] = deque()
        """Queues with new entries."""
        self._has_arrived: Final[set[Queue]] = set()
        self._looking: Final[deque[_PullSet]] = deque()
        """Pulls of these queues, which are being checked."""
        self._due: Final[deque[_Due]] = deque()
        self._behind: list[tuple[HeldPull, int]] = []
        """Pulls that are due, while their client does not read."""
        self._is_scheduled = self._is_stopping = False

    def hold(self, pull: HeldPull, timeout_s: float) -> bool:
        """Hold a pull whose offset is the end of its queue; return False if a bound is reached."""
        of_channel = self._channels.get(pull.channel, ())
        if (
            self._is_stopping
            or self.kept_bytes + pull.size_bytes > MAX_HELD_PULLS_BYTES
            or len(of_channel) >= MAX_HELD_PULLS_OF_CONNECTION
        ):
            self.not_held += 1
            return False
        self.count += 1
        self.kept_bytes += pull.size_bytes
        pull.is_held = True
        pull.tick = int((self._clock() + min(timeout_s, MAX_SUSPEND_S)) / TICK_S) + 1
        self._add_to_queue(pull)
        self._groups.setdefault(pull.request.consumer_group, {})[pull] = None
        self._channels.setdefault(pull.channel, {})[pull] = None
        self._ticks.setdefault(pull.tick, {})[pull] = None
        pull.channel.set_aside(pull.command)
        return True

    def on_entry(self, queue: Queue) -> None:
        """Check a queue with a new entry, in the next turn of the event loop."""
        if queue not in self._has_arrived:
            self._has_arrived.add(queue)
            self._arrived.append(queue)
            self._schedule()

    def tick(self) -> None:
        """Answer the pulls whose time is over. Call it every `TICK_S`."""
        now_tick = int(self._clock() / TICK_S)
        for tick in [each for each in self._ticks if each <= now_tick]:
            self._make_due(self._ticks.pop(tick))
        behind, self._behind = self._behind, []
        for pull, from_offset in behind:
            self._make_due({pull: None}, from_offset)

    def on_topic_change(self, topic: str) -> None:
        """Answer the pulls of a topic that was changed or deleted. O(queues with pulls)."""
        for queue, pull_sets in self.queues.items():
            if queue[0] == topic:
                for pull_set in pull_sets.values():
                    self._make_due(pull_set.pulls)

    def on_group_change(self, group: str) -> None:
        self._make_due(self._groups.get(group, {}))

    def on_close(self, channel: Channel) -> None:
        self._make_due(self._channels.get(channel, {}))

    async def answer_all(self) -> None:
        """Answer all pulls, and refuse to hold others from now on."""
        self._is_stopping = True
        for pulls in self._channels.values():
            self._make_due(pulls)
        while self._due:  # noqa: ASYNC110 - `_take_turn` answers them
            await asyncio.sleep(0)

    def _make_due(
        self, pulls: dict[HeldPull, None], from_offset: int = 0, *, must_answer: bool = True
    ) -> None:
        if pulls:
            self._due.append(_Due(list(reversed(pulls)), from_offset, must_answer, ReadOnce()))
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Work for a few milliseconds; continue in the next turn of the loop if there is more."""
        ends_at = perf_counter() + limits.MAX_PIECE_S
        try:
            while self._has_work():
                if self._due:
                    self._answer_one(self._due[0])
                elif self._looking:
                    self._look_at(self._looking.popleft())
                else:
                    queue = self._arrived.popleft()
                    self._has_arrived.remove(queue)
                    self._looking.extend(self.queues.get(queue, {}).values())
                if perf_counter() >= ends_at:
                    break
        finally:
            self._is_scheduled = False
            if self._has_work():
                self._schedule()

    def _has_work(self) -> bool:
        return bool(self._due or self._looking or self._arrived)

    def _look_at(self, pull_set: _PullSet) -> None:
        if not pull_set.pulls:
            return
        match, pull_set.scanned, is_end = self.scan(
            pull_set.queue, pull_set.pull_filter, pull_set.scanned
        )
        if match is not None:
            self._make_due(pull_set.pulls, match, must_answer=False)
            self._forget(pull_set)
        elif not is_end:
            self._looking.append(pull_set)

    def _answer_one(self, due: _Due) -> None:
        pull = due.pulls.pop()
        if not due.pulls:
            self._due.popleft()
        if not pull.is_held:
            return
        if not pull.channel.is_open:
            self._release(pull)
        elif pull.channel.is_behind:
            self._behind.append((pull, due.from_offset))
        else:
            scanned = (
                pull.pull_set.scanned if pull.pull_set and due.must_answer else due.from_offset
            )
            response = self.answer(pull, scanned, due.read)
            if due.must_answer or response.code != ResponseCode.PULL_NOT_FOUND:
                self._release(pull)
                pull.channel.respond_late(pull.command, response)
            else:
                self._add_to_queue(pull)

    def _add_to_queue(self, pull: HeldPull) -> None:
        queue = pull.request.topic, pull.request.queue_id
        pull_sets = self.queues.setdefault(queue, {})
        pull_set = pull_sets.get(pull.pull_filter)
        if pull_set is None:
            pull_set = pull_sets[pull.pull_filter] = _PullSet(
                queue, pull.pull_filter, pull.request.queue_offset
            )
        pull_set.pulls[pull] = None
        pull.pull_set = pull_set

    def _forget(self, pull_set: _PullSet) -> None:
        """Remove a set, so that later pulls with its filter form a new one."""
        pull_sets = self.queues.get(pull_set.queue, {})
        if pull_sets.get(pull_set.pull_filter) is pull_set:
            del pull_sets[pull_set.pull_filter]
            if not pull_sets:
                del self.queues[pull_set.queue]

    def _release(self, pull: HeldPull) -> None:
        pull.is_held = False
        self.count -= 1
        self.kept_bytes -= pull.size_bytes
        pull_set = pull.pull_set
        if pull_set is not None:
            pull_set.pulls.pop(pull, None)
            if not pull_set.pulls:
                self._forget(pull_set)
        _remove(self._groups, pull.request.consumer_group, pull)
        _remove(self._channels, pull.channel, pull)
        _remove(self._ticks, pull.tick, pull)


def _remove(table: dict[K, dict[HeldPull, None]], key: K, pull: HeldPull) -> None:
    pulls = table.get(key)
    if pulls is not None:
        pulls.pop(pull, None)
        if not pulls:
            del table[key]
