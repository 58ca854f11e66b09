"""What the tests of net share: a server on the loopback interface, raw frames, both loops."""

import asyncio
import functools
import socket
import threading
from contextlib import asynccontextmanager, suppress

from rocketlens.net.channel import Channel, Response
from rocketlens.net.channel_group import ChannelGroup, ConnectionLimits
from rocketlens.net.event_loop import new_event_loop
from rocketlens.net.pool import ClientPool
from rocketlens.net.server import RemotingServer
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import Connection, decode_command
from rocketlens.wire.frame import FrameSplitter
from tests.support.binary_header import encode_command
from tests.support.clocks import Seconds
from tests.support.patience import PATIENCE_S

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": new_event_loop}

ECHO = 310
LATER = 11
NEVER = 12
HOST = "127.0.0.1"

CONNECTED = []
"""Peers that `run` has to close."""


def run(main, loop="uvloop"):
    """Run a coroutine; a test that hangs fails after `PATIENCE_S`."""

    async def within_patience():
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await main()
        finally:
            await close_connected()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(within_patience())


async def close_connected():
    while CONNECTED:
        await CONNECTED.pop().ended()


async def until(condition):
    """Let the event loop turn until something holds; `run` ends what never does."""
    while not condition():  # noqa: ASYNC110 - it is the loop itself that is waited for
        await asyncio.sleep(0)


def echo(command, channel):
    """Give back what came."""
    return Response(0, dict(command.ext_fields), command.body)


@asynccontextmanager
async def serving(handlers=None, **options):
    """Give a server that listens on a free port, and its address."""
    server = RemotingServer({ECHO: echo} if handlers is None else handlers, **options)
    address = str(server.listen(HOST, 0))
    try:
        yield server, address
    finally:
        await server.stop()


@asynccontextmanager
async def calling(allowed="127.", **options):
    """Give a pool that may dial what begins so: by default anything on the loopback interface."""
    pool = ClientPool(lambda address: address.startswith(allowed), **options)
    try:
        yield pool
    finally:
        await pool.close()


class Peer:
    """A client with nothing but a stream: sends bytes, reads commands."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer
        self.splitter = FrameSplitter()
        self.received = []

    def send(self, content):
        self.writer.write(content)

    def ask(self, code, *, opaque=1, flag=0, body=b"", ext_fields=None, header_codec=0):
        command = RemotingCommand(code, opaque, flag, None, ext_fields or {}, body)
        self.send(encode_command(command, header_codec))

    async def read(self):
        """Give the next command; None at the end of the connection."""
        while not self.received:
            try:
                chunk = await self.reader.read(65536)
            except ConnectionError:
                return None
            if not chunk:
                return None
            self.received += [decode_command(each) for each in self.splitter.feed(chunk)]
        return self.received.pop(0)

    def close(self):
        self.writer.close()

    async def ended(self):
        self.close()
        with suppress(OSError):
            await self.writer.wait_closed()


async def connect(address, **options):
    host, _, port = address.rpartition(":")
    peer = Peer(*await asyncio.open_connection(host, int(port), **options))
    CONNECTED.append(peer)
    return peer


def request_frame(code=ECHO, body=b"", ext_fields=None):
    """Give the bytes of one request."""
    return Connection().request(code, ext_fields or {}, body, context=None)[1]


class FakeTransport(asyncio.Transport):
    """Records what is done to it; ``unsent`` is what a real one would still hold."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.unsent = 0
        self.is_paused = False
        self.ended = None

    def write(self, content):
        self.writes.append(bytes(content))

    def writelines(self, parts):
        self.writes += [bytes(part) for part in parts]

    def get_write_buffer_size(self):
        return self.unsent

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_extra_info(self, name, default=None):
        return ("127.0.0.1", 40000) if name in {"peername", "sockname"} else default

    def is_closing(self):
        return self.ended is not None

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def close(self):
        self.ended = "closed"

    def abort(self):
        self.ended = "aborted"

    def commands(self):
        return [decode_command(each) for each in FrameSplitter().feed(b"".join(self.writes))]


class BlackHole:
    """Listens and takes connections, and never answers."""

    def __enter__(self):
        self.listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self.listener.getsockname()[1]}"
        self.taken = []
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()
        return self

    def _accept(self):
        while True:
            try:
                self.taken.append(self.listener.accept()[0])
            except OSError:
                return

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for each in self.taken:
            each.close()


async def answered(peer):
    peer.ask(ECHO)
    answer = await peer.read()
    return answer is not None and answer.code == 0


class Bench:
    """A channel, what is on both sides of it, and a clock."""

    def __init__(self, handlers=None, group=None, **bounds):
        self.clock = Seconds()
        # What takes long only because this machine is busy ends no turn, unless a test says so.
        bounds = {"turn_s": 60.0, "round_s": 120.0} | bounds
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
            encode_command(RemotingCommand(code, opaque, flag, None, {}, body))
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
