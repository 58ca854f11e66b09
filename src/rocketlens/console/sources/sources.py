"""The sources of a console: running clusters, store directories, and archives.

Each store and archive is read in two threads: one for searches by key, one for scans. A search ends
at its next step when its client disconnects.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any, Final, Generic, TypeVar
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
from rocketlens.client.send.producer import Producer
from rocketlens.console.login.viewer import LOCAL, Viewer, current_viewer
from rocketlens.console.sources.visible import ConsoleSource, VisibleSource
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
"""Settings of a context that are command line options, and that all users may see."""
_MAX_VIEWERS: Final = 1_000
"""Users whose view of the sources is cached."""
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
        """Ask the cluster of ``admin``, and close it in the end.

        :param access: Connection settings for sending; None makes the source read-only.
        :param command_options: By default the name servers.
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

    def producer(self, **options: Any) -> Producer:
        """Return a producer for topics that already have their namespace."""
        if self.access is None:
            raise AssertionError(self.name)
        options = {**self.access.client_options, "namespace": "", **options}
        return Producer(self.access.name_servers, **options)

    async def broker_of(self, message: MessageExt) -> str:
        host, story = str(message.store_host), ClusterStorySource(self.admin.source)
        try:
            return await self._broker_names.get(host, lambda: story.said_by(message))
        except RocketLensError:
            return host

    async def story(self, message: MessageExt, group: str | None = None) -> Story:
        return await _story(self.admin, message, group)

    async def topics(self, names: Sequence[str] | None = None) -> TopicsAnswer:
        return await self.admin.topics(names)

    async def topic_names(self) -> Sequence[str]:
        """Return the topics of its namespace, from the name servers. O(name servers) requests."""
        listed = (await self._source.topology.topics()).value
        return [self.plain(each) for each in listed if is_in_namespace(self.namespace, each)]

    async def topic_settings(self, topic: str) -> Sequence[TopicSettings]:
        return await find_topic_settings(self._source.cluster, self._source.full_topic(topic))

    async def stored_since(self, topic: str, times_ms: Sequence[int]) -> list[int] | None:
        """Return None if a broker of the topic does not answer."""
        full_name = self._source.full_topic(topic)
        try:
            found = (await self.topics([topic])).topics
        except RocketLensError:
            return None
        queues = tuple(each for one in found for each in one.queues or ())
        return await stored_since(self._source.cluster, full_name, queues, times_ms)

    async def waiting(self, answer: TopicsAnswer) -> WaitingMessages | None:
        del answer
        return await waiting_in_cluster(self.admin)

    async def groups(self, name: str | None = None) -> GroupsAnswer:
        return await self.admin.groups(name)

    async def producers(self) -> ProducersAnswer:
        return await self.admin.producers()

    async def status(
        self, on_answer: Callable[[BrokerStatus], None] | None = None
    ) -> BrokersAnswer:
        """Return the state of brokers; ``on_answer`` as in `MQAdmin.brokers`."""
        return await self.admin.brokers(on_answer=on_answer)

    async def close(self) -> None:
        await self.admin.close()


class _LookUpsApart(ThreadedSource):
    """Runs searches without a text in ``scans``, so that look-ups do not wait for them."""

    def __init__(self, inner: Source, scans: ThreadedSource) -> None:
        super().__init__(inner)
        self._scans: Final = scans

    async def find(self, request: FindRequest, findings: Findings) -> None:
        if request.text is None:
            await self._scans.find(request, findings)
        else:
            await super().find(request, findings)


class _ReadInThreads(ConsoleSource, Generic[R]):
    """A store or an archive with two threads: for searches by key, and for scans and lists."""

    def __init__(self, name: str, by_key: R, scanned: R) -> None:
        self.name = name
        self.scans: Final = ThreadedSource(scanned.source)
        self.source = self._keys = _LookUpsApart(by_key.source, self.scans)
        self._by_key: Final = by_key
        self._scanned: Final = scanned

    async def story(self, message: MessageExt, group: str | None = None) -> Story:
        return await _story(self._keys, message, group)

    async def topics(self, names: Sequence[str] | None = None) -> TopicsAnswer:
        return await self.scans.run(lambda: self._scanned.topics(names))

    async def close(self) -> None:
        # A cancelled search can still be reading.
        await asyncio.shield(self.scans.run(self._scanned.close))
        await asyncio.shield(self._keys.run(self._by_key.close))


class StoreDirectory(_ReadInThreads[Store]):
    """A store directory."""

    kind = "store"

    def __init__(self, name: str, path: Path) -> None:
        """:raises NotAStore: if the directory is not a store."""
        super().__init__(name, Store(path), Store(path))
        self.title = str(path)
        self.command_options = ("--store", self.title)

    async def topic_names(self) -> Sequence[str]:
        """Return the topics in the configuration file; without one, all topics of the store."""
        path = self._scanned.path
        names = await self.scans.run(lambda: topics_in_file(path))
        return names or [each.name for each in (await self.topics()).topics]

    async def topic_settings(self, topic: str) -> Sequence[TopicSettings]:
        path = self._scanned.path
        settings = await self.scans.run(lambda: settings_in_store(path, topic))
        return [] if settings is None else [settings]

    async def stored_since(self, topic: str, times_ms: Sequence[int]) -> list[int] | None:
        reader = self._scanned.source.reader
        return await self.scans.run(lambda: stored_in_queues(reader, topic, times_ms))

    async def waiting(self, answer: TopicsAnswer) -> WaitingMessages | None:
        return await self.scans.run(lambda: waiting_in_store(self._scanned, answer))

    async def groups(self, name: str | None = None) -> GroupsAnswer:
        return await self.scans.run(lambda: self._scanned.groups(name))

    async def status(self) -> StoreStatus:
        return await self.scans.run(lambda: self._scanned.status(with_groups=False))


class ArchiveOfConsole(_ReadInThreads[Archive]):
    """An archive, which has messages but no groups or settings."""

    kind = "archive"

    def __init__(self, name: str, root: str) -> None:
        """:raises ArchiveError: if it is not an archive, or cannot be read."""
        archive = Archive(root)
        super().__init__(name, archive, Archive(archive.source.clone()))
        self.title = self.scans.name
        self.command_options = ("--archive", self.title)

    async def topic_names(self) -> Sequence[str]:
        source = self._by_key.source

        def names() -> Sequence[str]:
            source.refresh()
            return sorted(source.topics)

        return await self._keys.run(names)

    async def status(self) -> ArchiveStatus:
        return await self._keys.run(self._by_key.status)


class Sources:
    """The sources that the current user may see, by name. The set differs by request."""

    def __init__(self, sources: Iterable[ConsoleSource]) -> None:
        self._opened: Final = {each.name: each for each in sources}
        # Users of a provider can get other grants at each login.
        self._by_viewer: Final = lru_cache(maxsize=_MAX_VIEWERS)(self._visible_to)

    @property
    def opened(self) -> list[ConsoleSource]:
        """All sources, whatever the user may see."""
        return list(self._opened.values())

    @property
    def _by_name(self) -> dict[str, ConsoleSource]:
        viewer = current_viewer()
        return self._opened if viewer is LOCAL else self._by_viewer(viewer)

    def _visible_to(self, viewer: Viewer) -> dict[str, ConsoleSource]:
        return {
            name: each if viewer.sees_all(name) else VisibleSource(each, viewer)
            for name, each in self._opened.items()
            if viewer.may_see_source(name)
        }

    def __iter__(self) -> Iterator[ConsoleSource]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def named(self, name: str) -> ConsoleSource:
        """:raises BadInput: if there is no source of that name."""
        if name not in self._by_name:
            names = ", ".join(self._by_name) or Sentence("no_sources")
            raise BadInput(Sentence("no_source", name=repr(name[:80]), names=names))
        return self._by_name[name]

    def chosen(self, names: Sequence[str]) -> list[ConsoleSource]:
        """Return the sources of these names; without names all.

        :raises BadInput: if a source does not exist.
        """
        if not names:
            return list(self._by_name.values())
        return [self.named(name) for name in dict.fromkeys(names)]


def source_names(contexts: Sequence[tuple[str | None, Context]]) -> list[str]:
    """Return a unique name for each source, fit for page addresses."""
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
    """Return the command line options for the cluster of a context.

    A named context with credentials or TLS settings is shown by its name only. Without a name,
    users need their own credentials and client certificate.
    """
    # One argument, because a value can begin with a dash.
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
    """Open the sources of contexts, and register their closing with ``opened``.

    :raises BadInput: if there are none or too many, or a context names no source.
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
