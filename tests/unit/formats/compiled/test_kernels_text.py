"""Compiled copies of text, groups and checksums, against plain Python."""

import zlib

import numpy as np
import pytest

from rocketlens.errors import RecordError
from rocketlens.formats import commitlog_record
from rocketlens.formats.compiled import kernels
from rocketlens.model.text import java
from tests.unit.formats import kernel_logs as logs
from tests.unit.formats.kernel_logs import BOTH_VERSIONS, assert_cut_as_python_cuts, texts


@BOTH_VERSIONS
def test_every_real_body_has_its_checksum_and_a_changed_one_has_not(golden_log, version):
    buffer, base_offset, rows, _ = golden_log(version).segments[0]
    assert kernels.crc_ok(buffer, base_offset, rows).all()
    changed = buffer.copy()
    changed[rows["physical_offset"] - base_offset + rows["body_start"]] ^= 1
    assert not kernels.crc_ok(changed, base_offset, rows)[rows["body_length"] > 0].any()


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
