"""Offsets: of queues (29 to 32), and of consumer groups (14, 15)."""

from collections.abc import Mapping
from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.formats.commitlog_record import store_timestamp_at
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import offset as commands

UPPER: Final = "UPPER"
NO_OFFSET: Final = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
NO_ZERO: Final = "Not found, do not set to zero, maybe this group boot first"


class OffsetProcessor:
    """Answers for offsets, and keeps those of groups."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
        }

    def search(self, command: RemotingCommand, _: Channel) -> Response:
        """Return the first message at or after a time; with UPPER the last at or before it."""
        asked = commands.SEARCH_OFFSET_BY_TIMESTAMP.request.decode(command.ext_fields)
        is_upper = (asked.boundary_type or "").upper() == UPPER
        return _offset(
            self.core.store.queues.offset_by_time(
                asked.topic, asked.queue_id, asked.timestamp_ms, upper=is_upper
            )
        )

    def max_offset(self, command: RemotingCommand, _: Channel) -> Response:
        """Return the offset that a queue's next message gets."""
        asked = commands.GET_MAX_OFFSET.request.decode(command.ext_fields)
        return _offset(self.core.store.queues.max_offset(asked.topic, asked.queue_id))

    def min_offset(self, command: RemotingCommand, _: Channel) -> Response:
        """Return the offset of a queue's first message that is still there."""
        asked = commands.GET_MIN_OFFSET.request.decode(command.ext_fields)
        return _offset(self.core.store.queues.min_offset(asked.topic, asked.queue_id))

    def earliest_time(self, command: RemotingCommand, _: Channel) -> Response:
        """Return when that message was stored, -1 where there is none."""
        asked = commands.GET_EARLIEST_MSG_STORETIME.request.decode(command.ext_fields)
        first = self.core.store.queues.min_offset(asked.topic, asked.queue_id)
        timestamp_ms = store_time(self.core, asked.topic, asked.queue_id, first)
        return Response(ext_fields={"timestamp": str(timestamp_ms)})

    def query(self, command: RemotingCommand, _: Channel) -> Response:
        """Return how far a group came; 0 if it never began and the first message is still near."""
        asked = commands.QUERY_CONSUMER_OFFSET.request.decode(command.ext_fields)
        group, topic, queue_id = asked.consumer_group, asked.topic, asked.queue_id
        known = self.core.offsets.get(group, topic, queue_id)
        if known is not None and known >= 0:
            return _offset(known)
        if asked.set_zero_if_not_found is False:
            return Response(ResponseCode.QUERY_NOT_FOUND, remark=NO_ZERO)
        if self.core.store.queues.min_offset(topic, queue_id) == 0 and self._is_near(
            topic, queue_id
        ):
            return _offset(0)
        return Response(ResponseCode.QUERY_NOT_FOUND, remark=NO_OFFSET)

    def _is_near(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue's first message can be taken to be in memory."""
        queue = self.core.store.queues.get(topic, queue_id)
        entry = queue.entry(0) if queue else None
        return entry is None or entry.physical_offset >= self.core.in_memory_from

    def update(self, command: RemotingCommand, _: Channel) -> Response:
        """Keep how far a group came."""
        asked = commands.UPDATE_CONSUMER_OFFSET.request.decode(command.ext_fields)
        if self.core.topics.get(asked.topic) is None:
            words = f"Topic {asked.topic[:300]} not exist!"
            return Response(ResponseCode.TOPIC_NOT_EXIST, remark=words)
        if asked.consumer_group not in self.core.groups.table.groups:
            words = f"Group {asked.consumer_group[:300]} not exist!"
            return Response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=words)
        if not may_commit(self.core, asked.consumer_group, asked.topic, asked.queue_id):
            words = f"Topic {asked.topic[:300]} has no queue {asked.queue_id}"
            return Response(ResponseCode.SYSTEM_ERROR, remark=words)
        self.core.offsets.put(
            asked.consumer_group, asked.topic, asked.queue_id, asked.commit_offset
        )
        return Response()


def may_commit(core: BrokerCore, group: str, topic: str, queue_id: int) -> bool:
    """Return whether a group can have an offset in a queue; that it cannot is counted.

    A topic that lost queues has those that were written to, and groups have offsets there.
    """
    config = core.topics.get(topic)
    if config is not None and 0 <= queue_id < max(
        config.read_queue_count, config.write_queue_count
    ):
        return True
    if (
        core.store.queues.get(topic, queue_id)
        or core.offsets.get(group, topic, queue_id) is not None
    ):
        return True
    core.offsets.refused += 1
    return False


def store_time(core: BrokerCore, topic: str, queue_id: int, queue_offset: int) -> int:
    """Return when a message was stored, in epoch milliseconds; -1 when it is not there."""
    queue = core.store.queues.get(topic, queue_id)
    if queue is None or not 0 <= queue_offset < queue.next_offset:
        return -1
    entry = queue.entry(queue_offset)
    if entry is None or entry.is_filler:
        return -1
    record = core.store.record(entry.physical_offset, entry.store_size)
    return -1 if record is None else store_timestamp_at(record)


def _offset(queue_offset: int) -> Response:
    return Response(ext_fields={"offset": str(queue_offset)})
