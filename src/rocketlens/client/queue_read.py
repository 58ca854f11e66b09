"""Reads the part of a queue that was stored between two times, from its newest end.

So whoever wants the newest messages need not wait for the rest, and a queue is read for as long
only as what it has can still be kept. What a broker says is bounded:

======================================  =========================================================
the broker                              then
======================================  =========================================================
has more than an answer can hold        the rest is left out, and the answer says so
gives messages of other times, or       the rest is not read, which makes the answer incomplete
nothing at place after place
appends meanwhile                       what came after the question was asked is not read
======================================  =========================================================
"""

from dataclasses import dataclass

from rocketlens import limits
from rocketlens.client.cluster import ClusterCalls, fields_of
from rocketlens.client.pull import pull
from rocketlens.client.records import Page, add_damage
from rocketlens.client.route import MessageQueue
from rocketlens.query.answer_builder import Findings
from rocketlens.query.verify import MessageFilter
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.offset import (
    GET_MAX_OFFSET,
    SEARCH_OFFSET_BY_TIMESTAMP,
    GetMaxOffsetRequest,
    SearchOffsetRequest,
)


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
) -> None:
    """Add the messages that match and were stored from ``begin`` to ``end``.

    These are epoch milliseconds, by default the times of the filter; messages around them are
    looked at, too. O(messages between), or less if not all of them can be held.

    :raises BrokerError: when the broker will not.
    :raises RemotingError: when there is no answer.
    """
    reader = _Reader(cluster, address, queue, message_filter, findings, damage)
    low_ms = message_filter.begin if begin is None else begin
    await reader.read(max(low_ms or 0, 1), message_filter.end if end is None else end)


@dataclass(slots=True)
class _Reader:
    cluster: ClusterCalls
    address: str
    queue: MessageQueue
    message_filter: MessageFilter
    findings: Findings
    damage: list[str]
    read_bytes: int = 0
    empty_pulls: int = 0
    is_over: bool = False
    """Whether nothing more is read, whatever the reason."""

    async def read(self, begin: int, end: int) -> None:
        """Read both ways from about where ``end`` is: clocks make queues a little disordered."""
        # Of several messages in one millisecond the broker may find any; of the one before, none
        # matches.
        low = await self._search(begin - 1)
        stop = await self._max_offset()
        top = stop if end >= limits.MAX_TIMESTAMP_MS else min(stop, await self._search(end + 1))
        await self._read_on(top, stop, end)
        step = limits.MAX_PULL_MESSAGES
        while top > low and not self.is_over:
            bottom = max(low, top - step)
            page, begins_at = await self._read_between(bottom, top)
            if page.records:
                step = limits.MAX_PULL_MESSAGES
                self.is_over |= self.findings.is_past(page.most_ms)
            else:
                step = min(2 * step, limits.MAX_EMPTY_STEP)
            low = max(low, begins_at)
            top = bottom

    async def _read_on(self, offset: int, stop: int, end: int) -> None:
        """Read behind the place of a time until nothing there is older than that."""
        while offset < stop and not self.is_over:
            page, next_offset, _ = await self._pull(offset)
            if next_offset <= offset or (page.records and page.least_ms > end):
                return
            offset = next_offset

    async def _read_between(self, bottom: int, top: int) -> tuple[Page, int]:
        """Read ``[bottom, top)``; return all of it as one page, and where the queue begins."""
        count, most_ms, begins_at = 0, 0, 0
        offset = bottom
        while offset < top and not self.is_over:
            page, next_offset, begins_at = await self._pull(offset)
            most_ms = max(most_ms, page.most_ms) if count else page.most_ms
            count += page.records
            if next_offset <= offset:
                break
            offset = next_offset
        return Page(records=count, most_ms=most_ms), begins_at

    async def _pull(self, offset: int) -> tuple[Page, int, int]:
        """Add what an answer has; return it, where to go on, and where the queue begins."""
        pulled = await pull(
            self.cluster,
            self.address,
            self.queue,
            offset,
            message_filter=self.message_filter,
            findings=self.findings,
            damage=self.damage,
        )
        page = pulled.page
        self.empty_pulls = 0 if page.records else self.empty_pulls + 1
        self.read_bytes += page.held_bytes
        if self.empty_pulls > limits.MAX_EMPTY_PULLS:
            self._give_up(f"nothing at {self.empty_pulls} places in a row")
        elif self.read_bytes > 2 * limits.MAX_ANSWER_BYTES:
            self._give_up("more than an answer can hold, of other times or again and again")
        begins_at = 0
        if pulled.code == ResponseCode.PULL_OFFSET_MOVED and pulled.next_offset > offset:
            begins_at = pulled.next_offset
        return page, pulled.next_offset, begins_at

    def _give_up(self, what: str) -> None:
        self.is_over = True
        if self.findings.messages.truncated:
            return
        add_damage(self.damage, f"{self.queue}: {self.address} gives {what}: it is not read on")

    async def _search(self, timestamp_ms: int) -> int:
        header = SearchOffsetRequest(
            topic=self.queue.topic, queue_id=self.queue.queue_id, timestamp_ms=timestamp_ms
        )
        found = await self.cluster.ask(self.address, SEARCH_OFFSET_BY_TIMESTAMP, header)
        return fields_of(self.address, SEARCH_OFFSET_BY_TIMESTAMP, found).queue_offset

    async def _max_offset(self) -> int:
        header = GetMaxOffsetRequest(topic=self.queue.topic, queue_id=self.queue.queue_id)
        found = await self.cluster.ask(self.address, GET_MAX_OFFSET, header)
        return fields_of(self.address, GET_MAX_OFFSET, found).queue_offset
