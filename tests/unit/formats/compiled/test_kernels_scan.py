"""Compiled walks over a log, against real stores and plain Python."""

from itertools import pairwise

import numpy as np

from rocketlens import limits
from rocketlens.formats import commitlog_record
from rocketlens.formats.compiled import device_check, kernels
from rocketlens.formats.compiled.kernels import ScanReason
from rocketlens.model.text import java
from tests.unit.formats import kernel_logs as logs
from tests.unit.formats.kernel_logs import BOTH_VERSIONS


@BOTH_VERSIONS
def test_every_real_record_has_the_row_that_the_decoder_reads(golden_log, version):
    for buffer, base_offset, rows, ended in golden_log(version).segments:
        content = buffer.tobytes()
        found, position, reason = logs.python_scan(content, base_offset)
        assert (ended.count, ended.next_position, ended.reason) == (len(found), position, reason)
        for row, record in zip(rows, found, strict=True):
            assert logs.kernel_row(row, content, base_offset) == logs.python_row(record, content)


@BOTH_VERSIONS
def test_every_real_record_start_is_found_and_reached(golden_log, version):
    buffer, base_offset, rows, _ = golden_log(version).segments[1]
    positions = (rows["physical_offset"] - base_offset).tolist()
    for before, start in pairwise(positions):
        assert kernels.find_record(buffer, base_offset, before + 1, len(buffer)) == start
        assert kernels.find_record(buffer, base_offset, before + 1, start) == -1
        assert kernels.walk_to(buffer, base_offset, 0, start) == (start, ScanReason.STOP)
        assert kernels.walk_to(buffer, base_offset, 0, before + 1) == (start, ScanReason.STOP)
    blank = positions[-1] + int(rows["store_size"][-1])
    reached = kernels.walk_to(buffer, base_offset, 0, len(buffer))
    assert reached == (blank, ScanReason.BLANK)


def test_rollbacks_have_no_entry_and_others_have_theirs_in_order():
    properties_bytes = b"TAGS\1a b\2KEYS\1 k1  k2 k1 \2UNIQ_KEY\1u\2"
    parts = [{"sys_flag": flag, "properties_bytes": properties_bytes} for flag in (0, 4, 8, 12)]
    content = logs.raw_log(0, parts)
    buffer = logs.array(content)
    rows, _ = logs.scan(buffer)
    for with_tags in (False, True):
        entries = kernels.index_entries(buffer, 0, rows, with_tags=with_tags)
        texts = ["T#u", "T#k1", "T#k2", "T#k1", *(["T#T#a b"] if with_tags else [])]
        hashes = [java.index_hash(text) for text in texts]
        assert entries.hashes.tolist() == hashes * 3


def test_one_pass_gives_the_rows_and_entries_of_two():
    keys = [b"KEYS\1" + b" ".join(b"key%d" % n for n in range(i % 7)) + b"\2" for i in range(300)]
    content = logs.raw_log(64, [{"properties_bytes": one} for one in keys])
    buffer = logs.array(content)
    rows, ended = logs.scan(buffer, 64)
    entries = kernels.index_entries(buffer, 64, rows, with_tags=True)
    part_rows = np.zeros(11, kernels.RECORD_DTYPE)
    part = kernels.EntryArrays.allocate(13)
    position, got_rows, got_entries, reason = 0, [], [], ScanReason.FULL
    while reason is ScanReason.FULL:
        done = kernels.scan_records(
            buffer, 64, position, len(buffer), part_rows, part, with_tags=True
        )
        got_rows.append(part_rows[: done.count].copy())
        got_entries += logs.as_tuples(part, done.entry_count)
        position, reason = done.next_position, done.reason
    assert (position, reason) == (ended.next_position, ended.reason)
    assert np.concatenate(got_rows).tobytes() == rows.tobytes()
    assert got_entries == logs.as_tuples(entries)


def test_no_record_has_more_entries_than_the_room_asked_for():
    most = b"KEYS\1" + b"k " * ((32767 - 5 - 22) // 2) + b"\2UNIQ_KEY\1u\2TAGS\1t\2"
    content = logs.raw_log(0, [{"properties_bytes": most}])
    rows, _ = logs.scan(logs.array(content))
    entries = kernels.index_entries(logs.array(content), 0, rows, with_tags=True)
    assert 16_300 < len(entries.hashes) <= limits.MAX_RECORD_ENTRIES


def test_a_walk_ends_with_its_reason():
    content = logs.raw_log(1000, [{}, {"magic": logs.V2, "topic": b"t" * 300}, {"sys_flag": 0x30}])
    sizes = [row["store_size"] for row in logs.scan(logs.array(content), 1000)[0]]
    whole = len(content)
    for tail, reason in (
        (b"", ScanReason.STOP),
        (b"\0" * 7, ScanReason.END),
        (b"\0" * 100, ScanReason.END),
        (b"\xff" * 7, ScanReason.END),
        (logs.blank(8), ScanReason.BLANK),
        (logs.blank(200), ScanReason.BLANK),
        (b"\0\0\0\1" + b"\0" * 96, ScanReason.BAD),
        (b"\xff" * 200, ScanReason.BAD),
        (logs.raw_record(999), ScanReason.BAD),
        (logs.raw_record(1000 + whole)[:-1], ScanReason.BAD),
    ):
        ended = logs.scan(logs.array(content + tail), 1000)[1]
        assert ended == (3, 0, whole, reason)
    assert logs.scan(logs.array(content), 1000, room=2)[1] == (
        2,
        0,
        sum(sizes[:2]),
        ScanReason.FULL,
    )
    assert logs.scan(logs.array(content), 1000, stop=1)[1] == (1, 0, sizes[0], ScanReason.STOP)
    assert logs.scan(logs.array(content), 1000, stop=0)[1] == (0, 0, 0, ScanReason.STOP)


def test_a_forged_record_in_a_body_is_found_but_not_walked_to():
    forged_at = 88 + 10
    body = b"x" * 10 + logs.raw_record(forged_at) + b"x" * 200
    content = logs.raw_log(0, [{"body": body}, {}])
    buffer = logs.array(content)
    assert kernels.find_record(buffer, 0, 1, len(buffer)) == forged_at
    position, reason = kernels.walk_to(buffer, 0, 0, forged_at)
    assert (position, reason) == (len(content) - len(logs.raw_record(0)), ScanReason.STOP)


def test_records_are_found_at_every_alignment_and_up_to_the_last_byte():
    for before in range(150):
        content = b"\xda\xa3" * (before // 2) + b"\xda" * (before % 2) + logs.raw_record(before)
        buffer = logs.array(content)
        assert kernels.find_record(buffer, 0, 0, len(buffer)) == before
        assert kernels.find_record(buffer, 0, 0, before) == -1
        assert kernels.find_record(buffer, 1, 0, len(buffer)) == -1
        assert kernels.find_record(buffer[:-1], 0, 0, len(buffer)) == -1


def test_compiled_code_decides_as_the_format_which_records_are_indexed_and_queued():
    sys_flags = np.array([*range(0x800), -1, -(2**31)], np.int32)
    for sys_flag, indexed, queued in zip(
        sys_flags.tolist(),
        commitlog_record.is_indexed(sys_flags).tolist(),
        commitlog_record.has_queue_entry(sys_flags).tolist(),
        strict=True,
    ):
        transaction = sys_flag & 0xC
        assert commitlog_record.is_indexed(sys_flag) is indexed is (transaction != 0xC)
        assert commitlog_record.has_queue_entry(sys_flag) is queued is (transaction in {0, 8})
        assert device_check.rules(sys_flag) == (indexed, queued)
