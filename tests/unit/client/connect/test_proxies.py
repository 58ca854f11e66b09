"""What a proxy needs from clients, and what they say of it: one address for a name server and all
brokers.
"""

import pytest

from rocketlens.errors import BrokerError
from rocketlens.model.rocketmq import HEARTBEAT_TOPIC
from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.fake_cluster import ask

PASSED_ON = {
    RequestCode.PULL_MESSAGE,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_MAX_OFFSET,
}
UNSUPPORTED = Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="request type not supported")


def test_requests_about_a_queue_name_its_broker():
    async def scenario(cluster, admin):
        cluster.masters[1].store("T", b"a")
        queue = (await admin.source.topology.route("T")).value.read_queues[-1]
        await admin.find(topic="T", begin=1)
        await admin.search_offset(queue, 1)
        await admin.max_offset(queue)
        await admin.min_offset(queue)
        return cluster.masters[1].asked

    asked = [(code, header) for code, header in ask(scenario, masters=2) if code in PASSED_ON]
    assert {code for code, _ in asked} == PASSED_ON
    assert {header.broker_name for _, header in asked} == {"broker-b"}


def become_proxy(cluster):
    """Answer no more requests of name servers than a proxy does."""
    server = cluster.name_servers[0]
    server.topic_list = server.cluster = lambda *_: UNSUPPORTED


@pytest.mark.parametrize("question", ["topics", "groups", "brokers", "status"])
def test_a_proxy_that_is_given_as_a_name_server_is_called_one(question):
    async def scenario(cluster, admin):
        become_proxy(cluster)
        await getattr(admin, question)()

    with pytest.raises(BrokerError, match="this is a RocketMQ proxy"):
        ask(scenario)


def test_members_are_unknown_where_a_proxy_is_in_use():
    async def scenario(cluster, admin):
        cluster.name_servers[0].topics[HEARTBEAT_TOPIC] = ["broker-a"]
        cluster.name_servers[0].topics["%RETRY%g"] = ["broker-a"]
        return await admin.groups("g")

    answer = ask(scenario)
    (group,) = answer.groups
    assert group.members is None
    assert any("a proxy is in use" in (each.note or "") for each in answer.coverage)
