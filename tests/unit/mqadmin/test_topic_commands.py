"""Topics made, shown and deleted, printed as RocketMQ's tools do."""

import asyncio
import json
import re

import pytest

from rocketlens import Message
from rocketlens.main import main
from rocketlens.mqadmin.topic_commands import update_topic
from rocketlens.net.channel import Response
from rocketlens.net.sync import LoopThread
from rocketlens.testing import cluster
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.group_world import group_world
from tests.unit.mqadmin.fake_tool import call

SUCCESS = "create topic to 10.0.0.1:10911 success.\n"
ORDER = "set cluster orderConf. isOrder=true, orderConf=[broker-a:4]"
CONFIG = (
    "TopicConfig [topicName=T, readQueueNums=8, writeQueueNums=4, perm=RW-, "
    "topicFilterType=SINGLE_TAG, topicSysFlag=0, order="
)
ON_A_BROKER = {"b": "10.0.0.1:10911"}
ORDERED_IN_A_CLUSTER = {"c": "DefaultCluster", "o": "true"}


@pytest.mark.parametrize(
    ("version", "options", "printed"),
    [
        ("4.9", ON_A_BROKER, f"{SUCCESS}{CONFIG}false]"),
        ("5.5", ON_A_BROKER, f"{SUCCESS}{CONFIG}false, attributes={{}}]\n"),
        ("4.9", ORDERED_IN_A_CLUSTER, f"{SUCCESS}{ORDER}{CONFIG}true]"),
        ("5.5", ORDERED_IN_A_CLUSTER, f"{SUCCESS}{ORDER}\n{CONFIG}true, attributes={{}}]\n"),
    ],
)
def test_what_was_asked_for_is_printed_with_the_line_ends_of_each_release(
    version, options, printed, capsys
):
    asyncio.run(update_topic(call(version, t="T", w="4", **options)))
    assert capsys.readouterr().out == printed


IN_THE_CLUSTER = ("-c", "DefaultCluster")


def test_a_topic_is_made_shown_and_deleted(mqadmin, rocketmq):
    made = mqadmin("updateTopic", *IN_THE_CLUSTER, "-t", "Shown", "-r", "3", "-w", "2")
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith(f"create topic to {rocketmq.broker} success.\n")
    assert "topicName=Shown, readQueueNums=3, writeQueueNums=2, perm=RW-" in made.out
    mqadmin("sendMessage", "-t", "Shown", "-p", "x", "-b", "broker-a", "-i", "1")

    route = mqadmin("topicRoute", "-t", "Shown")
    # Java writes the numbers of brokers as bare keys.
    parsed = json.loads(re.sub(r"(\d+):", r'"\1":', route.out.replace(rocketmq.broker, "ADDRESS")))
    [queues], [broker] = parsed["queueDatas"], parsed["brokerDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 2, 6)
    assert broker["brokerAddrs"] == {"0": "ADDRESS"}
    table = mqadmin("topicRoute", "-t", "Shown", "-l").out.splitlines()
    assert table[1].split() == [
        "DefaultCluster", "broker-a", f"{{0={rocketmq.broker}}}", "3", "2", "6"
    ]  # fmt: skip
    assert table[-1].split() == ["Total:", "1", "3", "2"]

    status = mqadmin("topicStatus", "-t", "Shown").out.splitlines()
    rows = [line.split()[:4] for line in status if line.startswith("broker-a")]
    ends = ("0", "1", "0")
    assert rows == [["broker-a", str(n), "0", end] for n, end in enumerate(ends)]
    assert "Shown" in mqadmin("topicList").out.splitlines()

    deleted = mqadmin("deleteTopic", *IN_THE_CLUSTER, "-t", "Shown")
    assert deleted.out == (
        "delete topic [Shown] from cluster [DefaultCluster] success.\n"
        "delete topic [Shown] from NameServer success.\n"
    )
    gone = mqadmin("topicRoute", "-t", "Shown")
    assert (gone.code, gone.out) == (2, "")
    assert "no name server knows a broker that has it" in gone.err


def test_topics_are_listed_with_their_cluster_and_without_those_of_groups(mqadmin, sent):
    assert mqadmin("updateSubGroup", *IN_THE_CLUSTER, "-g", "listed").code == 0
    done = mqadmin("topicList", "-c")
    assert (done.code, done.err) == (0, "")
    head, *rows = done.out.splitlines()
    assert head.split() == ["#Cluster", "Name", "#Topic", "#Consumer", "Group"]
    assert ["DefaultCluster", "T"] in [row.split()[:2] for row in rows]
    assert not [row for row in rows if "%RETRY%" in row]


def test_the_queues_of_ordered_topics_are_kept_when_one_broker_changes(mqadmin, rocketmq):
    words = ("-b", rocketmq.broker, "-t", "Ordered", "-o", "true", "-w")
    for count in ("4", "6"):
        done = mqadmin("updateTopic", *words, count)
        assert (done.code, done.err) == (0, "")
        said = f"set broker orderConf. isOrder=true, orderConf=[broker-a:{count}]\n"
        assert done.out.startswith(said)


@pytest.mark.parametrize(
    "words",
    [
        ("updateTopic", "-t", "T", "-b", "127.0.0.1:1"),
        ("updateTopic", "-t", "T", "-c", "Another"),
        ("deleteTopic", "-t", "T", "-c", "Another"),
        ("topicStatus", "-t", "Nowhere"),
    ],
)
def test_what_no_name_server_knows_is_an_error_in_one_line(mqadmin, sent, words):
    done = mqadmin(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert mqadmin("topicRoute", "-t", "T").code == 0


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
