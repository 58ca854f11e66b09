"""Who is connected, and how much of it is kept.

Topics and groups that make themselves, or are made by operators.
Which client has which queue to itself, and until when.
"""

import asyncio
import json

from rocketlens.broker.tables import registry
from rocketlens.broker.tables.queue_locks import QueueLocks
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.broker_world import in_broker
from tests.support.clocks import Seconds
from tests.support.patience import PATIENCE_S
from tests.unit.broker.heartbeats import (
    Another,
    beat,
    client_ids,
    groups_of,
    heartbeat_of,
    table_of,
)


@within(in_broker, "tmp_path")
async def test_members_hear_when_others_come_go_and_are_lost(world, /):
    other = Another(world)
    await beat(other.world, "c1", "Orders")
    assert await other.next_told() == "readers"
    await beat(world, "c2", "Orders")
    assert await other.next_told() == "readers"
    assert sorted(await client_ids(world)) == ["c1", "c2"]
    await beat(world, "c2", "Orders")
    gone = {"clientID": "c2", "consumerGroup": "readers", "producerGroup": "producers"}
    await world.call(RequestCode.UNREGISTER_CLIENT, **gone)
    assert await other.next_told() == "readers"
    assert other.told.empty()
    third = Another(world)
    await beat(third.world, "c3", "Orders")
    assert await other.next_told() == "readers"
    await third.pool.close()
    assert await other.next_told() == "readers"
    assert await client_ids(world) == ["c1"]
    await other.pool.close()


async def test_one_connection_has_only_so_many_groups_and_others_are_not_hurt(world, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.tables.clients.MAX_CONNECTION_GROUPS_BYTES", 40_000)
    codes = []
    for number in range(10):
        names = [f"g{number}-{n}" for n in range(10)]
        codes.append((await world.call(RequestCode.HEART_BEAT, groups_of("c", names))).code)
    assert set(codes) == {0, 1}
    assert codes == sorted(codes)
    # The same groups again are no more than before.
    again = groups_of("c", [f"g0-{n}" for n in range(10)])
    assert (await world.call(RequestCode.HEART_BEAT, again)).code == 0
    other = Another(world)
    assert (await beat(other.world, "honest")).code == 0
    table = await table_of(world)
    assert int(table["heartbeatsRefused"]) == codes.count(1)
    assert 0 < int(table["clientGroupsBytes"]) < 2 * 40_000
    await other.pool.close()


@within(in_broker, "tmp_path")
async def test_what_a_connection_had_goes_with_it(world, /):
    other = Another(world)
    assert (await beat(other.world, "a", "T")).code == 0
    kept = int((await table_of(world))["clientGroupsBytes"])
    assert kept > 0
    fields = {"clientID": "a", "consumerGroup": "readers", "producerGroup": "producers"}
    assert (await other.world.call(RequestCode.UNREGISTER_CLIENT, **fields)).code == 0
    assert int((await table_of(world))["clientGroupsBytes"]) == 0
    assert (await beat(other.world, "a", "T")).code == 0
    assert (await beat(world, "b")).code == 0
    both = int((await table_of(world))["clientGroupsBytes"])
    await other.pool.close()
    # The closed connection is noticed in one of the next turns of the loop.
    async with asyncio.timeout(PATIENCE_S):
        while await client_ids(world) != ["b"]:
            continue
    assert 0 < int((await table_of(world))["clientGroupsBytes"]) < both


async def test_when_all_groups_are_too_many_the_connection_with_most_ends(
    world, monkeypatch, caplog
):
    monkeypatch.setattr("rocketlens.broker.tables.clients.MAX_GROUPS_BYTES", 100_000)
    honest, hostile = Another(world), [Another(world) for _ in range(4)]
    assert (await beat(honest.world, "honest")).code == 0
    for number, each in enumerate(hostile):
        names = [f"g{number}-{n}" for n in range(60)]
        assert (await each.world.call(RequestCode.HEART_BEAT, groups_of("c", names))).code == 0
    assert (await beat(honest.world, "honest")).code == 0
    assert await client_ids(world) == ["honest"]
    table = await table_of(world)
    assert int(table["clientsClosedForGroups"]) >= 2
    assert int(table["clientGroupsBytes"]) <= 100_000
    assert "is closed: the groups" in caplog.text
    for each in (honest, *hostile):
        await each.pool.close()


@within(in_broker, "tmp_path")
async def test_names_that_are_too_long_are_not_kept(world, /):
    for body in (
        groups_of("c", ["g" * 256]),
        groups_of("c" * 1025, ["g"]),
        heartbeat_of("c", group="g" * 256),
    ):
        answer = await world.call(RequestCode.HEART_BEAT, body)
        assert answer.code == 1
        assert "are allowed" in answer.remark
    assert not world.core.clients.producers
    assert (await world.call(RequestCode.HEART_BEAT, groups_of("c", ["g" * 255]))).code == 0


async def beat_v2(world, fingerprint, *, without_sub=False):
    """Send a heartbeat with a fingerprint; return whether the subscriptions are wanted again."""
    heartbeat = json.loads(heartbeat_of("c1", "Orders"))
    if without_sub:
        del heartbeat["consumerDataSet"][0]["subscriptionDataSet"]
    heartbeat |= {"heartbeatFingerprint": fingerprint, "withoutSub": without_sub}
    answer = await world.call(RequestCode.HEART_BEAT, json.dumps(heartbeat).encode())
    assert (answer.code, answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"]) == (0, "true")
    return answer.ext_fields["IS_SUB_CHANGE"] == "true"


@within(in_broker, "tmp_path")
async def test_heartbeats_without_subscriptions_keep_those_of_the_one_before(world, /):
    clients = world.core.clients
    assert not await beat_v2(world, 7)
    total_bytes = clients.total_bytes
    assert not await beat_v2(world, 7, without_sub=True)
    assert list(clients.consumers["readers"].subscriptions) == ["Orders"]
    assert clients.total_bytes == total_bytes
    assert await beat_v2(world, 8, without_sub=True)
    assert await beat_v2(world, 9)
    assert not await beat_v2(world, 9, without_sub=True)
    # One without a fingerprint is of an older client.
    assert await beat_v2(world, 0)


@within(in_broker, "tmp_path")
async def test_a_broker_that_does_not_know_the_subscriptions_asks_for_them(world, /):
    assert await beat_v2(world, 7, without_sub=True)
    assert not await beat_v2(world, 7)
    assert list(world.core.clients.consumers["readers"].subscriptions) == ["Orders"]


@within(in_broker, "tmp_path")
async def test_an_unknown_topic_is_made_from_the_default_topic(world, /):
    await world.send("New", d=3)
    await world.send("Many", d=64)
    made = world.core.topics.get("New")
    assert (made.read_queue_count, made.write_queue_count, made.perm) == (3, 3, 6)
    assert world.core.topics.get("Many").write_queue_count == 8


@within(in_broker, "tmp_path", autoCreateTopicEnable=False)
async def test_topics_make_themselves_only_where_that_is_allowed(world, /):
    assert (await world.send()).code == ResponseCode.TOPIC_NOT_EXIST


async def test_its_topics_and_groups_are_those_of_a_real_broker(world, golden):
    import json

    config = golden("5.5.0").store / "config"
    theirs = json.loads((config / "topics.json").read_text())["topicConfigTable"]
    groups = json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    topics = world.core.topics.topics
    assert len(topics) >= 10
    for name, topic in topics.items():
        assert topic.encode() == theirs[name]
    for name in world.core.groups.table.entries:
        assert name in groups


@within(in_broker, "tmp_path")
async def test_no_more_topics_and_groups_are_made_than_there_is_room_for(
    world, /, monkeypatch, caplog
):
    core = world.core
    monkeypatch.setattr(registry, "MAX_TOPICS", len(core.topics.topics) + 2)
    monkeypatch.setattr(registry, "MAX_GROUPS", len(core.groups.table.entries) + 3)
    for group in ("g0", "g1", "g2", "g3"):
        # A consumer is welcome, whether its retry topic has room or not.
        assert (await beat(world, "c", group=group)).code == 0
    assert {"%RETRY%g0", "%RETRY%g1"} < core.topics.topics.keys()
    assert len(core.topics.topics) == registry.MAX_TOPICS
    assert len(core.groups.table.entries) == registry.MAX_GROUPS
    assert (await world.send("New")).code == 17
    fields = {"defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    fields |= {"topicFilterType": "SINGLE_TAG", "order": False}
    refused = await world.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, topic="New")
    assert refused.code == 1
    assert "topics are allowed" in refused.remark
    # What is there is changed and used as ever.
    changed = await world.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, topic="%RETRY%g0")
    assert changed.code == 0
    assert (await world.send("%RETRY%g0")).code == 0
    table = await table_of(world)
    assert (table["topicsRefused"], table["groupsRefused"]) == ("3", "1")
    assert caplog.text.count(", the maximum: ") == 2
    world.clock.now_ms += 60_000
    await world.send("New")
    assert caplog.text.count(", the maximum: ") == 3


def test_a_lock_ends_sixty_seconds_after_it_was_renewed():
    seconds = Seconds(5.0)
    locks = QueueLocks(seconds)
    assert locks.lock("g", "T", 0, "c1")
    seconds.now_s += 50
    assert locks.lock("g", "T", 0, "c1")
    seconds.now_s += 60
    assert not locks.lock("g", "T", 0, "c2")
    seconds.now_s += 0.1
    assert locks.lock("g", "T", 0, "c2")
    assert not locks.lock("g", "T", 0, "c1")


def test_there_is_room_for_so_many_and_those_whose_time_is_over_make_room(monkeypatch):
    monkeypatch.setattr("rocketlens.broker.tables.queue_locks.MAX_QUEUE_LOCKS", 3)
    seconds = Seconds(5.0)
    locks = QueueLocks(seconds)
    assert all(locks.lock("g", "T", number, "c") for number in range(3))
    assert not locks.lock("g", "T", 3, "c")
    assert (locks.count, locks.refused) == (3, 1)
    seconds.now_s += 50
    assert locks.lock("g", "T", 0, "c")
    seconds.now_s += 20
    assert locks.lock("g", "T", 3, "c")
    assert locks.lock("g", "T", 4, "c")
    assert not locks.lock("g", "T", 5, "c")
    assert not locks.lock("g", "T", 0, "other")
