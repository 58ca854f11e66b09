"""What the queries read: one open store, with what was found out about it so far."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from rocketlens import limits
from rocketlens.errors import ConfigError, IndexFileError, NotAStore, RecordError
from rocketlens.formats import config_json
from rocketlens.formats.commitlog_record import Record
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.store import fs
from rocketlens.store.commitlog import CommitLog
from rocketlens.store.consumequeue import ConsumeQueues
from rocketlens.store.index import IndexFile, IndexFiles
from rocketlens.store.scan import LogWalk, exhaust
from rocketlens.store.tail import Tail

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
INDEX: Final = "index"
TOPICS_FILE: Final = "config/topics.json"
_CONFIG_BYTES: Final = 256 * 1024 * 1024


class StoreSource:
    """The parts of a store directory, opened when first needed. Nothing is locked or written."""

    def __init__(self, path: Path) -> None:
        """List the commit log.

        :raises NotAStore: when there is none.
        """
        self.path = path
        if not path.is_dir():
            message = f"{path} is not a directory"
            raise NotAStore(message)
        self.log = CommitLog(path / COMMIT_LOG)
        self.queues = ConsumeQueues(path / CONSUME_QUEUE)
        self._index: IndexFiles | None = None
        self._tail: Tail | None = None

    @property
    def index(self) -> IndexFiles:
        """The index files, opened and checked on the first use."""
        if self._index is None:
            self._index = IndexFiles(self.path / INDEX, self.log)
        return self._index

    @property
    def tail(self) -> Tail:
        """The index in memory for what the index files don't answer for, read up to now."""
        if self._tail is None:
            self._tail = Tail(self.log, self.queue_knows)
            self._tail.cover(self.index.uncovered())
        self._tail.read_new()
        return self._tail

    def reject_index_file(self, file: IndexFile, error: IndexFileError) -> None:
        """Stop using an index file; memory takes over its part of the log."""
        self.index.reject(file, error)
        self._tail = None

    def log_failures(self, errors: Iterable[str]) -> Iterator[Coverage]:
        """Give places of the log that could not be read, as coverage; the first 1,000 by name."""
        unnamed = 0
        for count, error in enumerate(errors):
            if count < limits.DAMAGE_REPORTS:
                yield Coverage(COMMIT_LOG, SourceKind.COMMIT_LOG, SourceState.FAILED, None, error)
            else:
                unnamed += 1
        if unnamed:
            error = f"{unnamed} more places cannot be read: see `rocketlens index verify`"
            yield Coverage(COMMIT_LOG, SourceKind.COMMIT_LOG, SourceState.FAILED, None, error)

    def queue_knows(self, record: Record) -> bool | None:
        """Say whether the record's consume queue points to it; None when it has no such entry."""
        if record.queue_id < 0 or record.queue_offset < 0:
            return False
        queue = self.queues.queue(record.topic, record.queue_id)
        entry = queue.entry(record.queue_offset) if queue else None
        if entry is None:
            return None
        return (entry.physical_offset, entry.store_size) == (
            record.physical_offset,
            record.total_size,
        )

    def is_record_start(self, record: Record) -> bool:
        """Say whether a record that claims its place really begins there.

        By its consume queue, else by an index entry, else by walking from the nearest known start.
        """
        known = self.queue_knows(record)
        if known is not None:
            return known
        offset = record.physical_offset
        start = self._known_start(offset)
        if start == offset:
            return True
        walk = LogWalk(self.log, start, offset, confirm=self.queue_knows)
        exhaust(walk)
        return walk.position == offset

    def begins_here(self, physical_offset: int) -> bool:
        """Say whether a record began at an offset whose bytes are now damaged."""
        walk = LogWalk(self.log, self._known_start(physical_offset), physical_offset + 1)
        exhaust(walk)
        return any(damage.start == physical_offset for damage in walk.damage)

    def _known_start(self, physical_offset: int) -> int:
        """Give the nearest offset at or before this one where a record is known to begin."""
        segment = self.log.segment_of(physical_offset)
        known = segment.base_offset if segment else self.log.min_offset
        for file in self.index.sound:
            start = file.known_start_before(physical_offset)
            if start is not None and start > known and self._is_readable(start):
                known = start
        return known

    def _is_readable(self, physical_offset: int) -> bool:
        try:
            self.log.record_at(physical_offset, check_crc=False)
        except RecordError:
            return False
        return True

    def topics(self) -> set[str]:
        """Give every topic that the config, the queues or the log read so far know of.

        When neither config nor queues are there the whole log is read for its topics.
        """
        known = set(self.queues.topics()) | self._configured_topics()
        if not known:
            self._tail = Tail(self.log, self.queue_knows)
            self._tail.cover([(self.log.min_offset, None)])
        return known | set(self.tail.topics)

    def _configured_topics(self) -> set[str]:
        topics: set[str] = set()
        for name in (TOPICS_FILE, f"{TOPICS_FILE}.bak"):
            content = fs.read_bytes(self.path / name, _CONFIG_BYTES)
            if content:
                try:
                    table: Any = config_json.loads(content)
                except ConfigError:
                    continue
                if isinstance(table, dict) and isinstance(table.get("topicConfigTable"), dict):
                    topics |= set(table["topicConfigTable"])
        return topics

    def close(self) -> None:
        """Unmap everything."""
        if self._index:
            self._index.close()
        self.queues.close()
        self.log.close()
