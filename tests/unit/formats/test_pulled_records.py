"""Records of pulls: the columns that they have in the log, wherever they were in it."""

from dataclasses import replace

import numpy as np
import pytest

from rocketlens import limits
from rocketlens.bulk.ranges import RangeReader, open_range
from rocketlens.formats import columns
from rocketlens.formats.commitlog_record import HEADS, MAGIC_V2, encode
from rocketlens.formats.compiled import kernels
from rocketlens.formats.pulled_records import scan_pulled
from rocketlens.model.message import Host
from tests.support.synthetic import record, write_log
from tests.unit.bulk.built_stores import ranges_of


@pytest.fixture
def written(tmp_path):
    v6 = Host("fd00::1", 10911)
    log = [record(n, topic=f"T{n % 3}", body=bytes(100), KEYS=f"a k{n}") for n in range(30)]
    log += [
        replace(record(30), store_host=v6, born_host=v6),
        replace(record(31, topic="T" * 200), magic=MAGIC_V2),
        replace(record(32), body=b"not zlib", sys_flag=1),
    ]
    return write_log(tmp_path, log, 1 << 16)


def rows_of(bodies, most=100):
    pulled = scan_pulled(bodies, most)
    made = columns.batches(
        pulled.content, 0, pulled.rows, with_body=True, physical_offsets=pulled.physical_offsets
    )
    return [row for batch in made for row in batch.to_pylist()]


def rows_of_log(store):
    [log_range] = ranges_of(store)
    mapped, content = open_range(log_range)
    try:
        return [
            row
            for rows in RangeReader(log_range, content)
            for batch in columns.batches(content, log_range.base_offset, rows, with_body=True)
            for row in batch.to_pylist()
        ]
    finally:
        del content
        mapped.close()


@pytest.mark.parametrize("step", [1, 3])
def test_a_pulled_record_has_every_column_that_it_has_in_the_log(written, tmp_path, step):
    chosen = written[::step]
    bodies = [b"".join(map(encode, chosen[:7])), b"", b"".join(map(encode, chosen[7:]))]
    assert rows_of(bodies) == rows_of_log(tmp_path)[::step]


def test_records_may_come_in_any_order_and_far_from_one_another(written, tmp_path):
    expected = {row["physical_offset"]: row for row in rows_of_log(tmp_path)}
    found = rows_of([encode(one) for one in reversed(written)])
    assert [row["physical_offset"] for row in found] == sorted(expected, reverse=True)
    assert found == [expected[row["physical_offset"]] for row in found]
    far = replace(written[0], physical_offset=limits.MAX_PHYSICAL_OFFSET - 7)
    assert rows_of([encode(far)])[0]["physical_offset"] == far.physical_offset


def test_bytes_that_are_no_record_end_their_body_only(written):
    whole, cut = encode(written[0]), encode(written[1])[:-1]
    found = rows_of([cut, whole + cut, b"x" * 200, bytes(200), whole])
    assert [row["physical_offset"] for row in found] == [written[0].physical_offset] * 2


def test_no_record_claims_an_offset_beyond_what_is_believed(written):
    content = bytearray(encode(written[0]))
    content[HEADS[0].offsets["physical_offset"]] = 0xFF
    assert rows_of([bytes(content)]) == []


def test_no_more_records_are_taken_than_asked_for(written):
    assert len(rows_of([b"".join(map(encode, written))], most=5)) == 5


def test_checksums_are_those_of_the_bytes_that_came(written):
    content = bytearray(b"".join(map(encode, written[:3])))
    content[-len(encode(written[2])) + 100] ^= 1
    pulled = scan_pulled([bytes(content)], 3)
    is_sound = kernels.crc_ok(pulled.content, 0, pulled.rows)
    assert is_sound.tolist() == [True, True, False]
    assert pulled.of(is_sound).physical_offsets.tolist() == [
        one.physical_offset for one in written[:2]
    ]
    assert pulled.of(np.ones(3, np.bool_)) is pulled
