"""What tests of a broker share: one in this process, a client for it, and requests."""

import asyncio
import random
from collections import ChainMap
from contextlib import asynccontextmanager

import pytest

from rocketlens.broker.config import parse_settings
from rocketlens.broker.life.service import BrokerService
from rocketlens.formats import batch_body, commitlog_record
from rocketlens.net.pool import ClientPool
from rocketlens.wire.codes import RequestCode
from tests.support.clocks import Clock
from tests.support.patience import PATIENCE_S

NOW_MS = 1_700_000_000_000
CONF = """\
listenPort=0
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=2000
maxHashSlotNum=50
maxIndexNum=100
diskMaxUsedSpaceRatio=98
diskSpaceCleanForciblyRatio=99
diskSpaceWarningLevelRatio=100
"""


class World:
    """A broker that runs, and a client of it."""

    def __init__(self, service, pool, clock):
        self.service = service
        self.pool = pool
        self.clock = clock
        self.core = service.core

    async def call(self, code, body=b"", /, **fields):
        """Ask; fields that are None are left out."""
        texts = {name: text_of(value) for name, value in fields.items() if value is not None}
        return await self.pool.call(
            self.service.address, int(code), texts, body, timeout_s=PATIENCE_S
        )

    async def send(self, topic="Orders", body=b"body", properties="", **changes):
        """Send one message with code 310."""
        fields = send_fields(topic, properties) | changes
        return await self.call(RequestCode.SEND_MESSAGE_V2, body, **fields)

    async def send_batch(self, members, topic="Orders", **changes):
        """Send ``(body, properties)`` pairs as a batch."""
        body = batch_body.encode(
            batch_body.BatchMember(0, each, properties.encode()) for each, properties in members
        )
        fields = send_fields(topic, "WAIT\x01true\x02") | {"m": True} | changes
        return await self.call(RequestCode.SEND_BATCH_MESSAGE, body, **fields)

    async def query(self, key, topic="Orders", **changes):
        """Ask for messages by key."""
        fields = {
            "topic": topic,
            "key": key,
            "maxNum": 64,
            "beginTimestamp": 0,
            "endTimestamp": 2**63 - 1,
        }
        return await self.call(RequestCode.QUERY_MESSAGE, **(fields | changes))

    async def pull(self, offset=0, queue_id=0, topic="Orders", **changes):
        """Pull, with the subscription in the request."""
        fields = {
            "consumerGroup": "readers",
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": "*",
            "subVersion": 0,
        }
        return await self.call(RequestCode.PULL_MESSAGE, **(fields | changes))

    def stored(self, topic, queue_id=0):
        """The records of one queue, as stored."""
        queue = self.core.store.queues.get(topic, queue_id)
        records = []
        for offset in range(queue.next_offset if queue else 0):
            entry = queue.entry(offset)
            content = self.core.store.record(entry.physical_offset, entry.store_size)
            records.append(commitlog_record.decode(content, physical_offset=entry.physical_offset))
        return records


def text_of(value):
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def send_fields(topic, properties):
    """The fields of code 310, by its letters."""
    return {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": NOW_MS - 5,
        "h": 7,
        "i": properties,
        "j": 0,
        "k": False,
        "l": None,
        "m": False,
    }


def properties_of(**named):
    """Properties in their string form."""
    return "".join(f"{name}\x01{value}\x02" for name, value in named.items())


def settings_of(directory, **changes):
    """A broker's settings; small files, and any port."""
    lines = "".join(f"{name}={text_of(value)}\n" for name, value in changes.items())
    return parse_settings(f"{CONF}storePathRootDir={directory / 'store'}\n{lines}")


@asynccontextmanager
async def running(directory, clock=None, disk=None, **changes):
    """Run a broker; stopped cleanly in the end unless the test abandons it."""
    clock = clock or Clock()
    service = BrokerService(
        settings_of(directory, **changes),
        build_index=False,
        with_kernels=False,
        clock=clock,
        rng=random.Random(7),
        disk=disk,
    )
    await service.start()
    pool = ClientPool(lambda _: True)
    try:
        yield World(service, pool, clock)
    finally:
        await pool.close()
        await service.stop()


def settings_of_test(request):
    """Return the settings that a test's markers ``broker`` name; the closest one counts."""
    return dict(ChainMap(*(each.kwargs for each in request.node.iter_markers("broker"))))


@pytest.fixture
async def world(request, tmp_path):
    """Run a broker for a test, with the settings of its marker ``broker``."""
    async with running(tmp_path, **settings_of_test(request)) as world:
        yield world


def in_broker(directory, test, disk=None, **changes):
    """Run ``await test(world)`` with a broker."""

    async def main():
        async with running(directory, disk=disk, **changes) as world:
            return await test(world)

    return asyncio.run(main())


def records_of(body):
    """The records in a body, one after another."""
    records, start = [], 0
    while start < len(body):
        record = commitlog_record.decode(body, start)
        records.append(record)
        start += record.total_size
    return records


TOPIC_FIELDS = {
    "topic": "New",
    "defaultTopic": "TBW102",
    "readQueueNums": 3,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
}


async def create_topic(world, **changes):
    return await world.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **(TOPIC_FIELDS | changes))


def bodies(answer):
    return [record.body for record in records_of(answer.body)]
