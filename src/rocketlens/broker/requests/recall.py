"""Recalls a message with its own delivery time, a timer (370).

A producer of RocketMQ 5 gets a handle for each timer that it sends. With the handle it can cancel
the delivery before the message is due. The broker stores a second message that is due at the same
time and deletes the first one then (`broker/delivery/timers`).

====================================  ====  ======================================================
problem                               code  remark
====================================  ====  ======================================================
``recallMessageEnable`` is false        16  recall failed, operation is forbidden
the topic does not exist                17  recall failed, the topic[<topic>] not exist
the handle is invalid                  604  recall handle is invalid
it has another topic                   604  recall failed, topic not match
it has another broker                  604  recall failed, broker service not available
it is already due, or too late         604  recall failed, timestamp invalid
the second message cannot be stored      1  recall failed, execute error
====================================  ====  ======================================================

The broker does not check that the first message exists. Source: ``RecallMessageProcessor``.
"""

import logging
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.delivery.timers import SECOND_MS
from rocketlens.broker.requests.answers import Handlers, Pending
from rocketlens.broker.requests.send import when_safe
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model import properties as props
from rocketlens.net.channel import Channel, Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import RECALL_MESSAGE
from rocketlens.wire.recall_handle import RecallHandle

_log: Final = logging.getLogger(__name__)

RECALL_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"


def recall(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Pending:
    """Store a message that deletes the handle's message; return the unique key of the latter."""
    request = RECALL_MESSAGE.request.decode(command.ext_fields)
    if not core.config.recallMessageEnable:
        return _refusal(core, ResponseCode.NO_PERMISSION, "operation is forbidden")
    if core.topics.get(request.topic) is None:
        shown = request.topic[: limits.MAX_SHOWN_CHARACTERS]
        return _refusal(core, ResponseCode.TOPIC_NOT_EXIST, f"the topic[{shown}] not exist")
    illegal = ResponseCode.ILLEGAL_OPERATION
    try:
        handle = RecallHandle.decode(request.recall_handle)
    except BadInput as error:
        return Response(illegal, _fields(core), remark=str(error))
    if handle.topic != request.topic:
        return _refusal(core, illegal, "topic not match")
    if handle.broker_name != core.config.brokerName:
        return _refusal(core, illegal, "broker service not available")
    left_ms = handle.due_ms - core.clock()
    if not 0 < left_ms < core.settings.store.timerMaxDelaySec * SECOND_MS:
        return _refusal(core, illegal, "timestamp invalid")
    return _store(core, handle, request.producer_group, channel)


def _store(
    core: BrokerCore, handle: RecallHandle, producer_group: str | None, channel: Channel
) -> Pending:
    now_ms = core.clock()
    properties = {
        props.TAGS: RECALL_TAG,
        props.TIMER_DELETED_KEY: handle.unique_key,
        props.UNIQUE_KEY: handle.unique_key,
        props.TIMER_DELIVER_MS: str(handle.due_ms),
        props.BORN_TIMESTAMP: str(now_ms),
        props.PRODUCER_GROUP: producer_group or "",
    }
    try:
        topic, queue_id = core.timers.redirect(handle.topic, 0, properties)
        appended = core.store.append(
            topic,
            queue_id,
            _BODY,
            props.format_properties(props.java_order(properties, 16)).encode(),
            core.born_host(channel),
            born_timestamp_ms=now_ms,
        )
    except RocketLensError as error:
        _log.warning("a recall from %s is not stored: %s", channel.address, error)
        return _refusal(core, ResponseCode.SYSTEM_ERROR, "execute error")
    core.stats.put_total += 1
    response = Response(ext_fields=_fields(core) | {"msgId": handle.unique_key})
    return when_safe(core, appended, response)


def _fields(core: BrokerCore) -> dict[str, str]:
    return {props.MSG_REGION: core.config.regionId}


def _refusal(core: BrokerCore, code: ResponseCode, why: str) -> Response:
    return Response(code, _fields(core), remark=f"recall failed, {why}")


HANDLERS: Final[Handlers] = {RequestCode.RECALL_MESSAGE: recall}
