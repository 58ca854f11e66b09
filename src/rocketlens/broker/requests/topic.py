"""Topics: create or change (17), delete (215), statistics (202), configuration (351).

A change is answered when it is written and the name servers have it. Operators change attributes of
topics as ``+name=value,-name``:

======================  ============================================  ==========  ==========
attribute               value                                         changeable  default
======================  ============================================  ==========  ==========
message.type            UNSPECIFIED, MIXED, TRANSACTION, PRIORITY,    yes         NORMAL
                        FIFO, DELAY, LITE, NORMAL
reserve.time            i64 from -1                                   yes         -1
lite.topic.expiration   i64 from -1 to 43200 (minutes)                yes         -1
cleanup.policy          DELETE, COMPACTION                            no          DELETE
queue.type              SimpleCQ                                      no          SimpleCQ
======================  ============================================  ==========  ==========

An attribute that is not changeable can be set when a topic is created. RocketLens does not have
RocketMQ's queues of batches (``BatchCQ``), and refuses topics that need them.

Sources: ``AdminBrokerProcessor``, ``AttributeParser``, ``AttributeUtil``, ``TopicAttributes``.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.delivery.large_answers import row_bytes
from rocketlens.broker.requests.answers import Handlers, Pending, system_error, when_saved
from rocketlens.broker.requests.offset import store_time
from rocketlens.broker.tables.topics import StoredTopic, wire_topic
from rocketlens.errors import BadInput, FieldError
from rocketlens.model.rocketmq import is_system_topic, topic_problem
from rocketlens.net.channel import Channel, Response
from rocketlens.net.pace import ANSWER_THREAD, Pace, WorkThreads, in_thread
from rocketlens.wire.bodies.tables import (
    MessageQueue,
    TopicFilterType,
    TopicOffset,
    TopicStatsTable,
)
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import brokers as commands
from rocketlens.wire.declare import read_i64, write_body

_REMOVAL_THREAD: Final = WorkThreads(1, "queue-removal")
"""Deletes queue files, also after the connection is closed. Only other deletions wait."""


def create(core: BrokerCore, command: RemotingCommand, _: Channel) -> Pending:
    request = commands.UPDATE_AND_CREATE_TOPIC.request.decode(command.ext_fields)
    problem = _problem(request)
    if problem is not None:
        return Response(ResponseCode.INVALID_PARAMETER, remark=problem)
    previous = core.topics.get(request.topic)
    attributes = change_attributes(
        previous.attributes if previous else None, request.attributes or ""
    )
    config = StoredTopic(
        request.topic,
        request.read_queue_nums,
        request.write_queue_nums,
        request.perm,
        request.topic_filter_type,
        request.topic_sys_flag or 0,
        request.order,
        attributes,
        dict(previous.others) if previous else {},
    )
    announced = core.topics.put(config)
    core.held_pulls.on_topic_change(request.topic)
    return when_saved(f"topic {request.topic}", announced)


def delete(core: BrokerCore, command: RemotingCommand, _: Channel) -> Pending:
    """Delete a topic, its queues and the offsets of groups in it.

    As in RocketMQ, queries by key and id find its messages as long as the log has them.
    """
    topic = commands.DELETE_TOPIC_IN_BROKER.request.decode(command.ext_fields).topic
    if not topic.strip():
        return Response(ResponseCode.INVALID_PARAMETER, remark="The specified topic is blank.")
    if is_system_topic(topic):
        remark = f"The topic[{topic[:300]}] is conflict with system topic."
        return Response(ResponseCode.INVALID_PARAMETER, remark=remark)
    return _delete(core, topic)


async def _delete(core: BrokerCore, topic: str) -> Response:
    # First: if the broker is killed in between, recovery must not restore the messages.
    is_marked = core.store.deleted.mark(topic)
    if is_marked and not await core.saver.save(core.store.deleted):
        return system_error(f"topic[{topic}] is not deleted: the disk cannot be written")
    # Again, in one step with the removal: messages sent during the write are deleted, too.
    if is_marked:
        core.store.deleted.mark(topic)
    announced = core.topics.remove(topic)
    core.held_pulls.on_topic_change(topic)
    core.offsets.remove(topic=topic)
    try:
        aside = core.store.deleted.remove_queues(topic)
    except OSError as error:
        return system_error(f"topic[{topic}] is deleted, but not its queues: {error.strerror}")
    await in_thread(lambda: core.disk.remove_tree(aside), _REMOVAL_THREAD)
    saves = [announced, core.saver.save(core.offsets)]
    if is_marked:
        saves.append(core.saver.save(core.store.deleted))
    return await when_saved(f"topic {topic}", *saves)


async def statistics(
    core: BrokerCore, command: RemotingCommand, channel: Channel
) -> Response | None:
    request = commands.GET_TOPIC_STATS_INFO.request.decode(command.ext_fields)
    config = core.topics.get(request.topic)
    if config is None:
        remark = f"topic[{request.topic[:300]}] not exist"
        return Response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
    broker_name, queues, pace = core.config.brokerName, core.store.queues, Pace()
    first = MessageQueue(topic=request.topic, broker_name=broker_name, queue_id=0)
    one = TopicStatsTable(offset_table={first: TopicOffset()})
    least_bytes = row_bytes(one, TopicStatsTable()) * config.queue_count
    advice = "the topic has too many queues for one response"
    async with core.large_answers.turn(channel, least_bytes, advice):
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(config.queue_count):
            queue = MessageQueue(topic=request.topic, broker_name=broker_name, queue_id=queue_id)
            max_offset = queues.max_offset(request.topic, queue_id)
            last_ms = store_time(core, request.topic, queue_id, max_offset - 1)
            table[queue] = TopicOffset(
                min_offset=queues.min_offset(request.topic, queue_id),
                max_offset=max_offset,
                last_update_timestamp_ms=max(last_ms, 0),
            )
            await pace.turn()
        answer = TopicStatsTable(offset_table=table, topic_put_tps=0.0)
        body = await in_thread(lambda: write_body(answer), ANSWER_THREAD, owner=channel)
        return Response(body=body)


def configuration(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.GET_TOPIC_CONFIG.request.decode(command.ext_fields)
    config = core.topics.get(request.topic)
    if config is None:
        remark = f"No topic in this broker. topic: {request.topic[:300]}"
        return Response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
    return Response(body=write_body(wire_topic(config)))


def _problem(request: commands.CreateTopicRequest) -> str | None:
    """Return the reason why a topic cannot be created or changed; None if it can."""
    problem = topic_problem(request.topic)
    if problem is not None:
        return problem
    if is_system_topic(request.topic):
        return f"The topic[{request.topic}] is conflict with system topic."
    for name, count in (
        ("readQueueNums", request.read_queue_nums),
        ("writeQueueNums", request.write_queue_nums),
    ):
        if not 0 <= count <= limits.MAX_TOPIC_QUEUES:
            return f"{name} {count}: give 0 to {limits.MAX_TOPIC_QUEUES}"
    if not 0 <= request.perm <= 7:
        return f"perm {request.perm}: give 0 to 7"
    if request.topic_filter_type not in TopicFilterType.__members__:
        return f"topicFilterType {request.topic_filter_type[:60]!r}: give SINGLE_TAG or MULTI_TAG"
    return None


class _Attribute(NamedTuple):
    """The permitted values of one attribute: ``values``, or a number from ``low`` to ``high``."""

    values: tuple[str, ...] = ()
    low: int = -1
    high: int = 2**63 - 1
    is_changeable: bool = True


_TYPES: Final = (
    *("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "LITE", "NORMAL"),
)
_ATTRIBUTES: Final[Mapping[str, _Attribute]] = {
    "message.type": _Attribute(_TYPES),
    "reserve.time": _Attribute(),
    "lite.topic.expiration": _Attribute(high=30 * 24 * 60),
    "cleanup.policy": _Attribute(("DELETE", "COMPACTION"), is_changeable=False),
    "queue.type": _Attribute(("SimpleCQ",), is_changeable=False),
}


class AttributeRefused(BadInput):
    """A change of attributes is refused; the text is RocketMQ's remark."""

    code = ResponseCode.SYSTEM_ERROR


def change_attributes(attributes: Mapping[str, str] | None, text: str) -> dict[str, str]:
    """Apply ``+name=value,-name`` to the attributes of a topic; return the result.

    ``attributes`` is None for a new topic.

    :raises AttributeRefused: if a change is not permitted, in RocketMQ's words.
    """
    changed = dict(attributes or {})
    for signed, value in _parse_changes(text).items():
        sign, name = signed[:1], signed[1:]
        shown = name[: limits.MAX_SHOWN_CHARACTERS]
        if not name or "+" in name or "-" in name:
            raise AttributeRefused("kv string format wrong.")
        if sign == "-" and attributes is None:
            remark = f"only add attribute is supported while creating topic. key: {shown}"
            raise AttributeRefused(remark)
        if sign == "-" and name not in changed:
            raise AttributeRefused(f"attempt to delete a nonexistent key: {shown}")
        attribute = _ATTRIBUTES.get(name)
        if attribute is None:
            raise AttributeRefused(f"unsupported key: {shown}")
        if attributes is not None and not attribute.is_changeable:
            raise AttributeRefused(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            del changed[name]
        else:
            _check_value(attribute, value)
            changed[name] = value
    return changed


def _parse_changes(text: str) -> dict[str, str]:
    """Return values by signed name (``+name``); empty after a minus."""
    parsed: dict[str, str] = {}
    # As in Java, nothing follows the last comma or equals sign.
    for part in text.rstrip(",").split(",") if text.strip(",") else ():
        key, value = part, ""
        if "=" in part:
            pair = part.rstrip("=").split("=") if part.strip("=") else []
            if len(pair) < 2:
                raise AttributeRefused(f"Index {len(pair)} out of bounds for length {len(pair)}")
            key, value = pair[:2]
            if "+" not in key:
                shown = key[: limits.MAX_SHOWN_CHARACTERS]
                raise AttributeRefused(f"add/alter attribute format is wrong: {shown}")
        elif "-" not in part:
            raise AttributeRefused(
                f"delete attribute format is wrong: {part[: limits.MAX_SHOWN_CHARACTERS]}"
            )
        if key in parsed:
            raise AttributeRefused(f"key duplication: {key[: limits.MAX_SHOWN_CHARACTERS]}")
        parsed[key] = value
    return parsed


def _check_value(attribute: _Attribute, value: str) -> None:
    if attribute.values:
        if value not in attribute.values:
            raise AttributeRefused(f"value is not in set: [{', '.join(attribute.values)}]")
        return
    try:
        number = read_i64(value)
    except FieldError:
        remark = f'For input string: "{value[: limits.MAX_SHOWN_CHARACTERS]}"'
        raise AttributeRefused(remark) from None
    if not attribute.low <= number <= attribute.high:
        raise AttributeRefused(f"value is not in range({attribute.low}, {attribute.high})")


HANDLERS: Final[Handlers] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: create,
    RequestCode.DELETE_TOPIC_IN_BROKER: delete,
    RequestCode.GET_TOPIC_STATS_INFO: statistics,
    RequestCode.GET_TOPIC_CONFIG: configuration,
}
