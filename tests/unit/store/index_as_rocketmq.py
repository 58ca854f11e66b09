"""Index files as RocketMQ's own code writes and reads them; shares nothing with what it judges.

Written from the description of ``IndexFile.putKey`` and ``selectPhyOffset``: entries are put behind
the last one of the newest file, and keys are looked up by walking the chain of their slot.
"""

import mmap
import struct
from pathlib import Path

from tests.support.index_writer import ENTRY, HEADER


class RocketMQIndex:
    """The index directory of a store, with files of one geometry."""

    def __init__(self, directory, slot_count, entry_count):
        self.directory = Path(directory)
        self.slot_count = slot_count
        self.entry_count = entry_count

    def files(self):
        return sorted(self.directory.iterdir()) if self.directory.exists() else []

    def _entry_at(self, number):
        return 40 + self.slot_count * 4 + number * 20

    def lookup(self, hashes):
        """Return for each hash the physical offsets that its chains lead to, all files together."""
        found = {key_hash: [] for key_hash in hashes}
        for path in self.files():
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content,
            ):
                for key_hash in found:
                    found[key_hash] += self._walk(content, key_hash)
        return found

    def _walk(self, content, key_hash):
        count = max(HEADER.unpack_from(content)[5], 1)
        (number,) = struct.unpack_from(">i", content, 40 + key_hash % self.slot_count * 4)
        if count <= 1 or not 0 < number <= count:
            return
        while True:
            entry_hash, physical_offset, _, previous = ENTRY.unpack_from(
                content, self._entry_at(number)
            )
            if entry_hash == key_hash:
                yield physical_offset
            if not 0 < previous <= count or previous == number:
                return
            number = previous

    def put(self, key_hash, physical_offset, timestamp_ms, *, counted=True):
        """Put an entry into the newest file, or a new one; not `counted` when killed within."""
        files = self.files()
        header = None
        if files:
            with files[-1].open("rb") as file:
                header = HEADER.unpack(file.read(40))
        if header is None or max(header[5], 1) >= self.entry_count:
            name = str(int(files[-1].name) + 100) if files else "20231114000000000"
            path = self.directory / name
            self.directory.mkdir(exist_ok=True)
            with path.open("wb") as file:
                file.truncate(self._entry_at(self.entry_count))
                end_ms = header[1] if header else 0
                file.write(HEADER.pack(end_ms, end_ms, 0, 0, 0, 1))
        else:
            path = files[-1]
        with path.open("r+b") as file:
            begin_ms, _, begin, _, used, number = HEADER.unpack(file.read(40))
            number = max(number, 1)
            slot_at = 40 + key_hash % self.slot_count * 4
            file.seek(slot_at)
            (previous,) = struct.unpack(">i", file.read(4))
            previous = previous if 0 < previous <= number else 0
            seconds = max((timestamp_ms - begin_ms) // 1000, 0) if begin_ms > 0 else 0
            file.seek(self._entry_at(number))
            file.write(ENTRY.pack(key_hash, physical_offset, seconds, previous))
            file.seek(slot_at)
            file.write(struct.pack(">i", number))
            if number == 1:
                begin_ms, begin = timestamp_ms, physical_offset
            if counted:
                used += not previous
                number += 1
                file.seek(0)
                file.write(
                    HEADER.pack(begin_ms, timestamp_ms, begin, physical_offset, used, number)
                )
