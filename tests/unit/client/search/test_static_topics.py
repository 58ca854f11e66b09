"""Static topics of a cluster: a queue that was moved from one broker to another."""

import pytest
from msgspec.structs import replace

from rocketlens.net.channel import Response
from rocketlens.wire.bodies.tables import TopicConfig, TopicRouteData
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.declare import read_body, write_body
from tests.support.async_tests import within
from tests.support.fake_cluster import ask
from tests.unit.query.test_static_topics import BOTH, positions

OLD, NEW = BOTH
TOLD = [*(f"st/0/{n}" for n in range(5)), *(f"st/0/{10_000 + n}" for n in range(5))]


def moved(cluster, refusing=""):
    """Store five messages on each broker of the topic that is registered."""
    [name_server] = cluster.name_servers
    name_server.topics = {"st": [each.name for each in cluster.masters]}
    plain = name_server.route

    def route(header, command):
        answer = plain(header, command)
        if header.topic != "st":
            return answer
        mappings = {each.broker_name: replace(each, hosted_queues={}) for each in BOTH}
        body = read_body(TopicRouteData, answer.body)
        return Response(body=write_body(replace(body, topic_queue_mapping_by_broker=mappings)))

    name_server.route = route
    name_server.server.handlers.update(name_server.handlers())
    for broker in cluster.masters:
        [mapping] = [each for each in BOTH if each.broker_name == broker.name]
        for number in range(5):
            key = f"{broker.name}-{number}"
            broker.store("st", keys=key, unique_key=f"U{key}")

        def config(*_, name=broker.name, mapping=mapping):
            if name == refusing:
                return Response(ResponseCode.NO_PERMISSION, remark="not for you")
            return Response(body=write_body(TopicConfig(topic_name="st", mapping_detail=mapping)))

        broker.topic_config = config
        broker.server.handlers.update(broker.handlers())


@within(ask, masters=2)
async def test_positions_are_those_of_the_logical_queue(cluster, admin, /):
    moved(cluster)
    whole = await admin.find(topic="st")
    assert (sorted(positions(whole.messages)), whole.complete) == (sorted(TOLD), True)
    for number, told in enumerate(TOLD):
        key = f"{cluster.masters[number // 5].name}-{number % 5}"
        for text in (told, key, f"U{key}"):
            answer = await admin.find(text)
            assert (positions(answer.messages), answer.complete) == ([told], True)
        assert positions((await admin.find(answer.messages[0].offset_msg_id)).messages) == [told]
    for nowhere in ("st/0/5", "st/0/10005", "st/9/0"):
        answer = await admin.find(nowhere)
        assert (answer.messages, answer.complete) == ((), True)


@within(ask, masters=1)
async def test_a_broker_of_the_mapping_that_is_away_is_named(cluster, admin, /):
    cluster.masters[0].name = NEW.broker_name
    [name_server] = cluster.name_servers
    name_server.brokers = {NEW.broker_name: {0: cluster.masters[0]}}
    moved(cluster)
    for text in (None, "st/0/10003", "st/0/3"):
        answer = await admin.find(text, topic=None if text else "st")
        assert [each.source for each in answer.failures] == [OLD.broker_name]
        assert "no name server knows it, and it has messages of st" in answer.failures[0].error
        assert len(answer.messages) == {None: 5, "st/0/10003": 1, "st/0/3": 0}[text]
        assert set(positions(answer.messages)) <= set(TOLD[5:])


@pytest.mark.parametrize("refusing", ["broker-a", "broker-b"])
@within(ask, masters=2)
async def test_a_mapping_that_a_broker_does_not_tell_makes_the_answer_incomplete(
    cluster, admin, /, refusing
):
    moved(cluster, refusing)
    answer = await admin.find(topic="st")
    assert len(answer.messages) == 10
    [failure] = answer.failures
    assert failure.source == refusing
    assert "not for you" in failure.error
