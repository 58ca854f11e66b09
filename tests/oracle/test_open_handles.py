"""Nothing acknowledged is ever "not found, and everything was searched", whatever goes on."""

import asyncio
import importlib.util
import os

import pytest

from tests.oracle.chances import live
from tests.oracle.servers import OURS
from tests.oracle.story import Story, told
from tests.support.effort import sized

SEED = int(os.environ.get("ROCKETLENS_ORACLE_SEED", "20261121"))
LONG_RUN_S = float(os.environ.get("ROCKETLENS_ORACLE_SECONDS", "1800"))
LIVES = 4
"""How many stores each version of the real broker has a part in."""


async def live_with_ours(story):
    """A store of ours from its beginning, through much of what can happen to it."""
    try:
        await story.start(OURS)
        for kind in ("handle", "scans", "command", "wire"):
            story.reader(kind)
        await story.send(sized(40, 80))
        await story.kill(sized(20, 40))
        await story.start(OURS)
        await story.remake_topic("T", 50)
        story.reader("handle")
        await story.stop()
        await story.read_up()
        await story.move_away_and_back()
        await story.put_copy()
        await story.start(OURS, cleans=True)
        await story.send(sized(60, 120))
        await story.stop()
        await story.settle()
    finally:
        story.close()


async def live_with_both(story, version):
    """A store that a real broker begins, ours goes on with, and that stands beside another."""
    try:
        await story.start(version)
        story.reader("handle")
        story.reader("scans")
        await story.send(sized(150, 400))
        story.reader("command")
        await story.remake_topic("T", 80)
        await story.kill(50)
        story.delete_oldest()
        await story.start(OURS)
        story.reader("wire")
        await story.send(60)
        await story.stop()
        await story.write_another(OURS, 40)
        await story.settle()
    finally:
        story.close()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.5.0"])
def test_readers_kept_open_find_all_that_a_real_broker_acknowledged(
    tmp_path, peer, version, record_property
):
    story = Story(tmp_path, SEED, peer)
    asyncio.run(live_with_both(story, version))
    record_property("figures", story.figures())
    assert not story.failures(), told(story.failures(), story)


def test_readers_kept_open_find_all_that_our_broker_acknowledged(tmp_path, record_property):
    story = Story(tmp_path, SEED)
    asyncio.run(live_with_ours(story))
    record_property("figures", story.figures())
    assert not story.failures(), told(story.failures(), story)


@pytest.mark.slow
@pytest.mark.parametrize("life", range(LIVES))
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_whatever_happens_to_a_store_readers_kept_open_find_all_that_was_acknowledged(
    tmp_path, peer, version, life, record_property
):
    story = Story(tmp_path, SEED + life, peer)
    with_spark = importlib.util.find_spec("pyspark") is not None
    asyncio.run(live(story, version, LONG_RUN_S / LIVES / 2, with_spark=with_spark))
    record_property("steps", story.steps)
    record_property("figures", story.figures())
    assert not story.failures(), told(story.failures(), story)
