"""Asks producers about transactions that they have not ended (39).

Every ``transactionCheckInterval`` all open half messages are gone through, oldest first:

================================================  =================================================
half message                                      what happens
================================================  =================================================
younger than ``transactionTimeOut``               the round ends: those behind it are younger still
younger than its CHECK_IMMUNITY_TIME_IN_SECONDS   it waits
asked about ``transactionCheckMax`` times, or     it is stored in TRANS_CHECK_MAX_TIME_TOPIC, and
older than ``fileReservedTime``                   not asked about again
else                                              a connected producer of its group is asked
================================================  =================================================

The answer is an end of the transaction (37). RocketMQ stores a half message again with each check,
so one that is ended late is ended twice, and its message stored twice. This broker leaves it where
it is, and counts its checks in memory: counts begin anew when it starts.

The offsets of CID_RMQ_SYS_TRANS say, as RocketMQ's, where to continue: from the first open half
message, with marks from some mark in front of all that may name it. So either broker can take over
the store of the other. Source: ``TransactionalMessageServiceImpl``,
``AbstractTransactionalMessageCheckListener``.
"""

import asyncio
import logging
from collections import Counter, deque
from typing import Final, NamedTuple

from msgspec.structs import replace

from rocketlens.broker.core import BrokerCore
from rocketlens.broker.delivery.ended_halves import EndedHalves
from rocketlens.broker.delivery.schedule import real_queue, waiting_record
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import Record
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import (
    CHECK_MAX_TIME_TOPIC,
    HALF_MESSAGE_TOPIC,
    OP_MESSAGE_TOPIC,
    TRANSACTION_GROUP,
)
from rocketlens.model.text.java import decode_utf8
from rocketlens.net.channel import Channel
from rocketlens.net.pace import Pace
from rocketlens.store.read.log.commitlog import SegmentLost
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.commands.messages import CHECK_TRANSACTION_STATE, CheckTransactionStateRequest
from rocketlens.wire.declare import read_i32

_log: Final = logging.getLogger("rocketlens.broker")

WAIT_S: Final = 1.0
"""Seconds that a round waits until the producers of a group have read their requests.

Then the group's half messages wait for the next round. RocketMQ sends on, into memory.
"""
_ROUNDS_KEPT: Final = 10_000
"""Rounds since the oldest open half message for which is kept how many marks there were.

That is three days. Without the later ones RocketMQ reads more marks when it takes over.
"""
_HOUR_MS: Final = 3_600_000
_MAX_DIGITS: Final = 9
_MAX_OFFSET_DIGITS: Final = 19
_SETTLED: Final = 255
"""Not asked about any more: it is discarded, or cannot be read. ``transactionCheckMax`` is less."""


class _Half(NamedTuple):
    """An open half message."""

    record: Record
    properties: dict[str, str]


class TransactionChecks:
    """Checks of open transactions; belongs to the running event loop."""

    def __init__(self, core: BrokerCore, halves: EndedHalves) -> None:
        self._core: Final = core
        self._halves: Final = halves
        self._config: Final = core.config
        self._reserved_ms: Final = core.settings.store.fileReservedTime * _HOUR_MS
        self._round: asyncio.Task[None] | None = None
        self._next: int | None = None
        """The first half message that may be open; None before the first round."""
        self._marks_from: Final[deque[tuple[int, int]]] = deque()
        """Queue offsets of half messages, and of marks: half messages from there on have no mark
        before.
        """
        self._unsaved = 0, 0, 0
        """Where to continue, and the end of the log that must be durable before that is saved."""
        self._times: Final[dict[int, int]] = {}
        """By queue offset: how often producers were asked about a half message."""
        self._turns: Final[Counter[str]] = Counter()
        """By group: which producer is next."""
        self._slow: Final[set[str]] = set()
        """Groups whose producers do not read, in this round."""
        self.sent = 0
        """Number of checks sent to producers."""
        self.discarded = 0
        """Number of half messages that are not asked about any more."""

    def tick(self) -> None:
        """Start a round, unless the last one still runs."""
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._try_round())

    def close(self) -> None:
        """End the current round."""
        if self._round is not None:
            self._round.cancel()

    async def _try_round(self) -> None:
        try:
            await self.run_round()
        except (OSError, RocketLensError, SegmentLost) as error:
            _log.warning("open transactions wait for their next check: %s", error)

    async def run_round(self) -> None:
        """Check all open half messages.

        :raises OSError: if a queue or the log cannot be read; so does SegmentLost.
        :raises StoreError: if the store cannot append now.
        """
        queues = self._core.store.queues
        queue = queues.get(HALF_MESSAGE_TOPIC, 0)
        if queue is None or not queue.next_offset:
            return
        if self._next is None:
            self._next = self._saved(HALF_MESSAGE_TOPIC)
            self._marks_from.append((0, self._saved(OP_MESSAGE_TOPIC)))
        else:
            self._save()
        start = self._next = max(self._next, queues.min_offset(HALF_MESSAGE_TOPIC, 0))
        stop = queue.next_offset
        if len(self._marks_from) < _ROUNDS_KEPT and stop > self._marks_from[-1][0]:
            self._marks_from.append((stop, queues.max_offset(OP_MESSAGE_TOPIC, 0)))
        if start < stop:
            entry = queue.entry(start)
            await self._halves.read_back(0 if entry is None else entry.physical_offset)
            try:
                await self._check(start, stop)
            finally:
                self._slow.clear()
                self._move_on()

    def _saved(self, topic: str) -> int:
        """Return where an earlier broker left off in a queue, or its first offset."""
        saved = self._core.offsets.get(TRANSACTION_GROUP, topic, 0)
        return max(saved or 0, self._core.store.queues.min_offset(topic, 0))

    async def _check(self, start: int, stop: int) -> None:
        pace, now_ms = Pace(), self._core.clock()
        for queue_offset in self._halves.open_halves(start, stop):
            await pace.turn()
            # It may have been ended meanwhile.
            times = self._times.get(queue_offset, 0)
            if times == _SETTLED or self._halves.is_ended(queue_offset):
                continue
            half = self._read(queue_offset)
            if half is None or self._is_ended_by_its_first_offset(half):
                self._times[queue_offset] = _SETTLED
                continue
            age_ms = now_ms - half.record.born_timestamp_ms
            times = times or _number(half.properties.get(props.TRANSACTION_CHECK_TIMES))
            if times >= self._config.transactionCheckMax or age_ms > self._reserved_ms:
                self._discard(half, times)
                continue
            # A message born in the future is of a wrong clock, and does not wait for that time.
            immunity_ms = _immunity_ms(half, self._config.transactionTimeOut)
            if 0 <= age_ms < immunity_ms:
                if props.CHECK_IMMUNITY_TIME in half.properties:
                    continue
                break
            if await self._ask(half, times + 1):
                self._times[queue_offset] = times + 1

    def _read(self, queue_offset: int) -> _Half | None:
        """Return a half message; None if it is damaged or not there any more.

        :raises OSError: if it cannot be read now; so does SegmentLost.
        """
        queue = self._core.store.queues.get(HALF_MESSAGE_TOPIC, 0)
        if queue is None:
            return None
        record = waiting_record(self._core.store, queue, queue_offset)
        if record is None:
            return None
        properties = props.parse(decode_utf8(record.properties))
        return _Half(record, properties) if real_queue(properties) else None

    def _is_ended_by_its_first_offset(self, half: _Half) -> bool:
        """Return whether a mark names the half message that this is a copy of.

        RocketMQ stores those with an immunity time of their own again, and producers know only the
        first.
        """
        text = half.properties.get(props.TRANSACTION_PREPARED_QUEUE_OFFSET, "")
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_OFFSET_DIGITS):
            return False
        return self._halves.is_ended(int(text))

    async def _ask(self, half: _Half, times: int) -> bool:
        """Ask a producer; return False if the group has some, and none of them reads."""
        group = half.properties.get(props.PRODUCER_GROUP, "")
        if group in self._slow:
            return False
        topic = half.properties[props.REAL_TOPIC]
        if not self._members(group, topic):
            return True
        channel = self._producer(group, topic)
        if channel is None:
            channel = await self._slow_producer(group, topic)
        if channel is None:
            self._slow.add(group)
            return False
        record = half.record
        if self._halves.is_ended(record.queue_offset):
            return True
        request, body = _check_of(half, times)
        fields = CHECK_TRANSACTION_STATE.request.encode(request)
        fields["bname"] = self._config.brokerName
        try:
            channel.tell(RequestCode.CHECK_TRANSACTION_STATE, fields, body)
        except RocketLensError as error:
            # The connection has just ended.
            _log.info("transaction %s is checked later: %s", record.offset_msg_id, error)
        else:
            self.sent += 1
        return True

    def _members(self, group: str, topic: str) -> list[Channel]:
        """Return the producers of a group that may see the half messages of a topic."""
        members = self._core.clients.producers.get(group, {})
        access = self._core.access
        return [
            channel
            for channel in members
            if channel.is_open and (access is None or access.may_check(channel, topic))
        ]

    def _producer(self, group: str, topic: str) -> Channel | None:
        """Return the next producer of a group that reads its requests."""
        members = self._members(group, topic)
        for _ in members:
            self._turns[group] += 1
            channel = members[self._turns[group] % len(members)]
            if not channel.is_behind:
                return channel
        return None

    async def _slow_producer(self, group: str, topic: str) -> Channel | None:
        """Wait a moment until the next producer of a group has read its requests."""
        members = self._members(group, topic)
        if members:
            channel = members[self._turns[group] % len(members)]
            try:
                async with asyncio.timeout(WAIT_S):
                    await channel.writable()
            except TimeoutError:
                return None
        return self._producer(group, topic)

    def _discard(self, half: _Half, times: int) -> None:
        """Store a half message in the topic of those that are never ended.

        :raises StoreError: if the store cannot append now.
        """
        record = half.record
        topic = self._core.topics.create_for_group(CHECK_MAX_TIME_TOPIC, 1)
        properties = half.properties | {props.TRANSACTION_CHECK_TIMES: str(times)}
        self._core.copies.write(record, topic.topic, 0, properties)
        self.discarded += 1
        _log.error(
            "transaction %s of group %.80s is not ended after %d checks, and moved to %s",
            record.offset_msg_id,
            half.properties.get(props.PRODUCER_GROUP, ""),
            times,
            CHECK_MAX_TIME_TOPIC,
        )
        self._times[record.queue_offset] = _SETTLED

    def _move_on(self) -> None:
        """Continue the next time from the first half message that is open, and save that."""
        assert self._next is not None  # noqa: S101 - only in a round
        stop = self._core.store.queues.max_offset(HALF_MESSAGE_TOPIC, 0)
        opened = self._halves.open_halves(self._next, stop)
        self._next = next((each for each in opened if self._times.get(each) != _SETTLED), stop)
        for queue_offset in [each for each in self._times if each < self._next]:
            del self._times[queue_offset]
        producers = self._core.clients.producers
        for group in [group for group in self._turns if group not in producers]:
            del self._turns[group]
        while len(self._marks_from) > 1 and self._marks_from[1][0] <= self._next:
            self._marks_from.popleft()
        self._unsaved = self._core.store.end_offset, self._next, self._marks_from[0][1]
        self._save()

    def _save(self) -> None:
        """Save where to continue, once the ends of all half messages before are durable."""
        end_offset, halves, marks = self._unsaved
        if self._core.store.flushed_offset < end_offset:
            return
        try:
            self._core.offsets.put(TRANSACTION_GROUP, HALF_MESSAGE_TOPIC, 0, halves)
            self._core.offsets.put(TRANSACTION_GROUP, OP_MESSAGE_TOPIC, 0, marks)
        except BadInput as error:
            _log.warning("how far transactions are checked is not saved: %s", error)


def _check_of(half: _Half, times: int) -> tuple[CheckTransactionStateRequest, bytes]:
    """Return a check: the message with the topic and queue that it was sent to."""
    record = half.record
    key = half.properties.get(props.UNIQUE_KEY)
    properties = half.properties | {props.TRANSACTION_CHECK_TIMES: str(times)}
    body = commitlog_record.encode(
        replace(
            record,
            topic=properties[props.REAL_TOPIC],
            queue_id=read_i32(properties[props.REAL_QUEUE_ID], props.REAL_QUEUE_ID),
            properties=props.format_properties(props.java_order(properties)).encode(),
        )
    )
    request = CheckTransactionStateRequest(
        tran_state_table_offset=record.queue_offset,
        commit_log_offset=record.physical_offset,
        msg_id=key,
        transaction_id=key,
        offset_msg_id=record.offset_msg_id,
        topic=HALF_MESSAGE_TOPIC,
    )
    return request, body


def _immunity_ms(half: _Half, timeout_ms: int) -> int:
    """Return how old a half message must be before its producers are asked."""
    seconds = _number(half.properties.get(props.CHECK_IMMUNITY_TIME))
    return max(timeout_ms, seconds * 1000)


def _number(text: str | None) -> int:
    """Return a small number of a property; 0 if there is none."""
    is_number = text is not None and text.isascii() and text.isdigit()
    return int(text) if text and is_number and len(text) <= _MAX_DIGITS else 0
