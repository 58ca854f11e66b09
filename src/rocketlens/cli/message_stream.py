"""Reads the messages of a store or a cluster one after another, for commands that pass them on."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rocketlens.cli.options import (
    add_archive,
    add_content,
    add_source,
    add_times,
    add_topics,
    content_of,
    store_directory,
    time_range,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from rocketlens.archive.archive import Archive
    from rocketlens.archive.scan import ArchiveScan
    from rocketlens.model.answer import Answer
    from rocketlens.model.message import MessageExt
    from rocketlens.query.lookup.by_time import Scan
    from rocketlens.query.offline import Store
    from rocketlens.query.options import ContentOptions
    from rocketlens.query.request import FindRequest
    from rocketlens.terminal.cluster_access import ClusterAccess


class MessageSelection(NamedTuple):
    """Which messages: of some topics (patterns, too), between two store times, with a key, and with
    some content. RocketMQ's own topics are among them.
    """

    topics: tuple[str, ...] = ()
    begin: int | None = None
    end: int | None = None
    key: str | None = None
    content: "ContentOptions" = {}  # noqa: RUF012 - it is never changed
    exhaustive: bool = False

    def request(self) -> "FindRequest":
        """Return what is asked of a source; a filter may narrow it.

        :raises BadInput: when a filter, a pattern or the rules for bodies are not well-formed.
        """
        from rocketlens.query.request import FindRequest

        return FindRequest.parse(
            self.key,
            self.topics or None,
            kind="auto" if self.key is None else "key",
            begin=self.begin,
            end=self.end,
            exhaustive=self.exhaustive,
            all_topics=True,
            **self.content,
        )


class MessageSink(Protocol):
    """A receiver of messages as they are read."""

    def add(self, message: "MessageExt") -> None:
        """Take one message."""

    def add_scan(self, scan: "Scan | ArchiveScan") -> None:
        """Take the messages of a scan, as fast as they are read."""

    count: int
    """How many messages it took."""


def add_selection(parser: ArgumentParser) -> None:
    """Add the options of `selection_of`, and those that name a store or a cluster."""
    add_source(parser)
    add_archive(parser)
    add_topics(parser, "only this topic", default="all")
    parser.add_argument("-k", "--key", metavar="KEY", help="only messages with this key")
    add_times(parser)
    parser.add_argument(
        "--exhaustive",
        action="store_true",
        help="with --since and --until, read all of a store's log instead of relying on the order "
        "of its store times",
    )
    add_content(parser)


def selection_of(arguments: Namespace) -> MessageSelection:
    """Return which messages a command line asks for.

    :raises BadInput: when a time cannot be read, or they are in the wrong order.
    """
    begin, end = time_range(arguments)
    topics = tuple(arguments.topic or ())
    content = content_of(arguments)
    return MessageSelection(topics, begin, end, arguments.key, content, arguments.exhaustive)


def read_into(sink: MessageSink, selection: MessageSelection, arguments: Namespace) -> "Answer":
    """Read messages into a sink; the answer has no messages, but says what was searched.

    From the log of a store they come in its order, from an archive file by file; from a cluster in
    the order of their store times. Messages with a key are few, and are found first, as are those
    of an archive and another source, which come once.
    """
    from rocketlens.cli.source import choose_source, is_merged

    request = selection.request()
    source = choose_source(arguments)
    if request.text is not None or is_merged(arguments):
        return _find(sink, request, arguments, source)
    if arguments.archive:
        return _read_archive(sink, request, arguments)
    if source is None:
        return _read_store(sink, request, arguments)
    return _read_cluster(sink, request, arguments, source)


def _find(
    sink: MessageSink,
    request: "FindRequest",
    arguments: Namespace,
    source: "ClusterAccess | None",
) -> "Answer":
    from dataclasses import replace

    from rocketlens.cli.source import find_in

    answer = find_in(source, arguments, request)
    for message in answer:
        sink.add(message)
    return replace(answer, messages=())


def _read_archive(sink: MessageSink, request: "FindRequest", arguments: Namespace) -> "Answer":
    from rocketlens.archive.archive import open_archive
    from rocketlens.model.answer import Answer
    from rocketlens.terminal.search_progress import SearchProgress

    with SearchProgress() as progress, open_archive(arguments.archive) as archive:
        scan = archive.scan_for(request)
        scan.on_read = progress.report
        sink.add_scan(scan)
        if progress.is_interrupted:
            raise KeyboardInterrupt
        return Answer(request.query, (), scan.coverage)


def _read_store(sink: MessageSink, request: "FindRequest", arguments: Namespace) -> "Answer":
    from rocketlens.model.answer import Answer
    from rocketlens.query.offline import open_store
    from rocketlens.terminal.search_progress import SearchProgress

    with (
        SearchProgress() as progress,
        open_store(store_directory(arguments), on_progress=progress.report) as store,
    ):
        scan = store.scan_for(request, checks_topics=False)
        sink.add_scan(scan)
        if progress.is_interrupted:
            raise KeyboardInterrupt
        check_topics(store, request.topics, sink.count)
        return Answer(request.query, (), scan.coverage)


def check_topics(store: "Store | Archive", topics: "Collection[str]", count: int) -> None:
    """Check that a store, or an archive, has the topics in which nothing was found.

    Not before: messages of a deleted topic may still be in the log.

    :raises TopicNotFound: naming one that it does not have, and what was probably meant.
    """
    if topics and not count:
        store.topics(topics)


def _read_cluster(
    sink: MessageSink, request: "FindRequest", arguments: Namespace, source: "ClusterAccess"
) -> "Answer":
    from rocketlens.cli.source import scan_in
    from rocketlens.model.answer import Answer
    from rocketlens.terminal.search_progress import SearchProgress

    with (
        SearchProgress() as progress,
        scan_in(source, arguments, request, progress) as scan,
    ):
        for message in scan:
            sink.add(message)
        if progress.is_interrupted:
            raise KeyboardInterrupt
        return Answer(request.query, (), scan.coverage)
