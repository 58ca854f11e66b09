"""``rocketlens.find`` and ``story``: one question to several sources, with one answer.

::

    answer = rocketlens.find("ORDER-1", sources=["/backup/store", "127.0.0.1:9876"])

A source is the directory of a store or an archive, a name server's address (several are separated
by semicolons), or an open `Store`, `Archive`, `MQAdmin` or `SyncMQAdmin`, which stays open.
Coverage entries start with the source. A source that fails makes the answer incomplete.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack

from rocketlens.archive.archive import Archive
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.source import ArchiveSource
from rocketlens.archive.story import ArchiveStorySource
from rocketlens.client.blocking.sync_admin import SyncMQAdmin
from rocketlens.client.cluster_client import ClusterClient
from rocketlens.client.cluster_story import ClusterStorySource
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.search.cluster_source import ClusterSource
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.answer import Answer, SourceKind
from rocketlens.model.arguments import wrong_type
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.net.pace import in_thread
from rocketlens.net.sync import LoopThread
from rocketlens.query.answer_builder import Findings
from rocketlens.query.find import find_in_all
from rocketlens.query.offline import Store
from rocketlens.query.options import FindOptions, StoryOptions, takes
from rocketlens.query.request import FindRequest, StoryRequest
from rocketlens.query.source import Source
from rocketlens.query.store_source import StoreSource
from rocketlens.query.story.store_story import StoreStorySource
from rocketlens.query.story.story import Story
from rocketlens.query.story.story_search import CopyTopics, SourceFacts, StorySource, find_story
from rocketlens.query.threaded_source import ThreadedSource

T = TypeVar("T")
AnySource = (
    str
    | PathLike[str]
    | Store
    | StoreSource
    | Archive
    | ArchiveSource
    | ClusterClient
    | SyncMQAdmin
    | Source
)
_ADDRESSES: Final = re.compile(r"(http://)?[^/\\;,]+:\d+([;,][^/\\;,]+:\d+)*[;,]?")
"""A list of name servers with ports; any other str is a path."""


@takes(FindOptions, FindRequest.parse)
def find(
    text: str | None = None,
    topic: str | Iterable[str] | None = None,
    *,
    sources: Iterable[AnySource],
    **options: Unpack[FindOptions],
) -> Answer:
    """Find messages in several sources at once; for programs without an event loop.

    ``sources`` are directories of stores and archives, addresses of name servers, and open `Store`,
    `Archive` and `SyncMQAdmin` objects. The other arguments are as for `Store.find`, the keywords
    those of `rocketlens.query.options.FindOptions`. Messages are in the order of their store times,
    without duplicates. With ``max_num`` each source returns its newest, and the newest of these are
    returned. ``exhaustive`` is as for `MQAdmin.find`; a store directory is always read whole.

    :raises BadInput: if the text does not match ``kind``, a number is negative, or there are no
        sources.
    :raises WrongType: if an argument has a wrong type.
    :raises TopicNotFound: if nothing is found and no source has one of the topics.
    :raises WrongUse: if a source is closed, or is bound to an event loop, such as `MQAdmin`.
    """
    work = find_async(text, topic, sources=sources, **options)
    with LoopThread() as thread:
        return thread.run(work)


@takes(FindOptions, FindRequest.parse)
async def find_async(
    text: str | None = None,
    topic: str | Iterable[str] | None = None,
    *,
    sources: Iterable[AnySource],
    **options: Unpack[FindOptions],
) -> Answer:
    """Find messages in several sources at once, in an event loop; otherwise as `find`.

    An `MQAdmin` of this event loop can be a source, too. Store directories are read in threads.
    """
    request = FindRequest.parse(text, topic, **options)
    given = check_sources(sources)
    async with AsyncExitStack() as opened:
        return await find_in_all(request, [await open_source(each, opened) for each in given])


def check_sources(sources: Iterable[AnySource]) -> list[AnySource]:
    """Return the sources of a caller as a list.

    :raises WrongType: if it is a single source.
    :raises BadInput: if it is empty.
    """
    if isinstance(sources, str | bytes | PathLike) or not isinstance(sources, Iterable):
        raise wrong_type(sources, "sources", "a list of paths, addresses, stores and clusters")
    given = list(sources)
    if not given:
        raise BadInput("sources is empty: name a store directory or a name server's address")
    return given


async def open_source(given: AnySource, opened: AsyncExitStack) -> Source:
    """Return a source; if it must be closed, its close is added to `opened`."""
    if isinstance(given, Store | Archive):
        return ThreadedSource(given.source)
    if isinstance(given, StoreSource | ArchiveSource):
        return ThreadedSource(given)
    if isinstance(given, ClusterClient | SyncMQAdmin):
        return given.source
    if isinstance(given, str) and _ADDRESSES.fullmatch(given.strip()):
        return (await opened.enter_async_context(MQAdmin(given))).source
    if isinstance(given, str | PathLike):
        try:
            directory = await in_thread(lambda: _open(fspath(given)))
        except (RocketLensError, OSError) as error:
            return UnopenedSource(fspath(given), error)
        source = ThreadedSource(directory.source)
        # A cancelled search may still read in its thread.
        opened.push_async_callback(lambda: asyncio.shield(source.run(directory.close)))
        return source
    if isinstance(given, Source):
        return given
    raise wrong_type(given, "a source", "a path, an address, a Store or an MQAdmin")


def _open(path: str) -> Archive | Store:
    return Archive(path) if ArchiveLocation.of(path).is_archive() else Store(Path(path))


class UnopenedSource:
    """A store or archive that failed to open."""

    kind: Final = SourceKind.COMMIT_LOG
    is_one_log: Final = True

    def __init__(self, name: str, error: Exception) -> None:
        self.name: Final = name
        self._error: Final = error

    async def find(self, _request: FindRequest, _findings: Findings) -> None:
        """Raise the error."""
        raise self._error

    async def check_topics(self, _names: Sequence[str], _findings: Findings) -> None:
        """Report no missing topics: the topics of the store are unknown."""


@takes(StoryOptions, StoryRequest.parse)
def story(
    text: str,
    topic: str | Iterable[str] | None = None,
    *,
    sources: Iterable[AnySource],
    **options: Unpack[StoryOptions],
) -> Story:
    """Return the story of one message, from several sources; for programs without an event loop.

    ``sources`` are as for `rocketlens.find`, the other arguments as for `MQAdmin.story`. A failed
    source makes the story incomplete.

    :raises BadInput: if the text does not match ``kind``, or there are no sources.
    :raises WrongType: if an argument has a wrong type.
    :raises TopicNotFound: if nothing is found and no source has the topic.
    :raises WrongUse: if a source is closed, or is bound to an event loop, such as `MQAdmin`.
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
    **options: Unpack[StoryOptions],
) -> Story:
    """Return the story of one message, in an event loop; otherwise as `story`."""
    request = StoryRequest.parse(text, topic, **options)
    given = check_sources(sources)
    async with AsyncExitStack() as opened:
        story_sources = [story_source(await open_source(each, opened)) for each in given]
        return await find_story(request, story_sources)


def story_source(source: Source) -> StorySource:
    """Return the story source for an open source."""
    if isinstance(source, ThreadedSource):
        return _InThread(source, story_source(source.inner))
    if isinstance(source, ClusterSource):
        return ClusterStorySource(source)
    if isinstance(source, ArchiveSource):
        return ArchiveStorySource(source)
    if isinstance(source, StoreSource):
        return StoreStorySource(source, Sentence("by_log_of", source=source.name))
    return StorySource(source)


class _InThread(StorySource):
    """A story source that runs in the thread of its `ThreadedSource`."""

    def __init__(self, source: ThreadedSource, inner: StorySource) -> None:
        super().__init__(source)
        self._threaded: Final = source
        self._inner: Final = inner

    def facts(self, *about: Any) -> Awaitable[SourceFacts]:
        return self._run(lambda: self._inner.facts(*about))

    def copy_topics(self, messages: Sequence[MessageExt]) -> Awaitable[CopyTopics]:
        return self._run(lambda: self._inner.copy_topics(messages))

    def said_by(self, message: MessageExt) -> Awaitable[str]:
        return self._run(lambda: self._inner.said_by(message))

    async def _run(self, work: Callable[[], T | Awaitable[T]]) -> T:
        result: Any = await self._threaded.run(work)
        value: T = result
        return value
