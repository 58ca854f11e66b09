"""One connection, on a transport that only records."""

import asyncio
import functools
import logging

import pytest

from rocketlens.errors import BadInput, CallTimeout, ConnectionLost, FieldError, StoreFull
from rocketlens.net.channel import Channel, Response
from rocketlens.net.group import ChannelGroup, ConnectionLimits
from rocketlens.wire import codec
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import Connection
from tests.unit.net.loopback import ECHO, Clock, FakeTransport, echo, request_frame, run, until

ONE_WAY = 2


class Bench:
    """A channel, what is on both sides of it, and a clock."""

    def __init__(self, handlers=None, group=None, **bounds):
        self.clock = Clock()
        # What takes long only because this machine is busy ends no turn, unless a test says so.
        bounds = {"turn_s": 60.0, "first_turn_s": 60.0, "round_s": 120.0} | bounds
        self.group = group or ChannelGroup(ConnectionLimits(**bounds), clock=self.clock)
        self.handlers = {ECHO: echo} if handlers is None else handlers
        self.connect()

    def connect(self):
        self.transport = FakeTransport()
        connection = Connection(max_unanswered=self.group.bounds.unanswered_requests)
        self.channel = Channel(self.group, self.handlers, connection)
        self.channel.connection_made(self.transport)

    def ask(self, *codes, flag=0, body=b""):
        frames = [
            codec.encode(RemotingCommand(code, opaque, flag, None, {}, body))
            for opaque, code in enumerate(codes)
        ]
        self.channel.data_received(b"".join(frames))

    def sweep(self, seconds):
        self.clock.now_s += seconds
        self.group.sweep()


def on_loop(test):
    """Run an async test in an event loop."""

    @functools.wraps(test)
    def plain(*arguments, **named):
        run(lambda: test(*arguments, **named))

    return plain


@on_loop
async def test_answers_that_are_ready_together_leave_in_one_write():
    bench = Bench()
    bench.ask(*[ECHO] * 50)
    assert len(bench.transport.writes) == 1
    assert [each.opaque for each in bench.transport.commands()] == list(range(50))


@on_loop
async def test_answers_that_become_ready_together_later_leave_in_one_write():
    loop = asyncio.get_running_loop()
    waiting = []

    def later(command, channel):
        waiting.append(loop.create_future())
        return waiting[-1]

    bench = Bench({ECHO: later})
    bench.ask(*[ECHO] * 20)
    assert bench.transport.writes == []
    assert bench.group.in_flight == 20
    for future in reversed(waiting):
        future.set_result(Response())
    await until(lambda: bench.transport.writes)
    assert len(bench.transport.writes) == 1
    assert bench.group.in_flight == 0


@on_loop
async def test_an_unknown_code_is_answered_with_code_3_and_rocketmqs_words():
    bench = Bench()
    bench.ask(9999)
    (answer,) = bench.transport.commands()
    assert answer.code == 3
    assert answer.remark == " request type 9999 not supported"


@on_loop
async def test_whatever_a_handler_raises_is_an_answer_and_the_connection_goes_on(caplog):
    raised = iter([
        FieldError("topic", "the custom field <topic> is null"),
        StoreFull("the disk is full"),
        BadInput("no such thing"),
        ZeroDivisionError("by zero"),
        RecursionError(),
    ])  # fmt: skip

    def failing(command, channel):
        raise next(raised)

    bench = Bench({ECHO: echo, 1: failing})
    with caplog.at_level(logging.CRITICAL):
        bench.ask(1, 1, 1, 1, 1, ECHO)
    answers = bench.transport.commands()
    assert [each.code for each in answers] == [1, 14, 29, 1, 1, 0]
    assert answers[0].remark == "the custom field <topic> is null"
    assert answers[3].remark == "ZeroDivisionError: by zero"
    assert answers[4].remark == "RecursionError"
    assert bench.transport.ended is None


@on_loop
async def test_a_coroutine_that_fails_is_an_answer_too(caplog):
    async def failing(command, channel):
        raise KeyError("k")

    bench = Bench({ECHO: failing})
    with caplog.at_level(logging.CRITICAL):
        bench.ask(ECHO)
        await until(lambda: bench.transport.writes)
    (answer,) = bench.transport.commands()
    assert (answer.code, answer.remark) == (1, "KeyError: 'k'")
    assert bench.group.in_flight == 0


@on_loop
async def test_a_one_way_request_is_never_answered_however_it_is_handled():
    async def later(command, channel):
        return Response()

    def failing(command, channel):
        raise BadInput("no")

    handlers = {1: echo, 2: later, 3: failing, 4: lambda *_: None}
    bench = Bench(handlers)
    bench.ask(1, 2, 3, 4, 5, flag=ONE_WAY)
    await until(lambda: not bench.group.in_flight)
    assert bench.transport.writes == []
    assert bench.channel.connection.unanswered == 0


@on_loop
async def test_a_handler_may_answer_later_by_itself():
    held = []
    bench = Bench({ECHO: lambda command, channel: held.append((command, channel))})
    bench.ask(ECHO)
    assert bench.group.in_flight == 1
    command, channel = held[0]
    channel.respond(command, Response(19, remark="nothing yet"))
    await until(lambda: bench.transport.writes)
    assert bench.transport.commands()[0].code == 19
    assert bench.group.in_flight == 0


@on_loop
async def test_an_answer_to_a_channel_that_ended_goes_nowhere():
    held = []
    bench = Bench({ECHO: lambda command, _: held.append(command)})
    bench.ask(ECHO, ECHO)
    bench.channel.connection_lost(None)
    assert bench.group.in_flight == 0
    bench.channel.respond(held[0], Response())
    assert bench.group.in_flight == 0
    assert bench.transport.writes == []


@on_loop
async def test_an_answer_that_cannot_be_written_becomes_an_error(caplog):
    bench = Bench({ECHO: lambda *_: Response(body=bytes(17 * 1024 * 1024))})
    with caplog.at_level(logging.CRITICAL):
        bench.ask(ECHO)
    (answer,) = bench.transport.commands()
    assert answer.code == 1
    assert bench.group.in_flight == 0


@on_loop
async def test_more_requests_at_once_than_one_connection_may_have_are_answered_busy():
    loop = asyncio.get_running_loop()
    bench = Bench({ECHO: lambda *_: loop.create_future()}, unanswered_requests=10)
    bench.ask(*[ECHO] * 15)
    answers = bench.transport.commands()
    assert [each.code for each in answers] == [ResponseCode.SYSTEM_BUSY] * 5
    assert answers[0].remark.startswith("[OVERLOAD]")


@on_loop
async def test_more_requests_at_once_than_the_server_may_have_are_answered_busy():
    loop = asyncio.get_running_loop()
    bench = Bench({ECHO: lambda *_: loop.create_future()}, requests_in_flight=10)
    bench.ask(*[ECHO] * 15)
    assert [each.code for each in bench.transport.commands()] == [ResponseCode.SYSTEM_BUSY] * 5
    assert bench.group.in_flight == 10


@on_loop
async def test_no_more_is_read_or_handled_of_a_peer_that_is_behind():
    handled = []

    def large(command, channel):
        handled.append(command.opaque)
        return Response(body=bytes(100_000))

    bench = Bench({ECHO: large})
    bench.transport.write = lambda _: bench.channel.pause_writing()
    bench.ask(*[ECHO] * 10)
    assert handled == [0]
    assert bench.transport.is_paused
    bench.ask(ECHO)
    assert handled == [0]
    del bench.transport.write
    bench.channel.resume_writing()
    assert handled == [*range(10), 0]
    assert not bench.transport.is_paused


@on_loop
async def test_a_peer_that_goes_on_being_behind_is_resumed_piece_by_piece():
    handled = []

    def large(command, channel):
        handled.append(command.opaque)
        return Response(body=bytes(100_000))

    bench = Bench({ECHO: large})
    bench.transport.write = lambda _: bench.channel.pause_writing()
    bench.ask(*[ECHO] * 3)
    bench.channel.resume_writing()
    assert handled == [0, 1]
    assert bench.transport.is_paused


@on_loop
async def test_bodies_that_are_worked_on_at_once_are_bounded_and_the_rest_waits_its_turn():
    loop = asyncio.get_running_loop()
    waiting = []

    def later(*_):
        waiting.append(loop.create_future())
        return waiting[-1]

    bench = Bench({ECHO: later}, worked_on_bytes=1000)
    bench.ask(*[ECHO] * 10, body=bytes(400))
    assert len(waiting) == 3
    assert bench.transport.is_paused
    for count in range(4, 11):
        waiting[count - 4].set_result(Response())
        await until(lambda expected=count: len(waiting) == expected)
    for each in waiting[7:]:
        each.set_result(Response())
    await until(lambda: len(bench.transport.commands()) == 10)
    assert not bench.transport.is_paused
    assert bench.group.in_flight == 0


@on_loop
async def test_one_way_requests_that_wait_their_turn_when_the_connection_ends_are_handled():
    handled = []
    bench = Bench({ECHO: lambda *_: handled.append(1) or Response()}, turn_requests=3)
    bench.ask(*[ECHO] * 500, flag=ONE_WAY)
    bench.channel.connection_lost(None)
    assert len(handled) == 500
    assert bench.group.in_flight == 0


@on_loop
async def test_requests_that_waited_when_their_connection_ended_do_not_lift_the_bound_of_all():
    def large(command, channel):
        return Response(body=bytes(100_000))

    bench = Bench({ECHO: large})
    for _ in range(3):
        bench.transport.write = lambda _: bench.channel.pause_writing()
        bench.ask(*[ECHO] * 1000)
        bench.ask(*[ECHO] * 5)
        bench.channel.connection_lost(None)
        assert bench.group.in_flight == 0
        bench.connect()


@pytest.mark.parametrize(
    "bound", [{"turn_requests": 40}, {"first_turn_s": 0.0}], ids=["count", "time"]
)
@on_loop
async def test_a_turn_is_bounded_and_nothing_more_is_read_until_all_is_handled(bound):
    handled = []

    def noting(command, channel):
        handled.append(command)
        return Response()

    bench = Bench({ECHO: noting}, **bound)
    bench.ask(*[ECHO] * 200)
    assert len(handled) == bound.get("turn_requests", 1)
    assert bench.transport.is_paused
    bench.ask(ECHO)
    assert len(handled) == bound.get("turn_requests", 1)
    await until(lambda: not bench.transport.is_paused)
    assert [each.opaque for each in handled] == [*range(200), 0]
    assert len(bench.transport.commands()) == 201
    assert bench.group.in_flight == 0


@on_loop
async def test_connections_that_have_more_take_turns_and_a_new_one_is_served_at_once():
    handlers = {}
    busy = [Bench(handlers, turn_requests=10)]
    busy += [Bench(handlers, group=busy[0].group) for _ in range(3)]
    order = []

    def noting(command, channel):
        order.append(next(n for n, each in enumerate(busy) if each.channel is channel))
        return Response()

    handlers[ECHO] = noting
    for each in busy[:3]:
        each.ask(*[ECHO] * 100)
    busy[3].ask(ECHO)
    assert order == [0] * 10 + [1] * 10 + [2] * 10 + [3]
    del order[:]
    await until(lambda: len(order) == 270)
    assert order == ([0] * 10 + [1] * 10 + [2] * 10) * 9


@on_loop
async def test_a_round_of_turns_that_took_its_time_is_over_and_the_next_begins_where_it_ended():
    handlers = {}
    first = Bench(handlers, turn_requests=1, round_s=0.0)
    order = []
    busy = [first, *(Bench(handlers, group=first.group) for _ in range(2))]

    def noting(command, channel):
        order.append(next(n for n, each in enumerate(busy) if each.channel is channel))
        return Response()

    handlers[ECHO] = noting
    for each in busy:
        each.ask(*[ECHO] * 5)
        await asyncio.sleep(0)
    await until(lambda: len(order) == 6)
    rounds = 0
    del order[:]
    while len(order) < 6:
        await asyncio.sleep(0)
        rounds += 1
    assert sorted(order[:3]) == [0, 1, 2]
    assert order == order[:3] * 2
    assert rounds >= 6


@on_loop
async def test_a_crowd_of_new_connections_keeps_nobody_from_being_served_who_was_before():
    handlers = {ECHO: echo}
    known = Bench(handlers, turn_s=0.0, first_turn_s=0.0, round_s=0.0)
    known.ask(ECHO)
    order = []
    crowd = [Bench(handlers, group=known.group) for _ in range(20)]
    busy = Bench(handlers, group=known.group)
    benches = {each.channel: n for n, each in enumerate([known, busy, *crowd])}

    def noting(command, channel):
        order.append(benches[channel])
        return Response()

    handlers[ECHO] = noting
    await asyncio.sleep(0)
    busy.ask(*[ECHO] * 4)
    for each in crowd:
        each.ask(ECHO)
    known.ask(ECHO)
    # The first of this turn of the loop, and whoever was not new.
    assert order == [1, 0]
    await until(lambda: len(order) == 25)
    # New ones in their order, by turns with the one that had more to say.
    assert order[2:8] == [2, 1, 3, 1, 4, 1]
    assert order[8:] == list(range(5, 22))


@on_loop
async def test_a_turn_that_fails_ends_no_turn_of_others(caplog):
    class Broken(FakeTransport):
        def resume_reading(self):
            raise RuntimeError("broken")

    first = Bench(turn_requests=1)
    first.transport = first.channel._transport = Broken()
    other = Bench(group=first.group)
    failed = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: failed.append(about))
    first.ask(*[ECHO] * 2)
    other.ask(*[ECHO] * 5)
    await until(lambda: len(other.transport.commands()) == 5)
    assert len(failed) == 1


@on_loop
async def test_ten_thousand_answers_that_become_ready_at_once_are_sent_in_turns():
    loop = asyncio.get_running_loop()
    waiting = []

    def later(command, channel):
        waiting.append(loop.create_future())
        return waiting[-1]

    bench = Bench({ECHO: later}, turn_s=0.0, first_turn_s=0.0, round_s=0.0)
    bench.ask(*[ECHO] * 50)
    await until(lambda: len(waiting) == 50)
    for future in waiting:
        future.set_result(Response())
    turns = 0
    while bench.group.in_flight:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 25
    await until(lambda: len(bench.transport.commands()) == 50)
    assert [each.opaque for each in bench.transport.commands()] == list(range(50))


@on_loop
async def test_what_waits_for_its_turn_is_not_taken_for_a_slow_frame():
    bench = Bench()
    bench.channel.pause_writing()
    bench.ask(ECHO)
    for _ in range(20):
        bench.sweep(1)
    assert bench.transport.ended is None
    bench.channel.resume_writing()
    assert len(bench.transport.commands()) == 1


@on_loop
async def test_a_stopped_channel_handles_no_more_and_answers_what_is_under_way():
    loop = asyncio.get_running_loop()
    waiting = []

    def later(command, channel):
        waiting.append(loop.create_future())
        return waiting[-1]

    bench = Bench({ECHO: later}, turn_requests=1)
    bench.ask(*[ECHO] * 5)
    bench.channel.pause()
    bench.ask(ECHO)
    waiting[0].set_result(Response())
    await until(lambda: bench.transport.writes)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(waiting) == 1
    assert bench.transport.is_paused


@on_loop
async def test_incomplete_frames_are_bounded_as_their_bytes_come_not_at_the_next_sweep():
    group = ChannelGroup(ConnectionLimits(buffered_bytes=1_000_000))
    benches = [Bench(group=group) for _ in range(5)]
    for each in benches:
        each.channel.data_received(request_frame(body=bytes(2_000_000))[:400_000])
        assert group.buffered <= 1_000_000
    ended = [each for each in benches if each.transport.ended == "aborted"]
    assert 1 <= len(ended) <= 3
    for each in ended:
        each.channel.connection_lost(None)
        assert each.channel.connection.held_bytes == 0
    assert group.buffered == 400_000 * (5 - len(ended))


@on_loop
async def test_a_peer_for_which_too_much_waits_is_cut_off(caplog):
    bench = Bench(unsent_bytes=1_000_000)
    bench.channel.pause_writing()
    bench.transport.unsent = 1_000_001
    with caplog.at_level(logging.CRITICAL):
        bench.channel.tell(40, {"consumerGroup": "g"})
        bench.channel._flush()
    assert bench.transport.ended == "aborted"


@on_loop
async def test_a_frame_that_comes_a_byte_a_second_is_cut_off_after_10_seconds():
    bench = Bench()
    frame = request_frame(body=bytes(1000))
    for byte in frame[:9]:
        bench.channel.data_received(bytes([byte]))
        bench.sweep(1)
    assert bench.transport.ended is None
    for byte in frame[9:13]:
        bench.channel.data_received(bytes([byte]))
        bench.sweep(1)
    assert bench.transport.ended == "aborted"


@on_loop
async def test_a_large_frame_on_a_slow_line_is_not_cut_off():
    bench = Bench()
    frame = request_frame(body=bytes(200_000))
    for start in range(0, len(frame), 2000):
        bench.channel.data_received(frame[start : start + 2000])
        bench.sweep(1)
    assert bench.transport.ended is None
    assert len(bench.transport.commands()[0].body) == 200_000


@on_loop
async def test_a_connection_is_cut_off_after_120_silent_seconds_and_not_before():
    bench = Bench()
    bench.ask(ECHO)
    bench.sweep(119)
    assert bench.transport.ended is None
    bench.sweep(1)
    assert bench.transport.ended == "aborted"


@on_loop
async def test_a_peer_that_reads_slowly_is_not_idle_and_one_that_stops_reading_is():
    bench = Bench()
    for unsent in range(1000, 0, -100):
        bench.transport.unsent = unsent
        bench.sweep(60)
    assert bench.transport.ended is None
    bench.sweep(60)
    bench.sweep(60)
    assert bench.transport.ended == "aborted"


@on_loop
async def test_a_client_side_channel_may_be_silent_for_ever():
    bench = Bench(idle_s=None)
    bench.sweep(100_000)
    assert bench.transport.ended is None


@on_loop
async def test_when_all_connections_hold_too_much_the_largest_ends():
    group = ChannelGroup(ConnectionLimits(buffered_bytes=1_000_000))
    transports = []
    for held in (100_000, 800_000, 300_000):
        channel = Channel(group, {}, Connection())
        transports.append(FakeTransport())
        channel.connection_made(transports[-1])
        channel.data_received(request_frame(body=bytes(2_000_000))[:held])
    group.sweep()
    assert [each.ended for each in transports] == [None, "aborted", None]


@on_loop
async def test_bytes_that_are_no_protocol_end_the_connection_after_what_came_before_is_answered():
    bench = Bench()
    bench.channel.data_received(request_frame() + b"GET / HTTP/1.1\r\n\r\n")
    assert [each.code for each in bench.transport.commands()] == [0]
    assert bench.transport.ended == "closed"


@on_loop
async def test_both_ends_ask_with_opaques_of_their_own():
    bench = Bench()
    future = bench.channel.request(307, {"consumerGroup": "g"}, timeout_s=5)
    await asyncio.sleep(0)
    (asked,) = bench.transport.commands()
    bench.transport.writes.clear()
    bench.ask(ECHO)
    assert bench.transport.commands()[0].opaque == 0
    bench.channel.data_received(codec.encode(RemotingCommand(206, asked.opaque, 1, "not online")))
    assert (await future).remark == "not online"


@on_loop
async def test_a_call_without_an_answer_times_out_and_its_late_answer_is_dropped():
    bench = Bench()
    future = bench.channel.request(307, timeout_s=0.01)
    await asyncio.sleep(0)
    with pytest.raises(CallTimeout, match=r"127.0.0.1:40000: no answer in 0.01 s"):
        await future
    (asked,) = bench.transport.commands()
    bench.channel.data_received(codec.encode(RemotingCommand(0, asked.opaque, 1)))
    assert bench.channel.connection.pending == 0
    assert bench.transport.ended is None


@on_loop
async def test_calls_under_way_fail_when_the_connection_ends_and_later_ones_at_once():
    bench = Bench()
    future = bench.channel.request(307, timeout_s=5)
    bench.channel.connection_lost(ConnectionResetError("reset"))
    with pytest.raises(
        ConnectionLost, match=r"127.0.0.1:40000: the connection broke: reset"
    ) as lost:
        await future
    assert lost.value.retriable
    assert lost.value.address == "127.0.0.1:40000"
    with pytest.raises(ConnectionLost):
        bench.channel.request(307, timeout_s=5)
    with pytest.raises(ConnectionLost):
        bench.channel.tell(40)
