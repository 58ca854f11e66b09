"""What a producer sends, where to, and what it does when a broker fails."""

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer, SendHook
from rocketlens.client.send.send_result import SendResult, SendStatus
from rocketlens.errors import (
    BadInput,
    BrokerError,
    CallTimeout,
    ConnectFailed,
    RemotingError,
    SendFailed,
    TopicNotFound,
    WrongType,
)
from rocketlens.formats.commitlog_record import message_of
from rocketlens.model.text.java import string_hash
from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.recall_handle import RecallHandle
from tests.support.fake_cluster import produce, running, sends, stored
from tests.support.patience import SILENCE_S

RETRIABLE = (1, 2, 14, 16, 17, 204, 205, 1500)


class Recorder(SendHook):
    def __init__(self):
        self.seen = []

    def before(self, context):
        self.seen.append(("before", context.queue.broker_name, context.result, context.error))

    def after(self, context):
        self.seen.append(("after", context.queue.broker_name, context.result, context.error))


@pytest.mark.cluster(masters=2)
async def test_messages_go_round_all_queues_of_all_masters(cluster, producer):
    results = [await producer.send(Message("T", "x")) for _ in range(16)]
    assert set(Counter(result.message_queue for result in results).values()) == {2}
    assert [len(sends(broker)) for broker in cluster.masters] == [8, 8]


@pytest.mark.parametrize("code", RETRIABLE)
@pytest.mark.cluster(masters=3)
async def test_a_retriable_refusal_is_tried_on_another_broker_with_the_same_unique_key(
    cluster, producer, code
):
    for broker in cluster.masters[:2]:
        broker.send_codes = [code] * 9
    message = Message("T", "x")
    keys = set()
    for _ in range(6):
        result = await producer.send(message)
        assert result.message_queue.broker_name == "broker-c"
        keys.add(result.msg_id)
    assert keys == {message.unique_key}
    assert len(stored(*cluster.masters)) == 6


@pytest.mark.cluster(masters=2)
async def test_another_refusal_is_final(cluster, producer):
    for broker in cluster.masters:
        broker.send_codes = [ResponseCode.MESSAGE_ILLEGAL]
    with pytest.raises(BrokerError) as refused:
        await producer.send(Message("T", "x"))
    assert refused.value.code == 13
    assert sum(len(sends(broker)) for broker in cluster.masters) == 1


@pytest.mark.parametrize("how", ["dead", "slow", "busy"])
@pytest.mark.cluster(masters=2, attempt_timeout_s=SILENCE_S)
async def test_the_broker_that_just_failed_is_avoided(cluster, producer, how):
    bad, good = cluster.masters
    if how == "dead":
        await bad.die()
    elif how == "slow":
        bad.is_slow = True
    else:
        bad.send_codes = [ResponseCode.SYSTEM_BUSY] * 99
    for _ in range(6):
        result = await producer.send(Message("T", "x"))
        assert result.message_queue.broker_name == good.name
    assert len(good.records) == 6


@pytest.mark.cluster(masters=2)
async def test_when_all_fail_the_error_names_each_attempt(cluster, producer):
    await cluster.masters[0].die()
    cluster.masters[1].send_codes = [ResponseCode.SERVICE_NOT_AVAILABLE] * 3
    with pytest.raises(SendFailed) as failed:
        await producer.send(Message("T", "x"))
    assert len(failed.value.attempts) == 3
    kinds = {name: type(error) for name, error in failed.value.attempts}
    assert kinds == {"broker-a": ConnectFailed, "broker-b": BrokerError}
    assert failed.value.code == 14
    assert "broker-a" in str(failed.value)


async def test_a_send_ends_in_its_time(cluster, producer):
    cluster.masters[0].is_slow = True
    with pytest.raises(SendFailed) as failed:
        await producer.send(Message("T", "x"), timeout_s=0.1)
    ((_, error),) = failed.value.attempts
    assert isinstance(error, CallTimeout)
    cluster.name_servers[0].is_slow = True
    with pytest.raises(CallTimeout):
        await producer.send(Message("Other", "x"), timeout_s=0.1)


async def test_a_message_that_the_disk_has_not_taken_is_stored_and_said_to_be(cluster, producer):
    cluster.masters[0].send_codes = [ResponseCode.FLUSH_DISK_TIMEOUT]
    result = await producer.send(Message("T", "x"))
    assert result.send_status is SendStatus.FLUSH_DISK_TIMEOUT
    assert len(sends(cluster.masters[0])) == 1


@pytest.mark.cluster(masters=2, retries_when_not_safe=True)
async def test_another_broker_is_tried_on_demand_when_the_disk_has_not_taken_it(cluster, producer):
    for broker in cluster.masters:
        broker.send_codes = [ResponseCode.FLUSH_DISK_TIMEOUT]
    result = await producer.send(Message("T", "x"))
    assert result.send_status is SendStatus.SEND_OK
    assert len(stored(*cluster.masters)) == 3


@pytest.mark.parametrize("after", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR, None])
@pytest.mark.cluster(masters=2, retries=1, retries_when_not_safe=True)
async def test_a_message_that_is_stored_is_said_to_be_whatever_the_next_broker_answers(
    cluster, producer, after
):
    first, second = cluster.masters
    first.send_codes = [ResponseCode.FLUSH_DISK_TIMEOUT]
    second.send_codes = [after, after]
    if after is None:
        data = cluster.name_servers[0].broker_data
        cluster.name_servers[0].broker_data = lambda name: (
            data(name) if name == "broker-a" else replace(data(name), broker_addrs={1: "::1:1"})
        )
    names = iter(["broker-a", "broker-b"])
    producer._chooser.choose = lambda *_: MessageQueue("T", next(names), 0)
    result = await producer.send(Message("T", "x"))
    assert result.send_status is SendStatus.FLUSH_DISK_TIMEOUT
    assert len(stored(*cluster.masters)) == 1


def test_a_hook_sees_that_a_send_was_cancelled():
    contexts = []

    class Recording(SendHook):
        def after(self, context):
            contexts.append(context)

    async def scenario(cluster, producer):
        broker = cluster.masters[0]

        def stored_and_not_answered(*given):
            broker.store("T", b"x")
            sending.cancel()
            return asyncio.get_running_loop().create_future()

        broker.send = stored_and_not_answered
        sending = asyncio.create_task(producer.send(Message("T", "x")))
        with pytest.raises(asyncio.CancelledError):
            await sending
        (context,) = contexts
        assert context.result is None
        assert "cancelled" in str(context.error)
        assert cluster.masters[0].address in str(context.error)

    produce(scenario, hooks=[Recording()])


@pytest.mark.cluster(masters=2)
async def test_a_chosen_queue_gets_the_message_or_nobody_does(cluster, producer):
    queue = MessageQueue("T", "broker-b", 3)
    result = await producer.send(Message("T", "x"), queue=queue)
    assert result.message_queue == queue
    cluster.masters[1].send_codes = [ResponseCode.SYSTEM_BUSY]
    with pytest.raises(SendFailed):
        await producer.send(Message("T", "x"), queue=queue)
    assert len(stored(*cluster.masters)) == 1
    for wrong in (queue._replace(topic="U"), queue._replace(broker_name="z")):
        with pytest.raises(BadInput):
            await producer.send(Message("T", "x"), queue=wrong)


@pytest.mark.parametrize("key", ["order-1", "order-2", "", "订单", "polygenelubricants"])
def test_a_sharding_key_always_leads_to_the_queue_that_java_chooses(key):
    async def scenario(cluster, producer):
        queues = await producer.write_queues("T")
        assert queues == tuple(sorted(queues))
        hashed = abs(string_hash(key)) % len(queues)
        results = [await producer.send(Message("T", "x"), sharding_key=key) for _ in range(3)]
        assert {result.message_queue for result in results} == {queues[hashed]}
        for record in stored(*cluster.masters):
            assert message_of(record).properties["__SHARDINGKEY"] == key

    if key:
        produce(scenario, masters=2)
    else:
        with pytest.raises(BadInput):
            produce(scenario)


def test_one_way_asks_for_no_answer():
    async def scenario(cluster, producer):
        await producer.send_oneway(Message("T", "x", keys="k"))
        answer = await producer.query_message("T", "k")
        assert [each.body for each in answer] == [b"x"]

    async def dead(cluster, producer):
        await cluster.masters[0].die()
        with pytest.raises(RemotingError):
            await producer.send_oneway(Message("T", "x"))

    produce(scenario)
    produce(dead)


def test_a_new_topic_goes_where_the_default_topic_is_with_four_queues_each():
    async def scenario(cluster, producer):
        cluster.name_servers[0].topics["TBW102"] = ["broker-b"]
        result = await producer.send(Message("New", "x"))
        assert result.message_queue.broker_name == "broker-b"
        assert len(await producer.write_queues("New")) == 4
        del cluster.name_servers[0].topics["TBW102"]

    async def without(cluster, producer):
        with pytest.raises(TopicNotFound, match="New"):
            await producer.send(Message("New", "x"))

    produce(scenario, masters=2)
    produce(without)


@pytest.mark.cluster(slaves=1)
async def test_brokers_without_a_master_are_not_written_to(cluster, producer):
    for server in cluster.name_servers:
        del server.brokers["broker-a"][0]
    with pytest.raises(TopicNotFound, match="written"):
        await producer.send(Message("T", "x"))


def test_hooks_see_each_attempt_and_a_failing_one_stops_nothing():
    class Broken(SendHook):
        def before(self, context):
            raise RuntimeError(f"not of {context.broker_address}'s doing")

    recorder = Recorder()

    async def scenario(cluster, producer):
        for broker in cluster.masters:
            broker.send_codes = [ResponseCode.SYSTEM_BUSY]
        with pytest.raises(SendFailed):
            await producer.send(Message("T", "x"))
        await producer.send(Message("T", "x"))
        await producer.send_oneway(Message("T", "x"))

    produce(scenario, masters=2, retries=1, hooks=[Broken(), recorder])
    steps = [step for step, *_ in recorder.seen]
    assert steps == ["before", "after"] * 4
    assert recorder.seen[0][1] != recorder.seen[2][1]
    assert [type(error) for _, _, _, error in recorder.seen[1:4:2]] == [BrokerError, BrokerError]
    assert isinstance(recorder.seen[5][2], SendResult)
    assert recorder.seen[7][2:] == (None, None)


@pytest.mark.cluster(namespace="ns")
async def test_a_namespace_is_put_before_topic_and_group_and_taken_off_results(cluster, producer):
    cluster.name_servers[0].topics["ns%T"] = ["broker-a"]
    result = await producer.send(Message("T", "x", keys="k"))
    assert result.message_queue.topic == "T"
    (record,) = stored(*cluster.masters)
    assert record.topic == "ns%T"
    assert message_of(record).properties["INSTANCE_ID"] == "ns"
    (header,) = sends(cluster.masters[0])
    assert header.producer_group == "ns%g"


async def test_brokers_hear_that_a_producer_comes_and_goes():
    async with running() as cluster:
        async with Producer(cluster.given, group="g") as producer:
            await producer.send(Message("T", "x"))
            broker = cluster.masters[0]
            while RequestCode.HEART_BEAT not in broker.codes():
                await producer.max_offset(MessageQueue("T", "broker-a", 0))
        assert broker.codes()[-1] == RequestCode.UNREGISTER_CLIENT
        assert broker.asked[-1][1].producer_group == "g"


async def test_a_signed_request_is_one_that_the_secret_verifies():
    from rocketlens.client.connect.cluster import Credentials
    from rocketlens.wire import acl

    seen = []
    async with running() as cluster:
        broker = cluster.masters[0]
        plain = broker.server.handlers[RequestCode.SEND_MESSAGE_V2]

        def judge(command, channel):
            seen.append(acl.verify(command.ext_fields, command.body, "secret"))
            return plain(command, channel) if seen[-1] else Response(16)

        broker.server.handlers[RequestCode.SEND_MESSAGE_V2] = judge
        credentials = Credentials("me", "secret")
        assert "secret" not in repr(credentials)
        async with Producer(cluster.given, credentials=credentials) as producer:
            await producer.send(Message("T", "x", keys="k"))
    assert seen == [True]


def handle_of(broker_name, topic="T"):
    return RecallHandle(topic, broker_name, due_ms=1, unique_key="K").encode()


def recalls(broker):
    return [header for code, header in broker.asked if code == RequestCode.RECALL_MESSAGE]


@pytest.mark.cluster(masters=2, slaves=1)
async def test_a_recall_goes_to_the_master_that_has_the_message_and_returns_its_unique_key(
    cluster, producer
):
    handle = handle_of("broker-b")
    assert await producer.recall("T", handle) == "K"
    (header,) = recalls(cluster.masters[1])
    assert (header.topic, header.recall_handle, header.producer_group) == ("T", handle, "g")
    assert [recalls(broker) for broker in (cluster.masters[0], *cluster.slaves)] == [[], []]


async def test_a_broker_that_allows_no_recalls_is_named_with_the_key_that_allows_them(
    cluster, producer
):
    remark = "recall failed, operation is forbidden"
    cluster.masters[0].err(ResponseCode.NO_PERMISSION, remark)
    with pytest.raises(BrokerError) as caught:
        await producer.recall("T", handle_of("broker-a", "T"))
    assert caught.value.code == 16
    assert f"{remark}: set recallMessageEnable=true in its broker.conf" in str(caught.value)
    assert "rocketlens serve -c broker.conf" in str(caught.value)
    cluster.masters[0].err(ResponseCode.NO_PERMISSION, "no right to")
    with pytest.raises(BrokerError) as caught:
        await producer.recall("T", handle_of("broker-a", "T"))
    assert "recallMessageEnable" not in str(caught.value)


def test_a_group_of_a_wrong_type_is_named():
    with pytest.raises(WrongType, match="group must be a str, not int"):
        Producer("127.0.0.1:1", group=5)


@pytest.mark.cluster(namespace="ns")
async def test_a_recall_is_of_a_topic_of_the_namespace(cluster, producer):
    cluster.name_servers[0].topics["ns%T"] = ["broker-a"]
    assert await producer.recall("T", handle_of("broker-a", "ns%T")) == "K"
    (header,) = recalls(cluster.masters[0])
    assert (header.topic, header.producer_group) == ("ns%T", "ns%g")


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "%DLQ%g", "a/b"])
async def test_a_recall_that_cannot_be_is_refused_before_anyone_is_asked(cluster, producer, topic):
    handle = "no handle" if topic == "T" else handle_of("broker-a")
    with pytest.raises(BadInput):
        await producer.recall(topic, handle)
    with pytest.raises(WrongType, match="recall_handle must be a str, not NoneType"):
        await producer.recall("T", None)
    assert [each.asked for each in cluster.all] == [[], []]


async def test_a_recall_that_a_broker_refuses_has_its_code_and_is_not_tried_again(
    cluster, producer
):
    cluster.masters[0].err(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
    with pytest.raises(BrokerError, match="timestamp invalid") as refused:
        await producer.recall("T", handle_of("broker-a"))
    assert refused.value.code == 604
    assert len(recalls(cluster.masters[0])) == 1


async def test_a_recall_from_a_broker_that_is_away_names_it(cluster, producer):
    with pytest.raises(TopicNotFound, match="broker broker-z, with the message, has no master"):
        await producer.recall("T", handle_of("broker-z"))
    cluster.masters[0].is_slow = True
    with pytest.raises(CallTimeout):
        await producer.recall("T", handle_of("broker-a"), timeout_s=SILENCE_S)


def test_options_that_make_no_sense_are_refused(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("ROCKETMQ_NAMESRV_ADDR", raising=False)
    for options in ({"group": " "}, {"retries": -1}, {"group": "x" * 256}, {"group": "a/b"}):
        with pytest.raises(BadInput):
            Producer("127.0.0.1:1", **options)
    for address in (None, "", "nonsense", "a:b", ";;"):
        with pytest.raises(BadInput):
            Producer(address)
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1;[::1]:2")
    assert Producer()._cluster.name_servers == ("127.0.0.1:1", "[::1]:2")
