"""Reads the part of a queue that was stored between two times, newest messages first.

Reading ends when the answer is full. It also ends, and the answer is incomplete, after more
messages of other times than an answer can hold, and after many offsets without a message.
Messages that are appended meanwhile are not read.

A broker finds a time by binary search, which needs rising store times. They do not rise if its
clock was set back, which no broker reports. So more is read than the broker's result: the messages
around it, until a whole pull is outside the times by more than the clock went back so far, and 512
more. Beyond them samples are read, at distances that grow by one factor, and the messages between
two samples whose times decrease. If a sample is on the wrong side, the answer is incomplete;
otherwise it reports the order that it relies on. All queues of a broker have one clock, so they
share the samples. An exhaustive search reads whole queues, and relies on no order.

A topic's queues on one broker are read in the order of their newest messages: the first 16 as
above. Another queue is skipped if its newest message is older than the times, or than all messages
of a full answer, by more than the clock went back in those 16. Otherwise it is read from the end of
the times back, a few messages at first, until its rest is older likewise.

`QueueReader.read_in_order` reads from the oldest message on, for a caller that takes each pull
before the next one, and so needs no bound on their total.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from rocketlens import limits
from rocketlens.client.connect.broker_calls import max_offset, min_offset, offset_at_time
from rocketlens.client.connect.cluster import MAX_MESSAGE_ANSWERS, ClusterCalls
from rocketlens.client.connect.queue_puller import (
    MAX_AROUND_MESSAGES,
    Pulled,
    PullStatus,
    add_damage,
    tools_puller,
)
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.queue_offsets import QueueEnds, queue_ends
from rocketlens.client.search.records import Page, add_page, merge_pages
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.message_filter import MessageFilter

MAX_EMPTY_STEP: Final = 16 * 1024
"""Queue offsets that a client skips at once in an empty part of a queue."""
MAX_EMPTY_PULLS: Final = 1_000
"""Consecutive pulls without a message after which reading ends: 16 million offsets."""
MAX_ORDER_SAMPLES: Final = 64
"""Messages on either side that a search by time samples, of all queues of a topic on a broker.

Their distances grow by one factor: 1.18 in a queue of a million. So misplaced messages are missed
only if six times as many are between them and the result.
"""
MIN_ORDER_SAMPLES: Final = 4
"""The minimum for each sampled queue; of many queues, the 16 newest are sampled."""
RISING_TIMES: Final = Sentence("rising_queues")
"""The assumption of a search by time, unless it read the whole queue."""
_AT_ONCE: Final = 4
_FIRST_STEP: Final = 4
"""Messages that are read first of one of many queues: few of them are in the answer."""
_GOLDEN: Final = 0.618034
"""The fractions of its multiples are spread evenly, for any number of multiples."""


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

    These are epoch milliseconds, by default the times of the filter; surrounding messages are read,
    too. O(messages between), or less if the answer is full; with ``exhaustive`` O(messages of the
    queue). ``queue_count`` is the number of the topic's queues on the broker.

    Return True if the result relies on `RISING_TIMES`.
    """
    samples = max(MIN_ORDER_SAMPLES, MAX_ORDER_SAMPLES // max(queue_count, 1))
    reader = QueueReader(
        cluster, address, queue, message_filter, findings, damage, samples, exhaustive
    )
    low_ms = message_filter.begin if begin is None else begin
    await reader.read(low_ms or 0, message_filter.end if end is None else end)
    return reader.relies_on_order


async def read_queues(
    cluster: ClusterCalls,
    address: str,
    queues: Sequence[MessageQueue],
    *,
    message_filter: MessageFilter,
    findings: Findings,
    damage: list[str],
    exhaustive: bool = False,
) -> bool:
    """Add matching messages of the queues of one topic, those with the newest message first.

    Returns and raises as `read_queue`. One request, one more for each queue with a message newer
    than the filter's begin, and O(queues that can add to the answer).
    """
    if not queues:
        return False
    ends = await queue_ends(cluster, address, queues[0].topic)
    samples = max(MIN_ORDER_SAMPLES, MAX_ORDER_SAMPLES // len(queues))
    readers = [
        QueueReader(
            *(cluster, address, queue, message_filter, findings, damage, samples, exhaustive),
            ends=ends.get(queue.queue_id),
        )
        for queue in queues
    ]
    readers.sort(key=lambda each: (each.ends and each.ends.newest_ms) or 0, reverse=True)
    begin, end = message_filter.begin or 0, message_filter.end
    first, others = readers, []
    if not exhaustive:
        count = MAX_ORDER_SAMPLES // MIN_ORDER_SAMPLES
        first, others = readers[:count], readers[count:]

    async def read(reader: QueueReader) -> None:
        if reader.ends is None or reader.ends.stop > 0:
            await reader.read(begin, end)

    # The first one alone: it may fill the answer, so others need not be read to their end.
    await read(first[0])
    await _for_each(first[1:], read)
    set_back_ms = max(each.set_back_ms for each in first)

    async def read_newest(reader: QueueReader) -> None:
        reader.set_back_ms = set_back_ms
        ends = reader.ends
        if ends is None or ends.newest_ms is None:
            await reader.read_newest(begin, end)
        elif reader.cannot_contribute(ends.newest_ms, begin):
            reader.relies_on_order = True
        else:
            await reader.read_newest(begin, end)

    await _for_each(others, read_newest)
    return any(each.relies_on_order for each in readers)


async def _for_each(
    readers: Sequence["QueueReader"], read: Callable[["QueueReader"], Awaitable[None]]
) -> None:
    """Read queues, several at once; the first error ends all."""
    rest = iter(readers)

    async def work() -> None:
        for reader in rest:
            await read(reader)

    tasks = [asyncio.create_task(work()) for _ in readers[:_AT_ONCE]]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class QueueReader(Struct):
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
    """Receives each pull of a queue that is read in order: the next offset, and the lower bound of
    all later store times, as far as known.
    """
    pull_count: Callable[[], int] | None = None
    """Returns the number of messages to pull at once; None for the maximum."""
    ends: QueueEnds | None = None
    relies_on_order: bool = False
    set_back_ms: int = 0
    """The largest decrease of store times so far."""
    read_bytes: int = 0
    empty_pulls: int = 0
    is_over: bool = False
    """True if reading has ended, for any reason."""
    begins_at: int = 0
    """An offset before which the queue has no messages."""

    async def read(self, begin: int, end: int) -> None:
        """Read both ways from about ``end``, and sample the rest on both sides."""
        first, low, top, stop = await self._edges(begin, end)
        await self._sample_newer(await self._read_up(top, stop, end, top), stop, end)
        before = await self._read_down(top, low, first, begin)
        await self._sample_older(max(first, self.begins_at), before, begin)

    async def read_newest(self, begin: int, end: int) -> None:
        """Read only what the answer can need, relying on the order of store times.

        It is used for queues of a broker whose order other queues have shown.
        """
        first, top, stop = await self._top(begin, end)
        step = _FIRST_STEP
        if top < stop:
            # RocketMQ 4 returns the nearest message, which can be within the times.
            top = min(top + _FIRST_STEP, stop)
            step = 2 * _FIRST_STEP
            self.relies_on_order |= top < stop
        while top > first and not self.is_over:
            bottom = max(first, top - step)
            page = await self._read_between(bottom, top)
            first, top = max(first, self.begins_at), bottom
            step = min(2 * step, limits.MAX_PULL_MESSAGES if page.records else MAX_EMPTY_STEP)
            if page.records:
                self.set_back_ms = max(self.set_back_ms, page.set_back_ms)
                if self.cannot_contribute(page.least_ms, begin):
                    self.relies_on_order |= top > first
                    break

    def cannot_contribute(self, newest_ms: int, begin: int) -> bool:
        """Return True if the answer cannot have messages up to this time plus `set_back_ms`."""
        newest_ms += self.set_back_ms
        return newest_ms < begin or self.findings.is_past(newest_ms)

    async def read_in_order(self, begin: int, end: int, start: int | None = None) -> None:
        """Read from about ``begin`` to ``end``, each pull after `on_pull` took the previous one.

        Messages before ``start`` were read from another broker. Messages that are out of order
        because a clock was set back are added when they are found.
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
        await self._sample_newer(after, stop, end)
        await self._sample_older(first, before, begin)

    async def _edges(self, begin: int, end: int) -> tuple[int, int, int, int]:
        """Return the begins of the queue and the times, and the ends of the times and the queue."""
        if begin <= 0 or self.exhaustive:
            first, top, stop = await self._top(begin, end)
            return 0, 0, top, stop
        # If several messages share a millisecond, a broker can return any of them, so the previous
        # millisecond is requested.
        (first, top, stop), low = await asyncio.gather(
            self._top(begin, end), self._at_time(begin - 1)
        )
        low = min(max(first, low), stop)
        return first, low, max(low, top), stop

    async def _top(self, begin: int, end: int) -> tuple[int, int, int]:
        """Return the begin of the queue, the end of the times in it, and the end of the queue.

        Without a ``begin``, the queue's begin is 0: a broker that compacts the topic, or uses
        tiered storage, can have older messages than its queue.
        """
        ends = self.ends
        is_from = begin > 0 and not self.exhaustive
        is_to = end < limits.MAX_TIMESTAMP_MS and not self.exhaustive
        # No request if the queue ends within the times.
        is_to &= ends is None or ends.newest_ms is None or ends.newest_ms > end
        calls = [self._at_time(end + 1)] if is_to else []
        if ends is None:
            calls.append(max_offset(self.cluster, self.address, self.queue))
            if is_from:
                calls.append(min_offset(self.cluster, self.address, self.queue))
        # Usually the broker has listed the ends: a single request needs no task.
        offsets = [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)
        top = offsets.pop(0) if is_to else limits.MAX_LONG
        first, stop = (0, offsets[0]) if ends is None else (ends.first, ends.stop)
        if ends is None and is_from:
            first = offsets[1]
        return min(first, stop) if is_from else 0, min(top, stop), stop

    async def _read_up(self, offset: int, stop: int, end: int, top: int) -> int:
        """Read to ``top``, and until a whole pull is newer than ``end``; return the next offset.

        Return ``stop`` if few messages are left.
        """
        most_ms = 0
        while offset < stop and not self.is_over:
            page, next_offset = await self._pull(offset, stop - offset)
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
            if is_newer and offset >= top and stop - offset > MAX_AROUND_MESSAGES:
                return offset
        return stop

    async def _read_down(self, top: int, low: int, first: int, begin: int) -> int:
        """Read backwards from ``top`` to ``low``, and until a pull is older than ``begin``.

        Return the lowest offset read: ``first`` if few messages are left, or the answer needs none
        of them.
        """
        step = limits.MAX_PULL_MESSAGES
        least_ms = limits.MAX_TIMESTAMP_MS
        while top > first and not self.is_over:
            is_around = top <= low
            bottom = max(first if is_around else low, top - step)
            page = await self._read_between(bottom, top)
            first, low, top = max(first, self.begins_at), max(low, self.begins_at), bottom
            if not page.records:
                step = min(2 * step, MAX_EMPTY_STEP)
                continue
            step = limits.MAX_PULL_MESSAGES
            self.set_back_ms = max(self.set_back_ms, page.set_back_ms, page.most_ms - least_ms)
            least_ms = min(least_ms, page.least_ms)
            if self.findings.is_past(page.most_ms) and not self.exhaustive:
                self.relies_on_order |= top > first
                return first
            is_older = is_around and page.most_ms < begin - self.set_back_ms
            if is_older and top - first > MAX_AROUND_MESSAGES:
                return top
        return first

    async def _read_between(self, bottom: int, top: int) -> Page:
        """Read ``[bottom, top)``; return one merged page."""
        pages: list[Page] = []
        offset = bottom
        while offset < top and not self.is_over:
            page, next_offset = await self._pull(offset, top - offset)
            if page.records:
                pages.append(page)
            if next_offset <= offset:
                break
            offset = next_offset
        return merge_pages(pages)

    def _distances(self, count: int) -> Iterable[int]:
        """Return the distances of the samples among ``count`` messages, with the furthest."""
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

    async def _sample_newer(self, after: int, stop: int, end: int) -> None:
        newer = (after + distance for distance in self._distances(stop - after))
        await self._sample(newer, lambda stored_ms: stored_ms <= end)

    async def _sample_older(self, first: int, before: int, begin: int) -> None:
        older = (before - 1 - distance for distance in self._distances(before - first))
        await self._sample(older, lambda stored_ms: stored_ms >= begin)

    async def _sample(self, offsets: Iterable[int], is_misplaced: Callable[[int], bool]) -> None:
        """Read single messages; one with a misplaced store time makes the answer incomplete.

        If the times of two samples decrease, messages between them are read by bisection.
        """
        chosen = [] if self.is_over else sorted(offsets)
        times: dict[int, int] = {}

        async def look(offset: int) -> None:
            page, _ = await self._ask(offset, 1)
            if page.records:
                times[offset] = page.least_ms

        for start in range(0, len(chosen), MAX_MESSAGE_ANSWERS):
            await asyncio.gather(*map(look, chosen[start : start + MAX_MESSAGE_ANSWERS]))
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
                f"{self.queue}: store times are not in order, maybe after a clock was set back: "
                f"queue offset {misplaced[0]} has {times[misplaced[0]]}. Messages of the time "
                "range may be anywhere in the queue: an exhaustive search reads all of it",
            )

    async def _pull(self, offset: int, most: int) -> tuple[Page, int]:
        """Add the matching messages of a pull; return the page and the next offset."""
        count = limits.MAX_PULL_MESSAGES if self.pull_count is None else self.pull_count()
        page, pulled = await self._ask(offset, min(count, most))
        if pulled.gap is not None and pulled.gap not in self.damage:
            add_damage(self.damage, pulled.gap)
        self.empty_pulls = 0 if page.records else self.empty_pulls + 1
        self.read_bytes += page.held_bytes
        self.findings.add_read(page.stored_bytes, page.records)
        if self.empty_pulls > MAX_EMPTY_PULLS:
            self._stop_early(f"nothing at {self.empty_pulls} consecutive offsets")
        elif (
            self.read_bytes > 2 * limits.MAX_ANSWER_BYTES
            and not self.exhaustive
            and self.on_pull is None
        ):
            self._stop_early("more than an answer can hold, of other times or repeatedly")
        if pulled.status is PullStatus.OFFSET_ILLEGAL and pulled.next_offset > offset:
            self.begins_at = max(self.begins_at, pulled.next_offset)
        return page, pulled.next_offset

    async def _ask(self, offset: int, count: int) -> tuple[Page, Pulled]:
        async with self.cluster.turn(self.address):
            puller = tools_puller(self.cluster)
            pulled = await puller.pull(self.address, self.queue, offset, count=count)
            page = await add_page(pulled.body, self.message_filter, self.findings, self.damage)
            return page, pulled

    def _stop_early(self, what: str) -> None:
        self.is_over = True
        if self.findings.messages.truncated:
            return
        add_damage(self.damage, f"{self.queue}: {self.address} returns {what}: reading ended")

    async def _at_time(self, timestamp_ms: int) -> int:
        return await offset_at_time(self.cluster, self.address, self.queue, timestamp_ms)
