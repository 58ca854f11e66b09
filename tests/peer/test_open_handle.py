"""One handle stays open on the store of a real broker that works, and misses nothing."""

import asyncio
import threading
from collections import deque

import pytest

import rocketlens
from rocketlens.client import Message, MQAdmin, Producer

VERSIONS = ("4.9.7", "5.5.0")
PRODUCERS = 3
IN_FLIGHT = 8
WAIT_SECONDS = 600


class Senders:
    """Producers in a thread of their own; ``acknowledged`` has the results as they come."""

    def __init__(self, namesrv, topic, count):
        self.topic = topic
        self.acknowledged = deque()
        self.has_more = threading.Event()
        self.failure = None
        self._thread = threading.Thread(target=self._run, args=(namesrv, count))
        self._thread.start()

    def _run(self, namesrv, count):
        try:
            asyncio.run(self._send(namesrv, iter(range(count))))
        except Exception as failure:  # noqa: BLE001 - told to the test, which fails
            self.failure = failure
        self.acknowledged.append(None)
        self.has_more.set()

    async def _send(self, namesrv, numbers):
        async with MQAdmin(namesrv) as admin:
            await admin.create_topic(self.topic, queue_nums=4)
        async with asyncio.TaskGroup() as tasks:
            for name in range(PRODUCERS):
                tasks.create_task(self._produce(namesrv, f"producer-{name}", numbers))

    async def _produce(self, namesrv, group, numbers):
        async with (
            Producer(namesrv, group=group, send_timeout_s=WAIT_SECONDS) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(IN_FLIGHT):
                tasks.create_task(self._send_some(producer, numbers))

    async def _send_some(self, producer, numbers):
        for number in numbers:
            message = Message(
                self.topic, b"%d " % number * (number % 60 + 1), keys=f"open-{number}"
            )
            result = await producer.send(message)
            self.acknowledged.append((number, result))
            self.has_more.set()

    def results(self):
        """Return each result soon after it came."""
        while True:
            while self.acknowledged:
                result = self.acknowledged.popleft()
                if result is None:
                    self._thread.join()
                    return
                yield result
            assert self.has_more.wait(WAIT_SECONDS)
            self.has_more.clear()


def missed_by(store, topic, number, result):
    """Return what is wrong with the answers to questions after one acknowledged message."""
    key = f"open-{number}"
    answer = store.query_message(topic, key)
    if {m.keys for m in answer} != {(key,)}:
        return f"{key} by key: {len(answer)} messages, complete {answer.complete}"
    queue = result.message_queue
    place = f"{topic}/{queue.queue_id}/{result.queue_offset}"
    for text in (result.offset_msg_id, place) if number % 7 == 0 else ():
        found = store.find(text)
        if [m.keys for m in found] != [(key,)]:
            return f"{key} as {text}: {len(found)} messages, complete {found.complete}"
    return None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "count", [1_500, pytest.param(150_000, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_every_message_that_a_real_broker_acknowledged_is_found_at_once(
    real_broker, version, count
):
    topic = f"OpenHandle{count}"
    broker = real_broker(version)
    senders = Senders(broker.namesrv_address, topic, count)
    first = next(results := senders.results())
    missed = []
    with rocketlens.open_store(broker.store) as store:
        asked = 0
        for number, result in (first, *results):
            asked += 1
            if wrong := missed_by(store, topic, number, result):
                missed.append(wrong)
        assert senders.failure is None
        assert (asked, missed[:5], len(missed)) == (count, [], 0)
        assert len(list(store.scan(topic))) == count
        found = store.find(topic=topic, max_num=5)
        assert (len(found), found.complete) == (5, True)
