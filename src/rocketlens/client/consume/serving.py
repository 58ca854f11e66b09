"""Handles requests that brokers send to a consumer, for RocketMQ's tools and after group changes.

Source: ``ClientRemotingProcessor``, ``MQClientInstance``.
"""

import sys
import threading
import traceback
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import decode, message_of
from rocketlens.model.message import MessageExt
from rocketlens.net.channel import BUSY, Channel, Handler, Response
from rocketlens.wire.bodies.clients import ConsumerRunningInfo, ConsumerStatusAnswer
from rocketlens.wire.bodies.tables import ResetOffsets
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import groups as commands
from rocketlens.wire.declare import read_body, write_body

if TYPE_CHECKING:
    from rocketlens.client.connect.route import MessageQueue
    from rocketlens.client.consume.consumer_client import ConsumerClient


MAX_DIRECT_CONSUMES: Final = 64
"""Concurrent direct deliveries to a listener (309); more are answered with "busy"."""


class Serving:
    """Answers brokers' requests for one consumer."""

    def __init__(self, consumer: "ConsumerClient") -> None:
        self._consumer: Final = consumer
        self._direct = 0

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume,
        }

    def _changed(self, command: RemotingCommand, _: Channel) -> Response:
        header = commands.NOTIFY_CONSUMER_IDS_CHANGED.request.decode(command.ext_fields)
        if header.consumer_group == self._consumer.group:
            self._consumer.rebalance_soon()
        return Response()

    async def _reset(self, command: RemotingCommand, _: Channel) -> Response:
        header = commands.RESET_CONSUMER_CLIENT_OFFSET.request.decode(command.ext_fields)
        body = read_body(ResetOffsets, command.body)
        if header.group == self._consumer.group:
            await self._consumer.reset_offsets(header.topic, body.offset_table)
        return Response()

    def _status(self, command: RemotingCommand, _: Channel) -> Response:
        header = commands.GET_CONSUMER_STATUS_FROM_CLIENT.request.decode(command.ext_fields)
        offsets: Mapping[MessageQueue, int] = {}
        if header.group == self._consumer.group:
            offsets = self._consumer.offsets_of(header.topic)
        return Response(body=write_body(ConsumerStatusAnswer(queue_table=offsets)))

    async def _running_info(self, command: RemotingCommand, _: Channel) -> Response:
        header = commands.GET_CONSUMER_RUNNING_INFO.request.decode(command.ext_fields)
        if header.consumer_group != self._consumer.group:
            return self._not_here(header.consumer_group)
        content = await self._consumer.running_info()
        if header.jstack_enable:
            content = _with_stacks(content)
        return Response(body=write_body(content))

    def _consume(self, command: RemotingCommand, _: Channel) -> Response | Awaitable[Response]:
        header = commands.CONSUME_MESSAGE_DIRECTLY.request.decode(command.ext_fields)
        if header.consumer_group != self._consumer.group:
            return self._not_here(header.consumer_group)
        if self._direct >= MAX_DIRECT_CONSUMES:
            return BUSY
        try:
            message = message_of(decode(command.body, check_crc=False))
        except RecordError as error:
            return Response(ResponseCode.SYSTEM_ERROR, remark=str(error))
        return self._consume_one(message, header.broker_name or "")

    async def _consume_one(self, message: MessageExt, broker_name: str) -> Response:
        self._direct += 1
        try:
            result = await self._consumer.consume_directly(message, broker_name)
        finally:
            self._direct -= 1
        if result is None:
            return self._not_here(self._consumer.group)
        return Response(body=write_body(result))

    def _not_here(self, group: str) -> Response:
        shown = group[: limits.MAX_SHOWN_CHARACTERS]
        remark = f"The Consumer Group <{shown}> not exist in this consumer"
        return Response(ResponseCode.SYSTEM_ERROR, remark=remark)


def _with_stacks(content: ConsumerRunningInfo) -> ConsumerRunningInfo:
    """Add the stack of each thread, in the form of ``jstack``."""
    names = {each.ident: each.name for each in threading.enumerate()}
    lines = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - there is no other way
        lines.append(f"{names.get(ident, ident)}")
        lines += [line.rstrip() for line in traceback.format_stack(frame)]
    text = "\n".join(lines)
    return replace(content, jstack=text[: limits.MAX_REQUEST_HEADER_BYTES])
