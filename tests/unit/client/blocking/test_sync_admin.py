"""Blocking clients have what the async ones have, with the same arguments."""

import asyncio
import inspect
import subprocess
import sys
import threading

import polars as pl
import pytest

import rocketlens
from rocketlens import SyncLitePullConsumer, SyncPushConsumer
from rocketlens.client.blocking import sync_admin
from rocketlens.client.blocking.blocking_client import blocking_doc
from rocketlens.client.blocking.sync_admin import SyncMQAdmin
from rocketlens.client.blocking.sync_producer import SyncProducer
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.errors import BadInput, MessageIllegal, MessageNotFound, WrongUse
from rocketlens.net.sync import LoopThread
from rocketlens.testing import cluster
from rocketlens.wire.recall_handle import RecallHandle
from tests.support.fake_cluster import running
from tests.support.patience import PATIENCE_S


@pytest.fixture
def fake():
    """A cluster in an event loop of another thread."""
    ready = threading.Event()
    held = {}

    async def serve():
        async with running() as made:
            held["cluster"], held["done"] = made, asyncio.Event()
            ready.set()
            await held["done"].wait()

    with LoopThread("fake cluster") as thread:
        server = threading.Thread(target=thread.run, args=(serve(),))
        server.start()
        ready.wait()
        yield held["cluster"]

        async def end():
            held["done"].set()

        thread.run(end())
        server.join()


def test_everything_is_there_without_an_event_loop(fake):
    with SyncProducer(fake.given, group="g") as producer, SyncMQAdmin(fake.given) as admin:
        result = producer.send(Message("T", "one", keys="k"))
        producer.send_oneway(Message("T", "two", keys="k"))
        producer.send_batch([Message("T", "three", keys="k")])
        assert [each.body for each in producer.query_message("T", "k")] == [
            b"one",
            b"two",
            b"three",
        ]
        assert len(admin.query_message("T", "k", 2)) == 2
        assert len(admin.query_message_by_unique_key("T", result.msg_id)) == 1
        assert admin.view_message(result.offset_msg_id).body == b"one"
        assert admin.view_message("T", result.msg_id).body == b"one"
        queue = result.message_queue
        assert queue in admin.message_queues("T")
        assert queue in producer.write_queues("T")
        handle = RecallHandle("T", "broker-a", due_ms=1, unique_key="K").encode()
        assert producer.recall("T", handle) == "K"
        assert admin.min_offset(queue) == 0
        assert admin.max_offset(queue) >= 1
        assert admin.search_offset(queue, 0) == 0
        assert admin.earliest_message_store_time(queue) > 0
        admin.create_topic("New", 4)
        with pytest.raises(MessageNotFound):
            admin.view_message("T", "nothing")


def test_async_sends_call_back(fake):
    with SyncProducer(fake.given) as producer:
        heard = []
        futures = [producer.send_async(Message("T", b"%d" % n)) for n in range(50)]
        for future in futures:
            future.add_done_callback(lambda done: heard.append(done.result().msg_id))
        assert sorted(future.result(10).msg_id for future in futures) == sorted(heard)
        failed = producer.send_async(Message("T", b""))
        assert isinstance(failed.exception(10), MessageIllegal)


def test_a_closed_client_says_so(fake):
    producer = SyncProducer(fake.given)
    producer.close()
    producer.close()
    with pytest.raises(WrongUse, match="closed"):
        producer.send(Message("T", "x"))


def test_options_are_checked_at_once():
    with pytest.raises(BadInput):
        SyncMQAdmin("nonsense")


def test_the_package_names_the_clients_and_imports_them_when_used():
    assert rocketlens.Producer.__name__ == "Producer"
    assert rocketlens.MQAdmin.__name__ == "MQAdmin"
    assert MessageQueue("T", "b", 0) == ("T", "b", 0)
    program = "import sys, rocketlens; print('rocketlens.client' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: rocketlens.SyncProducer("a:1", gruop="g"), "SyncProducer.*'gruop'.*mean group"),
        (lambda: rocketlens.SyncMQAdmin("a:1", tsl=None), "SyncMQAdmin.*'tsl'.*mean tls"),
        (lambda: rocketlens.SyncPushConsumer("a:1", grop="g"), "SyncPushConsumer.*'grop'"),
    ],
)
def test_a_wrong_argument_is_refused_under_the_name_of_the_blocking_client(make, said):
    with pytest.raises(TypeError, match=said):
        make()


CLIENTS = {
    rocketlens.SyncMQAdmin: rocketlens.MQAdmin,
    rocketlens.SyncProducer: rocketlens.Producer,
    rocketlens.SyncTransactionProducer: rocketlens.TransactionProducer,
    rocketlens.SyncPushConsumer: rocketlens.PushConsumer,
    rocketlens.SyncLitePullConsumer: rocketlens.LitePullConsumer,
}
NOT_BLOCKING = {
    *("rebalance_soon", "reset_offsets", "offsets_of", "running_info", "consume_directly"),
    *("message_model", "concurrency", "batch", "auto_commit"),
}
BY_HAND = {"view_message", "start", "close"}


def public(client):
    return {name for name in dir(client) if not name.startswith("_")}


PAIRS = [
    pytest.param(blocking, plain, name, id=f"{blocking.__name__}.{name}")
    for blocking, plain in CLIENTS.items()
    for name in sorted(public(blocking) & public(plain))
    if callable(getattr(plain, name))
]


@pytest.mark.parametrize(("blocking", "plain"), CLIENTS.items())
def test_a_blocking_client_has_each_method_of_the_async_one(blocking, plain):
    assert public(plain) - public(blocking) <= NOT_BLOCKING
    assert public(blocking) - public(plain) <= {"send_async"}
    assert inspect.signature(blocking) == inspect.signature(plain)


@pytest.mark.parametrize(("blocking", "plain", "name"), PAIRS)
def test_a_blocking_method_has_the_arguments_of_the_async_one(blocking, plain, name):
    ours = inspect.signature(getattr(blocking, name)).parameters
    theirs = inspect.signature(getattr(plain, name)).parameters
    assert list(ours.values()) == list(theirs.values())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda admin: admin.create_topic("T", perms=6), "create_topic.*'perms'"),
        (lambda admin: admin.tail("T", folow=True), "tail.*'folow'.*did you mean follow"),
        (lambda admin: admin.scan("T", tags="A"), "scan.*'tags'.*did you mean tag"),
    ],
)
def test_a_wrong_argument_of_a_method_is_refused_under_its_name(call, text):
    with rocketlens.SyncMQAdmin("127.0.0.1:1") as admin, pytest.raises(TypeError, match=text):
        call(admin)


def test_a_blocking_method_returns_what_is_iterated_over_without_an_event_loop():
    assert inspect.signature(rocketlens.SyncMQAdmin.tail).return_annotation.__name__ == (
        "SyncTopicTail"
    )


@pytest.mark.parametrize(("blocking", "plain", "name"), PAIRS)
def test_a_blocking_method_has_the_docstring_of_the_async_one(blocking, plain, name):
    if name not in BY_HAND:
        theirs = blocking_doc(inspect.getdoc(getattr(plain, name)))
        assert inspect.getdoc(getattr(blocking, name)) == theirs


def test_the_docstring_of_a_blocking_method_speaks_of_blocking_calls():
    text = inspect.getdoc(rocketlens.SyncMQAdmin.tail)
    assert "``on_event`` runs in the client's thread: it must not block.\n\nThe iteration" in text
    assert "async" not in text


@pytest.fixture(scope="module")
def rocketmq():
    with cluster() as running, running.producer() as producer:
        for number in range(10):
            producer.send(rocketlens.Message("Orders", f"{number}", keys=f"k{number}"))
        yield running


@pytest.fixture
def admin(rocketmq):
    with rocketmq.admin() as admin:
        yield admin


@pytest.mark.parametrize("at_once", [1, 3, 256])
def test_a_scan_is_iterated_over_with_blocking_calls(admin, monkeypatch, at_once):
    monkeypatch.setattr(sync_admin, "_AT_ONCE", at_once)
    scan = admin.scan("Orders")
    assert sorted(int(each.body) for each in scan) == list(range(10))
    assert (scan.complete, scan.failures) == (True, ())
    assert scan.coverage


def test_a_scan_of_a_cluster_is_a_table(admin):
    table = admin.scan("Orders").to_arrow()
    assert sorted(table["keys"].to_pylist()) == [[f"k{n}"] for n in range(10)]
    with admin.scan("Orders").to_reader() as reader:
        assert sum(batch.num_rows for batch in reader) == 10
    assert pl.DataFrame(admin.scan("Orders")).height == 10


def test_a_scan_that_is_left_leaves_the_client_usable(admin):
    assert next(iter(admin.scan("Orders"))).topic == "Orders"
    assert len(admin.find("k1")) == 1


def test_a_wrong_topic_is_an_error_of_the_reader(admin):
    with pytest.raises(rocketlens.TopicNotFound, match="did you mean Orders"):
        admin.scan("Order").to_arrow()


@pytest.fixture(scope="module")
def broker():
    with cluster() as started, started.admin() as admin, started.producer() as producer:
        for topic in ("Push", "Iterate", "Poll"):
            admin.create_topic(topic, 4)
            for number in range(20):
                producer.send(Message(topic, str(number), tags="AB"[number % 2]))
        yield started


def test_a_listener_runs_in_threads_and_everything_comes(broker):
    bodies, threads, all_there = [], set(), threading.Event()

    def listener(messages, context):
        assert context.message_queue.topic == "Push"
        threads.add(threading.current_thread())
        bodies.extend(int(each.body) for each in messages)
        if len(bodies) >= 10:
            all_there.set()

    consumer = SyncPushConsumer(broker.name_server, group="push", begin="first")
    consumer.subscribe("Push", "B")
    consumer.listen(listener)
    with consumer:
        assert all_there.wait(PATIENCE_S)
        assert {each.topic for each in consumer.assignment} >= {"Push"}
        consumer.commit()
    assert sorted(bodies) == list(range(1, 20, 2))
    assert threading.main_thread() not in threads


def test_messages_are_iterated_over_and_acked(broker):
    consumer = SyncPushConsumer(broker.name_server, group="iterate", begin="first")
    consumer.subscribe("Iterate")
    bodies = []
    with consumer:
        for message in consumer:
            bodies.append(int(message.body))
            consumer.ack(message)
            if len(bodies) == 20:
                break
    assert sorted(bodies) == list(range(20))


def test_messages_are_polled_and_sought(broker):
    queue = MessageQueue("Poll", "broker-a", 0)
    with SyncLitePullConsumer(broker.name_server, group="poll", begin="first") as consumer:
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


def test_errors_come_to_the_caller(broker):
    with pytest.raises(BadInput, match="group"):
        SyncPushConsumer(broker.name_server, group="")
    consumer = SyncLitePullConsumer(broker.name_server, group="errors")
    with pytest.raises(WrongUse, match="not started"):
        consumer.poll()
    consumer.close()
    consumer.close()
