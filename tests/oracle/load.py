"""Producers that send at once, and note in the ledger what was acknowledged.

They never run far ahead of the readers: each message is asked after while it is new.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable

from rocketlens.client.send.producer import Producer
from rocketlens.client.send.send_result import SendResult, SendStatus
from rocketlens.errors import RocketLensError
from rocketlens.model.message_id import OffsetMessageId
from tests.oracle.ledger import Acked, Ledger
from tests.oracle.messages import message_of

SENDERS = 6
MAX_BATCH = 8
SEND_TIMEOUT_S = 30.0
PAUSE_S = 0.02
"""How long a sender keeps off a broker that refused, and looks how far readers are."""


class Load:
    """Numbers messages, and gives each number once."""

    def __init__(
        self,
        ledger: Ledger,
        seed: int,
        topics: tuple[str, ...],
        is_ahead: Callable[[], bool] = lambda: False,
    ) -> None:
        self.ledger = ledger
        self.topics = topics
        self.held: set[str] = set()
        """Topics that nothing is sent to for now."""
        self.ends: defaultdict[tuple[str, int], int] = defaultdict(int)
        """The offset after the last that was acknowledged, by topic and queue."""
        self.failed: Counter[str] = Counter()
        self._is_ahead = is_ahead
        self._chance = random.Random(seed)
        self._next_number = 0
        self._under_way: Counter[str] = Counter()

    async def send(self, name_server: str, until: Callable[[], bool]) -> None:
        """Send from several producers until ``until()`` holds; failures are counted."""
        async with (
            Producer(
                name_server,
                group="plain",
                retries=0,
                send_timeout_s=SEND_TIMEOUT_S,
                compression=None,
            ) as plain,
            Producer(
                name_server, group="compressing", retries=0, send_timeout_s=SEND_TIMEOUT_S
            ) as compressing,
        ):
            producers = (plain, plain, compressing)
            tasks = [
                self._send_until(producers[n % len(producers)], until, batches=n % 3 == 1)
                for n in range(SENDERS)
            ]
            await asyncio.gather(*tasks)

    async def hold(self, topic: str) -> None:
        """Send nothing to a topic any more, and wait until nothing is under way to it."""
        self.held.add(topic)
        while self._under_way[topic]:  # noqa: ASYNC110 - six senders, a few times a run
            await asyncio.sleep(PAUSE_S)

    def release(self, topic: str) -> None:
        """Send to a topic again; its queues begin at 0."""
        for queue in [queue for queue in self.ends if queue[0] == topic]:
            del self.ends[queue]
        self.held.discard(topic)

    async def _send_until(
        self, producer: Producer, until: Callable[[], bool], *, batches: bool
    ) -> None:
        while not until():
            topic = self._chance.choice(self.topics)
            if self._is_ahead() or topic in self.held:
                await asyncio.sleep(PAUSE_S)
                continue
            self._under_way[topic] += 1
            try:
                await self._send_one(producer, topic, batches=batches)
            except RocketLensError as error:
                self.failed[type(error).__name__] += 1
                await asyncio.sleep(PAUSE_S)
            finally:
                self._under_way[topic] -= 1

    async def _send_one(self, producer: Producer, topic: str, *, batches: bool) -> None:
        count = self._chance.randrange(1, MAX_BATCH) if batches else 1
        first, self._next_number = self._next_number, self._next_number + count
        messages = [message_of(self.ledger.seed, first + n, topic) for n in range(count)]
        times_deleted, lineage = self.ledger.times_deleted[topic], self.ledger.lineage
        begun_ms = int(time.time() * 1000)
        if batches:
            result = await producer.send_batch(messages)
        else:
            result = await producer.send(messages[0])
        if result.send_status is not SendStatus.SEND_OK:
            self.failed[result.send_status.name] += 1
            return
        self._note(result, first, begun_ms, times_deleted, lineage)

    def _note(
        self, result: SendResult, first: int, begun_ms: int, times_deleted: int, lineage: int
    ) -> None:
        acked_ms = int(time.time() * 1000)
        queue = result.message_queue
        for n, ids in enumerate(zip(result.offset_msg_ids, result.msg_ids, strict=True)):
            queue_offset = result.queue_offset + n
            physical_offset = OffsetMessageId.decode(ids[0]).physical_offset
            place = (queue.topic, queue.queue_id, queue_offset, physical_offset)
            times = (begun_ms, acked_ms, times_deleted, lineage)
            self.ledger.ack(Acked(first + n, *place, *ids, *times))
            at = queue.topic, queue.queue_id
            self.ends[at] = max(self.ends[at], queue_offset + 1)
