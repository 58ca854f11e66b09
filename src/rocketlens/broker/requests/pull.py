"""Pulling: codes 11 and 361.

===========================================  ====================================  ====  ========
queue at the requested offset                remark                                code  next
===========================================  ====================================  ====  ========
messages that match                          FOUND                                 0     after
messages, but none matches                   NO_MATCHED_MESSAGE                    20    after
entries whose messages are deleted           MESSAGE_WAS_REMOVING                  20    after
its end                                      OFFSET_OVERFLOW_ONE                   19    same
beyond its end                               OFFSET_OVERFLOW_BADLY                 21    max
before its first message                     OFFSET_TOO_SMALL                      21    min
any, and the group was reset elsewhere       OFFSET_RESET                          21    there
empty queue, offset 0                        NO_MESSAGE_IN_QUEUE                   19    0
empty queue, offset above 0                  NO_MESSAGE_IN_QUEUE                   21    0
===========================================  ====================================  ====  ========

Which messages match is in :mod:`rocketlens.broker.delivery.pull_filter`. A message is returned only
if its record is whole and belongs to its entry. Any other is skipped and logged, and the next
offset is behind it. A pull that would be answered with 19 and allows it is held
(:mod:`rocketlens.broker.delivery.held_pulls`). Source: ``PullMessageProcessor``,
``DefaultMessageStore.getMessage``.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.delivery.held_pulls import HeldPull, PullFields, QueueScan, ReadOnce
from rocketlens.broker.delivery.pull_filter import PullFilter, PullRefused, parse_filter
from rocketlens.broker.delivery.pull_records import Budget, PullRecords, entry_record
from rocketlens.errors import BadInput
from rocketlens.model.rocketmq import (
    FAQ,
    PERM_READ,
    SQL92_TYPE,
    SYSTEM_GROUPS,
)
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.wire.bodies.heartbeat import MessageModel
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.pull import (
    COMMIT_OFFSET_FLAG,
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
)

_log: Final = logging.getLogger("rocketlens.broker")

Refusal = tuple[ResponseCode, str]


class PullResult(NamedTuple):
    """Messages of a pull, or why there are none; ``status`` is the response's remark."""

    status: str
    code: ResponseCode
    next_offset: int
    slices: tuple[memoryview | bytes, ...] = ()
    """The bytes of the records, together."""
    record_count: int = 0


class PullProcessor:
    """Answers pull requests (codes 11 and 361)."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        held = core.held_pulls
        held.scan, held.answer = self.scan, self.pull_again
        if core.config.longPollingEnable:
            core.store.watch_queues(held.queues, held.arrived)

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    def pull(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Return the messages of a queue from an offset on, and commit an offset if requested.

        None if the pull is held.
        """
        request = PullFields.of(command.ext_fields)
        try:
            self._check_allowed(request, channel)
            pull_filter = self._filter(request)
        except PullRefused as refusal:
            return self._response(request, PullResult(refusal.remark, refusal.code, 0))
        if self.core.access is not None:
            reader = self.core.access.reader_of(command, channel, request.topic)
            pull_filter = pull_filter if reader is None else pull_filter._replace(reader=reader)
        if self.core.offsets.resets:
            moved = self._reset(request)
            if moved is not None:
                return self._response(request, moved)
        result = self.get(request, pull_filter, request.queue_offset)
        if request.sys_flag & COMMIT_OFFSET_FLAG:
            self._commit(request)
        if (
            result.code == ResponseCode.PULL_NOT_FOUND
            and request.sys_flag & SUSPEND_FLAG
            and not command.is_one_way
            and self._hold(HeldPull(command, channel, request, pull_filter))
        ):
            return None
        self._count(result)
        return self._response(request, result)

    def _commit(self, request: PullFields) -> None:
        """Set the offset of a group in a queue of which it is known that it exists."""
        # If the offset table is full, that is counted; the messages are returned anyway.
        with suppress(BadInput):
            offsets = self.core.offsets
            offsets.put(
                request.consumer_group, request.topic, request.queue_id, request.commit_offset
            )

    def _reset(self, request: PullFields) -> PullResult | None:
        """Return where a group goes on after a reset; None if it is there, or was not reset."""
        queue = request.consumer_group, request.topic, request.queue_id
        offset = self.core.offsets.resets.pop(queue, None)
        if offset is None or offset == request.queue_offset:
            return None
        return PullResult("OFFSET_RESET", ResponseCode.PULL_OFFSET_MOVED, offset)

    def _hold(self, pull: HeldPull) -> bool:
        config, timeout_ms = self.core.config, pull.request.suspend_timeout_ms
        if not config.longPollingEnable:
            timeout_ms = config.shortPollingTimeMills
        return timeout_ms > 0 and self.core.held_pulls.hold(pull, timeout_ms / 1000)

    def pull_again(self, pull: HeldPull, scanned: int, read: ReadOnce) -> Response:
        """Answer a held pull; no entry below ``scanned`` passes its filter.

        ``read`` has what the pull before it found.
        """
        request = pull.request
        try:
            self._check_allowed(request, pull.channel)
            pull_filter = self._filter(request)._replace(reader=pull.pull_filter.reader)
        except PullRefused as refusal:
            return self._response(request, PullResult(refusal.remark, refusal.code, 0))
        moved = self._reset(request)
        if moved is not None:
            return self._response(request, moved)
        offset = request.queue_offset
        if pull_filter == pull.pull_filter:
            offset = max(offset, scanned)
        result = self._get_once(request, pull_filter, offset, read)
        if result.code == ResponseCode.PULL_NOT_FOUND and offset > request.queue_offset:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            result = PullResult("NO_MATCHED_MESSAGE", code, offset)
        self._count(result)
        return self._response(request, result)

    def _get_once(
        self, request: PullFields, pull_filter: PullFilter, offset: int, read: ReadOnce
    ) -> PullResult:
        """Return the messages at an offset, which may have been read for another pull just now."""
        queue = self.core.store.queues.get(request.topic, request.queue_id)
        bounds = request.max_message_nums, request.max_message_bytes
        # A queue of the same name is another one if the topic was deleted meanwhile.
        asked = queue, pull_filter, offset, bounds
        if asked == read.asked:
            found: PullResult = read.found
            return found
        result = self.get(request, pull_filter, offset)
        if result.code == ResponseCode.SUCCESS:
            # Only messages stay what they are; copied, they hold no segment.
            result = result._replace(slices=(b"".join(result.slices),))
            read.asked, read.found = asked, result
        return result

    def scan(self, name: tuple[str, int], pull_filter: PullFilter, offset: int) -> QueueScan:
        """Return the first entry of a queue, from an offset on, that passes a filter."""
        queue = self.core.store.queues.get(*name)
        if queue is None or offset >= queue.next_offset:
            return QueueScan(None, offset, is_end=True)
        if pull_filter.is_all:
            return QueueScan(offset, offset, is_end=False)
        entries = queue.read(offset, pull_filter.entries_at_once)
        for entry in entries:
            if pull_filter.passes_entry(entry):
                content = None
                if pull_filter.needs_records:
                    content = entry_record(self.core.store, queue, entry, offset)
                # One that is damaged is for the pull to skip.
                if content is None or pull_filter.passes_record(content):
                    return QueueScan(offset, offset, is_end=False)
            offset += 1
        return QueueScan(None, offset, is_end=not entries or offset >= queue.next_offset)

    def _count(self, result: PullResult) -> None:
        stats = self.core.stats
        if result.code == ResponseCode.SUCCESS:
            stats.get_found += 1
            stats.get_total += result.record_count
        else:
            stats.get_missed += 1

    def _check_allowed(self, request: PullFields, channel: Channel) -> None:
        """Raise PullRefused if the queue may not be pulled."""
        core = self.core
        if not core.config.brokerPermission & PERM_READ:
            words = f"the broker[{core.config.brokerIP1}] pulling message is forbidden"
            raise PullRefused(ResponseCode.NO_PERMISSION, words)
        group = core.groups.find(request.consumer_group)
        if group is None:
            words = f"subscription group [{request.consumer_group[:300]}] does not exist, {FAQ}"
            raise PullRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, words)
        if not group.get("consumeEnable", True) and request.consumer_group not in SYSTEM_GROUPS:
            words = f"subscription group no permission, {request.consumer_group}"
            raise PullRefused(ResponseCode.NO_PERMISSION, words)
        topic = core.topics.get(request.topic)
        if topic is None:
            words = f"topic[{request.topic[:300]}] not exist, apply first please!{FAQ}"
            raise PullRefused(ResponseCode.TOPIC_NOT_EXIST, words)
        if not topic.perm & PERM_READ:
            words = f"the topic[{request.topic}] pulling message is forbidden"
            raise PullRefused(ResponseCode.NO_PERMISSION, words)
        if not 0 <= request.queue_id < topic.read_queue_count:
            words = (
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_count}] consumer:[{channel.address}]"
            )
            raise PullRefused(ResponseCode.INVALID_PARAMETER, words)

    def _filter(self, request: PullFields) -> PullFilter:
        """Return what a pull is to get; raise PullRefused if its subscription cannot be used."""
        with_sql92 = self.core.config.enablePropertyFilter
        if request.sys_flag & SUBSCRIPTION_FLAG:
            return parse_filter(
                request.expression_type, request.subscription, with_sql92=with_sql92
            )
        group = self.core.clients.consumers.get(request.consumer_group)
        if group is None:
            words = f"the consumer's group info not exist{FAQ}"
            raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, words)
        if group.message_model is MessageModel.BROADCASTING:
            config = self.core.groups.find(request.consumer_group) or {}
            if not config.get("consumeBroadcastEnable", True):
                words = "can not consume by broadcast way"
                remark = f"the consumer group[{request.consumer_group}] {words}"
                raise PullRefused(ResponseCode.NO_PERMISSION, remark)
        subscription = group.subscriptions.get(request.topic)
        if subscription is None:
            words = f"the consumer's subscription not exist{FAQ}"
            raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, words)
        if subscription.sub_version < request.subscription_version:
            words = "the consumer's subscription not latest"
            raise PullRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST, words)
        kind, expression = subscription.expression_type, subscription.sub_string
        try:
            return parse_filter(kind, expression, with_sql92=with_sql92)
        except PullRefused as refusal:
            if kind != SQL92_TYPE or refusal.code == ResponseCode.SYSTEM_ERROR:
                raise
            words = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            raise PullRefused(ResponseCode.FILTER_DATA_NOT_EXIST, words) from refusal

    def get(self, request: PullFields, pull_filter: PullFilter, offset: int) -> PullResult:
        """Return the messages at an offset; see the table above."""
        queues = self.core.store.queues
        queue = queues.get(request.topic, request.queue_id)
        high = 0 if queue is None else queue.next_offset
        if queue is None or high == 0:
            code = ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
            return PullResult("NO_MESSAGE_IN_QUEUE", code, 0)
        low = queues.min_offset_of(queue)
        if offset < low:
            return PullResult("OFFSET_TOO_SMALL", ResponseCode.PULL_OFFSET_MOVED, low)
        if offset == high:
            return PullResult("OFFSET_OVERFLOW_ONE", ResponseCode.PULL_NOT_FOUND, offset)
        if offset > high:
            return PullResult("OFFSET_OVERFLOW_BADLY", ResponseCode.PULL_OFFSET_MOVED, high)
        return self._collect(queue, request, pull_filter, (offset, high))

    def _budget(self, request: PullFields) -> Budget:
        config = self.core.config
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
            self.core.in_memory_from,
        )

    def _collect(
        self,
        queue: QueueWriter,
        request: PullFields,
        pull_filter: PullFilter,
        span: tuple[int, int],
    ) -> PullResult:
        """Return as many matching messages as the budget allows."""
        budget = self._budget(request)
        first, high = span
        found = PullRecords(self.core.store, queue, pull_filter, budget, first)
        found.collect(min(high, first + max(pull_filter.entries_at_once, budget.message_count)))
        offset = found.queue_offset
        if found.count:
            slices = tuple(found.slices)
            return PullResult("FOUND", ResponseCode.SUCCESS, offset, slices, found.count)
        if offset == first:
            return PullResult("OFFSET_FOUND_NULL", ResponseCode.PULL_NOT_FOUND, offset)
        status = "MESSAGE_WAS_REMOVING" if found.has_lost else "NO_MATCHED_MESSAGE"
        return PullResult(status, ResponseCode.PULL_RETRY_IMMEDIATELY, offset)

    def _response(self, request: PullFields, result: PullResult) -> Response:
        queues = self.core.store.queues
        queue = queues.get(request.topic, request.queue_id)
        low, high = (0, 0) if queue is None else (queues.min_offset_of(queue), queue.next_offset)
        return Response(
            result.code,
            {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(result.next_offset),
                "minOffset": str(low),
                "maxOffset": str(high),
                "topicSysFlag": "0",
                "groupSysFlag": "0",
            },
            b"".join(result.slices),
            result.status,
        )
