"""The same clients for programs without an event loop."""

import asyncio
import subprocess
import sys
import threading

import pytest

import rocketlens
from rocketlens.client import Message, MessageQueue
from rocketlens.client.blocking.sync_admin import SyncMQAdmin
from rocketlens.client.blocking.sync_producer import SyncProducer
from rocketlens.errors import BadInput, MessageIllegal, MessageNotFound, WrongUse
from rocketlens.net.sync import LoopThread
from rocketlens.wire.recall_handle import RecallHandle
from tests.support.fake_cluster import running


@pytest.fixture
def cluster():
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


def test_everything_is_there_without_an_event_loop(cluster):
    with SyncProducer(cluster.given, group="g") as producer, SyncMQAdmin(cluster.given) as admin:
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


def test_async_sends_call_back(cluster):
    with SyncProducer(cluster.given) as producer:
        heard = []
        futures = [producer.send_async(Message("T", b"%d" % n)) for n in range(50)]
        for future in futures:
            future.add_done_callback(lambda done: heard.append(done.result().msg_id))
        assert sorted(future.result(10).msg_id for future in futures) == sorted(heard)
        failed = producer.send_async(Message("T", b""))
        assert isinstance(failed.exception(10), MessageIllegal)


def test_a_closed_client_says_so(cluster):
    producer = SyncProducer(cluster.given)
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
