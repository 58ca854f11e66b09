"""One topic in all sources: its content, consumer groups and configuration.

Facts that a source cannot know are None. Failures are coverage.
"""

import asyncio
import time
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import Path, Query
from fastapi.responses import RedirectResponse, Response
from pydantic import Field

from rocketlens import limits
from rocketlens.console.act.permission import may_send
from rocketlens.console.pages import (
    SEE_OTHER,
    Here,
    HereNow,
    Name,
    Sourced,
    answer_or_error,
    api_router,
    page_router,
)
from rocketlens.console.search.columns import GROUP_COLUMNS, TOPIC_COLUMNS, ListView
from rocketlens.console.search.question import Question
from rocketlens.console.sources.visible import ConsoleSource, no_topic
from rocketlens.console.status.lists import (
    ask_all,
    coverage_values,
    groups_of,
    topic_value,
    topics_of,
    waiting_in,
)
from rocketlens.console.values import (
    ConsoleValue,
    CoverageValue,
    GroupsValue,
    SentenceText,
    TopicsValue,
    TopicValue,
)
from rocketlens.errors import BadInput, RocketLensError, TopicNotFound
from rocketlens.model.group import FoundGroup, GroupsAnswer
from rocketlens.model.life import group_of_topic
from rocketlens.model.topic import TopicKind, TopicsAnswer, TopicSettings
from rocketlens.query.topic_choice import is_pattern

MAX_SUGGESTED_TOPICS: Final = 10_000
"""Suggested topic names, 100 bytes each."""
TOPIC_PAGE_ROWS: Final = 10
"""Newest messages on the page of a topic."""
_LATELY_MS: Final = 60_000
_PERMISSIONS: Final = ((4, "read"), (2, "write"), (1, "inherit"))


class TopicGroupValue(ConsoleValue):
    """A consumer group of a topic. None stands for unknown values."""

    name: str
    members: int | None = Field(description="connected members")
    expression: str | None = Field(description="their subscription; null: none")
    lag: int | None = Field(description="messages of this topic not consumed yet")
    last_consumed_ms: int | None


class TopicSettingsValue(ConsoleValue):
    """The configuration of a topic on a broker or in a store. None stands for unknown values."""

    broker: str | None
    permissions: list[str] | None = Field(description="read, write, inherit")
    read_queues: int | None
    write_queues: int | None
    is_ordered: bool | None
    attributes: dict[str, str] | None
    error: SentenceText | None = Field(description="why the broker did not answer")

    @classmethod
    def of_broker(cls, settings: TopicSettings) -> "TopicSettingsValue":
        perm = settings.perm
        permissions = None if perm is None else [word for bit, word in _PERMISSIONS if perm & bit]
        return cls.of(settings, broker=settings.broker_name, permissions=permissions)


class TopicInSourceValue(ConsoleValue):
    """A topic in one source."""

    source: str
    complete: bool
    topic: TopicValue | None = Field(default=None, description="null if the source failed")
    last_minute: int | None = Field(default=None, description="messages stored, if known")
    settings: list[TopicSettingsValue] = Field(default=[])
    groups: list[TopicGroupValue] | None = Field(default=None, description="null if unknown")
    coverage: list[CoverageValue]


class TopicPageValue(ConsoleValue):
    """A topic in each source that has it or could not be asked."""

    name: str
    group: str | None = Field(description="the group whose retry or dead-letter topic it is")
    sources: list[TopicInSourceValue]


class TopicNamesValue(ConsoleValue):
    """Topic names for suggestions."""

    complete: bool = Field(description="true if every source answered, and all names are here")
    names: list[str] = Field(description="topics of RocketMQ itself and of groups are last")


async def _in_source(source: ConsoleSource, name: str) -> TopicInSourceValue | TopicNotFound | None:
    """Return a topic of one source; None if it has no topics; the error if it lacks this one."""
    try:
        answers = await ask_all(
            [source], lambda each: each.topics([name]), TopicsAnswer, (BadInput, TopicNotFound)
        )
    except TopicNotFound as error:
        return error
    if not answers:
        return None
    topics = answers[0][1]
    if not topics.topics:
        # Deleted meanwhile, or a broker that can have it did not answer.
        if topics.complete:
            return no_topic(name)
        coverage = coverage_values([(source, topics)])
        return TopicInSourceValue(source=source.name, complete=False, coverage=coverage)
    (topic,) = topics.topics
    since_ms = time.time_ns() // 1_000_000 - _LATELY_MS
    settings, groups, lately, waiting = await asyncio.gather(
        _settings(source, name),
        ask_all([source], lambda each: each.groups(), GroupsAnswer),
        source.stored_since(name, [since_ms]),
        waiting_in(source, topics),
    )
    return TopicInSourceValue(
        source=source.name,
        complete=topics.complete and all(answer.complete for _, answer in groups),
        topic=topic_value(source, topic, waiting),
        last_minute=lately[0] if lately and source.kind == "cluster" else None,
        settings=settings,
        groups=_groups_of(source, name, groups[0][1]) if groups else None,
        coverage=coverage_values([(source, topics), *groups]),
    )


async def _settings(source: ConsoleSource, name: str) -> list[TopicSettingsValue]:
    try:
        return [TopicSettingsValue.of_broker(each) for each in await source.topic_settings(name)]
    except (RocketLensError, OSError) as error:
        unknown = TopicSettings(None, None, None, None, error=str(error))
        return [TopicSettingsValue.of_broker(unknown)]


def _groups_of(
    source: ConsoleSource, name: str, answer: GroupsAnswer
) -> list[TopicGroupValue] | None:
    """Return the groups of a topic, by descending lag; None if unknown."""
    if not (answer.groups or answer.complete):
        return None

    def value(group: FoundGroup) -> TopicGroupValue | None:
        subscriptions = (group.subscriptions or {}).items()
        subscribed = [each for topic, each in subscriptions if source.plain(topic) == name]
        queues = [each for each in group.queues or () if source.plain(each.topic) == name]
        if not (subscribed or queues):
            return None
        times = [each.last_consumed_ms for each in queues if each.last_consumed_ms]
        return TopicGroupValue(
            name=group.name,
            members=None if group.members is None else len(group.members),
            expression=next(iter(subscribed), None),
            lag=None if group.queues is None else sum(each.lag for each in queues),
            last_consumed_ms=max(times, default=None),
        )

    groups = [each for each in map(value, answer.groups) if each is not None]
    return sorted(groups, key=lambda each: (-(each.lag or 0), each.name))


_TopicName = Annotated[str, Path(max_length=limits.MAX_TOPIC_CHARACTERS)]
api = api_router()
pages = page_router()


@api.get("/topics")
async def topics(here: Here, source: Sourced, topic: Name = None) -> TopicsValue:
    """Return topics: their queues, messages and times."""
    return await topics_of(here.sources, source, None if topic is None else [topic])


@pages.get("/topics")
async def _topics_page(
    *,
    here: Here,
    source: Sourced,
    topic: Name = None,
    everything: Annotated[bool, Query(alias="all")] = False,
) -> Response:
    if topic and not is_pattern(topic):
        query = urlencode([("source", each) for each in source])
        path = f"/topics/{quote(topic, safe='')}"
        return RedirectResponse(f"{path}?{query}" if query else path, SEE_OTHER)
    return here.page(
        "topics.html",
        found=await topics_of(here.sources, source, [topic] if topic else None),
        everything=everything or bool(topic),
        view=ListView(here.request, TOPIC_COLUMNS),
    )


@api.get("/topics/{name}")
async def topic(here: Here, name: _TopicName, source: Sourced) -> TopicPageValue:
    """Return one topic: queues, consumer groups with their lag, and configuration."""
    if is_pattern(name) or "," in name:
        raise no_topic(name)
    chosen = here.sources.chosen(source)
    answers = await asyncio.gather(*(_in_source(each, name) for each in chosen))
    values = [each for each in answers if isinstance(each, TopicInSourceValue)]
    errors = [each for each in answers if isinstance(each, TopicNotFound)]
    if not values:
        raise errors[0] if errors else no_topic(name)
    groups = {each.name for value in values for each in value.groups or ()}
    return TopicPageValue(name=name, group=group_of_topic(name, groups), sources=values)


@api.get("/topic-names")
async def topic_names(here: Here, source: Sourced) -> TopicNamesValue:
    """Return the names of topics only, which is faster than /topics."""
    answers = await asyncio.gather(
        *(each.topic_names() for each in here.sources.chosen(source)), return_exceptions=True
    )
    names: set[str] = set()
    is_complete = True
    for each in answers:
        if isinstance(each, (RocketLensError, OSError)):
            is_complete = False
        elif isinstance(each, BaseException):
            raise each
        else:
            names.update(each)
    ordered = sorted(names, key=lambda name: (TopicKind.of(name) != TopicKind.NORMAL, name))
    shown = ordered[:MAX_SUGGESTED_TOPICS]
    return TopicNamesValue(complete=is_complete and len(shown) == len(ordered), names=shown)


@pages.get("/topics/{name}")
async def _topic_page(here: Here, name: _TopicName, source: Sourced) -> Response:
    found = await topic(here, name, source)
    newest = await asyncio.gather(*(_newest(here, name, each.source) for each in found.sources))
    clusters = [each for each in here.sources if each.kind == "cluster"]
    return here.page(
        "topic.html",
        found=found,
        shown=list(zip(found.sources, newest, strict=True)),
        live=ListView(here.request, {}),
        may_send=[each.name for each in clusters if may_send(here.sources, each, name)],
    )


async def _newest(here: HereNow, name: str, source: str) -> dict[str, Any]:
    """Return the newest messages of a topic in a source, or the error."""
    question = Question.read(topic=name, sources=[source], max_num=TOPIC_PAGE_ROWS)
    answer, error = await answer_or_error(here.searches.search(question))
    return {"answer": answer, "error": error}


@api.get("/groups")
async def groups(here: Here, source: Sourced, group: Name = None) -> GroupsValue:
    """Return consumer groups: their members, and how far they came."""
    return await groups_of(here.sources, source, group)


@pages.get("/groups")
async def _groups_page(here: Here, source: Sourced, group: Name = None) -> Response:
    found = await groups_of(here.sources, source, group)
    view = ListView(here.request, GROUP_COLUMNS)
    return here.page("groups.html", found=found, group=group, view=view)
