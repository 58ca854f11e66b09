"""Rows of batches become a row for each message; other rows are left as they are.

Records of pulls: the columns that they have in the log, wherever they were in it.
"""

import zlib

import numpy as np
import pytest
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.bulk.ranges import RangeReader, open_range
from rocketlens.formats import batch_body, batch_rows, columns
from rocketlens.formats.batch_body import BatchMember
from rocketlens.formats.batch_rows import scan_pulled
from rocketlens.formats.commitlog_record import HEADS, MAGIC_V2, encode
from rocketlens.model.message import Host
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH
from tests.support.synthetic import record, write_log
from tests.unit.bulk.built_stores import ranges_of

ZLIB = 0x1 | 0x3 << 8


def batch(number, bodies, *, compressed=False):
    body = batch_body.encode(
        BatchMember(0, each, f"KEYS\x01k{each.decode()}\x02".encode()) for each in bodies
    )
    flag = SYS_FLAG_INNER_BATCH | (ZLIB if compressed else 0)
    return replace(
        record(number, body=zlib.compress(body) if compressed else body, queue_offset=10 * number),
        sys_flag=flag,
    )


def pieces_of(store):
    """Return for each run of a log whether it is of batches, and its queue offsets and bodies."""
    [log_range] = ranges_of(store)
    found = []
    with open_range(log_range) as mapped:
        for rows in RangeReader(log_range, mapped.view):
            for is_batch, run in batch_rows.runs(rows):
                if not is_batch:
                    found.append((False, run.column("queue_offset").tolist(), None))
                    continue
                for piece, messages in batch_rows.messages_of(run):
                    assert [each.physical_offset for each in messages] == piece.offsets()
                    offsets = piece.column("queue_offset").tolist()
                    assert [each.queue_offset for each in messages] == offsets
                    found.append((True, offsets, [each.body for each in messages]))
    return found


def test_batches_between_others_are_taken_apart_in_their_place(tmp_path):
    log = [
        record(0),
        record(1),
        batch(2, [b"a", b"b", b"c"]),
        batch(3, [b"d"], compressed=True),
        record(4),
        batch(5, [b"e", b"f"]),
    ]
    write_log(tmp_path, log, 1 << 16)
    assert pieces_of(tmp_path) == [
        (False, [0, 1], None),
        (True, [20, 21, 22, 30], [b"a", b"b", b"c", b"d"]),
        (False, [4], None),
        (True, [50, 51], [b"e", b"f"]),
    ]


def test_rows_without_a_batch_are_one_run(tmp_path):
    write_log(tmp_path, [record(n) for n in range(5)], 1 << 16)
    assert pieces_of(tmp_path) == [(False, [0, 1, 2, 3, 4], None)]


def test_a_batch_that_cannot_be_taken_apart_is_a_message_as_it_is(tmp_path):
    broken = replace(record(0, body=b"none"), sys_flag=SYS_FLAG_INNER_BATCH)
    write_log(tmp_path, [broken, batch(1, [b"a", b"b"])], 1 << 16)
    assert pieces_of(tmp_path) == [(True, [0, 10, 11], [b"none", b"a", b"b"])]


@pytest.mark.parametrize("bound", ["BATCH_ROWS", "BATCH_BYTES"])
def test_pieces_are_bounded_and_a_batch_stays_whole(tmp_path, monkeypatch, bound):
    monkeypatch.setattr(batch_rows, bound, 3)
    write_log(tmp_path, [batch(n, [b"1", b"2"]) for n in range(5)], 1 << 16)
    found = pieces_of(tmp_path)
    assert [offsets for _, offsets, _ in found] == [[0, 1, 10, 11], [20, 21, 30, 31], [40, 41]]


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
    made = columns.batches(pulled.rows, with_body=True, physical_offsets=pulled.physical_offsets)
    return [row for batch in made for row in batch.to_pylist()]


def rows_of_log(store):
    [log_range] = ranges_of(store)
    with open_range(log_range) as mapped:
        return [
            row
            for rows in RangeReader(log_range, mapped.view)
            for batch in columns.batches(rows, with_body=True)
            for row in batch.to_pylist()
        ]


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
    is_sound = np.frombuffer(pulled.rows.sound(), np.bool_)
    assert is_sound.tolist() == [True, True, False]
    assert pulled.of(is_sound).physical_offsets.tolist() == [
        one.physical_offset for one in written[:2]
    ]
    assert pulled.of(np.ones(3, np.bool_)) is pulled
