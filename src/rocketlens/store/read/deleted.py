"""``rocketlens/deleted.json``: topics that were deleted, and how far the log is theirs.

The log keeps the messages of a deleted topic until they expire, and one that is made again under
its name begins at queue offset 0, as in RocketMQ. So recovery must not give the old messages queue
entries again: of a topic that is named here, no record below ``end_offset`` gets one, and a queue
with an entry for such a record was not removed in time and is removed now.

It is on the disk before a queue is removed. The record that ended at ``end_offset`` shows that a
mark is of this log; it goes when the log has nothing below it any more.

The file is a note with a checksum (:mod:`rocketlens.store.read.note`). One that is damaged, or that
an earlier version wrote without one, has no marks.
"""

from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.note import decode_note, opened_record

NOTE_KIND: Final = "deleted"


class DeletionMark(NamedTuple):
    """The physical offset up to which the log has a deleted topic's messages, and the record
    there.
    """

    end_offset: int
    last_record_offset: int
    last_record_timestamp_ms: int


def decode_marks(content: bytes | None) -> dict[str, DeletionMark]:
    """Return the marks in a file by topic; empty if it is damaged or missing."""
    note = decode_note(NOTE_KIND, content or b"")
    try:
        marks = note.value.items() if note is not None else ()
        return {str(topic): DeletionMark(*map(int, numbers)) for topic, numbers in marks}
    except (ValueError, TypeError):
        return {}


def read_ends(layout: StoreLayout, log: CommitLog) -> dict[str, int]:
    """Return ``end_offset`` by topic, of the marks that are of the store's log. Read only.

    :raises OSError: when the file, or the log, cannot be read now.
    """
    marks = decode_marks(fs.read_bytes(layout.deleted, limits.MAX_CONFIG_READ_BYTES))
    return {topic: mark.end_offset for topic, mark in marks.items() if is_of_log(mark, log)}


def is_of_log(mark: DeletionMark, log: CommitLog) -> bool:
    """Return whether the log has the record of a mark, and still has older ones.

    :raises OSError: when the log cannot be read now.
    """
    if mark.end_offset <= log.min_offset:
        return False
    try:
        record = opened_record(log, mark.last_record_offset)
    except RecordError:
        return False
    end_offset = mark.last_record_offset + record.total_size
    return (end_offset, record.store_timestamp_ms) == (
        mark.end_offset,
        mark.last_record_timestamp_ms,
    )
