"""What tests of a written store share: a clock that is told, options, messages, and readers."""

import hashlib
import socket
import struct
from pathlib import Path

from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Reason
from rocketlens.model.message import Host
from rocketlens.store.read.commitlog import CommitLog
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore, StoreOptions

STORE_HOST = Host("127.0.0.1", 10911)
BORN_HOST = socket.inet_aton("10.0.0.1") + struct.pack(">i", 5555)
BORN_HOST_V6 = socket.inet_pton(socket.AF_INET6, "fd00::7") + struct.pack(">i", 5555)
QUIET = StoreOptions(STORE_HOST, threads=False)
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


class Clock:
    """A clock that stands until it is told otherwise."""

    def __init__(self, now_ms=1_700_000_000_000):
        self.now_ms = now_ms

    def __call__(self):
        return self.now_ms


def open_small(path, config=SMALL, options=QUIET, **arguments):
    """Open a store of small files that does nothing by itself."""
    arguments.setdefault("clock", Clock())
    return MessageStore(Path(path), config, options, **arguments)


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
