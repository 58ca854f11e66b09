"""Queries: by key (12) and by offset in the log (33). The body of an answer is stored records."""

from typing import Final

from rocketlens.wire.codes import V5_0_0, V5_5_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.declare import boolean, declare, i32, i64, text


@declare("QueryMessageRequestHeader")
class QueryMessageRequest:
    """Ask for messages by key or unique key, stored between two times, both inclusive."""

    topic: str = text("topic", default="")
    key: str = text("key", default="")
    max_num: int = i32("maxNum")
    begin_timestamp_ms: int = i64("beginTimestamp")
    end_timestamp_ms: int = i64("endTimestamp")
    is_unique_key: bool = boolean("_UNIQUE_KEY_QUERY", default=False)
    """Not in RocketMQ's header class; a client adds it to ``extFields``."""
    index_type: str | None = text("indexType", default=None, since=V5_5_0)
    """K keys, U unique key, T tags."""
    last_key: str | None = text("lastKey", default=None, since=V5_5_0)


@declare("QueryMessageResponseHeader")
class QueryMessageResponse:
    """The end of the index: in every answer, also where there are no messages."""

    index_last_update_timestamp_ms: int = i64("indexLastUpdateTimestamp")
    index_last_update_physical_offset: int = i64("indexLastUpdatePhyoffset")


@declare("ViewMessageRequestHeader")
class ViewMessageRequest:
    """Ask for the record at an offset of the log; the topic is not compared with it."""

    physical_offset: int = i64("offset")
    topic: str | None = text("topic", default=None, since=V5_0_0)


NOT_SEARCHED: Final = "notSearched"
"""A field of our broker's answers that RocketMQ does not know: what could not be searched."""
QUERY_MESSAGE: Final = Command(RequestCode.QUERY_MESSAGE, QueryMessageRequest, QueryMessageResponse)
VIEW_MESSAGE_BY_ID: Final = Command(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest, NoFields)
