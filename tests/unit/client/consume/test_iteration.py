"""Messages for ``async for``: each is acked or comes again."""

import asyncio

import pytest

from rocketlens.errors import WrongUse
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.unit.client.consume.consumer_broker import RETRY, consumer_of, fill, run


@within(run)
async def test_an_iteration_counts_only_what_is_acked(name_server, broker, /):
    fill(broker, 8)
    seen = []
    async with consumer_of(name_server, concurrency=8) as consumer:
        async for message in consumer:
            seen.append(int(message.body))
            if message.queue_id != 3:
                consumer.ack(message)
                with pytest.raises(WrongUse, match="does not wait"):
                    consumer.ack(message)
            if len(seen) == 8:
                break
    assert sorted(seen) == list(range(8))
    assert broker.committed("g") == {0: 2, 1: 2, 2: 2, 3: 0} or broker.committed("g") == {
        0: 2,
        1: 2,
        2: 2,
    }


@within(run)
async def test_each_message_of_a_batch_in_an_iteration_is_acked_by_itself(name_server, broker, /):
    broker.store_batch("T", [(b"%d" % number, f"k{number}") for number in range(3)])
    async with consumer_of(name_server, concurrency=3) as consumer:
        messages = aiter(consumer)
        for message in [await anext(messages) for _ in range(3)]:
            consumer.ack(message)
    assert broker.committed("g") == {0: 3}


@within(run)
async def test_a_message_of_an_iteration_comes_again_later(name_server, broker, /):
    broker.store("T", b"1")
    async with consumer_of(name_server) as consumer:
        messages = aiter(consumer)
        consumer.later(await anext(messages), delay_level=5)
        again = await anext(messages)
        assert (again.topic, again.reconsume_times) == ("T", 1)
        consumer.ack(again)
    [back] = broker.headers(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert back.delay_level == 5
    assert broker.committed("g", RETRY + "g")[0] == 1


@within(run)
async def test_an_iteration_ends_when_the_consumer_is_closed(name_server, broker, /):
    consumer = consumer_of(name_server)
    await consumer.start()

    async def iterate():
        return [message async for message in consumer]

    iterating = asyncio.create_task(iterate())
    await asyncio.sleep(0)
    await consumer.close()
    assert await iterating == []
