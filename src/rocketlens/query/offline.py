"""A store directory, open for queries: the result of :func:`rocketlens.open_store`."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound
from rocketlens.formats.commitlog_record import message_of
from rocketlens.model.answer import Coverage
from rocketlens.model.arguments import check_text
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.by_id import record_of_offset_id
from rocketlens.query.lookup.by_key import find_by_key
from rocketlens.query.lookup.by_queue_offset import record_of_entry
from rocketlens.query.lookup.by_time import Scan
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.lookup.newest import WHOLE_LOG, find_newest, part_in_time
from rocketlens.query.options import ContentOptions, takes
from rocketlens.query.request import FindRequest, QueuePosition
from rocketlens.query.search_api import SearchApi
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
    from rocketlens.query.story.story_search import StorySource


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


class Store(SearchApi):
    """Finds the messages of one store. A context manager. Not for several threads at once.

    Times are store times in epoch milliseconds, both ends of a range included. Answers list
    messages in the order of the commit log, each once.
    """

    _where = "this store"

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
        self.source: StoreSource = StoreSource(self._opened)

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

    def _look_up(self, key_filter: MessageFilter, findings: Findings) -> None:
        reader = self._reader
        reader.refresh()
        findings.as_told = reader.static_topics.as_told
        find_by_key(reader, key_filter, findings)

    def _search(self, conditions: MessageFilter, findings: Findings) -> None:
        reader = self._reader
        reader.refresh()
        findings.as_told = reader.static_topics.as_told
        find_newest(reader, conditions, findings, exhaustive=False)

    def _message_at(self, where: OffsetMessageId | QueuePosition) -> MessageExt | None:
        reader = self._reader
        reader.refresh()
        try:
            record = (
                record_of_offset_id(reader, where)
                if isinstance(where, OffsetMessageId)
                else record_of_entry(reader, where)
            )
        except (AnswerIncomplete, MessageNotFound):
            return None
        return None if record is None else message_of(reader.static_topics.as_told(record))

    def _unknown(self, topic: str) -> Iterable[Coverage]:
        return self._opened.topics.tell_unknown((topic,))

    def _story_source(self) -> "StorySource":
        from rocketlens.query.story.store_story import StoreStorySource

        self._opened.check_open()
        return StoreStorySource(self.source)

    def close(self) -> None:
        """Unmap the store's files."""
        self._opened.close()


def _scan(reader: StoreReader, message_filter: MessageFilter, *, exhaustive: bool) -> Scan:
    part = None if exhaustive else part_in_time(reader, message_filter)
    return (part or WHOLE_LOG).scan(reader, message_filter)
