"""Whatever the bytes are, the kernels agree with the decoder and stay inside their arrays."""

import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlens.errors import BadInput
from rocketlens.formats import columns
from rocketlens.formats.compiled import scan
from rocketlens.formats.compiled.rows import RECORD_DTYPE
from tests.support.effort import sized
from tests.unit.broker.delivery import test_compiled_pulls as pulls
from tests.unit.broker.lookup import test_compiled as look_ups
from tests.unit.broker.sends import test_send_runs as send_runs
from tests.unit.broker.sends.mutated_sends import take_mutated
from tests.unit.formats import kernel_logs as logs

SIGNED_FIELDS = [name for name in RECORD_DTYPE.names if RECORD_DTYPE[name].kind == "i"]

# Separators, spaces, the names that count, and pieces of characters, so that each case is met.
text_pieces = st.sampled_from(
    [
        *[
            b"\1",
            b"\2",
            b" ",
            b"a",
            b"KEYS\1",
            b"TAGS\1",
            b"UNIQ_KEY\1",
            b"DELAY\1",
            b"7",
            b"+",
            b"-",
        ],
        *[b"KEYS", b"\xe4\xb8\xad", b"\xe4\xb8", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xf0\x9f"],
        *[b"\x80", b"\xff", b"\xc3\xa9", b"\xd9\xa3", b"x" * 61, b"long key " * 9, b"\xef\xbf\xbd"],
    ]
)
property_bytes = st.one_of(
    st.lists(text_pieces, max_size=40).map(b"".join), st.binary(max_size=200)
).map(lambda content: content[:32767])
parts_of_a_record = st.fixed_dictionaries(
    {
        "topic": st.one_of(
            st.sampled_from([b"", b"OrderTopic", b"\xff" * 9]), st.binary(max_size=90)
        ),
        "properties_bytes": property_bytes,
        "body": st.binary(max_size=70),
        "magic": st.sampled_from([logs.V1, logs.V2]),
        "sys_flag": st.sampled_from([0, 0x10, 0x20, 0x30, 0xC, 0x3C, -1]),
        "store_timestamp_ms": st.integers(-(2**63), 2**63 - 1),
        "queue_offset": st.integers(-(2**63), 2**63 - 1),
    }
)
base_offsets = st.integers(0, 2**40)


def assert_agreement(content, base_offset=0, start=0, stop=None):
    """Rows, end and entries of a log, against the decoder."""
    buffer = logs.array(content)
    rows, ended = logs.scan(buffer, base_offset, start, stop)
    found, position, reason = logs.python_scan(content, base_offset, start, stop)
    assert ended == (len(found), position, reason)
    for row, record in zip(rows, found, strict=True):
        assert logs.kernel_row(row, content, base_offset) == logs.python_row(record, content)
    for with_tags in (False, True):
        expected = logs.python_entries(found, with_tags=with_tags)
        entries = logs.index_entries(buffer, base_offset, rows, with_tags=with_tags)
        assert logs.as_tuples(entries) == expected
    return buffer, rows, found


@settings(max_examples=sized(75, 300))
@given(st.lists(parts_of_a_record, max_size=6), base_offsets)
def test_rows_and_entries_of_any_records_are_those_of_the_decoder(parts, base_offset):
    assert_agreement(logs.raw_log(base_offset, parts), base_offset)


@settings(max_examples=sized(75, 300))
@given(st.lists(parts_of_a_record, min_size=1, max_size=4))
def test_keys_and_properties_of_any_records_are_cut_as_python_cuts_them(parts):
    buffer, rows, found = assert_agreement(logs.raw_log(0, parts))
    logs.assert_cut_as_python_cuts(buffer, 0, rows, found)


@settings(max_examples=sized(75, 300))
@given(st.binary(max_size=400), base_offsets, st.integers(0, 400))
def test_bytes_that_are_no_log_are_read_as_the_decoder_reads_them(content, base_offset, start):
    assert_agreement(content, base_offset, min(start, len(content)))


@settings(max_examples=sized(50, 200))
@given(st.lists(parts_of_a_record, min_size=1, max_size=5), st.data())
def test_damaged_logs_are_read_as_the_decoder_reads_them(parts, data):
    content = bytearray(logs.raw_log(0, parts))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(0, len(content) + 10))
    assert_agreement(bytes(content), stop=stop)
    assert_agreement(bytes(content[:cut]))


def whole_record():
    return {
        "properties_bytes": b"KEYS\1k1 k2\2UNIQ_KEY\1" + b"A" * 32 + b"\2TAGS\1t\2DELAY\0013\2",
        "topic": b"OrderTopic",
        "magic": logs.V2,
        "sys_flag": 0x20,
    }


def test_every_prefix_of_a_log_is_read_as_the_decoder_reads_it():
    content = logs.raw_log(0, [whole_record(), whole_record()])
    for length in range(len(content) + 1):
        assert_agreement(content[:length])


def test_every_flipped_byte_of_a_log_is_read_as_the_decoder_reads_it():
    content = bytearray(logs.raw_log(0, [whole_record(), whole_record()]))
    for at in range(len(content)):
        for flip in (0x01, 0x80, 0xFF):
            content[at] ^= flip
            assert_agreement(bytes(content))
            content[at] ^= flip


@settings(max_examples=sized(50, 200))
@given(st.lists(parts_of_a_record, min_size=1, max_size=5), st.binary(max_size=150), st.data())
def test_the_next_record_is_the_first_position_that_the_decoder_takes(parts, garbage, data):
    content = garbage + logs.raw_log(1000 + len(garbage), parts)
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(0, len(content) + 5))
    takes = [
        position
        for position in range(start, min(stop, len(content)))
        if logs.python_scan(content, 1000, position, position + 1)[0]
    ]
    found = scan.find_start(logs.array(content), 1000, start, stop)
    assert found == (takes[0] if takes else -1)
    position, reason = scan.walk(logs.array(content), 1000, start, stop)
    assert (position, reason) == logs.python_scan(content, 1000, start, stop)[1:]


@settings(max_examples=sized(25, 100))
@given(
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**62), st.integers()), max_size=60
    ),
    st.integers(1, 40),
    st.integers(-1, 2**62),
)
def test_index_files_of_any_entries_are_what_putting_them_one_by_one_gives(
    drawn, slot_count, begin
):
    tuples = [
        (key_hash, offset, (time + 2**63) % 2**64 - 2**63) for key_hash, offset, time in drawn
    ]
    entries = logs.entry_arrays(tuples)
    expected = logs.python_index_file(tuples, slot_count, 64, begin)
    assert logs.built_index_file(entries, slot_count, 64, begin) == expected
    slots, body = (logs.array(part) for part in expected[:2])
    checked = logs.check_index_file(slots, body, slot_count=slot_count, last_entry=len(tuples))
    assert checked.is_good
    assert checked.used_slot_count == expected[2]


@settings(max_examples=sized(50, 200))
@given(st.binary(min_size=40, max_size=400), st.integers(1, 10))
def test_any_bytes_can_be_checked_as_an_index_file(content, slot_count):
    buffer = logs.array(content)
    slots, entries = buffer[: 4 * slot_count], buffer[4 * slot_count :]
    last_entry = len(entries) // 20 - 1
    if last_entry >= 0:
        logs.check_index_file(slots, entries, slot_count=slot_count, last_entry=last_entry)


def damage(content, draw):
    """One to five places overwritten, some with numbers that break sums and bounds."""
    damaged = bytearray(content)
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(damaged))
        piece = draw.choice(
            [b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0", b"\x80\0\0\0", b"\1", b"\2"]
        )
        damaged[at : at + len(piece)] = piece
    return bytes(damaged)


def use_every_kernel_on_damaged_logs(seed, rounds):
    """Everything that reads a log, over logs of which some bytes are wrong; also rows that lie."""
    draw = random.Random(seed)
    for _ in range(rounds):
        parts = [whole_record() | {"body": draw.randbytes(draw.randrange(200))} for _ in range(5)]
        buffer = logs.array(damage(logs.raw_log(0, parts), draw))
        position = 0
        while position >= 0:
            rows, ended = logs.scan(buffer, 0, position, room=10)
            use_every_kernel_on_rows(buffer, rows)
            if len(rows):
                lying = rows.copy()
                lying[draw.choice(SIGNED_FIELDS)] = draw.choice([-1, 0, 60, 2**31 - 1])
                use_every_kernel_on_rows(buffer, lying)
            scan.walk(buffer, 0, position, draw.randrange(2000))
            after = min(ended[1] + 1, len(buffer))
            position = scan.find_start(buffer, 0, after, len(buffer))


def use_every_kernel_on_rows(buffer, rows):
    read = logs.of_log(buffer, 0, rows)
    read.queue_entries(0, array("q", range(-1, len(rows) + 1)))
    for use in (
        lambda: read.index_entries(with_tags=True),
        read.sound,
        read.topics,
        read.queue_names,
        lambda: columns.key_slices(read),
        lambda: columns.property_slices(read),
        lambda: columns.gather(buffer, *columns.part_slices(read, "properties"), as_text=True),
        lambda: columns.gather(buffer, *columns.part_slices(read, "keys"), as_text=False),
    ):
        try:
            use()
        except BadInput:
            continue


def test_damaged_logs_and_lying_rows_are_survived():
    use_every_kernel_on_damaged_logs(seed=3, rounds=sized(500, 2000))


@pytest.mark.parametrize("is_signed", [False, True])
def test_mutated_sends_are_taken_as_far_as_they_are_plain(tmp_path, is_signed):
    assert take_mutated(tmp_path, 1, 400, is_signed=is_signed) > 40


@pytest.mark.parametrize("seed", range(sized(1, 20)))
def test_requests_of_any_bytes_are_handled_as_python_handles_them(tmp_path, seed):
    """Sends, look-ups and pulls, of which many are damaged; `make sanitize` runs these, too."""
    streams = send_runs.streams_of(seed=seed, count=sized(50, 2_000), odd=0.9)
    assert send_runs.outcome(tmp_path / "sends", streams, with_runs=True)[2] > 10
    for kind in ("nothing", "index", "commitlog"):
        assert look_ups.run(tmp_path / kind, seed, kind, sized(100, 400), 0.5) > 10
    assert pulls.run(tmp_path / "pulls", seed, sized(200, 2_000), 0.5) > 10
