"""Asks producers for the state of open transactions (39).

Every ``transactionCheckInterval``, all open half messages are checked, oldest first:

================================================  =================================================
half message                                      action
================================================  =================================================
younger than ``transactionTimeOut``               the round ends: the next ones are younger
younger than its CHECK_IMMUNITY_TIME_IN_SECONDS   it waits
checked ``transactionCheckMax`` times, or older   it is stored in TRANS_CHECK_MAX_TIME_TOPIC, and
than ``fileReservedTime``                         not checked again
any other                                         a connected producer of its group is asked
================================================  =================================================

The producer answers with an end of the transaction (37). RocketMQ stores a half message again with
each check, so a late answer can end it twice and store its message twice. This broker does not
store it again, and counts its checks in memory: counts restart with the broker.

The offsets of CID_RMQ_SYS_TRANS have RocketMQ's meaning: the first open half message, and a mark
before all marks that can name it. So each broker can take over the store of the other. Source:
``TransactionalMessageServiceImpl``, ``AbstractTransactionalMessageCheckListener``.
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
"""Seconds that a round waits for producers of a group that do not read. Then the group's half
messages wait for the next round. RocketMQ buffers the requests in memory.
"""
_ROUNDS_KEPT: Final = 10_000
"""Rounds since the oldest open half message for which the number of marks is kept: three days.
Without later ones, RocketMQ reads more marks when it takes over.
"""
_HOUR_MS: Final = 3_600_000
_MAX_DIGITS: Final = 9
_MAX_OFFSET_DIGITS: Final = 19
_SETTLED: Final = 255
"""Not checked any more: discarded, or unreadable. ``transactionCheckMax`` is less."""


class _Half(NamedTuple):
    """An open half message."""

    record: Record
    properties: dict[str, str]


class TransactionChecks:
    """Checks of open transactions. Belongs to the running event loop."""

    def __init__(self, core: BrokerCore, halves: EndedHalves) -> None:
        self._core: Final = core
        self._halves: Final = halves
        self._config: Final = core.config
        self._reserved_ms: Final = core.settings.store.fileReservedTime * _HOUR_MS
        self._round: asyncio.Task[None] | None = None
        self._next: int | None = None
        """The first half message that can be open; None before the first round."""
        self._marks_from: Final[deque[tuple[int, int]]] = deque()
        """Pairs: no mark below the second offset names a half message from the first on."""
        self._unsaved = 0, 0, 0
        """The offsets to save, after the end of the log that must be durable before."""
        self._times: Final[dict[int, int]] = {}
        """By queue offset: the number of checks of a half message."""
        self._turns: Final[Counter[str]] = Counter()
        """By group: the number of the next producer."""
        self._slow: Final[set[str]] = set()
        """Groups whose producers do not read in this round."""

    def tick(self) -> None:
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._try_round())

    def close(self) -> None:
        if self._round is not None:
            self._round.cancel()

    async def _try_round(self) -> None:
        try:
            await self.run_round()
        except (OSError, RocketLensError, SegmentLost) as error:
            _log.warning("open transactions wait for their next check: %s", error)

    async def run_round(self) -> None:
        """:raises OSError: if a queue or the log cannot be read; SegmentLost, too.
        :raises StoreError: if the store cannot append now.
        """
        queues = self._core.store.queues
        queue = queues.get(HALF_MESSAGE_TOPIC, 0)
        if queue is None or not queue.next_offset:
            return
        if self._next is None:
            self._next = self._saved_offset(HALF_MESSAGE_TOPIC)
            self._marks_from.append((0, self._saved_offset(OP_MESSAGE_TOPIC)))
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
                self._advance()

    def _saved_offset(self, topic: str) -> int:
        """Return the saved offset in a queue, at least the first one of the queue."""
        saved = self._core.offsets.get(TRANSACTION_GROUP, topic, 0)
        return max(saved or 0, self._core.store.queues.min_offset(topic, 0))

    async def _check(self, start: int, stop: int) -> None:
        pace, now_ms = Pace(), self._core.clock()
        for queue_offset in self._halves.open_halves(start, stop):
            await pace.turn()
            # It may have ended since `open_halves`.
            times = self._times.get(queue_offset, 0)
            if times == _SETTLED or self._halves.is_ended(queue_offset):
                continue
            half = self._read(queue_offset)
            if half is None or self._is_original_ended(half):
                self._times[queue_offset] = _SETTLED
                continue
            age_ms = now_ms - half.record.born_timestamp_ms
            times = times or _number(half.properties.get(props.TRANSACTION_CHECK_TIMES))
            if times >= self._config.transactionCheckMax or age_ms > self._reserved_ms:
                self._discard(half, times)
                continue
            # A birth time in the future comes from a wrong clock: do not wait for it.
            immunity_ms = 1000 * _number(half.properties.get(props.CHECK_IMMUNITY_TIME))
            if 0 <= age_ms < max(immunity_ms, self._config.transactionTimeOut):
                if props.CHECK_IMMUNITY_TIME in half.properties:
                    continue
                break
            if await self._ask(half, times + 1):
                self._times[queue_offset] = times + 1

    def _read(self, queue_offset: int) -> _Half | None:
        """Return a half message; None if it is damaged or deleted. Raises as `waiting_record`."""
        queue = self._core.store.queues.get(HALF_MESSAGE_TOPIC, 0)
        if queue is None:
            return None
        record = waiting_record(self._core.store, queue, queue_offset)
        if record is None:
            return None
        properties = props.parse(decode_utf8(record.properties))
        return _Half(record, properties) if real_queue(properties) else None

    def _is_original_ended(self, half: _Half) -> bool:
        """Return True if a mark names the original of a half message that RocketMQ copied.

        It copies those with their own immunity time, and producers know only the original.
        """
        text = half.properties.get(props.TRANSACTION_PREPARED_QUEUE_OFFSET, "")
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_OFFSET_DIGITS):
            return False
        return self._halves.is_ended(int(text))

    async def _ask(self, half: _Half, times: int) -> bool:
        """Ask a producer; return False if the group has producers, but none reads."""
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
            # The connection is closed.
            _log.info("transaction %s is checked later: %s", record.offset_msg_id, error)
        return True

    def _members(self, group: str, topic: str) -> list[Channel]:
        """Return the producers of a group that can see the half messages of a topic."""
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
        """Return a producer of a group after a short wait for one to read its requests."""
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
        """Store a half message in the topic of abandoned ones."""
        record = half.record
        topic = self._core.topics.create_for_group(CHECK_MAX_TIME_TOPIC, 1)
        properties = half.properties | {props.TRANSACTION_CHECK_TIMES: str(times)}
        self._core.copies.write(record, topic.topic, 0, properties)
        _log.error(
            "transaction %s of group %.80s is still open after %d checks, and moved to %s",
            record.offset_msg_id,
            half.properties.get(props.PRODUCER_GROUP, ""),
            times,
            CHECK_MAX_TIME_TOPIC,
        )
        self._times[record.queue_offset] = _SETTLED

    def _advance(self) -> None:
        """Set and save the first open half message, at which the next round starts."""
        assert self._next is not None  # noqa: S101 - only in a round
        stop = self._core.store.queues.max_offset(HALF_MESSAGE_TOPIC, 0)
        halves = self._halves.open_halves(self._next, stop)
        self._next = next((each for each in halves if self._times.get(each) != _SETTLED), stop)
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
        """Save the offsets, once the marks of all earlier half messages are durable."""
        end_offset, halves, marks = self._unsaved
        if self._core.store.flushed_offset < end_offset:
            return
        try:
            self._core.offsets.put(TRANSACTION_GROUP, HALF_MESSAGE_TOPIC, 0, halves)
            self._core.offsets.put(TRANSACTION_GROUP, OP_MESSAGE_TOPIC, 0, marks)
        except BadInput as error:
            _log.warning("the progress of transaction checks is not saved: %s", error)


def _check_of(half: _Half, times: int) -> tuple[CheckTransactionStateRequest, bytes]:
    """Return a check: the message with its real topic and queue."""
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


def _number(text: str | None) -> int:
    """Return a small number of a property; 0 if it is missing or invalid."""
    is_number = text is not None and text.isascii() and text.isdigit()
    return int(text) if text and is_number and len(text) <= _MAX_DIGITS else 0
