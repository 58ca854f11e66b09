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
from rocketlens.client.cluster import Cluster, broker_error
from rocketlens.client.pull import stored_between
from rocketlens.client.records import Verified, records_in
from rocketlens.client.route import MessageQueue
from rocketlens.errors import ConnectionLost
from rocketlens.formats.commitlog_record import Record
from rocketlens.model.message import MessageExt
from rocketlens.query.verify import Wanted
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
class KeyQuestion:
    """What is looked for. ``wanted`` decides; ``max_num`` None means all of it."""

    topic: str
    key: str
    wanted: Wanted
    max_num: int | None

    @property
    def is_unique_key(self) -> bool:
        """Say whether it is looked for among unique keys only."""
        return self.wanted.key is None


@dataclass(frozen=True, slots=True)
class Found:
    """What one broker has: messages by physical offset, the newest if there were too many."""

    messages: tuple[MessageExt, ...]
    truncated: bool
    damage: tuple[str, ...]
    indexed_to_ms: int


@dataclass(slots=True)
class KeySearch:
    """One question to one broker; ``queues`` are the topic's there."""

    cluster: Cluster
    address: str
    question: KeyQuestion
    queues: Iterable[MessageQueue]
    _verified: Verified = field(default_factory=Verified)
    _page_messages: int = limits.QUERY_PAGE_MESSAGES
    _largest_page: int = 0
    _indexed_to_ms: int = 0
    _truncated: bool = False

    async def run(self) -> Found:
        """Search.

        :raises BrokerError: when the broker will not.
        :raises RemotingError: when there is no answer.
        """
        page = await self._page(0, limits.MAX_TIMESTAMP_MS)
        if self._may_be_cut(page):
            await self._search_within(self.question.wanted.begin, self.question.wanted.end)
        return self._found()

    async def _search_within(self, begin: int, end: int) -> None:
        oldest_offset = None
        while end >= begin and not self._has_enough():
            page = await self._page(max(0, begin - INDEX_STEP_MS), end)
            if not self._may_be_cut(page):
                return
            oldest = min(page, key=lambda record: record.physical_offset)
            if oldest_offset is not None and oldest.physical_offset >= oldest_offset:
                # Nothing new came: all that was given is of this one step of the index.
                step_begin = oldest.store_timestamp_ms - INDEX_STEP_MS + 1
                await self._read_queues(step_begin, oldest.store_timestamp_ms)
                end = step_begin - 1
                oldest_offset = None
            else:
                end = min(end, oldest.store_timestamp_ms)
                oldest_offset = oldest.physical_offset

    async def _page(self, begin: int, end: int) -> list[Record]:
        """Ask once, and keep what is wanted; give all records that came."""
        answer = await self._answer(begin, end)
        while answer is None:
            self._page_messages //= FEWER
            self._largest_page = 0
            answer = await self._answer(begin, end)
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}:
            raise broker_error(self.address, answer)
        fields = QUERY_MESSAGE.response.decode(answer.ext_fields)
        self._indexed_to_ms = max(self._indexed_to_ms, fields.index_last_update_timestamp_ms)
        if NOT_SEARCHED in answer.ext_fields:
            self._verified.damage.append(answer.ext_fields[NOT_SEARCHED])
        page = list(records_in(answer.body, self._verified.damage))
        for record in page:
            self._verified.take(record, self.question.wanted)
        return page

    async def _answer(self, begin: int, end: int) -> RemotingCommand | None:
        """Ask for a page; None when fewer messages must be asked for."""
        question = self.question
        header = QueryMessageRequest(
            topic=question.topic,
            key=question.key,
            max_num=self._page_messages,
            begin_timestamp_ms=begin,
            end_timestamp_ms=end,
            is_unique_key=question.is_unique_key,
            index_type=UNIQUE_KEY_INDEX if question.is_unique_key else KEYS_INDEX,
        )
        can_be_fewer = self._page_messages > 1
        try:
            answer = await self.cluster.call(self.address, QUERY_MESSAGE, header)
        except ConnectionLost:
            if can_be_fewer:
                return None
            raise
        return None if can_be_fewer and _is_too_large(answer) else answer

    def _may_be_cut(self, page: list[Record]) -> bool:
        """Say whether there may be more than came: as much as ever came at once."""
        count = len(page)
        self._largest_page = max(self._largest_page, count)
        smallest = min(limits.SMALLEST_QUERY_CAP, self._page_messages)
        return smallest <= count == self._largest_page

    async def _read_queues(self, begin: int, end: int) -> None:
        for queue in self.queues:
            found = stored_between(
                self.cluster,
                self.address,
                queue,
                begin=begin,
                end=end,
                damage=self._verified.damage,
            )
            async for record in found:
                self._verified.take(record, self.question.wanted)

    def _has_enough(self) -> bool:
        """Say whether older messages would be cut anyway."""
        most = self.question.max_num
        enough = most is not None and len(self._verified.messages) > most
        enough = enough or self._verified.body_bytes > limits.ANSWER_BYTES
        self._truncated = self._truncated or enough
        return enough

    def _found(self) -> Found:
        messages = self._verified.messages
        return Found(
            tuple(messages[offset] for offset in sorted(messages)),
            self._truncated,
            tuple(dict.fromkeys(self._verified.damage)),
            self._indexed_to_ms,
        )


def _is_too_large(answer: RemotingCommand) -> bool:
    """Say whether a broker of ours would have had to send more than a frame."""
    return answer.code == ResponseCode.SYSTEM_ERROR and OVER_THE_LIMIT in (answer.remark or "")
