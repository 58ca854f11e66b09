"""Index files: header, entries, and the counts that are not written in them.

Which keys a record has in the index.
"""

import mmap

import numpy as np
import pytest
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.errors import IndexFileError
from rocketlens.formats import commitlog_record, index_file
from rocketlens.formats.commitlog_record import MAGIC_V1, Record
from rocketlens.formats.index_file import (
    DEFAULT_GEOMETRY,
    MAX_INDEX_CANDIDATES,
    Geometry,
    IndexEntry,
    IndexHeader,
    decode_header,
    index_hashes,
    infer_geometry,
    key_hash,
    tags_hash,
)
from rocketlens.model.message import Host
from rocketlens.model.text.java import index_hash
from tests.unit.formats.kernel_logs import built_index_file, entry_arrays, index_entries, scan

HEADER = IndexHeader(1, 2, 3, 4, 5, 6)
BEGIN = 1_700_000_000_000
HOST = Host("10.0.0.1", 10911)
PROPERTIES = "KEYS\x01k1 k2  k1\x02UNIQ_KEY\x01u\x02TAGS\x01a\x02"
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


def built(geometry, tuples, begin_timestamp_ms=0):
    """The whole file that RocketMQ would write for these (hash, offset, store time)."""
    slots, entries, used = built_index_file(
        entry_arrays(tuples), geometry.slot_count, geometry.entry_count, begin_timestamp_ms
    )
    header = IndexHeader(
        tuples[0][2], tuples[-1][2], tuples[0][1], tuples[-1][1], used, len(tuples) + 1
    )
    return header.encode() + slots + entries


def some_entries(count, first_offset=4096, seed=7):
    draw = np.random.default_rng(seed)
    hashes = draw.integers(0, 2**31, count)
    # Two entries a record, as most messages have.
    return [
        (int(one), first_offset + index // 2 * 200, BEGIN + index // 2)
        for index, one in enumerate(hashes)
    ]


def test_header_and_entry_are_big_endian_in_the_order_of_the_table():
    assert HEADER.encode().hex() == (
        "0000000000000001000000000000000200000000000000030000000000000004" + "0000000500000006"
    )
    assert decode_header(HEADER.encode() + b"behind") == HEADER
    entry = IndexEntry(1, 2, 3, 4)
    assert entry.encode().hex() == "00000001" + "0000000000000002" + "00000003" + "00000004"
    geometry = Geometry(3, 2)
    content = bytes(40 + 12 + 20) + entry.encode()
    assert len(content) == geometry.file_bytes
    assert index_file.decode_entry(content, geometry, 1) == entry


def test_a_fresh_header_has_no_entry():
    assert decode_header(bytes(40)).last_entry == 0
    assert IndexHeader(0, 0, 0, 0, 0, 1).last_entry == 0
    assert IndexHeader(0, 0, 0, 0, 1, 2).last_entry == 1


def test_default_counts_make_the_size_that_rocketmq_writes():
    assert DEFAULT_GEOMETRY.file_bytes == 420_000_040


def test_every_prefix_of_a_header_is_an_error():
    for length in range(40):
        with pytest.raises(IndexFileError, match=f"has {length} bytes"):
            decode_header(HEADER.encode()[:length])


def test_a_flipped_byte_of_a_header_is_refused_or_changes_exactly_its_field():
    for position in range(40):
        changed = bytearray(HEADER.encode())
        changed[position] ^= 0x40
        try:
            header = decode_header(changed)
        except IndexFileError:
            continue
        field = position // 8 if position < 32 else 4 + (position - 32) // 4
        differing = [a != b for a, b in zip(header, HEADER, strict=True)]
        assert differing == [index == field for index in range(6)]


@pytest.mark.parametrize(
    "header",
    [
        *[HEADER._replace(begin_timestamp_ms=-1), HEADER._replace(begin_offset=-1)],
        *[HEADER._replace(used_slot_count=-1), HEADER._replace(next_entry=-1)],
        HEADER._replace(end_offset=2),
    ],
)
def test_a_header_that_cannot_be_is_an_error(header):
    with pytest.raises(IndexFileError, match="negative"):
        decode_header(header.encode())


GEOMETRIES = [
    *[Geometry(slots, entries) for slots in (1, 2, 3, 5, 7, 16) for entries in (2, 3, 8, 40)],
    *[Geometry(1 << power, 1 << other) for power in (4, 10) for other in (4, 12)],
    *[Geometry(500, 1000), Geometry(501, 1000), Geometry(997, 3), Geometry(100_000, 2)],
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda one: f"{one[0]}x{one[1]}")
@pytest.mark.parametrize("first_offset", [0, 91, 4096, 2**40])
def test_the_counts_of_any_file_are_found_from_its_content(geometry, first_offset):
    for count in {1, 2, geometry.entry_count // 2, geometry.entry_count - 1}:
        if not 1 <= count < geometry.entry_count:
            continue
        content = built(geometry, some_entries(count, first_offset))
        assert infer_geometry(content) == geometry
        assert infer_geometry(content, [Geometry(4, 4), geometry]) == geometry


def test_many_random_files_are_never_taken_for_files_of_other_counts():
    draw = np.random.default_rng(3)
    for seed in range(500):
        geometry = Geometry(int(draw.integers(20, 90)), int(draw.integers(2, 60)))
        count = int(draw.integers(1, geometry.entry_count))
        # Few and small offsets, the first often 0, and several entries each.
        tuples = [
            (int(draw.integers(1, 2**31)), offset, BEGIN + offset)
            for offset in np.sort(draw.integers(0, 5, count)).tolist()
        ]
        assert infer_geometry(built(geometry, tuples)) == geometry, seed


def test_one_record_at_the_start_of_the_log_is_enough_to_find_the_counts():
    for keys in (1, 2, 9):
        tuples = [(618776053 + key, 0, BEGIN) for key in range(keys)]
        content = built(Geometry(500, 1000), tuples)
        assert infer_geometry(content) == Geometry(500, 1000)


def sparse_file(path, geometry, tuples):
    """A file with holes, as RocketMQ makes it; the counts are too many to build in memory."""
    header = IndexHeader(
        tuples[0][2], tuples[-1][2], tuples[0][1], tuples[-1][1], len(tuples), len(tuples) + 1
    )
    with path.open("wb") as file:
        file.truncate(geometry.file_bytes)
        file.write(header.encode())
        slots = {}
        for number, (key_hash, offset, timestamp) in enumerate(tuples, 1):
            slot = key_hash % geometry.slot_count
            entry = IndexEntry(
                key_hash, offset, (timestamp - tuples[0][2]) // 1000, slots.get(slot, 0)
            )
            slots[slot] = number
            file.seek(geometry.entry_position(number))
            file.write(entry.encode())
            file.seek(geometry.slot_position(slot))
            file.write(number.to_bytes(4, "big"))


@pytest.mark.parametrize("first_offset", [0, 4096])
@pytest.mark.parametrize(
    "geometry", [DEFAULT_GEOMETRY, Geometry(10_000_000, 19_000_000)], ids=["default", "other"]
)
def test_a_sparse_file_of_default_size_is_understood_without_reading_it_twice(
    tmp_path, geometry, first_offset
):
    assert geometry.file_bytes == 420_000_040
    path = tmp_path / "20261121023724704"
    sparse_file(path, geometry, [(618776053, first_offset, BEGIN)])
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        assert infer_geometry(content) == geometry


class Counting(bytes):
    """Content that counts how often it is searched."""

    searches = 0

    def find(self, *arguments):
        self.searches += 1
        return super().find(*arguments)


@pytest.mark.parametrize("fill", [b"\x01", b"\x7f", b"\0\0\0\1", b"\0\0\1\0\0"])
def test_a_file_made_to_be_searched_for_hours_is_refused_after_so_many_tries(fill, monkeypatch):
    content = (fill * (24_000_000 // len(fill) + 1))[:24_000_040]
    tried = []
    match = index_file._endpoints_match
    monkeypatch.setattr(
        index_file, "_endpoints_match", lambda *given: tried.append(given[2]) or match(*given)
    )
    for begin, end in [(0, 0), (0x0101010101010101, 0x0101010101010101), (0, 1), (0, 0x100)]:
        header = IndexHeader(BEGIN, BEGIN, begin, end, 1, 2)
        made = Counting(header.encode() + content[40:])
        tried.clear()
        with pytest.raises(IndexFileError, match="no slot and entry counts fit"):
            infer_geometry(made)
        assert made.searches <= MAX_INDEX_CANDIDATES + 1
        # A position that is not zero can be in any byte of a hash, of which one fits.
        assert len(tried) <= MAX_INDEX_CANDIDATES


def test_a_chain_of_the_first_record_that_leads_elsewhere_fits_no_counts():
    geometry = Geometry(500, 1000)
    content = built(geometry, [(618776053 + key, 0, BEGIN) for key in range(3)])
    assert infer_geometry(content) == geometry
    second = geometry.entry_position(2)
    for entry in (IndexEntry(618776054, 91, 0, 0), IndexEntry(618776054, 0, 0, 1)):
        changed = content[:second] + entry.encode() + content[second + 20 :]
        with pytest.raises(IndexFileError, match="no slot and entry counts fit"):
            infer_geometry(changed)


def test_more_entries_than_the_first_record_can_have_fit_no_counts():
    geometry = Geometry(50, limits.MAX_RECORD_ENTRIES + 2)
    tuples = [(618776053, 0, BEGIN)] * (limits.MAX_RECORD_ENTRIES + 1)
    assert infer_geometry(built(geometry, tuples[1:])) == geometry
    with pytest.raises(IndexFileError, match="no slot and entry counts fit"):
        infer_geometry(built(geometry, tuples))


def test_a_file_of_no_entries_has_no_counts():
    for content in (bytes(40), bytes(22_040), IndexHeader(1, 1, 1, 1, 0, 1).encode() + bytes(2000)):
        with pytest.raises(IndexFileError):
            infer_geometry(content)


def test_every_prefix_of_a_file_is_refused_or_still_holds_all_its_entries():
    geometry = Geometry(5, 30)
    content = built(geometry, some_entries(9))
    last_byte = geometry.entry_position(10)
    for length in range(len(content)):
        try:
            found = infer_geometry(content[:length])
        except IndexFileError:
            continue
        assert found.slot_count == geometry.slot_count
        assert length >= last_byte


def test_a_flipped_byte_never_gives_counts_beyond_the_file():
    content = built(Geometry(5, 12), some_entries(9))
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 0xFF
        try:
            found = infer_geometry(bytes(changed))
        except IndexFileError:
            continue
        assert found.file_bytes == len(content)
        assert 1 <= decode_header(changed).last_entry < found.entry_count


def record_of(properties=PROPERTIES, sys_flag=0):
    raw = properties.encode()
    return Record(0, MAGIC_V1, 0, 0, 0, 0, 0, sys_flag, 0, HOST, 9, HOST, 0, 0, b"", "Top", raw)


def test_the_entries_are_the_unique_key_each_key_and_the_tags_in_this_order():
    keys = ["Top#u", "Top#k1", "Top#k2", "Top#k1", "Top#T#a"]
    assert index_hashes(record_of(), with_tags=True) == [index_hash(key) for key in keys]
    assert index_hashes(record_of(), with_tags=False) == [index_hash(key) for key in keys[:-1]]
    assert key_hash("Top", "k1") == index_hash("Top#k1")
    assert tags_hash("Top", "a") == index_hash("Top#T#a")


def test_a_record_that_was_rolled_back_has_no_entries():
    for sys_flag in (0, PREPARED, COMMIT):
        assert len(index_hashes(record_of(sys_flag=sys_flag), with_tags=True)) == 5
    assert index_hashes(record_of(sys_flag=ROLLBACK), with_tags=True) == []


@pytest.mark.parametrize("with_tags", [False, True])
@pytest.mark.parametrize("sys_flag", [0, PREPARED, COMMIT, ROLLBACK])
@pytest.mark.parametrize(
    "properties", ["", PROPERTIES, "KEYS\x01é \x02", "TAGS\x01t\x02", "UNIQ_KEY\x01u\x02"]
)
def test_the_kernels_write_the_same_entries(properties, sys_flag, with_tags):
    record = replace(record_of(properties, sys_flag), body=bytes(64))
    content = np.frombuffer(commitlog_record.encode(record), np.uint8)
    rows, ended = scan(content)
    assert ended[0] == 1
    entries = index_entries(content, 0, rows, with_tags=with_tags)
    assert entries.hashes.tolist() == index_hashes(record, with_tags=with_tags)
