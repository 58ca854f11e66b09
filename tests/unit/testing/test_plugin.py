"""The pytest fixture, as other projects use it."""

import subprocess
import sys
import textwrap


def test_the_fixture_gives_each_test_a_cluster_of_its_own(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["rocketlens.testing.plugin"]\n')
    (tmp_path / "test_orders.py").write_text(
        textwrap.dedent("""
        import sys

        import pytest
        from rocketlens.client.message import Message

        def test_without_it_no_server_is_loaded():
            assert "rocketlens.broker.service" not in sys.modules

        @pytest.mark.parametrize("body", [b"one", b"two"])
        def test_with_it(rocketmq, body):
            with rocketmq.producer() as producer, rocketmq.admin() as admin:
                producer.send(Message("Orders", body, keys="k"))
                assert [each.body for each in admin.query_message("Orders", "k")] == [body]
        """)
    )
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    command = [sys.executable, "-W", "error", "-m", "pytest", *options, "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
