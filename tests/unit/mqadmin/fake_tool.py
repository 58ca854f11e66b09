"""Calls of commands to a cluster of three brokers that answer with fixed figures."""

from types import SimpleNamespace

from rocketlens.client.connect.route import Broker
from rocketlens.errors import CallTimeout
from rocketlens.mqadmin.command_line import Given
from rocketlens.mqadmin.printing.form import Form
from rocketlens.mqadmin.tool import Call
from rocketlens.terminal.cluster_access import ClusterAccess
from rocketlens.wire.bodies.tables import BrokerData, ClusterInfo

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

    async def ask_for(self, body, address, command, header):
        self.asked.append((address, command, header))
        if address == DEAD:
            raise CallTimeout(address, "no answer in 5 s")
        return body(table=FIGURES)

    async def ask(self, address, command, header):
        self.asked.append((address, command, header))
        return SimpleNamespace(body=b"")

    async def ask_name_servers_for(self, *_):
        return BROKERS

    async def all_brokers(self, _=None):
        return {"broker-a": Broker("broker-a", {0: "10.0.0.1:10911"})}


def call(version, **values):
    admin = SimpleNamespace(source=SimpleNamespace(cluster=FakeCluster()))
    return Call(Given(values), Form(is_5=version == "5.5"), admin, NOWHERE)
