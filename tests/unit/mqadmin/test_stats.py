"""statsAll beside what the real tool prints, which `test_groups` compares."""

import pytest

from rocketlens import Message
from rocketlens.main import main
from rocketlens.net.channel import Response
from rocketlens.net.sync import LoopThread
from rocketlens.testing import cluster
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.group_world import group_world


@pytest.fixture
def world(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    thread = LoopThread()
    running = group_world()
    yield thread.run(running.__aenter__())
    thread.run(running.__aexit__(None, None, None))
    thread.close()


@pytest.mark.parametrize("request_code", ["VIEW_BROKER_STATS_DATA", "GET_CONSUME_STATS"])
def test_what_a_broker_refuses_to_count_is_not_printed_as_nothing(world, capsys, request_code):
    """The real tool prints 0 for it."""
    refused = Response(ResponseCode.NO_PERMISSION, remark="not you")
    (broker,) = world.masters
    broker.server.handlers[RequestCode[request_code]] = lambda *_: refused
    code = main(["mqadmin", "statsAll", "-n", world.name_servers[0].address, "-t", "T"])
    printed = capsys.readouterr()
    assert code == 3
    assert "not all was searched: T" in printed.err
    assert "not you" in printed.err
    assert printed.out.count("\n") == 9


def test_a_broker_of_ours_has_a_row_for_each_topic_and_group(run):
    with cluster() as running:
        with running.producer() as producer:
            for number in range(3):
                producer.send(Message("Orders", b"%d" % number))
        done = run("mqadmin", "statsAll", "-n", running.name_server, "-t", "Orders")
    assert (done.code, done.err) == (0, "")
    _, row = done.out.splitlines()
    assert row.split() == ["Orders", "0", "0.00", "0", "NO_CONSUMER"]
