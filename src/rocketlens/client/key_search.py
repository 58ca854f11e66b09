"""Finds all messages of a key on one broker, though a broker gives 64 at once and knows seconds.

1. Ask without any time: the index's clock is coarse, and a broker's clock may have gone back, so
   whoever names a time may miss a message. Nearly always that is all, and the times asked for are
   compared here, to the millisecond.
2. If there may be more (as many came as the broker gives at most), ask again within the times, and
   then again up to the oldest message seen, until fewer come. The index rounds times down to whole
   seconds since some moment, so ``begin`` is asked a second early.
3. More messages of one key in one second than a broker gives at once can't be told apart by time:
   that second is read from the topic's queues.

An answer over 16 MiB ends the connection (RocketMQ does not bound what it sends), or is an error
(ours does): the same is asked again for fewer messages at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rocketlens import limits
from rocketlens.client.cluster import ClusterCalls, broker_error, fields_of
from rocketlens.client.queue_read import read_queue
from rocketlens.client.records import Page, add_damage, take_page
from rocketlens.client.route import MessageQueue
from rocketlens.errors import ConnectionLost
from rocketlens.query.answer_builder import Findings
from rocketlens.query.verify import MessageFilter
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.query import NOT_SEARCHED, QUERY_MESSAGE, QueryMessageRequest

INDEX_STEP_MS: Final = 1000
KEYS_INDEX: Final = "K"
UNIQUE_KEY_INDEX: Final = "U"
OVER_THE_LIMIT: Final = "over the limit"
FEWER: Final = 8
"""By how many times fewer messages are asked for after an answer that was too large."""


@dataclass(frozen=True, slots=True)
class SearchedIndex:
    """What one broker said of its search: what was damaged, and how far its index is."""

    damage: tuple[str, ...]
    indexed_to_ms: int


@dataclass(slots=True)
class KeySearch:
    """One search on one broker; ``queues`` are the topic's there.

    The filter has the topic and the key, and decides what matches; ``findings`` takes it.
    """

    cluster: ClusterCalls
    address: str
    message_filter: MessageFilter
    findings: Findings
    queues: Iterable[MessageQueue]
    _damage: list[str] = field(default_factory=list)
    _page_messages: int = limits.MAX_QUERY_MESSAGES
    _largest_page: int = 0
    _read_bytes: int = 0
    _indexed_to_ms: int = 0

    async def run(self) -> SearchedIndex:
        """Search.

        :raises BrokerError: when the broker will not.
        :raises RemotingError: when there is no answer.
        """
        page = await self._page(0, limits.MAX_TIMESTAMP_MS)
        if self._may_be_cut(page):
            await self._search_within(self.message_filter.begin or 0, self.message_filter.end)
        return SearchedIndex(tuple(dict.fromkeys(self._damage)), self._indexed_to_ms)

    async def _search_within(self, begin: int, end: int) -> None:
        oldest_offset = None
        while end >= begin and not self.findings.is_past(end):
            if self._read_bytes > limits.MAX_READ_ANSWERS * limits.MAX_ANSWER_BYTES:
                said = f"{self.address} gives the same messages again and again: it is not read on"
                add_damage(self._damage, said)
                return
            page = await self._page(max(0, begin - INDEX_STEP_MS), end)
            if not self._may_be_cut(page):
                return
            if oldest_offset is not None and page.oldest_offset >= oldest_offset:
                # Nothing new came: all that was given is of this one step of the index.
                if page.oldest_ms > end:
                    # The index has other times than the messages, and leads nowhere.
                    await self._read_queues(begin, end)
                    return
                step_begin = page.oldest_ms - INDEX_STEP_MS + 1
                await self._read_queues(step_begin, page.oldest_ms)
                end = step_begin - 1
                oldest_offset = None
            else:
                end = min(end, page.oldest_ms)
                oldest_offset = page.oldest_offset

    async def _page(self, begin: int, end: int) -> Page:
        """Ask once, and add what matches; return what came."""
        while True:
            async with self.cluster.turn(self.address):
                answer = await self._answer(begin, end)
                if answer is not None:
                    return self._taken(answer)
            self._page_messages //= FEWER
            self._largest_page = 0

    def _taken(self, answer: RemotingCommand) -> Page:
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}:
            raise broker_error(self.address, answer)
        fields = fields_of(self.address, QUERY_MESSAGE, answer)
        self._indexed_to_ms = max(self._indexed_to_ms, fields.index_last_update_timestamp_ms)
        if NOT_SEARCHED in answer.ext_fields:
            add_damage(self._damage, answer.ext_fields[NOT_SEARCHED])
        page = take_page(answer.body, self.message_filter, self.findings, self._damage)
        self._read_bytes += page.held_bytes
        return page

    async def _answer(self, begin: int, end: int) -> RemotingCommand | None:
        """Ask for a page; None when fewer messages must be asked for."""
        is_unique_key = self.message_filter.key is None
        header = QueryMessageRequest(
            topic=self.message_filter.topic or "",
            key=self.message_filter.index_key,
            max_num=self._page_messages,
            begin_timestamp_ms=begin,
            end_timestamp_ms=end,
            is_unique_key=is_unique_key,
            index_type=UNIQUE_KEY_INDEX if is_unique_key else KEYS_INDEX,
        )
        can_be_fewer = self._page_messages > 1
        try:
            answer = await self.cluster.call(self.address, QUERY_MESSAGE, header)
        except ConnectionLost:
            if can_be_fewer:
                return None
            raise
        return None if can_be_fewer and _is_too_large(answer) else answer

    def _may_be_cut(self, page: Page) -> bool:
        """Return whether there may be more than came: as much as ever came at once."""
        self._largest_page = max(self._largest_page, page.records)
        smallest = min(limits.MIN_QUERY_CAP, self._page_messages)
        return smallest <= page.records == self._largest_page

    async def _read_queues(self, begin: int, end: int) -> None:
        for queue in self.queues:
            await read_queue(
                self.cluster,
                self.address,
                queue,
                message_filter=self.message_filter,
                findings=self.findings,
                damage=self._damage,
                begin=begin,
                end=end,
            )


def _is_too_large(answer: RemotingCommand) -> bool:
    """Return whether a broker of ours would have had to send more than a frame."""
    return answer.code == ResponseCode.SYSTEM_ERROR and OVER_THE_LIMIT in (answer.remark or "")
