"""Searches one archive: the result of :func:`rocketlens.open_archive`."""

from collections.abc import Iterable
from datetime import datetime
from os import PathLike, fspath
from typing import TYPE_CHECKING, Unpack

from rocketlens.archive.scan import (
    ArchiveCursor,
    ArchiveLookUp,
    ArchiveScan,
    LookUpCursor,
    cursor_of,
    query_digest,
)
from rocketlens.archive.source import ArchiveSource
from rocketlens.model.answer import Coverage, hint
from rocketlens.model.status import ArchiveStatus
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.options import ContentOptions, FindOptions, takes
from rocketlens.query.request import FindRequest
from rocketlens.query.search_api import SearchApi
from rocketlens.query.tally import SearchTally
from rocketlens.query.topic_choice import parse_topics

if TYPE_CHECKING:
    from rocketlens.model.topic import TopicsAnswer
    from rocketlens.query.story.story_search import StorySource


def open_archive(root: "str | PathLike[str]") -> "Archive":
    """Open an archive, which ``rocketlens archive run --table`` wrote, for reading.

    ``root`` is a directory, or ``s3://BUCKET/PREFIX``: see `rocketlens.archive.location`.

    Needs no JVM and changes nothing. Jobs can add messages meanwhile: a query sees the batches that
    were added before it.

    :raises ArchiveError: if it is not an archive, or cannot be read.
    :raises PackageMissing: if deltalake is not installed.
    """
    return Archive(root)


class Archive(SearchApi):
    """Finds the messages of one archive. A context manager; not thread-safe.

    Its methods are those of `rocketlens.query.offline.Store`. Answers list each message once, in
    the order of store times. Their coverage gives the archived time range of each source, and the
    gaps. A key look-up reads a few row groups of ``message_keys``. An offset message id and a queue
    position are compared with columns of ``messages``, whose files are pruned by their bounds.
    """

    _where = "this archive"

    def __init__(self, root: "str | PathLike[str] | ArchiveSource") -> None:
        """Open the archive as :func:`open_archive` does, or use an open source."""
        self.source: ArchiveSource = (
            root if isinstance(root, ArchiveSource) else ArchiveSource(fspath(root))
        )

    def __repr__(self) -> str:
        return f"Archive({self.source.name!r}{', closed' if self.source.is_closed else ''})"

    @takes(ContentOptions, FindRequest.parse)
    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        begin: int | datetime | str | None = None,
        end: int | datetime | str | None = None,
        tag: str | None = None,
        *,
        exhaustive: bool = False,
        all_topics: bool = False,
        cursor: str | None = None,
        **content: Unpack[ContentOptions],
    ) -> ArchiveScan:
        """Read messages of one or several topics, of a time range, with a tag, with some content.

        Arguments and errors are those of `Store.scan`; every scan is ``exhaustive``. Files are read
        one after another, the oldest first, so memory stays bounded. A scan with the same arguments
        and the ``cursor`` of an earlier scan continues after the last message of that scan, in the
        version of the archive that it read.

        :raises BadInput: if the cursor is not one of this search.
        :raises ArchiveError: if the archive no longer has that version.
        """
        request = FindRequest.parse_scan(
            topic,
            exhaustive=exhaustive,
            begin=begin,
            end=end,
            tag=tag,
            all_topics=all_topics,
            **content,
        )
        return self.scan_for(request, cursor=cursor)

    def scan_for(
        self, request: FindRequest, *, checks_topics: bool = True, cursor: str | None = None
    ) -> ArchiveScan:
        """Read messages for a request that has no text, as `scan` does.

        Without ``checks_topics``, an unknown topic name is no error: it has no messages.
        """
        self.source.refresh()
        topics = self.source.topics_matching(request.topics, checks_names=checks_topics)
        after = None if cursor is None else cursor_of(ArchiveCursor, cursor, request)
        message_filter = request.filter_of(SearchTally(), topics)
        return ArchiveScan(self.source, message_filter, query_digest(request), after)

    @takes(FindOptions, FindRequest.parse)
    def look_up(
        self,
        text: str,
        topic: str | Iterable[str] | None = None,
        *,
        cursor: str | None = None,
        **options: Unpack[FindOptions],
    ) -> ArchiveLookUp:
        """Return an iterator over the messages with a key or id, the oldest first.

        Arguments and errors are those of `find`. Messages are read as they are taken, so memory
        stays bounded, however many messages a key has. A look-up with the same arguments and the
        ``cursor`` of an earlier look-up continues after the last message of that look-up.

        :raises BadInput: if the cursor is not one of this look-up.
        """
        return self.look_up_for(FindRequest.parse(text, topic, **options), cursor=cursor)

    def look_up_for(self, request: FindRequest, *, cursor: str | None = None) -> ArchiveLookUp:
        """Return the messages for a request that has a text, as `look_up` does."""
        self.source.refresh()
        self.source.topics_matching(request.topics)
        after = None if cursor is None else cursor_of(LookUpCursor, cursor, request)
        return ArchiveLookUp(self.source, request, after)

    def topics(self, topic: str | Iterable[str] | None = None) -> "TopicsAnswer":
        """Return all topics of the archive, or the given ones, each with its queues.

        ``topic`` is as in `find`. If the offsets of a queue have gaps, its ``missing`` is the
        number of messages that were not archived. O(messages).

        :raises TopicNotFound: if the archive has no topic of that name, or none matches a pattern.
        """
        from rocketlens.archive.topics import topics_of_archive

        return topics_of_archive(self.source, parse_topics(topic))

    def status(self) -> ArchiveStatus:
        """Return the archived time range of each source, and its gaps."""
        return self.source.status()

    def _look_up(self, key_filter: MessageFilter, findings: Findings) -> None:
        self.source.refresh()
        self.source.look_up(key_filter, findings)

    def _search(self, conditions: MessageFilter, findings: Findings) -> None:
        self.source.refresh()
        self.source.search(conditions, findings)

    def _unknown(self, topic: str) -> Iterable[Coverage]:
        for error in self.source.missing_topics([topic]).values():
            yield hint("topics", str(error))

    def _story_source(self) -> "StorySource":
        from rocketlens.archive.story import ArchiveStorySource

        return ArchiveStorySource(self.source)

    def close(self) -> None:
        """Close the archive's files."""
        self.source.close()
