"""Offsets of queues (29 to 32) and of consumer groups (14, 15, 222, 314)."""

from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.broker.requests.answers import Handlers, system_error, unsaved_error
from rocketlens.formats.commitlog_record import store_timestamp_at
from rocketlens.model.rocketmq import group_problem
from rocketlens.net.channel import Channel, Response
from rocketlens.net.pace import Pace, in_thread
from rocketlens.wire.bodies.tables import MessageQueue, ResetOffsets
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import groups as commands
from rocketlens.wire.declare import write_body

UPPER: Final = "UPPER"
NO_OFFSET: Final = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
NO_ZERO: Final = "Not found, do not set to zero, maybe this group boot first"


def search(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    """Return the offset of the first message at or after a time; for UPPER, the last before it."""
    request = commands.SEARCH_OFFSET_BY_TIMESTAMP.request.decode(command.ext_fields)
    is_upper = (request.boundary_type or "").upper() == UPPER
    return _offset(
        core.store.queues.offset_by_time(
            request.topic, request.queue_id, request.timestamp_ms, upper=is_upper
        )
    )


def max_offset(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.GET_MAX_OFFSET.request.decode(command.ext_fields)
    return _offset(core.store.queues.max_offset(request.topic, request.queue_id))


def min_offset(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.GET_MIN_OFFSET.request.decode(command.ext_fields)
    return _offset(core.store.queues.min_offset(request.topic, request.queue_id))


def earliest_time(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.GET_EARLIEST_MSG_STORETIME.request.decode(command.ext_fields)
    first = core.store.queues.min_offset(request.topic, request.queue_id)
    timestamp_ms = store_time(core, request.topic, request.queue_id, first)
    return Response(ext_fields={"timestamp": str(timestamp_ms)})


def query(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    """Return a group's offset; 0 if it has none and the first message is still in memory."""
    request = commands.QUERY_CONSUMER_OFFSET.request.decode(command.ext_fields)
    group, topic, queue_id = request.consumer_group, request.topic, request.queue_id
    offset = core.offsets.get(group, topic, queue_id)
    if offset is not None and offset >= 0:
        return _offset(offset)
    if request.set_zero_if_not_found is False:
        return Response(ResponseCode.QUERY_NOT_FOUND, remark=NO_ZERO)
    if core.store.queues.min_offset(topic, queue_id) == 0 and _is_in_memory(core, topic, queue_id):
        return _offset(0)
    return Response(ResponseCode.QUERY_NOT_FOUND, remark=NO_OFFSET)


def _is_in_memory(core: BrokerCore, topic: str, queue_id: int) -> bool:
    """Return True if a queue's first message is assumed to be in memory."""
    queue = core.store.queues.get(topic, queue_id)
    entry = queue.entry(0) if queue else None
    return entry is None or entry.physical_offset >= core.pull_reader.in_memory_from


def update(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.UPDATE_CONSUMER_OFFSET.request.decode(command.ext_fields)
    if core.topics.get(request.topic) is None:
        remark = f"Topic {request.topic[:300]} not exist!"
        return Response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
    if request.consumer_group not in core.groups.table.entries:
        remark = f"Group {request.consumer_group[:300]} not exist!"
        return Response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
    if not may_commit(core, request.consumer_group, request.topic, request.queue_id):
        return system_error(f"Topic {request.topic[:300]} has no queue {request.queue_id}")
    if (request.consumer_group, request.topic, request.queue_id) in core.offsets.resets:
        return Response(remark="Offset has been previously reset")
    core.offsets.put(request.consumer_group, request.topic, request.queue_id, request.commit_offset)
    return Response()


async def reset(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response | None:
    """Reset the offset of a group in one queue, or in all queues of a topic.

    Consumers of any version get the new offset in the response to their next pull.
    """
    request = commands.INVOKE_BROKER_TO_RESET_OFFSET.request.decode(command.ext_fields)
    topic, group = request.topic, request.group
    config = core.topics.get(topic)
    if config is None:
        return Response(ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {topic[:300]} does not exist")
    if group not in core.groups.table.entries:
        remark = f"Group {group[:300]} does not exist"
        return Response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
    queue_id = -1 if request.queue_id is None else request.queue_id
    if queue_id >= config.queue_count:
        return system_error(f"Topic {topic} has no queue {queue_id}")
    queue_ids = range(config.read_queue_count)
    if queue_id >= 0:
        queue_ids = range(queue_id, queue_id + 1)
    if not queue_ids:
        return system_error("No queues to reset.")
    pace = Pace()
    offsets: dict[int, int] = {}
    for queue_id in queue_ids:
        queue_offset = _reset_offset(core, request, queue_id)
        if isinstance(queue_offset, str):
            return system_error(queue_offset)
        offsets[queue_id] = queue_offset
        await pace.turn()
    for queue_id, queue_offset in offsets.items():
        core.offsets.reset(group, topic, queue_id, queue_offset)
    core.held_pulls.on_group_change(group)
    if not await core.saver.save(core.offsets):
        return unsaved_error(f"the offsets of group {group} in topic {topic}")
    broker_name = core.config.brokerName
    table = {
        MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id): offset
        for queue_id, offset in offsets.items()
    }
    return Response(body=await in_thread(lambda: write_body(ResetOffsets(offset_table=table))))


def _reset_offset(
    core: BrokerCore, request: commands.ResetOffsetRequest, queue_id: int
) -> int | str:
    """Return the reset offset of a queue, or the problem."""
    queues, topic = core.store.queues, request.topic
    low, high = queues.min_offset(topic, queue_id), queues.max_offset(topic, queue_id)
    offset = request.offset
    is_one_queue = request.queue_id is not None and request.queue_id >= 0
    if is_one_queue and offset is not None and offset != -1:
        if not low <= offset <= high + 1:
            return f"Target offset {offset} not in consume queue range [{low}-{high}]"
        return offset
    if request.timestamp_ms < 0:
        return high
    return queues.offset_by_time(topic, queue_id, request.timestamp_ms)


async def clone(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response | None:
    request = commands.CLONE_GROUP_OFFSET.request.decode(command.ext_fields)
    source = request.source_group
    problem = group_problem(request.target_group)
    if problem is not None:
        return Response(ResponseCode.INVALID_PARAMETER, remark=problem)
    online = core.clients.consumers.get(source)
    pace = Pace()
    for topic in [request.topic] if request.topic else core.offsets.topics_of(source):
        is_followed = online is None or online.may_follow(topic)
        if core.topics.get(topic) is not None and (request.offline or is_followed):
            core.offsets.clone(source, topic, request.target_group)
        await pace.turn()
    if not await core.saver.save(core.offsets):
        return unsaved_error(f"the offsets of group {request.target_group}")
    return Response()


def may_commit(core: BrokerCore, group: str, topic: str, queue_id: int) -> bool:
    """Return True if a group can have an offset in a queue; count a refusal.

    A topic whose queue count was reduced still has the queues that have messages, with offsets.
    """
    config = core.topics.get(topic)
    if (
        (config is not None and 0 <= queue_id < config.queue_count)
        or core.store.queues.get(topic, queue_id)
        or core.offsets.get(group, topic, queue_id) is not None
    ):
        return True
    core.offsets.refused += 1
    return False


def store_time(core: BrokerCore, topic: str, queue_id: int, queue_offset: int) -> int:
    """Return the store time of a message, in epoch milliseconds; -1 if it does not exist."""
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


HANDLERS: Final[Handlers] = {
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: search,
    RequestCode.GET_MAX_OFFSET: max_offset,
    RequestCode.GET_MIN_OFFSET: min_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: earliest_time,
    RequestCode.QUERY_CONSUMER_OFFSET: query,
    RequestCode.UPDATE_CONSUMER_OFFSET: update,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: reset,
    RequestCode.CLONE_GROUP_OFFSET: clone,
}
