"""Notes: small JSON files about a log, with a checksum and a mark that identifies the log.

A note that is damaged or belongs to another log is ignored. Its form::

    {"crc32":"91b2c3d4","note":{"kind":"index","log":[4711,230,2864434397],"value":{...}}}

``crc32`` is the checksum of the bytes of ``note``. ``kind`` is the kind of note, so a file under
another's name is ignored, too. ``log`` is the mark of the log: physical offset, size and CRC-32 of
one of its records; null for a log without records. If the log was replaced, or cut and written
again, it has another record there.

A file of another form, from an earlier version, is not a note.
"""

import json
import re
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Record
from rocketlens.store import fs
from rocketlens.store.read.log.commitlog import CommitLog, SegmentLost

_WRAPPING: Final = re.compile(rb'\{"crc32":"([0-9a-f]{8})","note":(\{.*\})\}\Z', re.DOTALL)


class LogMark(NamedTuple):
    """One record that identifies a log."""

    record_offset: int
    record_bytes: int
    record_crc: int
    """CRC-32 of the whole record, including its store time, hosts and properties."""

    @property
    def end_offset(self) -> int:
        return self.record_offset + self.record_bytes

    @classmethod
    def of(cls, record_offset: int, content: bytes | memoryview) -> Self:
        return cls(record_offset, len(content), zlib.crc32(content))

    @classmethod
    def at(cls, log: CommitLog, record_offset: int) -> Self:
        record = read_record(log, record_offset)
        segment = log.segment_of(record_offset)
        assert segment is not None  # noqa: S101 - a record was just read from it
        start = record_offset - segment.base_offset
        return cls.of(record_offset, log.map(segment).view[start : start + record.total_size])

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """Return the mark that :func:`encode_note` wrote; None if `value` is no mark."""
        if not isinstance(value, list) or len(value) != len(cls._fields):
            return None
        if not all(
            type(number) is int and 0 <= number < limits.MAX_PHYSICAL_OFFSET for number in value
        ):
            return None
        return cls(*value)

    def is_of(self, log: CommitLog) -> bool:
        """Return whether `log` has this record. False also if the log deleted it."""
        try:
            return type(self).at(log, self.record_offset) == self
        except RecordError:
            return False


def read_record(log: CommitLog, record_offset: int) -> Record:
    """Return the record at an offset without checking its body.

    :raises RecordError: if no record is there, or its segment was deleted.
    :raises OSError: if its segment cannot be opened now, so nothing is known about the record.
    """
    try:
        return log.record_at(record_offset, check_crc=False)
    except SegmentLost as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
            raise cause from None
        raise


class Note(NamedTuple):
    """The value of a sound note, and the mark of its log."""

    value: dict[str, Any]
    mark: LogMark | None
    """None for a log without records."""


def encode_note(kind: str, value: dict[str, Any], mark: LogMark | None) -> bytes:
    note = {"kind": kind, "log": None if mark is None else list(mark), "value": value}
    content = json.dumps(note, separators=(",", ":")).encode()
    return b'{"crc32":"%08x","note":%s}' % (zlib.crc32(content), content)


def decode_note(kind: str, content: bytes) -> Note | None:
    match = _WRAPPING.match(content)
    if match is None or int(match[1], 16) != zlib.crc32(match[2]):
        return None
    try:
        note = json.loads(match[2])
    except (ValueError, RecursionError):
        return None
    mark = LogMark.read(note.get("log"))
    is_sound = (
        note.get("kind") == kind
        and isinstance(note.get("value"), dict)
        and (mark is not None or note.get("log", "") is None)
    )
    return Note(note["value"], mark) if is_sound else None


def read_note(path: Path, kind: str, *, max_bytes: int) -> Note | None:
    """Return the note in a file of at most `max_bytes`; None without a sound note."""
    content = fs.read_bytes(path, max_bytes)
    return None if content is None else decode_note(kind, content)
