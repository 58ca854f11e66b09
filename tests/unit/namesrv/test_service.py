"""A name server over the loopback interface."""

import asyncio
import json
import os
import signal
import threading
import zlib
from contextlib import asynccontextmanager

import pytest

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.namesrv import processors
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer, run
from rocketlens.net.pool import ClientPool
from rocketlens.wire.bodies.route import ClusterInfo, TopicRouteData
from rocketlens.wire.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
)
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.declare import read_body, write_body

BROKER = "127.0.0.1:10911"
TOPICS = ("TBW102", "T")
NAMES = {"brokerName": "broker-a", "brokerAddr": BROKER, "clusterName": "c", "brokerId": "0"}
REGISTER = {**NAMES, "haServerAddr": "127.0.0.1:10912"}


def registration(version=1):
    table = TopicConfigTable(
        data_version=DataVersion(counter=version),
        topic_config_table={each: TopicConfig(topic_name=each) for each in TOPICS},
    )
    return write_body(RegisterBrokerBody(topic_config_table=table))


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class Asking:
    """A name server, and a client of it."""

    def __init__(self, server, address, pool):
        self.server = server
        self.address = address
        self.pool = pool

    async def ask(self, code, body=b"", **fields):
        return await self.pool.call(self.address, code, fields, body)

    async def register(self, version=1, **fields):
        return await self.ask(103, registration(version), **REGISTER, **fields)


@asynccontextmanager
async def asking(clock=None, **config):
    server = NameServer(NameServerConfig(listenPort=0, **config), clock=clock or Clock())
    address = str(server.start())
    pool = ClientPool(lambda _: True)
    try:
        yield Asking(server, address, pool)
    finally:
        await pool.close()
        await server.stop()


def on_a_name_server(**config):
    """Run an async test with a name server."""

    def decorate(test):
        def plain(tmp_path):
            async def main():
                given = {
                    name: str(tmp_path / value) if name == "kvConfigPath" else value
                    for name, value in config.items()
                }
                async with asyncio.timeout(30), asking(**given) as name_server:
                    await test(name_server)

            asyncio.run(main())

        plain.__name__ = test.__name__
        return plain

    return decorate


@on_a_name_server()
async def test_a_broker_registers_and_its_topics_are_found(name_server):
    answer = await name_server.register()
    assert (answer.code, answer.remark, answer.body) == (0, None, b"")
    answer = await name_server.ask(105, topic="T")
    route = read_body(TopicRouteData, answer.body)
    assert [each.broker_addrs for each in route.broker_datas] == [{0: BROKER}]
    assert json.loads(answer.body)["brokerDatas"][0]["brokerAddrs"] == {"0": BROKER}
    answer = await name_server.ask(106)
    assert dict(read_body(ClusterInfo, answer.body).cluster_addr_table) == {"c": ("broker-a",)}
    assert json.loads((await name_server.ask(206)).body) == {"topicList": ["TBW102", "T"]}
    assert json.loads((await name_server.ask(224, cluster="c")).body)["topicList"] == [
        "TBW102",
        "T",
    ]
    assert json.loads((await name_server.ask(304)).body) == {
        "brokerAddr": BROKER,
        "topicList": ["c", "broker-a"],
    }


@on_a_name_server()
async def test_a_topic_without_a_route_is_answered_with_code_17_and_rocketmqs_words(name_server):
    answer = await name_server.ask(105, topic="nowhere")
    assert answer.code == 17
    assert answer.remark == (
        "No topic route info in name server for the topic: nowhere\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )
    answer = await name_server.ask(105)
    assert answer.code == 1
    assert "topic" in answer.remark


@on_a_name_server()
async def test_a_registration_whose_checksum_is_wrong_is_refused(name_server):
    right = zlib.crc32(registration()) & 0x7FFFFFFF
    answer = await name_server.register(bodyCrc32=str(right + 1))
    assert (answer.code, answer.remark) == (1, "crc32 not match")
    assert (await name_server.register(bodyCrc32=str(right))).code == 0


@on_a_name_server()
async def test_a_registration_that_is_no_json_is_refused_and_the_connection_goes_on(name_server):
    answer = await name_server.ask(103, b"{nonsense", **REGISTER)
    assert answer.code == 1
    answer = await name_server.ask(103, b'{"topicConfigSerializeWrapper":3}', **REGISTER)
    assert answer.code == 1
    assert (await name_server.register()).code == 0


@on_a_name_server()
async def test_an_unknown_broker_with_one_topic_is_told_so(name_server):
    one = {"topicConfigSerializeWrapper": {"topicConfigTable": {"T": {"topicName": "T"}}}}
    answer = await name_server.ask(103, json.dumps(one).encode(), **REGISTER)
    assert (answer.code, answer.remark) == (1, "register broker failed")


@on_a_name_server()
async def test_unregistering_forgets_a_broker(name_server):
    await name_server.register()
    assert (await name_server.ask(104, **NAMES)).code == 0
    assert (await name_server.ask(105, topic="T")).code == 17


@on_a_name_server()
async def test_the_version_of_a_brokers_topics_is_known(name_server):
    version = write_body(DataVersion(counter=1))
    answer = await name_server.ask(322, version, **NAMES)
    assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")
    await name_server.register()
    answer = await name_server.ask(322, version, **NAMES)
    assert answer.ext_fields == {"changed": "false"}
    assert read_body(DataVersion, answer.body) == DataVersion(counter=1)
    answer = await name_server.ask(322, write_body(DataVersion(counter=2)), **NAMES)
    assert answer.ext_fields == {"changed": "true"}


@on_a_name_server()
async def test_brokers_of_one_name_are_listed(name_server):
    await name_server.register()
    answer = await name_server.ask(901, clusterName="c", brokerName="broker-a")
    assert json.loads(answer.body) == {
        "brokerMemberGroup": {
            "brokerAddrs": {"0": BROKER},
            "brokerName": "broker-a",
            "cluster": "c",
        }
    }


@on_a_name_server()
async def test_topics_are_taken_in_deleted_and_closed_for_writing_one_by_one(name_server):
    await name_server.register()
    route = write_body(read_body(TopicRouteData, (await name_server.ask(105, topic="T")).body))
    assert (await name_server.ask(217, route, topic="U")).code == 0
    assert (await name_server.ask(105, topic="U")).body == route
    assert (await name_server.ask(216, topic="U", clusterName="c")).code == 0
    assert (await name_server.ask(105, topic="U")).code == 17
    answer = await name_server.ask(205, brokerName="broker-a")
    assert answer.ext_fields == {"wipeTopicCount": "2"}
    answer = await name_server.ask(327, brokerName="broker-a")
    assert answer.ext_fields == {"addTopicCount": "2"}
    for code in (311, 312, 313):
        assert json.loads((await name_server.ask(code)).body) == {"topicList": []}


@on_a_name_server()
async def test_many_topics_are_listed_whole_and_too_many_for_an_answer_are_refused(name_server):
    await name_server.register()
    route = await name_server.ask(105, topic=TOPICS[0])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "MAX_LISTED_AT_ONCE", 1)
        for code, fields in ((206, {}), (224, {"cluster": "c"})):
            answer = await name_server.ask(code, **fields)
            assert sorted(json.loads(answer.body)["topicList"]) == sorted(TOPICS)
        assert json.loads((await name_server.ask(311)).body)["topicList"] == []
        patched.setattr(limits, "MAX_LISTED_AT_ONCE", 0)
        assert (await name_server.ask(105, topic=TOPICS[0])).body == route.body
        patched.setattr(limits, "MAX_ANSWER_FRAME_BYTES", 10)
        refused = await name_server.ask(206)
        assert refused.code == 1
        assert "have over 10 bytes" in refused.remark


@on_a_name_server(kvConfigPath="kv.json", orderMessageEnable=True)
async def test_values_are_kept_and_the_order_of_topics_reaches_brokers_and_routes(name_server):
    answer = await name_server.ask(101, namespace="ns", key="k")
    assert (answer.code, answer.remark) == (22, "No config item, Namespace: ns Key: k")
    answer = await name_server.ask(219, namespace="ns")
    assert (answer.code, answer.remark) == (22, "No config item, Namespace: ns")
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    assert (await name_server.ask(100, **order, value="broker-a:4")).code == 0
    assert (await name_server.ask(101, **order)).ext_fields == {"value": "broker-a:4"}
    answer = await name_server.ask(219, namespace="ORDER_TOPIC_CONFIG")
    assert json.loads(answer.body) == {"table": {"T": "broker-a:4"}}
    assert json.loads((await name_server.register()).body) == {"table": {"T": "broker-a:4"}}
    answer = await name_server.ask(105, topic="T")
    assert json.loads(answer.body)["orderTopicConf"] == "broker-a:4"
    assert (await name_server.ask(102, **order)).code == 0
    assert (await name_server.ask(101, **order)).code == 22


@on_a_name_server()
async def test_the_configuration_is_told_and_not_changed_from_afar(name_server):
    answer = await name_server.ask(319)
    assert b"listenPort=0\n" in answer.body
    answer = await name_server.ask(318, b"kvConfigPath=/etc/passwd\n")
    assert (answer.code, answer.remark) == (16, "Can not update config in black list.")


@on_a_name_server()
async def test_what_a_name_server_does_not_do_is_refused(name_server):
    for code in (RequestCode.SEND_MESSAGE_V2, 424242):
        answer = await name_server.ask(code)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_a_broker_is_dropped_with_its_connection_or_when_it_is_silent():
    async def main():
        clock = Clock()
        async with asyncio.timeout(30), asking(clock) as broker:
            client = Asking(broker.server, broker.address, ClientPool(lambda _: True))
            await broker.register()
            clock.now_s = 100.0
            assert (await broker.ask(904, **NAMES)).code == 0
            clock.now_s = 220.0
            broker.server.sweep()
            assert (await client.ask(105, topic="T")).code == 0
            clock.now_s = 221.0
            broker.server.sweep()
            assert (await client.ask(105, topic="T")).code == 17
            # Its connection was closed, too. It comes back with another, and goes.
            broker.pool.forget(broker.address)
            await broker.register()
            assert (await client.ask(105, topic="T")).code == 0
            broker.pool.forget(broker.address)
            while (await client.ask(105, topic="T")).code == 0:
                pass
            await client.pool.close()

    asyncio.run(main())


def test_two_name_servers_on_one_port_is_an_error_that_names_it():
    async def main():
        async with asking() as name_server:
            port = int(name_server.address.rpartition(":")[2])
            with pytest.raises(BadInput, match=f"cannot listen on 127.0.0.1:{port}"):
                NameServer(NameServerConfig(listenPort=port)).start()

    asyncio.run(main())


def test_rocketmqs_keys_are_taken_and_unknown_ones_given_back():
    config, left = NameServerConfig.from_properties(
        {
            "listenPort": "9877",
            "kvConfigPath": "/var/kv.json",
            "orderMessageEnable": "true",
            "clusterTest": "false",
        }
    )
    assert (config.listenPort, str(config.kv_config_path)) == (9877, "/var/kv.json")
    assert config.orderMessageEnable
    assert config.bindAddress == "127.0.0.1"
    assert left == {"clusterTest": "false"}
    for wrong in ({"listenPort": "65536"}, {"listenPort": "x"}, {"orderMessageEnable": "yes"}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            NameServerConfig.from_properties(wrong)


@pytest.mark.usefixtures("takes_hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_runs_until_a_signal_and_frees_its_port(number):
    async def main():
        bound = []

        def ready(address):
            bound.append(address)
            os.kill(os.getpid(), number)

        async with asyncio.timeout(30):
            await run(NameServerConfig(listenPort=0), ready=ready)
        again = NameServer(NameServerConfig(listenPort=bound[0].port))
        again.start()
        await again.stop()

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 1000, 20_000])
def test_a_topic_is_registered_off_the_loop_where_its_route_is_long_and_refused_over_1_mib(
    count, monkeypatch
):
    queue = '{"brokerName":"b%d","perm":6,"readQueueNums":8,"writeQueueNums":8,"topicSysFlag":0}'
    body = (
        f'{{"brokerDatas":[],"queueDatas":[{",".join(queue % n for n in range(count))}]}}'.encode()
    )
    threads = set()

    def parse(content):
        threads.add(threading.current_thread())
        return route_in(content)

    route_in = processors._route_in
    monkeypatch.setattr(processors, "_route_in", parse)

    async def main():
        server = NameServer(NameServerConfig(listenPort=0))
        address = str(server.start())
        pool = ClientPool(lambda _: True)
        try:
            answer = await pool.call(address, 217, {"topic": "T"}, body)
            assert (answer.code == 0) == (len(body) <= 1024 * 1024), answer.remark
        finally:
            await pool.close()
            await server.stop()

    asyncio.run(main())
    assert (threads == {threading.current_thread()}) == (count == 1)
