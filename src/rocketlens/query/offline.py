"""A store directory, open for queries: the result of :func:`rocketlens.open_store`."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, overload

from rocketlens import limits
from rocketlens.errors import BadInput, MessageNotFound
from rocketlens.formats.commitlog_record import Record, message_of
from rocketlens.model.answer import Answer
from rocketlens.model.arguments import check_int, check_text
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.find import find_local, one_message
from rocketlens.query.lookup.by_id import record_of_offset_id
from rocketlens.query.lookup.by_key import find_by_key
from rocketlens.query.lookup.by_queue_offset import find_by_queue_offset
from rocketlens.query.lookup.by_time import Scan
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.lookup.newest import WHOLE_LOG, find_newest, part_in_time
from rocketlens.query.options import (
    ContentOptions,
    FindOptions,
    StoryOptions,
    TailOptions,
    takes,
)
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
from rocketlens.query.store_reader import OnProgress, StoreReader
from rocketlens.query.store_source import StoreSource
from rocketlens.query.tally import SearchTally
from rocketlens.query.topic_choice import asked_topics

if TYPE_CHECKING:
    from datetime import datetime
    from os import PathLike
    from typing import Unpack

    from rocketlens.model.group import GroupsAnswer
    from rocketlens.model.status import StoreStatus
    from rocketlens.model.topic import TopicsAnswer
    from rocketlens.query.story.story import Story


def open_store(
    path: "str | PathLike[str] | None" = None,
    *,
    broker_conf: "str | PathLike[str] | None" = None,
    max_topic_scan_bytes: int | None = limits.MAX_TOPIC_SCAN_BYTES,
    before_long_scan: Callable[[int], None] = lambda _: None,
    on_progress: OnProgress | None = None,
) -> "Store":
    """Open a RocketMQ store directory (the one that holds ``commitlog``) for reading.

    Instead of its path the ``broker_conf`` can be given: the file that says where the store and
    its log are.

    Needs no lock and changes nothing; the store may have been closed cleanly or not, and a broker
    may be running on it. Stores of RocketMQ 4.9 and 5 are read alike.

    A key that is asked for without a topic may be one of a topic that was deleted: only the log
    knows its name. If the key is in no known topic, log of up to ``max_topic_scan_bytes`` bytes is
    read for more (None: all of it, a second a GiB); above that the answer is incomplete and says
    so. ``before_long_scan`` is called with the number of bytes before more than
    :data:`rocketlens.limits.MAX_TOPIC_SCAN_BYTES` are read.

    ``on_progress`` is called while log is read for messages, each 3 to 50 ms, with the bytes and
    messages that were read and the bytes to read: ``(read_bytes, total_bytes, messages)``. If it
    returns False, reading ends there, and the answer is incomplete.

    :raises NotAStore: when it is not a directory, or holds no commit log.
    :raises BadInput: unless one of both is given, or when that is empty.
    """
    named = broker_conf if path is None else path
    if named is None or (path is not None and broker_conf is not None):
        raise BadInput("which store? Give its directory, or the broker_conf that names it")
    if not str(named):
        raise BadInput("the path is empty: give the directory that holds commitlog/")
    return Store(
        named,
        max_topic_scan_bytes=max_topic_scan_bytes,
        before_long_scan=before_long_scan,
        on_progress=on_progress,
    )


class Store:
    """Finds the messages of one store. A context manager. Not for several threads at once.

    Times are store times in epoch milliseconds, both ends of a range included. Answers list
    messages in the order of the commit log, each once.
    """

    def __init__(
        self,
        path: "str | PathLike[str]",
        *,
        max_topic_scan_bytes: int | None = limits.MAX_TOPIC_SCAN_BYTES,
        before_long_scan: Callable[[int], None] = lambda _: None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Open the store: see :func:`open_store`."""
        self._opened: Final = StoreReader(
            Path(path),
            max_topic_scan_bytes=max_topic_scan_bytes,
            before_long_scan=before_long_scan,
        )
        self._opened.on_progress = on_progress
        self.source: Final = StoreSource(self._opened)
        """The source for `rocketlens.find`."""

    def __repr__(self) -> str:
        """Return the directory, and whether the store is closed."""
        closed = ", closed" if self._opened.is_closed else ""
        return f"Store({str(self.path)!r}{closed})"

    @property
    def path(self) -> Path:
        """The store directory."""
        return self._opened.path

    @property
    def _reader(self) -> StoreReader:
        self._opened.check_open()
        return self._opened

    @overload
    def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...

    def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message by its id of either kind, of one topic or of any.

        The id is taken as an offset message id first, then as a unique key. Several records can
        carry one unique key; the oldest is returned.

        :raises MessageNotFound: if the store has none.
        :raises AnswerIncomplete: if it has none that could be read, but not all could be.
        :raises BadInput: if the id is empty or far too long.
        """
        topic, msg_id = (None, first) if second is None else (first, second)
        reader = self._reader
        reader.refresh()
        check_text(msg_id, "msg_id")
        if topic is not None:
            check_text(topic, "topic")
        record = self._by_offset_id(topic, msg_id)
        if record is not None:
            return message_of(record)
        check_key(msg_id)
        findings = self._findings(1, oldest=True)
        unique_key = MessageFilter(topic=topic, unique_key=msg_id, tally=findings.tally)
        find_by_key(reader, unique_key, findings)
        return one_message(findings.answer(msg_id), "this store")

    def query_message(
        self,
        topic: str | None,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime | str" = 0,
        end: "int | datetime | str" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages with a key or unique key; the newest ``max_num``, None for all.

        ``topic`` None searches every topic. Where nothing names the topic, the coverage says so,
        and which was probably meant; `find` refuses such a topic.

        :raises BadInput: if the key is empty or longer than one can be, or a number is negative.
        :raises WrongType: if an argument is of a type that cannot be used.
        """
        reader = self._reader
        reader.refresh()
        low, high = time_range(begin, end)
        findings = self._findings(check_max_num(max_num))
        key_filter = MessageFilter(
            topic=None if topic is None else check_text(topic, "topic"),
            key=check_text(key, "key"),
            unique_key=key,
            begin=low,
            end=high,
            tally=findings.tally,
        )
        check_key(key)
        find_by_key(reader, key_filter, findings)
        answer = findings.answer(key)
        if topic is None or answer.messages:
            return answer
        coverage = tuple(reader.topics.tell_unknown((topic,)))
        return replace(answer, coverage=(*answer.coverage, *coverage)) if coverage else answer

    def query_by_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
        """Return the message at one offset of one queue.

        :raises MessageNotFound: if the store has none.
        :raises AnswerIncomplete: if what could hold it could not be read.
        :raises BadInput: if `topic` is not a valid topic name, or a number is negative.
        """
        reader = self._reader
        reader.refresh()
        check_text(topic, "topic")
        check_int(queue_id, "queue_id")
        check_int(queue_offset, "queue_offset")
        position = QueuePosition(topic, queue_id, queue_offset)
        check_queue_position(position)
        findings = self._findings(None)
        find_by_queue_offset(reader, position, MessageFilter(tally=findings.tally), findings)
        return one_message(findings.answer(str(position)), "this store")

    @takes(ContentOptions, FindRequest.parse)
    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        begin: "int | datetime | str | None" = None,
        end: "int | datetime | str | None" = None,
        tag: str | None = None,
        *,
        exhaustive: bool = False,
        all_topics: bool = False,
        **content: "Unpack[ContentOptions]",
    ) -> Scan:
        """Read the log for messages of a topic or several, a time range, a tag, with some content.

        ``topic`` is as `find` has it, the others are those of
        `rocketlens.query.options.ScanOptions`. Of a long log only the files that can have messages
        of the time range are read, which relies on rising store times, unless the scan is
        ``exhaustive``.

        Iterate over the result; after that its ``failures`` tell what could not be read.

        :raises WrongType: if an argument is of a type that cannot be used.
        :raises TopicNotFound: if the store has no topic of a name, or none matches a pattern.
            Of a name that only the log can have, the log is read for it first.
        """
        request = FindRequest.parse_scan(
            topic,
            begin=begin,
            end=end,
            tag=tag,
            exhaustive=exhaustive,
            all_topics=all_topics,
            **content,
        )
        return self.scan_for(request)

    def scan_for(self, request: FindRequest, *, checks_topics: bool = True) -> Scan:
        """Read the log for a request that has no text; as `scan`.

        Without ``checks_topics`` a name that is not that of a topic has no messages.
        """
        reader = self._reader
        reader.refresh()
        topics, unknown = reader.topics.choose(request.topics)
        if checks_topics:
            unknown |= reader.topics.check_listed(request.topics)
        for error in unknown.values():
            raise error
        message_filter = request.filter_of(SearchTally(), topics)
        scan = _scan(reader, message_filter, exhaustive=request.exhaustive)
        if reader.tiered.is_needed(message_filter.begin):
            logs, scan.lost = reader.tiered.logs(
                lambda queue: message_filter.takes_topic(queue.topic)
            )
            scan.older = [
                _scan(log, message_filter, exhaustive=request.exhaustive) for _, log in logs
            ]
        return scan

    @takes(TailOptions, tail_filter)
    def tail(
        self,
        topic: str,
        newest: int | None = limits.DEFAULT_TAIL_MESSAGES,
        **options: "Unpack[TailOptions]",
    ) -> Answer:
        """Return the newest messages of a topic that match, as `MQAdmin.tail` does.

        They are found as `find` finds the newest. The keywords are those of
        `rocketlens.query.options.TailOptions`.

        :raises BadInput: if a condition is not well-formed, or a number is negative.
        :raises TopicNotFound: if the store has no such topic.
        """
        conditions = tail_filter(check_text(topic, "topic"), **options)
        findings = self._findings(check_max_num(newest), tally=conditions.tally)
        reader = self._reader
        reader.refresh()
        find_newest(reader, conditions, findings, exhaustive=False)
        if not findings.messages and findings.is_complete:
            unknown, coverage = reader.topics.check_known((topic,))
            for error in unknown.values():
                raise error
            findings.cover(tuple(coverage))
        return findings.answer(topic)

    def topics(self, topic: str | Iterable[str] | None = None) -> "TopicsAnswer":
        """Return the topics of the store, or some of them, each with its queues.

        ``topic`` is as `find` has it. Messages are counted by consume queues, and in the log
        behind those. Topics that were deleted are known as far as the log was read for them: see
        :func:`open_store`. O(entries of all queues).

        :raises WrongType: if `topic` is of a type that cannot be used.
        :raises TopicNotFound: if the store has no topic of a name, or none matches a pattern.
        """
        from rocketlens.query.facts.topic_list import topics_of_store

        return topics_of_store(self._reader, asked_topics(topic))

    def groups(self, group: str | None = None) -> "GroupsAnswer":
        """Return the consumer groups that the store's files name, or one of them.

        Members are not in files; offsets are those that the broker wrote last. Errors as
        `MQAdmin.groups`: a file that cannot be read makes the answer incomplete.
        """
        from rocketlens.query.facts.groups import groups_of_store

        return groups_of_store(self._reader, None if group is None else check_text(group, "group"))

    def status(self, *, with_groups: bool = True) -> "StoreStatus":
        """Return the state of the store: how it was closed, sizes, times, index, disk, groups.

        As costly as `topics`. ``with_groups=False`` leaves out groups, and what their files lack.

        :raises OSError: when its directory cannot be read.
        """
        from rocketlens.query.facts.examination import StoreExamination
        from rocketlens.store.disk import Disk

        return StoreExamination(self._reader).status(Disk(), with_groups=with_groups)

    @takes(FindOptions, FindRequest.parse)
    def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        **options: "Unpack[FindOptions]",
    ) -> Answer:
        """Find messages by id, key, queue offset, time or content.

        ``text`` is a key, a unique key, an offset message id, or a queue position
        ``TOPIC/QUEUE/OFFSET``. Without it the topic, the times and the content alone decide.
        ``topic`` is one topic, or several as an iterable or with commas between them; ``*``,
        ``?`` and ``[ab]`` in a name make it a pattern. The keywords are those of
        `rocketlens.query.options.FindOptions`. All messages that match are returned, or the newest
        ``max_num``. The newest of a topic are found from the ends of its consume queues; of a topic
        whose newest messages are far from the end of the log, the answer relies on those queues and
        says so (``relies_on``), unless it is ``exhaustive``.

        :raises BadInput: if the text cannot be what ``kind`` says, a number is negative, or a
            filter, a pattern or the rules are not well-formed.
        :raises WrongType: if an argument is of a type that cannot be used.
        :raises PackageMissing: if a regular expression needs google-re2, which is not installed.
        :raises TopicNotFound: if nothing is found and the store has no such topic; of several,
            if it has no topic of one name.
        """
        return self.find_for(FindRequest.parse(text, topic, **options))

    def find_for(self, request: FindRequest) -> Answer:
        """Find messages for a request; otherwise as `find`."""
        return find_local(request, self.source)

    @takes(StoryOptions, StoryRequest.parse)
    def story(
        self,
        text: str,
        topic: str | Iterable[str] | None = None,
        **options: "Unpack[StoryOptions]",
    ) -> "Story":
        """Return the story of one message: sent, stored, each copy, what each group did with it.

        Arguments and errors as `MQAdmin.story`. What groups did follows from offsets that the
        broker wrote last, and from the copies and traces in the log.
        """
        from rocketlens.query.story.store_story import StoreStorySource, find_story_here
        from rocketlens.query.threaded_source import ThreadedSource

        request = StoryRequest.parse(text, topic, **options)
        self._opened.check_open()
        source = ThreadedSource(self.source, in_thread=False)
        return find_story_here(request, StoreStorySource(source))

    def _findings(
        self, max_num: int | None, *, oldest: bool = False, tally: SearchTally | None = None
    ) -> Findings:
        in_log_order = self.source.is_one_log
        messages = AnswerMessages(max_num, oldest=oldest, in_log_order=in_log_order)
        return Findings(messages, tally=tally)

    def _by_offset_id(self, topic: str | None, msg_id: str) -> Record | None:
        """Return the record with this offset message id, if it is one and there is a record."""
        try:
            record = record_of_offset_id(self._opened, OffsetMessageId.decode(msg_id))
        except (BadInput, MessageNotFound):
            return None
        return record if topic is None or record.topic == topic else None

    def close(self) -> None:
        """Unmap the store's files."""
        self._opened.close()

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmap the store's files."""
        self.close()


def _scan(reader: StoreReader, message_filter: MessageFilter, *, exhaustive: bool) -> Scan:
    part = None if exhaustive else part_in_time(reader, message_filter)
    return (part or WHOLE_LOG).scan(reader, message_filter)
