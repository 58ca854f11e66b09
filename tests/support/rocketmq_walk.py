"""Walks log, queues and index files as RocketMQ does, in plain Python without the package.

Whatever is wrong is an AssertionError that says where.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct(">iiiiiqqiq")
_MIDDLE = struct.Struct(">iqi")
_ENTRY = struct.Struct(">qiq")
_INDEX_HEADER = struct.Struct(">qqqqii")
_INDEX_ENTRY = struct.Struct(">iqii")
_MAGICS = {-626843481: 1, -626843477: 2}
_BLANK = -875286124
_FILLER_BYTES = 2**31 - 1


class Stored(NamedTuple):
    """A record of the log."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    body: bytes
    properties: bytes

    @property
    def is_queued(self) -> bool:
        """Whether it has a queue entry: prepared and rolled back ones have none."""
        return self.sys_flag & 0xC in (0, 8)

    def named(self) -> dict[str, str]:
        """Its properties by name."""
        parts = (
            part.partition("\x01")
            for part in self.properties.decode(errors="replace").split("\x02")
        )
        return {name: value for name, separator, value in parts if separator}

    def hashes(self, *, with_tags: bool = True) -> list[int]:
        """The hashes of its index entries, in RocketMQ's order."""
        if self.sys_flag & 0xC == 0xC:
            return []
        named = self.named()
        texts = [named["UNIQ_KEY"]] if "UNIQ_KEY" in named else []
        texts += [key for key in named.get("KEYS", "").split(" ") if key]
        if with_tags and named.get("TAGS"):
            texts.append(f"T#{named['TAGS']}")
        return [java_hash(f"{self.topic}#{text}") for text in texts]


def java_hash(text: str) -> int:
    """Give ``Math.abs(text.hashCode())`` for ASCII."""
    value = 0
    for char in text.encode("ascii"):
        value = (value * 31 + char) & 0xFFFFFFFF
    value = value - (1 << 32) if value & 0x80000000 else value
    return 0 if value == -(1 << 31) else abs(value)


def segments(store: Path) -> list[tuple[int, bytes]]:
    """Give the log: where each file begins, and its bytes."""
    return [(int(path.name), path.read_bytes()) for path in sorted((store / "commitlog").iterdir())]


def log_records(store: Path, *, with_holes: bool = False) -> list[Stored]:
    """Give every record from the first byte of the log to the first that is none.

    Nothing but zeros may follow; ``with_holes``: records may follow, and are given, too.
    """
    records: list[Stored] = []
    has_ended = False
    for base, content in segments(store):
        place: int | None = 0
        while place is not None and place + 8 <= len(content):
            size, magic = struct.unpack_from(">ii", content, place)
            if magic == _BLANK and not has_ended:
                assert place + size == len(content), f"a filler of {size} at {base + place}"
                place = None
            elif magic in _MAGICS and size > 0 and (not with_holes or _adds_up(content, place)):
                records.append(_record(content, place, base))
                place += size
            elif with_holes:
                place = _next_record(content, place + 1, base)
            else:
                has_ended = True
                rest = content[place:]
                assert not rest.strip(b"\0"), f"bytes behind the log's end, from {base + place} on"
                place = None
    return records


def _adds_up(content: bytes, place: int) -> bool:
    base = int.from_bytes(content[place + 28 : place + 36], "big") - place
    try:
        _record(content, place, base)
    except (AssertionError, struct.error, UnicodeDecodeError):
        return False
    return True


def _next_record(content: bytes, start: int, base: int) -> int | None:
    """Find the next place with a magic and the own physical offset, or a filler that fits."""
    for place in range(start, len(content) - 36):
        size, magic = struct.unpack_from(">ii", content, place)
        if magic == _BLANK and place + size == len(content):
            return place
        if magic in _MAGICS and content[place + 28 : place + 36] == (base + place).to_bytes(
            8, "big"
        ):
            return place
    return None


def _record(content: bytes, place: int, base: int) -> Stored:
    total, magic, _, queue_id, _, queue_offset, physical_offset, sys_flag, _ = _HEAD.unpack_from(
        content, place
    )
    start = place + _HEAD.size
    start += 20 if sys_flag & 0x10 else 8
    start += 8
    start += 20 if sys_flag & 0x20 else 8
    _, _, body_bytes = _MIDDLE.unpack_from(content, start)
    start += _MIDDLE.size
    body = content[start : start + body_bytes]
    start += body_bytes
    width = _MAGICS[magic]
    topic_bytes = int.from_bytes(content[start : start + width], "big")
    start += width
    topic = content[start : start + topic_bytes].decode()
    start += topic_bytes
    property_bytes = int.from_bytes(content[start : start + 2], "big")
    start += 2
    properties = content[start : start + property_bytes]
    assert start + property_bytes == place + total, f"lengths of the record at {base + place}"
    assert physical_offset == base + place, f"a record at {base + place} says {physical_offset}"
    return Stored(physical_offset, total, topic, queue_id, queue_offset, sys_flag, body, properties)


def queue_entries(store: Path) -> dict[tuple[str, int], dict[int, tuple[int, int]]]:
    """Give for each queue its entries: by queue offset where a record begins, and its size.

    Entries end at the first that is empty; nothing but zeros may follow, and no file may lack.
    """
    found: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for directory in sorted((store / "consumequeue").glob("*/*")):
        queue = found.setdefault((directory.parent.name, int(directory.name)), {})
        expected: int | None = None
        has_ended = False
        for path in sorted(directory.iterdir()):
            content = path.read_bytes()
            base = int(path.name)
            assert len(content) % 20 == 0, f"{path} has {len(content)} bytes"
            assert expected in (None, base), f"{path} follows {expected}"
            expected = base + len(content)
            for place in range(0, len(content), 20):
                physical_offset, size, _ = _ENTRY.unpack_from(content, place)
                if has_ended or (physical_offset == 0 and size == 0):
                    has_ended = True
                    assert not any(content[place : place + 20]), f"{path} at {place}"
                elif size != _FILLER_BYTES:
                    queue[(base + place) // 20] = (physical_offset, size)
    return found


class IndexFile:
    """One index file of a known number of slots."""

    def __init__(self, path: Path, slot_count: int) -> None:
        self.path = path
        self.content = path.read_bytes()
        self.slot_count = slot_count
        header = _INDEX_HEADER.unpack_from(self.content)
        self.used_slots, self.next_entry = header[4], max(header[5], 1)

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Read an entry: hash, physical offset, seconds, the entry before it on its chain."""
        values: tuple[int, int, int, int] = _INDEX_ENTRY.unpack_from(
            self.content, 40 + 4 * self.slot_count + 20 * number
        )
        return values

    def chain(self, slot: int) -> Iterator[tuple[int, int]]:
        """Walk a slot's chain as RocketMQ does: hash and physical offset, newest first."""
        number = int.from_bytes(self.content[40 + 4 * slot : 44 + 4 * slot], "big")
        while 0 < number < self.next_entry:
            key_hash, physical_offset, _, previous = self.entry(number)
            yield key_hash, physical_offset
            assert previous < number, f"{self.path}: entry {number} goes on to {previous}"
            number = previous

    def pairs(self) -> list[tuple[int, int]]:
        """Give all that chains lead to; every entry is on one."""
        chains = [list(self.chain(slot)) for slot in range(self.slot_count)]
        for slot, chain in enumerate(chains):
            assert all(one[0] % self.slot_count == slot for one in chain), f"{self.path}: {slot}"
        found = [pair for chain in chains for pair in chain]
        assert len(found) == self.next_entry - 1, f"{self.path}: {len(found)} on chains"
        used = sum(1 for chain in chains if chain)
        assert used == self.used_slots, f"{self.path}: {used} slots, header {self.used_slots}"
        return found


def index_pairs(store: Path, slot_count: int) -> list[tuple[int, int]]:
    """Give hash and physical offset of everything that RocketMQ finds in the index files."""
    pairs: list[tuple[int, int]] = []
    for path in sorted((store / "index").iterdir()):
        pairs += IndexFile(path, slot_count).pairs()
    return pairs
