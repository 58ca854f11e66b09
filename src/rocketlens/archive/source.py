"""Searches one archive for a request, and builds the coverage of the answer."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final, Self

from rocketlens import limits
from rocketlens.archive.column_filter import ColumnFilter
from rocketlens.archive.copied import behind_of, known_missing, lost_of, not_copied
from rocketlens.archive.files import Bounds
from rocketlens.archive.journal import ArchivedBatch
from rocketlens.archive.reader import ArchiveLists, ArchiveReader, ArchiveRows, Listing
from rocketlens.archive.rows import message_of_row, record_of
from rocketlens.errors import TopicNotFound, WrongUse
from rocketlens.late import pa
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.arrow import FIRST_TIME_MS, LAST_TIME_MS
from rocketlens.model.life import WAITING_TOPICS
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import is_internal_topic
from rocketlens.model.status import ArchivedSourceStatus, ArchiveStatus
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.request import FindRequest, QueuePosition
from rocketlens.query.topic_choice import (
    matching_topics,
    no_topic_of_position,
    outside_of,
    unknown_topic,
)

_POSITIONS_AT_ONCE: Final = 4096
_MIN_MS: Final = -(2**63)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ArchiveSource:
    """The source over one archive. Its methods block."""

    kind: Final = SourceKind.ARCHIVE
    is_one_log: Final = False

    def __init__(self, archive: str | ArchiveLists) -> None:
        lists = archive if isinstance(archive, ArchiveLists) else ArchiveLists(archive)
        self.name: Final = lists.root
        self.is_closed = False
        self.reader: Final = ArchiveReader(lists)

    def clone(self) -> Self:
        """Return a source with its own open files and the same listing."""
        return type(self)(self.reader.lists)

    def close(self) -> None:
        self.is_closed = True
        self.reader.close()

    def refresh(self) -> None:
        """List new batches; raise WrongUse if the archive was closed."""
        if self.is_closed:
            raise WrongUse(f"the archive {self.name} was closed: open it again")
        self.reader.refresh()

    @property
    def topics(self) -> set[str]:
        """The topics of the archived messages, and other known ones of its sources."""
        listed = self.reader.listing
        behind = (
            each.topic for _, of_source in listed.sources for each in behind_of(of_source[-1])
        )
        return listed.topics.union(filter(None, behind))

    def find(self, request: FindRequest, findings: Findings) -> None:
        """Add the messages that match: see `rocketlens.query.source.Source`."""
        self.refresh()
        topics, unknown = matching_topics(request.topics, self.topics)
        findings.unknown.update(unknown)
        if unknown and not topics:
            findings.cover(self.coverage(request, (), []))
        elif request.text is None:
            self.search(request.filter_of(findings.tally, topics), findings)
        else:
            self._find_text(request, topics, findings)

    def _find_text(self, request: FindRequest, topics: Sequence[str], findings: Findings) -> None:
        identified = request.filter_of(findings.tally, topics, is_identified=True)
        offset_msg_id = request.offset_msg_id
        if offset_msg_id is not None:
            host, offset = str(offset_msg_id.store_host), offset_msg_id.physical_offset
            bounds = {"physical_offset": (offset, offset), "store_host": (host, host)}
            self._find_within(identified, bounds, findings)
        position = None if findings.count else request.queue_position
        is_known = position is not None and position.topic in self.topics
        if position is not None and (is_known or request.kind == "queue-offset"):
            exact = {name: (value, value) for name, value in position._asdict().items()}
            self._find_within(
                request.filter_of(findings.tally, is_identified=True), exact, findings
            )
        if request.is_key and not findings.count:
            self.look_up(request.filter_of(findings.tally, topics, with_key=True), findings)
        if position is not None and not findings.count:
            if not is_known:
                findings.cover((no_topic_of_position(position.topic, self.topics),))
            for source, batches in self.reader.listing.sources:
                findings.cover(tuple(_not_archived(source, batches[-1].chosen, [position.topic])))
                findings.cover(_outside(position, source, batches))

    def look_up(self, key_filter: MessageFilter, findings: Findings) -> None:
        """Add the messages of the last listing that have the filter's key and match it."""
        errors: list[str] = []
        answer = findings.messages
        positions = (
            each
            for each in self.reader.positions(
                key_filter.index_key,
                _time_bounds(key_filter),
                errors,
                answer.may_keep,
                oldest=answer.oldest,
            )
            if key_filter.takes_topic(each["topic"])
            and key_filter.is_in_time(each["store_timestamp_ms"])
        )
        # One message more than asked for shows that the answer is truncated.
        most = _POSITIONS_AT_ONCE if answer.max_num is None else answer.max_num + 1
        while chunk := list(islice(positions, min(most, _POSITIONS_AT_ONCE))):
            for row in self.reader.at(chunk, errors):
                if _is_match(row, key_filter):
                    findings.add(message_of_row(row))
            if findings.is_abandoned:
                break
        findings.cover(self.coverage(key_filter, key_filter.record_topics, errors))

    def _find_within(
        self, message_filter: MessageFilter, bounds: Bounds, findings: Findings
    ) -> None:
        """Add the messages that match, for bounds that few messages are within."""
        errors: list[str] = []
        what = ArchiveRows({**bounds_of(message_filter), **bounds}, ColumnFilter(message_filter))
        files = self.reader.listing.files(what.bounds)
        for rows in self.reader.rows_of(files, what, errors):
            for message in matching(rows, message_filter):
                findings.add(message)
            if findings.is_abandoned:
                break
        findings.cover(self.coverage(message_filter, message_filter.record_topics, errors))

    def search(self, message_filter: MessageFilter, findings: Findings) -> None:
        """Add the messages of the last listing that match a filter, the newest first."""
        errors: list[str] = []
        what = ArchiveRows(bounds_of(message_filter), ColumnFilter(message_filter))
        for file in self.reader.listing.files(what.bounds, newest_first=True):
            if findings.is_past(file.bounds["store_timestamp_ms"][1]):
                continue
            is_ended = False
            for _, rows in self.reader.rows(file, what, errors, newest_first=True):
                is_ended = not findings.add_read(0, rows.num_rows)
                for message in matching(rows, message_filter):
                    findings.add(message)
                if is_ended:
                    break
            if not findings.add_read(file.size, 0) or is_ended:
                errors.append("the search was interrupted")
                break
            if findings.messages.is_over_bytes:
                break
        findings.cover(self.coverage(message_filter, message_filter.record_topics, errors))

    def lacks(self, topics: Sequence[str]) -> bool:
        return self.topics.isdisjoint(topics)

    def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        """Add the topics that the archive lacks: see `rocketlens.query.source.Source`."""
        findings.unknown.update(self.missing_topics(matching_topics(names, self.topics)[0]))

    def topics_matching(
        self, requested: Collection[str], *, checks_names: bool = True
    ) -> list[str]:
        """Return the topics that names and patterns match.

        :raises TopicNotFound: if a pattern matches no topic, or (with ``checks_names``) no topic
            has a name.
        """
        topics, unknown = matching_topics(requested, self.topics)
        if checks_names:
            unknown = self.missing_topics(topics) | unknown
        for error in unknown.values():
            raise error
        return topics

    def missing_topics(self, names: Iterable[str]) -> dict[str, TopicNotFound]:
        """Return an error for each name of an unknown topic."""
        topics = self.topics
        return {
            name: unknown_topic(name, topics, "this archive")
            for name in names
            if name not in topics
        }

    def coverage(
        self,
        times: "FindRequest | MessageFilter",
        topics: Iterable[str] | None,
        errors: Iterable[str],
        listing: Listing | None = None,
    ) -> tuple[Coverage, ...]:
        """Return the searched part of each source, its gaps in a time range of some topics, and
        those of the topics that are not archived from it.

        ``listing``: the listing that was searched (None: the current one).
        """
        covered: list[Coverage] = []
        for source, batches in (listing or self.reader.listing).sources:
            covered.extend(
                coverage_of(batches, times, frozenset(topics or ()), self.reader.listing.first_ms)
            )
            covered.extend(_not_archived(source, batches[-1].chosen, topics or ()))
        if not covered:
            covered.append(_failed(self.name, "nothing was archived yet: rocketlens archive run"))
        problems = self.reader.listing.problems
        covered.extend(_failed(self.name, each) for each in (*errors, *problems))
        return tuple(covered)

    def status(self) -> ArchiveStatus:
        """Return the archived part of each source, and the number of files; reads no file."""
        self.refresh()
        listing, everything = self.reader.listing, MessageFilter()
        files = [*listing.messages, *listing.keys]
        return ArchiveStatus(
            self.name,
            tuple(_source_status(*each, listing.first_ms) for each in listing.sources),
            len(self.topics),
            len(files),
            sum(each.size for each in files),
            self.coverage(everything, None, ()),
        )


def matching(rows: "pa.Table", message_filter: MessageFilter) -> Iterator[MessageExt]:
    for row in rows.to_pylist():
        if _is_match(row, message_filter):
            yield message_of_row(row)


def _is_match(row: dict[str, Any], message_filter: MessageFilter) -> bool:
    topic: str = row["topic"]
    if not message_filter.reads_records and not is_internal_topic(topic):
        # `ColumnFilter` has checked the rest.
        return message_filter.takes_topic(topic) and message_filter.is_in_time(
            row["store_timestamp_ms"]
        )
    return message_filter.matches(record_of(row))


def _time_bounds(message_filter: MessageFilter) -> "dict[str, tuple[Any, Any]]":
    begin = message_filter.begin
    if begin is None and message_filter.end >= limits.MAX_TIMESTAMP_MS:
        return {}
    return {"store_timestamp_ms": (_MIN_MS if begin is None else begin, message_filter.end)}


def bounds_of(message_filter: MessageFilter) -> "dict[str, tuple[Any, Any]]":
    """Return the bounds of the columns of matching messages."""
    topics = message_filter.record_topics
    of_topics = {"topic": (min(topics), max(topics))} if topics else {}
    return {**_time_bounds(message_filter), **of_topics}


def coverage_of(
    batches: Sequence[ArchivedBatch],
    times: "FindRequest | MessageFilter",
    topics: Collection[str],
    kept_ms: int,
) -> Iterator[Coverage]:
    """Yield the coverage of a source; days before ``kept_ms`` were deleted."""
    begin = kept_ms if times.begin is None else max(times.begin, kept_ms)
    last, source = batches[-1], batches[-1].source
    first_ms, last_ms = _held(batches, kept_ms)
    # A message with a future store time does not prove that all earlier ones are archived.
    last_ms = min(last_ms, last.asked_ms or last_ms)
    named = f" ({', '.join(last.chosen)})" if last.chosen else ""
    held = f"{source}{named}, {_time_text(first_ms)} to {_time_text(last_ms)}"
    missing = list(dict.fromkeys(each for each in known_missing(batches) if each.is_of(topics)))
    within = [each for each in missing if each.is_within(begin, times.end)]
    relies_on = None
    if len(within) < len(missing):
        other = next(each for each in missing if each not in within)
        relies_on = (
            f"clocks that were not set back around what {source} lacks at other times: {other.what}"
        )
    yield Coverage(
        held,
        SourceKind.ARCHIVE,
        SourceState.SEARCHED,
        last_ms or None,
        relies_on=relies_on,
        held_from_ms=first_ms or None,
    )
    for each in within:
        yield _failed(source, each.what)


def _held(batches: Sequence[ArchivedBatch], kept_ms: int) -> tuple[int, int]:
    """Return the store times of a source's oldest and newest message; 0 without messages."""
    times = [(each.first_ms, each.last_ms) for each in batches if each.messages]
    oldest_ms = min((max(first, kept_ms) for first, _ in times), default=0)
    return oldest_ms, max((last for _, last in times), default=0)


def _source_status(
    source: str, batches: Sequence[ArchivedBatch], kept_ms: int
) -> ArchivedSourceStatus:
    oldest_ms, newest_ms = _held(batches, kept_ms)
    return ArchivedSourceStatus(
        source,
        batches[-1].chosen,
        len(batches),
        sum(each.messages for each in batches),
        oldest_ms or None,
        newest_ms or None,
        batches[-1].archived_ms,
        tuple(dict.fromkeys(each.what for batch in batches for each in lost_of(batch))),
        tuple(dict.fromkeys(each.what for each in not_copied(batches))),
    )


def _not_archived(
    source: str, chosen: Collection[str], topics: Iterable[str]
) -> Iterator[Coverage]:
    # Waiting messages are archived once they are delivered.
    for topic in sorted({*topics} - WAITING_TOPICS) if chosen else ():
        if not any(fnmatchcase(topic, each) for each in chosen):
            yield _failed(source, f"topic {topic} is not archived, but {', '.join(chosen)}")


def _outside(
    position: QueuePosition, source: str, batches: "Sequence[ArchivedBatch]"
) -> tuple[Coverage, ...]:
    """Return the archived end of a source's queue, if a position is not within it.

    Batches of earlier versions do not record their ranges.
    """
    topic, queue_id, _ = position
    if not all(each.asked_ms for each in batches):
        return ()
    of_topic = (batch.ranges for batch in batches if topic in batch.topics)
    ranges = [each for several in of_topic for each in several if each.topic == topic]
    own = [each for each in ranges if each.queue_id == queue_id]
    bounds = (min(each.start for each in own), max(each.stop for each in own)) if own else None
    # Queues with smaller ids exist, even if they have no message yet.
    known = range(max((each.queue_id + 1 for each in ranges), default=0))
    return outside_of(position, bounds, known, Sentence("in_archive_of", source=source))


def _failed(source: str, error: str) -> Coverage:
    return Coverage(source, SourceKind.ARCHIVE, SourceState.FAILED, None, error)


def _time_text(timestamp_ms: int) -> str:
    shown = min(max(timestamp_ms, FIRST_TIME_MS), LAST_TIME_MS)
    return (_EPOCH + timedelta(milliseconds=shown)).isoformat(" ", "seconds")
