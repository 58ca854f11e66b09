"""An archive, open for queries: the result of :func:`rocketlens.open_archive`."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final, Self, overload

from rocketlens import limits
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
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.arguments import check_int, check_text
from rocketlens.model.message import MessageExt
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.find import find_local, one_message
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.options import ContentOptions, FindOptions, StoryOptions, TailOptions, takes
from rocketlens.query.request import (
    FindRequest,
    QueuePosition,
    StoryRequest,
    check_key,
    check_max_num,
    check_queue_position,
    tail_filter,
    time_range,
)
from rocketlens.query.tally import SearchTally
from rocketlens.query.topic_choice import asked_topics, matching_topics

if TYPE_CHECKING:
    from typing import Unpack

    from rocketlens.model.status import ArchiveStatus
    from rocketlens.model.topic import TopicsAnswer
    from rocketlens.query.answer_builder import OnRead
    from rocketlens.query.story.story import Story


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


class Archive:
    """Finds the messages of one archive. A context manager. Not for several threads at once.

    Its methods are those of `rocketlens.query.offline.Store`. Answers list messages in the order of
    their store times, each once; their coverage says from when to when each source was archived,
    and what could not be.
    """

    def __init__(self, root: "str | PathLike[str] | ArchiveSource") -> None:
        """Open the archive: see :func:`open_archive`; or take one that is open."""
        self.source: Final = (
            root if isinstance(root, ArchiveSource) else ArchiveSource(fspath(root))
        )
        """The source for `rocketlens.find`."""

    def __repr__(self) -> str:
        """Return its directory, and whether it is closed."""
        return f"Archive({self.source.name!r}{', closed' if self.source.is_closed else ''})"

    @takes(FindOptions, FindRequest.parse)
    def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        **options: "Unpack[FindOptions]",
    ) -> Answer:
        """Find messages by id, key, queue offset, time or content; as `Store.find`.

        A key is looked up in a few row groups of ``message_keys``. An offset message id and a queue
        position are compared with columns of ``messages``, whose files are pruned by their bounds.
        """
        return self.find_for(FindRequest.parse(text, topic, **options))

    def find_for(self, request: FindRequest, on_read: "OnRead | None" = None) -> Answer:
        """Find messages for a request; otherwise as `find`.

        ``on_read`` is called with the bytes and messages that were read; a search ends, incomplete,
        if it returns False.
        """
        return find_local(request, self.source, on_read)

    @overload
    def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...

    def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message by its id of either kind; as `Store.view_message`.

        :raises MessageNotFound: if the archive has none.
        :raises AnswerIncomplete: if it has none that could be read, but not all could be.
        """
        topic, msg_id = (None, first) if second is None else (first, second)
        request = FindRequest.parse(
            msg_id, topic, kind="unique-key", max_num=1, oldest=True, all_topics=True
        )
        by_id = replace(request, kind="offset-id")
        if by_id.offset_msg_id is not None:
            answer = self.find_for(by_id)
            if answer.messages:
                return answer.messages[0]
        return one_message(self.find_for(request), "this archive")

    def query_message(
        self,
        topic: str | None,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: int | datetime | str = 0,
        end: int | datetime | str = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages with a key or unique key; as `Store.query_message`."""
        low, high = time_range(begin, end)
        check_key(check_text(key, "key"))
        named = None if topic is None else check_text(topic, "topic")
        findings = Findings(AnswerMessages(check_max_num(max_num)))
        key_filter = MessageFilter(named, key, key, low, high, tally=findings.tally)
        self.source.look_up(key_filter, findings)
        if named is not None and not findings.messages:
            for error in self.source.missing_topics([named]).values():
                told = str(error)
                findings.cover(
                    (Coverage("topics", SourceKind.TOPICS, SourceState.SEARCHED, None, told),)
                )
        return findings.answer(key)

    def query_by_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
        """Return the message at one offset of one queue; as `Store.query_by_queue_offset`."""
        check_int(queue_id, "queue_id")
        check_int(queue_offset, "queue_offset")
        position = QueuePosition(check_text(topic, "topic"), queue_id, queue_offset)
        check_queue_position(position)
        return one_message(self.find(str(position), kind="queue-offset"), "this archive")

    @takes(TailOptions, tail_filter)
    def tail(
        self,
        topic: str,
        newest: int | None = limits.DEFAULT_TAIL_MESSAGES,
        **options: "Unpack[TailOptions]",
    ) -> Answer:
        """Return the newest messages of a topic that match; as `Store.tail`."""
        conditions = tail_filter(check_text(topic, "topic"), **options)
        findings = Findings(AnswerMessages(check_max_num(newest)), tally=conditions.tally)
        self.source.search(conditions, findings)
        if not findings.messages and findings.is_complete:
            self.source.check_topics((topic,), findings)
            for error in findings.unknown.values():
                raise error
        return findings.answer(topic)

    @takes(ContentOptions, FindRequest.parse)
    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        begin: int | datetime | str | None = None,
        end: int | datetime | str | None = None,
        tag: str | None = None,
        *,
        all_topics: bool = False,
        cursor: str | None = None,
        **content: "Unpack[ContentOptions]",
    ) -> ArchiveScan:
        """Read messages of a topic or several, a time range, a tag, with some content.

        Arguments and errors as `Store.scan`. They come file by file, the oldest first, and memory
        stays bounded however many there are. A scan with the same arguments and the ``cursor`` of
        an earlier one goes on behind the message that came last there, in the archive as it was
        then.

        :raises BadInput: if it is not the cursor of such a scan.
        :raises ArchiveError: if the archive does not have any more what there was then.
        """
        request = FindRequest.parse_scan(
            topic, begin=begin, end=end, tag=tag, all_topics=all_topics, **content
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
        **options: "Unpack[FindOptions]",
    ) -> ArchiveLookUp:
        """Return the messages with a key or id one after another, the oldest first.

        Arguments and errors as `find`. A key may have any number of messages: memory stays bounded,
        and what is not taken is not read. A look-up with the same arguments and the ``cursor`` of
        an earlier one goes on behind the message that came last there.

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

        return topics_of_archive(self.source, asked_topics(topic))

    def status(self) -> "ArchiveStatus":
        """Return what was archived of each source, from when to when, and what could not be."""
        return self.source.status()

    @takes(StoryOptions, StoryRequest.parse)
    def story(
        self,
        text: str,
        topic: str | Iterable[str] | None = None,
        **options: "Unpack[StoryOptions]",
    ) -> "Story":
        """Return the story of one message; as `Store.story`.

        An archive has no groups: what they did is known where copies or traces show it.
        """
        from rocketlens.archive.story import ArchiveStorySource
        from rocketlens.query.story.store_story import find_story_here
        from rocketlens.query.threaded_source import ThreadedSource

        request = StoryRequest.parse(text, topic, **options)
        source = ThreadedSource(self.source, in_thread=False)
        return find_story_here(request, ArchiveStorySource(source))

    def close(self) -> None:
        """Close the archive's files."""
        self.source.close()

    def __enter__(self) -> Self:
        """Return the archive."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the archive's files."""
        self.close()
