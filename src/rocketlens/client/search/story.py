"""``rocketlens.story``: the story of one message, from several sources.

::

    story = rocketlens.story("ORDER-1", sources=["/backup/store", "127.0.0.1:9876"])

Sources are those of `rocketlens.find`. What groups did is told by clusters and store directories;
of a group that both know, the cluster's word counts.
"""

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from rocketlens.client.blocking.base import SourceInLoop
from rocketlens.client.search.cluster_source import ClusterSource
from rocketlens.client.search.cluster_story import ClusterStorySource
from rocketlens.client.search.find import AnySource, check_sources, open_source
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.net.sync import LoopThread
from rocketlens.query.options import StoryOptions, takes
from rocketlens.query.request import StoryRequest
from rocketlens.query.source import Source
from rocketlens.query.story.store_story import StoreStorySource
from rocketlens.query.story.story import Story
from rocketlens.query.story.story_search import CopyTopics, SourceFacts, StorySource, find_story
from rocketlens.query.threaded_source import ThreadedSource

if TYPE_CHECKING:
    from typing import Unpack


@takes(StoryOptions, StoryRequest.parse)
def story(
    text: str,
    topic: str | Iterable[str] | None = None,
    *,
    sources: Iterable[AnySource],
    **options: "Unpack[StoryOptions]",
) -> Story:
    """Return the story of one message, from several sources; for programs without an event loop.

    ``sources`` are as `rocketlens.find` has them, the other arguments as `MQAdmin.story`. A source
    that fails makes the story incomplete.

    :raises BadInput: if the text cannot be what ``kind`` says, or there are no sources.
    :raises WrongType: if an argument is of a type that cannot be used.
    :raises TopicNotFound: if nothing is found and no source has such a topic.
    :raises WrongUse: if a source is closed, or belongs to an event loop as `MQAdmin` does.
    """
    work = story_async(text, topic, sources=sources, **options)
    with LoopThread() as thread:
        return thread.run(work)


@takes(StoryOptions, StoryRequest.parse)
async def story_async(
    text: str,
    topic: str | Iterable[str] | None = None,
    *,
    sources: Iterable[AnySource],
    **options: "Unpack[StoryOptions]",
) -> Story:
    """Return the story of one message, in an event loop; otherwise as `story`."""
    request = StoryRequest.parse(text, topic, **options)
    given = check_sources(sources)
    async with AsyncExitStack() as opened:
        asked = [_story_source(await open_source(each, opened)) for each in given]
        return await find_story(request, asked)


def _story_source(source: Source) -> StorySource:
    if isinstance(source, ThreadedSource):
        return StoreStorySource(source, Sentence("by_log_of", source=source.name))
    if isinstance(source, ClusterSource):
        return ClusterStorySource(source)
    if isinstance(source, SourceInLoop):
        return _ClusterInLoop(source)
    return _MessagesOnly(source)


class _ClusterInLoop:
    """A cluster whose client has a loop of its own."""

    def __init__(self, source: SourceInLoop) -> None:
        self.source: Final = source
        self._knowing: Final = ClusterStorySource(source.cluster_source)

    async def facts(self, message: MessageExt, groups: set[str], asked: str | None) -> SourceFacts:
        return await self.source.run(self._knowing.facts(message, groups, asked))

    async def copy_topics(self, messages: Sequence[MessageExt]) -> CopyTopics:
        return await self.source.run(self._knowing.copy_topics(messages))

    async def said_by(self, message: MessageExt) -> str:
        return await self.source.run(self._knowing.said_by(message))


class _MessagesOnly:
    """A source that knows nothing of groups."""

    def __init__(self, source: Source) -> None:
        self.source: Final = source

    async def facts(self, _m: MessageExt, _groups: set[str], _asked: str | None) -> SourceFacts:
        return SourceFacts()

    async def copy_topics(self, _messages: Sequence[MessageExt]) -> CopyTopics:
        return CopyTopics()

    async def said_by(self, _message: MessageExt) -> str:
        return self.source.name
