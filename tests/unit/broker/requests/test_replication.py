"""What slaves take over besides the log."""

import json

from rocketlens.formats import timer_checkpoint
from rocketlens.model.text.json_dialect import loads_file
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import NOW_MS, in_broker, properties_of


@within(in_broker, "tmp_path")
async def test_offsets_are_those_of_the_files(world, /):
    await world.send()
    world.core.offsets.put("readers", "Orders", 0, 1)
    body = (await world.call(RequestCode.GET_ALL_CONSUMER_OFFSET)).body
    world.core.offsets.save()
    config = world.core.store.layout.config
    written = (config / "consumerOffset.json").read_text()
    assert json.loads(body)["offsetTable"] == {"Orders@readers": {"0": 1}}
    assert json.loads(body)["offsetTable"] == loads_file(written)["offsetTable"]
    body = (await world.call(RequestCode.GET_ALL_DELAY_OFFSET)).body
    assert json.loads(body)["offsetTable"] == {}
    world.core.delay_offsets.put(3, 7)
    body = (await world.call(RequestCode.GET_ALL_DELAY_OFFSET)).body
    assert json.loads(body)["offsetTable"] == {"3": 7}


@within(in_broker, "tmp_path")
async def test_progress_of_timers_is_what_the_file_has(world, /):
    timer = properties_of(TIMER_DELIVER_MS=NOW_MS + 60_000)
    assert (await world.send(properties=timer)).code == 0
    world.core.timers.step(16)
    body = (await world.call(RequestCode.GET_TIMER_CHECK_POINT)).body
    world.core.timers.save()
    written = (world.core.store.layout.config / "timercheck").read_bytes()
    assert len(body) == 56
    mine, file = (
        timer_checkpoint.decode(body.ljust(4096, b"\0")),
        timer_checkpoint.decode(written),
    )
    assert mine[:4] == file[:4]


@within(in_broker, "tmp_path")
async def test_what_rocketlens_does_not_have_is_an_empty_table(world, /):
    metrics = json.loads((await world.call(RequestCode.GET_TIMER_METRICS)).body)
    modes = json.loads((await world.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body)
    assert metrics["timingCount"] == modes["messageRequestModeMap"] == {}
