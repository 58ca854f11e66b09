"""The kernels against real stores, and against the same rules in plain Python."""

import struct
import zlib
from itertools import pairwise

import numpy as np
import pytest

from rocketlens import limits
from rocketlens.errors import BadInput, RecordError
from rocketlens.formats import commitlog_record, kernels, kernels_scan
from rocketlens.formats.kernels import ScanReason
from rocketlens.formats.kernels_device import device
from rocketlens.model import java, properties
from tests.unit.formats import kernel_logs as logs

BOTH_VERSIONS = pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
SLOTS, ENTRIES = 500, 1000
DELAYS_MS = np.array([0, *(1000 * level for level in range(1, 19))], np.int64)


@pytest.fixture(scope="module")
def golden_log(golden):
    made = {}

    def of_version(version):
        if version not in made:
            made[version] = logs.GoldenLog(golden(version).store, with_tags=version == "5.5.0")
        return made[version]

    return of_version


@BOTH_VERSIONS
def test_index_files_are_the_ones_that_rocketmq_wrote(golden, golden_log, version):
    entries = golden_log(version).entries
    first, before = 0, 0
    for path in sorted((golden(version).store / "index").iterdir()):
        new = entries.part(first, first + ENTRIES - 1)
        slots, body, used = logs.built_index_file(new, SLOTS, ENTRIES, before)
        times, offsets, count = new.timestamps, new.offsets, len(new.hashes)
        header = struct.pack(
            ">qqqqii", times[0], times[-1], offsets[0], offsets[-1], used, count + 1
        )
        assert header + slots + body == path.read_bytes()
        first, before = first + count, int(times[-1])
    assert first == len(entries.hashes) > 2 * ENTRIES


@BOTH_VERSIONS
def test_consume_queues_are_the_ones_that_rocketmq_wrote(golden, golden_log, version):
    rows, topics = [], []
    for buffer, base_offset, segment_rows, _ in golden_log(version).segments:
        rows.append(segment_rows)
        starts, lengths = kernels.part_slices(segment_rows, base_offset, "topic")
        topics += [
            bytes(buffer[start : start + length]).decode()
            for start, length in zip(starts, lengths, strict=True)
        ]
    rows, topics = np.concatenate(rows), np.array(topics)
    written = 0
    for path in sorted((golden(version).store / "consumequeue").glob("*/*/*")):
        queue, topic = path.parent.name, path.parent.parent.name
        chosen = np.flatnonzero((topics == topic) & (rows["queue_id"] == int(queue)))
        real = path.read_bytes()
        out = np.zeros(len(real), np.uint8)
        written += kernels.consume_queue_entries(
            rows,
            chosen,
            out,
            first_queue_offset=int(path.name) // 20,
            delays_ms=DELAYS_MS if topic == "SCHEDULE_TOPIC_XXXX" else None,
        )
        assert out.tobytes() == real, path
    assert written > 1500


@BOTH_VERSIONS
def test_every_real_record_has_the_row_that_the_decoder_reads(golden_log, version):
    for buffer, base_offset, rows, ended in golden_log(version).segments:
        content = buffer.tobytes()
        found, position, reason = logs.python_scan(content, base_offset)
        assert (ended.count, ended.next_position, ended.reason) == (len(found), position, reason)
        for row, record in zip(rows, found, strict=True):
            assert logs.kernel_row(row, content, base_offset) == logs.python_row(record, content)


@BOTH_VERSIONS
def test_every_real_body_has_its_checksum_and_a_changed_one_has_not(golden_log, version):
    buffer, base_offset, rows, _ = golden_log(version).segments[0]
    assert kernels.crc_ok(buffer, base_offset, rows).all()
    changed = buffer.copy()
    changed[rows["physical_offset"] - base_offset + rows["body_start"]] ^= 1
    assert not kernels.crc_ok(changed, base_offset, rows)[rows["body_length"] > 0].any()


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


@BOTH_VERSIONS
def test_real_index_files_check_as_good_and_any_changed_link_as_bad(golden, version):
    content = np.fromfile(min((golden(version).store / "index").iterdir()), np.uint8)
    slots, entries = content[40 : 40 + 4 * SLOTS], content[40 + 4 * SLOTS :]
    good = kernels.check_index_file(slots, entries, slot_count=SLOTS, last_entry=ENTRIES - 1)
    assert good.is_good
    assert good.used_slot_count == struct.unpack_from(">i", content.tobytes(), 32)[0]
    for entry in range(1, ENTRIES):
        for byte in (0, 3, 16, 19):
            entries[20 * entry + byte] ^= 0x81
            bad = kernels.check_index_file(slots, entries, slot_count=SLOTS, last_entry=ENTRIES - 1)
            assert not bad.is_good
            entries[20 * entry + byte] ^= 0x81
    for slot in range(SLOTS):
        slots[4 * slot + 3] ^= 1
        bad = kernels.check_index_file(slots, entries, slot_count=SLOTS, last_entry=ENTRIES - 1)
        assert (bad.bad_entry_count, bad.first_bad_slot) == (0, slot)
        slots[4 * slot + 3] ^= 1


@pytest.mark.parametrize("slot_count", [1, 2, 7, 100, 997])
@pytest.mark.parametrize("begin", [0, -5, 1_699_999_000_000, 1_800_000_000_000, 1])
def test_any_geometry_gives_what_putting_keys_one_by_one_gives(slot_count, begin):
    draw = np.random.default_rng(slot_count)
    tuples = [
        (
            int(draw.integers(0, 2**31)),
            100 * number,
            int(1_700_000_000_000 + draw.integers(-9, 99999)),
        )
        for number in range(700)
    ]
    built = logs.built_index_file(logs.entry_arrays(tuples), slot_count, 800, begin)
    assert built == logs.python_index_file(tuples, slot_count, 800, begin)


def test_hostile_times_give_the_seconds_that_java_computes():
    times = [1, 2**63 - 1, -(2**63), 0, -1, 1000, 1001, 2**31 * 1000, 2**31 * 1000 + 1, 10**15]
    tuples = [(number, number, time) for number, time in enumerate(times)]
    for begin in (0, 1, 5000, 2**63 - 1):
        built = logs.built_index_file(logs.entry_arrays(tuples), 3, 20, begin)
        assert built == logs.python_index_file(tuples, 3, 20, begin)


def test_slot_ranges_in_any_order_give_what_one_call_gives():
    draw = np.random.default_rng(7)
    entries = kernels.EntryArrays(
        draw.integers(0, 2**31, 5000).astype(np.int32),
        np.arange(5000, dtype=np.int64),
        draw.integers(1, 2**40, 5000),
    )
    whole = logs.built_index_file(entries, 300, 5001, 123)
    ranges = [(200, 300), (0, 0), (0, 1), (150, 200), (1, 150)]
    assert logs.built_index_file(entries, 300, 5001, 123, ranges) == whole


def test_a_file_filled_in_two_calls_is_the_same():
    draw = np.random.default_rng(8)
    tuples = [(int(draw.integers(0, 99)), number, 10**12 + 997 * number) for number in range(300)]
    entries = logs.entry_arrays(tuples)
    slots, body = np.zeros(4 * 50, np.uint8), np.zeros(20 * 301, np.uint8)
    used = 0
    for first, last in ((0, 1), (1, 120), (120, 120), (120, 300)):
        used += kernels.build_index_file(
            entries.part(first, last),
            slots,
            body,
            slot_count=50,
            begin_timestamp_ms=10**12 if first else 77,
            first_entry=first + 1,
        )
    assert (slots.tobytes(), body.tobytes(), used) == logs.python_index_file(tuples, 50, 301, 77)


def test_entries_that_do_not_fit_are_refused():
    entries = kernels.EntryArrays.allocate(10)
    slots, body = np.zeros(40, np.uint8), np.zeros(20 * 10, np.uint8)
    for slot_count, first_entry, slot_range in (
        (10, 1, None),
        (11, 1, None),
        (0, 1, None),
        (10, 0, None),
        (10, -5, None),
        (10, 2**31, None),
        (10, 1, (0, 11)),
        (10, 1, (5, 4)),
        (10, 1, (-1, 4)),
    ):
        with pytest.raises(BadInput):
            kernels.build_index_file(
                entries,
                slots,
                body,
                slot_count=slot_count,
                begin_timestamp_ms=0,
                first_entry=first_entry,
                slot_range=slot_range,
            )
    with pytest.raises(BadInput):
        kernels.check_index_file(slots, body, slot_count=10, last_entry=10)


def test_rollbacks_have_no_entry_and_others_have_theirs_in_order():
    properties_bytes = b"TAGS\1a b\2KEYS\1 k1  k2 k1 \2UNIQ_KEY\1u\2"
    parts = [{"sys_flag": flag, "properties_bytes": properties_bytes} for flag in (0, 4, 8, 12)]
    content = logs.raw_log(0, parts)
    buffer = logs.array(content)
    rows, _ = logs.scan(buffer)
    entries = kernels.EntryArrays.allocate(100)
    for with_tags in (False, True):
        count = kernels.index_entries(buffer, 0, rows, entries, with_tags=with_tags)
        assert count == kernels.count_index_entries(buffer, 0, rows, with_tags=with_tags)
        texts = ["T#u", "T#k1", "T#k2", "T#k1", *(["T#T#a b"] if with_tags else [])]
        hashes = [java.index_hash(text) for text in texts]
        assert entries.hashes[:count].tolist() == hashes * 3
    few = kernels.EntryArrays.allocate(2)
    assert kernels.index_entries(buffer, 0, rows, few, with_tags=True) == 15


def test_one_pass_gives_the_rows_and_entries_of_two():
    keys = [b"KEYS\1" + b" ".join(b"key%d" % n for n in range(i % 7)) + b"\2" for i in range(300)]
    content = logs.raw_log(64, [{"properties_bytes": one} for one in keys])
    buffer = logs.array(content)
    rows, ended = logs.scan(buffer, 64)
    entries = kernels.EntryArrays.allocate(5000)
    count = kernels.index_entries(buffer, 64, rows, entries, with_tags=True)
    part_rows = np.zeros(11, kernels.RECORD_DTYPE)
    part = kernels.EntryArrays.allocate(13)
    position, got_rows, got_entries, reason = 0, [], [], ScanReason.FULL
    while reason is ScanReason.FULL:
        done = kernels.scan_entries(
            buffer, 64, position, len(buffer), part_rows, part, with_tags=True
        )
        got_rows.append(part_rows[: done.count].copy())
        got_entries += logs.as_tuples(part, done.entry_count)
        position, reason = done.next_position, done.reason
    assert (position, reason) == (ended.next_position, ended.reason)
    assert np.concatenate(got_rows).tobytes() == rows.tobytes()
    assert got_entries == logs.as_tuples(entries, count)


def test_no_record_has_more_entries_than_the_room_asked_for():
    most = b"KEYS\1" + b"k " * ((32767 - 5 - 22) // 2) + b"\2UNIQ_KEY\1u\2TAGS\1t\2"
    content = logs.raw_log(0, [{"properties_bytes": most}])
    rows, _ = logs.scan(logs.array(content))
    count = kernels.count_index_entries(logs.array(content), 0, rows, with_tags=True)
    assert 16_300 < count <= limits.MAX_RECORD_ENTRIES


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
        assert ended == (3, whole, reason)
    assert logs.scan(logs.array(content), 1000, room=2)[1] == (2, sum(sizes[:2]), ScanReason.FULL)
    assert logs.scan(logs.array(content), 1000, stop=1)[1] == (1, sizes[0], ScanReason.STOP)
    assert logs.scan(logs.array(content), 1000, stop=0)[1] == (0, 0, ScanReason.STOP)


def test_a_start_or_offset_that_cannot_be_is_refused():
    rows = np.zeros(1, kernels.RECORD_DTYPE)
    buffer = np.zeros(100, np.uint8)
    for base_offset, start in ((0, -1), (0, 101), (-1, 0), (2**63 - 1, 0)):
        with pytest.raises(BadInput):
            kernels.scan_records(buffer, base_offset, start, 100, rows)
        with pytest.raises(BadInput):
            kernels.find_record(buffer, base_offset, start, 100)
        with pytest.raises(BadInput):
            kernels.walk_to(buffer, base_offset, start, 100)
    with pytest.raises(TypeError):
        kernels.scan_records(np.zeros(100, np.int8), 0, 0, 100, rows)


def test_rows_of_another_buffer_are_refused():
    content = logs.raw_log(0, [{"properties_bytes": b"KEYS\1k\2TAGS\1t\2UNIQ_KEY\1u\2"}])
    buffer = logs.array(content)
    good, _ = logs.scan(buffer)
    entries = kernels.EntryArrays.allocate(10)
    for change in (
        {"physical_offset": -1},
        {"physical_offset": 1},
        {"physical_offset": -(2**63)},
        {"store_size": 2**31 - 1},
        {"store_size": -(2**31)},
        {"keys_length": 2**31 - 1},
        {"keys_start": -(2**31)},
        {"unique_key_start": 2**31 - 1},
        {"tags_start": 63},
        {"topic_length": -1},
        {"body_length": 2**31 - 1},
        {"properties_start": 0},
    ):
        rows = good.copy()
        for name, value in change.items():
            rows[name] = value
        for use in (
            lambda rows=rows: kernels.index_entries(buffer, 0, rows, entries, with_tags=True),
            lambda rows=rows: kernels.crc_ok(buffer, 0, rows),
            lambda rows=rows: kernels.group_rows(buffer, 0, rows, by_queue=True),
            lambda rows=rows: kernels.key_slices(buffer, 0, rows),
            lambda rows=rows: kernels.property_slices(buffer, 0, rows),
        ):
            with pytest.raises(BadInput):
                use()
    with pytest.raises(BadInput):
        kernels.gather(buffer, np.array([-1]), np.array([1], np.int32), as_text=False)
    with pytest.raises(BadInput):
        kernels.gather(buffer, np.array([len(buffer)]), np.array([1], np.int32), as_text=True)
    with pytest.raises(BadInput):
        kernels.gather(buffer, np.array([0, 1]), np.array([1], np.int32), as_text=True)


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


def test_prepared_and_rollback_records_have_no_queue_entry():
    content = logs.raw_log(
        0, [{"sys_flag": flag, "queue_offset": 10 + flag // 4} for flag in (0, 4, 8, 12)]
    )
    rows, _ = logs.scan(logs.array(content))
    out = np.zeros(20 * 3, np.uint8)
    chosen = np.array([3, 2, 1, 0, 99, -1])
    assert kernels.consume_queue_entries(rows, chosen, out, first_queue_offset=10) == 2
    entries = list(struct.iter_unpack(">qiq", out.tobytes()))
    assert entries[1] == (0, 0, 0)
    assert [entry[0] for entry in entries] == [0, 0, int(rows["physical_offset"][2])]
    assert kernels.consume_queue_entries(rows, chosen, out, first_queue_offset=11) == 1
    assert kernels.consume_queue_entries(rows, chosen, out, first_queue_offset=-(2**63)) == 0


def test_a_delay_above_the_last_level_counts_as_the_last():
    levels = [b"1", b"2", b"3", b"-1", b"0", b"x", b"\xd9\xa2"]
    content = logs.raw_log(
        0,
        [
            {"properties_bytes": b"DELAY\1" + level + b"\2TAGS\1A\2", "queue_offset": place}
            for place, level in enumerate(levels)
        ],
    )
    rows, _ = logs.scan(logs.array(content))
    out = np.zeros(20 * len(levels), np.uint8)
    chosen = np.arange(len(levels))
    kernels.consume_queue_entries(
        rows, chosen, out, first_queue_offset=0, delays_ms=np.array([0, 1000, 5000])
    )
    due = [1_700_000_001_000, 1_700_000_005_000, 1_700_000_005_000, 65, 65, 65, 1_700_000_005_000]
    assert [entry[2] for entry in struct.iter_unpack(">qiq", out.tobytes())] == due


def test_rows_are_grouped_by_topic_and_queue_in_order_of_appearance():
    order = [(b"A", 0), (b"B", 0), (b"A", 1), (b"A", 0), (b"", 0), (b"B", 0), (b"A", -1)]
    content = logs.raw_log(0, [{"topic": topic, "queue_id": queue} for topic, queue in order])
    buffer = logs.array(content)
    rows, _ = logs.scan(buffer)
    by_topic = kernels.group_rows(buffer, 0, rows, by_queue=False)
    assert by_topic.group_of_row.tolist() == [0, 1, 0, 0, 2, 1, 0]
    assert by_topic.first_rows.tolist() == [0, 1, 4]
    by_queue = kernels.group_rows(buffer, 0, rows, by_queue=True)
    assert by_queue.group_of_row.tolist() == [0, 1, 2, 0, 3, 1, 4]
    assert kernels.group_rows(buffer, 0, rows[:0], by_queue=True).first_rows.tolist() == []


def test_topics_of_one_hash_stay_apart():
    content = logs.raw_log(0, [{"topic": b"one"}, {"topic": b"two"}, {"topic": b"one"}])
    buffer = logs.array(content)
    rows, _ = logs.scan(buffer)
    rows["topic_hash"] = 1
    assert kernels.group_rows(buffer, 0, rows, by_queue=False).group_of_row.tolist() == [0, 1, 0]


@BOTH_VERSIONS
def test_real_keys_and_properties_are_cut_as_the_parser_cuts_them(golden_log, version):
    for buffer, base_offset, rows, _ in golden_log(version).segments:
        found, _, _ = logs.python_scan(buffer.tobytes(), base_offset)
        assert_cut_as_python_cuts(buffer, base_offset, rows, found)


def assert_cut_as_python_cuts(buffer, base_offset, rows, found):
    keys = kernels.key_slices(buffer, base_offset, rows)
    key_texts = texts(buffer, keys.starts, keys.lengths)
    maps = kernels.property_slices(buffer, base_offset, rows)
    names = texts(buffer, maps.name_starts, maps.name_lengths)
    values = texts(buffer, maps.value_starts, maps.value_lengths)
    for index, record in enumerate(found):
        parsed = properties.parse(java.decode_utf8(record.properties))
        first, last = keys.list_offsets[index : index + 2]
        assert tuple(key_texts[first:last]) == properties.split_keys(parsed.get("KEYS"))
        first, last = maps.list_offsets[index : index + 2]
        got = list(zip(names[first:last], values[first:last], strict=True))
        assert got == list(parsed.items())


def texts(buffer, starts, lengths):
    gathered = kernels.gather(buffer, starts, lengths, as_text=True)
    offsets, content = gathered.offsets.tolist(), gathered.values.tobytes()
    return [content[a:b].decode() for a, b in pairwise(offsets)]


def test_many_properties_and_repeated_names_keep_first_place_and_last_value():
    many = b"".join(b"n%d\1v%d\2" % (number % 900, number) for number in range(2500))
    hard = b"a\1\2\1b\2\2ab\2a\1b\1c\2x\1y\2x\1z\2\xff\1one\2\xfe\1two\2last\1v"
    parts = [{"properties_bytes": one} for one in (many, hard, b"", b"a\1b", b"\2\2\2", many) * 9]
    content = logs.raw_log(0, parts)
    buffer = logs.array(content)
    rows, _ = logs.scan(buffer)
    found, _, _ = logs.python_scan(content)
    assert len(found) == len(parts)
    assert_cut_as_python_cuts(buffer, 0, rows, found)


def test_text_is_gathered_as_java_decodes_it_and_bytes_as_they_are():
    pieces = [b"", b"plain", b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x98", "\u4e2d\U0001f600".encode()]
    buffer = logs.array(b"".join(pieces))
    lengths = np.array([len(piece) for piece in pieces] + [-1], np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths[:-1])])
    assert texts(buffer, starts, lengths) == [*map(java.decode_utf8, pieces), ""]
    plain = kernels.gather(buffer, starts, lengths, as_text=False)
    assert plain.values.tobytes() == buffer.tobytes()


@pytest.mark.parametrize("length", [*range(20), 255, 1000, 70_001])
def test_checksums_are_those_of_zlib(length):
    body = np.random.default_rng(length).bytes(length)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    content = logs.raw_log(
        0, [{"body": body, "body_crc": crc}, {"body": body, "body_crc": crc ^ 1}]
    )
    buffer = logs.array(content)
    rows, _ = logs.scan(buffer)
    assert kernels.crc_ok(buffer, 0, rows).tolist() == [True, length == 0]


@pytest.mark.parametrize("append_crc", [False, True])
@pytest.mark.parametrize("body", [b"", b"body", bytes(range(256))])
@pytest.mark.parametrize("text", [b"", b"KEYS\x01k\x02", b"__CRC32#\x01" + b"9" * 10 + b"\x02"])
def test_checksums_of_a_changed_record_are_judged_as_by_its_decoder(append_crc, body, text):
    base = logs.raw_record(0, body=body, properties_bytes=text)
    record = commitlog_record.decode(base, check_crc=False)
    whole = commitlog_record.encode(record, append_crc=append_crc)
    verdicts = set()
    for place in range(len(whole)):
        for bit in (0x01, 0x10, 0x80):
            changed = bytearray(whole)
            changed[place] ^= bit
            buffer = logs.array(changed)
            rows, _ = logs.scan(buffer)
            if not len(rows):
                continue
            try:
                commitlog_record.decode(buffer.data)
                expected = True
            except RecordError:
                expected = False
            verdicts.add(expected)
            assert kernels.crc_ok(buffer, 0, rows[:1]).tolist() == [expected], (place, bit)
    has_checksum = append_crc or body or text.startswith(b"__")
    assert verdicts == ({True, False} if has_checksum else {True})


@device
def compiled_rules(sys_flag):
    return kernels_scan.is_indexed(sys_flag), kernels_scan.has_queue_entry(sys_flag)


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
        assert compiled_rules(sys_flag) == (indexed, queued)
