"""The sources of a console: running clusters, store directories, and archives.

Stores and archives are read in threads, of each one search by key and one that reads much at a
time; a search that its reader has left ends at the next step.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from rocketlens import limits
from rocketlens.archive.archive import Archive
from rocketlens.client.admin.cluster_topics import find_topic_settings, stored_since
from rocketlens.client.all_sources import AnySource, story_async
from rocketlens.client.cluster_story import ClusterStorySource
from rocketlens.client.connect.broker_history import seen_brokers_path
from rocketlens.client.connect.namespace import is_in_namespace
from rocketlens.client.connect.route import Recent
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.console.login.viewer import LOCAL, Viewer, current_viewer
from rocketlens.console.sources.visible import ConsoleSource, visible_source
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.group import GroupsAnswer, ProducersAnswer
from rocketlens.model.message import MessageExt
from rocketlens.model.status import ArchiveStatus, BrokersAnswer, BrokerStatus, StoreStatus
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.topic import TopicsAnswer, TopicSettings
from rocketlens.query.answer_builder import Findings
from rocketlens.query.facts.topic_list import settings_in_store, topics_in_file
from rocketlens.query.facts.waiting import WaitingMessages
from rocketlens.query.lookup.newest import stored_since as stored_in_queues
from rocketlens.query.offline import Store
from rocketlens.query.request import FindRequest, name_of
from rocketlens.query.source import Source
from rocketlens.query.story.story import Story
from rocketlens.query.threaded_source import ThreadedSource
from rocketlens.terminal.cluster_access import ClusterAccess, cluster_access
from rocketlens.terminal.contexts import Context
from rocketlens.terminal.waiting_messages import waiting_in_cluster, waiting_in_store

R = TypeVar("R", bound=Store | Archive)

_SHOWN_SETTINGS: Final = frozenset({"namesrv", "namespace", "read_only"})
"""Settings of a context that a command line can have as options, which anyone may see."""
_MAX_VIEWERS: Final = 1_000
"""Users whose sources are kept."""
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")


async def _story(source: AnySource, message: MessageExt, group: str | None) -> Story:
    name, kind = name_of(message)
    return await story_async(name, message.topic, sources=[source], kind=kind, group=group)


class ClusterOfConsole(ConsoleSource):
    """A running cluster."""

    kind = "cluster"

    def __init__(
        self,
        name: str,
        admin: MQAdmin,
        clock: Callable[[], float] = monotonic,
        *,
        access: ClusterAccess | None = None,
        command_options: Sequence[str] = (),
    ) -> None:
        """Ask the cluster of an admin, which this closes; without ``access`` it is read only.

        ``command_options``: by default the name servers alone.
        """
        self.name = name
        self.admin: Final = admin
        self.access: Final = access
        self.source = self._source = admin.source
        self.cluster = self
        self.namespace = admin.source.namespace
        self.title = admin.source.name
        self.command_options = tuple(command_options) or ("--namesrv", self.title)
        self._broker_names: Final = Recent[str, str](clock)

    async def broker_of(self, message: MessageExt) -> str:
        """Return the name of the broker that stored a message, or its address."""
        host, story = str(message.store_host), ClusterStorySource(self.admin.source)
        try:
            return await self._broker_names.get(host, lambda: story.said_by(message))
        except RocketLensError:
            return host

    async def story(self, message: MessageExt, group: str | None = None) -> Story:
        """Return what brokers and records tell of a message."""
        return await _story(self.admin, message, group)

    async def topics(self, names: Sequence[str] | None = None) -> TopicsAnswer:
        """Return what brokers say of topics."""
        return await self.admin.topics(names)

    async def topic_names(self) -> Sequence[str]:
        """Return what the name servers know of its namespace. O(name servers) requests."""
        listed = (await self._source.topology.topics()).value
        return [self.plain(each) for each in listed if is_in_namespace(self.namespace, each)]

    async def topic_settings(self, topic: str) -> Sequence[TopicSettings]:
        """Return what each broker says of its configuration; errors as `find_topic_settings`."""
        return await find_topic_settings(self._source.cluster, self._source.full_topic(topic))

    async def stored_since(self, topic: str, times_ms: Sequence[int]) -> list[int] | None:
        """Return what the brokers of a topic say; None if one does not."""
        full_name = self._source.full_topic(topic)
        try:
            found = (await self.topics([topic])).topics
        except RocketLensError:
            return None
        queues = tuple(each for one in found for each in one.queues or ())
        return await stored_since(self._source.cluster, full_name, queues, times_ms)

    async def waiting(self, answer: TopicsAnswer) -> WaitingMessages | None:
        """Return how many messages wait for each topic, if all of them could be looked at."""
        del answer
        return await waiting_in_cluster(self.admin)

    async def groups(self, name: str | None = None) -> GroupsAnswer:
        """Return what brokers say of groups."""
        return await self.admin.groups(name)

    async def producers(self) -> ProducersAnswer:
        """Return what brokers say of producers."""
        return await self.admin.producers()

    async def status(
        self, on_answer: Callable[[BrokerStatus], None] | None = None
    ) -> BrokersAnswer:
        """Return what brokers say of themselves; ``on_answer`` as `MQAdmin.brokers` has it."""
        return await self.admin.brokers(on_answer=on_answer)

    async def close(self) -> None:
        """Close its connections."""
        await self.admin.close()


class _LookUpsApart(ThreadedSource):
    """A source whose look-ups do not wait for searches without a text: ``scans`` does those."""

    def __init__(self, inner: Source, scans: ThreadedSource) -> None:
        super().__init__(inner)
        self._scans: Final = scans

    async def find(self, request: FindRequest, findings: Findings) -> None:
        """Add the messages that match."""
        if request.text is None:
            await self._scans.find(request, findings)
        else:
            await super().find(request, findings)


class _ReadInThreads(ConsoleSource, Generic[R]):
    """A store or an archive as one of the sources, in two threads: for searches by key, and for
    what reads queues or much of the log, such as searches without a text, and lists.
    """

    def __init__(self, name: str, by_key: R, scanned: R) -> None:
        self.name = name
        self.scans: Final = ThreadedSource(scanned.source)
        """For what reads much."""
        self.source = self._keys = _LookUpsApart(by_key.source, self.scans)
        self._by_key: Final = by_key
        self._scanned: Final = scanned

    async def story(self, message: MessageExt, group: str | None = None) -> Story:
        """Return what records and files tell of a message."""
        return await _story(self._keys, message, group)

    async def topics(self, names: Sequence[str] | None = None) -> TopicsAnswer:
        """Return what the files say of topics."""
        return await self.scans.run(lambda: self._scanned.topics(names))

    async def close(self) -> None:
        """Close both."""
        # A search whose caller was cancelled may still read.
        await asyncio.shield(self.scans.run(self._scanned.close))
        await asyncio.shield(self._keys.run(self._by_key.close))


class StoreDirectory(_ReadInThreads[Store]):
    """A store directory as one of the sources."""

    kind = "store"

    def __init__(self, name: str, path: Path) -> None:
        """Open the store.

        :raises NotAStore: if it is not one.
        """
        super().__init__(name, Store(path), Store(path))
        self.title = str(path)
        self.command_options = ("--store", self.title)

    async def topic_names(self) -> Sequence[str]:
        """Return what the file of topics has; all that is known of the store if it has none."""
        path = self._scanned.path
        names = await self.scans.run(lambda: topics_in_file(path))
        return names or [each.name for each in (await self.topics()).topics]

    async def topic_settings(self, topic: str) -> Sequence[TopicSettings]:
        """Return what the file of topics says of one."""
        path = self._scanned.path
        settings = await self.scans.run(lambda: settings_in_store(path, topic))
        return [] if settings is None else [settings]

    async def stored_since(self, topic: str, times_ms: Sequence[int]) -> list[int] | None:
        """Return what the queues of a topic have."""
        reader = self._scanned.source.reader
        return await self.scans.run(lambda: stored_in_queues(reader, topic, times_ms))

    async def waiting(self, answer: TopicsAnswer) -> WaitingMessages | None:
        """Return how many messages wait for each topic, if all of them could be looked at."""
        return await self.scans.run(lambda: waiting_in_store(self._scanned, answer))

    async def groups(self, name: str | None = None) -> GroupsAnswer:
        """Return what the files say of groups."""
        return await self.scans.run(lambda: self._scanned.groups(name))

    async def status(self) -> StoreStatus:
        """Return what the files say of the store, but for groups."""
        return await self.scans.run(lambda: self._scanned.status(with_groups=False))


class ArchiveOfConsole(_ReadInThreads[Archive]):
    """An archive as one of the sources. It has messages only, and no groups or settings."""

    kind = "archive"

    def __init__(self, name: str, root: str) -> None:
        """Open the archive.

        :raises ArchiveError: if it is not one, or cannot be read.
        """
        archive = Archive(root)
        super().__init__(name, archive, Archive(archive.source.clone()))
        self.title = self.scans.name
        self.command_options = ("--archive", self.title)

    async def topic_names(self) -> Sequence[str]:
        """Return the topics of the messages that were archived; reads no messages."""
        source = self._by_key.source

        def names() -> Sequence[str]:
            source.refresh()
            return sorted(source.topics)

        return await self._keys.run(names)

    async def status(self) -> ArchiveStatus:
        """Return what was archived of each source, from when to when."""
        return await self._keys.run(self._by_key.status)


class Sources:
    """The sources that the current user may see, by name. The set differs by request."""

    def __init__(self, sources: Iterable[ConsoleSource]) -> None:
        self._opened: Final = {each.name: each for each in sources}
        # A provider names users and their grants, which may be others at each login.
        self._seen: Final = lru_cache(maxsize=_MAX_VIEWERS)(self._seen_by)

    @property
    def opened(self) -> list[ConsoleSource]:
        """All of them, for every user."""
        return list(self._opened.values())

    @property
    def _by_name(self) -> dict[str, ConsoleSource]:
        viewer = current_viewer()
        return self._opened if viewer is LOCAL else self._seen(viewer)

    def _seen_by(self, viewer: Viewer) -> dict[str, ConsoleSource]:
        return {
            name: visible_source(each, viewer)
            for name, each in self._opened.items()
            if viewer.may_see_source(name)
        }

    def __iter__(self) -> Iterator[ConsoleSource]:
        """Yield them in the order given."""
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def named(self, name: str) -> ConsoleSource:
        """Return one source.

        :raises BadInput: if there is none of that name.
        """
        if name not in self._by_name:
            names = ", ".join(self._by_name) or Sentence("no_sources")
            raise BadInput(Sentence("no_source", name=repr(name[:80]), names=names))
        return self._by_name[name]

    def chosen(self, names: Sequence[str]) -> list[ConsoleSource]:
        """Return the sources of these names; without names all.

        :raises BadInput: if there is none of one name.
        """
        if not names:
            return list(self._by_name.values())
        return [self.named(name) for name in dict.fromkeys(names)]


def source_names(contexts: Sequence[tuple[str | None, Context]]) -> list[str]:
    """Return a name for each source, as an address of a page can have it, no two the same."""
    names: list[str] = []
    for given, context in contexts:
        directory = context.store or context.archive
        text = given or (Path(directory).name if directory else context.namesrv) or "source"
        base = _NOT_IN_NAMES.sub("-", text).strip("-.") or "source"
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}-{number}"
        names.append(name)
    return names


def cluster_options(given: str | None, context: Context) -> tuple[str, ...]:
    """Return the options by which a command line asks the cluster of a context.

    ``given`` is the context's name, if it has one. That stands for an account and for TLS, of which
    nothing is shown. Without a name the account and the client's certificate are the reader's own.
    """
    # In one word: a value can begin with a dash.
    if given is not None and not context.given.keys() <= _SHOWN_SETTINGS:
        return (f"--context={given}",)
    options = ["--namesrv", context.namesrv or ""]
    if context.namespace:
        options.append(f"--namespace={context.namespace}")
    if context.tls is not False:
        if context.ca:
            options.append(f"--ca={Path(context.ca).absolute()}")
        switches = ("tls", "check_hostname", "insecure")
        options += [f"--{name.replace('_', '-')}" for name in switches if getattr(context, name)]
    return tuple(options)


async def open_sources(
    contexts: Sequence[tuple[str | None, Context]], opened: AsyncExitStack
) -> Sources:
    """Open the sources that contexts name, and add what closes them to ``opened``.

    :raises BadInput: if there are none, or too many, or one names nothing.
    :raises NotAStore: if a directory is not a store.
    :raises ArchiveError: if one is not an archive, or cannot be read.
    """
    if not contexts:
        raise BadInput(
            "which sources? Give --context NAME, --namesrv ADDR, --store DIR or --archive DIR"
        )
    if len(contexts) > limits.MAX_CONSOLE_SOURCES:
        raise BadInput(f"{len(contexts)} sources: at most {limits.MAX_CONSOLE_SOURCES}")
    sources: list[ConsoleSource] = []
    for name, (given, context) in zip(source_names(contexts), contexts, strict=True):
        if context.store is not None:
            path = Path(context.store)
            one: ConsoleSource = await asyncio.to_thread(StoreDirectory, name, path)
        elif context.archive is not None:
            one = await asyncio.to_thread(ArchiveOfConsole, name, context.archive)
        else:
            access = cluster_access(context)
            admin = MQAdmin(
                access.name_servers, seen_brokers=seen_brokers_path(), **access.client_options
            )
            await opened.enter_async_context(admin)
            one = ClusterOfConsole(
                name,
                admin,
                access=None if context.read_only else access,
                command_options=cluster_options(given, context),
            )
        opened.push_async_callback(one.close)
        sources.append(one)
    return Sources(sources)


def message_path(source: str, message: MessageExt, broker: str) -> str:
    """Return the address of a message's page."""
    position = (str(message.queue_id), str(message.queue_offset))
    parts = (source, message.topic, broker, *position)
    return "/".join(["/m", *(quote(each, safe="") for each in parts)])
