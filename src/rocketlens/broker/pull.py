"""Pulling: codes 11 and 361.

===========================================  ====================================  ====  ========
what is at the offset                        remark                                code  next
===========================================  ====================================  ====  ========
messages that pass                           FOUND                                 0     after
messages, none of which passes               NO_MATCHED_MESSAGE                    20    after
entries whose messages are deleted           MESSAGE_WAS_REMOVING                  20    after
the queue's end                              OFFSET_OVERFLOW_ONE                   19    same
nothing: beyond the end                      OFFSET_OVERFLOW_BADLY                 21    max
nothing: before the begin                    OFFSET_TOO_SMALL                      21    min
nothing: no messages yet, asked for 0        NO_MESSAGE_IN_QUEUE                   19    0
nothing: no messages yet, asked for more     NO_MESSAGE_IN_QUEUE                   21    0
===========================================  ====================================  ====  ========

Tags are compared by their hash codes, as the queue has them; the client compares the texts. A
message is given if its record is whole and has the place of its entry; one that is not is left out
and logged, and the offset goes on behind it. Every answer comes at once. Source:
``PullMessageProcessor``, ``DefaultMessageStore.getMessage``.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.offset import may_commit
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.errors import BadInput, RecordError
from rocketlens.formats.commitlog_record import RecordView
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.model.java import string_hash
from rocketlens.model.rocketmq import (
    FAQ,
    LMQ_PREFIX,
    PERM_READ,
    SYSTEM_GROUPS,
)
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.store.write.queue_append import QueueWriter
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import pull as commands
from rocketlens.wire.commands.pull import (
    COMMIT_OFFSET_FLAG,
    SUBSCRIPTION_FLAG,
    PullMessageRequest,
)

_log: Final = logging.getLogger("rocketlens.broker")

ALL_TAGS: Final = "*"
TAG_TYPES: Final = (None, "", "TAG")
ENTRIES_LOOKED_AT: Final = 4_000
"""Entries that one pull looks at, at most, when their tags do not pass: 5 ms. RocketMQ: 16,000."""

Codes = frozenset[int] | None
"""Hash codes of the tags that pass; None for all."""

Refused = tuple[ResponseCode, str]


class Got(NamedTuple):
    """What the store has for a pull."""

    status: str
    code: ResponseCode
    next_offset: int
    records: tuple[memoryview, ...] = ()


class Budget(NamedTuple):
    """How much a pull gets, at most; the first message comes whatever its size."""

    message_count: int
    memory_bytes: int
    memory_count: int
    disk_bytes: int
    disk_count: int
    in_memory_from: int
    """From this physical offset on, the log is taken to be in memory."""


class PullProcessor:
    """Hands messages to consumers."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    def pull(self, command: RemotingCommand, channel: Channel) -> Response:
        """Return the messages of a queue from an offset on."""
        asked = commands.PULL_MESSAGE.request.decode(command.ext_fields)
        refused = self._refusal(asked, channel)
        if refused is not None:
            return self._answer(asked, Got(refused[1], refused[0], 0))
        codes, refused = self._codes(asked)
        if refused is not None:
            return self._answer(asked, Got(refused[1], refused[0], 0))
        got = self.get(asked, codes)
        figures = self.core.figures
        if got.code == ResponseCode.SUCCESS:
            figures.found += 1
            figures.got += len(got.records)
        else:
            figures.missed += 1
        if asked.sys_flag & COMMIT_OFFSET_FLAG and may_commit(
            self.core, asked.consumer_group, asked.topic, asked.queue_id
        ):
            # What there is no room for is counted; the messages are given all the same.
            with suppress(BadInput):
                self.core.offsets.put(
                    asked.consumer_group, asked.topic, asked.queue_id, asked.commit_offset
                )
        return self._answer(asked, got)

    def _refusal(self, asked: PullMessageRequest, channel: Channel) -> Refused | None:
        """Return why a pull is refused, if it is."""
        core = self.core
        if not core.config.brokerPermission & PERM_READ:
            words = f"the broker[{core.config.brokerIP1}] pulling message is forbidden"
            return ResponseCode.NO_PERMISSION, words
        group = core.groups.find(asked.consumer_group)
        if group is None:
            words = f"subscription group [{asked.consumer_group[:300]}] does not exist, {FAQ}"
            return ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, words
        if not group.get("consumeEnable", True) and asked.consumer_group not in SYSTEM_GROUPS:
            words = f"subscription group no permission, {asked.consumer_group}"
            return ResponseCode.NO_PERMISSION, words
        topic = core.topics.get(asked.topic)
        if topic is None:
            words = f"topic[{asked.topic[:300]}] not exist, apply first please!{FAQ}"
            return ResponseCode.TOPIC_NOT_EXIST, words
        return self._topic_refusal(asked, topic, channel)

    def _topic_refusal(
        self, asked: PullMessageRequest, topic: StoredTopic, channel: Channel
    ) -> Refused | None:
        if not topic.perm & PERM_READ:
            words = f"the topic[{asked.topic}] pulling message is forbidden"
            return ResponseCode.NO_PERMISSION, words
        if not 0 <= asked.queue_id < topic.read_queue_count:
            words = (
                f"queueId[{asked.queue_id}] is illegal, topic:[{asked.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_count}] consumer:[{channel.address}]"
            )
            return ResponseCode.INVALID_PARAMETER, words
        return None

    def _codes(self, asked: PullMessageRequest) -> tuple[Codes, Refused | None]:
        """Return the hash codes that pass, or say why they cannot be told."""
        if asked.sys_flag & SUBSCRIPTION_FLAG:
            return self._codes_of(asked.expression_type, asked.subscription)
        group = self.core.clients.consumers.get(asked.consumer_group)
        if group is None:
            words = f"the consumer's group info not exist{FAQ}"
            return None, (ResponseCode.SUBSCRIPTION_NOT_EXIST, words)
        subscription = group.subscriptions.get(asked.topic)
        if subscription is None:
            words = f"the consumer's subscription not exist{FAQ}"
            return None, (ResponseCode.SUBSCRIPTION_NOT_EXIST, words)
        if subscription.sub_version < asked.subscription_version:
            words = "the consumer's subscription not latest"
            return None, (ResponseCode.SUBSCRIPTION_NOT_LATEST, words)
        return self._codes_of(subscription.expression_type, subscription.sub_string)

    def _codes_of(self, kind: str | None, expression: str | None) -> tuple[Codes, Refused | None]:
        if kind not in TAG_TYPES:
            words = f"The broker does not support consumer to filter message by {kind[:60]}"
            return None, (ResponseCode.SYSTEM_ERROR, words)
        if not expression or expression.strip() == ALL_TAGS:
            return None, None
        if len(expression) > limits.MAX_SUBSCRIPTION_CHARACTERS:
            words = (
                f"the consumer's subscription is longer than {limits.MAX_SUBSCRIPTION_CHARACTERS}"
            )
            return None, (ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{words} characters")
        tags = [tag.strip() for tag in expression.split("||") if tag.strip()]
        if not tags:
            words = "parse the consumer's subscription failed"
            return None, (ResponseCode.SUBSCRIPTION_PARSE_FAILED, words)
        return frozenset(map(string_hash, tags)), None

    def get(self, asked: PullMessageRequest, codes: Codes) -> Got:
        """Return what the store has; see the table above."""
        store = self.core.store
        topic, queue_id, offset = asked.topic, asked.queue_id, asked.queue_offset
        low = store.queues.min_offset(topic, queue_id)
        high = store.queues.max_offset(topic, queue_id)
        queue = store.queues.get(topic, queue_id)
        if queue is None or high == 0:
            code = ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
            return Got("NO_MESSAGE_IN_QUEUE", code, 0)
        if offset < low:
            return Got("OFFSET_TOO_SMALL", ResponseCode.PULL_OFFSET_MOVED, low)
        if offset == high:
            return Got("OFFSET_OVERFLOW_ONE", ResponseCode.PULL_NOT_FOUND, offset)
        if offset > high:
            return Got("OFFSET_OVERFLOW_BADLY", ResponseCode.PULL_OFFSET_MOVED, high)
        return self._collect(queue, asked, codes, high)

    def _budget(self, asked: PullMessageRequest) -> Budget:
        config = self.core.config
        most = min(
            limits.MAX_ANSWER_FRAME_BYTES, asked.max_message_bytes or limits.MAX_ANSWER_FRAME_BYTES
        )
        most_messages = max(
            config.maxTransferCountOnMessageInMemory, config.maxTransferCountOnMessageInDisk
        )
        return Budget(
            max(min(asked.max_message_nums, most_messages), 1),
            min(config.maxTransferBytesOnMessageInMemory, most),
            config.maxTransferCountOnMessageInMemory,
            min(config.maxTransferBytesOnMessageInDisk, most),
            config.maxTransferCountOnMessageInDisk,
            self.core.in_memory_from,
        )

    def _collect(
        self, queue: QueueWriter, asked: PullMessageRequest, codes: Codes, high: int
    ) -> Got:
        """Take messages that pass, as many as the budget allows."""
        budget = self._budget(asked)
        records: list[memoryview] = []
        total = 0
        offset = asked.queue_offset
        last = min(high, offset + max(ENTRIES_LOOKED_AT, budget.message_count))
        status = "NO_MATCHED_MESSAGE"
        step = budget.message_count if codes is None else ENTRIES_LOOKED_AT
        while offset < last:
            entries = queue.read(offset, min(step, last - offset))
            if not entries:
                break
            for entry in entries:
                if codes is None or _code_of(entry) in codes:
                    record = self._record(entry, queue, offset)
                    if record is None:
                        status = "MESSAGE_WAS_REMOVING"
                    elif _is_full(entry, budget, len(records), total):
                        return Got("FOUND", ResponseCode.SUCCESS, offset, tuple(records))
                    else:
                        records.append(record)
                        total += len(record)
                offset += 1
        if records:
            return Got("FOUND", ResponseCode.SUCCESS, offset, tuple(records))
        if offset == asked.queue_offset:
            return Got("OFFSET_FOUND_NULL", ResponseCode.PULL_NOT_FOUND, offset)
        return Got(status, ResponseCode.PULL_RETRY_IMMEDIATELY, offset)

    def _record(self, entry: QueueEntry, queue: QueueWriter, offset: int) -> memoryview | None:
        """Return the record of an entry; None when it is deleted, damaged or another's."""
        if entry.is_filler:
            return None
        content = self.core.store.record(entry.physical_offset, entry.store_size)
        if content is None:
            return None
        try:
            record = RecordView(content, 0, entry.physical_offset)
            record.check_crc()
        except RecordError as error:
            _log.error("a pull leaves out a damaged message: %s", error)
            return None
        if record.total_size == len(content) and _is_of(record, queue, offset):
            return content
        place = f"{queue.topic}/{queue.queue_id}/{offset}"
        _log.error("a pull leaves out %s: its entry leads to another message", place)
        return None

    def _answer(self, asked: PullMessageRequest, got: Got) -> Response:
        store = self.core.store
        topic, queue_id = asked.topic, asked.queue_id
        return Response(
            got.code,
            {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(got.next_offset),
                "minOffset": str(store.queues.min_offset(topic, queue_id)),
                "maxOffset": str(store.queues.max_offset(topic, queue_id)),
                "topicSysFlag": "0",
                "groupSysFlag": "0",
            },
            b"".join(got.records),
            got.status,
        )


def _code_of(entry: QueueEntry) -> int:
    """Return the tags code as Java's int."""
    return (entry.tags_code + 2**31) % 2**32 - 2**31


def _is_full(entry: QueueEntry, budget: Budget, count: int, total: int) -> bool:
    """Return whether a pull ends before an entry's message."""
    if not count:
        return False
    if count >= budget.message_count:
        return True
    if entry.physical_offset >= budget.in_memory_from:
        return total + entry.store_size > budget.memory_bytes or count >= budget.memory_count
    return total + entry.store_size > budget.disk_bytes or count >= budget.disk_count


def _is_of(record: RecordView, queue: QueueWriter, offset: int) -> bool:
    """Return whether a record belongs to a queue; a light queue has those of other topics."""
    return (record.topic == queue.topic and record.queue == (queue.queue_id, offset)) or (
        queue.topic.startswith(LMQ_PREFIX)
    )
