"""Stores messages again that consumers failed to handle and send back (36).

The broker reads the record at the offset and stores a copy:

==================================  ================================================================
message                             copy
==================================  ================================================================
sent back fewer times than          in the retry topic, delayed by the level of the request; 0
permitted                           means level 3, and one more with each time
sent back often enough, or with a   in the dead letter topic, at once
level below 0
==================================  ================================================================

Its properties have the original topic (RETRY_TOPIC) and the offset message id of the first record
(ORIGIN_MESSAGE_ID). Source: ``AbstractSendMessageProcessor.consumerSendMsgBack``.
"""

from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.requests.answers import Handlers, system_error
from rocketlens.broker.requests.query import view_record
from rocketlens.broker.requests.send import max_retries, wait_for_level
from rocketlens.broker.tables.registry import SubscriptionGroupMissing
from rocketlens.formats import commitlog_record
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, PERM_WRITE, RETRY_PREFIX, UNIT_SUB_FLAG
from rocketlens.model.text.java import decode_utf8
from rocketlens.net.channel import Channel, Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import CONSUMER_SEND_MSG_BACK, ConsumerSendMessageBackRequest

_FIRST_LEVEL: Final = 3
"""The delay level of the first retry: 10 s."""


async def send_back(core: BrokerCore, command: RemotingCommand, channel: Channel) -> Response:
    request = CONSUMER_SEND_MSG_BACK.request.decode(command.ext_fields)
    group = core.groups.find(request.consumer_group)
    if group is None:
        raise SubscriptionGroupMissing(request.consumer_group)
    config = core.config
    if not config.brokerPermission & PERM_WRITE:
        remark = f"the broker[{config.brokerIP1}] sending message is forbidden"
        return Response(ResponseCode.NO_PERMISSION, remark=remark)
    queue_count = min(int(group.get("retryQueueNums", 1)), limits.MAX_TOPIC_QUEUES)
    if queue_count <= 0:
        return Response()
    sys_flag = UNIT_SUB_FLAG if request.unit_mode else 0
    name = f"{RETRY_PREFIX}{request.consumer_group}"
    topic = core.topics.create_for_group(name, queue_count, sys_flag)
    if not topic.perm & PERM_WRITE:
        remark = f"the topic[{name}] sending message is forbidden"
        return Response(ResponseCode.NO_PERMISSION, remark=remark)
    max_times = max_retries(group, command.version, request.max_reconsume_times)
    queue_id = core.rng.randrange(max(min(queue_count, topic.write_queue_count), 1))
    view = await view_record(core, request.physical_offset, command, channel)
    return _store(core, view, request, queue_id, max_times)


def _store(
    core: BrokerCore,
    view: Response,
    request: ConsumerSendMessageBackRequest,
    queue_id: int,
    max_times: int,
) -> Response:
    if view.code != ResponseCode.SUCCESS:
        return system_error(f"look message by offset failed, {request.physical_offset}")
    record = commitlog_record.decode(view.body, physical_offset=request.physical_offset)
    properties = props.parse(decode_utf8(record.properties))
    properties.setdefault(props.RETRY_TOPIC, record.topic)
    if not properties.get(props.ORIGIN_MESSAGE_ID, "").strip():
        properties[props.ORIGIN_MESSAGE_ID] = record.offset_msg_id
    properties[props.WAIT] = "false"
    group = request.consumer_group
    if record.reconsume_times >= max_times or request.delay_level < 0:
        topic, queue_id = core.topics.create_for_group(f"{DEAD_LETTER_PREFIX}{group}", 1).topic, 0
        properties[props.DELAY] = "0"
    else:
        level = request.delay_level or _FIRST_LEVEL + record.reconsume_times
        topic = f"{RETRY_PREFIX}{group}"
        topic, queue_id = wait_for_level(core, topic, queue_id, properties, level)
    times = record.reconsume_times + 1
    core.copies.write(record, topic, queue_id, properties, reconsume_times=times)
    return Response()


HANDLERS: Final[Handlers] = {RequestCode.CONSUMER_SEND_MSG_BACK: send_back}
