"""Requests of consumers, locks (41, 42), and of brokers to them (220, 221, 307, 309)."""

from typing import Final

from rocketlens.wire.codes import V5_0_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.commands.offset import ResetOffsetRequest
from rocketlens.wire.declare import boolean, declare, i32, text


@declare("GetConsumerRunningInfoRequestHeader")
class GetConsumerRunningInfoRequest:
    """Ask a consumer how it does; the body of the answer is a ConsumerRunningInfo."""

    consumer_group: str = text("consumerGroup")
    client_id: str = text("clientId")
    jstack_enable: bool = boolean("jstackEnable", default=False)


@declare("ConsumeMessageDirectlyResultRequestHeader")
class ConsumeMessageDirectlyRequest:
    """Let a consumer handle one message; the response's body: ConsumeMessageDirectlyResult.

    ``msg_id`` is an offsetMsgId. From broker to consumer the body is the stored record.
    """

    consumer_group: str = text("consumerGroup")
    client_id: str | None = text("clientId", default=None)
    msg_id: str | None = text("msgId", default=None)
    broker_name: str | None = text("brokerName", default=None)
    topic: str | None = text("topic", default=None, since=V5_0_0)
    topic_sys_flag: int | None = i32("topicSysFlag", default=None, since=V5_0_0)
    group_sys_flag: int | None = i32("groupSysFlag", default=None, since=V5_0_0)


@declare("GetConsumerStatusRequestHeader")
class GetConsumerStatusRequest:
    """Ask a consumer for its progress in a topic; the answer's body is a GetConsumerStatusBody."""

    topic: str = text("topic")
    group: str = text("group")
    client_addr: str | None = text("clientAddr", default=None)


LOCK_BATCH_MQ: Final = Command(RequestCode.LOCK_BATCH_MQ, NoFields, NoFields)
UNLOCK_BATCH_MQ: Final = Command(RequestCode.UNLOCK_BATCH_MQ, NoFields, NoFields)
GET_CONSUMER_RUNNING_INFO: Final = Command(
    RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequest, NoFields
)
CONSUME_MESSAGE_DIRECTLY: Final = Command(
    RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequest, NoFields
)
RESET_CONSUMER_CLIENT_OFFSET: Final = Command(
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequest, NoFields
)
GET_CONSUMER_STATUS_FROM_CLIENT: Final = Command(
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatusRequest, NoFields
)
INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Final = Command(
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequest, NoFields
)
