"""Who is connected, and how much of it is kept."""

import asyncio
import json

from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import in_broker
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
    assert "is closed: of the" in caplog.text
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
