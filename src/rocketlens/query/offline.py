"""A store directory that is open for queries: :func:`rocketlens.open_store`."""

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
from rocketlens.query.topic_choice import parse_topics

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
    """Open a RocketMQ store directory (the parent of ``commitlog``) for reading.

    Instead of the directory, pass ``broker_conf``: the configuration file that names the store and
    its log. Opening a store takes no lock and changes nothing. A broker can run on it meanwhile;
    the store of a killed broker can be opened, too. RocketMQ 4.9 and 5 are supported.

    A key without a topic can belong to a deleted topic, whose name only the log contains. If no
    known topic has the key, up to ``max_topic_scan_bytes`` bytes of log are read for other topics
    (None: all of it, a second per GiB). If the log is larger, the answer is incomplete.
    ``before_long_scan`` is called with the number of bytes before more than
    :data:`rocketlens.limits.MAX_TOPIC_SCAN_BYTES` are read.

    ``on_progress`` is called every 3 to 50 ms while messages are read from the log, as
    ``on_progress(read_bytes, total_bytes, messages)``. If it returns False, reading stops and the
    answer is incomplete.

    :raises NotAStore: if the path is not a directory, or has no commit log.
    :raises BadInput: if neither or both of the paths are given, or the path is empty.
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
    """Finds the messages of one store. A context manager; not thread-safe.

    Times are store times in epoch milliseconds; ranges include both ends. Answers list distinct
    messages in the order of the commit log.
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
            Path(path), max_topic_scan_bytes=max_topic_scan_bytes, before_long_scan=before_long_scan
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
        """Read all messages of some topics, of a time range, with a tag, or with some content.

        ``topic`` is described at `find`, the other arguments in
        `rocketlens.query.options.ScanOptions`. For a time range, a long log is read only in part,
        because store times rise along it; pass ``exhaustive=True`` to read all of it.

        Iterate over the result. Its ``failures`` then list the parts that could not be read.

        :raises WrongType: if an argument has the wrong type.
        :raises TopicNotFound: if a topic does not exist, or no topic matches a pattern. To be sure,
            the log is read for unknown topics first.
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
        """Read all messages for a request without a text; otherwise like `scan`.

        Without ``checks_topics``, an unknown topic just has no messages.
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
        """Return the topics of the store, or some of them, with their queues.

        ``topic`` is described at `find`. Messages are counted by the consume queues, and in the log
        after the last queue entry. Deleted topics are included if the log was read for them: see
        :func:`open_store`. O(entries of all queues).

        :raises WrongType: if ``topic`` has the wrong type.
        :raises TopicNotFound: if a topic does not exist, or no topic matches a pattern.
        """
        from rocketlens.query.facts.topic_list import topics_of_store

        return topics_of_store(self._reader, parse_topics(topic))

    def groups(self, group: str | None = None) -> "GroupsAnswer":
        """Return the consumer groups in the store's files, or one of them.

        Offsets are the last ones that the broker wrote; members are unknown. Errors as in
        `MQAdmin.groups`: if a file cannot be read, the answer is incomplete.
        """
        from rocketlens.query.facts.groups import groups_of_store

        return groups_of_store(self._reader, None if group is None else check_text(group, "group"))

    def status(self, *, with_groups: bool = True) -> "StoreStatus":
        """Return the state of the store: how it was closed, sizes, times, index, disk, groups.

        As expensive as `topics`. With ``with_groups=False``, groups and their files are not read.

        :raises OSError: if the directory cannot be read.
        """
        from rocketlens.query.facts.examination import StoreExamination
        from rocketlens.store.disk import Disk

        return StoreExamination(self._reader).status(Disk(), with_groups=with_groups)

    def _look_up(self, key_filter: MessageFilter, findings: Findings) -> None:
        reader = self._reader
        reader.refresh()
        findings.to_logical = reader.static_topics.to_logical
        find_by_key(reader, key_filter, findings)

    def _search(self, conditions: MessageFilter, findings: Findings) -> None:
        reader = self._reader
        reader.refresh()
        findings.to_logical = reader.static_topics.to_logical
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
        return None if record is None else message_of(reader.static_topics.to_logical(record))

    def _unknown(self, topic: str) -> Iterable[Coverage]:
        return self._opened.topics.unknown_notes((topic,))

    def _story_source(self) -> "StorySource":
        from rocketlens.query.story.store_story import StoreStorySource

        self._opened.check_open()
        return StoreStorySource(self.source)

    def close(self) -> None:
        """Close all files."""
        self._opened.close()


def _scan(reader: StoreReader, message_filter: MessageFilter, *, exhaustive: bool) -> Scan:
    part = None if exhaustive else part_in_time(reader, message_filter)
    return (part or WHOLE_LOG).scan(reader, message_filter)
