"""Topics on a broker: create or change (17), delete (215), configuration (351, 21), stats (202)."""

from typing import Final

from rocketlens.wire.codes import V5_0_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.declare import boolean, declare, i32, text


@declare("CreateTopicRequestHeader")
class CreateTopicRequest:
    """Make a topic, or change it."""

    topic: str = text("topic")
    default_topic: str = text("defaultTopic", default="")
    read_queue_nums: int = i32("readQueueNums")
    write_queue_nums: int = i32("writeQueueNums")
    perm: int = i32("perm")
    topic_filter_type: str = text("topicFilterType")
    """SINGLE_TAG or MULTI_TAG."""
    topic_sys_flag: int | None = i32("topicSysFlag", default=None)
    order: bool = boolean("order", default=False)
    attributes: str | None = text("attributes", default=None, since=V5_0_0)
    force: bool | None = boolean("force", default=None, since=V5_0_0)


@declare("DeleteTopicRequestHeader")
class DeleteTopicRequest:
    """Forget a topic."""

    topic: str = text("topic")


@declare("GetTopicConfigRequestHeader")
class GetTopicConfigRequest:
    """Ask for a topic's configuration; the body of the answer is a TopicConfig."""

    topic: str = text("topic")


@declare("GetTopicStatsInfoRequestHeader")
class GetTopicStatsRequest:
    """Ask for the offsets of all queues; the body of the answer is a TopicStatsTable."""

    topic: str = text("topic")


UPDATE_AND_CREATE_TOPIC: Final = Command(
    RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest, NoFields
)
DELETE_TOPIC_IN_BROKER: Final = Command(
    RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest, NoFields
)
GET_TOPIC_CONFIG: Final = Command(
    RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest, NoFields, since=V5_0_0
)
GET_ALL_TOPIC_CONFIG: Final = Command(RequestCode.GET_ALL_TOPIC_CONFIG, NoFields, NoFields)
GET_TOPIC_STATS_INFO: Final = Command(
    RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsRequest, NoFields
)
