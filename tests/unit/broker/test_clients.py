"""Who is connected, and how much of it is kept."""

import asyncio

from rocketlens import limits
from rocketlens.wire.codes import RequestCode
from tests.unit.broker.broker_world import in_broker
from tests.unit.broker.heartbeats import (
    Another,
    beat,
    client_ids,
    groups_of,
    heartbeat_of,
    table_of,
)


def test_members_hear_when_others_come_go_and_are_lost(tmp_path):
    async def test(world):
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

    in_broker(tmp_path, test)


def test_one_connection_has_only_so_many_groups_and_others_are_not_hurt(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_CONNECTION_GROUPS_BYTES", 40_000)

    async def test(world):
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

    in_broker(tmp_path, test)


def test_what_a_connection_had_goes_with_it(tmp_path):
    async def test(world):
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
        async with asyncio.timeout(60):
            while await client_ids(world) != ["b"]:
                continue
        assert 0 < int((await table_of(world))["clientGroupsBytes"]) < both

    in_broker(tmp_path, test)


def test_when_all_groups_are_too_many_the_connection_with_most_ends(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(limits, "MAX_GROUPS_BYTES", 100_000)

    async def test(world):
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

    in_broker(tmp_path, test)


def test_names_that_are_too_long_are_not_kept(tmp_path):
    async def test(world):
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

    in_broker(tmp_path, test)
