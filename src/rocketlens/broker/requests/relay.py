"""Relays requests to consumers, and their replies.

For the running information of a consumer (307), and for a message that it must handle now (309),
the broker finds the member's connection by its client id, sends it the same fields, and returns its
reply. 309 reads the record at the physical offset of ``msgId``; the rest of the message id is
ignored, and neither offsets nor retries change.

======================================  ====  ====================================================
event                                   code  remark
======================================  ====  ====================================================
no member with that id is connected     1     The Consumer <g> <c> not online
its client is older than 3.1.8          1     ... Version <v> too low to finish, please upgrade ...
no reply in 10 s                        207   consumer <g> <c> Timeout: ...
its connection ends, or is behind       1     invoke consumer <g> <c> Exception: ...
no record begins at the offset          1     can not find message by the offset, n
======================================  ====  ====================================================

For the progress of a group's members (223), the broker asks each of them (221), or only the one
with the client id of ``clientAddr``. It returns the offsets of all that reply in time with a valid
body, as RocketMQ does.

Signatures are not relayed: a consumer does not need them, and could use them at another broker.
Sources: ``AdminBrokerProcessor.callConsumer``, ``Broker2Client``.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.requests.answers import Handlers, system_error
from rocketlens.broker.requests.query import view_record
from rocketlens.broker.tables.clients import Client
from rocketlens.errors import BadInput, CallTimeout, RocketLensError
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.net.channel import Channel, Response
from rocketlens.net.pace import in_thread
from rocketlens.wire import acl
from rocketlens.wire.bodies.clients import ConsumerStatusAnswer
from rocketlens.wire.codes import (
    V3_0_7_SNAPSHOT,
    V3_1_8_SNAPSHOT,
    RequestCode,
    ResponseCode,
    version_name,
)
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import groups as commands
from rocketlens.wire.declare import read_body, write_body

_SIGNING_FIELDS: Final = frozenset({acl.ACCESS_KEY, acl.SECURITY_TOKEN, acl.SIGNATURE})


ASKED_AT_ONCE: Final = 64
"""Members of a group that are asked at the same time."""

Status = tuple[str, bytes]
"""A client id, and the body of its reply."""


def running_info(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response | None:
    request = commands.GET_CONSUMER_RUNNING_INFO.request.decode(command.ext_fields)
    return _relay(core, command, channel, (request.consumer_group, request.client_id))


async def consume_directly(
    core: BrokerCore, command: RemotingCommand, channel: Channel
) -> Response | None:
    request = commands.CONSUME_MESSAGE_DIRECTLY.request.decode(command.ext_fields)
    target = request.consumer_group, request.client_id or ""
    try:
        offset = OffsetMessageId.decode(request.msg_id or "").physical_offset
    except BadInput as error:
        return system_error(str(error))
    view = await view_record(core, offset, command, channel)
    if view.code != ResponseCode.SUCCESS:
        return view
    fields = {"brokerName": core.config.brokerName}
    topic = core.topics.get(request.topic or "")
    if topic is not None:
        fields["topicSysFlag"] = str(topic.sys_flag)
    group = core.groups.table.entries.get(request.consumer_group)
    if group is not None:
        fields["groupSysFlag"] = str(group.get("groupSysFlag", 0))
    return _relay(core, command, channel, target, more_fields=fields, body=view.body)


def _relay(
    core: BrokerCore,
    command: RemotingCommand,
    channel: Channel,
    target: tuple[str, str],
    *,
    more_fields: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Response | None:
    """Relay a request to a member of a group; return None if the reply comes later."""
    consumer_and_client = core.clients.find(*target)
    names = " ".join(f"<{name[: limits.MAX_SHOWN_CHARACTERS]}>" for name in target)
    if consumer_and_client is None:
        return system_error(f"The Consumer {names} not online")
    consumer, client = consumer_and_client
    if client.version < V3_1_8_SNAPSHOT:
        release = version_name(client.version)
        problem = "too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
        return system_error(f"The Consumer <{client.client_id}> Version <{release}> {problem}")
    fields = {**command.ext_fields, **(more_fields or {})}
    for name in _SIGNING_FIELDS & fields.keys():
        del fields[name]
    relayed = RemotingCommand(command.code, ext_fields=fields, body=body)
    return core.relays.relay(
        consumer, relayed, command, channel, lambda reply: _relay_reply(names, reply)
    )


def _relay_reply(names: str, answer: RemotingCommand | RocketLensError) -> Response:
    """Return the reply of a consumer, or the error in its place."""
    if isinstance(answer, CallTimeout):
        remark = f"consumer {names} Timeout: {answer}"
        return Response(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
    if isinstance(answer, RocketLensError):
        return system_error(f"invoke consumer {names} Exception: {answer}")
    return Response(answer.code, answer.ext_fields, answer.body, answer.remark)


async def consumer_status(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response:
    request = commands.INVOKE_BROKER_TO_GET_CONSUMER_STATUS.request.decode(command.ext_fields)
    group = core.clients.consumers.get(request.group)
    members = list(group.members.items()) if group else []
    if not members:
        shown = request.group[: limits.MAX_SHOWN_CHARACTERS]
        return system_error(f"No Any Consumer online in the consumer group: [{shown}]")
    for _, client in members:
        if client.version < V3_0_7_SNAPSHOT:
            release = version_name(client.version)
            return system_error(f"the client does not support this feature. version={release}")
    client_id = (request.client_addr or "").strip()
    if client_id:
        members = [member for member in members if member[1].client_id == client_id][:1]
    if core.relays.collecting >= limits.MAX_RELAYS_OF_CONNECTION:
        problem = f"{limits.MAX_RELAYS_OF_CONNECTION} requests wait for groups of consumers"
        return Response(ResponseCode.SYSTEM_BUSY, remark=f"{problem}: try again later")
    core.relays.collecting += 1
    try:
        fields = {"topic": request.topic, "group": request.group}
        statuses = await _ask_members(core, members, fields)
    finally:
        core.relays.collecting -= 1
    if statuses is None:
        return system_error(
            f"the replies of the group's consumers exceed {limits.MAX_FRAME_BYTES} bytes: "
            "ask for one client id"
        )
    return Response(body=await in_thread(lambda: _merge(statuses), owner=channel))


async def _ask_members(
    core: BrokerCore, members: list[tuple[Channel, Client]], fields: Mapping[str, str]
) -> list[Status] | None:
    """Return the replies of the members; None if they are too large."""
    statuses: list[Status] = []
    for start in range(0, len(members), ASKED_AT_ONCE):
        some_members = members[start : start + ASKED_AT_ONCE]
        answers = await asyncio.gather(*(_ask(core, *member, fields) for member in some_members))
        statuses += [answer for answer in answers if answer is not None]
        if sum(len(body) for _, body in statuses) > limits.MAX_FRAME_BYTES:
            return None
    return statuses


async def _ask(
    core: BrokerCore, consumer: Channel, client: Client, fields: Mapping[str, str]
) -> Status | None:
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    try:
        if consumer.is_behind:
            return None
        answer = await consumer.request(code, dict(fields), timeout_s=core.relays.answer_timeout_s)
    except RocketLensError:
        return None
    if answer.code != ResponseCode.SUCCESS or not answer.body:
        return None
    return client.client_id, bytes(answer.body)


def _merge(statuses: list[Status]) -> bytes:
    table = {}
    for client_id, body in statuses:
        try:
            table[client_id] = read_body(ConsumerStatusAnswer, body).queue_table
        except RocketLensError:
            continue
    return write_body(ConsumerStatusAnswer(consumer_table=table))


HANDLERS: Final[Handlers] = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: consume_directly,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: consumer_status,
}
