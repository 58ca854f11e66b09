"""The source over one store directory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rocketlens.model.answer import SourceKind
from rocketlens.model.rocketmq import LMQ_PREFIX
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.by_id import find_by_offset_id
from rocketlens.query.lookup.by_key import find_by_key
from rocketlens.query.lookup.by_queue_offset import find_by_queue_offset
from rocketlens.query.lookup.newest import find_newest
from rocketlens.query.request import FindRequest
from rocketlens.query.store_reader import StoreReader
from rocketlens.query.topic_choice import is_pattern, no_topic_of_position
from rocketlens.store.read.log.scan import LogWalk


class StoreSource:
    """Finds the messages of one store directory. Its methods block."""

    kind: Final = SourceKind.COMMIT_LOG

    def __init__(self, reader: StoreReader) -> None:
        self.reader: Final = reader

    @property
    def path(self) -> Path:
        return self.reader.path

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def is_one_log(self) -> bool:
        """Whether all messages are in the log: there is no tiered storage."""
        return not self.reader.tiered.is_there

    def oldest_ms(self) -> dict[str, int]:
        """Return the store time of the log's first message, by the name of the log."""
        reader = self.reader
        reader.check_open()
        reader.refresh()
        if reader.tiered.is_there:
            return {}
        first = next(LogWalk(reader.log, reader.log.min_offset).records(), None)
        return {} if first is None else {reader.log_name: first.store_timestamp_ms}

    def find(self, request: FindRequest, findings: Findings) -> None:
        reader = self.reader
        reader.check_open()
        reader.refresh()
        topics, unknown = reader.topics.choose(request.topics)
        findings.unknown.update(unknown)
        findings.to_logical = reader.static_topics.to_logical
        findings.cover(reader.static_topics.coverage(topics))
        if unknown and not topics:
            # The whole log was read for the topics.
            log = reader.log_coverage(reader.tail.end_offset, reader.least_end(reader.tail_end))
            findings.cover((log, *reader.topics.coverage(is_found=False)))
            return
        if request.text is None:
            message_filter = request.filter_of(findings.tally, topics)
            find_newest(reader, message_filter, findings, exhaustive=request.exhaustive)
        else:
            self._find_text(request, topics, findings)
        if any(map(is_pattern, request.topics)):
            findings.cover(tuple(reader.topics.coverage(is_found=bool(findings.count))))

    def _find_text(self, request: FindRequest, topics: Sequence[str], findings: Findings) -> None:
        reader = self.reader
        with_kept = findings.has_kept = request.asks_for_kept
        offset_msg_id = request.offset_msg_id
        if offset_msg_id is not None:
            message_filter = request.filter_of(
                findings.tally, topics, with_kept=with_kept, is_identified=True
            )
            find_by_offset_id(reader, offset_msg_id, message_filter, findings)
        position = None if findings.count else request.queue_position
        if position is not None and (
            request.kind == "queue-offset" or self._may_be_there(position.topic)
        ):
            message_filter = request.filter_of(findings.tally, is_identified=True)
            stored, elsewhere = reader.static_topics.to_physical(position)
            if stored is not None:
                find_by_queue_offset(reader, stored, message_filter, findings)
            findings.cover(() if findings.count else elsewhere)
        if request.is_key and not findings.count:
            key_filter = request.filter_of(
                findings.tally, topics, with_key=True, with_kept=with_kept
            )
            find_by_key(reader, key_filter, findings)
        if position is not None and not findings.count and not self._may_be_there(position.topic):
            findings.cover((no_topic_of_position(position.topic, reader.topics.known()),))

    def _may_be_there(self, topic: str) -> bool:
        """Return whether a topic is known or can exist: only queues name light topics."""
        return topic.startswith(LMQ_PREFIX) or topic in self.reader.topics.known()

    def lacks(self, topics: Sequence[str]) -> bool:
        """Return True if neither queues nor the tail contain these topics; False if unknown."""
        queues = set(self.reader.queues.topics())
        return bool(queues) and queues.union(self.reader.tail.topics).isdisjoint(topics)

    def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        unknown, coverage = self.reader.topics.check_known(names)
        findings.unknown.update(unknown)
        if coverage:
            findings.cover(coverage)
