"""Recognizes a log by the checksums of the first records of its newest segments.

Files beside a log have positions in it, and stay when the log is replaced by another one. A log
that lost its end, or its oldest segments, is still the same log.
"""

import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rocketlens.formats.commitlog_record import HEADS, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from rocketlens.store import fs
from rocketlens.store.read.log.commitlog import SEGMENT_NAME_DIGITS

MAX_IDENTITY_SEGMENTS: Final = 16
"""Segments by which a log is recognized again. One that shares none of them may be the same."""
_MAX_BYTES: Final = 4096
"""Bytes of the first record of a segment that are read."""
_HEAD: Final = HEADS[0].struct_of("total_size", "magic", "physical_offset")
_PAIR: Final = re.compile(r"(\d{1,19}):(\d{1,10})", re.ASCII)

SegmentChecksums = Mapping[int, int]
"""The CRC32 of the first record of each segment, by base offset."""


class LogIdentity:
    """Caches the checksums of the log in one directory. Use it in one thread at a time."""

    def __init__(self, directory: Path) -> None:
        """Create an empty cache."""
        self._directory: Final = directory
        self._cache: dict[int, int] = {}

    def checksums(self) -> SegmentChecksums:
        """Return the checksums of the newest segments that start with a record.

        O(segments): one directory is listed, and each new segment read once.

        :raises OSError: if the log cannot be read.
        """
        checksums: dict[int, int] = {}
        paths = [Path(entry.path) for entry in fs.entries(self._directory)]
        segments = [path for path in paths if _is_segment(path.name)]
        for path in segments[-MAX_IDENTITY_SEGMENTS:]:
            base_offset = int(path.name)
            checksum = self._cache.get(base_offset)
            if checksum is None:
                checksum = _checksum(fs.read_bytes(path, _MAX_BYTES) or b"", base_offset)
            if checksum is not None:
                checksums[base_offset] = checksum
        self._cache = checksums
        return checksums


def is_another_log(noted: SegmentChecksums, current: SegmentChecksums) -> bool:
    """Return whether two logs have common base offsets, but no common checksum."""
    shared = noted.keys() & current.keys()
    return bool(shared) and all(noted[each] != current[each] for each in shared)


def parse_checksums(text: Any) -> dict[int, int]:
    """Parse base offsets and checksums, as in ``0:3405691582,1073741824:17``; empty if invalid."""
    pairs = _PAIR.findall(text) if isinstance(text, str) else ()
    return {int(base_offset): int(checksum) for base_offset, checksum in pairs}


def format_checksums(checksums: SegmentChecksums) -> str:
    """Return the text that :func:`parse_checksums` parses."""
    return ",".join(f"{base_offset}:{checksums[base_offset]}" for base_offset in sorted(checksums))


def _is_segment(name: str) -> bool:
    return len(name) == SEGMENT_NAME_DIGITS and name.isascii() and name.isdigit()


def _checksum(content: bytes, base_offset: int) -> int | None:
    """Return the checksum of the first record of a segment; None if there is none."""
    if len(content) < MIN_RECORD_BYTES:
        return None
    size, magic, physical_offset = _HEAD.unpack_from(content)
    if size < MIN_RECORD_BYTES or magic not in (MAGIC_V1, MAGIC_V2):
        return None
    return None if physical_offset != base_offset else zlib.crc32(content[:size])
