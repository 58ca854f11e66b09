"""Where commands look: in a store directory, a running cluster, or an archive."""

from argparse import Namespace
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rocketlens.cli.options import store_directory
from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer
from rocketlens.model.rocketmq import NAME_SERVER_VARIABLES
from rocketlens.terminal.cluster_access import (
    ClusterAccess,
    ask_cluster,
    chosen_context,
    cluster_access,
    open_cluster,
)
from rocketlens.terminal.connection_options import STORE_VARIABLE
from rocketlens.terminal.contexts import Context
from rocketlens.terminal.output import note

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from typing import Unpack

    from rocketlens.archive.archive import Archive
    from rocketlens.archive.scan import ArchiveScan
    from rocketlens.client.all_sources import AnySource
    from rocketlens.client.blocking.sync_admin import SyncClusterMessages
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.query.answer_builder import OnRead
    from rocketlens.query.lookup.by_time import Scan
    from rocketlens.query.offline import Store
    from rocketlens.query.options import StoryOptions
    from rocketlens.query.request import FindRequest
    from rocketlens.query.store_reader import OnProgress
    from rocketlens.query.story.story import Story
    from rocketlens.terminal.search_progress import SearchProgress

T = TypeVar("T")
U = TypeVar("U")


def choose_source(arguments: Namespace) -> ClusterAccess | None:
    """Return the cluster to ask, or None when ``arguments`` name the store or archive to read.

    :raises BadInput: when there is none, or the command was given both a store and a cluster.
    """
    return None if archive_of(arguments) else _store_or_cluster(arguments)


def archive_of(arguments: Namespace) -> str | None:
    """Return the archive that a command line names."""
    archive: str | None = getattr(arguments, "archive", None)
    return archive


def _store_or_cluster(arguments: Namespace) -> ClusterAccess | None:
    # Beside an archive only others can be named.
    takes_archive = hasattr(arguments, "archive") and not archive_of(arguments)
    context = chosen_context(arguments, takes_store=True, takes_archive=takes_archive)
    if context.archive is not None:
        arguments.archive, arguments.context = context.archive, None
        return None
    if context.store is not None:
        # Together with a store, the name would be a contradiction.
        arguments.store, arguments.context = context.store, None
        return None
    if context.namesrv is None:
        raise BadInput(
            "which store, or which cluster? Give --store DIR, the directory that holds "
            "commitlog/, or --namesrv ADDR, or --context NAME; or set "
            f"{STORE_VARIABLE} or {NAME_SERVER_VARIABLES[0]}"
        )
    return cluster_access(context)


def ask_source(
    arguments: Namespace,
    in_store: "Callable[[Store], T]",
    in_cluster: "Callable[[MQAdmin], Awaitable[U]]",
    in_archive: "Callable[[Archive], T] | None" = None,
) -> T | U:
    """Return what the store, the cluster or the archive answers that a command line names.

    :raises BadInput: as `choose_source`; or when an archive is named beside another source.
    """
    if is_merged(arguments):
        raise BadInput("--archive stands alone here: give no --store, --namesrv or --context")
    access = choose_source(arguments)
    archive = archive_of(arguments)
    if archive and in_archive is not None:
        from rocketlens.archive.archive import open_archive

        with open_archive(archive) as opened:
            return in_archive(opened)
    if access is not None:
        return ask_cluster(access, in_cluster)
    from rocketlens.query.offline import open_store

    with open_store(store_directory(arguments)) as store:
        return in_store(store)


def find_in(
    source: ClusterAccess | None,
    arguments: Namespace,
    request: "FindRequest",
    *,
    on_progress: "OnProgress | None" = None,
    on_interrupted: "Callable[[], None] | None" = None,
    on_read: "OnRead | None" = None,
) -> Answer:
    """Find in what `choose_source` returned.

    ``on_progress`` is for a store, as ``open_store`` has it. ``on_interrupted`` is for a cluster:
    the first Ctrl-C calls it, and ends the search with what was found. ``on_read`` is called while
    queues of a cluster, or files of an archive, are read.
    """
    if archive_of(arguments):
        return _with_archive(
            arguments,
            lambda archive: archive.find_for(request, on_read),
            lambda sources: _find_in_all(request, sources),
        )
    if source is not None:
        from rocketlens.query.find import find

        return ask_cluster(
            source,
            lambda admin: find(request, admin.source, on_cancelled=on_interrupted, on_read=on_read),
        )
    with _store_of(arguments, on_progress) as store:
        return store.find_for(request)


@contextmanager
def scan_in(
    source: ClusterAccess | None,
    arguments: Namespace,
    request: "FindRequest",
    progress: "SearchProgress",
) -> "Iterator[Scan | SyncClusterMessages | ArchiveScan]":
    """Open what `choose_source` returned, and yield all messages of a request without a text."""
    opened = archive_of(arguments)
    if opened:
        from rocketlens.archive.archive import open_archive

        with open_archive(opened) as archive:
            messages = archive.scan_for(request)
            messages.on_read = progress.report
            yield messages
        return
    if source is None:
        from rocketlens.query.offline import open_store

        with open_store(store_directory(arguments), on_progress=progress.report) as store:
            yield store.scan_for(request)
        return
    with open_cluster(source) as admin:
        scan = admin.scan_for(request)
        scan.on_read = progress.report
        yield scan


def one_source(arguments: Namespace, refusal: str) -> Context:
    """Return the store, the cluster or the archive that a command line names, if it names one.

    :raises BadInput: as `chosen_context`; with ``refusal`` when an archive is named beside another.
    """
    if is_merged(arguments):
        raise BadInput(refusal)
    if archive_of(arguments):
        return Context(archive=arguments.archive)
    return chosen_context(arguments, takes_store=True, takes_archive=True)


def is_merged(arguments: Namespace) -> bool:
    """Return whether an archive is searched, and a store or a cluster is named beside it."""
    named = (arguments.store, arguments.namesrv, arguments.context)
    return bool(archive_of(arguments)) and any(named)


def _with_archive(
    arguments: Namespace,
    alone: "Callable[[Archive], T]",
    together: "Callable[[Sequence[AnySource]], T]",
) -> T:
    """Ask an archive, or it and the store or cluster that options name beside it.

    What is beside it answers also where the archive cannot be opened; the answer is incomplete.
    """
    from contextlib import ExitStack

    from rocketlens.archive.archive import open_archive
    from rocketlens.errors import ArchiveError

    root = archive_of(arguments) or ""
    with ExitStack() as entered:
        if not is_merged(arguments):
            return alone(entered.enter_context(open_archive(root)))
        from rocketlens.client.all_sources import UnopenedSource

        archive: AnySource
        try:
            archive = entered.enter_context(open_archive(root))
        except ArchiveError as error:
            archive = UnopenedSource(root, error)
        beside = _store_or_cluster(arguments)
        return together(
            [
                archive,
                store_directory(arguments)
                if beside is None
                else entered.enter_context(open_cluster(beside)),
            ]
        )


def _find_in_all(request: "FindRequest", sources: "Sequence[AnySource]") -> Answer:
    from contextlib import AsyncExitStack

    from rocketlens.client.all_sources import open_source
    from rocketlens.net.sync import LoopThread
    from rocketlens.query.find import find_in_all

    async def ask() -> Answer:
        async with AsyncExitStack() as opened:
            return await find_in_all(request, [await open_source(each, opened) for each in sources])

    with LoopThread() as thread:
        return thread.run(ask())


def find_each(
    source: ClusterAccess | None, arguments: Namespace, requests: "Sequence[FindRequest]"
) -> list[Answer]:
    """Find several requests in what `choose_source` returned.

    No log of a store is read only for topics that were deleted.
    """
    if archive_of(arguments):
        return [find_in(source, arguments, each) for each in requests]
    if source is not None:

        async def ask(admin: "MQAdmin") -> list[Answer]:
            from rocketlens.query.find import find

            return [await find(each, admin.source) for each in requests]

        return ask_cluster(source, ask)
    from rocketlens.query.offline import open_store

    with open_store(store_directory(arguments), max_topic_scan_bytes=0) as store:
        return [store.find_for(each) for each in requests]


def story_in(
    source: ClusterAccess | None,
    arguments: Namespace,
    text: str,
    **options: "Unpack[StoryOptions]",
) -> "Story":
    """Return the story of a message."""
    topic = arguments.topic or None
    if archive_of(arguments):
        from rocketlens.client.all_sources import story

        return _with_archive(
            arguments,
            lambda archive: archive.story(text, topic, **options),
            lambda sources: story(text, topic, sources=sources, **options),
        )
    if source is None:
        with _store_of(arguments) as store:
            return store.story(text, topic, **options)
    return ask_cluster(source, lambda admin: admin.story(text, topic, **options))


def _store_of(arguments: Namespace, on_progress: "OnProgress | None" = None) -> "Store":
    """Open the store; a key is looked for in all of its log."""
    from rocketlens.query.offline import open_store

    return open_store(
        store_directory(arguments),
        max_topic_scan_bytes=None,
        before_long_scan=_say_long_scan,
        on_progress=on_progress,
    )


def forget_broker(access: ClusterAccess, broker_name: str) -> bool:
    """Forget a broker that is gone for good; False if it is not remembered."""
    from rocketlens.client.connect.broker_history import SeenBrokers, seen_brokers_path
    from rocketlens.client.connect.cluster import name_server_addresses

    addresses = name_server_addresses(access.name_servers)
    return SeenBrokers(seen_brokers_path(), addresses).forget(broker_name)


def _say_long_scan(log_bytes: int) -> None:
    """Print why the answer takes long, and how not to wait for it."""
    gib = log_bytes / (1 << 30)
    note(
        f"it is in none of the topics that are known: reading {gib:.0f} GiB of log for topics that "
        f"were deleted, about {gib:.0f} s (--topic NAME looks for it in one topic alone)"
    )
