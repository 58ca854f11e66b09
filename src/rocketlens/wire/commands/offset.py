"""Offsets: of queues (29 to 32) and of consumer groups (14, 15, reset by 222)."""

from typing import Final

from rocketlens.wire.codes import V5_0_0, V5_5_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.declare import boolean, declare, i32, i64, text


@declare("SearchOffsetRequestHeader")
class SearchOffsetRequest:
    """Ask which message of a queue was stored at a time."""

    topic: str = text("topic")
    queue_id: int = i32("queueId")
    timestamp_ms: int = i64("timestamp")
    boundary_type: str | None = text("boundaryType", default=None, since=V5_0_0)
    """LOWER (also when absent) or UPPER, read in any case of letters."""
    lite_topic: str | None = text("liteTopic", default=None, since=V5_5_0)


@declare(
    "SearchOffsetResponseHeader",
    "GetMaxOffsetResponseHeader",
    "GetMinOffsetResponseHeader",
    "QueryConsumerOffsetResponseHeader",
)
class QueueOffsetResponse:
    """A queue offset."""

    queue_offset: int = i64("offset")


@declare("GetMaxOffsetRequestHeader")
class GetMaxOffsetRequest:
    """Ask for the offset that the next message of a queue will have."""

    topic: str = text("topic")
    queue_id: int = i32("queueId")
    committed: bool | None = boolean("committed", default=None, since=V5_0_0)


@declare("GetMinOffsetRequestHeader")
class GetMinOffsetRequest:
    """Ask for the first offset of a queue that is still stored."""

    topic: str = text("topic")
    queue_id: int = i32("queueId")


@declare("GetEarliestMsgStoretimeRequestHeader")
class GetEarliestStoreTimeRequest:
    """Ask when the first message of a queue was stored."""

    topic: str = text("topic")
    queue_id: int = i32("queueId")


@declare("GetEarliestMsgStoretimeResponseHeader")
class GetEarliestStoreTimeResponse:
    """A time; -1 where there is no message."""

    timestamp_ms: int = i64("timestamp")


@declare("QueryConsumerOffsetRequestHeader")
class QueryConsumerOffsetRequest:
    """Ask for the offset of a consumer group in a queue."""

    consumer_group: str = text("consumerGroup", default="")
    topic: str = text("topic")
    queue_id: int = i32("queueId")
    set_zero_if_not_found: bool | None = boolean("setZeroIfNotFound", default=None, since=V5_0_0)


@declare("UpdateConsumerOffsetRequestHeader")
class UpdateConsumerOffsetRequest:
    """Store the offset of a consumer group in a queue; mostly one-way."""

    consumer_group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = i32("queueId")
    commit_offset: int = i64("commitOffset")


@declare("ResetOffsetRequestHeader")
class ResetOffsetRequest:
    """Reset the offsets of a group's consumers; the response's body is a ResetOffsetBody.

    To ``offset`` in one queue, or in all queues (``queue_id`` -1 or None) to a time. Without
    ``is_force`` only backwards.
    """

    topic: str = text("topic")
    group: str = text("group")
    queue_id: int | None = i32("queueId", default=None, since=V5_0_0)
    offset: int | None = i64("offset", default=None, since=V5_0_0)
    timestamp_ms: int = i64("timestamp")
    is_force: bool = boolean("isForce")


@declare("CloneGroupOffsetRequestHeader")
class CloneGroupOffsetRequest:
    """Copy the offsets of one group to another, of all topics if none is given.

    Unless ``offline``, only in topics that the consumers of the other group subscribe to.
    """

    source_group: str = text("srcGroup")
    target_group: str = text("destGroup")
    topic: str | None = text("topic", default=None)
    offline: bool = boolean("offline", default=False)


SEARCH_OFFSET_BY_TIMESTAMP: Final = Command(
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequest, QueueOffsetResponse
)
GET_MAX_OFFSET: Final = Command(
    RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest, QueueOffsetResponse
)
GET_MIN_OFFSET: Final = Command(
    RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest, QueueOffsetResponse
)
GET_EARLIEST_MSG_STORETIME: Final = Command(
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    GetEarliestStoreTimeRequest,
    GetEarliestStoreTimeResponse,
)
QUERY_CONSUMER_OFFSET: Final = Command(
    RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest, QueueOffsetResponse
)
UPDATE_CONSUMER_OFFSET: Final = Command(
    RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest, NoFields
)
INVOKE_BROKER_TO_RESET_OFFSET: Final = Command(
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequest, NoFields
)
CLONE_GROUP_OFFSET: Final = Command(
    RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetRequest, NoFields
)
