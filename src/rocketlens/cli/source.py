"""The source of a command: a store directory, a running cluster, an archive, or several."""

from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

from rocketlens.cli.options import (
    add_archive,
    add_content,
    add_source,
    add_times,
    add_topics,
    add_verbose,
    content_of,
    option,
    store_path,
    time_range,
)
from rocketlens.errors import ArchiveError, BadInput, TopicNotFound
from rocketlens.model.answer import Answer
from rocketlens.model.rocketmq import NAME_SERVER_VARIABLES
from rocketlens.model.text.nearest import suggestion
from rocketlens.terminal.cluster_access import (
    ClusterAccess,
    ask_cluster,
    choose_context,
    cluster_access,
    open_cluster,
)
from rocketlens.terminal.contexts import STORE_VARIABLE, Context
from rocketlens.terminal.output import note
from rocketlens.terminal.progress import SearchProgress

if TYPE_CHECKING:
    from rocketlens.archive.archive import Archive
    from rocketlens.archive.scan import ArchiveScan
    from rocketlens.cli.sql.sql_plan import SqlPlan
    from rocketlens.client.all_sources import AnySource
    from rocketlens.client.blocking.sync_admin import SyncClusterMessages
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.query.lookup.by_time import Scan
    from rocketlens.query.offline import Store
    from rocketlens.query.options import StoryOptions
    from rocketlens.query.request import FindRequest
    from rocketlens.query.story.story import Story

T = TypeVar("T")
U = TypeVar("U")


class ChosenSource(NamedTuple):
    """A store, a cluster or an archive; or an archive and one of the others."""

    store: Path | None = None
    cluster: ClusterAccess | None = None
    archive: str | None = None

    @property
    def is_merged(self) -> bool:
        """Whether an archive and another source are searched together."""
        return self.archive is not None and self[:2] != (None, None)

    @property
    def is_local(self) -> bool:
        """Whether the source is one store or one archive."""
        return self.cluster is None and not self.is_merged

    def ask(
        self,
        in_store: "Callable[[Store], T]",
        in_cluster: "Callable[[MQAdmin], Awaitable[U]]",
        in_archive: "Callable[[Archive], T] | None" = None,
    ) -> T | U:
        """Call the function for the chosen source, and return its result.

        :raises BadInput: if an archive is named together with another source.
        """
        if self.is_merged:
            raise BadInput("--archive stands alone here: give no --store, --namesrv or --context")
        if self.archive is not None and in_archive is not None:
            with self._open_archive() as archive:
                return in_archive(archive)
        if self.cluster is not None:
            return ask_cluster(self.cluster, in_cluster)
        with self._open_store() as store:
            return in_store(store)

    def find(
        self,
        request: "FindRequest",
        progress: SearchProgress | None = None,
        *,
        is_quick: bool = False,
    ) -> Answer:
        """Find messages.

        `progress` shows how much was read; Ctrl-C ends the search of a cluster with the messages
        found. `is_quick` does not scan a store's log for deleted topics.
        """
        report = None if progress is None else progress.report
        if self.archive is not None:
            return self._with_archive(
                lambda archive: archive.find_for(request, report),
                lambda sources: _find_in_all(request, sources),
            )
        if self.cluster is not None:
            from rocketlens.query.find import find

            stop = None if progress is None else progress.interrupt
            return ask_cluster(
                self.cluster,
                lambda admin: find(request, admin.source, on_cancelled=stop, on_read=report),
            )
        with self._open_store(
            max_topic_scan_bytes=0 if is_quick else None,
            before_long_scan=_note_long_scan,
            on_progress=report if request.text is None else None,
        ) as store:
            return store.find_for(request)

    def _open_store(self, **options: Any) -> "Store":
        from rocketlens.query.offline import open_store

        return open_store(self.directory, **options)

    def _open_archive(self) -> "Archive":
        from rocketlens.archive.archive import open_archive

        return open_archive(self.archive or "")

    @contextmanager
    def scan(
        self,
        request: "FindRequest",
        progress: SearchProgress | None = None,
        *,
        checks_topics: bool = True,
    ) -> "Iterator[Scan | SyncClusterMessages | ArchiveScan]":
        """Yield the scan of a request without a text, over one source.

        Without `checks_topics` unknown topics are no error in a store or archive: the log may still
        contain messages of a deleted topic.
        """
        report = None if progress is None else progress.report
        if self.archive is not None:
            with self._open_archive() as archive:
                archived = archive.scan_for(request, checks_topics=checks_topics)
                archived.on_read = report
                yield archived
        elif self.cluster is not None:
            with open_cluster(self.cluster) as admin:
                scan = admin.scan_for(request)
                scan.on_read = report
                yield scan
        else:
            with self._open_store(on_progress=report) as store:
                yield store.scan_for(request, checks_topics=checks_topics)

    def check_topics(self, topics: Sequence[str], count: int) -> None:
        """Check the topics of a request that found `count` messages; clusters are not checked.

        If messages were found, an unknown topic is only noted.

        :raises TopicNotFound: if no message was found and a topic does not exist.
        """
        if not topics or self.cluster is not None or (count and len(topics) == 1):
            return
        try:
            self.ask(
                lambda store: store.topics(topics),
                lambda admin: admin.topics(topics),
                lambda archive: archive.topics(topics),
            )
        except TopicNotFound as error:
            if not count:
                raise
            note(str(error))

    def story(
        self, text: str, topics: Sequence[str] | None, **options: "Unpack[StoryOptions]"
    ) -> "Story":
        topic = topics or None
        if self.archive is not None:
            from rocketlens.client.all_sources import story

            return self._with_archive(
                lambda archive: archive.story(text, topic, **options),
                lambda sources: story(text, topic, sources=sources, **options),
            )
        if self.cluster is not None:
            return ask_cluster(self.cluster, lambda admin: admin.story(text, topic, **options))
        with self._open_store(max_topic_scan_bytes=None, before_long_scan=_note_long_scan) as store:
            return store.story(text, topic, **options)

    @property
    def directory(self) -> Path:
        """The store, if it is the only source."""
        assert self.store is not None  # noqa: S101 - the other sources were looked at before
        return self.store

    def _with_archive(
        self, alone: "Callable[[Archive], T]", together: "Callable[[Sequence[AnySource]], T]"
    ) -> T:
        """Ask an archive, alone or together with the other source.

        If the archive cannot be opened, the other source still answers, and the answer is
        incomplete.
        """
        with ExitStack() as entered:
            if not self.is_merged:
                return alone(entered.enter_context(self._open_archive()))
            from rocketlens.client.all_sources import UnopenedSource

            archive: AnySource
            try:
                archive = entered.enter_context(self._open_archive())
            except ArchiveError as error:
                archive = UnopenedSource(self.archive or "", error)
            if self.cluster is None:
                return together([archive, self.directory])
            return together([archive, entered.enter_context(open_cluster(self.cluster))])


def choose_source(arguments: Namespace) -> ChosenSource:
    """Return the source that a command line, the environment or a context names.

    :raises BadInput: if none is named, or both a store and a cluster.
    """
    archive = getattr(arguments, "archive", None) or None
    if archive and not any((arguments.store, arguments.namesrv, arguments.context)):
        return ChosenSource(archive=archive)
    # With --archive a context can name only another kind of source.
    takes_archive = hasattr(arguments, "archive") and not archive
    context = choose_context(arguments, takes_store=True, takes_archive=takes_archive)
    if context.archive is not None:
        return ChosenSource(archive=context.archive)
    if context.store is not None:
        return ChosenSource(store=store_path(context.store), archive=archive)
    if context.namesrv is None:
        raise BadInput(
            "no source is named: give --store DIR, the directory that holds commitlog/, "
            "--namesrv ADDR or --context NAME, or set "
            f"{STORE_VARIABLE} or {NAME_SERVER_VARIABLES[0]}"
        )
    return ChosenSource(cluster=cluster_access(context), archive=archive)


def one_source(arguments: Namespace, refusal: str) -> Context:
    """Return the one source that a command line names; empty if it names none.

    :raises BadInput: with `refusal` if an archive and another source are named.
    """
    if arguments.archive and any((arguments.store, arguments.namesrv, arguments.context)):
        raise BadInput(refusal)
    if arguments.archive:
        return Context(archive=arguments.archive)
    return choose_context(arguments, takes_store=True, takes_archive=True)


def _find_in_all(request: "FindRequest", sources: "Sequence[AnySource]") -> Answer:
    from rocketlens.client.all_sources import open_source
    from rocketlens.net.sync import LoopThread
    from rocketlens.query.find import find_in_all

    async def ask() -> Answer:
        async with AsyncExitStack() as opened:
            return await find_in_all(request, [await open_source(each, opened) for each in sources])

    with LoopThread() as thread:
        return thread.run(ask())


def add_selection(parser: ArgumentParser) -> None:
    add_source(parser)
    add_archive(parser)
    add_topics(parser, "only this topic", default="all")
    add = partial(option, parser)
    add("-k --key KEY", "only messages with this key")
    add_times(parser)
    add(
        "--exhaustive",
        "with --since and --until, read all of a store's log instead of relying on sorted store "
        "times",
    )
    add_content(parser)
    add_verbose(parser)


def selected(
    arguments: Namespace, plan: "SqlPlan | None" = None, *, max_num: int | None = None
) -> "FindRequest":
    """Return the request of a command line; all topics include RocketMQ's own.

    The plan of a query narrows it by times, and by topics, tags and a key unless options give them.

    :raises BadInput: if a time, filter, pattern or body rule is invalid.
    """
    from rocketlens.query.request import FindRequest

    begin, end = since, until = time_range(arguments)
    key, topics, tag = arguments.key, tuple(arguments.topic or ()), None
    if plan is not None:
        tag = " || ".join(plan.tags or ()) or None
        key = plan.key if key is None else key
        topics = topics or tuple(sorted(plan.topics or ()))
        begin = max((each for each in (since, plan.begin) if each is not None), default=None)
        end = min((each for each in (until, plan.end) if each is not None), default=None)
        if begin is not None and end is not None and begin > end:
            # Query and options exclude each other: the query then filters all rows out.
            begin, end = since, until
    return FindRequest.parse(
        key,
        topics or None,
        kind="auto" if key is None else "key",
        max_num=max_num,
        begin=begin,
        end=end,
        tag=tag,
        exhaustive=arguments.exhaustive,
        all_topics=True,
        **content_of(arguments),
    )


def forget_broker(access: ClusterAccess | None, broker_name: str) -> None:
    """:raises BadInput: if the broker is unknown; the message suggests the nearest name."""
    if access is None:
        raise BadInput("--forget-broker needs a cluster: give --namesrv or --context")
    from rocketlens.client.connect.broker_history import SeenBrokers, seen_brokers_path
    from rocketlens.client.connect.cluster import name_server_addresses

    addresses = name_server_addresses(access.name_servers)
    seen = SeenBrokers(seen_brokers_path(), addresses)
    if not seen.forget(broker_name):
        raise BadInput(
            f"--forget-broker {broker_name[:80]}: no broker of that name was seen in this cluster"
            f"{suggestion(broker_name, seen.names())}"
        )


def _note_long_scan(log_bytes: int) -> None:
    gib = log_bytes / (1 << 30)
    note(
        f"no existing topic has it: reading {gib:.0f} GiB of log for deleted topics, about "
        f"{gib:.0f} s (--topic NAME searches one topic only)"
    )
