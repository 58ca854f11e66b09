"""What consumers do on any broker: ours in this process, and the real ones.

A message is delivered at least once: what is judged is which messages came, not how often.
"""

import asyncio

from rocketlens import (
    LitePullConsumer,
    Message,
    MessageQueue,
    MessageSelector,
    MQAdmin,
    Producer,
    PushConsumer,
)
from tests.support.patience import PATIENCE_S

QUEUES = 4


async def until(condition):
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what it waits for is in another task
            await asyncio.sleep(0.02)


async def send(name_server, topic, count, **named):
    """Make a topic, and send numbered messages, the odd ones tagged B."""
    async with (
        MQAdmin(name_server) as admin,
        Producer(name_server, send_timeout_s=PATIENCE_S) as producer,
    ):
        await admin.create_topic(topic, QUEUES)
        results = []
        for number in range(count):
            message = Message(
                topic,
                str(number),
                tags="AB"[number % 2],
                keys=f"{topic}-{number}",
                properties={"number": str(number)},
                **named,
            )
            results.append(await producer.send(message))
        return results


class Collecting:
    """A listener that keeps what it gets; ``fails`` says of a message whether it is to fail."""

    def __init__(self, fails=lambda _: False):
        self.messages = []
        self.failed = []
        self.fails = fails

    async def __call__(self, messages, context):
        for each in messages:
            if self.fails(each):
                self.failed.append(each)
                context.delay_level = 1
                raise ValueError("as it was told to")
        self.messages += messages

    @property
    def bodies(self):
        return sorted(int(each.body) for each in self.messages)

    @property
    def numbers(self):
        """The bodies without how often each came."""
        return set(self.bodies)


def push(name_server, topic, listener, expression="*", *, orderly=False, **options):
    options = {"group": f"g_{topic}", "begin": "first"} | options
    consumer = PushConsumer(name_server, **options)
    consumer.subscribe(topic, expression)
    (consumer.listen_orderly if orderly else consumer.listen)(listener)
    return consumer


async def tags_are_filtered_and_offsets_kept(name_server):
    results = await send(name_server, "Tagged", 40)
    first, second = Collecting(), Collecting()
    async with push(name_server, "Tagged", first, "B || C"):
        await until(lambda: len(first.numbers) == 20)
    assert first.numbers == set(range(1, 40, 2))
    ids = {each.msg_id for each in results}
    assert {each.msg_id for each in first.messages} <= ids
    assert {each.offset_msg_id for each in first.messages} <= {e.offset_msg_id for e in results}
    await send(name_server, "Tagged", 4)
    async with push(name_server, "Tagged", second, "B || C"):
        await until(lambda: len(second.numbers) == 2)
    assert second.numbers == {1, 3}


async def sql_is_evaluated_by_the_broker(name_server):
    await send(name_server, "Sql", 40)
    listener = Collecting()
    selector = MessageSelector.by_sql("number BETWEEN 10 AND 19 AND TAGS = 'B'")
    async with push(name_server, "Sql", listener, selector):
        await until(lambda: len(listener.numbers) == 5)
    assert listener.numbers == {11, 13, 15, 17, 19}


async def failures_come_again_and_end_among_the_dead_letters(name_server):
    await send(name_server, "Failing", 10)
    listener = Collecting(lambda each: each.body == b"7" or each.reconsume_times < 1)

    def times_failed():
        return {each.reconsume_times for each in listener.failed if each.body == b"7"}

    async with push(name_server, "Failing", listener, max_reconsume_times=2, concurrency=4):
        await until(lambda: len(listener.numbers) == 9)
        await until(lambda: times_failed() >= {0, 1, 2})
    assert listener.numbers == {0, 1, 2, 3, 4, 5, 6, 8, 9}
    assert {each.topic for each in listener.messages} == {"Failing"}
    assert {each.keys for each in listener.messages} <= {(f"Failing-{n}",) for n in range(10)}
    async with MQAdmin(name_server) as admin:

        async def dead():
            return await admin.max_offset(MessageQueue("%DLQ%g_Failing", "broker-a", 0))

        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if await dead() >= 1:
                        return
                except Exception:  # noqa: BLE001 - its topic is not registered yet
                    pass
                await asyncio.sleep(0.2)


async def order_is_kept(name_server):
    await send(name_server, "Ordered", 100)
    failed, seen = set(), []

    async def listener(messages, context):
        context.suspend_s = 0.01
        for each in messages:
            if each.queue_offset == 9 and each.queue_id not in failed:
                failed.add(each.queue_id)
                raise ValueError("once")
        seen.extend((each.queue_id, each.queue_offset) for each in messages)

    async with push(name_server, "Ordered", listener, orderly=True, batch=3):
        await until(lambda: len(set(seen)) == 100)
    for queue_id in range(QUEUES):
        offsets = dict.fromkeys(offset for number, offset in seen if number == queue_id)
        assert list(offsets) == list(range(25))


async def broadcasting_brings_everything_to_all(name_server, directory):
    await send(name_server, "Broadcast", 20)
    listeners = [Collecting() for _ in range(3)]
    consumers = [
        push(
            name_server,
            "Broadcast",
            each,
            broadcasting=True,
            instance_name=str(number % 2),
            offsets_directory=directory,
        )
        for number, each in enumerate(listeners)
    ]
    async with consumers[0], consumers[1]:
        await until(lambda: all(each.numbers == set(range(20)) for each in listeners[:2]))
    await send(name_server, "Broadcast", 3)
    async with consumers[2]:
        await until(lambda: listeners[2].numbers == {0, 1, 2})


async def messages_are_polled_sought_and_committed(name_server):
    await send(name_server, "Polled", 40)
    queue = MessageQueue("Polled", "broker-a", 0)
    async with LitePullConsumer(name_server, group="g_polled", begin="first") as consumer:
        consumer.subscribe("Polled", "A || B")
        numbers = set()
        async with asyncio.timeout(PATIENCE_S):
            while len(numbers) < 40:
                numbers |= {int(each.body) for each in await consumer.poll()}
        assert numbers == set(range(40))
        await consumer.seek_to_begin(queue)
        async with asyncio.timeout(PATIENCE_S):
            while not (again := await consumer.poll()):
                pass
        assert again[0].queue_id == 0
    async with LitePullConsumer(name_server, group="g_polled", begin="first") as consumer:
        consumer.assign([queue])
        assert await consumer.committed(queue) == await consumer.max_offset(queue)
        assert await consumer.offset_for_timestamp(queue, 0) == 0


async def an_iteration_acks_one_by_one(name_server):
    await send(name_server, "Iterated", 20)
    consumer = PushConsumer(name_server, group="g_iterated", begin="first")
    consumer.subscribe("Iterated")
    seen = set()
    async with consumer, asyncio.timeout(PATIENCE_S):
        async for message in consumer:
            seen.add(int(message.body))
            consumer.ack(message)
            if len(seen) == 20:
                break


async def a_namespace_is_kept_apart(name_server):
    async with Producer(name_server, namespace="ns", send_timeout_s=PATIENCE_S) as producer:
        await producer.create_topic("Apart", QUEUES)
        for number in range(8):
            await producer.send(Message("Apart", str(number)))
    listener = Collecting(lambda each: each.reconsume_times < 1)
    async with push(name_server, "Apart", listener, namespace="ns"):
        await until(lambda: listener.numbers == set(range(8)))
    assert {each.topic for each in listener.messages} == {"Apart"}


ALL = (
    tags_are_filtered_and_offsets_kept,
    failures_come_again_and_end_among_the_dead_letters,
    order_is_kept,
    messages_are_polled_sought_and_committed,
    an_iteration_acks_one_by_one,
    a_namespace_is_kept_apart,
)
"""What every broker is asked to do; SQL92 needs a broker that evaluates it."""
