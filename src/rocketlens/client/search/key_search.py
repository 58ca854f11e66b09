"""Finds all messages of a key on one broker, although a broker returns at most 64 at once.

How many it returns is in its configuration, see `query_limit`.

1. Ask without times: the index rounds times, and a broker's clock may have been set back, so a
   request with times may miss a message. Usually that is all, and the requested times are compared
   here, to the millisecond.
2. If there may be more (the broker returned its maximum), ask again within the times, and then
   again up to the oldest message received, until fewer come. The index rounds times down to whole
   seconds since some moment, so ``begin`` is a second earlier.
3. More messages of one key within a second than a broker returns at once cannot be told apart by
   time: that second is read from the topic's queues.

   What was returned at first are the newest of all, so steps 2 and 3 end as soon as those are all
   that is wanted, and one more was seen.

4. The index of a broker has no key of a message that is in a batch which is one record, and a
   broker may be told to keep no index. Then the topic's queues are read instead, as an exhaustive
   search reads them.

Steps 2 and 3 rely on the key's store times rising, for a broker keeps only the times of an index
file's first and last message. If they go back in what it returns, the answer is incomplete;
otherwise ``relies_on`` says so.

A response over 16 MiB closes the connection (RocketMQ does not bound its responses), or is an error
(RocketLens bounds them): the request is repeated with a smaller maximum.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls, broker_error, fields_of
from rocketlens.client.connect.compacted_topics import broker_config
from rocketlens.client.connect.queue_puller import add_damage
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.queue_read import RISING_TIMES, read_queue
from rocketlens.client.search.records import Page, take_page_in_turn
from rocketlens.errors import ConnectionLost
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import NOT_SEARCHED, QUERY_MESSAGE, QueryMessageRequest

INDEX_STEP_MS: Final = 1000
KEYS_INDEX: Final = "K"
UNIQUE_KEY_INDEX: Final = "U"
OVER_THE_LIMIT: Final = "over the limit"
FEWER: Final = 8
"""Divisor of the maximum after a response that was too large."""
_KEY_LIMITS: Final = ("maxMsgsNumBatch",)
_UNIQUE_KEY_LIMITS: Final = ("maxMsgsNumBatch", "defaultQueryMaxNum")
_IS_NUMBER: Final = re.compile(r"-?[0-9]{1,18}").fullmatch
RISING_KEY_TIMES: Final = Sentence("rising_key")
"""What a search relies on for a key if the broker did not return all messages at once."""


@dataclass(frozen=True, slots=True)
class SearchedIndex:
    """What one broker reported of its search: damage, and the progress of its index."""

    damage: tuple[str, ...]
    indexed_to_ms: int
    records: int
    """Records that the index led to at first, whether they match or not."""
    relies_on: str | None = None


@dataclass(slots=True)
class KeySearch:
    """One search on one broker; ``queues`` are the topic's queues there.

    The filter has the topic and the key; ``findings`` receives matching messages.
    """

    cluster: ClusterCalls
    address: str
    message_filter: MessageFilter
    findings: Findings
    queues: Sequence[MessageQueue]
    limit: int
    """See `query_limit`."""
    exhaustive: bool = False
    reads_queues: bool = False
    """Whether the index may lack keys."""
    _damage: list[str] = field(default_factory=list)
    _page_messages: int = limits.MAX_QUERY_MESSAGES
    _largest_page: int = 0
    _read_bytes: int = 0
    _indexed_to_ms: int = 0
    _relies_on: str | None = None
    _set_back_ms: int = 0
    _newest: Page | None = None
    """What was returned at first, if its store times rise."""

    async def run(self) -> SearchedIndex:
        """Search.

        :raises BrokerError: if the broker refuses.
        :raises RemotingError: if there is no response.
        """
        page = await self._page(0, limits.MAX_TIMESTAMP_MS)
        begin, end = self.message_filter.begin or 0, self.message_filter.end
        if self.reads_queues:
            if await self._read_queues(begin, end):
                self._relies_on = RISING_TIMES
        elif self._may_be_cut(page):
            self._relies_on = RISING_KEY_TIMES
            self._newest = None if page.set_back_ms or self.exhaustive else page
            await self._search_within(begin, end, page)
            later = await self._page(page.most_ms + 1, limits.MAX_TIMESTAMP_MS)
            is_before = later.oldest_offset < page.oldest_offset
            # The index has the time of a file's first message for what is older than that.
            if later.records and (is_before or later.least_ms <= page.most_ms):
                self._doubt("are not those of the index, or not in the order of the log")
            if self._set_back_ms:
                self._doubt(f"go back by {self._set_back_ms} ms, as of a clock that was set back")
        damage = tuple(dict.fromkeys(self._damage))
        return SearchedIndex(damage, self._indexed_to_ms, page.records, self._relies_on)

    def _doubt(self, what: str) -> None:
        doubt = (
            f"{self.address}: the store times of the messages with this key {what}. A search of "
            "its index by time can miss some: an exhaustive search reads whole queues"
        )
        add_damage(self._damage, doubt)

    async def _search_within(self, begin: int, end: int, earlier: Page) -> None:
        """Search by time; ``earlier`` is the page that the broker returned without times."""
        oldest_offset = None
        if begin <= 0 and end >= limits.MAX_TIMESTAMP_MS:
            # That was this question.
            end, oldest_offset = earlier.oldest_ms, earlier.oldest_offset
        while end >= begin and not self._is_past(end):
            if self._read_bytes > limits.MAX_READ_ANSWERS * limits.MAX_ANSWER_BYTES:
                problem = (
                    f"{self.address} gives the same messages again and again: it is not read on"
                )
                add_damage(self._damage, problem)
                return
            page = await self._page(max(0, begin - INDEX_STEP_MS), end)
            if not self._may_be_cut(page):
                is_known = begin <= earlier.oldest_ms <= end
                if is_known and not (page.records and page.oldest_offset <= earlier.oldest_offset):
                    self._doubt("do not lead to one that it returned without times")
                return
            earlier = page
            if oldest_offset is not None and page.oldest_offset >= oldest_offset:
                # Nothing new came: all results are of this one step of the index.
                if page.oldest_ms > end:
                    # The index has other times than the messages, so times do not lead further.
                    await self._read_queues(begin, end)
                    return
                step_begin = page.oldest_ms - INDEX_STEP_MS + 1
                await self._read_queues(step_begin, page.oldest_ms)
                end = step_begin - 1
                oldest_offset = None
            else:
                end = min(end, page.oldest_ms)
                oldest_offset = page.oldest_offset

    def _is_past(self, end: int | None = None) -> bool:
        """Return whether nothing that was not seen yet, until ``end``, would be kept."""
        messages = self.findings.messages
        return (end is not None and messages.is_past(end)) or (
            self._newest is not None and messages.is_past_rank(self._newest.oldest_rank)
        )

    async def _page(self, begin: int, end: int) -> Page:
        """Ask once, and add matching messages; return what came."""
        while True:
            async with self.cluster.turn(self.address):
                answer = await self._answer(begin, end)
                if answer is not None:
                    return await self._taken(answer)
            self._page_messages //= FEWER
            self._largest_page = 0

    async def _taken(self, answer: RemotingCommand) -> Page:
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}:
            raise broker_error(self.address, answer)
        fields = fields_of(self.address, QUERY_MESSAGE, answer)
        self._indexed_to_ms = max(self._indexed_to_ms, fields.index_last_update_timestamp_ms)
        if NOT_SEARCHED in answer.ext_fields:
            add_damage(self._damage, answer.ext_fields[NOT_SEARCHED])
        page = await take_page_in_turn(
            answer.body, self.message_filter, self.findings, self._damage
        )
        self._read_bytes += page.held_bytes
        self._set_back_ms = max(self._set_back_ms, page.set_back_ms)
        return page

    async def _answer(self, begin: int, end: int) -> RemotingCommand | None:
        """Request a page; return None if a smaller maximum is needed."""
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
        """Return whether there may be more: the page has as many as the broker may return, and as
        the largest page so far.
        """
        self._largest_page = max(self._largest_page, page.records)
        return min(self.limit, self._page_messages) <= page.records == self._largest_page

    async def _read_queues(self, begin: int, end: int) -> bool:
        """Read queues; return whether what was found relies on `RISING_TIMES`."""
        relies_on_order = False
        for queue in self.queues:
            if self._is_past():
                break
            relies_on_order |= await read_queue(
                self.cluster,
                self.address,
                queue,
                message_filter=self.message_filter,
                findings=self.findings,
                damage=self._damage,
                begin=begin,
                end=end,
                queue_count=len(self.queues),
                exhaustive=self.exhaustive,
            )
        return relies_on_order


async def query_limit(cluster: ClusterCalls, address: str, *, is_unique_key: bool) -> int:
    """Return how many messages a broker returns for a key at most, by its configuration.

    1 if it does not tell a number; below 1 if it returns none.

    :raises RemotingError: if there is no response.
    """
    config = await broker_config(cluster, address)
    settings = _UNIQUE_KEY_LIMITS if is_unique_key else _KEY_LIMITS
    texts = [config.get(each, "") for each in settings]
    return min(int(text) if _IS_NUMBER(text) else 1 for text in texts)


def _is_too_large(answer: RemotingCommand) -> bool:
    """Return whether a broker of RocketLens refused a response larger than a frame."""
    return answer.code == ResponseCode.SYSTEM_ERROR and OVER_THE_LIMIT in (answer.remark or "")
