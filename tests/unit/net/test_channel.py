"""One connection, on a transport that only records, and the table of its states.

Which connections end for others when there are too many.
"""

import asyncio
import errno
import logging

import pytest

from rocketlens.errors import BadInput, CallTimeout, ConnectionLost, FieldError, StoreFull
from rocketlens.net.channel import Response
from rocketlens.net.channel_group import ConnectionLimits
from rocketlens.net.channel_state import LIGHT, NEXT, OPEN, QUEUED, State, Step
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import encode_command
from tests.support.async_tests import within
from tests.support.clocks import Seconds
from tests.unit.net.loopback import (
    ECHO,
    LATER,
    Bench,
    answered,
    connect,
    echo,
    on_loop,
    request_frame,
    run,
    serving,
    until,
)

ONE_WAY = 2


@on_loop
async def test_answers_that_are_ready_together_leave_in_one_write():
    bench = Bench()
    bench.ask(*[ECHO] * 50)
    assert len(bench.transport.writes) == 1
    assert [each.opaque for each in bench.transport.commands()] == list(range(50))


@on_loop
async def test_large_answers_leave_before_the_requests_behind_them_are_handled():
    written = []

    def large(command, channel):
        written.append(len(bench.transport.writes))
        return Response(body=bytes(6_000))

    bench = Bench({ECHO: large})
    bench.ask(*[ECHO] * 8)
    assert written == [0, 0, 0, 3, 3, 3, 6, 6]
    assert [each.opaque for each in bench.transport.commands()] == list(range(8))


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
async def test_want_of_files_is_answered_with_busy_and_logged_once_a_minute(caplog):
    def failing(command, channel):
        raise OSError(errno.EMFILE, "Too many open files", "/store/queue")

    async def failing_later(command, channel):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    bench = Bench({1: failing, 2: failing_later})
    bench.ask(1, 2, 1, 2)
    await until(lambda: len(bench.transport.commands()) == 4)
    assert {each.code for each in bench.transport.commands()} == {ResponseCode.SYSTEM_BUSY}
    remarks = {each.remark for each in bench.transport.commands()}
    assert "the server is out of files or memory, try again: Too many open files" in remarks
    (line,) = caplog.messages
    assert line.startswith("request 1 cannot be handled now: [Errno 24]")


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
async def test_a_request_that_was_set_aside_is_answered_whatever_becomes_of_its_answer(caplog):
    held = []

    def set_aside(command, channel):
        channel.set_aside(command)
        held.append((command, channel, asyncio.get_running_loop().create_future()))

    bench = Bench({ECHO: set_aside})
    for _ in range(4):
        bench.ask(ECHO)
    assert bench.group.in_flight == 0
    for command, channel, answer in held:
        channel.respond_late(command, answer)
    (_, _, good), (_, _, failed), (_, _, left), (_, _, none) = held
    good.set_result(Response(19))
    failed.set_exception(OSError("the disk went away"))
    left.cancel()
    none.set_result(None)
    await until(lambda: len(bench.transport.commands()) == 3)
    assert [answer.code for answer in bench.transport.commands()] == [19, 1, 1]
    assert "the disk went away" in bench.transport.commands()[1].remark
    assert "the disk went away" in caplog.text
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


@pytest.mark.parametrize(("count", "handled_later"), [(5, 2), (500, 3)], ids=["all", "a turn"])
@on_loop
async def test_when_a_connection_ends_its_waiting_one_way_requests_have_one_more_turn(
    count, handled_later
):
    handled = []
    bench = Bench({ECHO: lambda *_: handled.append(1) or Response()}, turn_requests=3)
    bench.ask(*[ECHO] * count, flag=ONE_WAY)
    assert len(handled) == 3
    bench.channel.connection_lost(None)
    assert len(handled) == 3 + handled_later
    assert not bench.group.channels
    assert bench.group.in_flight == 0


@on_loop
async def test_of_a_connection_that_ended_only_requests_without_a_response_are_handled():
    handled = []
    codes = [ECHO] * 3 + [1, ECHO] * 200

    def taken(command, channel):
        handled.append(command.code)
        return Response()

    bench = Bench({ECHO: taken, 1: taken}, turn_requests=3)
    frames = [
        encode_command(RemotingCommand(code, n, ONE_WAY if code == 1 else 0, None, {}, b""))
        for n, code in enumerate(codes)
    ]
    bench.channel.data_received(b"".join(frames))
    before = len(handled)
    bench.channel.connection_lost(None)
    assert set(handled[before:]) == {1}
    assert not bench.group.channels
    assert bench.group.in_flight == 0


@pytest.mark.parametrize("bound", [{"turn_requests": 40}, {"turn_s": 0.0}], ids=["count", "time"])
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


class RunsOfCodes:
    """Answers the first requests of one of two codes together, with their own bytes."""

    codes = (b'{"code":901,', b'{"code":902,')

    def take(self, _, received, max_count):
        code, end, count = bytes(received[8:20]), 0, 0
        while code in self.codes and received[end + 8 : end + 20] == code and count < max_count:
            end += 4 + int.from_bytes(received[end : end + 4])
            count += 1
        return count, end, bytes(received[:end])

    def answer(self, *_):
        return None


@on_loop
async def test_runs_of_several_codes_follow_one_another_and_others_between_them_are_handled():
    handled = []
    bench = Bench(dict.fromkeys((901, 902, ECHO), lambda c, _: handled.append(c) or Response()))
    bench.channel.group.runs = RunsOfCodes()
    codes = (901, 901, 902, 901, ECHO, 902, 902, ECHO, ECHO, 901)
    bench.ask(*codes)
    assert [command.code for command in handled] == [ECHO] * 3
    assert [command.opaque for command in bench.transport.commands()] == [*range(len(codes))]
    assert not bench.channel.connection.held_bytes
    assert bench.channel.state is LIGHT


class OnlyRequests:
    """Answers a request that comes whole with its own bytes."""

    def take(self, *_):
        return 0, 0, b""

    def answer(self, _, received):
        return received if len(received) > 8 else None


@on_loop
async def test_a_plain_request_that_comes_alone_is_answered_from_its_bytes():
    bench = Bench()
    bench.channel.group.runs = OnlyRequests()
    frame = request_frame(ECHO)
    bench.channel.data_received(frame)
    assert bench.transport.writes == [frame]
    assert bench.channel.state is LIGHT
    # Behind a part of another it is read as usual, and so it is where too many are unanswered.
    bench.channel.data_received(frame[:5])
    bench.channel.data_received(frame[5:])
    assert bench.transport.commands()[-1].flag & 1
    bench.channel.connection.unanswered = bench.channel.connection.max_unanswered
    bench.channel.data_received(frame)
    assert bench.transport.commands()[-1].code == ResponseCode.SYSTEM_BUSY
    bench.channel.connection.unanswered = 0
    bench.channel.pause()
    count = len(bench.transport.writes)
    bench.channel.data_received(frame)
    assert len(bench.transport.writes) == count, "a stopped channel answers no more"


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
    bench.channel.data_received(encode_command(RemotingCommand(206, asked.opaque, 1, "not online")))
    assert (await future).remark == "not online"


@on_loop
async def test_a_call_without_an_answer_times_out_and_its_late_answer_is_dropped():
    bench = Bench()
    future = bench.channel.request(307, timeout_s=0.01)
    await asyncio.sleep(0)
    with pytest.raises(CallTimeout, match=r"127.0.0.1:40000: no answer in 0.01 s"):
        await future
    (asked,) = bench.transport.commands()
    bench.channel.data_received(encode_command(RemotingCommand(0, asked.opaque, 1)))
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


def test_every_state_can_be_reached_and_left():
    assert list(NEXT) == list(State)
    assert {step for steps in NEXT.values() for step in steps} == set(Step)
    reached = {State.CONNECTING}
    while more := {state for each in reached for state in NEXT[each].values()} - reached:
        reached |= more
    assert reached == set(State)
    assert {steps[Step.END] for steps in NEXT.values()} == {State.CLOSED}
    assert set(NEXT[State.CLOSED].values()) == {State.CLOSED}


def test_a_connection_that_was_closed_opens_no_more():
    assert OPEN.isdisjoint(NEXT[State.CLOSED].values())
    for state in OPEN:
        assert State.CONNECTING not in NEXT[state].values()


def test_only_a_queued_connection_is_called():
    called = {state for state, steps in NEXT.items() if Step.CALL in steps}
    assert called == QUEUED | {State.CLOSED}


def test_a_stopped_connection_handles_nothing():
    stopped = {NEXT[state][Step.STOP] for state in OPEN}
    assert stopped == {State.STOPPED, State.STOPPED_WAITS}
    for state in stopped:
        assert State.TURN not in NEXT[state].values()


def test_a_connection_is_new_until_its_first_turn():
    entered = {state for state, steps in NEXT.items() if State.NEW_WAITS in steps.values()}
    assert entered == {State.NEW}
    assert [state for state, steps in NEXT.items() if State.NEW in steps.values()] == [
        State.CONNECTING,
        State.NEW,
        State.NEW_WAITS,
    ]


def test_a_step_that_a_state_does_not_have_is_a_defect():
    with pytest.raises(KeyError):
        NEXT[State.WAITS][Step.BEGIN]


@pytest.mark.parametrize("bound", [{"connections": 5}, {"connections_of_address": 5}])
def test_when_there_are_too_many_connections_the_longest_idle_ends_for_a_new_one(bound):
    """First who never said anything, and last who waits for an answer."""

    async def main():
        clock = Seconds()
        waiting = asyncio.Event()

        async def later(command, channel):
            await waiting.wait()
            return Response()

        handlers = {ECHO: echo, LATER: later}
        async with serving(handlers, clock=clock, bounds=ConnectionLimits(**bound)) as (
            server,
            address,
        ):
            peers = {}
            for name in ("spoke first", "waits", "silent", "spoke last", "busy"):
                peers[name] = await connect(address)
                if name == "waits":
                    peers[name].ask(LATER)
                elif name != "silent":
                    assert await answered(peers[name])
                await until(lambda: len(server.group.channels) == len(peers))
                await until(lambda: not server._arriving)
                clock.now_s += 10
                server.group.sweep()
                server.sweep_arrivals()
            assert await answered(peers["busy"])
            for ends in ("silent", "spoke first", "spoke last", "waits"):
                another = await connect(address)
                assert await answered(another)
                assert await peers[ends].read() is None
            assert server.group.closed_idle == 4
            # Whoever was heard of just now does not end for others.
            refused = await connect(address)
            assert await refused.read() is None
            assert server.group.refused == 1
            assert await answered(peers["busy"])

    run(main)


@within(run)
async def test_whoever_has_most_connections_has_them_closed_for_others():
    clock = Seconds()
    async with serving(clock=clock, bounds=ConnectionLimits(connections=8)) as (server, address):
        one = await connect(address, local_addr=("127.0.0.2", 0))
        assert await answered(one)
        await until(lambda: not server._arriving)
        clock.now_s += 10
        server.group.sweep()
        server.sweep_arrivals()
        many = [await connect(address) for _ in range(7)]
        for each in many:
            assert await answered(each)
        await until(lambda: not server._arriving)
        clock.now_s += 10
        server.group.sweep()
        server.sweep_arrivals()
        for _ in range(6):
            assert await answered(await connect(address, local_addr=("127.0.0.3", 0)))
        # It had been idle for longest, and alone.
        assert await answered(one)
        assert server.group.closed_idle == 6


@within(run)
async def test_one_address_has_three_quarters_of_all_connections_however_busy_they_are():
    # No time passes, so none of them is idle.
    async with serving(clock=Seconds(), bounds=ConnectionLimits(connections=24)) as (
        server,
        address,
    ):
        for _ in range(18):
            assert await answered(await connect(address))
        assert await (await connect(address)).read() is None
        assert server.group.refused == 1
        assert await answered(await connect(address, local_addr=("127.0.0.2", 0)))
