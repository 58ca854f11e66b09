"""The topics of a cluster, and what cannot be learnt about them.

How a topic is configured on brokers of RocketMQ 5 and 4, and how many messages came lately.
"""

import asyncio

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens import MQAdmin
from rocketlens.client.admin.cluster_topics import (
    MAX_COUNT_REQUESTS,
    find_topic_settings,
    stored_since,
)
from rocketlens.client.send.message import Message
from rocketlens.errors import RemotingError, TopicNotFound
from rocketlens.model.topic import TopicSettings
from rocketlens.testing import cluster as embedded
from rocketlens.wire.codes import ResponseCode
from tests.support.async_tests import within
from tests.support.fake_cluster import T0, ask, fail
from tests.support.patience import SILENCE_S


def offsets(topic):
    return [
        (each.broker_name, each.queue_id, each.min_offset, each.max_offset) for each in topic.queues
    ]


def test_each_queue_of_each_broker_has_its_messages_and_times():
    async def scenario(cluster, admin):
        first = cluster.masters[0].store("T", queue_id=1)
        cluster.masters[0].store("T", queue_id=1)
        last = cluster.masters[1].store("T", queue_id=0)
        answer = await admin.topics()
        return answer, first.store_timestamp_ms, last.store_timestamp_ms

    answer, oldest_ms, newest_ms = ask(scenario, masters=2)
    [topic] = answer.topics
    assert answer.complete
    filled = [each for each in offsets(topic) if each[3]]
    assert filled == [("broker-a", 1, 0, 2), ("broker-b", 0, 0, 1)]
    assert (topic.messages, topic.size_bytes) == (3, None)
    assert (topic.oldest_ms, topic.newest_ms) == (oldest_ms, max(newest_ms, topic.newest_ms))


@pytest.mark.parametrize("patterns", [("T",), ()])
def test_messages_of_queues_that_a_topic_has_no_more_make_its_counts_incomplete(patterns):
    async def scenario(cluster, admin):
        for queue_id in (0, 1, 1):
            cluster.masters[0].store("T", queue_id=queue_id)
        cluster.name_servers[0].queue_data["T"] = {"read_queue_nums": 1, "write_queue_nums": 1}
        return await admin.topics(*patterns)

    answer = ask(scenario)
    assert not answer.complete
    assert any(
        "T/1: 2 messages cannot be read: the topic has fewer queues" in (each.error or "")
        for each in answer.coverage
    )


def test_a_cluster_and_its_store_have_the_same_topics(tmp_path):
    with (
        embedded(tmp_path / "rocketmq") as running,
        running.admin() as admin,
        running.producer() as producer,
    ):
        for number in range(7):
            producer.send(Message("Orders" if number % 3 else "Invoices", f"{number}"))
        of_cluster = admin.topics(["Orders", "Inv*"])
        with rocketlens.open_store(running.store) as store:
            of_store = store.topics(["Orders", "Inv*"])
    assert of_cluster.complete
    assert [(each.name, each.messages) for each in of_cluster.topics] == [
        ("Invoices", 3),
        ("Orders", 4),
    ]
    for one, other in zip(of_cluster.topics, of_store.topics, strict=True):
        assert (one.name, one.messages, one.oldest_ms, one.newest_ms, len(one.queues)) == (
            other.name,
            other.messages,
            other.oldest_ms,
            other.newest_ms,
            len(other.queues),
        )
        assert other.size_bytes > 0


@pytest.mark.parametrize("how", ["dead", "slow", "erring"])
def test_a_broker_that_does_not_answer_makes_its_topics_unknown(how):
    async def scenario(cluster, admin):
        cluster.masters[0].store("T")
        cluster.masters[1].store("Other")
        for server in cluster.name_servers:
            server.topics["Other"] = ["broker-b"]
        await fail(cluster.masters[0], how)
        return await admin.topics()

    answer = ask(scenario, masters=2, timeout_s=SILENCE_S)
    assert not answer.complete
    assert [(each.name, each.messages) for each in answer.topics] == [("Other", 1), ("T", None)]
    assert [each.source for each in answer.coverage if each.is_failure] == ["broker-a"]


def test_a_broker_that_no_longer_has_the_topic_has_no_queues_of_it():
    async def scenario(cluster, admin):
        cluster.masters[1].store("T")
        cluster.masters[0].err(ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist")
        return await admin.topics()

    answer = ask(scenario, masters=2)
    assert answer.complete
    [topic] = answer.topics
    assert {each.broker_name for each in topic.queues} == {"broker-b"}


@within(ask)
async def test_a_topic_that_no_name_server_has_is_refused(unused, admin, /):
    with pytest.raises(TopicNotFound, match="this cluster has no topic 't'; did you mean T"):
        await admin.topics("t")
    with pytest.raises(TopicNotFound, match=r"no topic matches 'x[*]'"):
        await admin.topics(["T", "x*"])


@within(ask, name_servers=2)
async def test_a_topic_that_a_silent_name_server_may_have_is_not_said_to_be_none(cluster, admin, /):
    await cluster.name_servers[1].die()
    answer = await admin.topics(["T", "Unknown"])
    assert [each.name for each in answer.topics] == ["T"]
    assert not answer.complete
    assert not (await admin.topics("T")).complete


@within(ask)
async def test_without_any_name_server_there_is_no_answer(cluster, admin, /):
    await cluster.name_servers[0].die()
    with pytest.raises(RemotingError):
        await admin.topics()


@within(ask, namespace="shop")
async def test_only_the_topics_of_the_namespace_are_listed_by_their_short_names(cluster, admin, /):
    for server in cluster.name_servers:
        server.topics = {"shop%Orders": ["broker-a"], "Orders": ["broker-a"]}
    cluster.masters[0].store("shop%Orders")
    [topic] = (await admin.topics()).topics
    assert (topic.name, topic.messages) == ("Orders", 1)


async def test_a_bounded_number_of_topics_is_asked_for_at_once(cluster, admin, monkeypatch):
    monkeypatch.setattr("rocketlens.client.connect.cluster.MAX_MESSAGE_ANSWERS", 2)
    monkeypatch.setattr("rocketlens.client.search.topic_tail.MAX_MESSAGE_ANSWERS", 2)
    monkeypatch.setattr("rocketlens.client.admin.cluster_groups.MAX_MESSAGE_ANSWERS", 2)
    monkeypatch.setattr("rocketlens.client.search.queue_stretch.MAX_MESSAGE_ANSWERS", 2)
    monkeypatch.setattr("rocketlens.client.cluster_story.MAX_MESSAGE_ANSWERS", 2)
    monkeypatch.setattr("rocketlens.client.search.queue_read.MAX_MESSAGE_ANSWERS", 2)
    monkeypatch.setattr("rocketlens.client.admin.cluster_topics.MAX_MESSAGE_ANSWERS", 2)
    for server in cluster.name_servers:
        server.topics = {f"T{number}": ["broker-a"] for number in range(20)}
    assert len((await admin.topics()).topics) == 20


def settings_of(prepare=None, **options):
    """Give the settings of the topic T."""

    async def scenario(cluster, admin):
        if prepare is not None:
            await prepare(cluster)
        return await find_topic_settings(admin.source.cluster, "T")

    return ask(scenario, **options)


def test_a_broker_of_rocketmq_4_tells_by_the_route_and_that_is_no_error():
    found = settings_of(masters=2)
    assert [(each.broker_name, each.perm, each.error) for each in found] == [
        ("broker-a", 6, None),
        ("broker-b", 6, None),
    ]
    assert {(each.is_ordered, each.attributes) for each in found} == {(None, None)}


def test_a_broker_that_fails_is_named_with_the_reason_and_what_the_route_says():
    async def end(cluster):
        await fail(cluster.masters[0], "dead")

    [found] = settings_of(end)
    assert (found.perm, found.read_queues) == (6, 4)
    assert "127.0.0.1" in found.error


def test_a_topic_that_no_name_server_knows_is_not_found():
    async def scenario(_, admin):
        await find_topic_settings(admin.source.cluster, "Nope")

    with pytest.raises(TopicNotFound, match="Nope"):
        ask(scenario)


def test_a_broker_of_rocketmq_5_tells_its_whole_configuration():
    async def scenario(name_server):
        async with MQAdmin(name_server) as admin:
            await admin.create_topic("Orders", 3, perm=2, order=True)
            return await find_topic_settings(admin.source.cluster, "Orders")

    with embedded() as running:
        [found] = asyncio.run(scenario(running.name_server))
    name = found.broker_name
    assert found == TopicSettings(name, 2, 3, 3, is_ordered=True, attributes={})


def counts(scenario_of, **options):
    async def scenario(cluster, admin):
        stored = [cluster.masters[0].store("T", queue_id=n % 2) for n in range(6)]
        [topic] = (await admin.topics("T")).topics
        return await scenario_of(cluster, admin, topic.queues, stored)

    return ask(scenario, **options)


def test_messages_since_a_time_are_counted_queue_by_queue():
    async def count(_, admin, queues, stored):
        calls = admin.source.cluster
        times = [stored[0].store_timestamp_ms, stored[4].store_timestamp_ms, T0 * 2]
        return await stored_since(calls, "T", queues, times)

    assert counts(count) == [6, 2, 0]


def test_messages_since_a_time_are_not_known_if_a_broker_fails_or_there_are_too_many():
    async def count(cluster, admin, queues, stored):
        calls, since_ms = admin.source.cluster, [stored[0].store_timestamp_ms]
        too_many = await stored_since(calls, "T", queues, since_ms * MAX_COUNT_REQUESTS)
        cluster.masters[0].err(ResponseCode.SYSTEM_BUSY)
        return too_many, await stored_since(calls, "T", queues, since_ms)

    assert counts(count) == (None, None)


def test_a_queue_without_new_messages_is_not_asked_because_rocketmq_4_answers_with_its_last_one():
    async def count(cluster, admin, queues, stored):
        old = tuple(replace(each, newest_ms=T0 - 1) for each in queues)
        cluster.masters[0].err()
        return await stored_since(admin.source.cluster, "T", old, [T0])

    assert counts(count) == [0]
