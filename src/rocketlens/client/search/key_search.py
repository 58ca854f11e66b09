"""Finds all messages with a key on one broker, although a broker returns at most 64 at once.

1. Request without times: the index rounds times, and a broker's clock may have been set back, so a
   request with times can miss a message. Usually this returns everything.
2. If the broker returned its maximum (`query_limit`), request again within the times, then up to
   the oldest message received, until fewer are returned. The index rounds times down to whole
   seconds, so ``begin`` is a second earlier.
3. If a second has more messages of the key than a broker returns at once, that second is read from
   the topic's queues. Steps 2 and 3 end early if the first response, which has the newest messages
   of all, fills the answer.
4. A broker's index has no keys of messages in a batch that is one record, and a broker can be
   configured without an index. Then the topic's queues are read, as in an exhaustive search.

Steps 2 and 3 rely on rising store times of the key. If they decrease in a response, the answer is
incomplete; otherwise ``relies_on`` reports it. A response over 16 MiB closes the connection
(RocketMQ) or is an error (RocketLens): the request is repeated with a smaller maximum.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from rocketlens import limits
from rocketlens.client.connect.cluster import (
    DISPATCH_WAIT_S,
    ClusterCalls,
    broker_error,
    fields_of,
    runtime_table,
)
from rocketlens.client.connect.compacted_topics import broker_config
from rocketlens.client.connect.queue_puller import Pulled, add_damage, records_in, tools_puller
from rocketlens.client.connect.route import MessageQueue, Recent
from rocketlens.client.search.queue_read import RISING_TIMES, read_queue
from rocketlens.client.search.records import Page, add_page
from rocketlens.errors import BadAnswer, BrokerError, ConnectionLost, RemotingError
from rocketlens.formats.commitlog_record import Record
from rocketlens.model import properties as props
from rocketlens.model.text.java import decode_utf8
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import NOT_SEARCHED, QUERY_MESSAGE, QueryMessageRequest

INDEX_SAMPLES: Final = 8
"""Messages of a topic with which a search by key samples a broker's index."""
MAX_QUERY_MESSAGES: Final = 64
"""Messages requested at once. RocketMQ returns no more (maxMsgsNumBatch)."""
MAX_READ_ANSWERS: Final = 4
"""A client reads at most this many times the size of an answer from one broker."""


class SampledIndex(NamedTuple):
    """The assumption of an answer from an index, and a position that the index lacks."""

    relies_on: Sentence | None
    missing: str | None = None


UNTRIED: Final = SampledIndex(Sentence("index_untried"))
_SAMPLED: Final = Sentence("index_sampled")


class IndexSamples:
    """Samples a topic's queues to check that a broker's index has their messages.

    After a kill, a RocketMQ broker deletes the index file that it was writing, and indexes only
    what it recovers from the end of the log. Without ``messageIndexSafe``, which is off by default,
    the keys of older messages in that file are lost, and a query for one returns nothing. The
    messages stay in their queues: a few of them are read, and the index is queried for each.

    Results are cached for 30 s. ``clock`` returns monotonic seconds.
    """

    def __init__(self, cluster: ClusterCalls, clock: Callable[[], float]) -> None:
        self._cluster: Final = cluster
        self._sampled: Final = Recent[tuple[str, str], SampledIndex](clock)

    async def take(self, address: str, queues: Sequence[MessageQueue]) -> SampledIndex:
        """Query a broker for some messages of a topic's longest queue.

        They are spread over the queue, from its oldest to its newest message. Messages without a
        unique key are skipped.
        """
        if not queues:
            return UNTRIED
        key = queues[0].topic, address
        return await self._sampled.get(key, lambda: self._take(address, queues))

    async def _take(self, address: str, queues: Sequence[MessageQueue]) -> SampledIndex:
        try:
            ends = await asyncio.gather(*(self._pull(address, each, 0) for each in queues))
            lengths = [each.max_offset - each.min_offset for each in ends]
            longest = lengths.index(max(lengths))
            queue, first, length = queues[longest], ends[longest].min_offset, lengths[longest]
            if not length:
                return SampledIndex(None)
            last = INDEX_SAMPLES - 1
            offsets = sorted({first + (length - 1) * at // last for at in range(last + 1)})
            indexed = await asyncio.gather(
                *(self._is_indexed(address, queue, offset) for offset in offsets)
            )
        except (BrokerError, RemotingError):
            # A user may have the permission to search by key, but not to pull.
            return UNTRIED
        if False in indexed:
            missing = f"{queue.topic}/{queue.queue_id}/{offsets[indexed.index(False)]}"
            return SampledIndex(_SAMPLED, missing)
        return SampledIndex(_SAMPLED) if True in indexed else UNTRIED

    async def _is_indexed(self, address: str, queue: MessageQueue, offset: int) -> bool | None:
        """Return True if the index has the message at an offset; None if unknown.

        A missing message may just have been deleted, or may not be indexed yet: the query is
        repeated after the broker has dispatched its stored messages.
        """
        for number in range(2):
            if number:
                await Dispatch(self._cluster).wait(address)
            record = next((await self._pull(address, queue, offset)).records([]), None)
            unique_key = None if record is None else _unique_key(record)
            if record is None or unique_key is None:
                return None
            is_indexed = await self._has(address, record, unique_key)
            if is_indexed is not False:
                return is_indexed
        return False

    async def _has(self, address: str, record: Record, unique_key: str) -> bool | None:
        header = _query_header(record.topic, unique_key, is_unique_key=True)
        async with self._cluster.turn(address):
            answer = await self._cluster.call(address, QUERY_MESSAGE, header)
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}:
            raise broker_error(address, answer)
        offsets = [(each.queue_id, each.queue_offset) for each in records_in(answer.body, [])]
        if (record.queue_id, record.queue_offset) in offsets:
            return True
        # If many messages have one unique key, the index returns only the newest.
        limit = await query_limit(self._cluster, address, is_unique_key=True)
        return None if len(offsets) >= limit else False

    async def _pull(self, address: str, queue: MessageQueue, offset: int) -> Pulled:
        async with self._cluster.turn(address):
            return await tools_puller(self._cluster).pull(address, queue, offset, count=1)


def _unique_key(record: Record) -> str | None:
    return props.parse(decode_utf8(record.properties)).get(props.UNIQUE_KEY)


_LOG_END: Final = "commitLogMaxOffset"
_BEHIND: Final = "dispatchBehindBytes"
_DELAYS_S: Final = (0.002, 0.1)
"""Seconds between two requests to a broker: the first, doubled up to the last."""


class Dispatch:
    """Waits until brokers have dispatched the messages stored before a query.

    RocketMQ acknowledges a message when it is in the commit log. Another thread writes the queue
    and index entries: usually within a millisecond, later on a busy or starting broker. Until then
    no look-up by key, queue offset or time finds the message, and the response does not report it.
    But a broker reports its progress (`getBrokerRuntimeInfo`).
    """

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster: Final = cluster
        self._turns: dict[str, asyncio.Lock] = {}
        self._problems: dict[str, str | None] = {}

    async def wait(self, address: str) -> str | None:
        """Wait until a broker has dispatched all that it had stored at the first call.

        Return None, or one line on why a later look-up can miss messages.
        """
        async with self._turns.setdefault(address, asyncio.Lock()):
            if address not in self._problems:
                self._problems[address] = await self._wait(address)
        return self._problems[address]

    async def _wait(self, address: str) -> str | None:
        delay_s, longest_s = _DELAYS_S
        waited_s = 0.0
        try:
            stored, dispatched = await self._progress(address)
            while dispatched < stored and waited_s < DISPATCH_WAIT_S:
                await asyncio.sleep(delay_s)
                waited_s += delay_s
                delay_s = min(2 * delay_s, longest_s)
                _, dispatched = await self._progress(address)
        except (BrokerError, BadAnswer, ValueError, KeyError) as error:
            return f"it does not report its indexing progress: {error}"
        if dispatched < stored:
            return (
                f"{stored - dispatched} bytes of its log are not in queues and index yet: "
                "search again"
            )
        return None

    async def _progress(self, address: str) -> tuple[int, int]:
        """Return the physical offsets up to which a broker has stored and dispatched messages."""
        runtime = await runtime_table(self._cluster, address)
        stored = int(runtime[_LOG_END])
        return stored, stored - int(runtime[_BEHIND])


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
"""The assumption of a search by key, unless the broker returned all messages at once."""


class SearchedIndex(Struct, frozen=True):
    """The result of one broker's search: damage, and the progress of its index."""

    damage: tuple[str, ...]
    indexed_to_ms: int
    records: int
    """Records in the first response, whether they match or not."""
    relies_on: str | None = None


class KeySearch(Struct):
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
    """True if the index may lack keys."""
    _damage: list[str] = field(default_factory=list)
    _page_messages: int = MAX_QUERY_MESSAGES
    _largest_page: int = 0
    _read_bytes: int = 0
    _indexed_to_ms: int = 0
    _relies_on: str | None = None
    _set_back_ms: int = 0
    _newest: Page | None = None
    """The first response, if its store times rise."""

    async def run(self) -> SearchedIndex:
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
            # The index gives older messages the time of a file's first message.
            if later.records and (is_before or later.least_ms <= page.most_ms):
                self._add_doubt("are not those of the index, or not in the order of the log")
            if self._set_back_ms:
                self._add_doubt(
                    f"go back by {self._set_back_ms} ms, maybe after a clock was set back"
                )
        damage = tuple(dict.fromkeys(self._damage))
        return SearchedIndex(damage, self._indexed_to_ms, page.records, self._relies_on)

    def _add_doubt(self, what: str) -> None:
        doubt = (
            f"{self.address}: the store times of the messages with this key {what}. A search of "
            "its index by time can miss some: an exhaustive search reads whole queues"
        )
        add_damage(self._damage, doubt)

    async def _search_within(self, begin: int, end: int, earlier: Page) -> None:
        """Search by time; ``earlier`` is the response to the request without times."""
        oldest_offset = None
        if begin <= 0 and end >= limits.MAX_TIMESTAMP_MS:
            # The request without times was the same query.
            end, oldest_offset = earlier.oldest_ms, earlier.oldest_offset
        while end >= begin and not self._is_past(end):
            if self._read_bytes > MAX_READ_ANSWERS * limits.MAX_ANSWER_BYTES:
                problem = f"{self.address} returns the same messages repeatedly: reading ended"
                add_damage(self._damage, problem)
                return
            page = await self._page(max(0, begin - INDEX_STEP_MS), end)
            if not self._may_be_cut(page):
                is_known = begin <= earlier.oldest_ms <= end
                if is_known and not (page.records and page.oldest_offset <= earlier.oldest_offset):
                    self._add_doubt("do not lead to a message that it returned without times")
                return
            earlier = page
            if oldest_offset is not None and page.oldest_offset >= oldest_offset:
                # Nothing new: all results are of one second of the index.
                if page.oldest_ms > end:
                    # The index has other times than the messages, so times are no help.
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
        """Return True if no unseen message stored until ``end`` would be kept."""
        messages = self.findings.messages
        return (end is not None and messages.is_past(end)) or (
            self._newest is not None and messages.is_past_rank(self._newest.oldest_rank)
        )

    async def _page(self, begin: int, end: int) -> Page:
        """Request once, and add matching messages."""
        while True:
            async with self.cluster.turn(self.address):
                answer = await self._answer(begin, end)
                if answer is not None:
                    return await self._add_answer(answer)
            self._page_messages //= FEWER
            self._largest_page = 0

    async def _add_answer(self, answer: RemotingCommand) -> Page:
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}:
            raise broker_error(self.address, answer)
        fields = fields_of(self.address, QUERY_MESSAGE, answer)
        self._indexed_to_ms = max(self._indexed_to_ms, fields.index_last_update_timestamp_ms)
        if NOT_SEARCHED in answer.ext_fields:
            add_damage(self._damage, answer.ext_fields[NOT_SEARCHED])
        page = await add_page(answer.body, self.message_filter, self.findings, self._damage)
        self._read_bytes += page.held_bytes
        self._set_back_ms = max(self._set_back_ms, page.set_back_ms)
        return page

    async def _answer(self, begin: int, end: int) -> RemotingCommand | None:
        """Request a page; return None if a smaller maximum is needed."""
        wanted = self.message_filter
        header = _query_header(
            *(wanted.topic or "", wanted.index_key, self._page_messages, begin, end),
            is_unique_key=wanted.key is None,
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
        """Return True if there may be more: the page has the maximum, and no other had more."""
        self._largest_page = max(self._largest_page, page.records)
        return min(self.limit, self._page_messages) <= page.records == self._largest_page

    async def _read_queues(self, begin: int, end: int) -> bool:
        """Read queues; return True if the result relies on `RISING_TIMES`."""
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


def _query_header(
    topic: str,
    key: str,
    max_num: int = MAX_QUERY_MESSAGES,
    begin_ms: int = 0,
    end_ms: int = limits.MAX_TIMESTAMP_MS,
    *,
    is_unique_key: bool,
) -> QueryMessageRequest:
    return QueryMessageRequest(
        topic=topic,
        key=key,
        max_num=max_num,
        begin_timestamp_ms=begin_ms,
        end_timestamp_ms=end_ms,
        is_unique_key=is_unique_key,
        index_type=UNIQUE_KEY_INDEX if is_unique_key else KEYS_INDEX,
    )


async def query_limit(cluster: ClusterCalls, address: str, *, is_unique_key: bool) -> int:
    """Return the maximum number of messages that a broker returns for a key, as configured.

    Return 1 if the configuration has no number. Below 1 the broker returns none.
    """
    config = await broker_config(cluster, address)
    settings = _UNIQUE_KEY_LIMITS if is_unique_key else _KEY_LIMITS
    texts = [config.get(each, "") for each in settings]
    return min(int(text) if _IS_NUMBER(text) else 1 for text in texts)


def _is_too_large(answer: RemotingCommand) -> bool:
    """Return True if a RocketLens broker refused a response larger than a frame."""
    return answer.code == ResponseCode.SYSTEM_ERROR and OVER_THE_LIMIT in (answer.remark or "")
