"""Questions to a running cluster: what is asked for, what is refused, and where it goes."""

import pytest

from rocketlens.client.blocking.sync_admin import SyncMQAdmin
from rocketlens.client.blocking.sync_consumer import SyncPushConsumer
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.errors import BadInput, BrokerError, MessageIllegal, TopicNotFound, WrongType
from rocketlens.net.channel import Response
from rocketlens.testing import cluster as embedded
from rocketlens.wire.bodies.clients import ClientConnection, ConsumeResult, ProducerConnection
from rocketlens.wire.bodies.tables import SubscriptionGroupConfig
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.async_tests import within
from tests.support.fake_cluster import CONNECTS, T0, ask
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
    assert list((await admin.get_broker_config(broker.address)).items()) == [
        ("b", "1"),
        ("a", "ü"),
    ]


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
