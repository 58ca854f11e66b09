"""Checkpoints, headers of a DLedger log, Java's properties, and what declared fields derive."""

import struct
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import CheckpointError
from rocketlens.formats import checkpoint, dledger, java_properties, timer_checkpoint
from rocketlens.formats.checkpoint import Checkpoint
from rocketlens.formats.commitlog_record import encode
from rocketlens.formats.compiled import scan
from rocketlens.formats.compiled.record_constants import BLANK, STOP
from rocketlens.formats.layout import Layout, declared_types
from rocketlens.formats.timer_checkpoint import FIELDS, OWN_MARK, TimerCheckpoint
from rocketlens.model.message import I32, I64
from tests.support.made_stores import record_of, some_messages
from tests.unit.formats import kernel_logs

WHOLE = Checkpoint(1, 2, 3, -4, 2**63 - 1, -(2**63))


def test_a_checkpoint_fills_its_page_and_comes_back():
    encoded = WHOLE.encode()
    assert len(encoded) == 4096
    assert encoded[:48].hex() == (
        "000000000000000100000000000000020000000000000003"
        "fffffffffffffffc7fffffffffffffff8000000000000000"
    )
    assert encoded[48:] == bytes(4048)
    assert checkpoint.decode(encoded) == WHOLE
    assert checkpoint.decode(memoryview(encoded)) == WHOLE


def test_a_checkpoint_of_nothing_is_all_zero():
    assert Checkpoint().encode() == bytes(4096)
    assert checkpoint.decode(bytes(4096)) == Checkpoint()


def test_every_prefix_with_the_fields_reads_and_every_shorter_one_is_an_error():
    encoded = WHOLE.encode()
    for length in range(48):
        with pytest.raises(CheckpointError, match=f"has {length} bytes"):
            checkpoint.decode(encoded[:length])
    for length in (48, 49, 4095):
        assert checkpoint.decode(encoded[:length]) == WHOLE


def test_each_flipped_byte_changes_exactly_the_field_it_is_in():
    encoded = WHOLE.encode()
    for position in range(64):
        changed = bytearray(encoded)
        changed[position] ^= 0xFF
        differing = [
            index
            for index, (now, before) in enumerate(
                zip(checkpoint.decode(changed), WHOLE, strict=True)
            )
            if now != before
        ]
        assert differing == ([position // 8] if position < 48 else [])


# What RocketMQ 5.5.0 wrote after 18 timers.
REAL = bytes.fromhex(
    "000001a203a0c6b000000000000003a80000000000000012000000000000001200000000000000000000"
    "01a203a0c8ca000000000000000f"
).ljust(4096, b"\0")
OURS = TimerCheckpoint(1, 2, 3, 3, 4, 5, 6, 0, 7, 8, 9, 10)


def test_what_rocketmq_wrote_is_read_and_is_not_ours():
    found = timer_checkpoint.decode(REAL)
    assert found.read_time_ms == 1795357198000
    assert (found.timer_log_flushed_offset, found.queue_offset, found.master_queue_offset) == (
        18 * 52,
        18,
        18,
    )
    assert (found.state_version, found.version_timestamp_ms, found.version_counter) == (
        0,
        1795357198538,
        15,
    )
    assert not found.is_own


def test_ours_fills_its_page_comes_back_and_has_rocketmqs_fields_where_it_reads_them():
    encoded = OURS.encode()
    assert len(encoded) == 4096
    assert encoded[:56] == FIELDS.pack(*OURS)[:56]
    assert encoded[FIELDS.size :] == bytes(4096 - FIELDS.size)
    found = timer_checkpoint.decode(memoryview(encoded))
    assert found.is_own
    assert found._replace(own_mark=0, checksum=0) == OURS
    assert found.own_mark == OWN_MARK


def test_every_prefix_of_a_timer_checkpoint_with_the_fields_reads_and_shorter_ones_are_errors():
    encoded = OURS.encode()
    for length in range(FIELDS.size):
        with pytest.raises(CheckpointError, match=f"has {length} bytes"):
            timer_checkpoint.decode(encoded[:length])
    for length in (FIELDS.size, FIELDS.size + 1, 4095):
        assert timer_checkpoint.decode(encoded[:length]).is_own


def test_each_flipped_byte_of_the_fields_makes_it_no_longer_ours():
    encoded = OURS.encode()
    for position in range(FIELDS.size):
        changed = bytearray(encoded)
        changed[position] ^= 0x10
        assert not timer_checkpoint.decode(changed).is_own, position


def test_what_rocketmq_writes_over_ours_is_not_taken_for_ours():
    assert not timer_checkpoint.decode(REAL[:56] + OURS.encode()[56:]).is_own


def entry(record, begin, **changes):
    fields = {"magic": 1, "position": begin, "size": 48 + len(record), "length": len(record)}
    fields |= changes
    return (
        struct.pack(
            ">iiqqqiiii",
            *(fields["magic"], fields["size"], 7, 3, fields["position"]),
            *(0, 0, 0, fields["length"]),
        )
        + record
    )


@pytest.mark.parametrize(
    "changes", [{"magic": 2}, {"position": 64}, {"size": 9}, {"length": 0, "size": 48}]
)
def test_a_header_is_known_by_its_own_offset_and_both_its_sizes(changes):
    assert dledger.bytes_before_record(memoryview(entry(b"x" * 20, 65)), 0, 65) == 48
    assert dledger.bytes_before_record(memoryview(entry(b"x" * 20, 65, **changes)), 0, 65) == 0
    assert dledger.bytes_before_record(memoryview(entry(b"x" * 20, 65)[:47]), 0, 65) == 0


def test_the_compiled_walk_steps_over_headers_as_the_other_does():
    content, offsets, base = b"", [], 1 << 40
    for sent in some_messages(50):
        position = base + len(content)
        record, _ = record_of(sent, position + 48, 0)
        offsets.append(position + 48)
        content += entry(encode(record), position)
    end = len(content)
    rest = 4096
    content += struct.pack(">ii", -1, rest) + bytes(rest - 8)
    buffer = np.frombuffer(content, np.uint8)
    rows, (_, *found) = kernel_logs.scan(buffer, base)
    assert rows["physical_offset"].tolist() == offsets
    assert found == [end, BLANK]
    # A walk that ends at an entry ends at its record.
    stop = offsets[20] - base - 48
    assert kernel_logs.scan(buffer, base, 0, stop)[1][1:] == (stop + 48, STOP)
    assert scan.walk(buffer, base, 0, stop + 1) == (stop + 48, STOP)


@pytest.mark.parametrize(
    ("content", "index"),
    [
        (b"committedIndex=299\nendIndex=300\n", 299),
        (b"#Tue\r\nendIndex=3\r\ncommittedIndex=0\r\n", 0),
        (b"endIndex=3\n", None),
        (b"committedIndex=-1\n", None),
        (b"", None),
    ],
)
def test_a_checkpoint_says_what_is_committed(content, index):
    assert dledger.committed_index(content) == index


def test_a_broker_conf_is_read_as_java_reads_it():
    text = (
        "# comment\n! comment\n\nbrokerName=broker-a\n  listenPort : 10911 \ndeleteWhen 04\n"
        "path=C:\\\\store\\ttab\\u00e9\nlong = one \\\n    two\nkey\\ with\\=odd=1=2\n"
        "empty=\nalone"
    )
    assert java_properties.loads(text) == {
        "brokerName": "broker-a",
        "listenPort": "10911 ",
        "deleteWhen": "04",
        "path": "C:\\store\ttab\xe9",
        "long": "one two",
        "key with=odd": "1=2",
        "empty": "",
        "alone": "",
    }


@given(st.text())
def test_every_text_has_entries(text):
    values = java_properties.loads(text)
    assert all(type(word) is str for pair in values.items() for word in pair)


def test_the_line_of_a_key_is_that_whose_value_counts():
    text = "# c\na=1\n\nb=1\\\n  2\na=3\\"
    assert java_properties.key_lines(text) == {"a": 6, "b": 5}


def test_of_a_key_that_comes_twice_the_last_value_counts():
    assert java_properties.loads("a=1\na=2\na\\\n") == {"a": ""}


def test_an_answer_has_a_line_for_each_key_sorted_and_without_escapes():
    assert java_properties.dumps_unescaped({"b": "C:\\x", "a": "1=2"}) == "a=1=2\nb=C:\\x\n"


def test_a_line_ends_as_in_java_and_nowhere_else():
    separators = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
    text = f"a=1{separators}b=2\rc=3\r\nd=4\ne=5"
    assert java_properties.loads(text) == {"a": f"1{separators}b=2", "c": "3", "d": "4", "e": "5"}


class Declared(NamedTuple):
    first: I32
    second: I64
    third: I32
    only_in_memory: int = 0


LAYOUT = Layout.of(Declared)
PACKED = bytes.fromhex("00000001 ffffffffffffffff 00000003")


def test_fields_without_a_width_are_not_part_of_a_layout():
    assert declared_types(Declared) == [("first", "i32"), ("second", "i64"), ("third", "i32")]


def test_fields_follow_one_another_without_gaps_big_endian():
    assert LAYOUT.offsets == {"first": 0, "second": 4, "third": 12}
    assert LAYOUT.size == len(PACKED)
    assert LAYOUT.struct.unpack(PACKED) == (1, -1, 3)
    assert np.frombuffer(PACKED * 2, LAYOUT.dtype).tolist() == [(1, -1, 3)] * 2


def test_a_struct_of_some_fields_skips_the_others_and_ends_behind_the_last():
    assert LAYOUT.struct_of("first", "third").unpack(PACKED) == (1, 3)
    assert LAYOUT.struct_of("second").unpack(PACKED[:12]) == (-1,)
    assert LAYOUT.struct_of("first", "third").pack(1, 3) == PACKED[:4] + bytes(8) + PACKED[12:]


def test_a_dtype_of_some_fields_has_them_where_they_are():
    row = np.frombuffer(PACKED[:12], LAYOUT.dtype_of("second"))
    assert row["second"].tolist() == [-1]
    with pytest.raises(KeyError):
        LAYOUT.dtype_of("fourth")
