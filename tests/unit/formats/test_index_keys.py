"""Which keys a record has in the index."""

from dataclasses import replace

import numpy as np
import pytest

from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import MAGIC_V1, Record
from rocketlens.formats.compiled import kernels
from rocketlens.formats.index_keys import index_hashes, key_hash, tags_hash
from rocketlens.model.message import Host
from rocketlens.model.text.java import index_hash

HOST = Host("10.0.0.1", 10911)
PROPERTIES = "KEYS\x01k1 k2  k1\x02UNIQ_KEY\x01u\x02TAGS\x01a\x02"
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


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
    rows = np.empty(1, kernels.RECORD_DTYPE)
    assert kernels.scan_records(content, 0, 0, len(content), rows).count == 1
    entries = kernels.EntryArrays.allocate(20)
    count = kernels.index_entries(content, 0, rows, entries, with_tags=with_tags)
    assert entries.hashes[:count].tolist() == index_hashes(record, with_tags=with_tags)
