"""A connection of a broker without a socket: bytes in, bytes out, cut as a test wants."""

import asyncio

from rocketlens.net.channel import Channel
from rocketlens.net.channel_state import QUEUED
from rocketlens.wire.connection import Connection, decode_command
from rocketlens.wire.frame import FrameSplitter
from tests.support.patience import PATIENCE_S


class _Transport(asyncio.Transport):
    """The broker's close is only noted: no reply is lost to it, however late its thread is."""

    def __init__(self, peer):
        super().__init__({"peername": peer})
        self.written = bytearray()
        self.is_close_asked = False

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        self.written += data

    def writelines(self, list_of_data):
        self.written += b"".join(list_of_data)

    def is_closing(self):
        return False

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def close(self):
        self.is_close_asked = True

    abort = close


async def _until(is_so):
    """Let the broker's loop run until something is so: there is nothing to wait for but turns."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def feed(world, chunks, peer=("10.0.0.9", 4711)):
    """Feed chunks to a new connection of a broker; return all that it answered, and whether the
    broker closed it.
    """
    transport = _Transport(peer)
    group = world.core.network
    channel = Channel(group, world.service._handlers, Connection())
    channel.connection_made(transport)
    async with asyncio.timeout(PATIENCE_S):
        for chunk in chunks:
            if transport.is_close_asked:
                break
            channel.data_received(chunk)
            await _until(lambda: channel.state not in QUEUED)
        while under_way := group.tasks | group.awaited:
            await asyncio.wait(under_way)
        await _until(lambda: not group.in_flight)
        await asyncio.sleep(0)
    channel.connection_lost(None)
    return bytes(transport.written), transport.is_close_asked


def replies_in(written):
    """The replies of a broker one by one. Their order is of no matter where look-ups were asked:
    what the thread of look-ups answers comes behind the others.
    """
    position, replies = 0, []
    while position < len(written):
        end = position + 4 + int.from_bytes(written[position : position + 4])
        replies.append(written[position:end])
        position = end
    return replies


def commands_in(content):
    """The commands of frames, responses too, which a connection takes only to its own requests."""
    return [decode_command(each) for each in FrameSplitter().feed(content)]
