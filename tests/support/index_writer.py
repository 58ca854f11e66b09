"""Index files as RocketMQ writes them, entry by entry; shares nothing with what it judges.

Written from the description of ``IndexFile.putKey``: a header of 40 bytes, a slot for each
remainder of a hash with the number of its newest entry, and entries that lead to the one before.
"""

import struct
from pathlib import Path

HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")
MAX_INT = 2**31 - 1


class IndexWriter:
    """Files of one geometry, in memory; a full one is followed by the next."""

    def __init__(self, slot_count: int, entry_count: int, *, begin_timestamp_ms: int = 0) -> None:
        """``begin_timestamp_ms`` is what the first header begins with, 0 as RocketMQ does."""
        self.slot_count, self.entry_count = slot_count, entry_count
        self.files: list[bytearray] = []
        self.header = [begin_timestamp_ms, begin_timestamp_ms, 0, 0, 0, 1]

    @property
    def end_offset(self) -> int:
        """The physical offset of the newest entry."""
        return self.header[3]

    def put(self, key_hash: int, physical_offset: int, timestamp_ms: int) -> None:
        """Put an entry into the newest file, or into a new one if that is full."""
        if not self.files or self.header[5] >= self.entry_count:
            self._add_file()
        file, number = self.files[-1], self.header[5]
        slot = HEADER.size + 4 * (key_hash % self.slot_count)
        (previous,) = struct.unpack_from(">i", file, slot)
        if not 0 < previous <= number:
            previous = 0
            self.header[4] += 1
        seconds = self._seconds_since_begin(timestamp_ms)
        at = HEADER.size + 4 * self.slot_count + ENTRY.size * number
        ENTRY.pack_into(file, at, key_hash, physical_offset, seconds, previous)
        struct.pack_into(">i", file, slot, number)
        if number == 1:
            self.header[0], self.header[2] = timestamp_ms, physical_offset
        self.header[1], self.header[3], self.header[5] = timestamp_ms, physical_offset, number + 1

    def _add_file(self) -> None:
        if self.files:
            self._store_header()
            end_ms, end = self.header[1], self.header[3]
            self.header = [end_ms, end_ms, end, end, 0, 1]
        size = HEADER.size + 4 * self.slot_count + ENTRY.size * self.entry_count
        self.files.append(bytearray(size))

    def _seconds_since_begin(self, timestamp_ms: int) -> int:
        """Return what is stored of a time: a difference of Java's ``long``, as an ``int``."""
        begin_ms = self.header[0]
        if begin_ms <= 0:
            return 0
        difference_ms = (timestamp_ms - begin_ms + 2**63) % 2**64 - 2**63
        return max(0, min(difference_ms // 1000, MAX_INT))

    def _store_header(self) -> None:
        if self.files:
            HEADER.pack_into(self.files[-1], 0, *self.header)

    def contents(self) -> list[bytes]:
        """Return all files so far."""
        self._store_header()
        return [bytes(file) for file in self.files]

    def write(self, directory: Path) -> list[Path]:
        """Write all files so far into a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        contents = self.contents()
        paths = [directory / f"{20231114221320000 + n}" for n in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return paths
