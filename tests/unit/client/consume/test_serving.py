"""What consumers answer to brokers, and what they tell in traces."""

import asyncio
import json

import pytest

from rocketlens import (
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MQAdmin,
    Producer,
    PushConsumer,
    TransactionProducer,
)
from rocketlens.client.consume.consume_service import ConsumeConcurrentlyStatus
from rocketlens.wire.bodies.clients import (
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumerStatusAnswer,
)
from rocketlens.wire.bodies.tables import MessageQueue, ResetOffsets
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import read_body, write_body
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume.consumer_broker import fill, run, until
from tests.unit.client.consume.consumer_messages import encoded
from tests.unit.client.consume.test_push import Collecting, consumer_of, topic_queues


async def test_how_a_consumer_does_is_shown(name_server, broker):
    fill(broker)
    listener = Collecting()
    async with consumer_of(name_server, listener, expression="*") as consumer:
        await until(lambda: len(listener.messages) == 40)
        await until(lambda: len(topic_queues(consumer)) == 4)
        fields = {"consumerGroup": "g", "clientId": consumer.client_id, "jstackEnable": "true"}
        answer = await broker.ask("g", RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    shown = read_body(ConsumerRunningInfo, answer.body)
    assert shown.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert shown.properties["PROP_CONSUMEORDERLY"] == "false"
    assert shown.properties["PROP_CLIENT_VERSION"] == "V5_5_0"
    assert int(shown.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 1_600_000_000_000
    assert {each.topic for each in shown.subscriptions} == {"T", "%RETRY%g"}
    offsets = {
        queue.queue_id: each.commit_offset
        for queue, each in shown.queue_table.items()
        if queue.topic == "T"
    }
    assert offsets == dict.fromkeys(range(4), 10)
    assert shown.status_table["T"].consume_ok_tps > 0
    assert "MainThread" in shown.jstack


def consumed_directly(listener, **options):
    async def scenario(name_server, broker):
        async with consumer_of(name_server, listener, **options) as consumer:
            fields = {
                "consumerGroup": "g",
                "clientId": consumer.client_id,
                "msgId": "x",
                "brokerName": "broker-a",
            }
            body = encoded(5, b"body", topic="%RETRY%g", retry_topic="T", queue_id=3)
            answer = await broker.ask("g", RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, body)
            assert answer.code == ResponseCode.SUCCESS
        assert broker.committed("g").get(3, 0) == 0
        assert RequestCode.CONSUMER_SEND_MSG_BACK not in broker.codes()
        return read_body(ConsumeMessageDirectlyResult, answer.body)

    return run(scenario)


def test_a_message_is_consumed_directly_by_the_listener():
    listener = Collecting()
    result = consumed_directly(listener)
    assert (result.consume_result, result.order) == (ConsumeResult.CR_SUCCESS, False)
    assert (result.auto_commit, result.remark) == (True, None)
    [message] = listener.messages
    assert (message.topic, message.body, message.queue_id) == ("T", b"body", 3)


def test_a_listener_that_fails_directly_is_reported_and_nothing_is_given_back():
    result = consumed_directly(Collecting(fails=1, result=ValueError("no")))
    assert result.consume_result is ConsumeResult.CR_THROW_EXCEPTION
    assert "ValueError: no" in result.remark
    later = ConsumeConcurrentlyStatus.RECONSUME_LATER
    result = consumed_directly(Collecting(fails=1, result=later))
    assert (result.consume_result, result.remark) == (ConsumeResult.CR_LATER, None)
    result = consumed_directly(Collecting(fails=1, result=[5]))
    assert result.consume_result is ConsumeResult.CR_LATER
    assert result.remark == "the listener returned a list"


def test_an_orderly_listener_consumes_directly_too():
    result = consumed_directly(Collecting(), orderly=True)
    assert (result.consume_result, result.order) == (ConsumeResult.CR_SUCCESS, True)


async def test_offsets_are_reset_while_messages_are_consumed(name_server, broker):
    fill(broker)
    listener = Collecting()
    async with consumer_of(name_server, listener) as consumer:
        await until(lambda: len(listener.messages) == 40)
        table = {
            MessageQueue(topic="T", broker_name="broker-a", queue_id=0): 3,
            MessageQueue(topic="T", broker_name="broker-a", queue_id=9): 3,
            MessageQueue(topic="U", broker_name="broker-a", queue_id=1): 3,
            MessageQueue(topic="T", broker_name="broker-a", queue_id=2): -1,
        }
        body = write_body(ResetOffsets(offset_table=table))
        fields = {"topic": "T", "group": "g", "timestamp": "1", "isForce": "true"}
        await broker.ask("g", RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
        await until(lambda: len(listener.messages) == 47)
        status = {"topic": "T", "group": "g"}
        answer = await broker.ask("g", RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, status)
        assert len(topic_queues(consumer)) == 4
    found = read_body(ConsumerStatusAnswer, answer.body).queue_table
    assert {queue.queue_id: offset for queue, offset in found.items()} == dict.fromkeys(
        range(4), 10
    )
    again = sorted(each.queue_offset for each in listener.messages[40:])
    assert again == list(range(3, 10))


async def test_what_is_asked_of_another_group_or_cannot_be_read_is_refused(name_server, broker):
    async with consumer_of(name_server, Collecting()):
        other = {"consumerGroup": "other", "clientId": "c", "msgId": "x"}
        answers = [
            await broker.ask("g", code, other)
            for code in (
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
            )
        ]
        direct = other | {"consumerGroup": "g"}
        answers += [
            await broker.ask("g", RequestCode.CONSUME_MESSAGE_DIRECTLY, direct, body)
            for body in (b"", b"x" * 10, encoded(1)[:-1])
        ]
        answers.append(
            await broker.ask(
                "g",
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                {"topic": "T", "group": "g", "timestamp": "1"},
                json.dumps({"offsetTable": [1]}).encode(),
            )
        )
    assert {each.code for each in answers} == {ResponseCode.SYSTEM_ERROR}
    assert answers[0].remark == "The Consumer Group <other> not exist in this consumer"


def commit(_):
    return LocalTransactionState.COMMIT


async def story_of(name_server, msg_id, **options):
    async with MQAdmin(name_server) as admin:
        return await admin.story(msg_id, **options)


async def consumed_by(kind, name_server, topic, group):
    """Let a traced consumer of a kind consume one message; give it."""
    found = asyncio.get_running_loop().create_future()

    async def listener(messages, _):
        if not found.done():
            found.set_result(messages[0])

    if kind == "lite pull":
        consumer = LitePullConsumer(name_server, group=group, begin="first", trace=True)
        consumer.subscribe(topic)
        async with consumer:
            while not (polled := await consumer.poll()):
                pass
        return polled[0]
    consumer = PushConsumer(name_server, group=group, begin="first", trace=True)
    consumer.subscribe(topic)
    (consumer.listen_orderly if kind == "orderly" else consumer.listen)(listener)
    async with consumer:
        return await found


@pytest.mark.parametrize("kind", ["concurrent", "orderly", "lite pull"])
async def test_what_was_consumed_is_told_with_both_ids(kind, rocketmq):
    topic, group = f"T-{kind.replace(' ', '-')}", f"g-{kind.replace(' ', '-')}"
    async with asyncio.timeout(PATIENCE_S), Producer(rocketmq.name_server, trace=True) as producer:
        sent = await producer.send(Message(topic, b"x", keys="k"))
        message = await consumed_by(kind, rocketmq.name_server, topic, group)
    story = await story_of(rocketmq.name_server, sent.msg_id)
    assert (message.msg_id, message.unique_key) == (sent.msg_id, sent.msg_id)
    assert message.offset_msg_id == sent.offset_msg_id
    [told] = story.groups
    assert (told.group, told.state.value) == (group, "consumed")
    assert "reported it" in told.rests_on
    assert [each.kind for each in story.events] == ["sent", "sent", "stored", "consumed"]


async def test_a_failure_is_told_and_both_ids_stay_in_a_retry(rocketmq):
    seen = []
    enough = asyncio.Event()

    async def listener(messages, context):
        seen.extend(messages)
        if len(seen) > 1:
            enough.set()
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        context.delay_level = 1
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    async with asyncio.timeout(PATIENCE_S), Producer(rocketmq.name_server) as producer:
        sent = await producer.send(Message("Failing", b"x"))
        consumer = PushConsumer(rocketmq.name_server, group="failing", begin="first", trace="mine")
        consumer.subscribe("Failing")
        consumer.listen(listener)
        async with consumer:
            await enough.wait()
    story = await story_of(rocketmq.name_server, sent.msg_id, trace_topic="mine")
    first, again = seen
    assert first.msg_id == again.msg_id == sent.msg_id
    assert first.offset_msg_id == sent.offset_msg_id
    # The retry is a record of its own.
    assert again.offset_msg_id not in {"", sent.offset_msg_id}
    kinds = {each.kind.value for each in story.events}
    assert {"consume_failed", "given_back", "retry", "consumed"} <= kinds
    [told] = story.groups
    assert (told.state.value, told.retries, told.repeats) == ("consumed", 1, ())


async def test_the_end_of_a_transaction_is_told(rocketmq):
    async with (
        asyncio.timeout(PATIENCE_S),
        TransactionProducer(rocketmq.name_server, group="tp", check=commit, trace=True) as producer,
    ):
        done = await producer.send_in_transaction(Message("Booked", b"x"), commit)
    story = await story_of(rocketmq.name_server, done.send_result.msg_id)
    texts = " | ".join(each.text for each in story.events)
    assert "ended the transaction: COMMIT_MESSAGE" in texts
    assert "half message in RMQ_SYS_TRANS_HALF_TOPIC" in texts
