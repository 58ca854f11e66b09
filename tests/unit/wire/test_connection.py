"""Connections as bytes and events, and the stream of the log that masters send to replicas."""

import itertools
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.errors import BadInput, FrameError, HeaderError
from rocketlens.formats import commitlog_record
from rocketlens.wire import connection, frame, ha
from rocketlens.wire.codes import LanguageCode, RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import (
    Connection,
    ConnectionFailed,
    RequestReceived,
    RequestRefused,
    ResponseReceived,
    decode_command,
)
from rocketlens.wire.frame import FrameSplitter
from rocketlens.wire.ha import MAX_HA_FRAME_BYTES, FrameReader, Heartbeat, LogBytes, ReportReader
from tests.support.binary_header import encode_command


def pair(**options):
    return Connection(), Connection(**options)


def read(sent):
    return [decode_command(one) for one in FrameSplitter().feed(sent)]


def test_an_answer_finds_its_request_with_the_context_it_was_made_with():
    client, server = pair()
    opaque, sent = client.request(RequestCode.GET_MAX_OFFSET, {"topic": "t"}, context="mine")
    [asked] = server.receive(sent)
    assert asked == RequestReceived(
        RemotingCommand(30, opaque, 0, None, {"topic": "t"}, b"", LanguageCode.PYTHON, 513)
    )
    assert (client.pending, server.unanswered) == (1, 1)
    [answered] = client.receive(server.respond(asked.command, 0, {"offset": "5"}, b"b", remark="r"))
    assert isinstance(answered, ResponseReceived)
    assert answered.context == "mine"
    assert answered.command.ext_fields == {"offset": "5"}
    assert (answered.command.body, answered.command.remark) == (b"b", "r")
    assert (client.pending, server.unanswered) == (0, 0)


def test_answers_may_come_in_any_order():
    client, server = pair()
    sent = [client.request(code, {}, context=code)[1] for code in (28, 30, 31)]
    asked = server.receive(b"".join(sent))
    answers = b"".join(server.respond(one.command, 0) for one in reversed(asked))
    assert [one.context for one in client.receive(answers)] == [31, 30, 28]


def test_both_ends_may_ask_with_the_same_opaque():
    client, server = pair()
    first, asked = client.request(34, {}, context="client's")
    second, pushed = server.request(40, {}, context="server's")
    assert first == second
    [request] = server.receive(asked)
    [push] = client.receive(pushed)
    assert [one.context for one in client.receive(server.respond(request.command, 0))] == [
        "client's"
    ]
    assert [one.context for one in server.receive(client.respond(push.command, 0))] == ["server's"]


def test_a_one_way_request_is_never_answered_and_never_waited_for():
    client, server = pair()
    sent = client.one_way(RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": "t"})
    [asked] = server.receive(sent)
    assert asked.command.is_one_way
    assert client.pending == 0
    assert server.respond(asked.command, 0) == b""
    assert server.unanswered == 0
    server.receive(sent)
    server.done(asked.command)
    assert server.unanswered == 0


def test_an_answer_that_nobody_waits_for_is_dropped():
    client, server = pair()
    opaque, sent = client.request(28, {}, context="late")
    answer = server.respond(server.receive(sent)[0].command, 0)
    assert client.forget(opaque) == "late"
    assert client.forget(opaque) is None
    assert client.receive(answer + answer) == []


def test_requests_over_the_bound_are_refused_as_busy_until_others_are_answered():
    client, server = pair(max_unanswered=2)
    sent = b"".join(client.request(28, {}, context=number)[1] for number in range(4))
    first, second, third, fourth = server.receive(sent)
    assert isinstance(second, RequestReceived)
    assert isinstance(third, RequestRefused)
    assert server.unanswered == 2
    [refused] = client.receive(third.reply)
    assert refused.context == 2
    assert refused.command.code == ResponseCode.SYSTEM_BUSY
    assert refused.command.remark == connection.OVERLOAD_REMARK
    assert isinstance(fourth, RequestRefused)
    server.respond(first.command, 0)
    [again] = server.receive(client.request(28, {}, context=5)[1])
    assert isinstance(again, RequestReceived)
    [dropped] = server.receive(client.one_way(15, {}))
    assert dropped.reply == b""


def test_a_hundred_thousand_pipelined_requests_leave_ten_thousand_to_work_on():
    client, server = pair()
    sent = client.request(28, {}, context=None)[1] * 1000
    kinds = [type(one) for _ in range(100) for one in server.receive(sent)]
    assert kinds.count(RequestReceived) == server.unanswered == limits.MAX_UNANSWERED_REQUESTS
    assert kinds.count(RequestRefused) == 100_000 - limits.MAX_UNANSWERED_REQUESTS


def test_requests_taken_one_by_one_count_as_unanswered_only_once_they_are_taken():
    client, server = pair()
    sent = b"".join(client.request(28, {}, context=None)[1] for _ in range(5))
    assert server.receive(sent, 0) == []
    for number in range(1, 6):
        assert server.has_more
        (event,) = server.receive(b"", 1)
        assert event.command.opaque == number - 1
        assert server.unanswered == number
    assert not server.has_more
    assert server.receive(b"", 1) == []


def test_a_closed_connection_keeps_nothing_of_what_waited():
    client, server = pair()
    sent = client.request(28, {}, context=None)[1]
    server.receive(sent + sent[:10], 1)
    server.close()
    assert (server.held_bytes, server.has_more) == (0, False)


def test_no_more_requests_wait_than_the_bound_allows(monkeypatch):
    monkeypatch.setattr(connection, "MAX_PENDING_REQUESTS", 2)
    client = Connection()
    client.request(28, {}, context=1)
    opaque, _ = client.request(28, {}, context=2)
    with pytest.raises(BadInput):
        client.request(28, {}, context=3)
    client.forget(opaque)
    client.request(28, {}, context=3)


def test_a_request_that_cannot_be_written_is_not_waited_for():
    client = Connection()
    with pytest.raises(BadInput):
        client.request(28, {"a": "\ud800"}, context=1)
    assert client.pending == 0


def test_opaques_begin_again_at_0_and_pass_those_that_wait():
    client = Connection()
    assert [client.request(28, {}, context=None)[0] for _ in range(2)] == [0, 1]
    client._last_opaque = limits.MAX_INT - 1
    assert [client.request(28, {}, context=None)[0] for _ in range(2)] == [2**31 - 1, 2]


def test_a_closed_connection_gives_back_what_waited_and_takes_no_more():
    client, server = pair()
    for number in range(3):
        _, sent = client.request(28, {}, context=number)
    assert client.close() == [0, 1, 2]
    assert client.close() == []
    assert client.receive(server.respond(server.receive(sent)[0].command, 0)) == []
    with pytest.raises(BadInput):
        client.request(28, {}, context=1)
    with pytest.raises(BadInput):
        client.one_way(28, {})


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (b"\xff\xff\xff\xff", FrameError),
        (frame.encode(b"{"), HeaderError),
        (frame.encode(b"{}", codec=2), HeaderError),
    ],
)
def test_what_came_before_a_fault_counts_and_nothing_after_it(bad, error):
    client, server = pair()
    good = client.request(28, {}, context=1)[1]
    for chunks in ([good + bad + good], [bytes([byte]) for byte in good + bad + good]):
        server = Connection()
        events = [one for chunk in chunks for one in server.receive(chunk)]
        assert [type(one) for one in events] == [RequestReceived, ConnectionFailed]
        assert isinstance(events[1].error, error)
        assert server.receive(good) == []


def test_a_server_may_be_told_to_read_smaller_headers():
    _, server = pair(max_header_bytes=limits.MAX_REQUEST_HEADER_BYTES)
    [event] = server.receive(frame.encode(b" " * (limits.MAX_REQUEST_HEADER_BYTES + 1)))
    assert isinstance(event, ConnectionFailed)


def test_a_connection_reads_both_codecs_and_answers_in_json_as_rocketmq_does():
    server = Connection()
    sent = RemotingCommand(28, 1, 0, None, {"a": "b"}, b"", LanguageCode.JAVA, 407)
    [asked] = server.receive(encode_command(sent, frame.BINARY_CODEC))
    assert (asked.command.language, asked.command.version) == (LanguageCode.JAVA, 407)
    assert server.respond(asked.command, 0)[4] == frame.JSON_CODEC


def test_half_a_frame_is_held_and_said_so():
    client, server = pair()
    sent = client.request(28, {}, context=1)[1]
    assert server.receive(sent[:10]) == []
    assert server.held_bytes == 10
    assert len(server.receive(sent[10:])) == 1
    assert server.held_bytes == 0
    assert read(sent)[0].code == 28


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
