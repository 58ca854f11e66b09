"""Looks up what pages and API show beside searches: messages, stories, topics, groups."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import unquote

from rocketlens import limits
from rocketlens.console.message.message_view import BodyForm, detail_of
from rocketlens.console.room import hold
from rocketlens.console.search.search import ROW_THREADS, Searches
from rocketlens.console.sources.console_source import ConsoleSource
from rocketlens.console.values import (
    CoverageValue,
    GroupsValue,
    GroupValue,
    MessageDetail,
    StoryValue,
    TopicsValue,
    TopicValue,
)
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound, RocketLensError
from rocketlens.model.answer import Answer, Coverage, SourceState
from rocketlens.model.group import GroupsAnswer
from rocketlens.model.message import MessageExt
from rocketlens.model.topic import FoundTopic, TopicsAnswer
from rocketlens.net.pace import in_thread
from rocketlens.query.facts.waiting import WaitingMessages
from rocketlens.query.find import find
from rocketlens.query.request import FindRequest

if TYPE_CHECKING:
    from rocketlens.console.sources.sources import Sources

T = TypeVar("T", TopicsAnswer, GroupsAnswer)


_PAGE: Final = re.compile(r"/m/([^/]+)/([^/]+)/([^/]+)/(\d{1,10})/(\d{1,19})", re.ASCII)


class MessageAddress(NamedTuple):
    """Where a message is: what the address of its page has."""

    source: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int

    @classmethod
    def of_path(cls, path: str) -> Self:
        """Return the address that the path of a message's page has, as `message_path` makes it.

        :raises BadInput: if it is not one.
        """
        match = _PAGE.fullmatch(path)
        if match is not None:
            source, topic, broker = (unquote(match[each]) for each in (1, 2, 3))
            queue_id, queue_offset = int(match[4]), int(match[5])
            longest = max(len(source), len(topic), len(broker))
            is_number = queue_id <= limits.MAX_INT and queue_offset <= limits.MAX_LONG
            if is_number and longest <= limits.MAX_TOPIC_CHARACTERS:
                return cls(source, topic, broker, queue_id, queue_offset)
        raise BadInput(f"{path[:80]!r} is not the address of a message's page")

    @property
    def position(self) -> str:
        """The position in its queue, as `find` takes it."""
        return f"{self.topic}/{self.queue_id}/{self.queue_offset}"


class LookUps:
    """Looks things up in the sources of a console."""

    def __init__(self, searches: Searches) -> None:
        self._searches: Final = searches
        self._audit: Final = searches.audit
        self.sources: Final[Sources] = searches.sources

    async def message(self, address: MessageAddress) -> MessageExt:
        """Return the message at an address, with what is masked; a broker ``-`` is any.

        :raises BadInput: if the source or the position cannot be.
        :raises MessageNotFound: if there is none, and everything was searched.
        :raises AnswerIncomplete: if none was found, and something failed.
        :raises AuditFailed: if the view cannot be written down.
        :raises ConsoleBusy: if too much is kept for the user, or for all.
        """
        return await self._message(address, is_original=False)

    async def original(self, address: MessageAddress) -> MessageExt:
        """Return the message at an address without masks, to be sent again: it may not be shown.

        Errors as `message`.
        """
        return await self._message(address, is_original=True)

    async def masked(self, source: ConsoleSource, message: MessageExt) -> MessageExt:
        """Return a message of a source as its viewer may see it."""
        return await self._searches.masked(source, message)

    async def unmasked(self, address: MessageAddress) -> MessageExt:
        """Return the message at an address, to be edited by its viewer; errors as `message`.

        :raises BadInput: if parts of it are masked, which would be sent as they are shown.
        """
        message = await self.original(address)
        if await self.masked(self.sources.named(address.source), message) is not message:
            raise BadInput("parts of this message are masked for you, so it cannot be edited")
        return message

    async def _message(self, address: MessageAddress, *, is_original: bool) -> MessageExt:
        source = self.sources.named(address.source)
        request = FindRequest.parse(address.position, kind="queue-offset")
        try:
            answer = await find(request, source.source)
        except (BadInput, MessageNotFound, AnswerIncomplete):
            raise
        except (RocketLensError, OSError) as error:
            raise AnswerIncomplete(str(error), failed_answer(source, str(error))) from error
        for message in answer.messages:
            brokers = (await source.broker_of(message), str(message.store_host), "-")
            if address.broker in brokers:
                hold(len(message.body))
                self._audit.record("view", **address._asdict())
                return message if is_original else await self._searches.masked(source, message)
        if not answer.complete:
            why = "; ".join(each.error or "" for each in answer.failures)
            raise AnswerIncomplete(f"{address.position} was not found: {why}", answer)
        raise MessageNotFound(f"there is no message at {address.position} of {address.broker}")

    async def detail(self, address: MessageAddress, form: BodyForm) -> MessageDetail:
        """Return all about a message; errors as `message`."""
        source = self.sources.named(address.source)
        message = await self.original(address)
        (row,) = await self._searches.rows([(source, message)])
        message = await self._searches.masked(source, message)
        rules = self._searches.rules
        return await in_thread(lambda: detail_of(message, row, rules, form), ROW_THREADS)

    async def story(self, address: MessageAddress, group: str | None = None) -> StoryValue:
        """Return the story of a message; errors as `message`."""
        source = self.sources.named(address.source)
        message = await self.original(address)
        story = await source.story(message, group)
        return StoryValue.of(story, found=story.message is not None)

    async def topics(
        self, names: Sequence[str] = (), topics: Sequence[str] | None = None
    ) -> TopicsValue:
        """Return the topics of some sources, all without names; a failure is coverage."""
        answers = await self.topics_answers(names, topics)
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

    async def topics_answers(
        self, names: Sequence[str] = (), topics: Sequence[str] | None = None
    ) -> list[tuple[ConsoleSource, TopicsAnswer]]:
        """Return the same, by source, without how many messages wait for each."""
        return await self._of_all(names, lambda each: each.topics(topics), TopicsAnswer)

    async def groups(self, names: Sequence[str] = (), group: str | None = None) -> GroupsValue:
        """Return the groups of some sources, all without names; a failure is coverage."""
        answers = await self._of_all(names, lambda each: each.groups(group), GroupsAnswer)
        return GroupsValue(
            complete=all(answer.complete for _, answer in answers),
            groups=[
                GroupValue.of(each, source=source.name)
                for source, answer in answers
                for each in answer.groups
            ],
            coverage=coverage_values(answers),
        )

    async def _of_all(
        self,
        names: Sequence[str],
        ask: Callable[[ConsoleSource], Awaitable[T | None]],
        empty: Callable[[tuple[()], tuple[Coverage, ...]], T],
    ) -> list[tuple[ConsoleSource, T]]:
        async def answer_of(source: ConsoleSource) -> T | None:
            try:
                return await ask(source)
            except BadInput:
                raise
            except (RocketLensError, OSError) as error:
                return empty((), failed_answer(source, str(error)).coverage)

        chosen = self.sources.chosen(names)
        answers = await asyncio.gather(*map(answer_of, chosen))
        return [(s, each) for s, each in zip(chosen, answers, strict=True) if each is not None]


def failed_answer(source: ConsoleSource, error: str) -> Answer:
    """Return the answer of a source that could not be asked."""
    origin = source.source
    return Answer("", (), (Coverage(origin.name, origin.kind, SourceState.FAILED, None, error),))


class Covered(Protocol):
    """An answer that says what was looked at."""

    @property
    def coverage(self) -> Sequence[Coverage]:
        """What was looked at, and what of it failed."""
        ...


def coverage_values(answers: Sequence[tuple[ConsoleSource, Covered]]) -> list[CoverageValue]:
    """Return the coverage of several sources, with their names."""
    return [
        CoverageValue.of(replace(each, source=f"{source.name}: {each.source}"))
        for source, answer in answers
        for each in answer.coverage
    ]


async def waiting_in(source: ConsoleSource, answer: TopicsAnswer) -> WaitingMessages | None:
    """Return how many messages wait for the topics of a source; None if that is not known."""
    try:
        return await source.waiting(answer) if answer.topics else None
    except (RocketLensError, OSError):
        return None


def topic_value(
    source: ConsoleSource, topic: FoundTopic, waiting: WaitingMessages | None
) -> TopicValue:
    """Return a topic of a source, with how many messages wait for it."""
    return TopicValue.of(
        topic,
        source=source.name,
        waiting=None if waiting is None else waiting.counts.get(topic.name, 0),
        waiting_is_exact=waiting is not None and waiting.is_exact,
    )
