"""Reads the part of a queue that was stored between two times, newest messages first.

So a caller that needs only the newest messages does not wait for the rest, and a queue is read only
until the answer is full. Responses of a broker are bounded:

======================================  =========================================================
case                                    consequence
======================================  =========================================================
more than an answer can hold            the rest is dropped, and the answer says so
messages of other times, or             the rest is not read, which makes the answer incomplete
no message at many offsets in a row
messages appended meanwhile             are not read
======================================  =========================================================

A broker finds a time in a queue by halves, which needs store times to rise. They do not if its
clock was set back, and no broker can tell whether it was. So more is read than what it found:

======================================  =========================================================
of the queue                            then
======================================  =========================================================
what lies around the part that was      read until all of a pull is of other times, by more than
found                                   the clock went back in what was read
512 messages beyond that, or less       all of them are read
more than that                          samples of it are read, at distances that grow by one
                                        factor, and where their times go back those between. If
                                        one is on the wrong side, the answer is incomplete; else
                                        it names the order that it relies on
======================================  =========================================================

All queues of a broker have one clock, so they share the samples, each at distances of its own. An
exhaustive search reads whole queues, and relies on no order.

`QueueReader.read_in_order` reads the same from the oldest message on, for a caller that takes each
pull before the next one, and so needs no bound on all of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.queue_puller import Pulled, PullStatus, add_damage, tools_puller
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.queue_offsets import max_offset, min_offset, offset_at_time
from rocketlens.client.search.records import Page, joined, take_page_in_turn
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.message_filter import MessageFilter

RISING_TIMES: Final = Sentence("rising_queues")
"""What a search by time relies on where it did not read the whole queue."""
_GOLDEN: Final = 0.618034
"""However many of its multiples are taken, what they have behind the point is spread evenly."""


async def read_queue(
    cluster: ClusterCalls,
    address: str,
    queue: MessageQueue,
    *,
    message_filter: MessageFilter,
    findings: Findings,
    damage: list[str],
    begin: int | None = None,
    end: int | None = None,
    queue_count: int = 1,
    exhaustive: bool = False,
) -> bool:
    """Add matching messages that were stored from ``begin`` to ``end``.

    These are epoch milliseconds, by default the times of the filter; messages around them are read,
    too. O(messages between), or less if the answer cannot hold all of them; with ``exhaustive``
    O(messages of the queue). ``queue_count`` is how many of the topic's queues the broker has.

    Return whether what was found relies on `RISING_TIMES`.

    :raises BrokerError: if the broker refuses.
    :raises RemotingError: if there is no response.
    """
    samples = max(limits.MIN_ORDER_SAMPLES, limits.MAX_ORDER_SAMPLES // max(queue_count, 1))
    reader = QueueReader(
        cluster, address, queue, message_filter, findings, damage, samples, exhaustive
    )
    low_ms = message_filter.begin if begin is None else begin
    await reader.read(low_ms or 0, message_filter.end if end is None else end)
    return reader.relies_on_order


@dataclass(slots=True)
class QueueReader:
    """Reads one queue of a broker at one address, once."""

    cluster: ClusterCalls
    address: str
    queue: MessageQueue
    message_filter: MessageFilter
    findings: Findings
    damage: list[str]
    samples: int
    exhaustive: bool
    on_pull: Callable[[int, int], Awaitable[None]] | None = None
    """Takes what a pull added when a queue is read in order: the offset behind it, and the store
    time that all later messages have at least, as far as what was read shows.
    """
    pull_count: Callable[[], int] | None = None
    """Returns how many messages to pull at once, if not as many as a broker gives."""
    relies_on_order: bool = False
    set_back_ms: int = 0
    """By how much, at most, store times went back in what was read."""
    read_bytes: int = 0
    empty_pulls: int = 0
    is_over: bool = False
    """Whether reading has ended, for any reason."""

    async def read(self, begin: int, end: int) -> None:
        """Read both ways from about where ``end`` is, and look at what is left on both sides."""
        first, low, top, stop = await self._edges(begin, end)
        after = await self._read_up(top, stop, end, top)
        newer = (after + distance for distance in self._distances(stop - after))
        await self._sample(newer, lambda stored_ms: stored_ms <= end)
        before = await self._read_down(top, low, first, begin)
        older = (before - 1 - distance for distance in self._distances(before - first))
        await self._sample(older, lambda stored_ms: stored_ms >= begin)

    async def read_in_order(self, begin: int, end: int, start: int | None = None) -> None:
        """Read from about where ``begin`` is to ``end``, each pull after `on_pull` took the one
        before; ``start``: what is before that offset was read from another broker.

        What the clock went back for is out of order: it is added when it is found.
        """
        async with self.cluster.turn(self.address):
            first, low, top, stop = await self._edges(begin, end)
        if start is None:
            before = await self._read_down(low, low, first, begin)
        else:
            before = low
            low = min(max(low, start), stop)
        set_back_ms = self.set_back_ms
        after = await self._read_up(low, stop, end, max(low, top))
        if self.set_back_ms > set_back_ms and start is None:
            before = await self._read_down(before, before, first, begin)
        newer = (after + distance for distance in self._distances(stop - after))
        await self._sample(newer, lambda stored_ms: stored_ms <= end)
        older = (before - 1 - distance for distance in self._distances(before - first))
        await self._sample(older, lambda stored_ms: stored_ms >= begin)

    async def _edges(self, begin: int, end: int) -> tuple[int, int, int, int]:
        """Return where the queue and, within it, the times begin and end, asked for all at once."""
        is_from = begin > 0 and not self.exhaustive
        is_to = end < limits.MAX_TIMESTAMP_MS and not self.exhaustive
        calls = [max_offset(self.cluster, self.address, self.queue)]
        # A broker may return any of several messages in one millisecond; none of the
        # millisecond before matches.
        if is_from:
            calls += [min_offset(self.cluster, self.address, self.queue), self._at_time(begin - 1)]
        if is_to:
            calls.append(self._at_time(end + 1))
        stop, *offsets = await asyncio.gather(*calls)
        top = min(offsets.pop(), stop) if is_to else stop
        first, low = offsets if is_from else (0, 0)
        first = min(first, stop)
        low = min(max(first, low), stop)
        return first, low, max(low, top), stop

    async def _read_up(self, offset: int, stop: int, end: int, top: int) -> int:
        """Read on to ``top``, and until all of a pull is newer than ``end``; return the offset
        behind it.

        That is ``stop`` if there is not much more.
        """
        most_ms = 0
        while offset < stop and not self.is_over:
            page, next_offset, _ = await self._pull(offset, stop - offset)
            if next_offset <= offset:
                break
            offset = next_offset
            if page.records:
                set_back_ms = max(page.set_back_ms, most_ms - page.least_ms)
                self.set_back_ms = max(self.set_back_ms, set_back_ms)
                most_ms = max(most_ms, page.most_ms)
            if self.on_pull is not None:
                await self.on_pull(offset, most_ms - self.set_back_ms)
            is_newer = page.records and page.least_ms > end + self.set_back_ms
            if is_newer and offset >= top and stop - offset > limits.MAX_AROUND_MESSAGES:
                return offset
        return stop

    async def _read_down(self, top: int, low: int, first: int, begin: int) -> int:
        """Read from ``low`` to ``top``, from its end, and on until a pull is older than ``begin``.

        Return the offset down to which it was read: ``first`` if there is not much more, or if
        what there is would be left out.
        """
        step = limits.MAX_PULL_MESSAGES
        least_ms = limits.MAX_TIMESTAMP_MS
        while top > first and not self.is_over:
            is_around = top <= low
            bottom = max(first if is_around else low, top - step)
            page, begins_at = await self._read_between(bottom, top)
            first, low, top = max(first, begins_at), max(low, begins_at), bottom
            if not page.records:
                step = min(2 * step, limits.MAX_EMPTY_STEP)
                continue
            step = limits.MAX_PULL_MESSAGES
            self.set_back_ms = max(self.set_back_ms, page.set_back_ms, page.most_ms - least_ms)
            least_ms = min(least_ms, page.least_ms)
            if self.findings.is_past(page.most_ms) and not self.exhaustive:
                self.relies_on_order |= top > first
                return first
            is_older = is_around and page.most_ms < begin - self.set_back_ms
            if is_older and top - first > limits.MAX_AROUND_MESSAGES:
                return top
        return first

    async def _read_between(self, bottom: int, top: int) -> tuple[Page, int]:
        """Read ``[bottom, top)``; return all of it as one page, and the queue's minimum offset."""
        pages: list[Page] = []
        begins_at = 0
        offset = bottom
        while offset < top and not self.is_over:
            page, next_offset, begins_at = await self._pull(offset, top - offset)
            if page.records:
                pages.append(page)
            if next_offset <= offset:
                break
            offset = next_offset
        return joined(pages), begins_at

    def _distances(self, count: int) -> Iterable[int]:
        """Return which of ``count`` messages are samples, the furthest among them."""
        if count <= 0:
            return ()
        nearest = min(limits.MAX_PULL_MESSAGES, count)
        phase = self.queue.queue_id * _GOLDEN % 1
        factor = count / nearest
        grown = {
            int(nearest * factor ** ((number + phase) / self.samples))
            for number in range(self.samples)
        }
        return {min(each, count - 1) for each in grown} | {count - 1}

    async def _sample(self, offsets: Iterable[int], is_misplaced: Callable[[int], bool]) -> None:
        """Read single messages; one whose store time is misplaced makes the answer incomplete.

        Where the times of two go back, the messages between which they do are read, too.
        """
        chosen = [] if self.is_over else sorted(offsets)
        times: dict[int, int] = {}

        async def look(offset: int) -> None:
            page, _ = await self._ask(offset, 1)
            if page.records:
                times[offset] = page.least_ms

        for start in range(0, len(chosen), limits.MAX_MESSAGE_ANSWERS):
            await asyncio.gather(*map(look, chosen[start : start + limits.MAX_MESSAGE_ANSWERS]))
        self.relies_on_order |= bool(chosen)
        for before, after in pairwise(sorted(times)):
            low, high = before, after
            while times[low] > times[high] and high - low > 1:
                middle = (low + high) // 2
                await look(middle)
                if times.get(middle, times[high]) < times[low]:
                    times.setdefault(middle, times[high])
                    high = middle
                else:
                    low = middle
        misplaced = [offset for offset, stored_ms in times.items() if is_misplaced(stored_ms)]
        if misplaced:
            add_damage(
                self.damage,
                f"{self.queue}: store times are not in order, as of a clock that was set back: "
                f"queue offset {misplaced[0]} has {times[misplaced[0]]}. Messages of the time "
                "range may be anywhere in the queue: an exhaustive search reads all of it",
            )

    async def _pull(self, offset: int, most: int) -> tuple[Page, int, int]:
        """Add what an answer has; return it, where to go on, and where the queue begins."""
        count = limits.MAX_PULL_MESSAGES if self.pull_count is None else self.pull_count()
        page, pulled = await self._ask(offset, min(count, most))
        if pulled.gap is not None and pulled.gap not in self.damage:
            add_damage(self.damage, pulled.gap)
        self.empty_pulls = 0 if page.records else self.empty_pulls + 1
        self.read_bytes += page.held_bytes
        self.findings.add_read(page.stored_bytes, page.records)
        if self.empty_pulls > limits.MAX_EMPTY_PULLS:
            self._give_up(f"nothing at {self.empty_pulls} offsets in a row")
        elif (
            self.read_bytes > 2 * limits.MAX_ANSWER_BYTES
            and not self.exhaustive
            and self.on_pull is None
        ):
            self._give_up("more than an answer can hold, of other times or again and again")
        begins_at = 0
        if pulled.status is PullStatus.OFFSET_ILLEGAL and pulled.next_offset > offset:
            begins_at = pulled.next_offset
        return page, pulled.next_offset, begins_at

    async def _ask(self, offset: int, count: int) -> tuple[Page, Pulled]:
        async with self.cluster.turn(self.address):
            puller = tools_puller(self.cluster)
            pulled = await puller.pull(self.address, self.queue, offset, count=count)
            page = await take_page_in_turn(
                pulled.body, self.message_filter, self.findings, self.damage
            )
            return page, pulled

    def _give_up(self, what: str) -> None:
        self.is_over = True
        if self.findings.messages.truncated:
            return
        add_damage(self.damage, f"{self.queue}: {self.address} gives {what}: it is not read on")

    async def _at_time(self, timestamp_ms: int) -> int:
        return await offset_at_time(self.cluster, self.address, self.queue, timestamp_ms)
