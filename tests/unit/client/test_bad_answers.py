"""An answer that cannot be read is an error that says who gave it, to what, and what to do."""

import asyncio

import pytest

from rocketlens import MQAdmin, Producer
from rocketlens.client.send.message import Message
from rocketlens.errors import BadAnswer, CallTimeout, RocketLensError, SendFailed
from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode
from tests.support.fake_cluster import running


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
