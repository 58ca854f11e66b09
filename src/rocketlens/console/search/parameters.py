"""The parameters of requests, read once for pages and API."""

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from rocketlens import limits
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.preferences import Preferences, is_zone
from rocketlens.console.search.question import Question
from rocketlens.errors import BadInput
from rocketlens.query.options import Kind

_Text = Annotated[str, Query(max_length=limits.MAX_CONSOLE_TEXT)]
_Part = Annotated[str, Path(max_length=limits.MAX_TOPIC_CHARACTERS)]


def preferences_of(request: Request) -> Preferences:
    """Return what the reader chose."""
    return Preferences.of(request)


def question_of(
    *,
    preferences: Annotated[Preferences, Depends(preferences_of)],
    q: Annotated[_Text, Query(description="a key, an id, TOPIC/QUEUE/OFFSET, and name:value")] = "",
    topic: Annotated[_Text, Query(description="a topic, a pattern, or several by commas")] = "",
    kind: Annotated[Kind, Query(description="how q is to be read")] = "auto",
    tag: Annotated[_Text, Query(description="a tag expression: A, or A || B")] = "",
    where: Annotated[
        _Text,
        Query(
            description="a filter: SQL92 over properties, topic, tag, key, time and the decoded "
            "body, such as body.$.amount > 100 AND tag = 'paid'"
        ),
    ] = "",
    grep: Annotated[
        _Text, Query(description="a text or a regular expression (RE2) in the decoded body")
    ] = "",
    since: Annotated[_Text, Query(description="2h, a day, a time, epoch milliseconds")] = "",
    until: Annotated[_Text, Query(description="as since; the end is included")] = "",
    source: Annotated[
        list[str],
        Query(max_length=limits.MAX_CONSOLE_SOURCES, description="sources by name; or all"),
    ] = [],  # noqa: B006 - FastAPI copies it
    max_num: Annotated[
        int,
        Query(alias="max", ge=1, le=limits.MAX_CONSOLE_ROWS, description="messages on a page"),
    ] = limits.DEFAULT_CONSOLE_ROWS,
    exhaustive: Annotated[bool, Query(description="read whole queues or logs")] = False,
    all_topics: Annotated[
        bool, Query(alias="all", description="also search RocketMQ's own topics")
    ] = False,
    columns: Annotated[
        list[str],
        Query(
            max_length=limits.MAX_CONSOLE_COLUMNS,
            description="columns of the list, by commas; of messages as JSON their values: "
            "prop.NAME, body.$.NAME",
        ),
    ] = [],  # noqa: B006 - FastAPI copies it
    cursor: Annotated[_Text, Query(description="next_cursor of the page before")] = "",
    zone: Annotated[
        str, Query(max_length=40, description="the zone of times; or the reader's")
    ] = "",
) -> Question:
    """Return the question of a request.

    :raises BadInput: if a value cannot be used.
    """
    if zone and not is_zone(zone):
        raise BadInput(f"there is no time zone {zone!r}: Asia/Shanghai, for example")
    question = Question.read(
        q=q,
        topic=topic,
        kind=kind,
        tag=tag,
        where=where,
        grep=grep,
        since=since,
        until=until,
        sources=source,
        max_num=max_num,
        exhaustive=exhaustive,
        all_topics=all_topics,
        columns=columns,
        cursor=cursor,
        zone_name=zone or preferences.zone_name,
    )
    # A link of another reader has the times of that reader's zone.
    return question.in_zone(preferences.zone_name)


def address_of(
    source: _Part,
    topic: _Part,
    broker: _Part,
    queue_id: Annotated[int, Path(ge=0, le=limits.MAX_INT)],
    queue_offset: Annotated[int, Path(ge=0, le=limits.MAX_LONG)],
) -> MessageAddress:
    """Return the address of a message that a path has."""
    return MessageAddress(source, topic, broker, queue_id, queue_offset)


Preferred = Annotated[Preferences, Depends(preferences_of)]
Asked = Annotated[Question, Depends(question_of)]
Addressed = Annotated[MessageAddress, Depends(address_of)]
