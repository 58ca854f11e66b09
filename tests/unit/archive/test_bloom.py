"""Filters that pyarrow writes are read: what is there is never missed, nor if one is damaged."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import rocketlens
from rocketlens.archive.bloom import xxh64
from rocketlens.archive.files import TableFile
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.reader import _OpenFile
from rocketlens.archive.tables import key_schema
from tests.support.archives import archive_store


def written(tmp_path, hashes):
    location = ArchiveLocation.of(tmp_path)
    file = TableFile(location, "message_keys", "2026-11-20")
    fields = key_schema()
    columns = [
        pa.array(
            np.sort(hashes) if field.name == "key_hash" else [_VALUES[field.type]] * len(hashes)
        )
        for field in fields
    ]
    file.write(pa.table(columns, fields.names).cast(fields))
    written = file.close()
    return _OpenFile(location, location.path("message_keys", written.path), written)


_VALUES = {pa.string(): "", pa.int64(): 0, pa.int32(): 0}


def test_the_hash_is_that_of_other_programs():
    # Of xxhash 3.5: xxh64(struct.pack("<q", number)).intdigest().
    assert xxh64(0) == 0x34C96ACDCADB1BBB


def test_values_that_are_there_are_never_missed_and_few_others_are_read(tmp_path):
    chosen = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 40_000)
    opened = written(tmp_path, chosen)
    there = 0
    for number in map(int, chosen[:600]):
        (group,) = opened.groups({"key_hash": (number, number)})
        assert opened.read_hash(group, number, xxh64(number)).num_rows == 1
        other = number ^ 1
        there += opened._can_have(group, xxh64(other))
    assert there < 18


def test_every_filter_that_pyarrow_writes_has_its_checksum(tmp_path):
    random = np.random.default_rng(2)
    counts = [1, 2, 79, 315, 1265, 2530, 5050, 10_095, 16_384, 20_000]
    sizes = set()
    for count in counts:
        hashes = random.integers(-(2**63), 2**63 - 1, count)
        hashes[: count // 3] = hashes[0]
        opened = written(tmp_path, hashes)
        for group in range(opened.parquet.num_row_groups):
            _, size = opened._filter(group)
            assert size
            sizes.add(size)
    assert len(sizes) > 5


def test_a_filter_that_is_damaged_hides_no_message(golden, tmp_path):
    archive_store(tmp_path, golden("5.5.0").store)
    for path in tmp_path.glob("message_keys/*/*.parquet"):
        column = pq.ParquetFile(path).metadata.row_group(0).column(0)
        content = bytearray(path.read_bytes())
        at = column.bloom_filter_offset
        content[at : at + column.bloom_filter_length] = bytes(column.bloom_filter_length)
        path.write_bytes(content)
    with rocketlens.open_archive(tmp_path) as archive:
        answer = archive.find("order-42")
        assert answer.messages
        assert answer.complete
