"""clusterList and updateTopic, printed as RocketMQ's tools do; rows are of Java's formatter."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketlens.client.route import Broker
from rocketlens.errors import AnswerIncomplete, CallTimeout
from rocketlens.mqadmin.cluster import cluster_list
from rocketlens.mqadmin.form import Form
from rocketlens.mqadmin.options import Given
from rocketlens.mqadmin.tool import Call
from rocketlens.mqadmin.topic import update_topic
from rocketlens.terminal.cluster_access import ClusterAccess
from rocketlens.wire.bodies.route import BrokerData, ClusterInfo

NOWHERE = ClusterAccess("127.0.0.1:9876")
FIGURES = {
    "brokerActive": "true",
    "brokerVersionDesc": "V5_5_0",
    "putTps": "1234.5678 12.0 1.0",
    "getTransferredTps": "0.125 0.0 ",
    "getTransferedTps": "0.125 0.0 ",
    "sendThreadPoolQueueSize": "3",
    "sendThreadPoolQueueHeadWaitTimeMills": "17",
    "pullThreadPoolQueueSize": "0",
    "pullThreadPoolQueueHeadWaitTimeMills": "0",
    "ackThreadPoolQueueSize": "0",
    "ackThreadPoolQueueHeadWaitTimeMills": "0",
    "pageCacheLockTimeMills": "0",
    "earliestMessageTimeStamp": "",
    "commitLogDiskRatio": "0.26",
    "timerReadBehind": "5",
    "timerOffsetBehind": "6",
    "timerCongestNum": "25000",
    "timerEnqueueTps": "1.25",
    "timerDequeueTps": "0.0",
    "msgPutTotalYesterdayMorning": "10",
    "msgPutTotalTodayMorning": "30",
    "msgPutTotalTodayNow": "35",
    "msgGetTotalYesterdayMorning": "0",
    "msgGetTotalTodayMorning": "7",
    "msgGetTotalTodayNow": "7",
}


def broker(name, addresses, cluster):
    return BrokerData(broker_name=name, broker_addrs=addresses, cluster=cluster)


BROKERS = ClusterInfo(
    broker_addr_table={
        "broker-b": broker("broker-b", {0: "10.0.0.3:10911"}, "DefaultCluster"),
        "broker-a": broker(
            "broker-a", {1: "10.0.0.2:10911", 0: "10.0.0.1:10911"}, "DefaultCluster"
        ),
        "a-broker-with-a-very-long-name": broker(
            "a-broker-with-a-very-long-name", {0: "[fd00:0:0:0:0:0:0:2]:10911"}, "Second"
        ),
    },
    cluster_addr_table={
        "Second": ("a-broker-with-a-very-long-name",),
        "DefaultCluster": ("broker-b", "broker-a"),
    },
)
DEAD = "10.0.0.3:10911"


class FakeCluster:
    """Answers with FIGURES, except for one broker; knows one master."""

    name_servers = ("127.0.0.1:9876",)

    def __init__(self):
        self.asked = []

    async def ask_for(self, made_of, body, address, command, header):
        self.asked.append((address, command, header))
        if address == DEAD:
            raise CallTimeout(address, "no answer in 5 s")
        return made_of(body(table=FIGURES))

    async def ask(self, address, command, header):
        self.asked.append((address, command, header))
        return SimpleNamespace(body=b"")

    async def all_brokers(self, _=None):
        return {"broker-a": Broker("broker-a", {0: "10.0.0.1:10911"})}


def call(version, **values):
    async def cluster_info():
        return BROKERS

    tool = SimpleNamespace(cluster=FakeCluster(), cluster_info=cluster_info)
    return Call(Given(values), Form(is_5=version == "5.5"), tool, NOWHERE)


def printed(name):
    return Path(__file__).with_name("printed").joinpath(f"{name}.txt").read_text()


@pytest.mark.parametrize("version", ["4.9", "5.5"])
def test_each_broker_has_a_row_and_one_that_is_gone_an_empty_one(version, capsys):
    for options, name in (({}, f"clusterList-{version}"), ({"m": None}, "clusterList-m")):
        with pytest.raises(AnswerIncomplete, match=DEAD):
            asyncio.run(cluster_list(call(version, **options)))
        assert capsys.readouterr().out == printed(name)


def test_one_cluster_may_be_listed_alone(capsys):
    asyncio.run(cluster_list(call("5.5", c="Second")))
    head, *rows = printed("clusterList-5.5").splitlines()
    assert capsys.readouterr().out.splitlines() == [head, rows[0]]


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
