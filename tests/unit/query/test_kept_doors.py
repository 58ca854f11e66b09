"""What waits for a topic is found by it at every door: in a store, a cluster and an archive."""

import pytest

from rocketlens.client.send.message import Message
from rocketlens.testing import cluster
from tests.support.archives import archive_store
from tests.support.doors import DOORS

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
        lake = directory / "lake"
        yield {**where, "archive": lake, "several": [*where.values(), lake]}


@pytest.mark.parametrize("door", DOORS, ids=lambda each: f"{each[0].__name__} {each[1]}")
def test_a_delayed_message_is_found_by_its_topic(places, door):
    opened, kind = door
    with opened(kind, places[kind]) as ask:
        answer = ask(text=KEY, topic=TOPIC)
        assert (answer.positions, answer.complete) == (["SCHEDULE_TOPIC_XXXX/17/0"], True)
        answer = ask(topic=TOPIC, max_num=5)
        assert sorted(each.partition("/")[0] for each in answer.positions) == [
            TOPIC,
            "SCHEDULE_TOPIC_XXXX",
        ]
        assert answer.complete
