"""What index files and consume queues prove about the begin of a store's log.

RocketMQ deletes the first file of a log when it is old, and in the next seconds the files of queues
and of the index that lead to nothing else any more, but the last one of each. So where such files
are there after a clean stop, the log lost its first file in another way: a copy lacks it.

With the file ``abort`` a broker runs, or did not come so far, and a RocketLens broker deletes index
files later: then they prove nothing.
"""

from collections.abc import Iterator

from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.index_file import HEADER_BYTES, decode_header
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.consumequeue import ConsumeQueue, ConsumeQueues
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.rocks import queues_in


def lost_begin(layout: StoreLayout, log: CommitLog, queues: ConsumeQueues) -> str | None:
    """Return what is known of messages before the begin of the log that no broker deleted; None if
    nothing is. O(queues + index files).
    """
    least = log.min_offset
    if least == 0 or layout.abort.exists() or layout.own.exists():
        return None
    for file, last in _deleted_with_log(layout, queues):
        if 0 <= last < least:
            return (
                f"the log begins at physical offset {least}, and {file} leads to what was before: "
                "a broker that deletes a file of the log deletes that, too, so the log's first "
                "file is lost"
            )
    return None


def first_time(log: CommitLog) -> int:
    """Return the store time of a log's first message, or, if that is damaged, any later."""
    try:
        return log.record_at(log.min_offset, check_crc=False).store_timestamp_ms
    except RecordError:
        return limits.MAX_TIMESTAMP_MS


def lost_begin_of(layout: StoreLayout, log: CommitLog, begin_ms: int) -> str | None:
    """Return what is known of messages from a store time on before the begin of a store's log,
    looked at once.
    """
    if begin_ms >= first_time(log):
        return None
    queues = queues_in(layout.consume_queue)
    try:
        return lost_begin(layout, log, queues)
    finally:
        queues.close()


def _deleted_with_log(layout: StoreLayout, queues: ConsumeQueues) -> Iterator[tuple[str, int]]:
    """Yield the first file of the index and of each queue, and the last physical offset in it.

    Not of those that have only one: a broker keeps that.
    """
    try:
        names = [file.name for file in fs.entries(layout.index) if file.name.isdigit()]
        if len(names) > 1:
            content = fs.read_part(layout.index / names[0], 0, HEADER_BYTES)
            header = decode_header(content or b"")
            if header.last_entry and header.begin_offset <= header.end_offset:
                yield f"index/{names[0]}", header.end_offset
    except (OSError, IndexFileError):
        pass
    try:
        queue_names = queues.names()
    except OSError:
        return
    for name in queue_names:
        try:
            queue = queues.queue(*name)
            last = -1 if queue is None else _last_of_first_file(queue)
        except OSError:
            continue
        if queue is not None and last >= 0:
            yield "/".join(queue.files[0].path.parts[-4:]), last


def _last_of_first_file(queue: ConsumeQueue) -> int:
    """Return the last physical offset in a queue's first file; -1 if it has no other file."""
    if len(queue.files) < 2:
        return -1
    first = queue.files[0]
    entry = queue.entry(first.first_queue_offset + first.entry_count - 1)
    return -1 if entry is None or entry.is_end else entry.physical_offset
