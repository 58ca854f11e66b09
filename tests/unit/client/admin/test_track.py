"""A message has a track for each consumer group of its topic, and is handed to one on request."""

import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from rocketlens.client.admin.group_calls import address_of, online_clients
from rocketlens.client.admin.track import TrackType, message_tracks
from rocketlens.client.connect.cluster import BrokerAnswer
from rocketlens.client.connect.route import Broker
from rocketlens.errors import (
    AnswerIncomplete,
    BadAnswer,
    BadInput,
    BrokerError,
    CallTimeout,
    MessageNotFound,
    TopicNotFound,
)
from rocketlens.formats.commitlog_record import message_of
from rocketlens.model.answer import Coverage, SourceKind
from rocketlens.model.rocketmq import HEARTBEAT_TOPIC
from rocketlens.net.channel import Response
from rocketlens.query.facts.group_state import GroupState
from rocketlens.wire.bodies.clients import (
    ClientConnection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumeResult,
    ConsumeType,
    GroupList,
    MessageModel,
    SubscriptionData,
)
from rocketlens.wire.bodies.tables import ConsumeStats, MessageQueue, OffsetWrapper, TopicConfig
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.fake_cluster import unregister
from tests.support.patience import SILENCE_S
from tests.unit.client.admin.test_group_calls import GROUP, answer, not_connected, offline, online
from tests.unit.conftest import HOST

ADDRESS = str(HOST)
BROKERS = {"broker-a": Broker("broker-a", {0: ADDRESS})}
ACTIVE, PASSIVE = ConsumeType.CONSUME_ACTIVELY, ConsumeType.CONSUME_PASSIVELY


class FakeCluster:
    """Answers with the bodies given, by their class; one that is an error is raised."""

    def __init__(self, consumers, consumed=None, *, has_proxy=False):
        self.has_proxy = has_proxy
        wrapped = OffsetWrapper(consumer_offset=consumed or 0)
        offsets = {} if consumed is None else {queue_of(): wrapped}
        self.holders = {}
        self.bodies = {
            GroupList: GroupList(groups=("g",)),
            ConsumerConnection: consumers,
            ConsumeStats: ConsumeStats(offset_table=offsets),
        }

    class topic_configs:  # noqa: N801 - as a cluster has it
        get = staticmethod(lambda *_: asyncio.sleep(0, TopicConfig(topic_name="T")))

    async def route(self, topic):
        if topic == HEARTBEAT_TOPIC and not self.has_proxy:
            raise TopicNotFound(topic)
        return SimpleNamespace(brokers=BROKERS)

    async def all_brokers(self):
        return BROKERS

    async def ask_brokers(self, brokers, _):
        """Return what brokers answer that are asked for the record: those named in ``holders``."""
        return [
            BrokerAnswer(
                each, self.holders.get(each.name, []), Coverage("", SourceKind.BROKER, None)
            )
            for each in brokers
        ]

    timeout_s = 5.0

    async def ask_for(self, body, *_, **__):
        if isinstance(self.bodies[body], Exception):
            raise self.bodies[body]
        return self.bodies[body]


def queue_of():
    return MessageQueue(topic="T", broker_name="broker-a", queue_id=0)


def consumers(consume_type=PASSIVE, model=MessageModel.CLUSTERING, tags=()):
    subscription = SubscriptionData(topic="T", tags=tags)
    return ConsumerConnection(
        connections=(ClientConnection(client_id="c", client_addr=ADDRESS),),
        subscription_table={"T": subscription},
        consume_type=consume_type,
        message_model=model,
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
        (FakeCluster(consumers(model=MessageModel.BROADCASTING), consumed=8), "CONSUMED"),
        (FakeCluster(consumers()), "NOT_CONSUME_YET"),
        (FakeCluster(ConsumerConnection()), "NOT_ONLINE"),
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
    (track,) = asyncio.run(message_tracks(cluster, message))
    assert (track.consumer_group, track.track_type.name) == ("g", kind)


def test_the_words_of_a_broker_that_refuses_are_kept(message):
    cluster = FakeCluster(refused(ResponseCode.CONSUMER_NOT_ONLINE))
    (track,) = asyncio.run(message_tracks(cluster, message))
    assert track.track_type is TrackType.NOT_ONLINE
    assert track.exception_desc == "CODE:206 DESC:as it said"
    assert track.is_online is False


def test_a_group_without_clients_may_have_some_at_a_proxy(message):
    cluster = FakeCluster(refused(206), consumed=8, has_proxy=True)
    (track,) = asyncio.run(message_tracks(cluster, message))
    assert (track.track_type, track.is_online) == (TrackType.NOT_ONLINE, None)
    assert track.state is GroupState.PASSED
    with pytest.raises(BrokerError, match="the members of a proxy are not known to brokers"):
        asyncio.run(online_clients(cluster, ADDRESS, "g"))


def test_what_a_track_rests_on_stays_in_it(message):
    (track,) = asyncio.run(message_tracks(FakeCluster(consumers(tags=("B",)), consumed=8), message))
    assert (track.is_online, track.consumer_offset, track.has_offsets) == (True, 8, True)
    assert track.subscription("T").tags == ("B",)
    assert track.subscription("U") is None
    (offline,) = asyncio.run(message_tracks(FakeCluster(refused(1)), message))
    assert (offline.is_online, offline.consumer_offset, offline.subscription("T")) == (None,) * 3


def subscribing_elsewhere():
    return replace(consumers(), subscription_table={"U": SubscriptionData(topic="U")})


@pytest.mark.parametrize(
    ("cluster", "kind", "state"),
    [
        # One type of RocketMQ's tool, several states.
        (FakeCluster(refused(206), consumed=8), "NOT_ONLINE", GroupState.PASSED_OFFLINE),
        (FakeCluster(refused(206), consumed=7), "NOT_ONLINE", GroupState.NOT_YET),
        (FakeCluster(refused(206)), "NOT_ONLINE", GroupState.NEVER_SUBSCRIBED),
        (FakeCluster(consumers(), consumed=7), "NOT_CONSUME_YET", GroupState.NOT_YET),
        (FakeCluster(subscribing_elsewhere()), "NOT_CONSUME_YET", GroupState.NEVER_SUBSCRIBED),
        (FakeCluster(consumers(), consumed=8), "CONSUMED", GroupState.CONSUMED),
        (FakeCluster(subscribing_elsewhere(), consumed=8), "CONSUMED", GroupState.PASSED),
        (FakeCluster(consumers(ACTIVE), consumed=8), "PULL", GroupState.CONSUMED),
        (FakeCluster(consumers(ACTIVE), consumed=7), "PULL", GroupState.NOT_YET),
        (FakeCluster(refused(1), consumed=8), "UNKNOWN", GroupState.UNKNOWN),
    ],
)
def test_cases_that_rocketmq_lumps_together_are_told_apart(cluster, kind, state, message):
    (track,) = asyncio.run(message_tracks(cluster, message))
    assert (track.track_type.name, track.state) == (kind, state)
    assert track.rests_on


def test_a_group_without_clients_whose_offsets_cannot_be_asked_for_is_still_not_online(message):
    cluster = FakeCluster(refused(206))
    cluster.bodies[ConsumeStats] = CallTimeout(ADDRESS, "no answer in 5 s")
    (track,) = asyncio.run(message_tracks(cluster, message))
    assert (track.track_type, track.state) == (TrackType.NOT_ONLINE, GroupState.UNKNOWN)
    assert track.exception_desc == "CODE:206 DESC:as it said"
    assert "no answer in 5 s" in track.rests_on


@pytest.mark.parametrize("model", MessageModel)
def test_a_group_without_offsets_is_not_online_to_rocketmq_4_9(model, message):
    (track,) = asyncio.run(message_tracks(FakeCluster(consumers(model=model)), message))
    old = track.as_4_9()
    assert (old.track_type, old.is_online) == (TrackType.NOT_ONLINE, True)
    assert old.exception_desc.startswith("CODE:206 DESC:Not found the consumer group consume stats")
    (known,) = asyncio.run(message_tracks(FakeCluster(consumers(), consumed=7), message))
    assert known.as_4_9() == known


def test_a_pull_consumer_stays_one_when_its_offsets_are_not_known(message):
    cluster = FakeCluster(consumers(ACTIVE))
    cluster.bodies[ConsumeStats] = CallTimeout(ADDRESS, "no answer in 5 s")
    (track,) = asyncio.run(message_tracks(cluster, message))
    assert (track.track_type, track.has_offsets) == (TrackType.PULL, None)
    assert isinstance(track.error, CallTimeout)


def test_offsets_of_another_broker_with_the_same_queue_prove_nothing(message, monkeypatch):
    monkeypatch.setitem(BROKERS, "broker-a", Broker("broker-a", {0: "10.0.0.6:10911"}))
    cluster = FakeCluster(consumers(), consumed=8)
    (track,) = asyncio.run(message_tracks(cluster, message))
    assert track.track_type is TrackType.NOT_CONSUME_YET


def test_groups_that_cannot_be_listed_are_an_error(message):
    cluster = FakeCluster(consumers())
    cluster.bodies[GroupList] = CallTimeout(ADDRESS, "no answer in 5 s")
    with pytest.raises(CallTimeout):
        asyncio.run(message_tracks(cluster, message))


def test_groups_that_only_one_broker_of_the_topic_knows_have_tracks(message, monkeypatch):
    monkeypatch.setitem(BROKERS, "broker-b", Broker("broker-b", {0: "10.0.0.9:10911"}))
    cluster = FakeCluster(consumers())
    lists = iter([GroupList(groups=("g",)), GroupList(groups=("h", "g"))])
    ask_for = cluster.ask_for

    async def asked(body, *given, **more):
        if body is GroupList:
            cluster.bodies[GroupList] = next(lists)
        return await ask_for(body, *given, **more)

    cluster.ask_for = asked
    tracks = asyncio.run(message_tracks(cluster, message))
    assert [each.consumer_group for each in tracks] == ["g", "h"]


def test_offsets_of_a_broker_that_has_the_address_of_the_one_with_the_message_prove_nothing(
    message, make_record, monkeypatch
):
    monkeypatch.setitem(BROKERS, "broker-b", Broker("broker-b", {0: "10.0.0.9:10911"}))
    cluster = FakeCluster(consumers(), consumed=8)
    assert asyncio.run(message_tracks(cluster, message))[0].track_type is TrackType.CONSUMED
    cluster.holders["broker-b"] = [make_record(0, queue_offset=7)]
    assert asyncio.run(message_tracks(cluster, message))[0].track_type is TrackType.NOT_CONSUME_YET


HAND = RequestCode.CONSUME_MESSAGE_DIRECTLY
LIST = RequestCode.GET_CONSUMER_CONNECTION_LIST


def result(kind=ConsumeResult.CR_SUCCESS, **members):
    made = ConsumeMessageDirectlyResult(consume_result=kind, spent_time_ms=3, **members)
    return Response(body=write_body(made))


def by_client(**responses):
    return lambda header, _: responses[header.client_id]


def handed(broker):
    return [header for code, header in broker.asked if code == HAND]


@pytest.mark.cluster(masters=2)
async def test_a_client_gets_the_message_from_the_broker_that_has_it(cluster, admin):
    broker = cluster.masters[1]
    broker.store("T", b"x", unique_key="U1")
    answer(broker, HAND, result(ConsumeResult.CR_LATER, order=True, remark="why"))
    for msg_id in ("U1", broker.id_at(0)):
        made = await admin.consume_message_directly(GROUP, "c", "T", msg_id)
        assert (made.client_id, made.consume_result) == ("c", ConsumeResult.CR_LATER)
        assert (made.order, made.remark, made.spent_time_ms) == (True, "why", 3)
        assert not made.is_consumed
    assert [(each.client_id, each.msg_id, each.topic) for each in handed(broker)] == [
        ("c", broker.id_at(0), "T")
    ] * 2
    assert handed(cluster.masters[0]) == []


async def test_without_a_client_the_first_that_is_online_gets_it_and_is_named(cluster, admin):
    (broker,) = cluster.masters
    broker.store("T", unique_key="U1")
    answer(broker, LIST, online("c2", "c1"))
    answer(broker, HAND, by_client(c1=not_connected("c1"), c2=result()))
    made = await admin.consume_message_directly(GROUP, None, "T", "U1")
    assert (made.client_id, made.is_consumed) == ("c2", True)
    # One that may have had it is not followed by another.
    timeout = offline(ResponseCode.CONSUME_MSG_TIMEOUT, "consumer <g> <c1> Timeout: x")
    answer(broker, HAND, by_client(c1=timeout, c2=result()))
    with pytest.raises(BrokerError) as refused:
        await admin.consume_message_directly(GROUP, None, "T", "U1")
    assert refused.value.code == 207
    answer(broker, HAND, by_client(c1=not_connected("c1"), c2=not_connected("c2")))
    with pytest.raises(BrokerError, match="not online"):
        await admin.consume_message_directly(GROUP, None, "T", "U1")


async def test_a_whole_group_gets_it_and_each_client_has_its_result_or_error(cluster, admin):
    (broker,) = cluster.masters
    broker.store("T", unique_key="U1")
    answer(broker, LIST, online("c1", "c2", "c3", "c4"))
    unknown = Response(body=b'{"consumeResult":"CR_WHATEVER"}')
    garbage = Response(body=b"{")
    answers = {"c1": result(), "c2": not_connected("c2"), "c3": garbage, "c4": unknown}
    answer(broker, HAND, by_client(**answers))
    made = await admin.consume_message_directly_by_all(GROUP, "T", "U1")
    assert list(made) == ["c1", "c2", "c3", "c4"]
    assert made["c1"].is_consumed
    assert isinstance(made["c2"], BrokerError)
    assert isinstance(made["c3"], BadAnswer)
    assert (made["c4"].consume_result, made["c4"].is_consumed) == (None, False)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"spentTimeMills":{}}', b"\xff"])
async def test_a_client_whose_answer_cannot_be_read_may_have_consumed_the_message(
    cluster, admin, content
):
    (broker,) = cluster.masters
    broker.store("T", unique_key="U1")
    answer(broker, HAND, Response(body=content))
    with pytest.raises(BadAnswer) as refused:
        await admin.consume_message_directly(GROUP, "c1", "T", "U1")
    assert "the answer of client c1 to request 309" in str(refused.value)
    assert "it may have consumed the message; look at its log" in str(refused.value)


async def test_nothing_is_handed_over_where_nobody_listens(cluster, admin):
    (broker,) = cluster.masters
    broker.store("T", unique_key="U1")
    answer(broker, HAND, result())
    answer(broker, LIST, offline())
    for call in (
        admin.consume_message_directly(GROUP, None, "T", "U1"),
        admin.consume_message_directly_by_all(GROUP, "T", "U1"),
    ):
        with pytest.raises(BrokerError) as refused:
            await call
        assert refused.value.code == 206
    answer(broker, LIST, online("c", kind=ConsumeType.CONSUME_ACTIVELY))
    with pytest.raises(BadInput, match="no push consumers"):
        await admin.consume_message_directly(GROUP, None, "T", "U1")
    with pytest.raises(MessageNotFound):
        await admin.consume_message_directly(GROUP, "c", "T", "no-such-key")
    assert handed(broker) == []


@pytest.mark.cluster(masters=2)
async def test_a_message_of_a_broker_that_moved_is_handed_over_there(cluster, admin):
    old, new = cluster.masters
    record = old.store("T", unique_key="U1")
    new.log[:], new.records[:] = old.log, old.records
    message = await admin.view_message("T", "U1")
    unregister(cluster, old.name)
    answer(new, HAND, result())
    made = await admin.consume_message_directly(GROUP, "c", "T", "U1")
    assert made.is_consumed
    assert handed(new)[0].msg_id == record.offset_msg_id == message.offset_msg_id
    assert handed(old) == []


@pytest.mark.cluster(masters=2, timeout_s=SILENCE_S)
async def test_a_broker_that_does_not_answer_is_not_one_that_lost_the_message(cluster, admin):
    old, new = cluster.masters
    old.store("T", unique_key="U1")
    message = await admin.view_message("T", "U1")
    unregister(cluster, old.name)
    with pytest.raises(MessageNotFound):
        await address_of(admin.source.cluster, message)
    new.is_slow = True
    with pytest.raises(AnswerIncomplete):
        await address_of(admin.source.cluster, message)
