"""The state of a store directory: how it was closed, its sizes and times, index, disk, groups.

| fact | from |
|---|---|
| how it was closed | its lock, and RocketMQ's file ``abort`` |
| who wrote it | the text of the lock file, and directories and topics that a release has |
| topics, messages, times, the log's end | `rocketlens.query.facts.topic_list` |
| groups | `rocketlens.query.facts.groups` |
| the index builder | ``rocketlens/synced`` and ``rocketlens/index.json`` |
| of which broker it is a copy | ``rocketlens/tap.json`` |
"""

from dataclasses import replace
from itertools import chain

from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.model.answer import Coverage, SourceKind
from rocketlens.model.group import GroupsAnswer
from rocketlens.model.rocketmq import ROCKSDB_HALF_TOPIC, TIMER_TOPIC
from rocketlens.model.status import (
    IndexBuilderStatus,
    IndexStatus,
    StoreClosing,
    StoreStatus,
    TapStatus,
)
from rocketlens.model.topic import TopicKind
from rocketlens.query.facts.groups import groups_of_store
from rocketlens.query.facts.topic_list import topics_of_store
from rocketlens.query.store_reader import StoreReader
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import INDEX_LOCK, StoreLayout
from rocketlens.store.lock import LOCK_FILE, OUR_TEXT, is_locked
from rocketlens.store.read.config_tables import TOPICS_FILE, TOPICS_MEMBER, read_table
from rocketlens.store.read.index.index_state import safe_offset_of
from rocketlens.store.read.state import read_synced_offset
from rocketlens.store.read.tap_note import read_tap_note


def status_of_store(reader: StoreReader, disk: Disk, *, with_groups: bool = True) -> StoreStatus:
    """Return the state of a store, with its groups or without them.

    O(entries of all queues, and log behind them).

    :raises OSError: when its directory cannot be read.
    """
    layout = StoreLayout(reader.path)
    topics = topics_of_store(reader, ())
    groups = groups_of_store(reader) if with_groups else GroupsAnswer((), ())
    normal = [each for each in topics.topics if each.kind is TopicKind.NORMAL]
    counts = [each.messages for each in normal if not each.is_deleted]
    times = [(each.oldest_ms, each.newest_ms) for each in topics.topics]
    known_ms = [moment for moment in chain.from_iterable(times) if moment is not None]
    end_offset = _log_end(topics.coverage, reader.log.min_offset)
    space = disk.space(layout.root)
    return StoreStatus(
        path=str(reader.path),
        closing=closing_of(layout),
        written_by=writer_of(layout),
        log_files=len(reader.log.segments),
        log_bytes=sum(segment.size for segment in reader.log.segments),
        min_offset=reader.log.min_offset,
        end_offset=end_offset,
        queue_bytes=_queue_bytes(reader),
        index=replace(index_of(reader, end_offset), builder=index_builder_of(layout)),
        disk_total_bytes=space.total,
        disk_free_bytes=space.free,
        topics=len(normal),
        broker_topics=sum(each.is_of_broker for each in normal),
        messages=None if None in counts else sum(count or 0 for count in counts),
        oldest_ms=min(known_ms, default=None),
        newest_ms=max(known_ms, default=None),
        groups=groups.groups,
        coverage=(*topics.coverage, *groups.coverage),
        tap=tap_of(layout),
    )


def tap_of(layout: StoreLayout) -> TapStatus | None:
    """Return of which broker's log a store is a copy; None if it is not one.

    :raises OSError: when the note of the copy cannot be read now.
    """
    note = read_tap_note(layout)
    if note is None:
        return None
    return TapStatus(
        note.broker_name,
        note.address,
        note.behind_bytes,
        note.behind_ms,
        note.written_ms,
        tuple((gap.start, gap.stop) for gap in note.gaps),
        note.replaced,
        note.problem,
    )


def closing_of(layout: StoreLayout) -> StoreClosing:
    """Return whether a process has a store open, and if not, whether the last one closed it.

    :raises OSError: when its lock file cannot be opened.
    """
    if is_locked(layout.root):
        return StoreClosing.IN_USE
    return StoreClosing.KILLED if layout.abort.exists() else StoreClosing.CLEAN


def writer_of(layout: StoreLayout) -> str:
    """Return the broker that opened a store last, as precisely as its files tell."""
    if fs.read_part(layout.root / LOCK_FILE, 0, len(OUR_TEXT)) == OUR_TEXT:
        return "RocketLens"
    topics = read_table(layout.root, TOPICS_FILE, TOPICS_MEMBER).entries
    if (layout.root / "rocksdbstore").is_dir() or ROCKSDB_HALF_TOPIC in topics:
        return "RocketMQ 5.5"
    if (layout.root / "timerwheel").exists() or TIMER_TOPIC in topics:
        return "RocketMQ 5"
    return "RocketMQ 4" if topics else "RocketMQ"


def index_of(reader: StoreReader, end_offset: int) -> IndexStatus:
    """Return the state of the index files of a log that ends at ``end_offset``."""
    index = reader.index
    newest = [file.header.end_timestamp_ms for file in index.sound if file.last_entry]
    return IndexStatus(
        files=len(index.sound),
        damaged_files=sum(state.file is None for state in index.states),
        entries=sum(file.last_entry for file in index.sound),
        size_bytes=sum(fs.file_size(state.path) or 0 for state in index.states),
        newest_ms=max(newest, default=None),
        uncovered_bytes=sum(
            max((end_offset if stop is None else stop) - start, 0)
            for start, stop in index.uncovered()
        ),
    )


def index_builder_of(layout: StoreLayout) -> IndexBuilderStatus | None:
    """Return how far the index builder of a RocketLens broker came; None without such a broker.

    :raises OSError: when what it wrote cannot be read now.
    """
    synced = read_synced_offset(layout)
    if synced is None:
        return None
    safe = safe_offset_of(layout)
    changed = layout.index_state if layout.index_state.exists() else layout.own
    return IndexBuilderStatus(
        is_running=is_locked(layout.own, INDEX_LOCK),
        safe_offset=safe,
        behind_bytes=max(synced - safe, 0),
        silent_since_ms=changed.stat().st_mtime_ns // 1_000_000,
    )


def _log_end(coverage: tuple[Coverage, ...], min_offset: int) -> int:
    """Return the end of the log that listing the topics came to."""
    logs = (each for each in coverage if each.kind is SourceKind.COMMIT_LOG)
    return max((each.end_offset or 0 for each in logs), default=min_offset)


def _queue_bytes(reader: StoreReader) -> int:
    total = 0
    for name in reader.queues.names():
        try:
            queue = reader.queues.queue(*name)
        except OSError:
            # Named in the coverage of the topics.
            continue
        total += sum(file.entry_count for file in queue.files) * ENTRY_BYTES if queue else 0
    return total
