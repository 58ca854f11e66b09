"""The stream of the log that masters send to replicas."""

import itertools
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.formats import commitlog_record
from rocketlens.wire import ha
from rocketlens.wire.ha import MAX_HA_FRAME_BYTES, FrameReader, Heartbeat, LogBytes, ReportReader

VECTORS = Path(__file__).parent / "vectors"
FRAMES = [(4096, b"one record"), (4106, b""), (4106, b"x" * 300), (4406, b"y")]
STREAM = b"".join(ha.encode_header(offset, len(body)) + body for offset, body in FRAMES)


def fed(chunks):
    """Return the log bytes from the first offset on, the heartbeats, and the reader."""
    reader, log, begin, heartbeats = FrameReader(), b"", None, []
    for chunk in chunks:
        for event in reader.feed(chunk):
            if isinstance(event, Heartbeat):
                heartbeats.append(event.physical_offset)
                continue
            begin = event.physical_offset if begin is None else begin
            assert event.physical_offset == begin + len(log)
            assert event.end_offset == event.physical_offset + len(event.body)
            log += event.body
    return (begin, log, heartbeats), reader


WHOLE = (4096, b"one record" + b"x" * 300 + b"y", [4106])


def test_the_layout_table_is_what_the_structs_say():
    rows = re.findall(r"^(\d+) +i(\d+) ", ha.__doc__, re.MULTILINE)
    assert [(int(offset), int(bits)) for offset, bits in rows] == [(0, 64), (8, 32)]
    assert ha.HEADER.format == ">qi"
    assert ha.HEADER.size == 12
    assert ha.encode_header(5, 7) == struct.pack(">qi", 5, 7)
    assert ha.encode_report(5) == struct.pack(">q", 5)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_what_a_real_master_sent_is_its_log_and_a_heartbeat(version):
    # A real broker with two messages, asked for offset 1: the log without its first byte.
    stream = bytes.fromhex((VECTORS / f"ha-{version}.txt").read_text())
    (begin, log, heartbeats), reader = fed([stream])
    assert reader.failure is None
    assert begin == 1
    # The first byte of a size below 16 MiB.
    log = b"\0" + log
    assert heartbeats == [len(log)]
    first = commitlog_record.decode(log, physical_offset=0)
    second = commitlog_record.decode(log, first.total_size, physical_offset=first.total_size)
    assert (first.body, second.body) == (b"body0", b"body1")
    assert first.total_size + second.total_size == len(log)
    assert ha.encode_header(1, len(log) - 1) + log[1:] + ha.encode_header(len(log), 0) == stream


def test_every_cut_into_two_gives_the_same_bytes():
    for cut in range(len(STREAM) + 1):
        assert fed([STREAM[:cut], STREAM[cut:]])[0] == WHOLE


def test_single_bytes_give_the_same_bytes():
    result, reader = fed([STREAM[at : at + 1] for at in range(len(STREAM))])
    assert result == WHOLE
    assert reader.held_bytes == 0


def test_of_every_prefix_the_log_is_read_as_far_as_it_came():
    for cut in range(len(STREAM)):
        (_, log, _), reader = fed([STREAM[:cut]])
        assert reader.failure is None
        assert WHOLE[1].startswith(log)
        assert reader.held_bytes < ha.HEADER.size


@given(
    begin=st.integers(0, 1 << 61),
    bodies=st.lists(st.binary(max_size=50), max_size=8),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_frames_are_read_as_they_were_written(begin, bodies, cuts):
    stream, offset, heartbeats = b"", begin, []
    for body in bodies:
        stream += ha.encode_header(offset, len(body)) + body
        heartbeats += [] if body else [offset]
        offset += len(body)
    ends = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    chunks = [stream[start:stop] for start, stop in itertools.pairwise(ends)]
    log = b"".join(bodies)
    assert fed(chunks)[0] == (begin if log else None, log, heartbeats)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (ha.encode_header(-1, 0), "begins at physical offset -1"),
        (ha.encode_header(1 << 62, 5), f"begins at physical offset {1 << 62}"),
        (ha.encode_header(0, -1), "says that it has -1 bytes"),
        (ha.encode_header(0, MAX_HA_FRAME_BYTES + 1), "the limit is"),
    ],
)
def test_a_header_that_lies_ends_the_stream_before_anything_is_kept(header, said):
    (begin, log, _), reader = fed([header, b"more", STREAM])
    assert (begin, log) == (None, b"")
    assert said in str(reader.failure)
    assert reader.held_bytes == 0


@pytest.mark.parametrize("offset", [4405, 4407, 0])
def test_a_frame_that_does_not_begin_where_the_one_before_ended_is_never_read(offset):
    wrong = ha.encode_header(offset, 3) + b"abc"
    (_, log, _), reader = fed([STREAM[:-13] + wrong])
    assert log == WHOLE[1][:-1]
    assert f"begins at physical offset {offset}, the one before ended at 4406" in str(
        reader.failure
    )


def test_every_flipped_byte_of_a_header_fails_or_moves_the_log_visibly():
    stream = ha.encode_header(4096, 4) + b"abcd" + ha.encode_header(4100, 2) + b"ef"
    stream += ha.encode_header(4102, 1) + b"g"
    for at in (*range(12), *range(16, 28)):
        flipped = bytearray(stream)
        flipped[at] ^= 0x40
        result, reader = fed([flipped])
        assert reader.failure is not None or result != (4096, b"abcdefg", [])


def test_log_bytes_are_not_copied():
    chunk = ha.encode_header(0, 4) + b"abcd"
    (event,) = FrameReader().feed(chunk)
    assert isinstance(event, LogBytes)
    assert event.body.obj is chunk


def test_of_reports_only_the_first_and_the_newest_count_however_they_are_cut():
    stream = b"".join(map(ha.encode_report, (4096, 5000, 5001, 6000)))
    for cut in range(len(stream) + 1):
        reader = ReportReader()
        reader.feed(stream[:cut])
        reader.feed(stream[cut:])
        assert (reader.first, reader.newest, reader.failure) == (4096, 6000, None)


def test_a_report_is_complete_with_its_eighth_byte():
    reader = ReportReader()
    stream = ha.encode_report(77)
    assert [reader.feed(stream[at : at + 1]) for at in range(8)] == [False] * 7 + [True]
    assert (reader.first, reader.newest) == (77, 77)


@pytest.mark.parametrize("offset", [-1, 1 << 62])
def test_a_report_that_lies_ends_the_stream(offset):
    reader = ReportReader()
    assert not reader.feed(ha.encode_report(5) + ha.encode_report(offset))
    assert f"reports physical offset {offset}" in str(reader.failure)
    assert not reader.feed(ha.encode_report(6))
    assert reader.newest is None
