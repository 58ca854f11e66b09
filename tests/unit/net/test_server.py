"""A server on the loopback interface.

The values of a server's connections.
"""

import asyncio
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlens.errors import BadInput, CallTimeout, ConnectFailed, ConnectionLost
from rocketlens.net.channel import Response
from rocketlens.net.channel_group import ChannelGroup, ConnectionLimits
from rocketlens.net.server import RemotingServer, network_metrics
from rocketlens.net.tls import ServerTls, TlsMode
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RESPONSE_FLAG, RemotingCommand
from rocketlens.wire.connection import encode_command
from rocketlens.wire.frame import BINARY_CODEC
from tests.support.async_tests import within
from tests.support.clocks import Seconds
from tests.unit.broker.loop_watch import watched_loops
from tests.unit.net.loopback import (
    ECHO,
    HOST,
    LATER,
    LOOPS,
    NEVER,
    answered,
    calling,
    connect,
    echo,
    request_frame,
    run,
    serving,
    until,
)

on_both_loops = pytest.mark.parametrize("loop", LOOPS)


MIB = 1024 * 1024


@on_both_loops
def test_requests_in_either_codec_are_answered_in_json_on_both_loops(loop):
    async def main():
        async with serving() as (_, address):
            peer = await connect(address)
            peer.ask(ECHO, opaque=7, body=b"abc", ext_fields={"a": "b"})
            peer.ask(ECHO, opaque=8, body=b"def", header_codec=BINARY_CODEC)
            first, second = await peer.read(), await peer.read()
            assert (first.opaque, first.body, first.ext_fields) == (7, b"abc", {"a": "b"})
            assert (second.opaque, second.body) == (8, b"def")
            assert first.flag & RESPONSE_FLAG

    run(main, loop)


@on_both_loops
def test_a_large_answer_arrives_whole_and_others_are_served_meanwhile(loop):
    async def main():
        handlers = {ECHO: echo, LATER: lambda *_: Response(body=bytes(8 * MIB))}
        async with serving(handlers) as (_, address):
            slow, quick = await connect(address), await connect(address)
            slow.ask(LATER)
            quick.ask(ECHO, body=b"quick")
            assert (await quick.read()).body == b"quick"
            assert len((await slow.read()).body) == 8 * MIB

    run(main, loop)


@within(run)
async def test_it_listens_on_several_ports_and_on_ipv6():
    async with serving() as (server, address):
        assert server.listen(HOST, 0).port != int(address.rpartition(":")[2])
        assert [each.address for each in server.addresses] == [HOST, HOST]
        if socket.has_ipv6:
            bound = server.listen("::1", 0)
            peer = await connect(f"::1:{bound.port}")
            peer.ask(ECHO)
            assert (await peer.read()).code == 0
            assert {each.address.rpartition(":")[0] for each in server.group.channels} == {"[::1]"}


@within(run)
async def test_whoever_is_one_connection_too_many_is_closed_and_the_others_are_served():
    async with serving(bounds=ConnectionLimits(connections=2)) as (_, address):
        first, second = await connect(address), await connect(address)
        for each in (first, second):
            each.ask(ECHO)
            assert (await each.read()).code == 0
        third = await connect(address)
        assert await third.read() is None
        first.ask(ECHO)
        assert (await first.read()).code == 0


@within(run)
async def test_refusals_are_counted_and_logged_once_a_minute(caplog):
    clock = Seconds()
    async with serving(clock=clock, bounds=ConnectionLimits(connections=1)) as (server, address):
        assert await answered(await connect(address))
        for minutes in (1, 2):
            for _ in range(20):
                assert await (await connect(address)).read() is None
            assert caplog.text.count("no more are accepted") == minutes
            clock.now_s += 60
            server.group.now_s = clock.now_s
            next(iter(server.group.channels)).last_active_s = clock.now_s
        assert server.group.refused == 40


@within(run)
async def test_the_owner_hears_of_every_connection_that_closes():
    closed = []
    closed_now = asyncio.Event()

    def on_close(channel):
        closed.append(channel)
        closed_now.set()

    async with serving(on_close=on_close) as (server, address):
        peer = await connect(address)
        peer.ask(ECHO)
        await peer.read()
        opened = list(server.group.channels)
        peer.close()
        await closed_now.wait()
        assert opened == closed
        assert not opened[0].is_open


@on_both_loops
@pytest.mark.parametrize("kind", ["coroutine", "future"])
def test_stopping_waits_for_answers_under_way_and_refuses_new_connections(loop, kind):
    async def main():
        release = asyncio.get_running_loop().create_future()

        async def later(command, channel):
            return await release

        handler = later if kind == "coroutine" else lambda *_: release
        async with serving({LATER: handler}) as (server, address):
            peer = await connect(address)
            peer.ask(LATER)
            await until(lambda: server.group.in_flight)
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(0)
            with pytest.raises(OSError, match=r"refused|Connect call failed"):
                await connect(address)
            release.set_result(Response(body=b"done"))
            assert (await peer.read()).body == b"done"
            assert await peer.read() is None
            await stopping
            assert server.addresses == ()

    run(main, loop)


@within(run)
async def test_stopping_gives_up_on_answers_that_do_not_come():
    async def never(command, channel):
        await asyncio.Event().wait()

    async with serving({NEVER: never}) as (server, address):
        peer = await connect(address)
        peer.ask(NEVER)
        await until(lambda: server.group.in_flight)
        await server.stop(grace_s=0.01)
        answer = await peer.read()
        assert (answer.code, answer.remark) == (1, "the server is stopping")
        assert await peer.read() is None
        assert not server.group.channels


@within(run)
async def test_a_port_that_is_taken_is_an_error_of_the_caller():
    async with serving() as (_, address):
        with pytest.raises(OSError, match="in use") as raised:
            RemotingServer({}).listen(HOST, int(address.rpartition(":")[2]))
    # The address once, where the name of a file would be.
    assert raised.value.filename == address
    assert address.rpartition(":")[2] not in raised.value.strerror


# TLS


@on_both_loops
@pytest.mark.parametrize("mode", TlsMode)
def test_tls_and_plain_connections_share_the_port_as_the_mode_says(loop, mode, certificate):
    from rocketlens.net.tls import client_context, server_context

    takes_plain = mode is not TlsMode.ENFORCING
    takes_tls = mode is not TlsMode.DISABLED

    async def outcome(tls, address):
        async with calling(tls=tls) as pool:
            try:
                answer = await pool.call(address, ECHO, body=bytes(3 * MIB))
            except (ConnectFailed, ConnectionLost):
                return None
            channel = await pool.channel(address)
            return channel._transport.get_extra_info("ssl_object") is not None, len(answer.body)

    async def main():
        tls = ServerTls(mode, server_context(*certificate))
        async with serving(tls=tls) as (_, address):
            plain = await outcome(None, address)
            encrypted = await outcome(client_context(ca=certificate[0]), address)
            trusting = await outcome(client_context(verify=False), address)
            strict = await outcome(client_context(), address)
        assert plain == ((False, 3 * MIB) if takes_plain else None)
        assert encrypted == trusting == ((True, 3 * MIB) if takes_tls else None)
        assert strict is None

    run(main, loop)


def test_a_connection_that_says_nothing_does_not_stay_undecided_for_ever(certificate):
    from rocketlens.net.tls import server_context

    async def main():
        clock = Seconds()
        tls = ServerTls(TlsMode.PERMISSIVE, server_context(*certificate))
        async with serving(tls=tls, clock=clock) as (server, address):
            peer = await connect(address)
            await until(lambda: server._arriving)
            clock.now_s += 11
            server.group.sweep()
            server.sweep_arrivals()
            assert await peer.read() is None

    run(main)


@within(run)
async def test_enforcing_tls_without_a_certificate_is_refused():
    with pytest.raises(BadInput, match="no certificate"):
        RemotingServer({}, tls=ServerTls(TlsMode.ENFORCING))


def test_a_certificate_that_cannot_be_used_is_named(tmp_path):
    from rocketlens.net.tls import client_context, server_context

    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for make in (
        lambda: server_context(junk, junk),
        lambda: server_context(tmp_path / "none.pem", junk),
        lambda: client_context(ca=junk),
    ):
        with pytest.raises(BadInput, match=r"\.pem"):
            make()


# Bad company.


MAX_CALLBACKS = 60
"""A call by itself takes about 30, with opening its connection."""


async def callbacks(address, count):
    """Call one after another; return how many callbacks the loop ran until each was answered."""
    taken = []
    async with calling() as pool:
        with watched_loops() as watch:
            for _ in range(count):
                before = watch.count
                await pool.call(address, ECHO, body=b"x" * 100)
                taken.append(watch.count - before)
    return taken


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize(
    "count", [100, pytest.param(1000, marks=pytest.mark.slow)], ids=lambda n: f"{n}-of-each"
)
def test_many_idle_and_many_one_byte_a_second_connections_slow_nobody_and_are_closed(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * count + 100:
        pytest.skip(f"needs {4 * count + 100} file descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * count + 100), hard))

    async def main():
        clock = Seconds()
        before = resident_bytes()
        async with serving(clock=clock) as (server, address):
            idle = [await connect(address) for _ in range(count)]
            trickling = [await connect(address) for _ in range(count)]
            channels = server.group.channels
            # A sweep between two of these can meet a connection that waits for its turn, which is
            # given more time.
            server.group._timer.cancel()
            sent = 0

            def has_read_all():
                held = sum(each.connection.held_bytes for each in channels)
                return held == sent and not any(each.is_held_up for each in channels)

            # The clock stands until the server has read what was sent: it judges by that.
            await until(lambda: len(channels) == 2 * count)
            for byte in request_frame()[:8]:
                for each in trickling:
                    each.send(bytes([byte]))
                # One for each byte that came, and no more for the calls than with nobody else.
                assert sum(await callbacks(address, 100)) <= count + 100 * MAX_CALLBACKS
                sent += count
                await until(has_read_all)
                clock.now_s += 1
                server.group.sweep()
                server.sweep_arrivals()
            assert len(channels) >= 2 * count
            clock.now_s += 8
            server.group.sweep()
            server.sweep_arrivals()
            assert resident_bytes() - before <= 100 * MIB
            for each in trickling:
                assert await each.read() is None
            assert len(server.group.channels) <= count + 1
            clock.now_s += 105
            server.group.sweep()
            server.sweep_arrivals()
            for each in idle:
                assert await each.read() is None

    try:
        run(main, "asyncio")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_asks_for_256_mib_and_never_reads_costs_a_few_and_harms_nobody():
    async def main():
        made = []

        def large(command, channel):
            made.append(1)
            return Response(body=bytes(4 * MIB))

        async with serving({ECHO: echo, LATER: large}) as (server, address):
            greedy = socket.create_connection((HOST, int(address.rpartition(":")[2])))
            greedy.sendall(request_frame(LATER) * 64)
            taken = await callbacks(address, 50)
            channel = next(each for each in server.group.channels if each.is_behind)
            assert channel.unsent_bytes <= 5 * MIB
            assert len(made) <= 4
            assert max(taken) <= MAX_CALLBACKS
            greedy.close()

    run(main, "asyncio")


def test_who_never_reads_what_was_under_way_is_cut_off_at_64_mib(caplog):
    async def main():
        release = asyncio.Event()

        async def large(command, channel):
            await release.wait()
            return Response(body=bytes(4 * MIB))

        async with serving({ECHO: echo, LATER: large}) as (server, address):
            greedy = socket.create_connection((HOST, int(address.rpartition(":")[2])))
            greedy.sendall(request_frame(LATER) * 64)
            while server.group.in_flight < 64:
                await callbacks(address, 1)
            most = 0
            release.set()
            while any(
                each.connection.unanswered or each.is_behind for each in server.group.channels
            ):
                most = max(most, *(each.unsent_bytes for each in server.group.channels))
                await callbacks(address, 1)
            assert most <= 70 * MIB
            assert (await callbacks(address, 1))[0] <= MAX_CALLBACKS
            greedy.close()

    run(main, "asyncio")


@on_both_loops
def test_the_loop_turns_to_others_while_one_connection_floods_it(loop):
    """Counted is what one connection has handled between two turns of the event loop."""
    flood = 20_000
    frame = encode_command(RemotingCommand(LATER, 1, 2, None, {}, b"x" * 100))

    async def main():
        handled, most, before = 0, 0, 0

        def count(command, channel):
            nonlocal handled
            handled += 1
            return Response()

        def tick():
            nonlocal most, before
            most = max(most, handled - before)
            before = handled
            running.call_soon(tick)

        running = asyncio.get_running_loop()
        # Only the count of a turn counts here, however busy this machine is.
        async with serving({ECHO: echo, LATER: count}, bounds=ConnectionLimits(turn_s=60)) as (
            _,
            address,
        ):
            flooding = socket.create_connection((HOST, int(address.rpartition(":")[2])))
            tick()
            sent = running.run_in_executor(None, flooding.sendall, frame * flood)
            await until(lambda: handled == flood)
            await sent
            flooding.close()
            # A turn when bytes come, and one in the round of those that wait.
            assert most <= 2 * ConnectionLimits().turn_requests

    run(main, loop)


def test_100000_requests_in_one_go_are_each_answered_or_told_busy():
    async def main():
        release = asyncio.Event()

        async def held(command, channel):
            await release.wait()
            return Response()

        async with serving({ECHO: echo, LATER: held}) as (server, address):
            peer = await connect(address)
            frame = request_frame(LATER)
            peer.send(frame * 100_000)
            codes = [(await peer.read()).code for _ in range(90_000)]
            assert set(codes) == {ResponseCode.SYSTEM_BUSY}
            assert server.group.in_flight == 10_000
            assert (await callbacks(address, 1))[0] <= MAX_CALLBACKS
            release.set()
            assert {(await peer.read()).code for _ in range(10_000)} == {0}

    run(main, "asyncio")


STARVED = """
import asyncio, resource, sys
from tests.unit.net.loopback import LOOPS, echo, ECHO
from rocketlens.net.server import RemotingServer

async def main():
    server = RemotingServer({ECHO: echo})
    print(server.listen("127.0.0.1", 0), flush=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    await asyncio.Event().wait()

with asyncio.Runner(loop_factory=LOOPS[sys.argv[1]]) as runner:
    runner.run(main())
"""


@on_both_loops
def test_running_out_of_file_descriptors_turns_some_away_and_stops_nothing(loop):
    server = subprocess.Popen(
        [sys.executable, "-c", STARVED, loop], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    address = server.stdout.readline().decode().strip()

    async def main():
        peers = [await connect(address) for _ in range(100)]
        for each in peers:
            each.ask(ECHO)
        answers = [await each.read() for each in peers]
        served = [each for each, answer in zip(peers, answers, strict=True) if answer is not None]
        assert 10 < len(served) < 40
        served[0].ask(ECHO)
        assert (await served[0].read()).code == 0
        for each in peers:
            each.close()
        async with calling() as pool:
            while True:
                try:
                    answer = await pool.call(address, ECHO, timeout_s=1)
                    break
                except (CallTimeout, ConnectFailed, ConnectionLost):
                    # It has yet to notice that the others are gone.
                    await asyncio.sleep(0)
            assert answer.code == 0

    try:
        run(main)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_every_count_of_connections_is_a_value():
    group = ChannelGroup(ConnectionLimits(connections=70))
    group.refused, group.closed_idle, group.closed_large = 1, 2, 3
    group.buffered, group.in_flight = 4, 5
    metrics = network_metrics(group, ("node",), ("a",))
    values = {each.samples[0].name: each.samples[0].value for each in metrics}
    assert values == {
        "rocketlens_connections": 0,
        "rocketlens_connections_max": 70,
        "rocketlens_connections_buffered_bytes": 4,
        "rocketlens_requests_in_flight": 5,
        "rocketlens_connections_refused_total": 1,
        "rocketlens_connections_closed_idle_total": 2,
        "rocketlens_connections_closed_large_total": 3,
    }
    assert all(each.samples[0].labels == {"node": "a"} for each in metrics)
