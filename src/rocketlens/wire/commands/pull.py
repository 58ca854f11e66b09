"""Pulling messages of a queue: code 11, and 361 of lite pull consumers since 5.0."""

from typing import Final

from rocketlens.wire.codes import V5_0_0, V5_5_0, RequestCode
from rocketlens.wire.commands.command_table import Command
from rocketlens.wire.declare import declare, i32, i64, text

COMMIT_OFFSET_FLAG: Final = 1
SUSPEND_FLAG: Final = 2
SUBSCRIPTION_FLAG: Final = 4
CLASS_FILTER_FLAG: Final = 8
LITE_PULL_FLAG: Final = 16
"""Bits of a pull's ``sys_flag``."""


@declare("PullMessageRequestHeader")
class PullMessageRequest:
    """Ask for the messages of a queue from an offset on."""

    consumer_group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = i32("queueId")
    queue_offset: int = i64("queueOffset")
    max_message_nums: int = i32("maxMsgNums")
    sys_flag: int = i32("sysFlag")
    commit_offset: int = i64("commitOffset", default=0)
    suspend_timeout_ms: int = i64("suspendTimeoutMillis", default=0)
    subscription: str | None = text("subscription", default=None)
    subscription_version: int = i64("subVersion", default=0)
    expression_type: str | None = text("expressionType", default=None)
    max_message_bytes: int | None = i32("maxMsgBytes", default=None, since=V5_0_0)
    request_source: int | None = i32("requestSource", default=None, since=V5_0_0)
    proxy_forward_client_id: str | None = text("proxyFrowardClientId", default=None, since=V5_0_0)
    lite_topic: str | None = text("liteTopic", default=None, since=V5_5_0)


@declare("PullMessageResponseHeader")
class PullMessageResponse:
    """The next offset: in every answer, also where there are no messages."""

    suggest_which_broker_id: int = i64("suggestWhichBrokerId")
    next_begin_offset: int = i64("nextBeginOffset")
    min_offset: int = i64("minOffset")
    max_offset: int = i64("maxOffset")
    offset_delta: int | None = i64("offsetDelta", default=None, since=V5_0_0)
    topic_sys_flag: int | None = i32("topicSysFlag", default=None, since=V5_0_0)
    group_sys_flag: int | None = i32("groupSysFlag", default=None, since=V5_0_0)
    forbidden_type: int | None = i32("forbiddenType", default=None, since=V5_0_0)


PULL_MESSAGE: Final = Command(RequestCode.PULL_MESSAGE, PullMessageRequest, PullMessageResponse)
LITE_PULL_MESSAGE: Final = Command(
    RequestCode.LITE_PULL_MESSAGE, PullMessageRequest, PullMessageResponse, since=V5_0_0
)
