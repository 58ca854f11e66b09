"""Opens a store for writing: checks, recovery and the appender's start.

1. A store with a DLedger log, RocksDB databases or batch queues is refused: only RocketMQ can write
   them. Directories of an interrupted exchange are restored.
2. The sizes of existing files are compared with the configuration, before anything is changed.
3. ``abort`` is created. As long as it exists, the store was not closed cleanly.
4. Log and queues are recovered (:mod:`rocketlens.store.write.recovery`). If the log is missing, its
   queues are deleted.
5. The appender continues at the log's end.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, field

from rocketlens.errors import BadInput, NotAStore
from rocketlens.model.text.counted import counted
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.lock import StoreLock
from rocketlens.store.read.config_tables import IN_DATABASES, database_of
from rocketlens.store.read.former_topics import DeletionMark
from rocketlens.store.read.log.commitlog import OpenLog, Replica
from rocketlens.store.read.rocks import queue_database
from rocketlens.store.read.state import StoreState, read_state, read_synced
from rocketlens.store.write.append import Appender
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.deleted_topics import DeletedTopics
from rocketlens.store.write.queue.queue_files import QueueFiles, check_file_sizes, list_queue_files
from rocketlens.store.write.recovery import Recovered, Recovery

_log: Final = logging.getLogger(__name__)


class Opened(NamedTuple):
    """The result of opening, and the marks of deleted topics."""

    recovered: Recovered
    deleted: DeletedTopics
    state_offset: int


class Opening(Struct):
    """Opens one locked store for an appender that is not started yet."""

    layout: StoreLayout
    config: StoreConfig
    disk: Disk
    lock: StoreLock
    appender: Appender
    make_durable: Callable[[], None]
    _recovered: Recovered = field(default_factory=Recovered)

    def run(self) -> Opened:
        """Open or create the store, and start the appender.

        :raises BadInput: if its files have other sizes than the configuration, or are of a kind
            that only RocketMQ can write.
        """
        layout, appender = self.layout, self.appender
        _check_writable(layout)
        self.disk.make_directory(layout.commit_log)
        self.disk.make_directory(layout.own)
        self._note_log()
        self.disk.restore_directories(layout.root)
        log = self._existing_log()
        state = read_state(layout)
        queue_files = self._existing_queue_files(log, state)
        deleted = DeletedTopics(layout, self.disk, appender, self.make_durable)
        was_closed = fs.file_size(layout.abort) is None
        first = self._mark_open(was_closed=was_closed)
        if log is not None:
            self._recover(log, queue_files, state, deleted, was_closed=was_closed)
        else:
            self._delete_stale_queues(queue_files)
        recovered = self._recovered
        self._log_recovery(has_log=log is not None, was_closed=was_closed)
        appender.last = recovered.last
        first += recovered.later
        full = appender.start(recovered.base_offset, recovered.end_offset, first)
        if full is not None:
            if log is None:
                raise full
            _log.warning("%s: nothing is stored until there is room: %s", layout.root, full)
        state_offset = state.queues_offset if state and recovered.is_ours else -1
        return Opened(recovered, deleted, state_offset)

    def _note_log(self) -> None:
        """Record the directory of the log, for readers that get only the store's directory."""
        layout = self.layout
        if layout.elsewhere:
            self.disk.write_durably(layout.log_path, str(layout.commit_log).encode())
        else:
            self.disk.remove_file(layout.log_path)

    def _mark_open(self, *, was_closed: bool) -> list[Callable[[], None]]:
        """Create ``abort``; return the work to do later if the disk is full."""
        content = str(fs.pid()).encode()

        def mark() -> None:
            self.disk.write_durably(self.layout.abort, content)

        try:
            mark()
        except OSError as error:
            if error.errno not in fs.DISK_FULL_ERRORS:
                raise
            return [mark] if was_closed else []
        return []

    def _existing_log(self) -> OpenLog | None:
        """Open the log for recovery; return None without one.

        :raises BadInput: if its segments have another size than the configuration.
        """
        try:
            log = OpenLog(self.layout.commit_log)
        except NotAStore:
            return None
        size = self.config.mappedFileSizeCommitLog
        for segment in log.segments:
            if segment.size != size or segment.base_offset % size:
                log.close()
                raise BadInput(
                    f"{segment.path} has {segment.size} bytes: mappedFileSizeCommitLog must be "
                    f"the size that the store was created with, not {size}"
                )
        return log

    def _existing_queue_files(self, log: OpenLog | None, state: StoreState | None) -> QueueFiles:
        """List the queue files.

        :raises BadInput: if they have another size than the configuration.
        """
        files = list_queue_files(self.layout.consume_queue)
        if log is None:
            return files
        try:
            is_of_log = state is not None and state.is_of(log)
            known_bytes = state.queue_file_bytes if state is not None and is_of_log else None
            check_file_sizes(files, self.config.queue_file_bytes, known_bytes)
        except BaseException:
            log.close()
            raise
        return files

    def _recover(
        self,
        log: OpenLog,
        files: QueueFiles,
        state: StoreState | None,
        deleted: DeletedTopics,
        *,
        was_closed: bool,
    ) -> None:
        deleted.keep_those_of(log)
        recovery = Recovery(
            self.layout, self.disk, log, self.appender, files=files, deleted=deleted.ends
        )
        synced = read_synced(self.layout)
        recovered = self._recovered = recovery.run(
            state, synced, is_marked=self.lock.is_marked(), was_closed=was_closed
        )
        log.close()
        for topic, last in recovered.deleted.items():
            end_offset = last.physical_offset + last.store_size
            mark = DeletionMark(end_offset, last.physical_offset, last.store_timestamp_ms)
            deleted.put(topic, mark)
        if recovered.deleted:
            _save(deleted)
        end_offset, notes = recovered.end_offset, recovered.notes
        if synced is not None and synced.offset > end_offset and not notes:
            notes.append(
                "the log is not the one that was here before: it ends at physical offset "
                f"{end_offset}, and was synced up to {synced.offset}"
            )

    def _delete_stale_queues(self, files: QueueFiles) -> None:
        """Delete the queues of a missing log, as RocketMQ does: a new log begins at 0.

        The index builder detects that its files belong to another log.
        """
        layout, is_one = self.layout, False
        for topic, queue_id in files:
            directory = layout.consume_queue / topic / str(queue_id)
            for entry in list(fs.entries(directory)):
                self.disk.remove_file(Path(entry.path))
                is_one = True
            self.disk.sync_directory(directory)
        if is_one:
            self._recovered.notes.append(
                "the log is not the one that was here before: it is gone, and its queues with it"
            )

    def _log_recovery(self, *, has_log: bool, was_closed: bool) -> None:
        recovered, root = self._recovered, self.layout.root
        if not has_log:
            _log.info("%s: a new store", root)
        elif was_closed:
            _log.info("%s: it was closed cleanly; the log ends at %d", root, recovered.end_offset)
        else:
            _log.warning(
                "%s: it was not closed cleanly; %s read again from physical offset %d on, "
                "%s written, the log ends at %d",
                root,
                counted(recovered.record_count, "message"),
                recovered.read_from,
                counted(recovered.entries_written, "queue entry", "queue entries"),
                recovered.end_offset,
            )
        for note in recovered.notes:
            _log.warning("%s: %s", root, note)
        if recovered.damage:
            count, first = len(recovered.damage), recovered.damage[0]
            _log.warning("%s: %d damaged ranges in the log stay, first %s", root, count, first)
        if recovered.cut is not None:
            _log.warning("%s: cut off the log's end: %s", root, recovered.cut)


def _check_writable(layout: StoreLayout) -> None:
    """Check that RocketLens can write the store's kinds of log, queues and tables.

    :raises BadInput: if only RocketMQ can.
    """
    replica = Replica.beside(layout.commit_log)
    database = _database_of(layout)
    if replica is not None:
        problem = f"{replica.data} is a DLedger log"
    elif database is not None:
        problem = f"{database} is a RocksDB database, with queues or tables of this store"
    elif any(list_queue_files(layout.batch_queues).values()):
        problem = f"{layout.batch_queues} has batch queues (queue.type=BatchCQ)"
    else:
        return
    raise BadInput(
        f"{problem}, which only RocketMQ can write: search it with --store {layout.root}, and give "
        "the broker another storePathRootDir"
    )


def _database_of(layout: StoreLayout) -> Path | None:
    tables = (database_of(layout.root / file, table) for file, table in IN_DATABASES.items())
    databases = (queue_database(layout.consume_queue), *tables)
    return next((each for each in databases if each is not None), None)


def _save(deleted: DeletedTopics) -> None:
    deleted.is_changed = False
    try:
        deleted.write_recovered()
    except OSError as error:
        if error.errno not in fs.DISK_FULL_ERRORS:
            raise
        deleted.is_changed = True
