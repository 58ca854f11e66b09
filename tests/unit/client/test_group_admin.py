"""What an admin does with groups: names in full, everywhere at once, and errors of each broker."""

import pytest

from rocketlens.client.blocking.sync_admin import SyncMQAdmin
from rocketlens.client.blocking.sync_consumer import SyncPushConsumer
from rocketlens.client.send.message import Message
from rocketlens.errors import BadInput, BrokerError, WrongType
from rocketlens.net.channel import Response
from rocketlens.testing import cluster as embedded
from rocketlens.wire.bodies.clients import ClientConnection, ConsumeResult, ProducerConnection
from rocketlens.wire.bodies.tables import SubscriptionGroupConfig
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.async_tests import within
from tests.support.fake_cluster import ask
from tests.unit.client.admin.test_group_calls import answer, know, online

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
