"""The page and the API of one topic: what is in it, its consumer groups, how it is configured.

What of it a source cannot know is missing there, and what failed is named in its coverage.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import Field

from rocketlens import limits
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.console.act.permission import may_send
from rocketlens.console.api import ERRORS, Sourced
from rocketlens.console.failures import failure_of
from rocketlens.console.message.look_up import (
    coverage_values,
    failed_answer,
    topic_value,
    waiting_in,
)
from rocketlens.console.pages import Pages
from rocketlens.console.search.parameters import Preferred
from rocketlens.console.search.question import Question
from rocketlens.console.sources.console_source import ConsoleSource
from rocketlens.console.sources.sources import Sources
from rocketlens.console.sources.visible import namespace_of, no_topic
from rocketlens.console.status.list_view import ListView
from rocketlens.console.values import ConsoleValue, CoverageValue, SentenceText, TopicValue
from rocketlens.errors import BadInput, RocketLensError, TopicNotFound
from rocketlens.model.group import FoundGroup, GroupsAnswer
from rocketlens.model.life import group_of_topic
from rocketlens.model.topic import TopicKind, TopicSettings
from rocketlens.query.topic_choice import is_pattern

_LATELY_MS: Final = 60_000
_PERMISSIONS: Final = ((4, "read"), (2, "write"), (1, "inherit"))
_TopicName = Annotated[str, Path(max_length=limits.MAX_TOPIC_CHARACTERS)]


class TopicGroupValue(ConsoleValue):
    """A consumer group of a topic; None is what could not be learnt."""

    name: str
    members: int | None = Field(description="those that are connected")
    expression: str | None = Field(description="what they subscribe to; null: nothing now")
    lag: int | None = Field(description="messages of this topic that it has not consumed")
    last_consumed_ms: int | None


class TopicSettingsValue(ConsoleValue):
    """How a topic is configured on a broker, or in a store; None is what could not be learnt."""

    broker: str | None
    permissions: list[str] | None = Field(description="of read, write and inherit")
    read_queues: int | None
    write_queues: int | None
    is_ordered: bool | None
    attributes: dict[str, str] | None
    error: SentenceText | None = Field(description="why the broker did not say it")

    @classmethod
    def of_broker(cls, settings: TopicSettings) -> "TopicSettingsValue":
        """Return the value of one broker's settings."""
        perm = settings.perm
        permissions = None if perm is None else [word for bit, word in _PERMISSIONS if perm & bit]
        return cls.of(settings, broker=settings.broker_name, permissions=permissions)


class TopicInSourceValue(ConsoleValue):
    """The facts of one source about a topic."""

    source: str
    complete: bool
    topic: TopicValue | None = Field(description="null if the source could not be asked")
    last_minute: int | None = Field(
        description="about how many messages were stored in the last minute, if brokers say it"
    )
    settings: list[TopicSettingsValue]
    groups: list[TopicGroupValue] | None = Field(description="null if no group could be learnt")
    coverage: list[CoverageValue]


class TopicPageValue(ConsoleValue):
    """A topic, in each source that has it or could not be asked."""

    name: str
    group: str | None = Field(description="whose retries or dead letters these are")
    sources: list[TopicInSourceValue]


class TopicNamesValue(ConsoleValue):
    """Names of topics, for suggestions."""

    complete: bool = Field(description="whether every source could be asked, and all are here")
    names: list[str] = Field(description="those of RocketMQ itself and of groups last")


class TopicLookUps:
    """Asks the sources of a console for one topic, or for the names of all."""

    def __init__(
        self, sources: Sources, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._sources: Final = sources
        self._now_ms: Final = now_ms

    async def topic(self, name: str, sources: Sequence[str] = ()) -> TopicPageValue:
        """Return a topic of some sources, all without names; a failure is coverage.

        :raises BadInput: if there is no source of a name.
        :raises TopicNotFound: if no source has the topic, and all could be asked.
        """
        if is_pattern(name) or "," in name:
            raise no_topic(name)
        chosen = self._sources.chosen(sources)
        answers = await asyncio.gather(*(self._in_source(each, name) for each in chosen))
        values = [each for each in answers if isinstance(each, TopicInSourceValue)]
        errors = [each for each in answers if isinstance(each, TopicNotFound)]
        if not values:
            raise errors[0] if errors else no_topic(name)
        groups = {each.name for value in values for each in value.groups or ()}
        return TopicPageValue(name=name, group=group_of_topic(name, groups), sources=values)

    async def names(self, sources: Sequence[str] = ()) -> TopicNamesValue:
        """Return the names of the topics of some sources, all without names.

        :raises BadInput: if there is no source of a name.
        """
        answers = await asyncio.gather(
            *(each.topic_names() for each in self._sources.chosen(sources)), return_exceptions=True
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
        shown = ordered[: limits.MAX_SUGGESTED_TOPICS]
        return TopicNamesValue(complete=is_complete and len(shown) == len(ordered), names=shown)

    async def _in_source(
        self, source: ConsoleSource, name: str
    ) -> TopicInSourceValue | TopicNotFound | None:
        """Return what a source knows; None if it knows no topics, and the error if it lacks it."""
        try:
            topics = await source.topics([name])
        except TopicNotFound as error:
            return error
        except BadInput:
            raise
        except (RocketLensError, OSError) as error:
            return _unknown(source, failed_answer(source, str(error)))
        if topics is None:
            return None
        if not topics.topics:
            # Deleted since it was listed, or a broker that may have it did not answer.
            return no_topic(name) if topics.complete else _unknown(source, topics)
        (topic,) = topics.topics
        settings, groups, lately, waiting = await asyncio.gather(
            _settings(source, name),
            _groups(source),
            source.stored_since(topic, self._now_ms() - _LATELY_MS),
            waiting_in(source, topics),
        )
        answers = (topics, *(() if groups is None else (groups,)))
        return TopicInSourceValue(
            source=source.name,
            complete=all(each.complete for each in answers),
            topic=topic_value(source, topic, waiting),
            last_minute=lately,
            settings=settings,
            groups=_groups_of(source, name, groups),
            coverage=list(dict.fromkeys(coverage_values([(source, each) for each in answers]))),
        )


def _unknown(source: ConsoleSource, answer: Any) -> TopicInSourceValue:
    return TopicInSourceValue(
        source=source.name,
        complete=False,
        topic=None,
        last_minute=None,
        settings=[],
        groups=None,
        coverage=coverage_values([(source, answer)]),
    )


async def _settings(source: ConsoleSource, name: str) -> list[TopicSettingsValue]:
    try:
        return [TopicSettingsValue.of_broker(each) for each in await source.topic_settings(name)]
    except (RocketLensError, OSError) as error:
        unknown = TopicSettings(None, None, None, None, error=str(error))
        return [TopicSettingsValue.of_broker(unknown)]


async def _groups(source: ConsoleSource) -> GroupsAnswer | None:
    try:
        return await source.groups()
    except (RocketLensError, OSError) as error:
        return GroupsAnswer((), failed_answer(source, str(error)).coverage)


def _groups_of(
    source: ConsoleSource, name: str, answer: GroupsAnswer | None
) -> list[TopicGroupValue] | None:
    """Return the groups that subscribe to a topic, or have an offset in it; the one that is behind
    most is the first.
    """
    if answer is None or not (answer.groups or answer.complete):
        return None
    namespace = namespace_of(source)

    def is_it(topic: str) -> bool:
        return without_namespace(namespace, topic) == name

    def value(group: FoundGroup) -> TopicGroupValue | None:
        subscribed = [e for topic, e in (group.subscriptions or {}).items() if is_it(topic)]
        queues = [each for each in group.queues or () if is_it(each.topic)]
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


def topic_api_routes(look_up: TopicLookUps) -> APIRouter:
    """Return the routes of the API."""
    routes = APIRouter(prefix="/api", responses=ERRORS)

    @routes.get("/topics/{name}")
    async def topic(name: _TopicName, source: Sourced = []) -> TopicPageValue:  # noqa: B006
        """Return one topic: queues, consumer groups with their lag, and configuration."""
        return await look_up.topic(name, source)

    @routes.get("/topic-names")
    async def topic_names(source: Sourced = []) -> TopicNamesValue:  # noqa: B006
        """Return the names of topics: quicker than /topics, and without what is in them."""
        return await look_up.names(source)

    return routes


def topic_page_routes(pages: Pages, look_up: TopicLookUps) -> APIRouter:
    """Return the route of the page."""
    routes = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    async def newest(name: str, source: str) -> dict[str, Any]:
        question = Question.read(topic=name, sources=[source], max_num=limits.TOPIC_PAGE_ROWS)
        try:
            return {"answer": await pages.searches.search(question), "error": None}
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            return {"answer": None, "error": failure.answer.error}

    @routes.get("/topics/{name}")
    async def topic(
        request: Request,
        preferences: Preferred,
        name: _TopicName,
        source: Sourced = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        answer = await look_up.topic(name, source)
        sources = pages.searches.sources
        messages = await asyncio.gather(*(newest(name, each.source) for each in answer.sources))
        return pages.page(
            "topic.html",
            request,
            preferences,
            found=answer,
            shown=list(zip(answer.sources, messages, strict=True)),
            live=ListView(request, {}),
            may_send=[
                each.source
                for each in answer.sources
                if sources.named(each.source).kind == "cluster"
                and may_send(sources, sources.named(each.source), name)
            ],
        )

    return routes
