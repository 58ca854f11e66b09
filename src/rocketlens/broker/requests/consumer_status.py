"""Progress of the members of a consumer group, as they report it (223).

The broker asks each member of the group (221), or the one whose client id is in ``clientAddr``, and
answers with the offsets of all that answered in time. One that does not is left out, as in
RocketMQ, and so is one whose answer cannot be read. Source: ``Broker2Client.getConsumeStatus``.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.tables.clients import Client
from rocketlens.errors import RocketLensError
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.pace import in_thread
from rocketlens.wire.bodies.clients import ConsumerStatusAnswer
from rocketlens.wire.codes import V3_0_7_SNAPSHOT, RequestCode, ResponseCode, version_name
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.groups import INVOKE_BROKER_TO_GET_CONSUMER_STATUS
from rocketlens.wire.declare import read_body, write_body

ASKED_AT_ONCE: Final = 64
"""Members of a group that are asked at the same time."""

Status = tuple[str, bytes]
"""A client id, and the body of its answer."""


class ConsumerStatusProcessor:
    """Collects the progress of the members of a group."""

    def __init__(self, core: BrokerCore, timeout_s: float = limits.RELAY_TIMEOUT_S) -> None:
        """Prepare; a consumer has ``timeout_s`` seconds for its answer."""
        self.core: Final = core
        self._timeout_s: Final = timeout_s
        self._running = 0

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status}

    async def status(self, command: RemotingCommand, channel: Channel) -> Response:
        """Return the offsets of the members of a group in a topic."""
        request = INVOKE_BROKER_TO_GET_CONSUMER_STATUS.request.decode(command.ext_fields)
        group = self.core.clients.consumers.get(request.group)
        members = list(group.members.items()) if group else []
        if not members:
            shown = request.group[: limits.MAX_SHOWN_CHARACTERS]
            return _failed(f"No Any Consumer online in the consumer group: [{shown}]")
        for _, client in members:
            if client.version < V3_0_7_SNAPSHOT:
                release = version_name(client.version)
                return _failed(f"the client does not support this feature. version={release}")
        client_id = (request.client_addr or "").strip()
        if client_id:
            members = [member for member in members if member[1].client_id == client_id][:1]
        if self._running >= limits.MAX_RELAYS_OF_CONNECTION:
            problem = (
                f"{limits.MAX_RELAYS_OF_CONNECTION} requests collect answers of consumers already"
            )
            return Response(ResponseCode.SYSTEM_BUSY, remark=f"{problem}: ask later")
        self._running += 1
        try:
            fields = {"topic": request.topic, "group": request.group}
            statuses = await self._ask_all(members, fields)
        finally:
            self._running -= 1
        if statuses is None:
            problem = f"{limits.MAX_FRAME_BYTES} bytes: ask for one client id"
            return _failed(f"the consumers of the group answer with more than {problem}")
        return Response(body=await in_thread(lambda: _merged(statuses), owner=channel))

    async def _ask_all(
        self, members: list[tuple[Channel, Client]], fields: Mapping[str, str]
    ) -> list[Status] | None:
        """Return the answers of the members; None if they are too large."""
        statuses: list[Status] = []
        for start in range(0, len(members), ASKED_AT_ONCE):
            some_members = members[start : start + ASKED_AT_ONCE]
            answers = await asyncio.gather(*(self._ask(*member, fields) for member in some_members))
            statuses += [answer for answer in answers if answer is not None]
            if sum(len(body) for _, body in statuses) > limits.MAX_FRAME_BYTES:
                return None
        return statuses

    async def _ask(
        self, consumer: Channel, client: Client, fields: Mapping[str, str]
    ) -> Status | None:
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        try:
            if consumer.is_behind:
                return None
            answer = await consumer.request(code, dict(fields), timeout_s=self._timeout_s)
        except RocketLensError:
            return None
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None
        return client.client_id, bytes(answer.body)


def _merged(statuses: list[Status]) -> bytes:
    """Return the body with all answers that can be read."""
    table = {}
    for client_id, body in statuses:
        try:
            table[client_id] = read_body(ConsumerStatusAnswer, body).queue_table
        except RocketLensError:
            continue
    return write_body(ConsumerStatusAnswer(consumer_table=table))


def _failed(remark: str) -> Response:
    return Response(ResponseCode.SYSTEM_ERROR, remark=remark)
