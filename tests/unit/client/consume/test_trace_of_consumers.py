"""Every consumer tells what it consumed, and gives both ids with every message."""

import asyncio

import pytest

from rocketlens import (
    ConsumeConcurrentlyStatus,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MQAdmin,
    Producer,
    PushConsumer,
    TransactionProducer,
)
from rocketlens.testing import cluster
from tests.support.patience import PATIENCE_S


@pytest.fixture(scope="module")
def name_server(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("traced")) as running:
        yield running.name_server


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
def test_what_was_consumed_is_told_with_both_ids(kind, name_server):
    topic, group = f"T-{kind.replace(' ', '-')}", f"g-{kind.replace(' ', '-')}"

    async def scenario():
        async with asyncio.timeout(PATIENCE_S), Producer(name_server, trace=True) as producer:
            sent = await producer.send(Message(topic, b"x", keys="k"))
            message = await consumed_by(kind, name_server, topic, group)
        return sent, message, await story_of(name_server, sent.msg_id)

    sent, message, story = asyncio.run(scenario())
    assert (message.msg_id, message.unique_key) == (sent.msg_id, sent.msg_id)
    assert message.offset_msg_id == sent.offset_msg_id
    [told] = story.groups
    assert (told.group, told.state.value) == (group, "consumed")
    assert "reported it" in told.rests_on
    assert [each.kind for each in story.events] == ["sent", "sent", "stored", "consumed"]


def test_a_failure_is_told_and_both_ids_stay_in_a_retry(name_server):
    async def scenario():
        seen = []
        enough = asyncio.Event()

        async def listener(messages, context):
            seen.extend(messages)
            if len(seen) > 1:
                enough.set()
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
            context.delay_level = 1
            return ConsumeConcurrentlyStatus.RECONSUME_LATER

        async with asyncio.timeout(PATIENCE_S), Producer(name_server) as producer:
            sent = await producer.send(Message("Failing", b"x"))
            consumer = PushConsumer(name_server, group="failing", begin="first", trace="mine")
            consumer.subscribe("Failing")
            consumer.listen(listener)
            async with consumer:
                await enough.wait()
        return sent, seen, await story_of(name_server, sent.msg_id, trace_topic="mine")

    sent, seen, story = asyncio.run(scenario())
    first, again = seen
    assert first.msg_id == again.msg_id == sent.msg_id
    assert first.offset_msg_id == sent.offset_msg_id
    # The retry is a record of its own.
    assert again.offset_msg_id not in {"", sent.offset_msg_id}
    kinds = {each.kind.value for each in story.events}
    assert {"consume_failed", "given_back", "retry", "consumed"} <= kinds
    [told] = story.groups
    assert (told.state.value, told.retries, told.repeats) == ("consumed", 1, ())


def test_the_end_of_a_transaction_is_told(name_server):
    async def scenario():
        async with (
            asyncio.timeout(PATIENCE_S),
            TransactionProducer(name_server, group="tp", check=commit, trace=True) as producer,
        ):
            done = await producer.send_in_transaction(Message("Booked", b"x"), commit)
        return await story_of(name_server, done.send_result.msg_id)

    story = asyncio.run(scenario())
    texts = " | ".join(each.text for each in story.events)
    assert "ended the transaction: COMMIT_MESSAGE" in texts
    assert "half message in RMQ_SYS_TRANS_HALF_TOPIC" in texts
