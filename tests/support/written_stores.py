"""What tests of a written store share: a clock that is told, options, messages, and readers."""

import hashlib
import socket
import struct
from pathlib import Path

import rocketlens
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Reason
from rocketlens.formats.index_file import ENTRY, decode_header, index_hashes
from rocketlens.model.message import Host
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.lock import LOCK_TEXT
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.index.index_driver import IndexBuilder
from rocketlens.store.write.message_store import MessageStore, StoreOptions
from tests.support.clocks import Clock

STORE_HOST = Host("127.0.0.1", 10911)
BORN_HOST = socket.inet_aton("10.0.0.1") + struct.pack(">i", 5555)
BORN_HOST_V6 = socket.inet_pton(socket.AF_INET6, "fd00::7") + struct.pack(">i", 5555)
QUIET = StoreOptions(STORE_HOST, threads=False)
# As the golden stores were configured.
GOLDEN = StoreConfig(
    mappedFileSizeCommitLog=262_144,
    mappedFileSizeConsumeQueue=20_000,
    maxHashSlotNum=500,
    maxIndexNum=1000,
    diskSpaceWarningLevelRatio=100,
)
SMALL = StoreConfig(
    mappedFileSizeCommitLog=16_384,
    mappedFileSizeConsumeQueue=600,
    maxHashSlotNum=50,
    maxIndexNum=100,
    diskMaxUsedSpaceRatio=99,
    diskSpaceCleanForciblyRatio=99,
    diskSpaceWarningLevelRatio=100,
)
"""Files so small that everything rolls."""


def open_small(path, config=SMALL, options=QUIET, **arguments):
    """Open a store of small files that does nothing by itself."""
    arguments.setdefault("clock", Clock())
    store = path if isinstance(path, StoreLayout) else Path(path)
    return MessageStore(store, config, options, **arguments)


def properties_of(number, tags="TagA"):
    """Give raw properties with a unique key and two keys."""
    return f"UNIQ_KEY\x01U{number:06}\x02KEYS\x01k{number} all\x02TAGS\x01{tags}\x02".encode()


def send(store, number, topic="Orders", queue_id=0, body=None, **arguments):
    """Append message ``number``."""
    body = b"body %d" % number if body is None else body
    arguments.setdefault("born_timestamp_ms", 1)
    return store.append(topic, queue_id, body, properties_of(number), BORN_HOST, **arguments)


def send_many(store, count, first=0, queues=3, body_bytes=100):
    """Append messages ``first`` to ``first + count - 1``, over some queues."""
    return [
        send(store, n, queue_id=n % queues, body=b"%d," % n * (body_bytes // 4))
        for n in range(first, first + count)
    ]


def records_of(path):
    """Give all records of a log, checked, in order."""
    log = CommitLog(Path(path) / "commitlog")
    records, offset = [], log.min_offset
    while True:
        try:
            record = log.record_at(offset)
        except RecordError as error:
            if error.reason == Reason.END:
                log.close()
                return records
            if error.reason != Reason.BLANK:
                raise
            offset = log.segment_of(offset).end_offset
            continue
        records.append(record)
        offset += record.total_size


def content_of(path, *names):
    """Give a digest of every file below some directories of a store."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for name in names or ("commitlog", "consumequeue", "index")
        for file in sorted(Path(path, name).rglob("*"))
        if file.is_file()
    }


def be_a_real_broker(path, *, writes_checkpoint=True):
    """Leave what each start of a real broker leaves, and perhaps its checkpoint."""
    with (path / "lock").open("r+b") as file:
        file.write(LOCK_TEXT)
    if writes_checkpoint:
        later = struct.pack(">qqq", *[1_800_000_000_000] * 3).ljust(4096, b"\0")
        (path / "checkpoint").write_bytes(later)


def queue_lengths(store):
    return {name: queue.next_offset for name, queue in store._appender.queues.items()}


def kill(store):
    """End a store as a kill does: what was written is in the page cache, nothing else is done."""
    store.close_abruptly()


def damage(path, position, content):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def assert_finds(path, numbers, lost=()):
    with rocketlens.open_store(path) as reader:
        for number in numbers:
            found = reader.query_message("Orders", f"k{number}", max_num=None).messages
            assert len(found) == (number not in lost), number
            if found:
                message = found[0]
                assert message.unique_key == f"U{number:06}"
                by_queue = reader.query_by_queue_offset(
                    "Orders", message.queue_id, message.queue_offset
                )
                assert by_queue.physical_offset == message.physical_offset


def builder_of(path, log_end, geometry=SMALL.geometry):
    return IndexBuilder(
        StoreLayout(path), geometry, with_tags=True, disk=Disk(), clock=Clock(), log_end=log_end
    )


def entries_of(path, geometry=SMALL.geometry):
    """Give hash and physical offset of every entry of all files, and check each header."""
    found = []
    for file in sorted((path / "index").iterdir()):
        content = file.read_bytes()
        header = decode_header(content[:40])
        start = geometry.entry_position(1)
        entries = list(
            ENTRY.iter_unpack(content[start : geometry.entry_position(header.next_entry)])
        )
        assert not any(content[geometry.entry_position(header.next_entry) :])
        assert (entries[0][1], entries[-1][1]) == (header.begin_offset, header.end_offset)
        found += [entry[:2] for entry in entries]
    return found


def expected_entries(path):
    return [
        (key_hash, record.physical_offset)
        for record in records_of(path)
        for key_hash in index_hashes(record, with_tags=True)
    ]
