"""Infers settings of the broker from the files of a store."""

from collections import Counter
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats import index_file
from rocketlens.formats.commitlog_record import Record
from rocketlens.formats.consumequeue_entry import DEFAULT_FILE_BYTES, ENTRY_BYTES
from rocketlens.formats.index_file import DEFAULT_GEOMETRY, Geometry, tags_hash
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import ROCKSDB_HALF_MESSAGE_TOPIC
from rocketlens.model.text import java
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.consumequeue import ConsumeQueues
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.rocks import queue_database
from rocketlens.store.write.index.index_resume import index_names

_MAX_ENTRIES_READ: Final = 20_000
_MAX_RECORDS_READ: Final = 500
_MAX_QUEUE_FILES_READ: Final = 100


def index_paths(store: Path) -> list[Path]:
    return [store / "index" / name for name in index_names(store / "index")]


def index_geometry(store: Path) -> Geometry:
    """Return the geometry of the newest sound index file, or RocketMQ's default."""
    for path in reversed(index_paths(store)):
        with fs.MappedFile(path) as mapped:
            try:
                return index_file.infer_geometry(mapped.content)
            except IndexFileError:
                continue
    return DEFAULT_GEOMETRY


def has_tag_entries(store: Path, log: CommitLog, geometry: Geometry) -> bool:
    """Return whether the store's broker indexes tags, as RocketMQ does since 5.5.

    Index entries of records with tags decide. Without them a store of 5.5 is recognized by the
    directory ``rocksdbstore``, or by a system topic of that version.
    """
    for path in reversed(index_paths(store)):
        with fs.MappedFile(path) as mapped:
            answer = _entries_have_tags(mapped, log, geometry)
        if answer is not None:
            return answer
    topics = fs.read_bytes(store / "config" / "topics.json", limits.MAX_CONFIG_READ_BYTES) or b""
    return (store / "rocksdbstore").is_dir() or ROCKSDB_HALF_MESSAGE_TOPIC.encode() in topics


def _entries_have_tags(mapped: fs.MappedFile, log: CommitLog, geometry: Geometry) -> bool | None:
    """Return whether one file has entries for tags, or None if no record in it has tags."""
    try:
        header = index_file.decode_header(mapped.view[: index_file.HEADER_BYTES])
        if len(mapped) != geometry.file_bytes:
            geometry = index_file.infer_geometry(mapped.content)
    except IndexFileError:
        return None
    hashes: dict[int, set[int]] = {}
    last = min(header.last_entry, geometry.entry_count - 1, _MAX_ENTRIES_READ)
    for number in range(1, last + 1):
        entry = index_file.decode_entry(mapped.view, geometry, number)
        hashes.setdefault(entry.physical_offset, set()).add(entry.key_hash)
    # The file can end within the entries of its last record.
    has_tags = None
    for offset in sorted(hashes)[:-1][:_MAX_RECORDS_READ]:
        try:
            record = log.record_at(offset)
        except RecordError:
            continue
        tags = _properties(record).get(props.TAGS)
        if tags:
            has_tags = tags_hash(record.topic, tags) in hashes[offset]
            if has_tags:
                break
    return has_tags


def batch_topics(store: Path) -> set[str]:
    return {entry.name for entry in fs.entries(StoreLayout(store).batch_queues)}


def queues_are_in_rocksdb(store: Path) -> bool:
    directory = StoreLayout(store).consume_queue
    database = queue_database(directory)
    return database == directory or (database is not None and not list(fs.entries(directory)))


def queue_file_bytes(store: Path) -> int:
    """Return the size of most consume queue files, or RocketMQ's default."""
    sizes: Counter[int] = Counter()
    for topic in fs.entries(store / "consumequeue"):
        for queue in fs.entries(Path(topic.path)):
            for file in fs.entries(Path(queue.path)):
                size = fs.size_of(file)
                if size and size % ENTRY_BYTES == 0:
                    sizes[size] += 1
        if sizes.total() > _MAX_QUEUE_FILES_READ:
            break
    return sizes.most_common(1)[0][0] if sizes else DEFAULT_FILE_BYTES


def delays_in_queues(store: Path, log: CommitLog, topic: str) -> dict[int, int]:
    """Return the delay of each level, in milliseconds, from the consume queues of ``topic``.

    An entry has the delivery time, and its record the store time and the level.
    """
    delays: dict[int, Counter[int]] = {}
    queues = ConsumeQueues(store / "consumequeue")
    try:
        for name in queues.names():
            queue = queues.queue(*name) if name.topic == topic else None
            for number, (_, entry) in enumerate(queue.entries() if queue else ()):
                if number == _MAX_RECORDS_READ:
                    break
                try:
                    record = log.record_at(entry.physical_offset)
                except RecordError:
                    continue
                level = props.delay_level(_properties(record))
                if record.topic == topic and level > 0 and entry.has_tags_code:
                    delay = entry.tags_code - record.store_timestamp_ms
                    delays.setdefault(level, Counter())[delay] += 1
    finally:
        queues.close()
    return {
        level: counts.most_common(1)[0][0]
        for level, counts in delays.items()
        if counts.most_common(1)[0][0] >= 0
    }


def _properties(record: Record) -> dict[str, str]:
    return props.parse(java.decode_utf8(record.properties))
