"""Sending, pulling and finding messages, and transactions.

The body of a send is the message's, or the batch. Every Java client since 3.x sends the codes 310,
320 or 325, whose fields have letters for names; other clients can send 10 and 324. The body of the
answer to a query or a view is stored records.
"""

from typing import Final

from msgspec import field

from rocketlens.model.rocketmq import SYS_FLAG_COMMIT, SYS_FLAG_ROLLBACK
from rocketlens.wire.codes import RequestCode as Code
from rocketlens.wire.declare import I32, I64, Command, WireStruct


class SendMessageRequest(WireStruct, java="SendMessageRequestHeader"):
    """The fields that a producer sets; ``properties`` are in their stored form.

    RocketMQ declares the producer group and the default topic mandatory, but its brokers never read
    them.
    """

    producer_group: str = ""
    topic: str
    default_topic: str = ""
    default_topic_queue_nums: I32 = 0
    queue_id: I32
    """Negative: any."""
    sys_flag: I32
    born_timestamp_ms: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: I32 | None = None
    broker_name: str | None = field(name="bname", default=None)


class SendMessageResponse(WireStruct, java="SendMessageResponseHeader"):
    """The position of a stored message. ``msg_id`` is its offsetMsgId; for a batch all, with
    commas.

    ``transaction_id`` is the unique key, and absent for a batch. ``ext_fields`` also has
    ``MSG_REGION`` and ``TRACE_ON``, which are not in RocketMQ's header class.
    """

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    batch_unique_key: str | None = field(name="batchUniqId", default=None)
    recall_handle: str | None = None


class ConsumerSendMessageBackRequest(WireStruct, java="ConsumerSendMsgBackRequestHeader"):
    """A message that a consumer could not handle, to be delivered again later."""

    physical_offset: I64 = field(name="offset")
    consumer_group: str = field(name="group")
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    broker_name: str | None = field(name="bname", default=None)


class ReplyMessageRequest(WireStruct, java="ReplyMessageRequestHeader"):
    """A reply on its way from a broker to the requesting producer; the body is the reply's.

    Hosts are ``10.0.0.1:10911``; ``store_host`` is the broker.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp_ms: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp_ms: I64


class RecallMessageRequest(WireStruct, java="RecallMessageRequestHeader"):
    """Recalls a message with a delivery time (5.x)."""

    producer_group: str | None = None
    topic: str
    recall_handle: str
    """The handle that the broker returned for it."""
    broker_name: str | None = field(name="bname", default=None)


class RecallMessageResponse(WireStruct, java="RecallMessageResponseHeader"):
    """``msg_id`` is the unique key of the message."""

    msg_id: str


SHORT_NAMES: Final = "abcdefghijkmln"
"""The names of the fields of a SendMessageRequest, in their order."""
SEND_MESSAGE: Final = Command(Code.SEND_MESSAGE, SendMessageRequest, SendMessageResponse)
SEND_MESSAGE_V2: Final = Command(
    Code.SEND_MESSAGE_V2, SendMessageRequest, SendMessageResponse, SHORT_NAMES
)
SEND_BATCH_MESSAGE: Final = Command(
    Code.SEND_BATCH_MESSAGE, SendMessageRequest, SendMessageResponse, SHORT_NAMES
)
CONSUMER_SEND_MSG_BACK: Final = Command(Code.CONSUMER_SEND_MSG_BACK, ConsumerSendMessageBackRequest)
SEND_REPLY_MESSAGE: Final = Command(
    Code.SEND_REPLY_MESSAGE, SendMessageRequest, SendMessageResponse
)
SEND_REPLY_MESSAGE_V2: Final = Command(
    Code.SEND_REPLY_MESSAGE_V2, SendMessageRequest, SendMessageResponse, SHORT_NAMES
)
PUSH_REPLY_MESSAGE_TO_CLIENT: Final = Command(
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessageRequest
)
RECALL_MESSAGE: Final = Command(Code.RECALL_MESSAGE, RecallMessageRequest, RecallMessageResponse)


COMMIT_OFFSET_FLAG: Final = 1
SUSPEND_FLAG: Final = 2
SUBSCRIPTION_FLAG: Final = 4
CLASS_FILTER_FLAG: Final = 8
LITE_PULL_FLAG: Final = 16
"""Bits of a pull's ``sys_flag``."""


class PullMessageRequest(WireStruct, java="PullMessageRequestHeader"):
    """Asks for the messages of a queue from an offset on."""

    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_message_nums: I32 = field(name="maxMsgNums")
    sys_flag: I32
    commit_offset: I64 = 0
    suspend_timeout_ms: I64 = field(name="suspendTimeoutMillis", default=0)
    subscription: str | None = None
    subscription_version: I64 = field(name="subVersion", default=0)
    expression_type: str | None = None
    max_message_bytes: I32 | None = field(name="maxMsgBytes", default=None)
    request_source: I32 | None = None
    proxy_forward_client_id: str | None = field(name="proxyFrowardClientId", default=None)
    lite_topic: str | None = None
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None
    """False: the queue of a static topic is the broker's own one, not a logical one."""


class PullMessageResponse(WireStruct, java="PullMessageResponseHeader"):
    """The next offset, in every answer, with or without messages."""

    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64
    offset_delta: I64 | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None
    forbidden_type: I32 | None = None


PULL_MESSAGE: Final = Command(Code.PULL_MESSAGE, PullMessageRequest, PullMessageResponse)
LITE_PULL_MESSAGE: Final = Command(Code.LITE_PULL_MESSAGE, PullMessageRequest, PullMessageResponse)


class QueryMessageRequest(WireStruct, java="QueryMessageRequestHeader"):
    """Asks for messages by key or unique key, stored between two times, both inclusive."""

    topic: str = ""
    key: str = ""
    max_num: I32
    begin_timestamp_ms: I64
    end_timestamp_ms: I64
    is_unique_key: bool = field(name="_UNIQUE_KEY_QUERY", default=False)
    """Not in RocketMQ's header class; a client adds it to ``extFields``."""
    index_type: str | None = None
    """K keys, U unique key, T tags."""
    last_key: str | None = None


class QueryMessageResponse(WireStruct, java="QueryMessageResponseHeader"):
    """The end of the index, in every answer, with or without messages."""

    index_last_update_timestamp_ms: I64
    index_last_update_physical_offset: I64 = field(name="indexLastUpdatePhyoffset")


class ViewMessageRequest(WireStruct, java="ViewMessageRequestHeader"):
    """Asks for the record at an offset of the log; its topic is not compared with ``topic``."""

    physical_offset: I64 = field(name="offset")
    topic: str | None = None


NOT_SEARCHED: Final = "notSearched"
"""A field that our broker adds to answers: the part that could not be searched."""
QUERY_MESSAGE: Final = Command(Code.QUERY_MESSAGE, QueryMessageRequest, QueryMessageResponse)
VIEW_MESSAGE_BY_ID: Final = Command(Code.VIEW_MESSAGE_BY_ID, ViewMessageRequest)


COMMIT: Final = SYS_FLAG_COMMIT
ROLLBACK: Final = SYS_FLAG_ROLLBACK
UNKNOWN: Final = 0
"""Values of ``commit_or_rollback``."""


class EndTransactionRequest(WireStruct, java="EndTransactionRequestHeader"):
    """Commits or rolls back a half message."""

    producer_group: str
    tran_state_table_offset: I64
    """The half message's queue offset."""
    commit_log_offset: I64
    commit_or_rollback: I32
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class CheckTransactionStateRequest(WireStruct, java="CheckTransactionStateRequestHeader"):
    """Broker to producer, one-way; the body is the half message, with its real topic restored."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None


END_TRANSACTION: Final = Command(Code.END_TRANSACTION, EndTransactionRequest)
CHECK_TRANSACTION_STATE: Final = Command(Code.CHECK_TRANSACTION_STATE, CheckTransactionStateRequest)
