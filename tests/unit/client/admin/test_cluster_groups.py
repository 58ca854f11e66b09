"""Producers of a cluster, each once however many brokers know it; consumers: cli/test_groups."""

import json

from rocketlens.client.send.message import Message
from rocketlens.net.channel import Response
from rocketlens.testing import cluster as embedded
from rocketlens.wire.bodies.tables import SubscriptionGroupConfig, SubscriptionGroupTable
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.fake_cluster import ask, fail
from tests.unit.client.admin.test_group_calls import answer


def table_of(**groups):
    table = {
        group: [
            {"clientId": each, "remoteIP": "10.0.0.1:5", "language": "JAVA", "version": 477}
            for each in members
        ]
        for group, members in groups.items()
    }
    return Response(body=json.dumps({"data": table}).encode())


def test_a_producer_that_has_sent_is_listed_with_its_group(tmp_path):
    with (
        embedded(tmp_path / "rocketmq") as running,
        running.admin() as admin,
        running.producer(group="payers") as producer,
    ):
        producer.send(Message("Orders", "1"))
        found = admin.producers()
    assert found.complete
    (group,) = [each for each in found.groups if each.name == "payers"]
    (client,) = group.members
    assert client.client_id
    assert client.address.startswith("127.0.0.1:")


def test_a_client_that_several_brokers_know_is_listed_once():
    async def scenario(cluster, admin):
        cluster.masters[0].fails_with = table_of(payers=["a", "b"], other=["c"])
        cluster.masters[1].fails_with = table_of(payers=["b"])
        found = await admin.producers()
        return found, [each.codes() for each in cluster.masters]

    found, codes = ask(scenario, masters=2)
    members = {each.name: [one.client_id for one in each.members] for each in found.groups}
    assert members == {"other": ["c"], "payers": ["a", "b"]}
    assert found.complete
    assert codes == [[RequestCode.GET_ALL_PRODUCER_INFO]] * 2


def test_a_broker_that_does_not_know_the_request_makes_the_list_incomplete():
    async def scenario(cluster, admin):
        cluster.masters[0].fails_with = table_of(payers=["a"])
        await fail(cluster.masters[1], "erring")
        return await admin.producers()

    found = ask(scenario, masters=2)
    assert not found.complete
    assert [each.name for each in found.groups] == ["payers"]


def test_a_slave_does_not_answer_for_its_master():
    async def scenario(cluster, admin):
        await fail(cluster.masters[0], "dead")
        return await admin.producers()

    assert not ask(scenario, slaves=1, timeout_s=1).complete


def test_retry_topics_of_pop_are_of_known_groups_and_no_groups_themselves():
    names = ("a", "a_b", "CID_RMQ_SYS_REVIVE_GROUP", "CID_DefaultHeartBeatSyncerTopic")
    topics = ("T", "b_T", "%RETRY%a_b_T", "%RETRY%a+T", "%RETRY%lonely")

    async def scenario(cluster, admin):
        (broker,) = cluster.masters
        for server in cluster.name_servers:
            server.topics.update({each: [broker.name] for each in topics})
        configs = {each: SubscriptionGroupConfig(group_name=each) for each in names}
        table = write_body(SubscriptionGroupTable(subscription_group_table=configs))
        answer(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Response(body=table))
        nothing = Response(ResponseCode.CONSUMER_NOT_ONLINE, remark="none")
        for code in (RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_CONSUME_STATS):
            answer(broker, code, nothing)
        for each in topics[2:]:
            broker.store(each, b"x")
        return await admin.groups()

    found = ask(scenario, timeout_s=60)
    assert {each.name: each.to_retry for each in found.groups} == {"a": 2, "a_b": 1, "lonely": 1}
    notes = [each.note for each in found.coverage if each.note]
    assert any(each.startswith("%RETRY%a_b_T can be the retry topic of each of") for each in notes)
