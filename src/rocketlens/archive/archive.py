"""An archive, open for queries: the result of :func:`rocketlens.open_archive`."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import islice
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, Self, overload

from rocketlens import limits
from rocketlens.archive.reader import ArchiveReader, DataFile, message_of_row, record_of
from rocketlens.errors import WrongUse
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState, is_complete
from rocketlens.model.arguments import check_int, check_text
from rocketlens.model.arrow import FIRST_TIME_MS, LAST_TIME_MS, ArrowMessages, batches_of
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import is_internal_topic
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.find import find_local, one_message
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.options import ContentOptions, FindOptions, TailOptions, takes
from rocketlens.query.request import (
    FindRequest,
    QueuePosition,
    check_key,
    check_max_num,
    check_queue_position,
    tail_filter,
    time_range,
)
from rocketlens.query.topic_choice import matching_topics, unknown_topic

if TYPE_CHECKING:
    from typing import Unpack

    import pyarrow as pa

    from rocketlens.archive.journal import ArchivedBatch
    from rocketlens.archive.reader import Bounds

_POSITIONS_AT_ONCE: Final = 4096
_MIN_MS: Final = -(2**63)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def open_archive(root: "str | PathLike[str]") -> "Archive":
    """Open an archive, the directory that ``rocketlens archive run --table`` wrote, for reading.

    Needs no JVM, and changes nothing. It may be written to meanwhile: each query sees the batches
    that were added before it.

    :raises ArchiveError: when it is not an archive, or one that cannot be read.
    :raises PackageMissing: when deltalake is not installed.
    """
    return Archive(root)


class Archive:
    """Finds the messages of one archive. A context manager. Not for several threads at once.

    Its methods are those of `rocketlens.query.offline.Store`. Answers list messages in the order of
    their store times, each once; their coverage says from when to when each source was archived,
    and what could not be.
    """

    def __init__(self, root: "str | PathLike[str]") -> None:
        """Open the archive: see :func:`open_archive`."""
        self.source: Final = ArchiveSource(fspath(root))
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

    def find_for(self, request: FindRequest) -> Answer:
        """Find messages for a request; otherwise as `find`."""
        return find_local(request, self.source)

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
        key_filter = MessageFilter(named, key, key, low, high)
        findings = Findings(AnswerMessages(check_max_num(max_num)))
        self.source.look_up(key_filter, findings)
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
        findings = Findings(AnswerMessages(check_max_num(newest)))
        self.source.search(conditions, findings)
        if conditions.content is not None:
            findings.cover(conditions.content.tally.coverage())
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
        **content: "Unpack[ContentOptions]",
    ) -> "ArchiveScan":
        """Read messages of a topic or several, a time range, a tag, with some content.

        Arguments and errors as `Store.scan`. They come file by file, the oldest first, and memory
        stays bounded however many there are.
        """
        request = FindRequest.parse_scan(
            topic, begin=begin, end=end, tag=tag, all_topics=all_topics, **content
        )
        return self.scan_for(request)

    def scan_for(self, request: FindRequest) -> "ArchiveScan":
        """Read messages for a request that has no text; as `scan`."""
        source = self.source
        source.refresh()
        topics, unknown = matching_topics(request.topics, source.topics)
        for name in topics:
            if name not in source.topics:
                raise unknown_topic(name, source.topics, "this archive")
        for error in unknown.values():
            raise error
        return ArchiveScan(source, request.for_one_source().filter_of(topics))

    def close(self) -> None:
        """Close the archive's files."""
        self.source.close()

    def __enter__(self) -> Self:
        """Return the archive."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the archive's files."""
        self.close()


class ArchiveSource:
    """The source over one archive. Its methods never wait."""

    kind: Final = SourceKind.ARCHIVE
    is_one_log: Final = False

    def __init__(self, root: str) -> None:
        """Open the archive: see :func:`open_archive`."""
        self.name: Final = root
        self.is_closed = False
        self._reader: Final = ArchiveReader(root)

    def close(self) -> None:
        """Close the archive's files."""
        self.is_closed = True
        self._reader.close()

    def refresh(self) -> None:
        """List what was archived since.

        :raises WrongUse: if the archive was closed.
        """
        if self.is_closed:
            raise WrongUse(f"the archive {self.name} was closed: open it again")
        self._reader.refresh()

    @property
    def topics(self) -> set[str]:
        """The topics of the messages that were archived."""
        return {topic for batch in self._reader.batches for topic in batch.topics}

    def find(self, request: FindRequest, findings: Findings) -> None:
        """Add the messages that match: see `rocketlens.query.source.LocalSource`."""
        self.refresh()
        topics, unknown = matching_topics(request.topics, self.topics)
        findings.unknown.update(unknown)
        if unknown and not topics:
            findings.cover(self.coverage(request, (), []))
        elif request.text is None:
            self._search(request.filter_of(topics), findings)
        else:
            self._find_text(request, topics, findings)

    def _find_text(self, request: FindRequest, topics: Sequence[str], findings: Findings) -> None:
        identified = request.filter_of(topics, is_identified=True)
        offset_msg_id = request.offset_msg_id
        if offset_msg_id is not None:
            host, offset = str(offset_msg_id.store_host), offset_msg_id.physical_offset
            bounds = {"physical_offset": (offset, offset), "store_host": (host, host)}
            self._search(identified, findings, bounds)
        position = None if findings.count else request.queue_position
        if position is not None and (
            request.kind == "queue-offset" or position.topic in self.topics
        ):
            exact = {name: (value, value) for name, value in position._asdict().items()}
            self._search(request.filter_of(is_identified=True), findings, exact)
        if request.is_key and not findings.count:
            self._look_up(request.filter_of(topics, with_key=True), findings)
        if position is not None:
            for source, batches in self._of_sources():
                findings.cover(tuple(_not_archived(source, batches[-1].chosen, [position.topic])))

    def look_up(self, key_filter: MessageFilter, findings: Findings) -> None:
        """Add the messages with the key of a filter, which match it."""
        self.refresh()
        self._look_up(key_filter, findings)

    def search(self, message_filter: MessageFilter, findings: Findings) -> None:
        """Add the messages that match a filter, the newest first."""
        self.refresh()
        self._search(message_filter, findings)

    def _look_up(self, key_filter: MessageFilter, findings: Findings) -> None:
        errors: list[str] = []
        bounds = _time_bounds(key_filter)
        positions = (
            each
            for each in self._reader.positions(key_filter.index_key, bounds, errors)
            if key_filter.takes_topic(each["topic"])
        )
        while chunk := list(islice(positions, _POSITIONS_AT_ONCE)):
            for row in self._reader.at(chunk, errors):
                if _is_match(row, key_filter):
                    findings.add(message_of_row(row))
        findings.cover(self.coverage(key_filter, key_filter.record_topics, errors))

    def _search(
        self, message_filter: MessageFilter, findings: Findings, bounds: "Bounds | None" = None
    ) -> None:
        errors: list[str] = []
        narrowed = {**_bounds(message_filter), **(bounds or {})}
        for file in self.files(narrowed, newest_first=True):
            if findings.is_past(file.bounds["store_timestamp_ms"][1]):
                continue
            count = 0
            for rows in self._reader.rows(file, narrowed, errors, newest_first=True):
                count += rows.num_rows
                for message in _matching(rows, message_filter):
                    findings.add(message)
            findings.add_read(file.size, count)
            if findings.is_left or findings.messages.is_over_bytes:
                break
        findings.cover(self.coverage(message_filter, message_filter.record_topics, errors))

    def files(self, bounds: "Bounds", *, newest_first: bool = False) -> list[DataFile]:
        """Return the files of messages that can have rows within bounds, in order of time."""
        chosen = [file for file in self._reader.messages if file.can_have(bounds)]
        if newest_first:
            return sorted(chosen, key=lambda file: -file.bounds["store_timestamp_ms"][1])
        return sorted(chosen, key=lambda file: file.bounds["store_timestamp_ms"][0])

    def rows(self, file: DataFile, bounds: "Bounds", errors: list[str]) -> "Iterator[pa.Table]":
        """Yield the messages of a file within bounds, the oldest first."""
        return self._reader.rows(file, bounds, errors)

    def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        """Add the topics that the archive does not have: see `LocalSource.check_topics`."""
        topics = self.topics
        for name in matching_topics(names, topics)[0]:
            if name not in topics:
                findings.unknown[name] = unknown_topic(name, topics, "this archive")

    def coverage(
        self,
        times: "FindRequest | MessageFilter",
        topics: Iterable[str] | None,
        errors: Iterable[str],
    ) -> tuple[Coverage, ...]:
        """Return what was searched of each source, with the gaps that a time range touches, and
        with those of the topics that are not archived of it.
        """
        covered: list[Coverage] = []
        for source, batches in self._of_sources():
            covered.extend(_coverage_of(source, batches, times.begin, times.end))
            covered.extend(_not_archived(source, batches[-1].chosen, topics or ()))
        if not covered:
            covered.append(_failed(self.name, "nothing was archived yet: rocketlens archive run"))
        covered.extend(_failed(self.name, each) for each in errors)
        return tuple(covered)

    def _of_sources(self) -> "list[tuple[str, list[ArchivedBatch]]]":
        of_source: dict[str, list[ArchivedBatch]] = {}
        for batch in self._reader.batches:
            of_source.setdefault(batch.source, []).append(batch)
        return sorted(of_source.items())


class ArchiveScan(ArrowMessages):
    """The messages of an archive that match a filter, read file by file, the oldest first.

    Iterate over it for the messages. After that ``coverage`` says what was read.
    """

    def __init__(self, source: ArchiveSource, message_filter: MessageFilter) -> None:
        """Prepare a scan; nothing is read yet."""
        self._source: Final = source
        self._filter: Final = message_filter
        self._errors: Final[list[str]] = []
        self.on_read: Callable[[int, int, int], bool] | None = None
        """Is called after each file with the bytes that were read, those to read, and messages. If
        it returns False, reading ends there."""
        self.is_at_end = False
        """Whether all was read."""

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield the messages."""
        bounds = _bounds(self._filter)
        files = self._source.files(bounds)
        total = sum(file.size for file in files)
        read = count = 0
        for file in files:
            for rows in self._source.rows(file, bounds, self._errors):
                count += rows.num_rows
                yield from _matching(rows, self._filter)
            read += file.size
            if self.on_read is not None and not self.on_read(read, total, count):
                return
        self.is_at_end = True

    def record_batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the messages as record batches of bounded size."""
        return batches_of(self)

    @property
    def complete(self) -> bool:
        """Whether all was read, and everything of that could be."""
        return is_complete(self.coverage)

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """What was read so far, what could not be, and what a filter left out."""
        errors = [*self._errors]
        if not self.is_at_end:
            errors.append("it was not read to its end")
        content, left_out = self._filter.content, self._filter.left_out
        return (
            *self._source.coverage(self._filter, self._filter.record_topics, errors),
            *(content.tally.coverage() if content else ()),
            *(left_out.coverage() if left_out else ()),
        )


def _matching(rows: "pa.Table", message_filter: MessageFilter) -> Iterator[MessageExt]:
    """Yield the messages of rows that match."""
    for row in rows.to_pylist():
        if _is_match(row, message_filter):
            yield message_of_row(row)


def _is_match(row: dict[str, Any], message_filter: MessageFilter) -> bool:
    topic: str = row["topic"]
    if not message_filter.reads_records and not is_internal_topic(topic):
        # What decides is in the columns.
        return message_filter.takes_topic(topic) and message_filter.is_in_time(
            row["store_timestamp_ms"]
        )
    return message_filter.matches(record_of(row))


def _time_bounds(message_filter: MessageFilter) -> "dict[str, tuple[Any, Any]]":
    begin = message_filter.begin
    if begin is None and message_filter.end >= limits.MAX_TIMESTAMP_MS:
        return {}
    return {"store_timestamp_ms": (_MIN_MS if begin is None else begin, message_filter.end)}


def _bounds(message_filter: MessageFilter) -> "dict[str, tuple[Any, Any]]":
    topics = message_filter.record_topics
    of_topics = {"topic": (min(topics), max(topics))} if topics else {}
    return {**_time_bounds(message_filter), **of_topics}


def _coverage_of(
    source: str, batches: "Sequence[ArchivedBatch]", begin: int | None, end: int
) -> Iterator[Coverage]:
    first_ms = min((each.first_ms for each in batches if each.messages), default=0)
    last_ms = max((each.last_ms for each in batches if each.messages), default=0)
    chosen = batches[-1].chosen
    topics = f" ({', '.join(chosen)})" if chosen else ""
    held = f"{source}{topics}, {_time_text(first_ms)} to {_time_text(last_ms)}"
    yield Coverage(held, SourceKind.ARCHIVE, SourceState.SEARCHED, last_ms or None)
    before_ms = _MIN_MS
    for batch in batches:
        # Of a gap only what was archived around it says when its messages were stored.
        after_ms = batch.last_ms if batch.messages else limits.MAX_TIMESTAMP_MS
        if (begin is None or begin <= after_ms) and before_ms <= end:
            for gap in batch.gaps:
                yield _failed(source, gap)
        before_ms = max(before_ms, batch.last_ms if batch.messages else _MIN_MS)


def _not_archived(
    source: str, chosen: Collection[str], topics: Iterable[str]
) -> Iterator[Coverage]:
    for topic in topics if chosen else ():
        if not any(fnmatchcase(topic, each) for each in chosen):
            yield _failed(source, f"topic {topic} is not archived, but {', '.join(chosen)}")


def _failed(source: str, error: str) -> Coverage:
    return Coverage(source, SourceKind.ARCHIVE, SourceState.FAILED, None, error)


def _time_text(timestamp_ms: int) -> str:
    shown = min(max(timestamp_ms, FIRST_TIME_MS), LAST_TIME_MS)
    return (_EPOCH + timedelta(milliseconds=shown)).isoformat(timespec="seconds")
