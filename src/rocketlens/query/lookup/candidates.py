"""Reads the candidates of an index look-up: the record decides whether it matches.

============================================  ==================================================
what is at the offset                         then
============================================  ==================================================
a record that matches                         it is an answer
a record that does not match                  the index entry must be that of another key, or the
                                              index file is corrupt
a damaged record that would match             a failure: the answer is incomplete
bytes that are not a record                   a failure, if the index entry is sound
what is deleted                               nothing
============================================  ==================================================
"""

from collections.abc import Callable

from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.commitlog_record import Reason, Record
from rocketlens.query.lookup.verify import MessageFilter
from rocketlens.store.read.index.index_files import CorruptIndexFile, Hit
from rocketlens.store.read.log.commitlog import CommitLog

Check = Callable[[CommitLog, Hit | None], None]


def check_entry(log: CommitLog, hit: Hit | None) -> None:
    """Check that an index entry without a matching record is that of another key.

    `hit` is None if the memory led there, which is read from the log itself.

    :raises CorruptIndexFile: if the entry contradicts the log.
    """
    if hit is None:
        return
    try:
        hit.file.check_entry(log, hit.number)
    except IndexFileError as error:
        raise CorruptIndexFile(hit.file, error) from error


def read_candidate(
    log: CommitLog,
    message_filter: MessageFilter,
    offset: int,
    hit: Hit | None,
    failures: list[str],
    *,
    min_offset: int | None = None,
    check: Check = check_entry,
) -> Record | None:
    """Return the record at an offset if it matches; add damage to `failures`.

    Below `min_offset`, by default that of the log as it is now, everything is deleted.

    :raises CorruptIndexFile: if an index file led to it that cannot be right.
    """
    try:
        record = log.record_at(offset)
    except RecordError as error:
        if offset < (log.min_offset if min_offset is None else min_offset):
            return None
        if error.reason != Reason.CRC:
            check(log, hit)
            failures.append(str(error))
        elif message_filter.may_match(log.record_at(offset, check_crc=False)):
            failures.append(str(error))
        return None
    if message_filter.matches(record):
        return record
    check(log, hit)
    return None
