"""Compiled writers of indexes and queues, and copies of text, against plain Python."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.archive import bloom
from rocketlens.errors import RecordError
from rocketlens.formats import columns, commitlog_record
from rocketlens.formats.compiled import archive, index
from rocketlens.formats.index_file import ENTRY, check_chains
from rocketlens.model.text import java
from tests.unit.formats import kernel_logs as logs
from tests.unit.formats.kernel_logs import BOTH_VERSIONS, assert_cut_as_python_cuts, texts

SLOTS, ENTRIES = 500, 1000
NO_DELAYS = np.empty(0, np.int64)
DELAYS_MS = np.array([0, *(1000 * level for level in range(1, 19))], np.int64)


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
        found = logs.of_log(buffer, base_offset, segment_rows).topics()
        topics += [found.names[number] for number in found.number_of_row]
    rows, topics = np.concatenate(rows), np.array(topics)
    written = 0
    for path in sorted((golden(version).store / "consumequeue").glob("*/*/*")):
        queue, topic = path.parent.name, path.parent.parent.name
        chosen = np.flatnonzero((topics == topic) & (rows["queue_id"] == int(queue)))
        real = path.read_bytes()
        out = np.zeros(len(real), np.uint8)
        delays_ms = DELAYS_MS if topic == "SCHEDULE_TOPIC_XXXX" else NO_DELAYS
        first = int(path.name) // 20
        written += index.queue_entries(rows[chosen].copy(), first, delays_ms, out)
        assert out.tobytes() == real, path
    assert written > 1500


@BOTH_VERSIONS
def test_real_index_files_check_as_good_and_any_changed_link_as_bad(golden, version):
    def check():
        compiled = logs.check_index_file(slots, entries, slot_count=SLOTS, last_entry=ENTRIES - 1)
        rows = list(ENTRY.iter_unpack(bytes(entries[20:])))
        hashes, links = ([row[column] for row in rows] for column in (0, 3))
        assert check_chains(hashes, links, slots.data) == compiled
        return compiled

    content = np.fromfile(min((golden(version).store / "index").iterdir()), np.uint8)
    slots, entries = content[40 : 40 + 4 * SLOTS], content[40 + 4 * SLOTS :]
    good = check()
    assert good.is_good
    assert good.used_slot_count == struct.unpack_from(">i", content.tobytes(), 32)[0]
    for entry in range(1, ENTRIES):
        for byte in (0, 3, 16, 19):
            entries[20 * entry + byte] ^= 0x81
            bad = check()
            assert not bad.is_good
            entries[20 * entry + byte] ^= 0x81
    for slot in range(SLOTS):
        slots[4 * slot + 3] ^= 1
        bad = check()
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


def test_a_file_filled_in_two_calls_is_the_same():
    draw = np.random.default_rng(8)
    tuples = [(int(draw.integers(0, 99)), number, 10**12 + 997 * number) for number in range(300)]
    entries = logs.entry_arrays(tuples)
    slots, body = np.zeros(4 * 50, np.uint8), np.zeros(20 * 301, np.uint8)
    used = 0
    for first, last in ((0, 1), (1, 120), (120, 120), (120, 300)):
        begin_ms = 10**12 if first else 77
        used += index.build(*entries.part(first, last), first + 1, begin_ms, 50, slots, body)
    assert (slots.tobytes(), body.tobytes(), used) == logs.python_index_file(tuples, 50, 301, 77)


def test_prepared_and_rollback_records_have_no_queue_entry():
    content = logs.raw_log(
        0, [{"sys_flag": flag, "queue_offset": 10 + flag // 4} for flag in (0, 4, 8, 12)]
    )
    rows, _ = logs.scan(logs.array(content))
    out = np.zeros(20 * 3, np.uint8)
    assert index.queue_entries(rows, 10, NO_DELAYS, out) == 2
    entries = list(struct.iter_unpack(">qiq", out.tobytes()))
    assert entries[1] == (0, 0, 0)
    assert [entry[0] for entry in entries] == [0, 0, int(rows["physical_offset"][2])]
    assert index.queue_entries(rows, 11, NO_DELAYS, out) == 1
    assert index.queue_entries(rows, -(2**63), NO_DELAYS, out) == 0


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
    index.queue_entries(rows, 0, np.array([0, 1000, 5000]), out)
    due = [1_700_000_001_000, 1_700_000_005_000, 1_700_000_005_000, 65, 65, 65, 1_700_000_005_000]
    assert [entry[2] for entry in struct.iter_unpack(">qiq", out.tobytes())] == due


@BOTH_VERSIONS
def test_every_real_body_has_its_checksum_and_a_changed_one_has_not(golden_log, version):
    buffer, base_offset, rows, _ = golden_log(version).segments[0]
    assert 0 not in logs.of_log(buffer, base_offset, rows).sound()
    changed = buffer.copy()
    changed[rows["physical_offset"] - base_offset + rows["body_start"]] ^= 1
    is_sound = np.array(logs.of_log(changed, base_offset, rows).sound())
    assert not is_sound[rows["body_length"] > 0].any()


def test_rows_are_grouped_by_topic_and_queue_in_order_of_appearance():
    order = [(b"A", 0), (b"B", 0), (b"A", 1), (b"A", 0), (b"", 0), (b"B", 0), (b"A", -1)]
    content = logs.raw_log(0, [{"topic": topic, "queue_id": queue} for topic, queue in order])
    buffer = logs.array(content)
    rows, _ = logs.scan(buffer)
    topics, number_of_row = logs.of_log(buffer, 0, rows).topics()
    assert number_of_row.tolist() == [0, 1, 0, 0, 2, 1, 0]
    assert topics == ["A", "B", ""]
    queues, number_of_row = logs.of_log(buffer, 0, rows).queue_names()
    assert number_of_row.tolist() == [0, 1, 2, 0, 3, 1, 4]
    assert queues == [("A", 0), ("B", 0), ("A", 1), ("", 0), ("A", -1)]
    assert logs.of_log(buffer, 0, rows[:0]).queue_names()[0] == []


def test_topics_of_one_hash_stay_apart():
    content = logs.raw_log(0, [{"topic": b"one"}, {"topic": b"two"}, {"topic": b"one"}])
    buffer = logs.array(content)
    rows, _ = logs.scan(buffer)
    rows["topic_hash"] = 1
    assert logs.of_log(buffer, 0, rows).topics().number_of_row.tolist() == [0, 1, 0]


@BOTH_VERSIONS
def test_real_keys_and_properties_are_cut_as_the_parser_cuts_them(golden_log, version):
    for buffer, base_offset, rows, _ in golden_log(version).segments:
        found, _, _ = logs.python_scan(buffer.tobytes(), base_offset)
        assert_cut_as_python_cuts(buffer, base_offset, rows, found)


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
    _, plain = columns.gather(buffer, starts, lengths, as_text=False)
    assert plain.tobytes() == buffer.tobytes()


@pytest.mark.parametrize("length", [*range(20), 255, 1000, 70_001])
def test_checksums_are_those_of_zlib(length):
    body = np.random.default_rng(length).bytes(length)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    content = logs.raw_log(
        0, [{"body": body, "body_crc": crc}, {"body": body, "body_crc": crc ^ 1}]
    )
    buffer = logs.array(content)
    rows, _ = logs.scan(buffer)
    assert list(logs.of_log(buffer, 0, rows).sound()) == [True, length == 0]


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
            sound = logs.of_log(buffer, 0, rows[:1]).sound()
            assert list(sound) == [expected], (place, bit)
    has_checksum = append_crc or body or text.startswith(b"__")
    assert verdicts == ({True, False} if has_checksum else {True})


INT64S = st.integers(-(2**63), 2**63 - 1)
FNV_1A = (0xCBF29CE484222325, 0x100000001B3)


def hashes_of(content, offsets):
    hashes = np.empty(len(offsets) - 1, np.int64)
    texts = np.frombuffer(content, np.uint8)
    archive.hash_texts(texts, np.array(offsets, np.int32), *FNV_1A, hashes)
    return hashes.tolist()


def test_no_byte_outside_of_the_texts_is_read():
    empty, a = hashes_of(b"a", [0, 0, 1])
    assert hashes_of(b"a", [0, 1, 2]) == [a, empty]
    assert hashes_of(b"a", [-1, 1, 1]) == [empty, empty]


@given(st.lists(INT64S, max_size=50), st.integers(0, 6))
def test_a_filter_has_the_bits_of_its_numbers_and_no_others(numbers, power):
    salts, words = np.array(bloom._SALTS, np.uint32), np.zeros(8 << power, np.uint32)
    primes = np.array([bloom._PRIME_1, bloom._PRIME_2, bloom._PRIME_3, bloom._PRIME_4], np.uint64)
    archive.set_filter_bits(np.array(numbers, np.int64), primes, bloom._START, salts, words)
    expected = bytearray(words.nbytes)
    for number in numbers:
        hashed = bloom.xxh64(number)
        at = bloom.block_of(hashed, words.nbytes)
        assert bloom.can_have(words.tobytes()[at : at + bloom.BLOCK_BYTES], hashed)
        for word, salt in enumerate(bloom._SALTS):
            bit = (hashed * salt & 0xFFFFFFFF) >> 27
            expected[at + word * 4 + bit // 8] |= 1 << bit % 8
    assert words.tobytes() == expected
