"""An archive, open for queries: the result of :func:`rocketlens.open_archive`."""

from collections.abc import Iterable
from datetime import datetime
from os import PathLike, fspath
from typing import TYPE_CHECKING, Unpack

from rocketlens.archive.scan import (
    ArchiveCursor,
    ArchiveLookUp,
    ArchiveScan,
    LookUpCursor,
    decoded,
    query_digest,
)
from rocketlens.archive.source import ArchiveSource
from rocketlens.errors import BadInput
from rocketlens.model.answer import Coverage, hint
from rocketlens.model.status import ArchiveStatus
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.options import ContentOptions, FindOptions, takes
from rocketlens.query.request import FindRequest
from rocketlens.query.search_api import SearchApi
from rocketlens.query.tally import SearchTally
from rocketlens.query.topic_choice import matching_topics, parse_topics

if TYPE_CHECKING:
    from rocketlens.model.topic import TopicsAnswer
    from rocketlens.query.story.story_search import StorySource


def open_archive(root: "str | PathLike[str]") -> "Archive":
    """Open an archive, which ``rocketlens archive run --table`` wrote, for reading.

    ``root`` is a directory, or ``s3://BUCKET/PREFIX``: see `rocketlens.archive.location`.

    Needs no JVM, and changes nothing. It may be written to meanwhile: each query sees the batches
    that were added before it.

    :raises ArchiveError: when it is not an archive, or one that cannot be read.
    :raises PackageMissing: when deltalake is not installed.
    """
    return Archive(root)


def _check_question(question: str, request: FindRequest) -> None:
    """Check that a cursor is of a search.

    :raises BadInput: if it is not.
    """
    if question != query_digest(request):
        raise BadInput(
            "the cursor is of another search: give it the same text, topics, times and filters, "
            "and no times such as 2h, which move"
        )


class Archive(SearchApi):
    """Finds the messages of one archive. A context manager. Not for several threads at once.

    Its methods are those of `rocketlens.query.offline.Store`. Answers list messages in the order of
    their store times, each once; their coverage says from when to when each source was archived,
    and what could not be. A key is looked up in a few row groups of ``message_keys``. An offset
    message id and a queue position are compared with columns of ``messages``, whose files are
    pruned by their bounds.
    """

    _where = "this archive"

    def __init__(self, root: "str | PathLike[str] | ArchiveSource") -> None:
        """Open the archive: see :func:`open_archive`; or take one that is open."""
        self.source: ArchiveSource = (
            root if isinstance(root, ArchiveSource) else ArchiveSource(fspath(root))
        )

    def __repr__(self) -> str:
        """Return its directory, and whether it is closed."""
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
        """Read messages of a topic or several, a time range, a tag, with some content.

        Arguments and errors as `Store.scan`; every scan is ``exhaustive``. They come file by file,
        the oldest first, and memory stays bounded however many there are. A scan with the same
        arguments and the ``cursor`` of an earlier one continues after the last message of that
        scan, in the archive as it was then.

        :raises BadInput: if it is not the cursor of such a scan.
        :raises ArchiveError: if the archive does not have any more what there was then.
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
        """Read messages for a request that has no text; as `scan`.

        Without ``checks_topics`` a name that is not that of a topic has no messages.
        """
        source = self.source
        source.refresh()
        topics, unknown = matching_topics(request.topics, source.topics)
        if checks_topics:
            unknown = source.missing_topics(topics) | unknown
        for error in unknown.values():
            raise error
        after, question = None, query_digest(request)
        if cursor is not None:
            after = decoded(ArchiveCursor, cursor)
            _check_question(after.question, request)
        message_filter = request.filter_of(SearchTally(), topics)
        return ArchiveScan(source, message_filter, question, after)

    @takes(FindOptions, FindRequest.parse)
    def look_up(
        self,
        text: str,
        topic: str | Iterable[str] | None = None,
        *,
        cursor: str | None = None,
        **options: Unpack[FindOptions],
    ) -> ArchiveLookUp:
        """Return the messages with a key or id one after another, the oldest first.

        Arguments and errors as `find`. A key may have any number of messages: memory stays bounded,
        and what is not taken is not read. A look-up with the same arguments and the ``cursor`` of
        an earlier one continues after the last message of that look-up.

        :raises BadInput: if it is not the cursor of such a look-up.
        """
        return self.look_up_for(FindRequest.parse(text, topic, **options), cursor=cursor)

    def look_up_for(self, request: FindRequest, *, cursor: str | None = None) -> ArchiveLookUp:
        """Return the messages for a request with a text; as `look_up`."""
        self.source.refresh()
        topics, unknown = matching_topics(request.topics, self.source.topics)
        for error in (self.source.missing_topics(topics) | unknown).values():
            raise error
        after = None
        if cursor is not None:
            after = decoded(LookUpCursor, cursor)
            _check_question(after.question, request)
        return ArchiveLookUp(self.source, request, after)

    def topics(self, topic: str | Iterable[str] | None = None) -> "TopicsAnswer":
        """Return the topics of the archive, or some of them, each with its queues.

        ``topic`` is as `find` has it. Where the offsets of a queue have gaps, its ``missing`` says
        how many messages were not archived. O(messages).

        :raises TopicNotFound: if the archive has no topic of a name, or none matches a pattern.
        """
        from rocketlens.archive.topics import topics_of_archive

        return topics_of_archive(self.source, parse_topics(topic))

    def status(self) -> ArchiveStatus:
        """Return what was archived of each source, from when to when, and what could not be."""
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
