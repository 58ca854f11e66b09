"""What a name server answers, request by request."""

import asyncio
import json
import threading
import zlib

import pytest

from rocketlens import limits
from rocketlens.namesrv import processors
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer
from rocketlens.net.pool import ClientPool
from rocketlens.wire.bodies.tables import ClusterInfo, DataVersion, TopicRouteData
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.declare import read_body, write_body
from tests.unit.namesrv.name_server_world import (
    BROKER,
    NAMES,
    REGISTER,
    TOPICS,
    asking,
    on_a_name_server,
    registration,
)


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
        patched.setattr("rocketlens.namesrv.processors.MAX_LISTED_AT_ONCE", 1)
        for code, fields in ((206, {}), (224, {"cluster": "c"})):
            answer = await name_server.ask(code, **fields)
            assert sorted(json.loads(answer.body)["topicList"]) == sorted(TOPICS)
        assert json.loads((await name_server.ask(311)).body)["topicList"] == []
        patched.setattr("rocketlens.namesrv.processors.MAX_LISTED_AT_ONCE", 0)
        assert (await name_server.ask(105, topic=TOPICS[0])).body == route.body
        patched.setattr(limits, "MAX_ANSWER_FRAME_BYTES", 10)
        refused = await name_server.ask(206)
        assert refused.code == 1
        assert "exceed 10 bytes" in refused.remark


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


@pytest.mark.parametrize("count", [1, 1000, 20_000])
def test_a_topic_is_registered_off_the_loop_where_its_route_is_long_and_refused_over_1_mib(
    count, monkeypatch
):
    queue = '{"brokerName":"b%d","perm":6,"readQueueNums":8,"writeQueueNums":8,"topicSysFlag":0}'
    body = (
        f'{{"brokerDatas":[],"queueDatas":[{",".join(queue % n for n in range(count))}]}}'.encode()
    )
    threads = set()

    def parse(*given):
        threads.add(threading.current_thread())
        return read_body(*given)

    read_body = processors.read_body
    monkeypatch.setattr(processors, "read_body", parse)

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


@pytest.mark.parametrize("count", [2, 1000])
async def test_a_broker_with_many_topics_is_parsed_off_the_loop(count, monkeypatch):
    threads = set()
    decode = processors.bodies.decode_registration

    def parse(*arguments, **options):
        threads.add(threading.current_thread())
        return decode(*arguments, **options)

    monkeypatch.setattr(processors.bodies, "decode_registration", parse)
    async with asking() as name_server:
        topics = {f"T{n}": {"topicName": f"T{n}", "perm": 6} for n in range(count)}
        wrapper = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": topics}
        body = json.dumps({"topicConfigSerializeWrapper": wrapper}).encode()
        answer = await name_server.ask(103, body, **(REGISTER | {"bodyCrc32": "0"}))
        assert answer.code == 0, answer.remark
        assert len(json.loads((await name_server.ask(206)).body)["topicList"]) == count
        assert (threads == {threading.current_thread()}) == (count == 2)
