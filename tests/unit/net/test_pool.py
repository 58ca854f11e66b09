"""Calls by address."""

import asyncio
import socket
import threading
from types import SimpleNamespace

import pytest

from rocketlens.errors import (
    AddressNotAllowed,
    BadInput,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    RemotingError,
    WrongUse,
)
from rocketlens.net import pool as pool_module
from rocketlens.net.channel import Response
from rocketlens.net.pool import ClientPool, parse_address
from rocketlens.net.server import RemotingServer
from tests.support.patched import change_for
from tests.support.patience import PATIENCE_S
from tests.unit.net.loopback import (
    ECHO,
    HOST,
    LATER,
    LOOPS,
    NEVER,
    BlackHole,
    calling,
    echo,
    serving,
    until,
)

on_both_loops = pytest.mark.parametrize("loop", LOOPS)


def free_address():
    with socket.create_server((HOST, 0)) as listener:
        return f"{HOST}:{listener.getsockname()[1]}"


@on_both_loops
async def test_1000_calls_at_once_share_one_connection_and_each_gets_its_own_answer():
    async with serving() as (server, address), calling() as pool:
        bodies = [str(number).encode() for number in range(1000)]
        answers = await asyncio.gather(*[pool.call(address, ECHO, body=each) for each in bodies])
        assert [each.body for each in answers] == bodies
        assert len(server.group.channels) == 1


async def test_answers_in_another_order_find_their_requests():
    held = []

    def reversing(command, channel):
        held.append(command)
        if len(held) == 5:
            for each in reversed(held):
                channel.respond(each, Response(body=each.body))

    async with serving({LATER: reversing}) as (_, address), calling() as pool:
        answers = await asyncio.gather(
            *[pool.call(address, LATER, body=bytes([number])) for number in range(5)]
        )
        assert [each.body for each in answers] == [bytes([number]) for number in range(5)]


async def test_a_one_way_request_arrives_and_nothing_comes_back():
    arrived = asyncio.get_running_loop().create_future()

    def note(command, channel):
        arrived.set_result(command)

    async with serving({ECHO: echo, LATER: note}) as (_, address), calling() as pool:
        await pool.tell(address, LATER, {"topic": "t"}, b"body")
        command = await arrived
        assert command.is_one_way
        assert (command.ext_fields, command.body) == ({"topic": "t"}, b"body")
        assert (await pool.call(address, ECHO, body=b"x")).body == b"x"


async def test_a_server_may_ask_its_client_on_the_same_connection():
    def running_information(command, channel):
        return Response(body=b"I am " + command.body)

    async def ask_back(command, channel):
        answer = await channel.request(307, body=b"well", timeout_s=5)
        return Response(body=answer.body)

    async with (
        serving({LATER: ask_back}) as (_, address),
        calling(handlers={307: running_information}) as pool,
    ):
        assert (await pool.call(address, LATER)).body == b"I am well"


@pytest.mark.parametrize("loop", ["asyncio"])
async def test_no_address_is_dialled_that_is_not_allowed(monkeypatch):
    dialled = []
    loop = asyncio.get_running_loop()

    async def record(factory, host, port, **_):
        dialled.append((host, port))
        raise ConnectionRefusedError(111, "refused")

    pool = ClientPool({"127.0.0.1:10911"}.__contains__)
    pool_loop = type("Loop", (), {"create_connection": staticmethod(record)})
    proxy = _Proxy(loop, pool_loop.create_connection)
    change_for(monkeypatch, pool_module, "asyncio", get_running_loop=lambda: proxy)
    for number in range(1000):
        forged = f"10.{number % 256}.0.1:{10000 + number}"
        with pytest.raises(AddressNotAllowed, match="in no configuration or route"):
            await pool.call(forged, 33)
    with pytest.raises(ConnectFailed):
        await pool.call("127.0.0.1:10911", 33)
    monkeypatch.undo()
    await pool.close()
    assert dialled == [("127.0.0.1", 10911)]


class _Proxy:
    """An event loop, but for how it connects."""

    def __init__(self, loop, create_connection):
        self._loop = loop
        self.create_connection = create_connection

    def __getattr__(self, name):
        return getattr(self._loop, name)


@on_both_loops
async def test_a_refused_connection_is_an_error_that_names_the_address_and_is_retriable():
    address = free_address()
    async with calling() as pool:
        with pytest.raises(ConnectFailed, match=f"{address}: no connection") as failed:
            await pool.call(address, ECHO)
        assert failed.value.retriable
        assert failed.value.address == address


async def test_an_address_that_refused_is_not_dialled_again_at_once_and_then_is():
    address = free_address()
    async with calling() as pool:
        with pytest.raises(ConnectFailed):
            await pool.call(address, ECHO)
        with pytest.raises(ConnectFailed, match=r"Connection refused$"):
            await pool.call(address, ECHO)
        server = RemotingServer({ECHO: echo})
        server.listen(HOST, int(address.rpartition(":")[2]))
        while True:
            try:
                answer = await pool.call(address, ECHO, body=b"back")
                break
            except ConnectFailed:
                await asyncio.sleep(0)
        assert answer.body == b"back"
        await server.stop()


async def test_callers_who_come_together_dial_once_and_fail_together():
    address = free_address()
    async with calling() as pool:
        outcomes = await asyncio.gather(
            *[pool.call(address, ECHO) for _ in range(10)], return_exceptions=True
        )
        assert {type(each) for each in outcomes} == {ConnectFailed}
        assert pool._peers[address].failures == 1


async def test_a_caller_that_gives_up_does_not_take_the_connection_from_others():
    async with serving() as (_, address), calling() as pool:
        first = asyncio.create_task(pool.call(address, ECHO))
        second = asyncio.create_task(pool.call(address, ECHO, body=b"2"))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).body == b"2"


async def test_a_call_without_an_answer_times_out_and_the_next_one_works():
    handlers = {ECHO: echo, NEVER: lambda *_: None}
    async with serving(handlers) as (server, address), calling() as pool:
        with pytest.raises(CallTimeout, match=r"no answer in 0.02 s"):
            await pool.call(address, NEVER, timeout_s=0.02)
        assert (await pool.call(address, ECHO, body=b"on")).body == b"on"
        assert len(server.group.channels) == 1


async def test_a_server_that_accepts_and_never_answers_costs_the_timeout_only():
    with BlackHole() as hole:
        async with calling() as pool:
            with pytest.raises(CallTimeout):
                await pool.call(hole.address, ECHO, timeout_s=0.02)


async def test_what_a_server_does_not_read_for_the_timeout_is_an_error_too():
    with BlackHole() as hole:
        async with calling() as pool:
            channel = await pool.channel(hole.address)
            while not channel.is_behind:
                channel.tell(ECHO, body=bytes(1 << 20))
                await asyncio.sleep(0)
            with pytest.raises(CallTimeout, match="read nothing"):
                await pool.call(hole.address, ECHO, timeout_s=0.02)


async def test_a_call_that_is_cancelled_when_it_could_go_on_ends():
    """asyncio.wait_for of Python 3.11 takes such a cancellation for its own, and it is lost."""
    async with calling() as pool:
        goes_on = asyncio.Event()
        channel = SimpleNamespace(address="127.0.0.1:1", writable=goes_on.wait)
        waits = asyncio.create_task(pool._until_writable(channel, PATIENCE_S))
        await until(lambda: goes_on._waiters)
        goes_on.set()
        waits.cancel()
        await asyncio.wait({waits})
        assert waits.cancelled()


@on_both_loops
async def test_calls_under_way_fail_when_the_server_ends_and_the_next_call_reconnects():
    handlers = {ECHO: echo, NEVER: lambda *_: None}
    async with serving(handlers) as (server, address), calling() as pool:
        call = asyncio.create_task(pool.call(address, NEVER))
        await until(lambda: server.group.in_flight)
        for channel in list(server.group.channels):
            channel.abort("test")
        with pytest.raises(ConnectionLost, match=address) as lost:
            await call
        assert lost.value.retriable
        assert (await pool.call(address, ECHO, body=b"again")).body == b"again"


async def test_closing_fails_calls_under_way_and_refuses_new_ones():
    async with serving({NEVER: lambda *_: None}) as (server, address), calling() as pool:
        call = asyncio.create_task(pool.call(address, NEVER))
        await until(lambda: server.group.in_flight)
        await pool.close()
        with pytest.raises(ConnectionLost, match="closed by this end"):
            await call
        with pytest.raises(WrongUse, match="this client is closed"):
            await pool.call(address, ECHO)


@pytest.mark.parametrize("loop", ["asyncio"])
async def test_a_connection_is_not_waited_for_longer_than_the_timeout(monkeypatch):
    loop = asyncio.get_running_loop()

    async def never(*_, **__):
        await asyncio.Event().wait()

    async with calling(connect_timeout_s=0.01) as pool:
        proxy = _Proxy(loop, never)
        change_for(monkeypatch, pool_module, "asyncio", get_running_loop=lambda: proxy)
        with pytest.raises(ConnectFailed, match=r"no connection in 0.01 s"):
            await pool.call("127.0.0.1:10911", ECHO)
        monkeypatch.undo()


@on_both_loops
async def test_a_name_that_nothing_answers_delays_neither_other_names_nor_the_end(monkeypatch):
    answered = threading.Event()

    def getaddrinfo(host, *arguments, **options):
        if host == "unanswered.example":
            assert answered.wait(PATIENCE_S)
        return socket.getaddrinfo("127.0.0.1", *arguments, **options)

    change_for(monkeypatch, pool_module, "socket", getaddrinfo=getaddrinfo)
    async with calling("unanswered.", connect_timeout_s=0.05) as pool:
        with pytest.raises(ConnectFailed, match=r"no connection in 0.05 s"):
            await pool.call("unanswered.example:10911", ECHO)
    async with serving() as (_, address), calling("answered.") as pool:
        port = address.rpartition(":")[2]
        assert (await pool.call(f"answered.example:{port}", ECHO)).code == 0
    # The loop has ended, and the resolver has not answered yet.
    answered.set()


async def test_the_addresses_of_a_name_are_tried_in_turn(monkeypatch):
    def getaddrinfo(_, *arguments, **options):
        first, second = (
            socket.getaddrinfo(ip, *arguments, **options) for ip in ("127.0.0.2", HOST)
        )
        return first + second

    change_for(monkeypatch, pool_module, "socket", getaddrinfo=getaddrinfo)
    async with serving() as (_, address), calling("two.") as pool:
        port = address.rpartition(":")[2]
        assert (await pool.call(f"two.example:{port}", ECHO)).code == 0


@pytest.mark.parametrize("loop", ["asyncio"])
async def test_an_address_that_does_not_answer_leaves_time_for_the_next(monkeypatch):
    def getaddrinfo(_, *arguments, **options):
        first, second = (
            socket.getaddrinfo(ip, *arguments, **options) for ip in ("127.0.0.2", HOST)
        )
        return first + second

    change_for(monkeypatch, pool_module, "socket", getaddrinfo=getaddrinfo)
    loop = asyncio.get_running_loop()

    async def silent_at_first(factory, address, *arguments, **options):
        if address == "127.0.0.2":
            await asyncio.Event().wait()
        return await loop.create_connection(factory, address, *arguments, **options)

    async with serving() as (_, address), calling("two.", connect_timeout_s=1) as pool:
        proxy = _Proxy(loop, silent_at_first)
        change_for(monkeypatch, pool_module, "asyncio", get_running_loop=lambda: proxy)
        port = address.rpartition(":")[2]
        assert (await pool.call(f"two.example:{port}", ECHO)).code == 0


async def test_a_name_that_no_host_can_have_is_no_connection():
    async with calling("x") as pool:
        with pytest.raises(ConnectFailed, match=r"labels of 1 to 63 characters"):
            await pool.call(f"{'x' * 64}.example:10911", ECHO)


def test_every_failure_of_a_call_can_be_caught_as_one():
    assert issubclass(ConnectFailed, RemotingError)
    assert issubclass(ConnectionLost, RemotingError)
    assert issubclass(CallTimeout, RemotingError)


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [
        ("10.0.0.1:10911", "10.0.0.1", 10911),
        ("broker-a.example:9876", "broker-a.example", 9876),
        ("[::1]:9876", "::1", 9876),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
    ],
)
def test_an_address_is_read(text, address, port):
    assert parse_address(text) == (address, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        ":1",
        "host:",
        "host:0",
        "host:65536",
        "host:+1",
        "host:１",
        "::1:9876",
        "[x:1",
        "[]:1",
        "[host]:1",
        "h" * 400 + ":1",
        "host:-1",
        "a:b:1",
        "host:1 ",
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(BadInput, match="give host:port"):
        parse_address(text)
