"""What waits for a topic is found by it at every door: in a store, a cluster, an archive, a tap."""

import asyncio

import pytest

import rocketlens
from rocketlens.client.send.message import Message
from rocketlens.testing import cluster
from tests.support.archives import archive_store
from tests.support.doors import DOORS, console
from tests.unit.tap.tapping import log_of, reaches, tapped

TOPIC, KEY = "Payments", "order-4713"
TWO_HOURS = 18
"""The delay level."""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    directory = tmp_path_factory.mktemp("waiting")
    with cluster(directory / "broker", flushDiskType="SYNC_FLUSH") as running:
        with running.producer() as producer:
            producer.send(Message(TOPIC, "there", keys="order-1"))
            producer.send(Message(TOPIC, "waits", keys=KEY, delay_level=TWO_HOURS))
            producer.send(Message("Other", "waits", keys=KEY, delay_level=TWO_HOURS))
        archive_store(directory / "lake", running.store)
        where = {"store": running.store, "cluster": running.name_server}
        lake, taps = directory / "lake", directory / "taps"
        asyncio.run(tap(running.store, taps))
        copies = {"archive": lake, "tap": taps / "broker-a"}
        yield {**where, **copies, "several": [*where.values(), *copies.values()]}


async def tap(store, directory):
    with rocketlens.open_store(store) as opened:
        newest = opened.find(topic="*", all_topics=True, max_num=1).messages[0]
    end = newest.physical_offset + newest.store_size
    async with tapped(directory, log_of(store, 0, end)) as (_, running):
        await reaches(running, end)


ALL_DOORS = [*DOORS, *((door, "tap") for door, kind in DOORS if kind == "store")]


@pytest.mark.parametrize("door", ALL_DOORS, ids=lambda each: f"{each[0].__name__} {each[1]}")
def test_a_delayed_message_is_found_by_its_topic(places, door):
    opened, kind = door
    with opened("store" if kind == "tap" else kind, places[kind]) as ask:
        answer = ask(text=KEY, topic=TOPIC)
        assert (answer.positions, answer.complete) == (["SCHEDULE_TOPIC_XXXX/17/0"], True)
        answer = ask(topic=TOPIC, max_num=5)
        assert sorted(each.partition("/")[0] for each in answer.positions) == [
            TOPIC,
            "SCHEDULE_TOPIC_XXXX",
        ]
        assert answer.complete
        if opened is console:
            return
        # The console always shows what waits.
        answer = ask(text=KEY, topic=TOPIC, only_delivered=True)
        assert (answer.positions, answer.complete) == ([], True)
        answer = ask(topic=TOPIC, max_num=5, only_delivered=True)
        assert [each.partition("/")[0] for each in answer.positions] == [TOPIC]
