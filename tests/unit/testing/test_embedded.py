"""The test kit and its pytest fixture, as other projects use them."""

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import rocketlens
from rocketlens.client.send.message import Message
from rocketlens.errors import BadInput, BrokerError, RemotingError, SendFailed, TopicNotFound
from rocketlens.testing import cluster


def test_a_message_is_found_as_soon_as_it_is_sent():
    with cluster() as running, running.producer() as producer, running.admin() as admin:
        for number in range(20):
            result = producer.send(Message("Orders", b"body", keys=f"ORDER-{number}"))
            (found,) = admin.query_message("Orders", f"ORDER-{number}")
            assert found.offset_msg_id == result.offset_msg_id


def test_two_clusters_know_nothing_of_each_other():
    with cluster() as one, cluster() as two:
        assert len({one.name_server, two.name_server, one.broker, two.broker}) == 4
        with one.producer() as producer, two.admin() as admin:
            producer.send(Message("Orders", b"body", keys="k"))
            with pytest.raises(TopicNotFound):
                admin.query_message("Orders", "k")


def test_it_listens_on_the_loopback_interface_only():
    with cluster() as running:
        assert running.name_server.startswith("127.0.0.1:")
        assert running.broker.startswith("127.0.0.1:")


def test_a_temporary_directory_is_deleted_and_a_given_one_stays(tmp_path):
    with cluster() as running:
        temporary = running.store
        assert temporary.is_dir()
    assert not temporary.parent.exists()
    with cluster(tmp_path) as running, running.producer() as producer:
        result = producer.send(Message("Orders", b"body"))
        assert running.store == tmp_path / "store"
    with rocketlens.open_store(tmp_path / "store") as store:
        assert store.view_message(result.msg_id).body == b"body"


@pytest.mark.parametrize("kind", [str, Path])
def test_the_directory_is_a_text_or_a_path(tmp_path, kind):
    with cluster(kind(tmp_path)) as running:
        assert running.store == tmp_path / "store"


def test_a_cluster_on_the_directory_of_another_finds_its_messages(tmp_path):
    with cluster(tmp_path) as first, first.producer() as producer:
        result = producer.send(Message("Orders", b"body"))
    with cluster(tmp_path) as second, second.admin() as admin:
        assert admin.view_message("Orders", result.msg_id).body == b"body"


def test_the_brokers_configuration_is_in_rocketmqs_keys():
    with cluster(autoCreateTopicEnable=False, brokerName="mine") as running:
        with running.producer() as producer, pytest.raises((TopicNotFound, BrokerError)):
            producer.send(Message("Orders", b"body"))
        with running.admin() as admin:
            admin.create_topic("Orders", 2)
            assert {queue.broker_name for queue in admin.message_queues("Orders")} == {"mine"}


@pytest.mark.parametrize(
    "conf", [{"nonsense": 1}, {"brokerId": "x"}, {"namesrvAddr": "a:1"}, {"storePathRootDir": "/x"}]
)
def test_a_configuration_that_cannot_be_is_refused_before_anything_starts(conf):
    with pytest.raises(BadInput, match=next(iter(conf))):
        cluster(**conf)


def test_index_files_are_built_when_asked_for(tmp_path):
    for build_index in (False, True):
        with cluster(tmp_path / str(build_index), build_index=build_index) as running:
            with running.producer() as producer:
                producer.send(Message("Orders", b"body", keys="k"))
            has_builder = "rocketlens-index" in {each.name for each in threading.enumerate()}
            assert has_builder == build_index


def test_a_broker_can_be_killed_and_is_missed():
    with cluster() as running, running.producer(retries=0) as producer:
        producer.send(Message("Orders", b"body"))
        running.kill_broker()
        with pytest.raises(SendFailed) as failed:
            producer.send(Message("Orders", b"body"))
        assert isinstance(failed.value.attempts[0][1], RemotingError)


def open_files():
    return len(list(Path("/dev/fd").iterdir()))


def test_nothing_is_left_running_or_open():
    with cluster():
        pass  # what is loaded and opened once only
    gc.collect()  # what other tests have not closed yet
    before = set(threading.enumerate()), open_files()
    with cluster() as running, running.producer() as producer:
        producer.send(Message("Orders", b"body"))
    assert (set(threading.enumerate()), open_files()) == before


def test_outside_of_with_it_says_that_it_does_not_run():
    made = cluster()
    for name in ("name_server", "broker", "store"):
        with pytest.raises(BadInput, match="is not running"):
            getattr(made, name)
    made.stop()


def test_a_cluster_that_runs_is_not_started_again():
    with cluster() as running:
        with pytest.raises(BadInput, match="already"):
            running.start()
        assert running.store.is_dir()


def test_a_port_that_is_taken_leaves_nothing_behind(tmp_path):
    with cluster() as running:
        taken = running.broker.partition(":")[2]
        before = set(threading.enumerate())
        with pytest.raises(OSError, match="in use"):
            cluster(tmp_path, listenPort=taken).start()
        assert set(threading.enumerate()) == before


def test_async_programs_use_it_with_async_clients():
    async def main():
        async with (
            cluster() as running,
            rocketlens.Producer(running.name_server) as producer,
            rocketlens.MQAdmin(running.name_server) as admin,
        ):
            result = await producer.send(Message("Orders", b"body"))
            return (await admin.view_message("Orders", result.msg_id)).body

    assert asyncio.run(main()) == b"body"


CONFTEST = """
from rocketlens.testing import cluster_fixture

pytest_plugins = ["rocketlens.testing.plugin"]
shared = cluster_fixture("session", autoCreateTopicEnable=False)
"""


def passes(directory, tests, count, conftest=CONFTEST):
    (directory / "conftest.py").write_text(conftest)
    (directory / "test_orders.py").write_text(textwrap.dedent(tests))
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "--strict-markers"]
    command = [sys.executable, "-W", "error", "-m", "pytest", *options, "."]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} passed" in done.stdout


def test_the_fixture_gives_each_test_a_cluster_of_its_own(tmp_path):
    tests = """
        import sys

        import pytest
        from rocketlens.client.send.message import Message

        def test_without_it_no_server_is_loaded():
            assert "rocketlens.broker.life.service" not in sys.modules

        @pytest.mark.parametrize("body", [b"one", b"two"])
        def test_with_it(rocketmq, body):
            with rocketmq.producer() as producer, rocketmq.admin() as admin:
                producer.send(Message("Orders", body, keys="k"))
                assert [each.body for each in admin.query_message("Orders", "k")] == [body]
    """
    passes(tmp_path, tests, 3, 'pytest_plugins = ["rocketlens.testing.plugin"]\n')


def test_a_mark_sets_keys_of_broker_conf_and_a_fixture_can_be_shared(tmp_path):
    tests = """
        import pytest
        from rocketlens import TopicNotFound

        pytestmark = pytest.mark.rocketmq(autoCreateTopicEnable=False, brokerName="of-the-module")
        seen = []

        def broker(cluster):
            with cluster.admin() as admin, pytest.raises(TopicNotFound):
                admin.message_queues("Orders")
            with cluster.admin() as admin:
                admin.create_topic("Other")
                return admin.message_queues("Other")[0].broker_name

        @pytest.mark.rocketmq(brokerName="of-the-test")
        def test_the_nearest_mark_counts(rocketmq):
            assert broker(rocketmq) == "of-the-test"

        def test_and_that_of_the_module_else(rocketmq):
            assert broker(rocketmq) == "of-the-module"

        @pytest.mark.parametrize("number", [1, 2])
        def test_tests_share_a_broker(shared, number):
            seen.append(shared.name_server)
            assert len(set(seen)) == 1
            assert broker(shared) == "broker-a"
    """
    passes(tmp_path, tests, 4)
