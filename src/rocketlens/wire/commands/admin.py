"""What tools ask a broker about groups: connections (203), consume stats (208), groups (300)."""

from typing import Final

from rocketlens.wire.codes import V5_0_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.commands.header_table import header, text


@header("GetConsumerConnectionListRequestHeader")
class GetConsumerConnectionListRequest:
    """Ask who consumes in a group; the body of the answer is a ConsumerConnection."""

    consumer_group: str = text("consumerGroup")


@header("GetConsumeStatsRequestHeader")
class GetConsumeStatsRequest:
    """Ask how far a group came, in one topic or all; the answer's body is a ConsumeStats."""

    consumer_group: str = text("consumerGroup")
    topic: str | None = text("topic", default=None)
    topic_list: str | None = text("topicList", default=None, since=V5_0_0)


@header("QueryTopicConsumeByWhoRequestHeader")
class QueryTopicConsumeByWhoRequest:
    """Ask which groups consume a topic; the body of the answer is a GroupList."""

    topic: str = text("topic")


GET_CONSUMER_CONNECTION_LIST: Final = Command(
    RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequest, NoFields
)
GET_CONSUME_STATS: Final = Command(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequest, NoFields)
QUERY_TOPIC_CONSUME_BY_WHO: Final = Command(
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequest, NoFields
)
COMMANDS: Final = (
    GET_CONSUMER_CONNECTION_LIST,
    GET_CONSUME_STATS,
    QUERY_TOPIC_CONSUME_BY_WHO,
)
