"""Recalls: code 370, which takes back a message with a delivery time of its own (a timer).

A producer of RocketMQ 5 gets a handle for each such message that it sends; with the handle it has
the message not delivered, until the second in which it is due. The broker stores a second message
that is due at the same time, and deletes the first then (`broker/delivery/timers`).

====================================  ====  ======================================================
what is wrong                         code  remark
====================================  ====  ======================================================
``recallMessageEnable`` is false        16  recall failed, operation is forbidden
there is no such topic                  17  recall failed, the topic[<topic>] not exist
the handle cannot be read              604  recall handle is invalid
it is of another topic                 604  recall failed, topic not match
it is of another broker                604  recall failed, broker service not available
it is due already, or too far off      604  recall failed, timestamp invalid
the second message cannot be stored      1  recall failed, execute error
====================================  ====  ======================================================

That the first message exists is not checked. Source: ``RecallMessageProcessor``.
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
    """Store a message that deletes the one of a handle; return the unique key of that one."""
    request = RECALL_MESSAGE.request.decode(command.ext_fields)
    if not core.config.recallMessageEnable:
        return _refused(core, ResponseCode.NO_PERMISSION, "operation is forbidden")
    if core.topics.get(request.topic) is None:
        shown = request.topic[: limits.MAX_SHOWN_CHARACTERS]
        return _refused(core, ResponseCode.TOPIC_NOT_EXIST, f"the topic[{shown}] not exist")
    illegal = ResponseCode.ILLEGAL_OPERATION
    try:
        handle = RecallHandle.decode(request.recall_handle)
    except BadInput as error:
        return Response(illegal, _fields(core), remark=str(error))
    if handle.topic != request.topic:
        return _refused(core, illegal, "topic not match")
    if handle.broker_name != core.config.brokerName:
        return _refused(core, illegal, "broker service not available")
    left_ms = handle.due_ms - core.clock()
    if not 0 < left_ms < core.settings.store.timerMaxDelaySec * SECOND_MS:
        return _refused(core, illegal, "timestamp invalid")
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
        return _refused(core, ResponseCode.SYSTEM_ERROR, "execute error")
    core.stats.put_total += 1
    response = Response(ext_fields=_fields(core) | {"msgId": handle.unique_key})
    return when_safe(core, appended, response)


def _fields(core: BrokerCore) -> dict[str, str]:
    return {props.MSG_REGION: core.config.regionId}


def _refused(core: BrokerCore, code: ResponseCode, why: str) -> Response:
    return Response(code, _fields(core), remark=f"recall failed, {why}")


HANDLERS: Final[Handlers] = {RequestCode.RECALL_MESSAGE: recall}
