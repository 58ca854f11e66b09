"""RocketMQ 5.5.0 keeps messages where we say: POP retries, recalled timers, ended transactions."""

import time
from pathlib import Path

import pytest

from rocketlens import (
    LocalTransactionState,
    Message,
    SyncMQAdmin,
    SyncProducer,
    SyncPushConsumer,
    SyncTransactionProducer,
)
from tests.peer.rocketmq_peer import POLL_SECONDS
from tests.support.patience import PATIENCE_S

PROGRAM = Path(__file__).parent / "java" / "Pop.java"
VERSION = "5.5.0"


@pytest.fixture(scope="module", params=[False, True], ids=["V1, files", "V2, RocksDB"])
def broker(peer, tmp_path_factory, request):
    """A real broker: retry topics of POP named in one of two ways, timers and halves in one of two
    kinds of storage.
    """
    newer = ("enableRetryTopicV2", "timerRocksDBEnable", "transRocksDBEnable")
    settings = {"recallMessageEnable": True, **dict.fromkeys(newer, request.param)}
    directory = tmp_path_factory.mktemp("life")
    with peer.start(VERSION, directory, **settings) as running:
        yield running


def until(look, wanted, patience_s=PATIENCE_S):
    """Return what is looked for, once it is as wanted."""
    end = time.monotonic() + patience_s
    while not wanted(found := look()):
        assert time.monotonic() < end, found
        time.sleep(POLL_SECONDS)
    return found


def test_retries_of_pop_are_those_of_their_group(peer, broker):
    topic, group = "pay_in", "books_of"
    with SyncMQAdmin(broker.namesrv_address) as admin:
        admin.create_topic(topic, 1)
        mode = ("-b", broker.broker_address, "-t", topic, "-g", group, "-m", "POP", "-q", "8")
        peer.mqadmin(VERSION, "setConsumeMode", *mode)
        with SyncProducer(broker.namesrv_address, group="p") as producer:
            sent = producer.send(Message(topic, "x", keys="order-1"))
        peer.java(VERSION, PROGRAM, broker.namesrv_address, topic, group)
        for text in (
            sent.msg_id,
            f"{topic}/{sent.message_queue.queue_id}/{sent.queue_offset}",
            "order-1",
        ):
            story = until(
                lambda text=text: admin.story(text),
                lambda each: [one.retries for one in each.groups] == [1],
            )
            assert [each.group for each in story.groups] == [group]
            told = [each.text for each in story.events if each.kind.value == "handed_out"]
            assert any(f"out to group {group} at" in each for each in told)
            assert any("visible again at" in each for each in told)
        found = admin.groups(group).groups
        names = [each.name for each in admin.groups().groups]
    assert [each.name for each in found] == [group]
    assert group in names
    assert not [each for each in names if topic in each or each.startswith("CID_RMQ")]


def test_a_recalled_message_and_a_rolled_back_transaction_are_told(broker):
    with SyncMQAdmin(broker.namesrv_address) as admin:
        admin.create_topic("late", 1)
        with SyncProducer(broker.namesrv_address, group="p") as producer:
            due = int(time.time() * 1000) + 1_800_000
            sent = producer.send(Message("late", "x", keys="late-1", deliver_at=due))
            waits = admin.find("late-1", "late")
            assert [each.topic for each in waits] == ["rmq_sys_wheel_timer"]
            producer.recall("late", sent.recall_handle)
        story = admin.story("late-1")
        options = {"group": "t", "check": lambda _: LocalTransactionState.ROLLBACK}
        with SyncTransactionProducer(broker.namesrv_address, **options) as producer:
            message = Message("late", "y", keys="payout-1")
            producer.send_in_transaction(message, lambda _: LocalTransactionState.ROLLBACK)
        # The broker writes marks some seconds later.
        ended = until(
            lambda: admin.story("payout-1"),
            lambda each: each.events[-1].kind.value == "transaction_ended",
        )
    assert ended.events[-1].text.startswith("transaction rolled back: ")
    assert (ended.repeats, ended.complete) == ((), True)
    assert "recalled" in [each.kind.value for each in story.events]
    assert story.repeats == ()
    assert any("recalled at" in each.text for each in story.events)


def test_a_dead_letter_of_our_consumer_says_why(broker):
    def listener(_, context):
        context.delay_level = -1
        raise ValueError("no 4711 left")

    with SyncMQAdmin(broker.namesrv_address) as admin:
        admin.create_topic("failing", 1)
        with SyncProducer(broker.namesrv_address, group="p") as producer:
            sent = producer.send(Message("failing", "x", keys="failing-1"))
        consumer = SyncPushConsumer(broker.namesrv_address, group="fails", begin="first")
        consumer.subscribe("failing")
        consumer.listen(listener)
        with consumer:
            story = until(
                lambda: admin.story(sent.msg_id, group="fails"),
                lambda each: [one.state for one in each.groups] == ["dead_letter"],
            )
    assert story.groups[0].failure == "ValueError: no 4711 left"
