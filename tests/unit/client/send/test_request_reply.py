"""Requests and their replies, and messages in transactions, on our own broker."""

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
from rocketlens.client.send.transaction_producer import LocalTransactionState, TransactionProducer
from rocketlens.model import properties as props
from rocketlens.testing import embedded
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessageRequest
from tests.support.fake_cluster import sends
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume.behaviour import until
from tests.unit.client.consume.consumer_messages import message

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


@asynccontextmanager
async def asking(rocketmq, topic, answer, **options):
    """A producer, and a consumer that replies ``answer(request, producer)`` says."""
    async with MQAdmin(rocketmq.name_server, **options) as admin:
        await admin.create_topic(topic, 1)
    async with (
        Producer(rocketmq.name_server, group="askers", **options) as asker,
        Producer(rocketmq.name_server, group="repliers", **options) as replier,
    ):

        async def listener(messages, _):
            for each in messages:
                await answer(each, replier)

        consumer = PushConsumer(rocketmq.name_server, group=f"g_{topic}", begin="first", **options)
        consumer.subscribe(topic)
        consumer.listen(listener)
        async with consumer, asyncio.timeout(PATIENCE_S):
            yield asker


async def echo(request, producer):
    await producer.send(reply_to(request, request.body + b"!", properties={"mood": "good"}))


async def silence(*_):
    pass


async def test_a_request_gets_its_reply(rocketmq):
    async with asking(rocketmq, "Asked", echo) as producer:
        asked = [f"body {number}" for number in range(20)]
        asked.append("large " * 20_000)
        replies = await asyncio.gather(
            *[producer.request(Message("Asked", each), PATIENCE_S) for each in asked]
        )
    assert [each.text for each in replies] == [each + "!" for each in asked]
    assert {each.properties["mood"] for each in replies} == {"good"}
    assert {each.born_host.partition(":")[0] for each in replies} == {"127.0.0.1"}


async def test_a_request_carries_what_javas_does_and_a_reply_what_it_needs(rocketmq):
    seen = []

    async def answer(request, producer):
        seen.append(request)
        await echo(request, producer)

    async with asking(rocketmq, "Carried", answer) as producer:
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
    rocketmq, monkeypatch
):
    wait = PendingRequest.wait
    # The message has all the time, and its reply none: no machine is too slow for that.
    monkeypatch.setattr(PendingRequest, "wait", lambda pending, _: wait(pending, 0))
    async with asking(rocketmq, "Silent", silence) as producer:
        sent = Message("Silent", "x")
        with pytest.raises(ReplyTimeout, match=r"to topic Silent, which was sent") as timeout:
            await producer.request(sent, PATIENCE_S)
        assert timeout.value.correlation_id == sent.properties["CORRELATION_ID"]
        assert timeout.value.correlation_id in str(timeout.value)
        assert isinstance(timeout.value, TimeoutError)
        assert producer._requests._pending == {}


async def test_a_reply_whose_producer_is_gone_fails_and_says_so(rocketmq):
    failed = asyncio.get_running_loop().create_future()

    async def answer(request, producer):
        request.properties["REPLY_TO_CLIENT"] = "gone"
        try:
            await producer.send(reply_to(request, "x"))
        except SendFailed as error:
            if not failed.done():
                failed.set_result(error)

    async with asking(rocketmq, "Gone", answer) as producer:
        await producer.send(request_of(Message("Gone", "x")))
        assert "channel of <gone> not found" in str(await failed)


def request_of(sent):
    """Mark a message as a request, by hand."""
    for name, value in (("CORRELATION_ID", "42"), ("REPLY_TO_CLIENT", "p"), ("TTL", "1")):
        sent.put(name, value)
    return sent


async def test_a_producer_that_was_cut_off_is_introduced_again(rocketmq):
    async with asking(rocketmq, "Cut", echo) as producer:
        await producer.request(Message("Cut", "one"), PATIENCE_S)
        for channel in list(producer._cluster._pool.group.channels):
            channel.close()
        reply = await producer.request(Message("Cut", "two"), PATIENCE_S)
        assert reply.text == "two!"


async def test_names_of_a_namespace_do_not_hide_the_topic_of_replies(rocketmq):
    async with asking(rocketmq, "Spaced", echo, namespace="ns") as producer:
        reply = await producer.request(Message("Spaced", "x"), PATIENCE_S)
        assert reply.text == "x!"


@pytest.mark.cluster(masters=2)
async def test_all_brokers_that_may_get_the_reply_know_the_producer(cluster, producer):
    [name_server] = cluster.name_servers
    asked, other = cluster.masters
    name_server.topics = {"T": [asked.name], "C_REPLY_TOPIC": [other.name]}
    request = asyncio.create_task(producer.request(Message("T", "x"), PATIENCE_S))
    await until(lambda: sends(asked))
    assert RequestCode.HEART_BEAT in asked.codes()
    assert RequestCode.HEART_BEAT in other.codes()
    request.cancel()
    await asyncio.wait([request])


@pytest.mark.cluster(masters=2)
async def test_a_broker_that_is_gone_does_not_keep_a_request_from_others(cluster, producer):
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


async def test_replies_are_not_sent_in_batches(producer):
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


async def test_replies_that_come_twice_or_to_nothing_are_confirmed_and_dropped(caplog):
    pending = PendingRequests()
    with pending.open("T", 1) as request:
        for body in (b"one", b"two"):
            answer = await pending.receive(pushed(request.correlation_id, body), Channel)
            assert answer.code == 0
        assert (await request.wait(PATIENCE_S)).body == b"one"
    assert (await pending.receive(pushed(request.correlation_id), Channel)).code == 0
    assert "is too late" in caplog.text


@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_reply_that_cannot_be_decompressed_is_an_error_of_the_request(size):
    pending = PendingRequests()
    with pending.open("T", 1) as request:
        await pending.receive(pushed(request.correlation_id, b"x" * size, 1), Channel)
        with pytest.raises(BadAnswer, match=f"request {request.correlation_id} to topic T"):
            await request.wait(PATIENCE_S)


def test_a_program_without_an_event_loop_asks_and_replies(rocketmq):
    with rocketlens.SyncMQAdmin(rocketmq.name_server) as admin:
        admin.create_topic("Blocking", 1)
    with (
        rocketlens.SyncProducer(rocketmq.name_server) as asker,
        rocketlens.SyncProducer(rocketmq.name_server) as replier,
    ):
        threads = []

        def listener(messages, _):
            threads.append(threading.current_thread())
            for each in messages:
                replier.send(reply_to(each, '{"a": [1]}'))

        consumer = rocketlens.SyncPushConsumer(rocketmq.name_server, group="g_sync", begin="first")
        consumer.subscribe("Blocking")
        consumer.listen(listener)
        with consumer:
            assert asker.request(Message("Blocking", "x"), PATIENCE_S).json() == {"a": [1]}
    assert threads


COMMIT, ROLLBACK, UNKNOWN = (
    LocalTransactionState.COMMIT,
    LocalTransactionState.ROLLBACK,
    LocalTransactionState.UNKNOWN,
)


@pytest.fixture(scope="module")
def checking_cluster():
    """Half messages are asked about at once, and as often as a slow producer needs to be there."""
    with embedded.cluster(
        transactionTimeOut=1, transactionCheckInterval=500, transactionCheckMax=254
    ) as running:
        yield running


@asynccontextmanager
async def producer(checking_cluster, check, **options):
    async with TransactionProducer(
        checking_cluster.name_server, group="orders", check=check, **options
    ) as started:
        yield started


def half_message(topic, key):
    return rocketlens.Message(topic, b"body", keys=key)


async def delivered(checking_cluster, topic, key):
    """Wait until a message is in its topic."""
    async with (
        rocketlens.MQAdmin(checking_cluster.name_server) as admin,
        asyncio.timeout(PATIENCE_S),
    ):
        while True:
            found = (await admin.find(key, topic, only_delivered=True)).messages
            if found:
                return found


async def never_asked(_):
    raise AssertionError


async def test_what_is_committed_is_delivered_and_what_is_rolled_back_is_not(checking_cluster):
    seen = []

    async def execute(sent, state):
        seen.append(sent.unique_key)
        return state

    async with producer(checking_cluster, never_asked) as orders:
        rolled_back = await orders.send_in_transaction(
            half_message("ByItsEnd", "A"), lambda sent: execute(sent, ROLLBACK)
        )
        committed = await orders.send_in_transaction(
            half_message("ByItsEnd", "B"), lambda sent: execute(sent, COMMIT)
        )
        assert rolled_back.local_transaction_state is ROLLBACK
        assert committed.local_transaction_state is COMMIT
        (found,) = await delivered(checking_cluster, "ByItsEnd", "B")
        assert found.msg_id == committed.send_result.msg_id == seen[1]
        assert found.sys_flag & 0xC == 8
        async with rocketlens.MQAdmin(checking_cluster.name_server) as admin:
            assert not (await admin.find("A", "ByItsEnd", only_delivered=True)).messages


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_broker_asks_until_the_check_knows(checking_cluster, is_async):
    topic = f"ByCheck{is_async}"
    seen, threads = [], set()

    def check(asked):
        threads.add(threading.current_thread())
        seen.append((asked.topic, asked.body, asked.keys))
        times = int(asked.properties["TRANSACTION_CHECK_TIMES"])
        if times == 1:
            raise OSError("the database is away")
        return {2: None, 3: UNKNOWN}.get(times, COMMIT)

    async def async_check(asked):
        return check(asked)

    async with producer(checking_cluster, async_check if is_async else check) as orders:
        result = await orders.send_in_transaction(half_message(topic, "C"), lambda _: UNKNOWN)
        assert result.local_transaction_state is UNKNOWN
        assert len(await delivered(checking_cluster, topic, "C")) == 1
        assert seen == [(topic, b"body", ("C",))] * 4
        assert (threading.main_thread() in threads) is is_async


async def test_an_error_of_the_local_transaction_is_raised_and_the_broker_asks(checking_cluster):
    async def fails(_):
        raise KeyError("no such account")

    async with producer(checking_cluster, lambda _: COMMIT) as orders:
        with pytest.raises(KeyError):
            await orders.send_in_transaction(half_message("Failed", "D"), fails)
        assert await delivered(checking_cluster, "Failed", "D")


async def test_the_next_producer_of_the_group_is_asked_about_messages_of_the_last(checking_cluster):
    async with producer(checking_cluster, lambda _: UNKNOWN) as orders:
        await orders.send_in_transaction(half_message("Left", "E"), lambda _: UNKNOWN)
    async with producer(checking_cluster, lambda _: COMMIT, topics=["Left", "Missing"]):
        assert await delivered(checking_cluster, "Left", "E")


def test_without_an_event_loop(checking_cluster):
    with rocketlens.SyncTransactionProducer(
        checking_cluster.name_server, group="sync", check=lambda _: COMMIT
    ) as orders:
        result = orders.send_in_transaction(half_message("Sync", "F"), lambda _: COMMIT)
        assert result.local_transaction_state is COMMIT
        assert asyncio.run(delivered(checking_cluster, "Sync", "F"))


async def test_a_delayed_message_cannot_be_in_a_transaction(checking_cluster):
    async with producer(checking_cluster, never_asked) as orders:
        delayed = rocketlens.Message("T", "x", delay_level=1)
        with pytest.raises(MessageIllegal, match="cannot be delayed"):
            await orders.send_in_transaction(delayed, lambda _: COMMIT)
    with pytest.raises(BadInput, match="check_threads"):
        TransactionProducer("127.0.0.1:1", check=never_asked, check_threads=0)


async def test_checks_are_answered_also_after_a_defect(checking_cluster, monkeypatch):
    asked = []

    async def check(found):
        asked.append(found.unique_key)
        return COMMIT

    async with producer(checking_cluster, check, check_threads=1) as orders:
        tell = orders._cluster.tell
        # The broker also asks about half messages of other tests.
        left = [False, True]

        async def defect(address, command, request):
            if left and request.from_transaction_check == left[0]:
                left.pop(0)
                raise ValueError("a defect")
            await tell(address, command, request)

        monkeypatch.setattr(orders._cluster, "tell", defect)
        with pytest.raises(ValueError, match="a defect"):
            await orders.send_in_transaction(half_message("AfterADefect", "A"), lambda _: COMMIT)
        await delivered(checking_cluster, "AfterADefect", "A")
    assert len(asked) >= 2
    assert not left
