"""Compiled walks over a log and checks of its records, against real stores and plain Python."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import RecordView
from rocketlens.formats.compiled import device_check, pull, scan
from rocketlens.formats.compiled.record_constants import BAD, BLANK, END, FULL, STOP
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.model.text import java
from tests.unit.formats import kernel_logs as logs
from tests.unit.formats.kernel_logs import BOTH_VERSIONS


@BOTH_VERSIONS
def test_every_real_record_has_the_row_that_the_decoder_reads(golden_log, version):
    for buffer, base_offset, rows, ended in golden_log(version).segments:
        content = buffer.tobytes()
        found, position, reason = logs.python_scan(content, base_offset)
        assert ended == (len(found), position, reason)
        for row, record in zip(rows, found, strict=True):
            assert logs.kernel_row(row, content, base_offset) == logs.python_row(record, content)


@BOTH_VERSIONS
def test_every_real_record_start_is_found_and_reached(golden_log, version):
    buffer, base_offset, rows, _ = golden_log(version).segments[1]
    positions = (rows["physical_offset"] - base_offset).tolist()
    for before, start in pairwise(positions):
        assert scan.find_start(buffer, base_offset, before + 1, len(buffer)) == start
        assert scan.find_start(buffer, base_offset, before + 1, start) == -1
        assert scan.walk(buffer, base_offset, 0, start) == (start, STOP)
        assert scan.walk(buffer, base_offset, 0, before + 1) == (start, STOP)
    blank = positions[-1] + int(rows["store_size"][-1])
    reached = scan.walk(buffer, base_offset, 0, len(buffer))
    assert reached == (blank, BLANK)


def test_rollbacks_have_no_entry_and_others_have_theirs_in_order():
    properties_bytes = b"TAGS\1a b\2KEYS\1 k1  k2 k1 \2UNIQ_KEY\1u\2"
    parts = [{"sys_flag": flag, "properties_bytes": properties_bytes} for flag in (0, 4, 8, 12)]
    content = logs.raw_log(0, parts)
    buffer = logs.array(content)
    rows, _ = logs.scan(buffer)
    for with_tags in (False, True):
        entries = logs.index_entries(buffer, 0, rows, with_tags=with_tags)
        texts = ["T#u", "T#k1", "T#k2", "T#k1", *(["T#T#a b"] if with_tags else [])]
        hashes = [java.index_hash(text) for text in texts]
        assert entries.hashes.tolist() == hashes * 3


def test_records_have_the_entries_that_they_have_alone():
    keys = [b"KEYS\1" + b" ".join(b"key%d" % n for n in range(i % 7)) + b"\2" for i in range(300)]
    keys.append(b"KEYS\1" + b"k " * 5000 + b"\2")
    buffer = logs.array(logs.raw_log(64, [{"properties_bytes": one} for one in keys]))
    rows, _ = logs.scan(buffer, 64)
    alone = [logs.index_entries(buffer, 64, rows[n : n + 1], with_tags=True) for n in range(301)]
    entries = logs.index_entries(buffer, 64, rows, with_tags=True)
    assert logs.as_tuples(entries) == [each for one in alone for each in logs.as_tuples(one)]


def test_no_record_has_more_entries_than_the_room_asked_for():
    most = b"KEYS\1" + b"k " * ((32767 - 5 - 22) // 2) + b"\2UNIQ_KEY\1u\2TAGS\1t\2"
    content = logs.raw_log(0, [{"properties_bytes": most}])
    rows, _ = logs.scan(logs.array(content))
    entries = logs.index_entries(logs.array(content), 0, rows, with_tags=True)
    assert 16_300 < len(entries.hashes) <= limits.MAX_RECORD_ENTRIES


def test_a_walk_ends_with_its_reason():
    content = logs.raw_log(1000, [{}, {"magic": logs.V2, "topic": b"t" * 300}, {"sys_flag": 0x30}])
    sizes = [row["store_size"] for row in logs.scan(logs.array(content), 1000)[0]]
    whole = len(content)
    for tail, reason in (
        (b"", STOP),
        (b"\0" * 7, END),
        (b"\0" * 100, END),
        (b"\xff" * 7, END),
        (logs.blank(8), BLANK),
        (logs.blank(200), BLANK),
        (b"\0\0\0\1" + b"\0" * 96, BAD),
        (b"\xff" * 200, BAD),
        (logs.raw_record(999), BAD),
        (logs.raw_record(1000 + whole)[:-1], BAD),
    ):
        ended = logs.scan(logs.array(content + tail), 1000)[1]
        assert ended == (3, whole, reason)
    assert logs.scan(logs.array(content), 1000, room=2)[1] == (2, sum(sizes[:2]), FULL)
    assert logs.scan(logs.array(content), 1000, stop=1)[1] == (1, sizes[0], STOP)
    assert logs.scan(logs.array(content), 1000, stop=0)[1] == (0, 0, STOP)


def test_a_forged_record_in_a_body_is_found_but_not_walked_to():
    forged_at = 88 + 10
    body = b"x" * 10 + logs.raw_record(forged_at) + b"x" * 200
    content = logs.raw_log(0, [{"body": body}, {}])
    buffer = logs.array(content)
    assert scan.find_start(buffer, 0, 1, len(buffer)) == forged_at
    position, reason = scan.walk(buffer, 0, 0, forged_at)
    assert (position, reason) == (len(content) - len(logs.raw_record(0)), STOP)


def test_records_are_found_at_every_alignment_and_up_to_the_last_byte():
    for before in range(150):
        content = b"\xda\xa3" * (before // 2) + b"\xda" * (before % 2) + logs.raw_record(before)
        buffer = logs.array(content)
        assert scan.find_start(buffer, 0, 0, len(buffer)) == before
        assert scan.find_start(buffer, 0, 0, before) == -1
        assert scan.find_start(buffer, 1, 0, len(buffer)) == -1
        assert scan.find_start(buffer[:-1], 0, 0, len(buffer)) == -1


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


BASE = 1 << 30
TOPIC, QUEUE_ID, FIRST = b"Orders", 3, 100
NO_BOUND = 1 << 40
VARIANTS = [
    {},
    {"body": b""},
    {"magic": logs.V2, "properties_bytes": b"KEYS\x01k\x02"},
    {"sys_flag": 0x30, "body": bytes(range(100))},
]


def queue_of(variants, *, append_crc=False, topic=TOPIC):
    """A log of one record for each variant, and the entries of its queue."""
    log, entries = bytearray(), []
    for number, variant in enumerate(variants):
        offset = BASE + len(log)
        raw = logs.raw_record(
            offset, topic=topic, queue_id=QUEUE_ID, queue_offset=FIRST + number, **variant
        )
        record = commitlog_record.decode(raw, check_crc=False)
        record = replace(record, physical_offset=offset)
        whole = commitlog_record.encode(record, append_crc=append_crc)
        entries.append(QueueEntry(offset, len(whole), number))
        log += whole
    return bytes(log), entries


class Taken(NamedTuple):
    entry_count: int
    record_count: int
    record_bytes: int
    slice_count: int
    is_full: int
    slices: Any = ()


def take(
    log,
    entries,
    *,
    topic=TOPIC,
    queue_id=QUEUE_ID,
    tag_codes=None,
    stretch=None,
    taken=(0, 0),
    room=(NO_BOUND, NO_BOUND),
):
    slices = np.zeros(2 * len(entries), np.int64)
    found = Taken(
        *pull.take(
            *(b"".join(entry.encode() for entry in entries), queue_id, FIRST, topic),
            *(np.array(sorted(tag_codes or ()), np.int32), tag_codes is not None),
            *(logs.array(log), BASE, *(stretch or (BASE, BASE + len(log))), *taken, *room, slices),
        )
    )
    return found._replace(slices=slices.reshape(-1, 2)[: found.slice_count].tolist())


def is_sound(log, entry, queue_offset):
    """What the view says of the record of an entry."""
    start = entry.physical_offset - BASE
    if entry.store_size <= 0 or start < 0 or start + entry.store_size > len(log):
        return False
    try:
        view = RecordView(log[start : start + entry.store_size], 0, entry.physical_offset)
        view.check_crc()
    except RecordError:
        return False
    return (view.total_size, view.topic, view.queue) == (
        entry.store_size,
        TOPIC.decode(),
        (QUEUE_ID, queue_offset),
    )


@pytest.mark.parametrize("append_crc", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_changed_record_is_taken_only_if_its_view_takes_it(variant, append_crc):
    log, entries = queue_of([{}, variant, {}], append_crc=append_crc)
    assert take(log, entries).entry_count == 3
    start, size, _ = entries[1]
    verdicts = set()
    for position in range(start - BASE, start - BASE + size):
        for bit in (0x01, 0x10, 0x80):
            changed = bytearray(log)
            changed[position] ^= bit
            expected = is_sound(bytes(changed), entries[1], FIRST + 1)
            verdicts.add(expected)
            taken = take(changed, entries)
            assert taken.entry_count == taken.record_count == (3 if expected else 1), position
            assert not taken.is_full
    assert False in verdicts


def test_a_changed_entry_takes_nothing_else():
    log, entries = queue_of([{}, {"body": b""}, {}])
    packed = b"".join(entry.encode() for entry in entries)
    for position in range(20, 32):
        for bit in range(8):
            changed = bytearray(packed)
            changed[position] ^= 1 << bit
            again = [
                QueueEntry.__new__(QueueEntry, *fields)
                for fields in [entries[0], _decoded(changed, 20), entries[2]]
            ]
            assert not is_sound(log, again[1], FIRST + 1)
            assert take(log, again).entry_count == 1, (position, bit)


def _decoded(packed, position):
    return (
        int.from_bytes(packed[position : position + 8], "big", signed=True),
        int.from_bytes(packed[position + 8 : position + 12], "big", signed=True),
        0,
    )


def test_an_entry_of_another_record_takes_none():
    log, entries = queue_of([{}, {}, {}])
    assert take(log, [entries[1], entries[0]]).entry_count == 0
    assert take(log, entries, queue_id=QUEUE_ID + 1).entry_count == 0
    for topic in (b"Order", b"Orders2", b"orders", b""):
        assert take(log, entries, topic=topic).entry_count == 0


def test_a_log_that_ends_anywhere_gives_its_whole_records():
    log, entries = queue_of(VARIANTS)
    for length in range(len(log)):
        whole = sum(entry.physical_offset + entry.store_size <= BASE + length for entry in entries)
        taken = take(log[:length], entries, stretch=(BASE, BASE + length))
        assert (taken.entry_count, taken.record_count, taken.is_full) == (whole, whole, False)


def test_records_that_follow_one_another_are_one_slice():
    log, entries = queue_of([{}] * 5)
    size = entries[0].store_size
    assert take(log, entries).slices == [[0, 5 * size]]
    codes = {entry.tags_code for entry in entries if entry.tags_code != 2}
    assert take(log, entries, tag_codes=codes).slices == [[0, 2 * size], [3 * size, 5 * size]]


@pytest.mark.parametrize(
    ("taken", "room", "expected"),
    [
        ((0, 0), (3, NO_BOUND), (3, True)),
        ((2, 0), (3, NO_BOUND), (1, True)),
        ((3, 0), (3, NO_BOUND), (0, True)),
        ((0, 0), (0, 0), (1, True)),
        ((0, 0), (NO_BOUND, 2.5), (2, True)),
        ((1, 1), (NO_BOUND, 2.5), (2, True)),
        ((1, 1), (NO_BOUND, 2), (1, True)),
        ((1, 1), (NO_BOUND, 0), (0, True)),
        ((0, 0), (NO_BOUND, 5), (5, False)),
    ],
)
def test_no_more_is_taken_than_there_is_room_for(taken, room, expected):
    log, entries = queue_of([{}] * 5)
    size = entries[0].store_size
    max_bytes = room[1] if room[1] == NO_BOUND else int(room[1] * size)
    result = take(log, entries, taken=taken, room=(room[0], max_bytes))
    assert (result.entry_count, result.is_full) == expected
    assert result.record_count == taken[0] + expected[0]
    assert result.record_bytes == taken[1] + expected[0] * size


@pytest.mark.parametrize("codes", [set(), {0}, {4}, {1, 3}, {-5, 0, 2, 7}, set(range(5))])
def test_entries_of_other_tags_are_passed(codes):
    log, entries = queue_of([{}] * 5)
    # The hash is the low half; RocketMQ writes it with its sign.
    wide = [entry._replace(tags_code=entry.tags_code | number % 2 << 32)
            for number, entry in enumerate(entries)]  # fmt: skip
    result = take(log, wide, tag_codes=codes)
    assert (result.entry_count, result.record_count) == (5, len(codes & set(range(5))))


def test_entries_that_do_not_pass_are_not_looked_at():
    log, entries = queue_of([{}] * 3)
    nowhere = QueueEntry(-7, -7, 1)
    result = take(log, [entries[0], nowhere, entries[2]], tag_codes={0, 2})
    assert (result.entry_count, result.record_count) == (3, 2)
    assert take(log, [entries[0], nowhere, entries[2]]).entry_count == 1


def test_only_records_that_begin_in_the_stretch_are_taken():
    log, entries = queue_of([{}] * 3)
    one, two = entries[1].physical_offset, entries[2].physical_offset
    assert take(log, entries, stretch=(BASE, two)).entry_count == 2
    assert take(log, entries, stretch=(BASE, one + 1)).entry_count == 2
    assert take(log, entries, stretch=(one, two)).entry_count == 0


def test_a_stretch_outside_the_buffer_is_refused():
    log, entries = queue_of([{}])
    for stretch in ((BASE - 1, BASE), (BASE, BASE + len(log) + 1)):
        with pytest.raises(ValueError, match="not inside the buffer"):
            take(log, entries, stretch=stretch)
