"""Consumers for programs without an event loop."""

import threading

import pytest

from rocketlens import Message, MessageQueue, SyncLitePullConsumer, SyncPushConsumer
from rocketlens.errors import BadInput, WrongUse
from rocketlens.testing import cluster
from tests.support.patience import PATIENCE_S


@pytest.fixture(scope="module")
def running():
    with cluster() as started, started.admin() as admin, started.producer() as producer:
        for topic in ("Push", "Iterate", "Poll"):
            admin.create_topic(topic, 4)
            for number in range(20):
                producer.send(Message(topic, str(number), tags="AB"[number % 2]))
        yield started


def test_a_listener_runs_in_threads_and_everything_comes(running):
    bodies, threads, all_there = [], set(), threading.Event()

    def listener(messages, context):
        assert context.message_queue.topic == "Push"
        threads.add(threading.current_thread())
        bodies.extend(int(each.body) for each in messages)
        if len(bodies) >= 10:
            all_there.set()

    consumer = SyncPushConsumer(running.name_server, group="push", begin="first")
    consumer.subscribe("Push", "B")
    consumer.listen(listener)
    with consumer:
        assert all_there.wait(PATIENCE_S)
        assert {each.topic for each in consumer.assignment} >= {"Push"}
        consumer.commit()
    assert sorted(bodies) == list(range(1, 20, 2))
    assert threading.main_thread() not in threads


def test_messages_are_iterated_over_and_acked(running):
    consumer = SyncPushConsumer(running.name_server, group="iterate", begin="first")
    consumer.subscribe("Iterate")
    bodies = []
    with consumer:
        for message in consumer:
            bodies.append(int(message.body))
            consumer.ack(message)
            if len(bodies) == 20:
                break
    assert sorted(bodies) == list(range(20))


def test_messages_are_polled_and_sought(running):
    queue = MessageQueue("Poll", "broker-a", 0)
    with SyncLitePullConsumer(running.name_server, group="poll", begin="first") as consumer:
        consumer.assign([MessageQueue("Poll", "broker-a", number) for number in range(4)])
        messages = []
        while len(messages) < 20:
            messages += consumer.poll(30)
        assert sorted(int(each.body) for each in messages) == list(range(20))
        assert len(consumer.assignment) == 4
        consumer.commit()
        assert consumer.committed(queue) == consumer.max_offset(queue)
        consumer.seek_to_begin(queue)
        assert consumer.poll(30)[0].queue_offset == 0
        consumer.seek(queue, consumer.max_offset(queue))
        consumer.seek_to_timestamp(queue, 0)
        assert consumer.offset_for_timestamp(queue, 0) == 0
        assert consumer.poll(30)[0].queue_id == 0
        consumer.seek_to_end(queue)
        consumer.pause([queue])
        assert consumer.poll(0.01) == []
        consumer.resume([queue])


def test_errors_come_to_the_caller(running):
    with pytest.raises(BadInput, match="group"):
        SyncPushConsumer(running.name_server, group="")
    consumer = SyncLitePullConsumer(running.name_server, group="errors")
    with pytest.raises(WrongUse, match="not started"):
        consumer.poll()
    consumer.close()
    consumer.close()
