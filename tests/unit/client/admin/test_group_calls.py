"""What is asked about a group: which brokers are asked, and whose failure is an error."""

import asyncio

import pytest

from rocketlens.errors import BadAnswer, BrokerError, CallTimeout, RocketLensError, TopicNotFound
from rocketlens.formats.commitlog_record import message_of
from rocketlens.net.channel import Response
from rocketlens.wire.bodies.clients import (
    ClientConnection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeType,
)
from rocketlens.wire.bodies.tables import ConsumeStats, MessageQueue, OffsetWrapper
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.async_tests import within
from tests.support.fake_cluster import ask
from tests.support.patience import SILENCE_S

GROUP = "g"


def online(*client_ids, kind=ConsumeType.CONSUME_PASSIVELY):
    connections = tuple(
        ClientConnection(client_id=each, client_addr="127.0.0.1:1") for each in client_ids
    )
    found = ConsumerConnection(connections=connections, consume_type=kind)
    return Response(body=write_body(found))


def offline(code=ResponseCode.CONSUMER_NOT_ONLINE, remark="the consumer group[g] not online"):
    return Response(code, remark=remark)


def not_connected(client_id):
    return offline(ResponseCode.SYSTEM_ERROR, f"The Consumer <{GROUP}> <{client_id}> not online")


def answer(broker, code, response):
    """Have a broker answer requests of a code with a response, or with what a function returns."""
    made = response if callable(response) else lambda *_: response
    broker.server.handlers[code] = broker._failing(code, made)


def know(cluster, *groups):
    for server in cluster.name_servers:
        for group in groups or (GROUP,):
            server.topics[f"%RETRY%{group}"] = [each.name for each in cluster.masters]


@within(ask, masters=2)
async def test_a_client_that_only_one_broker_knows_is_found(cluster, admin, /):
    know(cluster)
    answer(cluster.masters[0], RequestCode.GET_CONSUMER_CONNECTION_LIST, offline())
    answer(cluster.masters[1], RequestCode.GET_CONSUMER_CONNECTION_LIST, online("c1"))
    found = await admin.examine_consumer_connection_info(GROUP)
    assert [each.client_id for each in found.connections] == ["c1"]
    first = cluster.masters[0].address
    with pytest.raises(BrokerError) as refused:
        await admin.examine_consumer_connection_info(GROUP, first)
    assert (refused.value.code, refused.value.address) == (206, first)


@within(ask, masters=2, timeout_s=SILENCE_S)
async def test_a_group_is_only_offline_if_every_broker_says_so(cluster, admin, /):
    with pytest.raises(TopicNotFound):
        await admin.examine_consumer_connection_info(GROUP)
    know(cluster)
    for broker, response in zip(cluster.masters, (offline(), online()), strict=True):
        answer(broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, response)
    with pytest.raises(BrokerError) as refused:
        await admin.examine_consumer_connection_info(GROUP)
    assert refused.value.code == 206
    cluster.masters[1].is_slow = True
    with pytest.raises(CallTimeout):
        await admin.examine_consumer_connection_info(GROUP)


@within(ask)
async def test_a_topic_whose_brokers_have_no_address_has_neither_no_groups_nor_no_producers(
    cluster, admin, /
):
    cluster.name_servers[0].brokers["broker-a"] = {}
    message = message_of(cluster.masters[0].store("T"))
    for asked in (
        admin.examine_producer_connection_info("g", "T"),
        admin.message_track_detail(message),
    ):
        with pytest.raises(TopicNotFound, match="topic T: the name servers know no broker"):
            await asked


@within(ask, masters=2)
async def test_a_client_is_asked_through_a_broker_that_it_is_connected_to(cluster, admin, /):
    know(cluster)
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    info = ConsumerRunningInfo(properties={"a": "b"}, jstack="stack")
    answer(cluster.masters[0], code, not_connected("c"))
    answer(cluster.masters[1], code, Response(body=write_body(info)))
    assert await admin.get_consumer_running_info(GROUP, "c", jstack=True) == info
    assert cluster.masters[1].asked[-1][1].jstack_enable is True
    timeout = offline(ResponseCode.CONSUME_MSG_TIMEOUT, "consumer <g> <c> Timeout: x")
    answer(cluster.masters[0], code, timeout)
    with pytest.raises(BrokerError, match="Timeout") as refused:
        await admin.get_consumer_running_info(GROUP, "c")
    assert refused.value.code == 207
    for broker in cluster.masters:
        answer(broker, code, not_connected("c"))
    with pytest.raises(BrokerError, match="not online"):
        await admin.get_consumer_running_info(GROUP, "c")


INFO = ConsumerRunningInfo(properties={"PROP_CLIENT_VERSION": "V5_5_0"}, jstack="s")
GARBAGE = [b"", b"null", b"[]", b"7", b"\xff\xfe", b'{"properties":[]}', b'{"mqTable":{"x":1}}']


@pytest.mark.parametrize("cut", range(len(write_body(INFO))))
def test_a_client_whose_answer_is_cut_off_is_named_with_what_to_do(cut):
    refused = info_refused(Response(body=write_body(INFO)[:cut]))
    assert isinstance(refused, BadAnswer)
    assert "the answer of client m7 to request 307" in str(refused)
    assert "look at its log" in str(refused)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_client_that_answers_garbage_is_named_with_what_to_do(garbage):
    refused = info_refused(Response(body=garbage))
    assert isinstance(refused, BadAnswer)
    assert "client m7" in str(refused)
    assert "make sure that it is a RocketMQ client" in str(refused)


def test_a_client_that_refuses_is_named():
    refused = info_refused(Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="no 307"))
    assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert refused.remark == "no 307"
    assert "client m7, or the broker, cannot do that" in str(refused)
    assert "(for client m7)" in str(info_refused(Response(ResponseCode.SYSTEM_ERROR)))


def test_a_client_that_never_answers_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr("rocketlens.client.admin.group_calls.RELAYED_TIMEOUT_S", 0.1)
    monkeypatch.setattr("rocketlens.client.admin.group_calls.RELAYED_TIMEOUT_S", 0.1)
    remark = "consumer <g> <m7> Timeout: no answer"
    refused = info_refused(Response(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark))
    assert refused.remark == remark
    assert "client m7 does not answer: look at its log" in str(refused)
    unanswered = info_refused(lambda *_: asyncio.get_running_loop().create_future())
    assert isinstance(unanswered, CallTimeout)
    assert "client m7 did not answer through it: look at its log" in str(unanswered)


def info_refused(response):
    """Return the error of asking client m7, through a broker that passes back this response."""

    async def scenario(cluster, admin):
        know(cluster)
        answer(cluster.masters[0], RequestCode.GET_CONSUMER_RUNNING_INFO, response)
        with pytest.raises(RocketLensError) as refused:
            await admin.get_consumer_running_info(GROUP, "m7")
        return refused.value

    return ask(scenario)


@within(ask, masters=2)
async def test_how_far_a_group_came_is_never_a_part_that_looks_like_all(cluster, admin, /):
    know(cluster)
    for broker in cluster.masters:
        queue = MessageQueue(topic="T", broker_name=broker.name, queue_id=0)
        table = {queue: OffsetWrapper(consumer_offset=3)}
        body = write_body(ConsumeStats(offset_table=table, consume_tps=0.5))
        answer(broker, RequestCode.GET_CONSUME_STATS, Response(body=body))
    found = await admin.examine_consume_stats(GROUP, "T")
    assert sorted(queue.broker_name for queue in found.offset_table) == ["broker-a", "broker-b"]
    assert found.consume_tps == 1.0
    assert cluster.masters[0].asked[-1][1].topic == "T"
    cluster.masters[1].err()
    with pytest.raises(BrokerError):
        await admin.examine_consume_stats(GROUP)
