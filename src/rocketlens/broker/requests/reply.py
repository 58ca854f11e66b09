"""Replies (324, 325) to requests that a producer sent as messages.

``Producer.request`` of RocketMQ's clients sends a message with its client id in REPLY_TO_CLIENT.
The consumer sends its reply to the broker, with that id. The broker relays it to the producer's
connection (326), then stores it in ``<cluster>_REPLY_TOPIC``, unless ``storeReplyMessageEnable`` is
false.

======================================  =========================================================
event                                   remark; the code is 1
======================================  =========================================================
the reply names no producer             reply message properties[REPLY_TO_CLIENT] is null
no producer with that id is connected   push reply message fail, channel of <id> not found.
it responds with another code than 0    the producer's
it disconnects, or no response in 10 s  push reply message to <id>fail.
======================================  =========================================================

A reply that cannot be stored in its topic is refused like a message, and not relayed.

Sources: ``ReplyMessageProcessor``, ``ProducerManager``. RocketMQ stores a compressed body without
its flag, so that it cannot be read again; this broker stores the flag.
"""

import asyncio
import logging
from typing import Final

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.requests.answers import Handlers, Pending
from rocketlens.broker.requests.send import refuse_copy, target_of, when_safe
from rocketlens.broker.sends.plain import reply_fields
from rocketlens.errors import RocketLensError
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import reply_topic
from rocketlens.net.channel import Channel, Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import (
    SEND_REPLY_MESSAGE,
    SEND_REPLY_MESSAGE_V2,
    SendMessageRequest,
)

_log: Final = logging.getLogger(__name__)


def reply(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Pending | None:
    """Relay a reply, store it, and report if the producer received it."""
    is_long = command.code == RequestCode.SEND_REPLY_MESSAGE
    codec = SEND_REPLY_MESSAGE if is_long else SEND_REPLY_MESSAGE_V2
    request = codec.request.decode(command.ext_fields)
    if core.access is not None and request.topic != reply_topic(core.config.brokerClusterName):
        # Every user can reply, as in RocketMQ, but not store messages in any topic by a reply.
        forbidden = core.access.decide_writing(command, channel, request.topic)
        if forbidden is not None:
            return forbidden
        packed = (request.properties or "").encode()
        forbidden = refuse_copy(core, command, channel, request.topic, packed)
        if forbidden is not None:
            return forbidden
    target = target_of(core, command, channel, request.topic, request.queue_id)
    if isinstance(target, Response):
        return target
    request = replace(request, queue_id=target[1])
    properties = props.parse(request.properties or "")
    client_id = properties.get(props.REPLY_TO_CLIENT)
    if client_id is None:
        remark = f"reply message properties[{props.REPLY_TO_CLIENT}] is null"
        return _store(core, command, channel, request, remark)
    shown = client_id[: limits.MAX_SHOWN_CHARACTERS]
    producer = core.clients.producer_channel(client_id)
    if producer is None:
        remark = f"push reply message fail, channel of <{shown}> not found."
        return _store(core, command, channel, request, remark)
    properties[props.PUSH_REPLY_TIME] = str(core.clock())
    return core.relays.relay(
        producer,
        _push_request(core, command, channel, request, properties),
        command,
        channel,
        lambda answer: _store(core, command, channel, request, _failure(shown, answer)),
    )


def _push_request(
    core: BrokerCore,
    command: RemotingCommand,
    channel: Channel,
    request: SendMessageRequest,
    properties: dict[str, str],
) -> RemotingCommand:
    text, unit_mode = props.format_properties(properties), bool(request.unit_mode)
    sent = replace(request, properties=text, unit_mode=unit_mode, broker_name=None)
    # The fields of a reply have the same names in both requests.
    fields = SEND_REPLY_MESSAGE.request.encode(sent) | {
        "bornHost": channel.address,
        "storeHost": str(core.store.store_host),
        "storeTimestamp": str(core.clock()),
    }
    code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    return RemotingCommand(code, ext_fields=fields, body=command.body)


def _store(
    core: BrokerCore,
    command: RemotingCommand,
    channel: Channel,
    request: SendMessageRequest,
    failure: str | None,
) -> Response | asyncio.Future[Response | None]:
    """Store a reply, and return its response; ``failure`` is the reason why no producer has it."""
    code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
    fields = reply_fields(core.config)
    if failure is None:
        fields |= {"msgId": "0", "queueId": str(request.queue_id), "queueOffset": "0"}
    if not core.config.storeReplyMessageEnable:
        return Response(code, fields, remark=failure)
    try:
        appended = core.store.append(
            request.topic,
            request.queue_id,
            command.body,
            (request.properties or "").encode(),
            core.born_host(channel),
            born_timestamp_ms=request.born_timestamp_ms,
            flag=request.flag,
            sys_flag=request.sys_flag,
            reconsume_times=request.reconsume_times or 0,
        )
    except RocketLensError as error:
        _log.warning("a reply from %s is not stored: %s", channel.address, error)
        return Response(code, fields, remark=failure)
    core.stats.put_total += 1
    fields |= {
        "msgId": f"{core.id_prefix}{appended.physical_offset:016X}",
        "queueId": str(request.queue_id),
        "queueOffset": str(appended.queue_offset),
    }
    return when_safe(core, appended, Response(code, fields, remark=failure))


def _failure(client_id: str, answer: RemotingCommand | RocketLensError) -> str | None:
    """Return the reason why a producer does not have a reply; None if it confirmed the reply."""
    if isinstance(answer, RocketLensError):
        _log.info("a reply to %s could not be relayed: %s", client_id, answer)
        return f"push reply message to {client_id}fail."
    return None if answer.code == ResponseCode.SUCCESS else answer.remark or ""


HANDLERS: Final[Handlers] = {
    RequestCode.SEND_REPLY_MESSAGE: reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: reply,
}
