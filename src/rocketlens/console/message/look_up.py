"""Looks up single messages and their stories, as the current user may see them."""

import re
from contextlib import aclosing
from typing import Annotated, Final, Self
from urllib.parse import unquote

from msgspec.structs import replace
from pydantic import Field

from rocketlens import limits
from rocketlens.console.message.message_view import BodyForm, detail_of
from rocketlens.console.room import hold
from rocketlens.console.search.question import Question
from rocketlens.console.search.search import ROW_THREADS, Searches
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.status.lists import failed_answer
from rocketlens.console.values import (
    ConsoleRequest,
    KeyStoryValue,
    MessageDetail,
    StoryValue,
    ToldValue,
)
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound, RocketLensError
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.net.pace import in_thread
from rocketlens.query.find import find
from rocketlens.query.request import FindRequest
from rocketlens.query.story.story import Story, combine_stories, severity_of, without_failures
from rocketlens.query.story.story_search import MAX_STORIES, distinct_messages

_PAGE: Final = re.compile(
    r"/m/(?P<source>[^/]+)/(?P<topic>[^/]+)/(?P<broker>[^/]+)"
    r"/(?P<queue_id>\d{1,10})/(?P<queue_offset>\d{1,19})",
    re.ASCII,
)
_Part = Annotated[str, Field(max_length=limits.MAX_TOPIC_CHARACTERS)]


class MessageAddress(ConsoleRequest):
    """The position of a message, as in the address of its page."""

    source: _Part
    topic: _Part
    broker: _Part = "-"
    queue_id: int = Field(ge=0, le=limits.MAX_INT)
    queue_offset: int = Field(ge=0, le=limits.MAX_LONG)

    @classmethod
    def of_path(cls, path: str) -> Self:
        """Parse the path of a message page, as `message_path` makes it.

        :raises BadInput: if it is not one.
        """
        match = _PAGE.fullmatch(path)
        try:
            parts = match.groupdict() if match is not None else {}
            return cls.of_form({name: unquote(part) for name, part in parts.items()})
        except BadInput:
            raise BadInput(Sentence("not_a_page", path=repr(path[:80]))) from None

    @property
    def position(self) -> str:
        """The position as `find` takes it."""
        return f"{self.topic}/{self.queue_id}/{self.queue_offset}"


class LookUps:
    """Looks up messages in the sources of a console."""

    def __init__(self, searches: Searches) -> None:
        self.searches: Final = searches
        self.sources: Final = searches.sources

    async def message(self, address: MessageAddress) -> MessageExt:
        """Return a message, masked for the user; errors as `original`."""
        message = await self.original(address)
        return await self.searches.masked(self.sources.named(address.source), message)

    async def unmasked(self, address: MessageAddress) -> MessageExt:
        """Return a message that the user wants to edit; errors as `original`.

        :raises BadInput: if parts of it are masked: the masks would be sent.
        """
        message = await self.original(address)
        source = self.sources.named(address.source)
        if await self.searches.masked(source, message) is not message:
            raise BadInput(Sentence("masked_not_edited"))
        return message

    async def original(self, address: MessageAddress) -> MessageExt:
        """Return a message without masks, to be sent again. It must not be shown.

        The broker ``-`` matches any.

        :raises BadInput: if the source or the position is not valid.
        :raises MessageNotFound: if it does not exist, and everything was searched.
        :raises AnswerIncomplete: if it was not found, and something could not be searched.
        :raises AuditFailed: if the audit log cannot be written.
        :raises ConsoleBusy: if requests hold too many bytes.
        """
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
                self.searches.audit.record("view", **address.model_dump())
                return message
        if not answer.complete:
            why = "; ".join(each.error or "" for each in answer.failures)
            raise AnswerIncomplete(Sentence("not_found_as", at=address.position, why=why), answer)
        raise MessageNotFound(Sentence("nothing_at", at=address.position, broker=address.broker))

    async def detail(
        self, address: MessageAddress, form: BodyForm, original: MessageExt | None = None
    ) -> MessageDetail:
        """Return everything about a message. ``original`` saves a read; errors as `original`."""
        source = self.sources.named(address.source)
        message = original or await self.original(address)
        (row,) = await self.searches.rows([(source, message)])
        message = await self.searches.masked(source, message)
        rules = self.searches.rules
        return await in_thread(lambda: detail_of(message, row, rules, form), ROW_THREADS)

    async def story(
        self, address: MessageAddress, group: str | None = None, original: MessageExt | None = None
    ) -> StoryValue:
        """Return the story of a message; arguments and errors as `detail`."""
        source = self.sources.named(address.source)
        story = await self._story_of(source, original or await self.original(address), group)
        return StoryValue.of(story, found=story.message is not None)

    async def _story_of(
        self, source: ConsoleSource, message: MessageExt, group: str | None = None
    ) -> Story:
        story = await source.story(message, group)
        if await self.searches.masked(source, message) is not message:
            story = without_failures(story)
        return story

    async def key_story(self, question: Question) -> KeyStoryValue:
        """Return the stories of all messages that a look-up finds in one source.

        :raises BadInput: if the question has no text, or is about several sources.
        """
        chosen = self.sources.chosen(question.sources)
        if not question.text or len(chosen) != 1:
            raise BadInput(Sentence("story_of_key"))
        source = chosen[0]
        found = self.searches.unmasked_pages(question, limits.MAX_STORY_RECORDS)
        async with aclosing(found) as pages:
            page = await anext(pages)
        messages = distinct_messages(page.messages)
        pairs = [(each, await self._story_of(source, each)) for each in messages[:MAX_STORIES]]
        pairs.sort(key=lambda each: severity_of(each[1]))
        others = tuple(each.position for each in messages[MAX_STORIES:])
        stories = [replace(story, others=others) for _, story in pairs]
        rows = await self.searches.rows([(source, message) for message, _ in pairs])
        return KeyStoryValue(
            query=question.text,
            summary=combine_stories(question.text, stories).summary if stories else "",
            complete=page.answer.complete
            and not page.is_more
            and all(each.complete for each in stories),
            told=[
                ToldValue(message=row, story=StoryValue.of(story, found=True))
                for row, story in zip(rows, stories, strict=True)
            ],
            others=list(others),
        )
