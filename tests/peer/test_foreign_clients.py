"""Clients in JavaScript, Rust and C++ on our broker, with the same results as on RocketMQ's own."""

import asyncio

import pytest

from rocketlens import Message, MQAdmin, Producer
from rocketlens.errors import TopicNotFound
from rocketlens.testing import embedded
from tests.peer.foreign_client import BUILDERS
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume import behaviour
from tests.unit.client.consume.behaviour import Collecting, push, until

pytestmark = pytest.mark.slow

COUNT = 20
NUMBERS = set(range(COUNT))
NODE = [("node", where) for where in ("4.9.7", "5.5.0", "ours")]
# It cannot parse the routes of a name server of 4.9.
RUST = [("rust", where) for where in ("5.5.0", "ours")]
CPP = [("cpp", where) for where in ("4.9.7", "5.5.0", "ours")]
DELAY_MS = 1000
"""Of the first delay level."""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return ``built(name)``, the client of that name; it is built at its first use."""
    clients = {}

    def of_name(name):
        if name not in clients:
            clients[name] = BUILDERS[name](tmp_path_factory.mktemp(name))
        return clients[name]

    return of_name


@pytest.fixture(scope="module")
def our_name_server():
    with embedded.cluster() as running:
        yield running.name_server


@pytest.fixture(params=[*NODE, *RUST, *CPP], ids="-".join)
def pair(request):
    """Return the names of a client, and of the cluster that it is used with."""
    return request.param


@pytest.fixture
def client(pair, built):
    return built(pair[0])


@pytest.fixture
def cluster(pair, real_broker, our_name_server):
    return our_name_server if pair[1] == "ours" else real_broker(pair[1]).namesrv_address


@pytest.fixture
def topic(request, pair):
    """Return the name of a topic of its own for each test."""
    return f"{pair[0]}_{request.function.__name__.removeprefix('test_')}"


async def make(name_server, topic):
    """Make a topic, and wait until the name server knows it."""
    async with MQAdmin(name_server) as admin, asyncio.timeout(PATIENCE_S):
        await admin.create_topic(topic, behaviour.QUEUES)
        while True:
            try:
                return await admin.message_queues(topic)
            except TopicNotFound:
                await asyncio.sleep(0.02)


async def send(name_server, topic, count):
    await make(name_server, topic)
    return await behaviour.send(name_server, topic, count)


async def found(name_server, topic, count):
    """Return messages by number as look-ups by key find them, once all are there."""
    messages = {}
    async with MQAdmin(name_server) as admin, asyncio.timeout(PATIENCE_S):
        for number in range(count):
            while number not in messages:
                answer = await admin.find(f"{topic}-{number}", topic)
                for message in answer:
                    messages[number] = message
                await asyncio.sleep(0.02)
    return messages


def test_a_foreign_producers_messages_are_found_by_key_id_and_position(client, cluster, topic):
    asyncio.run(make(cluster, topic))
    sent = client.send(cluster, topic, COUNT)
    assert {words[1] for words in sent} == {"SEND_OK"}

    async def look_up():
        messages = await found(cluster, topic, COUNT)
        async with MQAdmin(cluster) as admin:
            for words in sent:
                number, _, msg_id, offset_msg_id, queue_id, queue_offset = words
                message = messages[int(number)]
                assert (message.body, message.tags) == (number.encode(), "AB"[int(number) % 2])
                assert message.properties["number"] == number
                position = f"{topic}/{message.queue_id}/{message.queue_offset}"
                assert queue_offset == str(message.queue_offset)
                assert queue_id in {"-", str(message.queue_id)}
                assert offset_msg_id in {"-", message.offset_msg_id}
                for text in (msg_id, message.offset_msg_id, position):
                    answer = await admin.find(text, topic)
                    assert [each.offset_msg_id for each in answer] == [message.offset_msg_id]

    asyncio.run(look_up())


def test_a_foreign_producers_delayed_messages_come_later(client, cluster, topic):
    asyncio.run(make(cluster, topic))
    listener = Collecting()

    async def receive():
        async with push(cluster, topic, listener):
            sent = await asyncio.to_thread(client.send, cluster, topic, COUNT, "delayed")
            await until(lambda: listener.numbers == NUMBERS)
        return sent

    sent = asyncio.run(receive())
    assert {words[1] for words in sent} == {"SEND_OK"}
    waited_ms = [each.store_timestamp_ms - each.born_timestamp_ms for each in listener.messages]
    assert min(waited_ms) >= DELAY_MS


def test_a_foreign_consumer_gets_its_tags_and_nothing_again_after_a_restart(client, cluster, topic):
    asyncio.run(send(cluster, topic, COUNT))
    group = f"g_{topic}"
    odd = {number for number in NUMBERS if number % 2}
    with client.consume(cluster, group, topic, "B||C") as first:
        wait(lambda: set(first.numbers) == odd, first)
        asyncio.run(caught_up(cluster, group, topic))
    assert set(first.words("got")) == {
        (str(number), "0", "B", f"{topic}-{number}") for number in odd
    }
    asyncio.run(send(cluster, topic, 2))
    with client.consume(cluster, group, topic, "B||C") as second:
        wait(lambda: 1 in second.numbers, second)
    assert second.numbers == [1]


def test_a_message_that_a_foreign_consumer_refuses_comes_to_it_again(client, cluster, topic):
    asyncio.run(send(cluster, topic, COUNT))
    group = f"g_{topic}"
    with client.consume(cluster, group, topic, refused="7") as member:
        wait(lambda: set(member.numbers) == NUMBERS, member)
    assert member.words("refused") == [("7", "0")]
    # Those of C++ get what came together with it again, too.
    times = {body: times for body, times, *_ in member.words("got")}
    assert times["7"] == "1"
    assert {words[2:] for words in member.words("got") if words[0] == "7"} == {("B", f"{topic}-7")}


# Two of rocketmq-client-rust that broadcast have one client id on one machine.
@pytest.mark.parametrize("pair", [*NODE, *CPP], indirect=True, ids="-".join)
def test_all_foreign_consumers_of_a_broadcast_get_every_message(client, cluster, topic):
    asyncio.run(make(cluster, topic))
    group = f"g_{topic}"
    with (
        client.consume(cluster, group, topic, how="broadcasting") as one,
        client.consume(cluster, group, topic, how="broadcasting") as other,
    ):
        wait(lambda: one.words("started") and other.words("started"), one, other)
        first = 0
        while not set(one.numbers) & set(other.numbers):
            # Each begins with what comes after it has all queues.
            send_more(cluster, topic, first)
            first += COUNT
        send_more(cluster, topic, first)
        last = set(range(first, first + COUNT))
        wait(lambda: last <= set(one.numbers) & set(other.numbers), one, other)


def test_a_foreign_and_a_python_consumer_share_a_group(client, cluster, topic):
    asyncio.run(make(cluster, topic))
    group = f"g_{topic}"
    listener = Collecting()

    async def scenario():
        consumer = push(cluster, topic, listener, group=group)

        def has(count):
            own = [each for each in consumer.assignment if each.topic == topic]
            return len(own) == count

        async with consumer:
            await until(lambda: has(4))
            with client.consume(cluster, group, topic) as member:
                await until(lambda: has(2))
                numbers = []
                # It gets its share as soon as it has noticed, too.
                while not member.numbers:
                    numbers += await number_more(cluster, topic, len(numbers))
                numbers += await number_more(cluster, topic, len(numbers))
                await until(lambda: listener.numbers | set(member.numbers) == set(numbers))
            await until(lambda: has(4))
            more = await number_more(cluster, topic, len(numbers))
            await until(lambda: set(more) <= listener.numbers)
            await caught_up(cluster, group, topic)

    asyncio.run(scenario())


@pytest.mark.parametrize("pair", RUST, indirect=True, ids="-".join)
def test_each_message_of_a_foreign_producers_batch_is_found(client, cluster, topic):
    asyncio.run(make(cluster, topic))
    sent = client.send(cluster, topic, COUNT, "batch")
    messages = asyncio.run(found(cluster, topic, COUNT))
    assert [words[2:] for words in sent] == [
        [each.msg_id, each.offset_msg_id, str(each.queue_id), str(each.queue_offset)]
        for _, each in sorted(messages.items())
    ]
    assert [messages[number].body for number in range(COUNT)] == [b"%d" % n for n in range(COUNT)]


@pytest.mark.parametrize("pair", [*RUST, *CPP], indirect=True, ids="-".join)
def test_a_foreign_producers_oneway_messages_are_stored(client, cluster, topic):
    asyncio.run(make(cluster, topic))
    assert len(client.send(cluster, topic, COUNT, "oneway")) == COUNT
    messages = asyncio.run(found(cluster, topic, COUNT))
    assert [messages[number].body for number in range(COUNT)] == [b"%d" % n for n in range(COUNT)]


@pytest.mark.parametrize("pair", [*RUST, *CPP], indirect=True, ids="-".join)
def test_an_orderly_foreign_consumer_keeps_the_order_of_each_queue(client, cluster, topic):
    sent = asyncio.run(send(cluster, topic, COUNT))
    with client.consume(cluster, f"g_{topic}", topic, how="orderly", refused="8") as member:
        wait(lambda: set(member.numbers) == NUMBERS, member)
    assert member.words("refused") == [("8", "0")]
    numbers = dict.fromkeys(member.numbers)
    for queue_id in range(behaviour.QUEUES):
        queue = [n for n, each in enumerate(sent) if each.message_queue.queue_id == queue_id]
        assert [number for number in numbers if number in queue] == queue


@pytest.mark.parametrize("pair", RUST, indirect=True, ids="-".join)
def test_transactions_of_a_foreign_producer_end_as_it_says_and_it_is_asked(client, cluster, topic):
    asyncio.run(make(cluster, topic))
    listener = Collecting()

    def bodies():
        return {each.body for each in listener.messages}

    async def scenario():
        async with push(cluster, topic, listener):
            member = await asyncio.to_thread(client.transact, cluster, topic)
            with member:
                await until(lambda: b"later" in bodies())

            return member

    member = asyncio.run(scenario())
    assert bodies() == {b"commit", b"later"}
    assert member.words("executed") == [("commit",), ("rollback",), ("later",)]
    assert set(member.words("checked")) == {("later",)}


def wait(condition, *members):
    """Wait until something holds; fail if one of the members ends before."""

    def holds():
        for each in members:
            assert each.process.poll() is None, "the client has ended"
        return condition()

    asyncio.run(until(holds))


async def number_more(name_server, topic, first):
    """Send numbered messages, from a number on; return their numbers."""
    numbers = list(range(first, first + COUNT))
    async with Producer(name_server) as producer:
        for number in numbers:
            await producer.send(Message(topic, str(number)))
    return numbers


def send_more(name_server, topic, first):
    return asyncio.run(number_more(name_server, topic, first))


async def caught_up(name_server, group, topic):
    """Wait until a group has committed that it consumed all messages of a topic.

    Of a group's first offsets, RocketMQ's brokers can forget some that come together; consumers
    commit them again and again.
    """
    async with MQAdmin(name_server) as admin, asyncio.timeout(PATIENCE_S):
        while True:
            stats = await admin.examine_consume_stats(group, topic)
            lags = [
                each.broker_offset - each.consumer_offset for each in stats.offset_table.values()
            ]
            if lags == [0] * behaviour.QUEUES:
                return
            await asyncio.sleep(0.1)
