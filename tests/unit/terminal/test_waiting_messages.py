"""Commands and the console count the same messages that wait."""

import asyncio

import pytest

import rocketlens
from rocketlens import testing
from rocketlens.client.send.message import Message
from rocketlens.errors import RocketLensError, TopicNotFound
from rocketlens.terminal.waiting_messages import waiting_in_cluster, waiting_in_store
from tests.support.made_stores import NOW_MS, Sent, make_store


def delayed(topic, level, at_ms=NOW_MS):
    return Sent(
        "SCHEDULE_TOPIC_XXXX",
        queue_id=level - 1,
        store_timestamp_ms=at_ms,
        named=(("REAL_TOPIC", topic), ("DELAY", str(level))),
    )


@pytest.fixture
def store(tmp_path):
    """Give a store whose newest message is of ten seconds after the first."""
    made = make_store(
        tmp_path / "store",
        [
            delayed("Orders", 18),
            delayed("Orders", 17),
            delayed("Paid", 18),
            delayed("Orders", 1),
            Sent(store_timestamp_ms=NOW_MS + 10_000),
        ],
    )
    with rocketlens.open_store(made.path) as opened:
        yield opened


def test_what_is_due_later_than_the_newest_message_of_a_store_waits(store):
    waiting = waiting_in_store(store, store.topics())
    assert (dict(waiting.counts), waiting.is_exact) == ({"Orders": 2, "Paid": 1}, True)


def test_nothing_is_known_of_a_store_that_cannot_be_asked(store):
    class Failing:
        def find(self, **_):
            raise RocketLensError("no")

    assert waiting_in_store(Failing(), store.topics()) is None


def test_what_waits_in_a_cluster_is_counted_by_the_names_of_its_namespace():
    with testing.cluster() as cluster:
        with cluster.producer() as producer:
            for topic in ("shop%Orders", "shop%Orders", "Orders"):
                producer.send(Message(topic, b"later", delay_level=18))

        async def ask():
            async with rocketlens.MQAdmin(cluster.name_server, namespace="shop") as admin:
                return await waiting_in_cluster(admin)

        waiting = asyncio.run(ask())
    assert waiting.counts["Orders"] == 2
    assert waiting.is_exact


@pytest.mark.parametrize(("error", "is_known"), [(TopicNotFound, True), (RocketLensError, False)])
def test_a_cluster_without_timers_is_known_and_one_that_fails_is_not(error, is_known):
    class Admin:
        namespace = ""

        async def find(self, topic, **_):
            raise error(topic)

    assert (asyncio.run(waiting_in_cluster(Admin())) is not None) == is_known
