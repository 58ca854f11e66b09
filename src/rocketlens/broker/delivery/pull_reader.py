"""Reads messages for pulls.

===========================================  ====================================  ====  ========
queue at the requested offset                remark                                code  next
===========================================  ====================================  ====  ========
messages that match                          FOUND                                 0     after
messages, but none matches                   NO_MATCHED_MESSAGE                    20    after
entries whose messages are deleted           MESSAGE_WAS_REMOVING                  20    after
its end                                      OFFSET_OVERFLOW_ONE                   19    same
beyond its end                               OFFSET_OVERFLOW_BADLY                 21    max
before its first message                     OFFSET_TOO_SMALL                      21    min
any, and the group has another reset offset  OFFSET_RESET                          21    reset
empty queue, offset 0                        NO_MESSAGE_IN_QUEUE                   19    0
empty queue, offset above 0                  NO_MESSAGE_IN_QUEUE                   21    0
===========================================  ====================================  ====  ========

A message is returned only if its record is whole and belongs to its entry. Other entries are logged
and skipped. Source: ``PullMessageProcessor``, ``DefaultMessageStore.getMessage``.
"""

import logging
from array import array
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens import limits
from rocketlens.broker.delivery.held_pulls import HeldPull, PullFields, QueueScan, ReadOnce
from rocketlens.broker.delivery.pull_filter import PullFilter, PullRefused, parse_filter
from rocketlens.errors import BadInput, RecordError
from rocketlens.formats.commitlog_record import RecordView
from rocketlens.formats.compiled.pull import take
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, QueueEntry
from rocketlens.formats.consumequeue_entry import decode as decode_entry
from rocketlens.model.rocketmq import FAQ, LMQ_PREFIX, PERM_READ, SQL92_TYPE, SYSTEM_GROUPS
from rocketlens.net.channel import Channel, Response
from rocketlens.store.write.message_store import MessageStore
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.wire.bodies.clients import MessageModel
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.messages import COMMIT_OFFSET_FLAG, SUBSCRIPTION_FLAG

if TYPE_CHECKING:
    from rocketlens.broker.core import BrokerCore


_NO_CODES: Final = array("i")
_KEPT_CODES: Final = 100
"""The sorted codes of subscriptions with up to this many tags are cached."""

_log: Final = logging.getLogger("rocketlens.broker")


class Budget(NamedTuple):
    """Bounds of one pull. The first message is returned whatever its size."""

    message_count: int
    memory_bytes: int
    memory_count: int
    disk_bytes: int
    disk_count: int
    in_memory_from: int
    """The log from this physical offset on is assumed to be in memory."""

    def room_at(self, physical_offset: int) -> tuple[int, int]:
        """Return the maximum messages and bytes with a record at ``physical_offset``."""
        if physical_offset >= self.in_memory_from:
            return min(self.message_count, self.memory_count), self.memory_bytes
        return min(self.message_count, self.disk_count), self.disk_bytes


class PullRecords:
    """Collects the records of one pull. For the thread that appends."""

    def __init__(
        self,
        store: MessageStore,
        queue: QueueWriter,
        pull_filter: PullFilter,
        budget: Budget,
        queue_offset: int,
    ) -> None:
        self.slices: Final[list[memoryview]] = []
        """The records in their order; consecutive records of the log can be one slice."""
        self.count = self.size_bytes = 0
        self.queue_offset = queue_offset
        """The next entry to check."""
        self.is_full = False
        """True if the record at ``queue_offset`` exceeds the budget."""
        self.has_lost = False
        """True if a record was missing or damaged."""
        self._store: Final = store
        self._queue: Final = queue
        self._filter: Final = pull_filter
        self._budget: Final = budget
        self._is_compiled: Final = (
            not pull_filter.needs_records
            # Light queues have records of other topics. Topics that are not ASCII can have
            # several encodings.
            and not queue.topic.startswith(LMQ_PREFIX)
            and queue.topic.isascii()
        )

    def collect(self, stop: int) -> None:
        """Check entries below ``stop``, until there are enough records."""
        step = self._budget.message_count
        while (
            self.queue_offset < stop
            and self.count < self._budget.message_count
            and not self.is_full
        ):
            entries = self._queue.read_bytes(self.queue_offset, min(step, stop - self.queue_offset))
            # Start small in case all entries match; grow in case few do.
            step *= 4
            if not entries:
                break
            self._collect_from(entries)

    def _collect_from(self, entries: bytes) -> None:
        first = self.queue_offset
        stop = first + len(entries) // ENTRY_BYTES
        while self.queue_offset < stop and not self.is_full:
            if self._is_compiled:
                self._take_run(memoryview(entries)[(self.queue_offset - first) * ENTRY_BYTES :])
            while self.queue_offset < stop and not self.is_full:
                position = (self.queue_offset - first) * ENTRY_BYTES
                is_taken = self._take_one(decode_entry(entries, position))
                if is_taken and self._is_compiled:
                    # The record is sound: continue with compiled code.
                    break

    def _take_run(self, entries: memoryview) -> None:
        """Take records of one segment by compiled code, up to the first that it cannot decide."""
        physical_offset = decode_entry(entries).physical_offset
        segment = self._store.log_from(physical_offset)
        if segment is None:
            return
        view, base_offset = segment
        # Stay on one side of the boundary, where one budget applies.
        start, stop = base_offset, base_offset + len(view)
        boundary = self._budget.in_memory_from
        if physical_offset >= boundary:
            start = max(start, boundary)
        else:
            stop = min(stop, boundary)
        queue = self._queue
        codes = _codes_of(self._filter.tag_codes)
        slices = array("q", bytes(2 * 8 * (len(entries) // ENTRY_BYTES)))
        entry_count, self.count, self.size_bytes, slice_count, is_full = take(
            *(entries, queue.queue_id, self.queue_offset, queue.topic.encode()),
            *(_NO_CODES if codes is None else codes, codes is not None),
            *(view, base_offset, start, stop, self.count, self.size_bytes),
            *(*self._budget.room_at(physical_offset), slices),
        )
        self.queue_offset += entry_count
        self.is_full = bool(is_full)
        bounds = iter(slices[: 2 * slice_count])
        self.slices.extend([view[begin:end] for begin, end in zip(bounds, bounds, strict=True)])

    def _take_one(self, entry: QueueEntry) -> bool:
        if not self._filter.passes_entry(entry):
            self.queue_offset += 1
            return False
        record = entry_record(self._store, self._queue, entry, self.queue_offset)
        if record is None or not self._filter.passes_record(record):
            self.has_lost |= record is None
            self.queue_offset += 1
            return False
        max_count, max_bytes = self._budget.room_at(entry.physical_offset)
        size_bytes = self.size_bytes + entry.store_size
        if self.count and (self.count >= max_count or size_bytes > max_bytes):
            self.is_full = True
            return False
        self.slices.append(record)
        self.count += 1
        self.size_bytes = size_bytes
        self.queue_offset += 1
        return True


def entry_record(
    store: MessageStore, queue: QueueWriter, entry: QueueEntry, queue_offset: int
) -> memoryview | None:
    """Return the record of an entry; None if it is deleted, damaged or of another entry."""
    if entry.is_filler:
        return None
    content = store.record(entry.physical_offset, entry.store_size)
    if content is None:
        return None
    try:
        record = RecordView(content, 0, entry.physical_offset)
        record.check_crc()
    except RecordError as error:
        _log.error("pull skips a damaged message: %s", error)
        return None
    if record.total_size == len(content) and _is_of(record, queue, queue_offset):
        return content
    message = f"{queue.topic}/{queue.queue_id}/{queue_offset}"
    _log.error("pull skips %s: its queue entry refers to another message", message)
    return None


def _is_of(record: RecordView, queue: QueueWriter, queue_offset: int) -> bool:
    """Return True if a record belongs to a queue; light queues have records of other topics."""
    return (record.topic == queue.topic and record.queue == (queue.queue_id, queue_offset)) or (
        queue.topic.startswith(LMQ_PREFIX)
    )


def _codes_of(tag_codes: frozenset[int] | None) -> "array[int] | None":
    if tag_codes is None:
        return None
    return (_kept_array if len(tag_codes) <= _KEPT_CODES else _array)(tag_codes)


def _array(tag_codes: frozenset[int]) -> "array[int]":
    return array("i", sorted(tag_codes))


_kept_array = lru_cache(1_000)(_array)


FoundQueue = tuple[QueueWriter | None, int, int]
"""The queue of a pull, its first and its next offset; None, 0 and 0 if it never had messages."""
FOUND: Final = "FOUND"


class PullResult(NamedTuple):
    """The messages of a pull, or the reason for none; ``status`` is the response's remark."""

    status: str
    code: ResponseCode
    next_offset: int
    slices: tuple[memoryview | bytes, ...] = ()
    """The bytes of the records, concatenated."""
    record_count: int = 0


class PullReader:
    """Reads the messages of pulls, at once or after they were held."""

    def __init__(self, core: "BrokerCore", memory_bytes: int) -> None:
        """``core`` needs only store, tables and configuration yet."""
        self._store: Final = core.store
        self._topics, self._groups, self._clients = core.topics, core.groups, core.clients
        self._offsets, self._stats = core.offsets, core.stats
        self._config: Final = core.config
        self._memory_bytes: Final = memory_bytes

    @property
    def in_memory_from(self) -> int:
        return self._store.end_offset - self._memory_bytes

    def is_reset(self, request: PullFields) -> bool:
        """Return True if the group's offset was reset, and no pull has continued from there yet."""
        queue = request.consumer_group, request.topic, request.queue_id
        return queue in self._offsets.resets

    def take_reset(self, request: PullFields) -> PullResult | None:
        """Return the reset offset for a group that does not know it yet; None if there is none."""
        queue = request.consumer_group, request.topic, request.queue_id
        reset = self._offsets.resets.pop(queue, None)
        if reset is None or reset.queue_offset == request.queue_offset:
            return None
        return PullResult("OFFSET_RESET", ResponseCode.PULL_OFFSET_MOVED, reset.queue_offset)

    def pull_again(self, pull: HeldPull, scanned: int, read: ReadOnce) -> Response:
        """Answer a held pull; no entry below ``scanned`` passes its filter."""
        request = pull.request
        try:
            self.check_allowed(request, pull.channel)
            pull_filter = self.filter_of(request)._replace(reader=pull.pull_filter.reader)
        except PullRefused as refusal:
            return self.response(request, PullResult(refusal.remark, refusal.code, 0))
        moved = self.take_reset(request)
        if moved is not None:
            return self.response(request, moved)
        offset = request.queue_offset
        if pull_filter == pull.pull_filter:
            offset = max(offset, scanned)
        result = self._get_once(request, pull_filter, offset, read)
        if result.code == ResponseCode.PULL_NOT_FOUND and offset > request.queue_offset:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            result = PullResult("NO_MATCHED_MESSAGE", code, offset)
        self.count(result)
        return self.response(request, result)

    def _get_once(
        self, request: PullFields, pull_filter: PullFilter, offset: int, read: ReadOnce
    ) -> PullResult:
        """Return the messages at an offset, which another pull can have read just before."""
        queue = self._store.queues.get(request.topic, request.queue_id)
        bounds = request.max_message_nums, request.max_message_bytes
        # The queue object: a topic that was deleted and created again has another one.
        question = queue, pull_filter, offset, bounds
        if question == read.question:
            last: PullResult = read.result
            return last
        result = self.get(request, pull_filter, offset, self.queue_of(request))
        if result.code == ResponseCode.SUCCESS:
            # Only messages are still right later. A copy keeps no segment open.
            result = result._replace(slices=(b"".join(result.slices),))
            read.question, read.result = question, result
        return result

    def scan(self, name: tuple[str, int], pull_filter: PullFilter, offset: int) -> QueueScan:
        """Return the first entry of a queue, from an offset on, that passes a filter."""
        queue = self._store.queues.get(*name)
        if queue is None or offset >= queue.next_offset:
            return QueueScan(None, offset, is_end=True)
        if pull_filter.is_all:
            return QueueScan(offset, offset, is_end=False)
        entries = queue.read(offset, pull_filter.entries_at_once)
        for entry in entries:
            if pull_filter.passes_entry(entry):
                content = None
                if pull_filter.needs_records:
                    content = entry_record(self._store, queue, entry, offset)
                # The pull itself skips a damaged record.
                if content is None or pull_filter.passes_record(content):
                    return QueueScan(offset, offset, is_end=False)
            offset += 1
        return QueueScan(None, offset, is_end=not entries or offset >= queue.next_offset)

    def count(self, result: PullResult) -> None:
        stats = self._stats
        if result.code == ResponseCode.SUCCESS:
            stats.get_found += 1
            stats.get_total += result.record_count
        else:
            stats.get_missed += 1

    def check_allowed(self, request: PullFields, channel: Channel) -> None:
        """:raises PullRefused: if the group cannot pull from the queue."""
        if not self._config.brokerPermission & PERM_READ:
            remark = f"the broker[{self._config.brokerIP1}] pulling message is forbidden"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark)
        group = self._groups.find(request.consumer_group)
        if group is None:
            remark = f"subscription group [{request.consumer_group[:300]}] does not exist, {FAQ}"
            raise PullRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.get("consumeEnable", True) and request.consumer_group not in SYSTEM_GROUPS:
            remark = f"subscription group no permission, {request.consumer_group}"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark)
        topic = self._topics.get(request.topic)
        if topic is None:
            remark = f"topic[{request.topic[:300]}] not exist, apply first please!{FAQ}"
            raise PullRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{request.topic}] pulling message is forbidden"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark)
        if not 0 <= request.queue_id < topic.read_queue_count:
            remark = (
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_count}] consumer:[{channel.address}]"
            )
            raise PullRefused(ResponseCode.INVALID_PARAMETER, remark)

    def filter_of(self, request: PullFields) -> PullFilter:
        """:raises PullRefused: if the group's subscription is missing, outdated or invalid."""
        with_sql92 = self._config.enablePropertyFilter
        if request.sys_flag & SUBSCRIPTION_FLAG:
            return parse_filter(
                request.expression_type, request.subscription, with_sql92=with_sql92
            )
        group = self._clients.consumers.get(request.consumer_group)
        if group is None:
            problem = f"the consumer's group info not exist{FAQ}"
            raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, problem)
        if group.message_model is MessageModel.BROADCASTING:
            config = self._groups.find(request.consumer_group) or {}
            if not config.get("consumeBroadcastEnable", True):
                problem = "can not consume by broadcast way"
                remark = f"the consumer group[{request.consumer_group}] {problem}"
                raise PullRefused(ResponseCode.NO_PERMISSION, remark)
        subscription = group.subscriptions.get(request.topic)
        if subscription is None:
            problem = f"the consumer's subscription not exist{FAQ}"
            raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, problem)
        if subscription.sub_version < request.subscription_version:
            problem = "the consumer's subscription not latest"
            raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST, problem)
        kind, expression = subscription.expression_type, subscription.sub_string
        try:
            return parse_filter(kind, expression, with_sql92=with_sql92)
        except PullRefused as refusal:
            if kind != SQL92_TYPE or refusal.code == ResponseCode.SYSTEM_ERROR:
                raise
            problem = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            raise PullRefused(ResponseCode.FILTER_DATA_NOT_EXIST, problem) from refusal

    def get(
        self, request: PullFields, pull_filter: PullFilter, offset: int, found: FoundQueue
    ) -> PullResult:
        """Return the messages at an offset, as in the module's table."""
        queue, low, high = found
        if queue is None or high == 0:
            code = ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
            return PullResult("NO_MESSAGE_IN_QUEUE", code, 0)
        if offset < low:
            return PullResult("OFFSET_TOO_SMALL", ResponseCode.PULL_OFFSET_MOVED, low)
        if offset == high:
            return PullResult("OFFSET_OVERFLOW_ONE", ResponseCode.PULL_NOT_FOUND, offset)
        if offset > high:
            return PullResult("OFFSET_OVERFLOW_BADLY", ResponseCode.PULL_OFFSET_MOVED, high)
        budget = self.budget(request)
        records = PullRecords(self._store, queue, pull_filter, budget, offset)
        records.collect(min(high, offset + max(pull_filter.entries_at_once, budget.message_count)))
        next_offset = records.queue_offset
        if records.count:
            slices = tuple(records.slices)
            return PullResult(FOUND, ResponseCode.SUCCESS, next_offset, slices, records.count)
        if next_offset == offset:
            return PullResult("OFFSET_FOUND_NULL", ResponseCode.PULL_NOT_FOUND, offset)
        status = "MESSAGE_WAS_REMOVING" if records.has_lost else "NO_MATCHED_MESSAGE"
        return PullResult(status, ResponseCode.PULL_RETRY_IMMEDIATELY, next_offset)

    def budget(self, request: PullFields) -> Budget:
        config = self._config
        max_bytes = min(
            limits.MAX_ANSWER_FRAME_BYTES,
            request.max_message_bytes or limits.MAX_ANSWER_FRAME_BYTES,
        )
        max_messages = max(
            config.maxTransferCountOnMessageInMemory, config.maxTransferCountOnMessageInDisk
        )
        return Budget(
            max(min(request.max_message_nums, max_messages), 1),
            min(config.maxTransferBytesOnMessageInMemory, max_bytes),
            config.maxTransferCountOnMessageInMemory,
            min(config.maxTransferBytesOnMessageInDisk, max_bytes),
            config.maxTransferCountOnMessageInDisk,
            self.in_memory_from,
        )

    def response(self, request: PullFields, result: PullResult) -> Response:
        _, low, high = self.queue_of(request)
        fields = response_fields(str(result.next_offset), str(low), str(high))
        return Response(result.code, fields, b"".join(result.slices), result.status)

    def queue_of(self, request: PullFields) -> FoundQueue:
        queues = self._store.queues
        queue = queues.get(request.topic, request.queue_id)
        if queue is None:
            return None, 0, 0
        return queue, queues.min_offset_of(queue), queue.next_offset

    def commit(self, request: PullFields) -> None:
        """Set the committed offset of a pull, in a queue that exists."""
        if request.sys_flag & COMMIT_OFFSET_FLAG:
            # A full table counts the refusal; the pull still returns its messages.
            with suppress(BadInput):
                self._offsets.put(
                    request.consumer_group, request.topic, request.queue_id, request.commit_offset
                )


def response_fields(next_offset: str, low: str, high: str) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": next_offset,
        "minOffset": low,
        "maxOffset": high,
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
