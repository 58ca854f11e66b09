"""Requests that a broker passes on to a consumer; it passes the answers back.

How a consumer does (307), and one message for it to handle now (309): the broker finds the
connection of the group's member by its client id, sends it the request with the same fields, and
answers with all that the consumer answered. 309 takes the record from the log, by the physical
offset in ``msgId``; nothing else of the message id counts, and neither offsets nor retries change.

======================================  ====  ====================================================
what happens                            code  remark
======================================  ====  ====================================================
no member of that id is connected       1     The Consumer <g> <c> not online
its client is older than 3.1.8          1     ... Version <v> too low to finish, please upgrade ...
no answer in 10 s                       207   consumer <g> <c> Timeout: ...
its connection ends, or is behind       1     invoke consumer <g> <c> Exception: ...
no record begins at the offset          1     can not find message by the offset, n
======================================  ====  ====================================================

Fields that sign a request stay here: a consumer needs none of them, and could ask another broker
with them. Sources: ``AdminBrokerProcessor.callConsumer``, ``Broker2Client``.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.requests.query import view_record
from rocketlens.errors import BadInput, CallTimeout, ConnectionLost, RocketLensError
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.wire import acl
from rocketlens.wire.codes import V3_1_8_SNAPSHOT, RequestCode, ResponseCode, version_name
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.groups import CONSUME_MESSAGE_DIRECTLY, GET_CONSUMER_RUNNING_INFO

MAX_RELAYS: Final = 1_000
"""Requests that a broker passed on to consumers and that wait for their answers. RocketMQ: any."""
_SIGNING_FIELDS: Final = frozenset({acl.ACCESS_KEY, acl.SECURITY_TOKEN, acl.SIGNATURE})


class Relays:
    """Requests passed on to clients, whose answers are awaited; how many is bounded."""

    def __init__(self, answer_timeout_s: float) -> None:
        """Prepare; a client has ``answer_timeout_s`` seconds for its answer."""
        self._answer_timeout_s: Final = answer_timeout_s
        self._waiting: Final[Counter[Channel]] = Counter()
        """Requests that wait for a client's answer, by the connection that sent them."""

    def refusal(self, channel: Channel) -> Response | None:
        """Return the response to a connection for which too many are awaited; else None."""
        bounds = limits.MAX_RELAYS_OF_CONNECTION, MAX_RELAYS
        if self._waiting[channel] < bounds[0] and self._waiting.total() < bounds[1]:
            return None
        limit = f"{bounds[0]} of a connection and {bounds[1]} at most: ask later"
        remark = f"requests wait for answers of clients already, {limit}"
        return Response(ResponseCode.SYSTEM_BUSY, remark=remark)

    def ask(
        self,
        client: Channel,
        passed_on: RemotingCommand,
        channel: Channel,
        when_answered: Callable[[RemotingCommand | RocketLensError], None],
    ) -> None:
        """Send a request to a client, and call ``when_answered`` later with its answer.

        ``channel`` is the connection for which it is sent.

        :raises RocketLensError: if the request cannot be sent.
        """
        if client.is_behind:
            raise ConnectionLost(client.address, "it does not read")
        answer = client.request(
            passed_on.code,
            passed_on.ext_fields,
            passed_on.body,
            timeout_s=self._answer_timeout_s,
        )
        self._waiting[channel] += 1

        def done(answer: asyncio.Future[RemotingCommand]) -> None:
            self._waiting[channel] -= 1
            if not self._waiting[channel]:
                del self._waiting[channel]
            try:
                result: RemotingCommand | RocketLensError = answer.result()
            except RocketLensError as error:
                result = error
            when_answered(result)

        answer.add_done_callback(done)


class RelayProcessor:
    """Passes requests on to consumers."""

    def __init__(self, core: BrokerCore, answer_timeout_s: float = limits.RELAY_TIMEOUT_S) -> None:
        """Prepare; a consumer has ``answer_timeout_s`` seconds for its answer."""
        self.core: Final = core
        self._relays: Final = Relays(answer_timeout_s)

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def running_info(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Return the running information of a consumer."""
        request = GET_CONSUMER_RUNNING_INFO.request.decode(command.ext_fields)
        return self._relay(command, channel, (request.consumer_group, request.client_id))

    async def consume_directly(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Let a consumer handle the message at an offset of the log."""
        request = CONSUME_MESSAGE_DIRECTLY.request.decode(command.ext_fields)
        target = request.consumer_group, request.client_id or ""
        try:
            offset = OffsetMessageId.decode(request.msg_id or "").physical_offset
        except BadInput as error:
            return Response(ResponseCode.SYSTEM_ERROR, remark=str(error))
        view = view_record(self.core, offset, command, channel)
        if not isinstance(view, Response):
            view = await view or Response(ResponseCode.SYSTEM_ERROR)
        if view.code != ResponseCode.SUCCESS:
            return view
        fields = {"brokerName": self.core.config.brokerName}
        topic = self.core.topics.get(request.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.sys_flag)
        group = self.core.groups.table.groups.get(request.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.get("groupSysFlag", 0))
        return self._relay(command, channel, target, fields, view.body)

    def _relay(
        self,
        command: RemotingCommand,
        channel: Channel,
        target: tuple[str, str],
        more_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Response | None:
        """Send a request to a member of a group; None if its answer is passed on when it comes."""
        consumer_and_client = self.core.clients.find(*target)
        names = " ".join(f"<{name[: limits.MAX_SHOWN_CHARACTERS]}>" for name in target)
        if consumer_and_client is None:
            return _failed(f"The Consumer {names} not online")
        consumer, client = consumer_and_client
        if client.version < V3_1_8_SNAPSHOT:
            release = version_name(client.version)
            problem = "too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
            return _failed(f"The Consumer <{client.client_id}> Version <{release}> {problem}")
        refusal = self._relays.refusal(channel)
        if refusal is not None:
            return refusal
        fields = {**command.ext_fields, **(more_fields or {})}
        for name in _SIGNING_FIELDS & fields.keys():
            del fields[name]
        passed_on = RemotingCommand(command.code, ext_fields=fields, body=body)
        try:
            self._relays.ask(
                consumer,
                passed_on,
                channel,
                lambda answer: channel.respond_late(command, _passed_back(names, answer)),
            )
        except RocketLensError as error:
            return _failed(f"invoke consumer {names} Exception: {error}")
        channel.set_aside(command)
        return None


def _passed_back(names: str, answer: RemotingCommand | RocketLensError) -> Response:
    """Return the answer of a consumer, or the reason why there is none."""
    if isinstance(answer, CallTimeout):
        remark = f"consumer {names} Timeout: {answer}"
        return Response(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
    if isinstance(answer, RocketLensError):
        return _failed(f"invoke consumer {names} Exception: {answer}")
    return Response(answer.code, answer.ext_fields, answer.body, answer.remark)


def _failed(remark: str) -> Response:
    return Response(ResponseCode.SYSTEM_ERROR, remark=remark)
