"""A broker notices that somebody else is registered under its name."""

import json

import pytest

from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import running
from tests.support.impostors import (
    NameServerStub,
    figures,
    impostor_and_world,
)


async def saved(world):
    """Wait until what was noted is in its file."""
    return await world.core.saver.save(world.service._registrar._watch)


@pytest.mark.parametrize("state", [0, 1, 2**31 - 1])
async def test_a_broker_notices_that_its_name_was_taken_says_so_and_takes_it_back(
    tmp_path, caplog, state
):
    async with impostor_and_world(tmp_path) as (impostor, world):
        assert (await impostor.register(state=state)).code == 0
        assert await impostor.route() == (impostor.address, 99)
        await world.service._registrar.register()
        # Its topics are its own again, too.
        queues = world.core.topics.get("T").write_queue_count
        assert await impostor.route() == (world.service.address, queues)
        assert f"leads to {impostor.address} under the name broker-a" in caplog.text
        assert "leads to this broker again" in caplog.text
        table = await figures(world)
        assert (table["brokerNameTaken"], table["brokerNameTakenTimes"]) == ("", "1")
        assert await saved(world)
        note = json.loads(world.core.store.layout.name_taken.read_text())
        assert (note["lastBy"], note["takenBy"]) == (impostor.address, {})


async def test_a_name_that_stays_taken_is_told_once_and_shown_as_long_as_it_is(tmp_path, caplog):
    stub = NameServerStub()
    route = {
        "brokerDatas": [{"brokerName": "broker-a", "brokerAddrs": {"0": "10.9.9.9:1"}}],
        "queueDatas": [],
    }
    stub.server.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda *_: Response(
        body=json.dumps(route).encode()
    )
    async with running(tmp_path, namesrvAddr=stub.address) as world:
        for _ in range(3):
            await world.service._registrar.register()
        shown = (await figures(world))["brokerNameTaken"]
        assert shown == f"{stub.address} leads to 10.9.9.9:1"
        assert caplog.text.count("leads to 10.9.9.9:1") == 1
        # It is not forgotten while it lasts.
        world.clock.now_ms += 600_000
        await world.service._registrar.register()
        assert caplog.text.count("leads to 10.9.9.9:1") == 2
        assert (await figures(world))["brokerNameTakenTimes"] == "1"
        assert await saved(world)
        assert world.core.store.layout.name_taken.exists()
    # A start begins without it: who has the name then is looked up anew.
    async with running(tmp_path) as world:
        assert not world.core.store.layout.name_taken.exists()
    await stub.server.stop()
