"""Asks several sources the same question, and lists their topics and groups."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from rocketlens.console.sources.sources import Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.values import (
    CoverageValue,
    GroupsValue,
    GroupValue,
    TopicsValue,
    TopicValue,
)
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.answer import Answer, Coverage, SourceState
from rocketlens.model.group import FoundGroup, GroupsAnswer
from rocketlens.model.topic import FoundTopic, TopicsAnswer
from rocketlens.query.facts.waiting import WaitingMessages

T = TypeVar("T")
_NEW_DEAD_LETTERS_MS: Final = 86_400_000
"""The age up to which a dead letter is new."""


async def ask_all(
    sources: Sequence[ConsoleSource],
    ask: Callable[[ConsoleSource], Awaitable[T | None]],
    empty: Callable[[tuple[()], tuple[Coverage, ...]], T],
    raised: tuple[type[RocketLensError], ...] = (BadInput,),
) -> list[tuple[ConsoleSource, T]]:
    """Ask all sources at once; return their answers without those that are None.

    A source that fails gets an ``empty`` answer with the error as coverage, unless the error is in
    ``raised``: these are mistakes in the question.
    """

    async def answer_of(source: ConsoleSource) -> T | None:
        try:
            return await ask(source)
        except raised:
            raise
        except (RocketLensError, OSError) as error:
            return empty((), failed_answer(source, str(error)).coverage)

    answers = await asyncio.gather(*map(answer_of, sources))
    return [(s, each) for s, each in zip(sources, answers, strict=True) if each is not None]


def failed_answer(source: ConsoleSource, error: str) -> Answer:
    """Return the answer of a source that could not be asked."""
    origin = source.source
    return Answer("", (), (Coverage(origin.name, origin.kind, SourceState.FAILED, None, error),))


def coverage_values(answers: Sequence[tuple[ConsoleSource, Any]]) -> list[CoverageValue]:
    """Return the coverage of several sources, with their names and without duplicates."""
    values = (
        CoverageValue.of(replace(each, source=f"{source.name}: {each.source}"))
        for source, answer in answers
        for each in answer.coverage
    )
    return list(dict.fromkeys(values))


async def topics_of(
    sources: Sources, names: Sequence[str] = (), topics: Sequence[str] | None = None
) -> TopicsValue:
    answers = await ask_all(sources.chosen(names), lambda each: each.topics(topics), TopicsAnswer)
    waiting = await asyncio.gather(*(waiting_in(*each) for each in answers))
    return TopicsValue(
        complete=all(answer.complete for _, answer in answers),
        topics=[
            topic_value(source, each, of_source)
            for (source, answer), of_source in zip(answers, waiting, strict=True)
            for each in answer.topics
        ],
        coverage=coverage_values(answers),
    )


async def groups_of(
    sources: Sources, names: Sequence[str] = (), group: str | None = None
) -> GroupsValue:
    answers = await ask_all(sources.chosen(names), lambda each: each.groups(group), GroupsAnswer)
    return GroupsValue(
        complete=all(answer.complete for _, answer in answers),
        groups=[_group_value(s, each) for s, answer in answers for each in answer.groups],
        coverage=coverage_values(answers),
    )


def _group_value(source: ConsoleSource, group: FoundGroup) -> GroupValue:
    now_ms = time.time_ns() // 1_000_000
    new_from_ms = now_ms - _NEW_DEAD_LETTERS_MS
    return GroupValue.of(
        group,
        source=source.name,
        behind_ms=group.behind_ms(now_ms),
        is_left=group.members == () and bool(group.lag or group.to_retry),
        has_new_dead_letters=bool(group.dead_letters)
        and (group.last_dead_letter_ms or 0) > new_from_ms,
    )


async def waiting_in(source: ConsoleSource, answer: TopicsAnswer) -> WaitingMessages | None:
    """Return how many messages wait for the topics of a source; None if unknown."""
    try:
        return await source.waiting(answer) if answer.topics else None
    except (RocketLensError, OSError):
        return None


def topic_value(
    source: ConsoleSource, topic: FoundTopic, waiting: WaitingMessages | None
) -> TopicValue:
    return TopicValue.of(
        topic,
        source=source.name,
        waiting=None if waiting is None else waiting.counts.get(topic.name, 0),
        waiting_is_exact=waiting is not None and waiting.is_exact,
    )
