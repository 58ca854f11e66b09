"""A relay before a proxy, which closes a connection in the middle of a request."""

import asyncio
import json
import struct
from collections import Counter
from contextlib import suppress

RESPONSE_FLAG = 1


class CuttingRelay:
    """Passes on the frames of remoting connections; routes name it in place of the proxy.

    ``cuts`` has, by request code, where connections are closed, each place once: ``request``:
    before the proxy gets the request; ``answer``: before the client gets the answer; ``half``:
    after half of the answer.
    """

    def __init__(self, address, port):
        self.host, proxy_port = address.split(":")
        self.proxy_port, self.port = int(proxy_port), port
        # A frame keeps its length.
        self.ports = [f":{each}".encode() for each in (self.proxy_port, port)]
        assert len({*map(len, self.ports)}) == 1
        self.cuts = {}
        self.cut = Counter()
        self.serving = set()

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.accept, self.host, self.port)
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for each in self.serving:
            each.cancel()
        await asyncio.gather(*self.serving, return_exceptions=True)

    def accept(self, reader, writer):
        task = asyncio.get_running_loop().create_task(self.serve(reader, writer))
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)

    def take(self, code):
        """Return where the connection of a request is to be closed."""
        if not self.cuts.get(code):
            return None
        self.cut[code] += 1
        return self.cuts[code].pop(0)

    async def serve(self, reader, writer):
        proxy_reader, proxy_writer = await asyncio.open_connection(self.host, self.proxy_port)
        doomed = {}

        async def pass_requests():
            async for header, frame in frames(reader):
                where = self.take(header["code"])
                if where == "request":
                    return
                if where:
                    doomed[header["opaque"]] = where
                proxy_writer.write(frame)

        async def pass_answers():
            async for header, frame in frames(proxy_reader):
                is_answer = header["flag"] & RESPONSE_FLAG
                where = doomed.get(header["opaque"]) if is_answer else None
                if where == "half":
                    writer.write(frame[: len(frame) // 2])
                    await writer.drain()
                if where:
                    return
                writer.write(frame.replace(*self.ports))

        both = [asyncio.ensure_future(each()) for each in (pass_requests, pass_answers)]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            for each in (writer, proxy_writer):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()


async def frames(reader):
    """Give each frame with its header, which is JSON."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length = await reader.readexactly(4)
            content = await reader.readexactly(*struct.unpack(">i", length))
            header_bytes = struct.unpack_from(">i", content)[0] & 0xFFFFFF
            yield json.loads(content[4 : 4 + header_bytes]), length + content
