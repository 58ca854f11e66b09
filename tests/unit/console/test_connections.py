"""No address takes all connections, and no request takes for ever to arrive."""

import asyncio
from argparse import ArgumentTypeError

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from uvicorn import Config
from uvicorn.server import ServerState

from rocketlens import limits
from rocketlens.console import server
from rocketlens.console.run import proxy_network
from rocketlens.console.server import (
    MAX_ADDRESS_CONNECTIONS,
    MAX_CONSOLE_BODY_S,
    MAX_CONSOLE_HEAD_S,
    MAX_CONSOLE_UNREAD_S,
    ConnectionRules,
    ConsoleConnection,
    client_of,
    is_proxy,
)

UNFINISHED = b"POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nab"
WHOLE = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Transport(asyncio.Transport):
    """What a connection writes to; nobody reads beyond ``taken`` bytes."""

    def __init__(self, address):
        super().__init__({"peername": (address, 5000), "sockname": ("127.0.0.1", 8088)})
        self.written, self.unread, self.is_closed, self.is_aborted = b"", 0, False, False

    def write(self, data):
        self.written += data

    def get_write_buffer_size(self):
        return self.unread

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True

    def abort(self):
        self.is_closed = self.is_aborted = True

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


async def application(scope, receive, send):
    try:
        body = await Request(scope, receive).body()
    except ClientDisconnect:
        return
    await PlainTextResponse(f"served {len(body)}")(scope, receive, send)


class World:
    """The connections of one server, and its clock."""

    def __init__(self, *proxies):
        self.now = 1000.0
        self.rules = ConnectionRules([proxy_network(each) for each in proxies], lambda: self.now)
        self.state = ServerState()
        self.config = Config(application, log_config=None, ws="none")
        self.config.load()

    def connect(self, address="10.0.0.1", data=b""):
        connection = ConsoleConnection(
            rules=self.rules, config=self.config, server_state=self.state, app_state={}
        )
        connection.connection_made(Transport(address))
        if data and not connection.transport.is_closed:
            connection.data_received(data)
        return connection

    def pass_time(self, seconds):
        self.now += seconds
        self.rules.end_slow(self.state.connections)


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


def run(test):
    asyncio.run(test)


def test_262_unfinished_requests_of_one_address_leave_others_served():
    async def go():
        world = World()
        slow = [world.connect("10.0.0.1", UNFINISHED) for _ in range(262)]
        other = world.connect("10.0.0.2", WHOLE)
        await settle()
        assert b"200 OK" in other.transport.written
        refused = [each for each in slow if b" 503 " in each.transport.written]
        assert len(refused) == 262 - MAX_ADDRESS_CONNECTIONS
        assert all(each.transport.is_closed for each in refused)

    run(go())


def test_where_an_address_has_no_more_room_what_waited_longest_is_closed_for_a_new_one():
    async def go():
        world = World()
        first = world.connect(data=UNFINISHED)
        world.now += 1
        rest = [world.connect(data=UNFINISHED) for _ in range(MAX_ADDRESS_CONNECTIONS - 1)]
        world.now += limits.MIN_IDLE_S
        same = world.connect(data=WHOLE)
        await settle()
        assert b" 408 " in first.transport.written
        assert first.transport.is_closed
        assert not any(each.transport.is_closed for each in rest)
        assert b"served 0" in same.transport.written

    run(go())


@pytest.mark.parametrize("data", [b"", UNFINISHED])
def test_where_there_is_no_more_room_at_all_the_address_with_most_makes_it(data, monkeypatch):
    monkeypatch.setattr("rocketlens.console.server.MAX_CONSOLE_CONNECTIONS", 6)

    async def go():
        world = World()
        few = [world.connect("10.0.0.1", data) for _ in range(2)]
        many = [world.connect("10.0.0.2", data) for _ in range(4)]
        world.now += limits.MIN_IDLE_S + 1
        new = world.connect("10.0.0.3", WHOLE)
        await settle()
        assert [each.transport.is_closed for each in (*few, *many)].count(True) == 1
        assert not any(each.transport.is_closed for each in few)
        assert b"served 0" in new.transport.written

    run(go())


def test_what_is_being_answered_is_not_closed_for_another(monkeypatch):
    monkeypatch.setattr("rocketlens.console.server.MAX_ADDRESS_CONNECTIONS", 2)

    async def go():
        world = World()
        busy = [world.connect(data=WHOLE) for _ in range(2)]
        world.now += 1000
        new = world.connect(data=WHOLE)
        await settle()
        assert b" 503 " in new.transport.written
        assert all(b"served 0" in each.transport.written for each in busy)

    run(go())


def test_addresses_of_one_ipv6_network_share_their_connections(monkeypatch):
    monkeypatch.setattr("rocketlens.console.server.MAX_ADDRESS_CONNECTIONS", 2)

    async def go():
        world = World()
        made = [world.connect(f"2001:db8::{n}") for n in range(3)]
        assert [each.transport.is_closed for each in made] == [False, False, True]
        assert not world.connect("2001:db8:0:1::1").transport.is_closed

    run(go())


def test_a_trusted_proxy_has_the_connections_of_many(monkeypatch):
    monkeypatch.setattr("rocketlens.console.server.MAX_ADDRESS_CONNECTIONS", 2)

    async def go():
        world = World("10.0.0.0/24")
        made = [world.connect("10.0.0.9") for _ in range(9)]
        assert not any(each.transport.is_closed for each in made)

    run(go())


@pytest.mark.parametrize(
    ("data", "bound"),
    [
        (b"", "MAX_CONSOLE_HEAD_S"),
        (b"GET / HT", "MAX_CONSOLE_HEAD_S"),
        (UNFINISHED, "MAX_CONSOLE_BODY_S"),
    ],
)
def test_a_request_that_does_not_arrive_in_time_is_answered_408(data, bound):
    async def go():
        world = World()
        connection = world.connect(data=data)
        await settle()
        world.pass_time(getattr(server, bound) - 1)
        if data:
            # Another byte gives no more time.
            connection.data_received(b"T")
        assert not connection.transport.is_closed
        world.pass_time(1)
        await settle()
        assert connection.transport.written.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert connection.transport.written.count(b"HTTP/") == 1
        assert connection.transport.is_closed
        connection.connection_lost(None)
        assert not world.state.connections

    run(go())


def test_a_body_that_drips_behind_its_answer_ends_in_time():
    async def go():
        async def refusing(scope, receive, send):
            await PlainTextResponse("no", 413)(scope, receive, send)

        world = World()
        world.config.loaded_app = refusing
        connection = world.connect(data=UNFINISHED)
        await settle()
        assert b"413" in connection.transport.written
        world.pass_time(MAX_CONSOLE_BODY_S - 1)
        connection.data_received(b"c")
        world.pass_time(1)
        assert connection.transport.is_closed

    run(go())


def test_a_request_that_has_arrived_may_take_its_time():
    async def go():
        go_on = asyncio.Event()

        async def slow(scope, receive, send):
            await go_on.wait()
            await PlainTextResponse("in the end")(scope, receive, send)

        world = World()
        world.config.loaded_app = slow
        connection = world.connect(data=WHOLE)
        await settle()
        world.pass_time(10_000)
        assert not connection.transport.is_closed
        go_on.set()
        await settle()
        assert b"in the end" in connection.transport.written
        # Idle, until the keep-alive of the server ends it.
        world.pass_time(MAX_CONSOLE_HEAD_S + 1)
        assert not connection.transport.is_closed
        connection.data_received(b"GET / HT")
        world.pass_time(MAX_CONSOLE_HEAD_S)
        assert connection.transport.is_closed

    run(go())


def test_a_reader_that_takes_nothing_is_cut_off():
    async def go():
        world = World()
        stuck, slow = world.connect(data=WHOLE), world.connect(data=WHOLE)
        await settle()
        stuck.transport.unread = slow.transport.unread = 1_000_000
        # Closing waits until all is written, which never is.
        stuck.transport.close()
        for _ in range(int(MAX_CONSOLE_UNREAD_S) + 1):
            slow.transport.unread -= 1
            world.pass_time(1)
        assert stuck.transport.is_aborted
        assert not slow.transport.is_aborted

    run(go())


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1:2:3", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_an_ipv6_network_of_64_bits_is_one_client(address, client):
    assert client_of(address) == client


def test_proxies_are_addresses_and_ranges():
    proxies = [proxy_network(each) for each in ("127.0.0.1", "10.1.0.0/16", "2001:db8::/32")]
    for address in ("127.0.0.1", "10.1.2.3", "2001:db8::9", "::ffff:10.1.2.3"):
        assert is_proxy(address, proxies)
    for address in ("127.0.0.2", "10.2.0.1", "::1", "", "unknown"):
        assert not is_proxy(address, proxies)


@pytest.mark.parametrize("text", ["", "*", "proxy.example", "10.0.0.0/33", "10.0.0.1:80"])
def test_what_is_no_address_is_no_proxy(text):
    with pytest.raises(ArgumentTypeError, match="not an address"):
        proxy_network(text)
