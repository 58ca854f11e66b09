"""The pytest fixture, as other projects use it."""

import subprocess
import sys
import textwrap

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
