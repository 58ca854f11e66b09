"""All name servers are asked, and what is in doubt is in the coverage.

What a proxy needs from clients, and what they say of it: one address for a name server and all
brokers.
"""

import asyncio
import threading

import pytest

from rocketlens.client.connect.broker_history import SeenBrokers
from rocketlens.client.connect.route import ROUTE_REFRESH_S
from rocketlens.errors import AnswerIncomplete, BrokerError, RemotingError, TopicNotFound
from rocketlens.model.rocketmq import HEARTBEAT_TOPIC
from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.fake_cluster import FAILURES, ask, bodies, fail, unregister
from tests.support.patience import PATIENCE_S


@within(ask)
async def test_a_topic_that_no_name_server_knows_is_not_an_empty_answer(cluster, admin, /):
    with pytest.raises(TopicNotFound, match="Nowhere"):
        await admin.query_message("Nowhere", "k")
    await fail(cluster.name_servers[0], "dead")
    with pytest.raises(RemotingError):
        await admin.query_message("T", "k")


@pytest.mark.parametrize("broker_id", [1, 2])
@within(ask, slaves=1)
async def test_a_slave_that_is_in_a_route_as_the_master_is_told_from_one(
    cluster, admin, /, broker_id
):
    (server,), (slave,) = cluster.name_servers, cluster.slaves
    slave.store("T", b"copy", keys="k")
    server.brokers["broker-a"] = {broker_id: slave}
    server.acting.add("broker-a")
    for answer in (await admin.query_message("T", "k"), await admin.find(topic="T")):
        assert bodies(answer) == [b"copy"]
        assert not answer.complete
        (covered,) = answer.coverage
        assert covered.error.startswith("its master is not registered")
        assert slave.address in covered.source


@within(ask, slaves=1)
async def test_a_master_that_can_only_be_read_is_a_master(cluster, admin, /):
    cluster.masters[0].store("T", b"m", keys="k")
    cluster.name_servers[0].acting.add("broker-a")
    answer = await admin.query_message("T", "k")
    assert bodies(answer) == [b"m"]
    assert answer.complete


def test_a_route_is_asked_for_again_after_30_s_and_kept_while_no_name_server_answers():
    now = [0.0]

    async def scenario(cluster, admin):
        server, broker = cluster.name_servers[0], cluster.masters[0]
        broker.store("T", b"m", keys="k")
        for _ in range(3):
            await admin.query_message("T", "k")
        assert len(server.asked) == 1
        now[0] = 30.0
        await admin.query_message("T", "k")
        assert len(server.asked) == 2
        await fail(server, "dead")
        now[0] = 61.0
        assert bodies(await admin.query_message("T", "k")) == [b"m"]

    ask(scenario, clock=lambda: now[0])


@pytest.mark.cluster(masters=2, name_servers=2)
async def test_brokers_and_topics_of_all_name_servers_are_asked(cluster, remembering):
    first, second = cluster.name_servers
    cluster.masters[1].store("T", b"there", keys="k")
    cluster.masters[1].store("Only", b"there", keys="k")
    first.brokers = {"broker-a": first.brokers["broker-a"]}
    first.topics = {"T": ["broker-a"]}
    second.topics["Only"] = ["broker-b"]
    async with remembering() as asking:
        for topic in ("T", "Only"):
            answer = await asking.query_message(topic, "k")
            assert [m.body for m in answer] == [b"there"]
            assert answer.complete
        with pytest.raises(TopicNotFound):
            await asking.query_message("Nowhere", "k")


@pytest.mark.cluster(name_servers=2)
async def test_a_topic_is_not_unknown_while_a_name_server_does_not_answer(cluster, remembering):
    cluster.masters[0].store("T", b"m", keys="k")
    await cluster.name_servers[0].die()
    async with remembering() as asking:
        with pytest.raises(RemotingError):
            await asking.query_message("Nowhere", "k")


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(None, marks=pytest.mark.cluster(masters=2, name_servers=count), id=f"{count}")
        for count in (2, 10)
    ],
    indirect=True,
)
@pytest.mark.parametrize("failing", FAILURES)
async def test_a_name_server_that_does_not_answer_may_know_brokers_that_others_do_not(
    cluster, remembering, failing
):
    first, *others = cluster.name_servers
    first.brokers = {"broker-a": first.brokers["broker-a"]}
    first.topics = {"T": ["broker-a"]}
    here = cluster.masters[0].store("T", b"here", keys="k")
    cluster.masters[1].store("T", b"there", keys="k")
    for each in others:
        await fail(each, failing)
    timeout_s = 0.5 if failing == "slow" else PATIENCE_S
    async with remembering(timeout_s=timeout_s) as asking:
        for text, topic in (("k", None), ("k", "T"), (None, "T"), ("no", None)):
            answer = await asking.find(text, topic)
            assert not answer.complete
            assert {each.source for each in answer.failures} == {
                f"name server {each.address}" for each in others
            }
        # An id needs no route: its broker has the record.
        assert (await asking.find(here.offset_msg_id)).complete


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.cluster(slaves=1)
async def test_a_slave_that_has_not_heard_of_a_topic_is_no_proof_that_there_is_none(
    cluster, remembering, remembers
):
    (server,) = cluster.name_servers
    del server.brokers["broker-a"][0]
    server.topics = {"Other": ["broker-a"]}
    async with remembering(**({} if remembers else {"seen_brokers": None})) as asking:
        for text in (None, "k", "T/0/0"):
            answer = await asking.find(text, "T")
            assert not answer.complete
            assert "its master is not registered" in answer.failures[0].error
        for messages in (asking.tail("T"), asking.scan("T")):
            assert [each async for each in messages] == []
            assert not messages.complete


@pytest.mark.parametrize("topic", [None, "Only", "Both"])
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.cluster(masters=2)
async def test_a_broker_that_ended_since_the_brokers_were_listed_is_missing(
    cluster, remembering, topic, is_known
):
    now = [0.0]

    for name in ("Both", "Only"):
        cluster.masters[1].store(name, b"there", keys="k")
    cluster.masters[0].store("Both", b"here", keys="k")
    (server,) = cluster.name_servers
    server.topics |= {"Both": ["broker-a", "broker-b"], "Only": ["broker-b"]}
    async with remembering(clock=lambda: now[0]) as asking:
        assert (await asking.find("k", "T" if not is_known else None)).complete
        now[0] += 1
        await cluster.masters[1].die()
        unregister(cluster, "broker-b")
        server.topics.pop("Only")
        if is_known:
            # Routes are asked for again, brokers are not yet.
            asking.source.topology._routes.clear()
        answer = await asking.find("k", topic)
        assert not answer.complete
        assert any("broker-b" in each.source for each in answer.failures), answer.failures


async def test_a_question_that_asks_no_name_server_does_not_ask_for_brokers_either(
    cluster, remembering
):
    (server,) = cluster.name_servers
    cluster.masters[0].store("T", b"m", keys="k")
    async with remembering() as asking:
        for _ in range(2):
            assert (await asking.find("k", "T", only_delivered=True)).complete
        asked = len(server.asked)
        assert (await asking.find("k", "T", only_delivered=True)).complete
        assert len(server.asked) == asked


async def test_a_stale_route_is_named(cluster, remembering):
    now = [0.0]

    cluster.masters[0].store("T", b"m", keys="k")
    async with remembering(seen_brokers=None, clock=lambda: now[0]) as asking:
        assert (await asking.query_message("T", "k")).complete
        await cluster.name_servers[0].die()
        assert (await asking.query_message("T", "k")).complete
        now[0] += ROUTE_REFRESH_S
        answer = await asking.query_message("T", "k")
        assert [m.body for m in answer] == [b"m"]
        assert not answer.complete
        assert "other brokers" in answer.failures[0].error


@pytest.mark.cluster(masters=2)
async def test_every_kind_of_refusal_makes_the_answer_incomplete(cluster, remembering):
    for code in (
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
    ):
        cluster.masters[1].err(code, "not now")
        async with remembering() as asking:
            answer = await asking.query_message("T", "k")
            assert not answer.complete
            assert "not now" in answer.failures[0].error


@pytest.mark.cluster(masters=2, slaves=1)
async def test_a_broker_without_an_address_and_a_master_that_is_not_registered_are_named(
    cluster, remembering
):
    (server,) = cluster.name_servers
    data = server.broker_data
    server.broker_data = lambda name: data("broker-a") if name == "broker-b" else data(name)
    async with remembering() as asking:
        answer = await asking.query_message("T", "k")
        assert [c.source for c in answer.failures] == ["broker-b"]
        assert "knows an address" in answer.failures[0].error
    server.broker_data = data
    del server.brokers["broker-a"][0]
    async with remembering() as asking:
        answer = await asking.query_message("T", "k")
        said = [c.error for c in answer.coverage if c.source.startswith("broker-a")]
        assert "its master is not registered" in said[0]


async def test_no_broker_at_all_is_no_complete_answer(cluster, remembering):
    (server,) = cluster.name_servers
    server.brokers, server.topics = {}, {"T": []}
    async with remembering() as asking:
        answer = await asking.query_message("T", "k")
        assert not answer.complete
        assert answer.failures[0].error == "no broker is registered"
        with pytest.raises(AnswerIncomplete, match="no broker is registered"):
            await asking.view_message("7F0000010000000100000000000000AB")


async def test_a_broker_that_registers_after_none_was_there_is_asked_at_once(cluster, remembering):
    (server,) = cluster.name_servers
    brokers, topics = server.brokers, server.topics
    server.brokers, server.topics = {}, {"T": []}
    async with remembering() as asking:
        assert (await asking.brokers()).failures[0].error == "no broker is registered"
        server.brokers, server.topics = brokers, topics
        assert (await asking.brokers()).complete


async def test_questions_at_once_ask_for_the_brokers_once_and_read_the_history_in_a_thread(
    cluster, remembering, monkeypatch
):
    threads = set()
    missing = SeenBrokers.missing

    def noted(*given):
        threads.add(threading.current_thread())
        return missing(*given)

    monkeypatch.setattr(SeenBrokers, "missing", noted)

    (server,) = cluster.name_servers
    server.topics = {f"T{number}": ["broker-a"] for number in range(16)}
    async with remembering() as asking:
        assert (await asking.find("k")).complete
        asking.source.topology._brokers = None
        await asyncio.gather(*(asking.source.topology.brokers() for _ in range(5)))
    assert server.codes().count(RequestCode.GET_BROKER_CLUSTER_INFO) == 3
    assert threading.main_thread() not in threads


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
