"""A producer's request gets the reply of a consumer, through our own broker."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

import rocketlens
from rocketlens import (
    BadAnswer,
    BadInput,
    Message,
    MessageIllegal,
    MQAdmin,
    Producer,
    PushConsumer,
    ReplyTimeout,
    SendFailed,
    WrongType,
    reply_to,
)
from rocketlens.client.send.request_reply import PendingRequest, PendingRequests
from rocketlens.model import properties as props
from rocketlens.testing import embedded
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessageRequest
from tests.support.async_tests import within
from tests.support.fake_cluster import produce, sends
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume.behaviour import until
from tests.unit.client.consume.consumer_messages import message

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


@pytest.fixture(scope="module")
def cluster():
    with embedded.cluster() as running:
        yield running


@asynccontextmanager
async def asking(cluster, topic, answer, **options):
    """A producer, and a consumer that replies ``answer(request, producer)`` says."""
    async with MQAdmin(cluster.name_server, **options) as admin:
        await admin.create_topic(topic, 1)
    async with (
        Producer(cluster.name_server, group="askers", **options) as asker,
        Producer(cluster.name_server, group="repliers", **options) as replier,
    ):

        async def listener(messages, _):
            for each in messages:
                await answer(each, replier)

        consumer = PushConsumer(cluster.name_server, group=f"g_{topic}", begin="first", **options)
        consumer.subscribe(topic)
        consumer.listen(listener)
        async with consumer, asyncio.timeout(PATIENCE_S):
            yield asker


async def echo(request, producer):
    await producer.send(reply_to(request, request.body + b"!", properties={"mood": "good"}))


async def silence(*_):
    pass


async def test_a_request_gets_its_reply(cluster):
    async with asking(cluster, "Asked", echo) as producer:
        asked = [f"body {number}" for number in range(20)]
        asked.append("large " * 20_000)
        replies = await asyncio.gather(
            *[producer.request(Message("Asked", each), PATIENCE_S) for each in asked]
        )
    assert [each.text for each in replies] == [each + "!" for each in asked]
    assert {each.properties["mood"] for each in replies} == {"good"}
    assert {each.born_host.partition(":")[0] for each in replies} == {"127.0.0.1"}


async def test_a_request_carries_what_javas_does_and_a_reply_what_it_needs(cluster):
    seen = []

    async def answer(request, producer):
        seen.append(request)
        await echo(request, producer)

    async with asking(cluster, "Carried", answer) as producer:
        sent = Message("Carried", '{"a": 1}')
        await producer.request(sent, PATIENCE_S)
        client_id = producer._client_id
    request = seen[0].properties
    assert request["REPLY_TO_CLIENT"] == client_id
    assert request["TTL"] == str(int(PATIENCE_S * 1000))
    reply = reply_to(seen[0], "x", tags="t", keys="k", flag=3)
    assert (reply.topic, reply.body, reply.flag) == (REPLY_TOPIC, b"x", 3)
    same = ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL")
    assert {name: reply.properties[name] for name in same} == {name: request[name] for name in same}
    assert reply.properties["MSG_TYPE"] == "reply"


async def test_without_a_reply_the_error_names_the_topic_and_the_correlation_id(
    cluster, monkeypatch
):
    wait = PendingRequest.wait
    # The message has all the time, and its reply none: no machine is too slow for that.
    monkeypatch.setattr(PendingRequest, "wait", lambda pending, _: wait(pending, 0))
    async with asking(cluster, "Silent", silence) as producer:
        sent = Message("Silent", "x")
        with pytest.raises(ReplyTimeout, match=r"to topic Silent, which was sent") as timeout:
            await producer.request(sent, PATIENCE_S)
        assert timeout.value.correlation_id == sent.properties["CORRELATION_ID"]
        assert timeout.value.correlation_id in str(timeout.value)
        assert isinstance(timeout.value, TimeoutError)
        assert producer._requests._pending == {}


async def test_a_reply_whose_producer_is_gone_fails_and_says_so(cluster):
    failed = asyncio.get_running_loop().create_future()

    async def answer(request, producer):
        request.properties["REPLY_TO_CLIENT"] = "gone"
        try:
            await producer.send(reply_to(request, "x"))
        except SendFailed as error:
            if not failed.done():
                failed.set_result(error)

    async with asking(cluster, "Gone", answer) as producer:
        await producer.send(request_of(Message("Gone", "x")))
        assert "channel of <gone> not found" in str(await failed)


def request_of(sent):
    """Mark a message as a request, by hand."""
    for name, value in (("CORRELATION_ID", "42"), ("REPLY_TO_CLIENT", "p"), ("TTL", "1")):
        sent.put(name, value)
    return sent


async def test_a_producer_that_was_cut_off_is_introduced_again(cluster):
    async with asking(cluster, "Cut", echo) as producer:
        await producer.request(Message("Cut", "one"), PATIENCE_S)
        for channel in list(producer._cluster._pool.group.channels):
            channel.close()
        reply = await producer.request(Message("Cut", "two"), PATIENCE_S)
        assert reply.text == "two!"


async def test_names_of_a_namespace_do_not_hide_the_topic_of_replies(cluster):
    async with asking(cluster, "Spaced", echo, namespace="ns") as producer:
        reply = await producer.request(Message("Spaced", "x"), PATIENCE_S)
        assert reply.text == "x!"


@within(produce, masters=2)
async def test_all_brokers_that_may_get_the_reply_know_the_producer(cluster, producer, /):
    [name_server] = cluster.name_servers
    asked, other = cluster.masters
    name_server.topics = {"T": [asked.name], "C_REPLY_TOPIC": [other.name]}
    request = asyncio.create_task(producer.request(Message("T", "x"), PATIENCE_S))
    await until(lambda: sends(asked))
    assert RequestCode.HEART_BEAT in asked.codes()
    assert RequestCode.HEART_BEAT in other.codes()
    request.cancel()
    await asyncio.wait([request])


@within(produce, masters=2)
async def test_a_broker_that_is_gone_does_not_keep_a_request_from_others(cluster, producer, /):
    [name_server] = cluster.name_servers
    asked, other = cluster.masters
    name_server.topics = {"T": [asked.name], "C_REPLY_TOPIC": [other.name, asked.name]}
    await other.die()
    request = asyncio.create_task(producer.request(Message("T", "x"), PATIENCE_S))
    await until(lambda: sends(asked))
    request.cancel()
    await asyncio.wait([request])


@pytest.mark.parametrize("missing", ["CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER"])
def test_only_requests_are_replied_to(missing):
    given = {"correlation_id": "1", "reply_to_client": "p", "cluster": "C"}
    assert reply_to(message(0, **given), "x").topic == "C_REPLY_TOPIC"
    del given[missing.lower()]
    with pytest.raises(BadInput, match=f"is not a request \\(it has no {missing}\\)"):
        reply_to(message(0, **given), "x")


def test_a_reply_is_to_what_a_consumer_got():
    with pytest.raises(WrongType, match="MessageExt that a consumer got"):
        reply_to(Message("T", "x"), "x")


@within(produce)
async def test_replies_are_not_sent_in_batches(unused, producer, /):
    reply = reply_to(message(0, correlation_id="1", reply_to_client="p", cluster="C"), "x")
    with pytest.raises(MessageIllegal, match="send each reply alone"):
        await producer.send_batch([reply])


class Channel:
    address = "127.0.0.1:1"


def pushed(correlation_id, body=b"x", sys_flag=0):
    header = ReplyMessageRequest(
        producer_group="g",
        topic=REPLY_TOPIC,
        default_topic="",
        default_topic_queue_nums=0,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        flag=0,
        properties=props.format_properties({"CORRELATION_ID": correlation_id}),
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        store_timestamp_ms=2,
    )
    fields = PUSH_REPLY_MESSAGE_TO_CLIENT.request.encode(header)
    return RemotingCommand(PUSH_REPLY_MESSAGE_TO_CLIENT.code, ext_fields=fields, body=body)


def test_replies_that_come_twice_or_to_nothing_are_confirmed_and_dropped(caplog):
    async def main():
        pending = PendingRequests()
        with pending.begun("T", 1) as request:
            for body in (b"one", b"two"):
                answer = await pending.receive(pushed(request.correlation_id, body), Channel)
                assert answer.code == 0
            assert (await request.wait(PATIENCE_S)).body == b"one"
        assert (await pending.receive(pushed(request.correlation_id), Channel)).code == 0

    asyncio.run(main())
    assert "is too late" in caplog.text


@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_reply_that_cannot_be_decompressed_is_an_error_of_the_request(size):
    pending = PendingRequests()
    with pending.begun("T", 1) as request:
        await pending.receive(pushed(request.correlation_id, b"x" * size, 1), Channel)
        with pytest.raises(BadAnswer, match=f"request {request.correlation_id} to topic T"):
            await request.wait(PATIENCE_S)


def test_a_program_without_an_event_loop_asks_and_replies(cluster):
    with rocketlens.SyncMQAdmin(cluster.name_server) as admin:
        admin.create_topic("Blocking", 1)
    with (
        rocketlens.SyncProducer(cluster.name_server) as asker,
        rocketlens.SyncProducer(cluster.name_server) as replier,
    ):
        threads = []

        def listener(messages, _):
            threads.append(threading.current_thread())
            for each in messages:
                replier.send(reply_to(each, '{"a": [1]}'))

        consumer = rocketlens.SyncPushConsumer(cluster.name_server, group="g_sync", begin="first")
        consumer.subscribe("Blocking")
        consumer.listen(listener)
        with consumer:
            assert asker.request(Message("Blocking", "x"), PATIENCE_S).json() == {"a": [1]}
    assert threads
