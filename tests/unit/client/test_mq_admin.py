"""Questions to a running cluster: what is asked for, what is refused, and where it goes.

An answer that cannot be read is an error that says who gave it, to what, and what to do.
What a store, a cluster or an archive does not have is named, with the nearest that it has.
"""

import asyncio
import re

import pytest

import rocketlens
from rocketlens import MQAdmin, Producer
from rocketlens.client.blocking.sync_admin import SyncMQAdmin
from rocketlens.client.blocking.sync_consumer import SyncPushConsumer
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.errors import (
    BadAnswer,
    BadInput,
    BrokerError,
    CallTimeout,
    MessageIllegal,
    MessageNotFound,
    RocketLensError,
    SendFailed,
    TopicNotFound,
    WrongType,
)
from rocketlens.net.channel import Response
from rocketlens.testing import cluster
from rocketlens.testing import cluster as embedded
from rocketlens.wire.bodies.clients import ClientConnection, ConsumeResult, ProducerConnection
from rocketlens.wire.bodies.tables import SubscriptionGroupConfig
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.archives import archive_store
from tests.support.async_tests import within
from tests.support.fake_cluster import CONNECTS, T0, ask, running
from tests.support.made_stores import Sent, make_store
from tests.unit.client.admin.test_group_calls import answer, know, online


@within(ask)
async def test_queues_are_asked_for_their_offsets(cluster, admin, /):
    for number in range(3):
        cluster.masters[0].store("T", b"%d" % number, queue_id=2)
    queues = await admin.message_queues("T")
    assert [(each.broker_name, each.queue_id) for each in queues] == [
        ("broker-a", number) for number in range(4)
    ]
    assert await admin.min_offset(queues[2]) == 0
    assert await admin.max_offset(queues[2]) == 3
    assert await admin.search_offset(queues[2], T0 + 2) == 1
    assert await admin.earliest_message_store_time(queues[2]) == T0 + 1
    assert await admin.earliest_message_store_time(queues[0]) == -1
    cluster.masters[0].err(ResponseCode.NO_PERMISSION, "not\nyou")
    with pytest.raises(BrokerError, match="not you") as refused:
        await admin.min_offset(queues[0])
    assert (refused.value.code, refused.value.address) == (16, cluster.masters[0].address)
    with pytest.raises(TopicNotFound):
        await admin.min_offset(MessageQueue("T", "broker-z", 0))


@within(ask, masters=2)
async def test_a_topic_is_made_on_all_masters_or_says_where_not(cluster, admin, /):
    await admin.create_topic("New", 5)
    for broker in cluster.masters:
        ((code, header),) = broker.asked
        assert code == RequestCode.UPDATE_AND_CREATE_TOPIC
        assert (header.topic, header.read_queue_nums, header.perm) == ("New", 5, 6)
    cluster.masters[1].err(ResponseCode.NO_PERMISSION, "no")
    with pytest.raises(BrokerError) as refused:
        await admin.create_topic("New")
    assert any("done" in note for note in refused.value.__notes__)
    for bad in ("../../x", "", "a b", "x" * 128):
        with pytest.raises(MessageIllegal):
            await admin.create_topic(bad)
    with pytest.raises(BadInput, match="no master of cluster elsewhere"):
        await admin.create_topic("New", cluster_name="elsewhere")


@within(ask, masters=2)
async def test_a_position_that_two_brokers_have_is_named_and_none_of_them_chosen(cluster, admin, /):
    cluster.masters[0].store("T", b"a", queue_id=1)
    found = await admin.query_by_queue_offset("T", 1, 0)
    assert found.body == b"a"
    cluster.masters[1].store("T", b"b", queue_id=1)
    with pytest.raises(BadInput, match=r"T/1/0 is a message of each of .*, .*find\(\)"):
        await admin.query_by_queue_offset("T", 1, 0)


@within(ask)
async def test_questions_that_make_no_sense_are_refused(cluster, admin, /):
    for bad in (("T", ""), ("T", "k" * 40_000), ("T", "k", -1), ("T", "k", 1, -5)):
        with pytest.raises(BadInput):
            await admin.query_message(*bad)
    with pytest.raises(BadInput):
        await admin.view_message("not an id")


@pytest.mark.parametrize(
    "question",
    [
        lambda admin: admin.query_message("T", 42),
        lambda admin: admin.query_message(42, "k"),
        lambda admin: admin.query_message("T", "k", max_num="5"),
        lambda admin: admin.query_message("T", "k", begin=1_790_000_000.0),
        lambda admin: admin.query_message_by_unique_key("T", b"k"),
        lambda admin: admin.view_message(42),
        lambda admin: admin.view_message("T", 42),
    ],
)
@within(ask)
async def test_an_argument_of_a_wrong_type_is_refused_before_anybody_is_asked(
    unused, admin, /, question
):
    CONNECTS.clear()
    with pytest.raises(WrongType, match=r"(key|topic|max_num|begin|unique_key|msg_id) must be"):
        await question(admin)
    assert CONNECTS == []


MAKE, DELETE = (
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)


@within(ask, masters=2)
async def test_a_group_is_made_and_deleted_on_all_masters_or_the_error_says_where_not(
    cluster, admin, /
):
    bodies = []
    for broker in cluster.masters:
        answer(broker, MAKE, lambda _, command: bodies.append(command.body) or Response())
        answer(broker, DELETE, Response())
    config = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
    addresses = tuple(each.address for each in cluster.masters)
    assert await admin.create_and_update_subscription_group(config) == addresses
    assert len(bodies) == 2
    assert b'"retryMaxTimes":3' in bodies[0]
    first = cluster.masters[0].address
    made = await admin.delete_subscription_group("g", clean_offset=True, broker_addr=first)
    assert made == (first,)
    assert cluster.masters[0].asked[-1][1].clean_offset is True
    cluster.masters[1].err(ResponseCode.NO_PERMISSION, "no")
    with pytest.raises(BrokerError) as refused:
        await admin.create_and_update_subscription_group(config, cluster_name="C")
    assert any(note.endswith("done") for note in refused.value.__notes__)


@within(ask)
async def test_groups_and_brokers_that_cannot_be_are_refused_before_anyone_is_asked(
    cluster, admin, /
):
    config = SubscriptionGroupConfig(group_name="g g")
    with pytest.raises(BadInput, match="illegal characters"):
        await admin.create_and_update_subscription_group(config)
    for where in ({"cluster_name": "none"}, {"broker_addr": "127.0.0.1:1"}):
        with pytest.raises(BadInput, match="know no master"):
            await admin.delete_subscription_group("g", **where)
    with pytest.raises(BadInput, match="not both"):
        await admin.delete_subscription_group("g", cluster_name="C", broker_addr="x")
    for call in (
        admin.examine_consume_stats(5),
        admin.get_consumer_running_info("g", None),
        admin.consume_message_directly("g", "c", "T", b"x"),
    ):
        with pytest.raises(WrongType):
            await call
    assert cluster.masters[0].asked == []


@within(ask, namespace="ns")
async def test_groups_are_those_of_the_namespace(cluster, admin, /):
    know(cluster, "ns%g")
    answer(cluster.masters[0], RequestCode.GET_CONSUMER_CONNECTION_LIST, online("c"))
    await admin.examine_consumer_connection_info("g")
    assert cluster.masters[0].asked[-1][1].consumer_group == "ns%g"


@within(ask)
async def test_producers_and_configuration_are_read(cluster, admin, /):
    (broker,) = cluster.masters
    made = ProducerConnection(
        connections=(ClientConnection(client_id="p", client_addr="127.0.0.1:2"),)
    )
    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    answer(broker, code, Response(body=write_body(made)))
    assert await admin.examine_producer_connection_info("p", "T") == made
    fields = {"version": "{}"}
    body = "b=1\na=ü\n".encode()
    answer(broker, RequestCode.GET_BROKER_CONFIG, Response(ext_fields=fields, body=body))
    assert list((await admin.get_broker_config(broker.address)).items()) == [("b", "1"), ("a", "ü")]


def test_every_method_is_there_without_async_too():
    names = {
        name for each in SyncMQAdmin.__mro__ for name in vars(each) if not name.startswith("_")
    }
    assert {
        "consume_message_directly",
        "consume_message_directly_by_all",
        "create_and_update_subscription_group",
        "delete_subscription_group",
        "examine_consume_stats",
        "examine_consumer_connection_info",
        "examine_producer_connection_info",
        "get_broker_config",
        "get_consumer_running_info",
        "message_track_detail",
        "resend",
        "reset_offset_by_time",
        "reset_offset_by_time_old",
    } <= names


def test_our_admin_our_broker_and_our_consumers_work_together():
    def refuse(_messages, _context):
        raise ValueError("not this one")

    seen = []

    def take(messages, _context):
        seen.extend(messages)

    with (
        embedded() as rocketmq,
        rocketmq.producer() as producer,
        SyncMQAdmin(rocketmq.name_server) as admin,
    ):
        sent = producer.send(Message("T", b"hello"))
        one = consumer_of(rocketmq, "taking", take, "one")
        two = consumer_of(rocketmq, "taking", take, "two")
        bad = consumer_of(rocketmq, "refusing", refuse, "bad")
        with one, two, bad:
            first = admin.consume_message_directly("taking", None, "T", sent.msg_id)
            assert first.is_consumed
            assert [each.body for each in seen] == [b"hello"]
            everyone = admin.consume_message_directly_by_all("taking", "T", sent.offset_msg_id)
            assert len(everyone) == 2
            assert first.client_id in everyone
            assert all(made.is_consumed for made in everyone.values())
            assert len(seen) == 3
            refused = admin.consume_message_directly("refusing", None, "T", sent.msg_id)
            assert refused.consume_result is ConsumeResult.CR_THROW_EXCEPTION
            assert "not this one" in refused.remark
            info = admin.get_consumer_running_info("taking", first.client_id)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            tracks = admin.message_track_detail(admin.view_message("T", sent.msg_id))
            assert {each.consumer_group for each in tracks} == {"taking", "refusing"}
            assert all(each.is_online for each in tracks)
        with pytest.raises(BrokerError) as offline:
            admin.consume_message_directly("taking", None, "T", sent.msg_id)
        assert offline.value.code == 206


def consumer_of(rocketmq, group, listener, name):
    made = SyncPushConsumer(rocketmq.name_server, group=group, instance_name=name)
    made.subscribe("T", "nothing-has-this-tag")
    made.listen(listener)
    return made


def told(error, address, request):
    text = str(error)
    assert address in text
    assert request in text
    assert "make sure that this is the address of a RocketMQ server" in text
    assert "\n" not in text


async def test_a_bad_answer_to_a_send_names_the_broker_and_the_request():
    async with running() as cluster, Producer(cluster.given, retries=0) as producer:
        broker = cluster.masters[0]
        broker.sent = lambda code, _: Response(code, {"queueId": "x", "queueOffset": "0"})
        with pytest.raises(SendFailed) as caught:
            await producer.send(Message("T", "x"))
        told(caught.value, broker.address, "request 310 (SEND_MESSAGE_V2)")
        assert isinstance(caught.value.attempts[0][1], BadAnswer)


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b'{"queueDatas":5}', b"\xff"])
async def test_a_bad_route_names_the_name_server_and_the_request(body):
    async with running() as cluster, MQAdmin(cluster.given) as admin:
        server = cluster.name_servers[0]
        server.fails_with = Response(body=body)
        for asked in (admin.query_message("T", "k"), admin.message_queues("T")):
            with pytest.raises(BadAnswer) as caught:
                await asked
            told(caught.value, server.address, "request 105 (GET_ROUTEINFO_BY_TOPIC)")


async def test_a_name_server_that_cannot_be_read_is_passed_over_for_the_next():
    async with running(name_servers=2) as cluster, Producer(cluster.given) as producer:
        cluster.name_servers[0].fails_with = Response(body=b"no JSON")
        result = await producer.send(Message("T", "x"))
        assert result.queue_offset == 0


async def test_a_bad_answer_to_a_question_is_in_the_coverage_with_the_address():
    async with running() as cluster, MQAdmin(cluster.given) as admin:
        broker = cluster.masters[0]
        broker.store("T", keys="k")
        broker.more_fields = {"indexLastUpdateTimestamp": "x"}
        answer = await admin.query_message("T", "k")
        assert not answer.complete
        told(answer.failures[0].error, broker.address, "request 12 (QUERY_MESSAGE)")


def test_reading_a_huge_route_ends_with_the_time_of_the_answer(monkeypatch):
    objects = b",".join([b'{"brokerName":"b"}'] * 400_000)
    reading = []

    async def scenario():
        async with running() as cluster:
            server = cluster.name_servers[0]
            server.fails_with = Response(body=b'{"queueDatas":[' + objects + b'],"brokerDatas":[]}')
            async with MQAdmin(cluster.given, timeout_s=0.3) as admin:
                with pytest.raises(CallTimeout, match=r"was not read in 0\.3 s"):
                    await admin.message_queues("T")
                reading.append(True)

    asyncio.run(scenario())
    assert reading


async def test_more_brokers_or_addresses_than_there_can_be_are_not_believed():
    async with running() as cluster, MQAdmin(cluster.given) as admin:
        server = cluster.name_servers[0]
        many = b",".join(b'{"brokerName":"b%d"}' % number for number in range(10_001))
        addresses = b",".join(b'"%d":"127.0.0.1:1"' % number for number in range(65))
        one = b'{"brokerName":"b","brokerAddrs":{' + addresses + b"}}"
        for broker_datas, said in ((many, "10001 brokers"), (one, "65 addresses of broker b")):
            server.fails_with = Response(
                body=b'{"queueDatas":[],"brokerDatas":[' + broker_datas + b"]}"
            )
            with pytest.raises(RocketLensError, match=said):
                await admin.message_queues("T")
        assert set(server.codes()) == {RequestCode.GET_ROUTEINFO_BY_TOPIC}


MEANT = "did you mean payments?"


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    lake = tmp_path_factory.mktemp("lake")
    made = make_store(
        lake / "store", [Sent("payments", f"key-{n}", queue_id=n % 4) for n in range(8)]
    )
    archive_store(lake, made.path)
    with cluster() as running:
        with running.producer() as producer:
            for number in range(8):
                producer.send(Message("payments", f"{number}", keys=f"key-{number}"))
        with (
            rocketlens.open_store(running.store) as store,
            SyncMQAdmin(running.name_server) as admin,
            rocketlens.open_archive(lake) as archive,
        ):
            yield {"store": store, "cluster": admin, "archive": archive}


@pytest.fixture(params=["store", "cluster", "archive"])
def door(request, doors):
    return doors[request.param]


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (("paymets", 0, 3), r"did you mean payments\?"),
        (("payments", 0, 3000), "payments/0 ends at 2"),
        (("payments", 9, 1), "no queue payments/9.*: its topic has queues 0 to 3"),
    ],
)
def test_a_position_that_is_not_there_says_what_is(door, position, said):
    with pytest.raises(MessageNotFound, match=said):
        door.query_by_queue_offset(*position)
    answer = door.find("/".join(map(str, position)))
    assert answer.complete
    assert any(re.search(said, each.note or "") for each in answer.coverage)
    assert not any(each.error for each in answer.coverage)


def test_a_position_that_is_there_is_found_by_each(door):
    assert door.query_by_queue_offset("payments", 0, 1).position == "payments/0/1"


@pytest.mark.parametrize(
    "ask",
    [
        lambda door: door.query_message("paymets", "key-1"),
        lambda door: door.topics("paymets"),
        lambda door: door.find("key-1", "paymets"),
        lambda door: list(door.tail("paymets")),
        lambda door: list(door.scan("paymets")),
        lambda door: door.story("key-1", "paymets"),
    ],
)
def test_a_topic_that_is_not_there_is_named_with_the_one_probably_meant(door, ask):
    try:
        said = [str(each.note) for each in ask(door).coverage]
    except TopicNotFound as error:
        said = [str(error)]
    assert any(each.endswith(MEANT) and "paymets" in each for each in said), said
