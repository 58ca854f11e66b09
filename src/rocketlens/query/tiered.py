"""Searches the part of a store that is only in tiered storage.

There, each queue has its own log (`rocketlens.store.read.tiers`). It is searched up to the first
message that the store's log contains, so no message is found twice.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rocketlens.errors import NotAStore, RecordError
from rocketlens.formats.commitlog_record import Record
from rocketlens.model.answer import Coverage, SourceKind, failure
from rocketlens.model.message_id import NOT_IN_LOG
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.consumequeue import QueueName
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.log_evidence import first_time
from rocketlens.store.read.log.scan import LogWalk
from rocketlens.store.read.tiers import QueueLog, read_tiers

if TYPE_CHECKING:
    from pathlib import Path

    from rocketlens.query.store_reader import StoreReader

_TIERED: Final = "tiered"
_TWICE: Final = 100_000
"""Messages of a queue that a killed broker can write twice: ten times the default batch."""

Opener = Callable[[StoreLayout, str], "StoreReader"]
"""Opens the log of a queue under a name; raises NotAStore if it has no file."""


class TieredLogs:
    """The logs of single queues, each up to the start of the store's log."""

    def __init__(self, reader: "StoreReader", open_log: Opener) -> None:
        self._reader: Final = reader
        self._open_log: Final = open_log
        self._opened: dict[Path, tuple[int | None, StoreReader | None]] = {}
        """By path: the first queue offset in the store's log, and the opened log before it."""
        self._firsts: tuple[tuple[int, int], dict[QueueName, int]] | None = None
        directories = (reader.layout.tiers, reader.layout.tiered)
        self._directories = [str(each) for each in directories if each is not None]

    @property
    def is_there(self) -> bool:
        return any(map(fs.exists, self._directories))

    def is_needed(self, begin: int | None) -> bool:
        """Return whether only tiered storage can have messages from a store time on."""
        reader = self._reader
        if reader.log.min_offset == 0 or reader.layout.is_log_of_queue or not self.is_there:
            return False
        return begin is None or begin < first_time(reader.log)

    def logs(
        self, takes: Callable[[QueueLog], bool]
    ) -> tuple[list[tuple[QueueLog, "StoreReader"]], tuple[Coverage, ...]]:
        """Return the opened logs of some queues, and failures as coverage.

        A log stays open until the store is closed, or its start or end changes.
        """
        tiers = read_tiers(self._reader.layout)
        opened: list[tuple[QueueLog, StoreReader]] = []
        failures = [] if tiers.problem is None else [tiers.problem]
        for queue in filter(takes, tiers.logs):
            failures += queue.lost()
            try:
                log = self._opened_log(queue)
            except (NotAStore, OSError) as error:
                failures.append(f"{queue.path}: {error}")
                continue
            if log is not None:
                opened.append((queue, log))
        return opened, tuple(failure(_TIERED, SourceKind.COMMIT_LOG, each) for each in failures)

    def first_of(self, topic: str, queue_id: int) -> int | None:
        """Return a queue's first offset if only tiered storage has it, else None."""
        if not self.is_needed(None):
            return None
        logs, _ = self.logs(lambda queue: (queue.topic, queue.queue_id) == (topic, queue_id))
        for _, log in logs:
            try:
                return log.log.record_at(log.log.min_offset, check_crc=False).queue_offset
            except RecordError:
                continue
        return None

    def _opened_log(self, queue: QueueLog) -> "StoreReader | None":
        """Return the log of a queue before the store's log; None if that is empty."""
        first = self._first_in_log(QueueName(queue.topic, queue.queue_id))
        before, log = self._opened.get(queue.path, (None, None))
        if queue.path in self._opened and before == first:
            if log is not None:
                log.refresh()
            return log
        if log is not None:
            log.close()
        log = self._open_log(
            StoreLayout(queue.path, (queue.path,)), f"{_TIERED}/{queue.topic}/{queue.queue_id}"
        )
        log.on_progress = self._reader.on_progress
        stop = None if first is None else _begin_of(log, queue, first)
        if stop is not None and stop <= log.log.min_offset:
            log.close()
            log = None
        elif stop is not None and log is not None:
            log.log.end_before(stop)
        if log is not None:
            log.written_end = queue.end_offset if stop is None else stop
        self._opened[queue.path] = first, log
        return log

    def _first_in_log(self, name: QueueName) -> int | None:
        """Return the first queue offset in the store's log; None if the queue has no message there.

        The consume queue is sufficient if it also has the previous entry, of a deleted message.
        """
        reader = self._reader
        try:
            queue = reader.queues.queue(*name)
            if queue is not None and queue.files:
                first = queue.first_kept(reader.log.min_offset)
                before = queue.entry(first - 1) if first else None
                if first == 0 or (
                    before is not None and before.physical_offset < reader.log.min_offset
                ):
                    return first
        except OSError:
            pass
        return self._firsts_of_log().get(name)

    def _firsts_of_log(self) -> dict[QueueName, int]:
        """Return the first offset of each queue in the log. O(log); cached until it changes."""
        log = self._reader.log
        state = log.min_offset, log.version
        if self._firsts is None or self._firsts[0] != state:
            firsts: dict[QueueName, int] = {}
            for topic, queue_id, queue_offset, _ in _entries(log, log.min_offset, self._reader):
                firsts.setdefault(QueueName(topic, queue_id), queue_offset)
            self._firsts = state, firsts
        return self._firsts[1]

    def close(self) -> None:
        for _, log in self._opened.values():
            if log is not None:
                log.close()
        self._opened.clear()


def outside_log(record: Record) -> Record:
    """Return a record that is not in the store's log, without a physical offset."""
    return replace(record, physical_offset=NOT_IN_LOG)


def findings_outside_log(findings: Findings) -> Findings:
    """Return findings for the log of a queue, for `Findings.add_part`.

    Its physical offsets are not those of the store's log, so its messages get no physical offset
    and no offset message id.
    """
    part = Findings(
        findings.messages, findings.on_added, findings.report_read, tally=findings.tally
    )
    to_logical = findings.to_logical or (lambda record: record)
    part.to_logical = lambda record: to_logical(outside_log(record))
    return part


def find_in_tiers(
    reader: "StoreReader",
    message_filter: MessageFilter,
    findings: Findings,
    find: Callable[["StoreReader", MessageFilter, Findings], None],
) -> None:
    """Search the logs in tiered storage with ``find``.

    Does nothing if the store's log already has enough newer messages.
    """
    if not reader.tiered.is_needed(message_filter.begin) or _is_enough(findings):
        return
    logs, lost = reader.tiered.logs(lambda queue: message_filter.takes_topic(queue.topic))
    for queue, log in logs:
        of_queue = message_filter
        if not message_filter.light:
            of_queue = replace(message_filter, topic=queue.topic, topics=None)
        part = findings_outside_log(findings)
        find(log, of_queue, part)
        findings.add_part(part)
    findings.cover(lost)


def _is_enough(findings: Findings) -> bool:
    messages = findings.messages
    if messages.max_num is None or messages.oldest:
        return False
    return findings.count >= messages.max_num and messages.truncated


def _begin_of(log: "StoreReader", queue: QueueLog, first: int) -> int | None:
    """Return the offset in its log of a queue's first message from ``first`` on, or None.

    The queue's index leads to a position that is certainly before it.
    """
    start = position_of(log, queue, max(first - _TWICE, 0)) or log.log.min_offset
    for _, _, queue_offset, physical_offset in _entries(log.log, start, log):
        if queue_offset >= first:
            return physical_offset
    return None


def position_of(log: "StoreReader", queue: QueueLog, queue_offset: int) -> int | None:
    """Return the position of a message in the log of its queue, by the queue's index, or None."""
    physical_offset = queue.physical_offset(queue_offset)
    try:
        if physical_offset is not None:
            record = log.log.record_at(physical_offset, check_crc=False)
            return physical_offset if record.queue_offset == queue_offset else None
    except RecordError:
        pass
    return None


def _entries(
    log: CommitLog, start: int, reader: "StoreReader"
) -> Iterator[tuple[str, int, int, int]]:
    """Yield topic, queue id, queue offset and physical offset of queued messages, in log order."""
    for read in LogWalk(log, start, confirm=reader.is_indexed).rows():
        for topic, queue_id, rows in read.queued().queues():
            columns = (rows.column(name).tolist() for name in ("queue_offset", "physical_offset"))
            for queue_offset, physical_offset in zip(*columns, strict=True):
                yield topic, queue_id, queue_offset, physical_offset
