"""Sending: codes 10, 310, 320, and for replies 324 and 325, which share one header; 36, a message
that failed; 326, a reply that a broker passes on; and 370, a message that is taken back.

The body is the message's, or for 320 the batch. Every client since 3.x sends 310, 320 or 325, whose
fields have letters for names; 10 and 324 are what other clients may still send.
"""

from typing import Final

from rocketlens.wire.codes import V5_0_0, V5_5_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.declare import boolean, declare, i32, i64, text


@declare("SendMessageRequestHeader")
class SendMessageRequest:
    """The fields that a producer sets; ``properties`` are in their stored form.

    Of the fields that RocketMQ declares mandatory, its brokers never look for the producer group
    and the default topic.
    """

    producer_group: str = text("producerGroup", short_name="a", default="")
    topic: str = text("topic", short_name="b")
    default_topic: str = text("defaultTopic", short_name="c", default="")
    default_topic_queue_nums: int = i32("defaultTopicQueueNums", short_name="d", default=0)
    queue_id: int = i32("queueId", short_name="e")
    """Negative: any."""
    sys_flag: int = i32("sysFlag", short_name="f")
    born_timestamp_ms: int = i64("bornTimestamp", short_name="g")
    flag: int = i32("flag", short_name="h")
    properties: str | None = text("properties", short_name="i", default=None)
    reconsume_times: int | None = i32("reconsumeTimes", short_name="j", default=None)
    unit_mode: bool | None = boolean("unitMode", short_name="k", default=None)
    batch: bool | None = boolean("batch", short_name="m", default=None)
    max_reconsume_times: int | None = i32("maxReconsumeTimes", short_name="l", default=None)
    broker_name: str | None = text("bname", short_name="n", default=None)


@declare("SendMessageResponseHeader")
class SendMessageResponse:
    """Where a message was stored. ``msg_id`` is its offsetMsgId; for a batch all, with commas.

    ``transaction_id`` is the unique key, and absent for a batch. ``MSG_REGION`` and ``TRACE_ON``
    come with it in ``ext_fields``, though they are not in RocketMQ's header class.
    """

    msg_id: str = text("msgId")
    queue_id: int = i32("queueId")
    queue_offset: int = i64("queueOffset")
    transaction_id: str | None = text("transactionId", default=None)
    batch_unique_key: str | None = text("batchUniqId", default=None, since=V5_0_0)
    recall_handle: str | None = text("recallHandle", default=None, since=V5_5_0)


@declare("ConsumerSendMsgBackRequestHeader")
class ConsumerSendMessageBackRequest:
    """A message that a consumer could not handle, to be delivered again later."""

    physical_offset: int = i64("offset")
    consumer_group: str = text("group")
    delay_level: int = i32("delayLevel")
    origin_msg_id: str | None = text("originMsgId", default=None)
    origin_topic: str | None = text("originTopic", default=None)
    unit_mode: bool = boolean("unitMode", default=False)
    max_reconsume_times: int | None = i32("maxReconsumeTimes", default=None)


@declare("ReplyMessageRequestHeader")
class ReplyMessageRequest:
    """A reply, on its way from a broker to the producer that asked; the body is the reply's.

    Hosts are ``10.0.0.1:10911``; ``store_host`` is the broker.
    """

    producer_group: str = text("producerGroup")
    topic: str = text("topic")
    default_topic: str = text("defaultTopic")
    default_topic_queue_nums: int = i32("defaultTopicQueueNums")
    queue_id: int = i32("queueId")
    sys_flag: int = i32("sysFlag")
    born_timestamp_ms: int = i64("bornTimestamp")
    flag: int = i32("flag")
    properties: str | None = text("properties", default=None)
    reconsume_times: int | None = i32("reconsumeTimes", default=None)
    unit_mode: bool = boolean("unitMode", default=False)
    born_host: str = text("bornHost")
    store_host: str = text("storeHost")
    store_timestamp_ms: int = i64("storeTimestamp")


@declare("RecallMessageRequestHeader")
class RecallMessageRequest:
    """A message with a delivery time of its own that is not to be delivered (5.x)."""

    producer_group: str | None = text("producerGroup", default=None)
    topic: str = text("topic")
    recall_handle: str = text("recallHandle")
    """The handle that the broker returned when it was sent."""


@declare("RecallMessageResponseHeader")
class RecallMessageResponse:
    """``msg_id`` is the unique key of the message."""

    msg_id: str = text("msgId")


SEND_MESSAGE: Final = Command(RequestCode.SEND_MESSAGE, SendMessageRequest, SendMessageResponse)
SEND_MESSAGE_V2: Final = Command(
    RequestCode.SEND_MESSAGE_V2, SendMessageRequest, SendMessageResponse, short=True
)
SEND_BATCH_MESSAGE: Final = Command(
    RequestCode.SEND_BATCH_MESSAGE, SendMessageRequest, SendMessageResponse, short=True
)
CONSUMER_SEND_MSG_BACK: Final = Command(
    RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMessageBackRequest, NoFields
)
SEND_REPLY_MESSAGE: Final = Command(
    RequestCode.SEND_REPLY_MESSAGE, SendMessageRequest, SendMessageResponse
)
SEND_REPLY_MESSAGE_V2: Final = Command(
    RequestCode.SEND_REPLY_MESSAGE_V2, SendMessageRequest, SendMessageResponse, short=True
)
PUSH_REPLY_MESSAGE_TO_CLIENT: Final = Command(
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessageRequest, NoFields
)
RECALL_MESSAGE: Final = Command(
    RequestCode.RECALL_MESSAGE, RecallMessageRequest, RecallMessageResponse
)
