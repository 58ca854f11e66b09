"""What the connections of one server share: bounds, turns, and the sweep."""

import asyncio

from rocketlens.net.channel import Channel, Response
from rocketlens.net.channel_group import ChannelGroup, ConnectionLimits
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.connection import Connection
from tests.unit.net.loopback import ECHO, Bench, FakeTransport, echo, on_loop, request_frame, until


@on_loop
async def test_more_requests_at_once_than_the_server_may_have_are_answered_busy():
    loop = asyncio.get_running_loop()
    bench = Bench({ECHO: lambda *_: loop.create_future()}, requests_in_flight=10)
    bench.ask(*[ECHO] * 15)
    assert [each.code for each in bench.transport.commands()] == [ResponseCode.SYSTEM_BUSY] * 5
    assert bench.group.in_flight == 10


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
    known = Bench(handlers, turn_s=0.0, round_s=0.0)
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

    bench = Bench({ECHO: later}, turn_s=0.0, round_s=0.0)
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
