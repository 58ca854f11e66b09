"""How a topic is configured on brokers of RocketMQ 5 and 4, and how many messages came lately."""

import asyncio
import dataclasses

import pytest

from rocketlens import MQAdmin, limits
from rocketlens.client.admin.cluster_topic_settings import find_topic_settings, stored_since
from rocketlens.errors import TopicNotFound
from rocketlens.model.topic import TopicSettings
from rocketlens.testing import cluster as embedded
from rocketlens.wire.codes import ResponseCode
from tests.support.fake_cluster import T0, ask, fail


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
        return [await stored_since(calls, "T", queues, each) for each in times]

    assert counts(count) == [6, 2, 0]


def test_messages_since_a_time_are_not_known_if_a_broker_fails_or_there_are_too_many_queues():
    async def count(cluster, admin, queues, stored):
        calls, since_ms = admin.source.cluster, stored[0].store_timestamp_ms
        many = queues[:1] * (limits.MAX_RATED_QUEUES + 1)
        too_many = await stored_since(calls, "T", many, since_ms)
        cluster.masters[0].err(ResponseCode.SYSTEM_BUSY)
        return too_many, await stored_since(calls, "T", queues, since_ms)

    assert counts(count) == (None, None)


def test_a_queue_without_new_messages_is_not_asked_because_rocketmq_4_answers_with_its_last_one():
    async def count(cluster, admin, queues, stored):
        old = tuple(dataclasses.replace(each, newest_ms=T0 - 1) for each in queues)
        cluster.masters[0].err()
        return await stored_since(admin.source.cluster, "T", old, T0)

    assert counts(count) == 0
