"""A message has a track for each consumer group of its topic, also for one that failed."""

import asyncio
from types import SimpleNamespace

import pytest

from rocketlens.client.route import Broker
from rocketlens.errors import BrokerError, CallTimeout
from rocketlens.formats.commitlog_record import message_of
from rocketlens.mqadmin.layout import Track
from rocketlens.mqadmin.track import tracks_of
from rocketlens.wire.bodies.consumer import ConsumerConnection, GroupList
from rocketlens.wire.bodies.heartbeat import ConsumeType, MessageModel, SubscriptionData
from rocketlens.wire.bodies.stats import ConsumeStats, MessageQueueBody, OffsetWrapper
from rocketlens.wire.codes import ResponseCode
from tests.unit.conftest import HOST

ADDRESS = str(HOST)
BROKERS = {"broker-a": Broker("broker-a", {0: ADDRESS})}
ACTIVE, PASSIVE = ConsumeType.CONSUME_ACTIVELY, ConsumeType.CONSUME_PASSIVELY


class FakeCluster:
    """Answers with the bodies given, by their class; one that is an error is raised."""

    def __init__(self, consumers, consumed=None):
        offsets = {} if consumed is None else {queue_of(): OffsetWrapper(consumer_offset=consumed)}
        self.bodies = {
            GroupList: GroupList(groups=("g",)),
            ConsumerConnection: consumers,
            ConsumeStats: ConsumeStats(offset_table=offsets),
        }

    async def route(self, _):
        return SimpleNamespace(brokers=BROKERS)

    async def all_brokers(self):
        return BROKERS

    async def ask_for(self, made_of, body, *_):
        if isinstance(self.bodies[body], Exception):
            raise self.bodies[body]
        return made_of(self.bodies[body])


def queue_of():
    return MessageQueueBody(topic="T", broker_name="broker-a", queue_id=0)


def consumers(consume_type=PASSIVE, model=MessageModel.CLUSTERING, tags=()):
    subscription = SubscriptionData(topic="T", tags=tags)
    return ConsumerConnection(
        subscription_table={"T": subscription}, consume_type=consume_type, message_model=model
    )


def refused(code):
    return BrokerError(ADDRESS, code, "as it said", retriable=False)


@pytest.fixture
def message(make_record):
    """A message of topic T with tag A, at queue offset 7."""
    return message_of(make_record(0, queue_offset=7, properties=b"TAGS\x01A\x02"))


@pytest.mark.parametrize(
    ("cluster", "kind"),
    [
        (FakeCluster(consumers(ACTIVE)), "PULL"),
        (FakeCluster(consumers(ConsumeType.CONSUME_POP)), "UNKNOWN"),
        (FakeCluster(consumers(model=MessageModel.BROADCASTING)), "CONSUME_BROADCASTING"),
        (FakeCluster(consumers()), "NOT_ONLINE"),
        (FakeCluster(consumers(), consumed=7), "NOT_CONSUME_YET"),
        (FakeCluster(consumers(), consumed=8), "CONSUMED"),
        (FakeCluster(consumers(tags=("A", "B")), consumed=8), "CONSUMED"),
        (FakeCluster(consumers(tags=("*",)), consumed=8), "CONSUMED"),
        (FakeCluster(consumers(tags=("B",)), consumed=8), "CONSUMED_BUT_FILTERED"),
        (FakeCluster(refused(ResponseCode.CONSUMER_NOT_ONLINE)), "NOT_ONLINE"),
        (FakeCluster(refused(ResponseCode.BROADCAST_CONSUMPTION)), "CONSUME_BROADCASTING"),
        (FakeCluster(refused(ResponseCode.SYSTEM_ERROR)), "UNKNOWN"),
        (FakeCluster(CallTimeout(ADDRESS, "no answer in 5 s")), "UNKNOWN"),
    ],
)
def test_what_a_group_did_with_a_message_is_named_as_rocketmq_names_it(cluster, kind, message):
    (track,) = asyncio.run(tracks_of(SimpleNamespace(cluster=cluster), message))
    assert (track.group, track.track_type) == ("g", kind)


def test_the_words_of_a_broker_that_refuses_are_kept(message):
    cluster = FakeCluster(refused(ResponseCode.CONSUMER_NOT_ONLINE))
    tracks = asyncio.run(tracks_of(SimpleNamespace(cluster=cluster), message))
    assert tracks == [Track("g", "NOT_ONLINE", "CODE:206 DESC:as it said")]


def test_offsets_of_another_broker_with_the_same_queue_prove_nothing(message, monkeypatch):
    monkeypatch.setitem(BROKERS, "broker-a", Broker("broker-a", {0: "10.0.0.6:10911"}))
    cluster = FakeCluster(consumers(), consumed=8)
    (track,) = asyncio.run(tracks_of(SimpleNamespace(cluster=cluster), message))
    assert track.track_type == "NOT_CONSUME_YET"


def test_groups_that_cannot_be_listed_are_an_error(message):
    cluster = FakeCluster(consumers())
    cluster.bodies[GroupList] = CallTimeout(ADDRESS, "no answer in 5 s")
    with pytest.raises(CallTimeout):
        asyncio.run(tracks_of(SimpleNamespace(cluster=cluster), message))
