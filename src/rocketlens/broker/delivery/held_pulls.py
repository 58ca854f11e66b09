"""Pulls that wait for messages.

A pull that allows it (``sysFlag`` 2) and finds itself at the end of its queue is held instead of
answered. It is done again, and answered,

* when an entry that passes its filter is appended to its queue;
* when its time is over;
* when its topic, its group or its group's subscriptions change, or the broker stops.

If its connection ends it is dropped. Held pulls of one queue that have the same filter are looked
at together, so an append costs nothing but a look whether there are any, however many there are,
and new entries are compared with each filter once. Those that want the same messages get what was
read for the first of them. All work is done in turns of a few milliseconds.
Source: ``PullRequestHoldService``, which looks at the time every five seconds.
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
"""Seconds that a pull waits for messages. RocketMQ: any; its clients ask for 15 or 20."""
MAX_HELD_PULLS_OF_CONNECTION: Final = 10_000
"""Pulls of one connection that wait for messages; more are answered at once. RocketMQ: any."""
MAX_HELD_PULLS_BYTES: Final = 256 * 1024 * 1024
"""Memory for pulls that wait for messages: 120,000 of the usual ones. RocketMQ: no limit."""
TICK_S: Final = 0.2
"""A held pull is answered about so long after its time is over, at most."""

_PULL_BYTES: Final = 2_000
"""Memory of a held pull, without the characters and codes of its subscription."""
_CODE_BYTES: Final = 100

K = TypeVar("K")

Queue = tuple[str, int]


class PullFields(NamedTuple):
    """The fields of a pull's header that the broker reads.

    A named tuple of these alone: the whole header takes four times as long to make.
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
        """Read the header of a pull.

        :raises FieldError: as :meth:`HeaderCodec.decode`, for these fields.
        """
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
    alike: "_Alike | None" = None

    def __post_init__(self) -> None:
        """Keep nothing twice, and estimate what is kept."""
        self.command = self.command._replace(ext_fields={}, body=b"")
        texts = (self.request.consumer_group, self.request.topic, self.request.subscription or "")
        codes = len(self.pull_filter.tag_codes or ())
        self.size_bytes = _PULL_BYTES + codes * _CODE_BYTES + 4 * sum(map(len, texts))


class _Alike(Struct, eq=False):
    """The held pulls of one queue that have one filter, and up to where no entry passes it."""

    queue: Queue
    pull_filter: PullFilter
    scanned: int
    pulls: dict[HeldPull, None] = field(default_factory=dict)


class QueueScan(NamedTuple):
    """The result of a look at new entries of a queue."""

    match: int | None
    """Offset of the first entry that passes."""
    scanned: int
    """No entry below it passes, but for that one."""
    is_end: bool
    """Whether there are no more entries."""


class ReadOnce(Struct, eq=False):
    """The last result, reused by pulls that woke together and ask exactly the same.

    All pulls of a queue wake at once, and mostly want the same messages.
    """

    question: object = None
    result: Any = None


class _Due(NamedTuple):
    """Pulls to answer, in reverse order."""

    pulls: list[HeldPull]
    from_offset: int
    """No entry below it passes their filter."""
    must_answer: bool
    """Whether they are answered even if they find nothing."""
    read: ReadOnce


class HeldPulls:
    """All held pulls of a broker; belongs to the running event loop."""

    def __init__(
        self,
        scan: Callable[[Queue, PullFilter, int], QueueScan],
        answer: Callable[[HeldPull, int, ReadOnce], Response],
        clock: Callable[[], float],
    ) -> None:
        """Hold none yet.

        ``scan`` looks at the entries of a queue from an offset on; ``answer`` does a pull again, of
        which no entry below the offset passes the filter. ``clock`` is monotonic, in seconds.
        """
        self.scan: Final = scan
        self.answer = answer
        self.queues: Final[dict[Queue, dict[PullFilter, _Alike]]] = {}
        self.count = self.kept_bytes = self.not_held = 0
        """How many there are, what they take in memory, and how many found no room so far."""
        self._clock: Final = clock
        self._groups: Final[dict[str, dict[HeldPull, None]]] = {}
        self._channels: Final[dict[Channel, dict[HeldPull, None]]] = {}
        self._ticks: Final[dict[int, dict[HeldPull, None]]] = {}
        """By when their time is over."""
        self._arrived: Final[deque[Queue]] = deque()
        """Queues with new entries."""
        self._has_arrived: Final[set[Queue]] = set()
        self._looking: Final[deque[_Alike]] = deque()
        """Those of the queues that are being looked at."""
        self._due: Final[deque[_Due]] = deque()
        self._behind: list[tuple[HeldPull, int]] = []
        """Pulls that are due, and whose peer does not read now."""
        self._is_scheduled = self._is_stopping = False

    def hold(self, pull: HeldPull, timeout_s: float) -> bool:
        """Hold a pull whose offset is the end of its queue; return False if there is no room."""
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

    def arrived(self, queue: Queue) -> None:
        """Check a queue that got an entry, in the next turn of the event loop."""
        if queue not in self._has_arrived:
            self._has_arrived.add(queue)
            self._arrived.append(queue)
            self._schedule()

    def tick(self) -> None:
        """Answer the pulls whose time is over; called every `TICK_S`."""
        now_tick = int(self._clock() / TICK_S)
        for tick in [each for each in self._ticks if each <= now_tick]:
            self._make_due(self._ticks.pop(tick))
        behind, self._behind = self._behind, []
        for pull, from_offset in behind:
            self._due.append(_Due([pull], from_offset, must_answer=True, read=ReadOnce()))
        if self._due:
            self._schedule()

    def topic_changed(self, topic: str) -> None:
        """Answer the pulls of a topic that was changed or deleted. O(queues with pulls)."""
        for queue, alikes in self.queues.items():
            if queue[0] == topic:
                for alike in alikes.values():
                    self._make_due(alike.pulls)

    def group_changed(self, group: str) -> None:
        """Answer the pulls of a group that changed, or whose subscriptions did."""
        self._make_due(self._groups.get(group, {}))

    def closed(self, channel: Channel) -> None:
        """Drop the pulls of a connection that ended."""
        self._make_due(self._channels.get(channel, {}))

    async def answer_all(self) -> None:
        """Answer all pulls, and hold none from now on."""
        self._is_stopping = True
        for pulls in self._channels.values():
            self._make_due(pulls)
        while self._due:  # noqa: ASYNC110 - their turns are waited for
            await asyncio.sleep(0)

    def _make_due(self, pulls: dict[HeldPull, None]) -> None:
        if pulls:
            self._due.append(_Due(list(reversed(pulls)), 0, must_answer=True, read=ReadOnce()))
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

    def _look_at(self, alike: _Alike) -> None:
        """Compare new entries of a queue with one filter."""
        if not alike.pulls:
            return
        match, alike.scanned, is_end = self.scan(alike.queue, alike.pull_filter, alike.scanned)
        if match is not None:
            self._due.append(
                _Due(list(reversed(alike.pulls)), match, must_answer=False, read=ReadOnce())
            )
            self._forget(alike)
        elif not is_end:
            self._looking.append(alike)

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
            scanned = pull.alike.scanned if pull.alike and due.must_answer else due.from_offset
            response = self.answer(pull, scanned, due.read)
            if due.must_answer or response.code != ResponseCode.PULL_NOT_FOUND:
                self._release(pull)
                pull.channel.respond_late(pull.command, response)
            else:
                self._add_to_queue(pull)

    def _add_to_queue(self, pull: HeldPull) -> None:
        queue = pull.request.topic, pull.request.queue_id
        alikes = self.queues.setdefault(queue, {})
        alike = alikes.get(pull.pull_filter)
        if alike is None:
            alike = alikes[pull.pull_filter] = _Alike(
                queue, pull.pull_filter, pull.request.queue_offset
            )
        alike.pulls[pull] = None
        pull.alike = alike

    def _forget(self, alike: _Alike) -> None:
        """Let pulls that are held from now on check entries on their own."""
        alikes = self.queues.get(alike.queue, {})
        if alikes.get(alike.pull_filter) is alike:
            del alikes[alike.pull_filter]
            if not alikes:
                del self.queues[alike.queue]

    def _release(self, pull: HeldPull) -> None:
        pull.is_held = False
        self.count -= 1
        self.kept_bytes -= pull.size_bytes
        alike = pull.alike
        if alike is not None:
            alike.pulls.pop(pull, None)
            if not alike.pulls:
                self._forget(alike)
        _remove(self._groups, pull.request.consumer_group, pull)
        _remove(self._channels, pull.channel, pull)
        _remove(self._ticks, pull.tick, pull)


def _remove(table: dict[K, dict[HeldPull, None]], key: K, pull: HeldPull) -> None:
    pulls = table.get(key)
    if pulls is not None:
        pulls.pop(pull, None)
        if not pulls:
            del table[key]
