"""Consumer groups: create or change one (200) or many (225), return all (201) or one (352), delete
(207), return topics with offsets (343) and the subscription to a topic (345).

A request replaces the whole group: missing members get RocketMQ's defaults. Changes are answered
after they are written. Source: ``AdminBrokerProcessor``.
"""

from collections.abc import Callable
from typing import Any, Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.requests.answers import Handlers, Pending, when_saved
from rocketlens.broker.tables.topics import GroupTable, default_group
from rocketlens.errors import CommandBodyError
from rocketlens.model.rocketmq import RETRY_PREFIX, SYSTEM_GROUPS, group_problem
from rocketlens.model.text import json_dialect
from rocketlens.net.channel import Channel, Response
from rocketlens.net.pace import ANSWER_THREAD, Pace, in_thread
from rocketlens.wire.bodies.clients import SubscriptionAnswer
from rocketlens.wire.bodies.tables import TopicList
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import groups as commands
from rocketlens.wire.declare import write_body

_BY_GROUP: Final = frozenset({GroupTable.MEMBER, "forbiddenTable"})
"""Members of the table that are objects by group."""
_MAXIMA: Final = {
    "brokerId": 2**63 - 1,
    "consumeTimeoutMinute": 2**31 - 1,
    "groupSysFlag": 2**31 - 1,
    "retryMaxTimes": 2**31 - 1,
    "retryQueueNums": 65_536,
    "whichBrokerWhenConsumeSlowly": 2**63 - 1,
}
"""The maximum of each numeric member. The minimum is 0, and -1 for retryMaxTimes."""


def update(core: BrokerCore, command: RemotingCommand, _: Channel) -> Pending:
    return _update(core, [_read(command.body)] if command.body else [])


def update_many(core: BrokerCore, command: RemotingCommand, _: Channel) -> Pending:
    """Create or change groups: all, or none if one is invalid."""
    configs = _object(_read(command.body)).get("groupConfigList")
    return _update(core, configs if isinstance(configs, list) else [])


def _update(core: BrokerCore, configs: list[Any]) -> Pending:
    groups = core.groups
    checked: dict[str, dict[str, Any]] = {}
    for each in configs:
        members = _check_members(_object(each))
        problem = group_problem(members["groupName"], limits.MAX_NEW_GROUP_CHARACTERS)
        if problem is None and not members["consumeEnable"]:
            problem = _system_problem(members["groupName"], "consumeEnable stays true")
        if problem is not None:
            return Response(ResponseCode.INVALID_PARAMETER, remark=problem)
        checked[members["groupName"]] = members
    saved = groups.put(checked) if checked else None
    for group in checked:
        core.held_pulls.on_group_change(group)
    return when_saved(f"group {', '.join(checked)}", saved)


async def all_groups(
    core: BrokerCore, command: RemotingCommand, channel: Channel
) -> Response | None:
    table = core.groups.table
    least_bytes, pace = 0, Pace()
    for name, members in list(table.entries.items()):
        least_bytes += len(name) + _min_bytes(members)
        await pace.turn()
    async with core.large_answers.turn(channel, least_bytes, "ask for one group at a time (352)"):
        value, access = table.value(), core.access
        is_shown = None if access is None else access.seen_by(command, channel)

        def encode() -> bytes:
            shown = value if is_shown is None else _shown(value, is_shown)
            return json_dialect.dumps(shown).encode()

        return Response(body=await in_thread(encode, ANSWER_THREAD, owner=channel))


def configuration(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.GET_SUBSCRIPTIONGROUP_CONFIG.request.decode(command.ext_fields)
    group = core.groups.find(request.group)
    if group is None:
        return Response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark="No group in this broker")
    return Response(body=json_dialect.dumps(group).encode())


async def delete(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.DELETE_SUBSCRIPTIONGROUP.request.decode(command.ext_fields)
    problem = _system_problem(request.group_name, "it cannot be deleted")
    if problem is not None:
        return Response(ResponseCode.INVALID_PARAMETER, remark=problem)
    old_name = command.ext_fields.get("removeOffset", "")
    saves = [core.groups.remove(request.group_name)]
    if request.clean_offset or old_name.lower() == "true":
        core.offsets.remove(group=request.group_name)
        saves.append(core.saver.save(core.offsets))
    core.held_pulls.on_group_change(request.group_name)
    return await when_saved(f"group {request.group_name}", *saves)


def topics(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.QUERY_TOPICS_BY_CONSUMER.request.decode(command.ext_fields)
    topics = tuple(core.offsets.topics_of(request.group))
    return Response(body=write_body(TopicList(topic_list=topics, broker_addr=core.address)))


def subscription(core: BrokerCore, command: RemotingCommand, _: Channel) -> Response:
    request = commands.QUERY_SUBSCRIPTION_BY_CONSUMER.request.decode(command.ext_fields)
    group = core.clients.consumers.get(request.group)
    subscription = group.subscriptions.get(request.topic) if group else None
    answer = SubscriptionAnswer(subscription=subscription, group=request.group, topic=request.topic)
    return Response(body=write_body(answer))


def _shown(table: dict[str, Any], is_shown: Callable[[str], bool]) -> dict[str, Any]:
    """Return the groups that the client can see; a permission names a group by its retry topic."""
    return {
        member: {group: each for group, each in value.items() if is_shown(RETRY_PREFIX + group)}
        if member in _BY_GROUP and isinstance(value, dict)
        else value
        for member, value in table.items()
    }


def _system_problem(group: str, reason: str) -> str | None:
    """Return the reason why a change of a system group is refused; None for other groups."""
    return f"{group} is a group of RocketMQ's own: {reason}" if group in SYSTEM_GROUPS else None


def _min_bytes(value: Any) -> int:
    """Return the minimum length of a value as JSON."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(name) + 4 + _min_bytes(each) for name, each in value.items())
    return sum(map(_min_bytes, value)) if isinstance(value, list) else 1


def _read(body: bytes) -> Any:
    if len(body) > limits.MAX_CLIENT_JSON_BODY_BYTES:
        raise CommandBodyError(f"{len(body)} bytes, {limits.MAX_CLIENT_JSON_BODY_BYTES} allowed")
    return json_dialect.loads(body, CommandBodyError)


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise CommandBodyError("SubscriptionGroupConfig: expected a JSON object")
    return value


def _check_members(config: dict[str, Any]) -> dict[str, Any]:
    """Return all members of a group, with defaults for missing ones; unknown members are kept.

    :raises CommandBodyError: if a member has another type or is out of range.
    """
    name = config.get("groupName")
    members = {**default_group(str(name or "")), "groupName": str(name or "")}
    for key, value in config.items():
        if value is None or key in ("groupName", "attributes"):
            continue
        default = members.get(key)
        minimum = -1 if key == "retryMaxTimes" else 0
        if default is not None and type(value) is not type(default):
            raise CommandBodyError(f"{key} {value!r:.60}: give a value such as {default!r:.60}")
        if key in _MAXIMA and not minimum <= value <= _MAXIMA[key]:
            raise CommandBodyError(f"{key} {value}: give {minimum} to {_MAXIMA[key]}")
        members[key] = value
    return members


HANDLERS: Final[Handlers] = {
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: update,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: update_many,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all_groups,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: configuration,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: delete,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: topics,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: subscription,
}
