"""Rows of batches become a row for each message; other rows are left as they are."""

import zlib
from dataclasses import replace

import pytest

from rocketlens.bulk.ranges import RangeReader, open_range
from rocketlens.formats import batch_body, batch_rows
from rocketlens.formats.batch_body import BatchMember
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
    mapped, content = open_range(log_range)
    found = []
    try:
        for rows in RangeReader(log_range, content):
            for is_batch, run in batch_rows.runs(rows):
                if not is_batch:
                    found.append((False, rows[run]["queue_offset"].tolist(), None))
                    continue
                for piece in batch_rows.messages_of(content, log_range.base_offset, rows[run]):
                    assert piece.rows["physical_offset"].tolist() == piece.physical_offsets.tolist()
                    assert [each.physical_offset for each in piece.messages] == list(
                        piece.physical_offsets
                    )
                    offsets = piece.rows["queue_offset"].tolist()
                    assert [each.queue_offset for each in piece.messages] == offsets
                    found.append((True, offsets, [each.body for each in piece.messages]))
    finally:
        rows = None
        del content
        mapped.close()
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
