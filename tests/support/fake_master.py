"""A master with a log, for what follows it: it sends as a real one does, and can be made to lie."""

import asyncio
import random
from contextlib import asynccontextmanager, suppress

from rocketlens.model.rocketmq import MASTER_ID
from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.ha import ReportReader, encode_header
from tests.support.fake_cluster import LOOPBACK, Fake, FakeNameServer


class FakeMaster(Fake):
    """Serves ``log``, whose first byte has physical offset ``min_offset``."""

    def __init__(self, log=b"", min_offset=0, *, config, name="broker-a"):
        super().__init__()
        self.name = name
        self.log = log
        self.min_offset = min_offset
        self.config = {
            "brokerRole": "ASYNC_MASTER",
            "brokerIP2": LOOPBACK,
            "mappedFileSizeCommitLog": str(config.mappedFileSizeCommitLog),
            "mappedFileSizeConsumeQueue": str(config.mappedFileSizeConsumeQueue),
            "maxHashSlotNum": str(config.maxHashSlotNum),
            "maxIndexNum": str(config.maxIndexNum),
        }
        self.segment_bytes = config.mappedFileSizeCommitLog
        self.tables = {
            RequestCode.GET_ALL_TOPIC_CONFIG: b'{"topicConfigTable":{}}',
            RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"T@g":{0:7}}}',
            RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{}}',
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: b'{"subscriptionGroupTable":{}}',
        }
        self.starts = []
        """Where each connection was asked to begin."""
        self.reports = []
        self.frame_bytes = 32_768
        self.rng = random.Random(1)
        self.cuts = False
        """Whether what is sent arrives in small pieces."""
        self.drops_after = None
        """Bytes after which each connection is dropped, if set."""
        self.is_mute = False
        """Whether nothing but heartbeats is sent."""
        self.said_min_offset = None
        """What it answers instead of its minimum offset, if set."""
        self.before_it_answers = None
        """Awaited before runtime information arrives, after it was read."""
        self.changed = asyncio.Event()
        self.reported = asyncio.Condition()
        self._serving = set()

    @property
    def end_offset(self):
        return self.min_offset + len(self.log)

    def answers(self):
        return {
            RequestCode.GET_BROKER_CONFIG: lambda *_: Response(
                ext_fields={"version": "{}"},
                body="".join(f"{key}={value}\n" for key, value in self.config.items()).encode(),
            ),
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime,
            **{code: self._table(code) for code in self.tables},
        }

    def _table(self, code):
        return lambda *_: Response(body=self.tables[code])

    def runtime(self, *_):
        least = self.min_offset if self.said_min_offset is None else self.said_min_offset
        table = f'"commitLogMinOffset":"{least}","commitLogMaxOffset":"{self.end_offset}"'
        response = Response(body=b'{"table":{%s}}' % table.encode())
        return response if self.before_it_answers is None else self._late(response)

    async def _late(self, response):
        await self.before_it_answers()
        return response

    async def start(self):
        await super().start()
        self.ha = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.config["haListenPort"] = str(self.ha.sockets[0].getsockname()[1])

    async def die(self):
        self.ha.close()
        self.drop()
        if self._serving:
            await asyncio.wait(self._serving)
        await super().die()

    def drop(self):
        """Drop all connections of replicas."""
        for task in self._serving:
            task.cancel()

    def append(self, log):
        """Add to the log, and wake the connections."""
        self.log += log
        self.wake()

    def wake(self):
        self.changed.set()
        self.changed = asyncio.Event()

    async def acknowledged(self, offset):
        """Wait until a replica reported an offset."""
        async with self.reported:
            await self.reported.wait_for(lambda: max(self.reports, default=-1) >= offset)

    async def _accept(self, reader, writer):
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            writer.transport.abort()

    async def _serve(self, reader, writer):
        reports = ReportReader()
        while reports.first is None:
            received = await reader.read(100)
            if not received:
                return
            reports.feed(received)
        self.starts.append(reports.first)
        listening = asyncio.create_task(self._listen(reader, reports))
        position, sent = reports.first, 0
        if position == 0:
            position = max(self.end_offset - 1, 0) // self.segment_bytes * self.segment_bytes
        try:
            while not listening.done():
                changed = self.changed
                start = position - self.min_offset
                part = b"" if start < 0 or self.is_mute else self.log[start:][: self.frame_bytes]
                part = part[: self.segment_bytes - position % self.segment_bytes]
                await self._send(writer, encode_header(position, len(part)) + part)
                position, sent = position + len(part), sent + len(part)
                if self.drops_after is not None and sent >= self.drops_after:
                    return
                if not part:
                    waiting = asyncio.create_task(changed.wait())
                    await asyncio.wait([waiting, listening], return_when="FIRST_COMPLETED")
                    waiting.cancel()
        finally:
            listening.cancel()

    async def _send(self, writer, content):
        while content:
            size = self.rng.randrange(1, 2_000) if self.cuts else len(content)
            writer.write(content[:size])
            await writer.drain()
            content = content[size:]
            if self.cuts:
                await asyncio.sleep(0)

    async def _listen(self, reader, reports):
        async with self.reported:
            self.reports.append(reports.newest)
            self.reported.notify_all()
        while received := await reader.read(1000):
            if reports.feed(received):
                async with self.reported:
                    self.reports.append(reports.newest)
                    self.reported.notify_all()


@asynccontextmanager
async def followed(*masters, server=None):
    """Run masters, and a name server that knows them; give its address."""
    server = server or FakeNameServer()
    for master in masters:
        await master.start()
        server.brokers[master.name] = {MASTER_ID: master}
    await server.start()
    try:
        yield server.address
    finally:
        with suppress(OSError):
            await server.die()
        for master in masters:
            await master.die()
