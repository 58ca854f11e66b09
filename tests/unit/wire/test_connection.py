import pytest

from rocketlens import limits
from rocketlens.errors import BadInput, FrameError, HeaderError
from rocketlens.wire import connection, frame
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
    [asked] = server.receive(connection.encode_command(sent, frame.BINARY_CODEC))
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
