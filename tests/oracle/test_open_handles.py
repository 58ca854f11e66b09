"""Nothing acknowledged is ever "not found, and everything was searched", whatever goes on."""

import asyncio

import pytest

from tests.oracle.servers import OURS
from tests.oracle.story import Story, told

SEED = 20_261_121


async def live_with_ours(story):
    """A store of ours from its beginning, through all that can happen to it."""
    try:
        await story.start(OURS)
        story.reader("handle")
        story.reader("scans")
        await story.send(150)
        story.reader("command")
        story.reader("wire")
        await story.kill(100)
        await story.start(OURS)
        await story.remake_topic("T", 100)
        story.reader("handle")
        await story.send(100)
        await story.stop()
        await story.read_up()
        await story.move_away_and_back()
        await story.start(OURS, cleans=True)
        await story.send(200)
        await story.stop()
        await story.put_copy()
        await story.start(OURS)
        await story.send(50)
        await story.stop()
        await story.write_another(OURS, 60)
        await story.settle()
    finally:
        story.close()


async def live_with_both(story, version):
    """A store that ours begins, a real broker goes on with, and ours takes back."""
    try:
        await story.start(OURS)
        story.reader("handle")
        await story.send(60)
        await story.stop()
        await story.start(version)
        story.reader("scans")
        story.reader("command")
        await story.send(1500)
        await story.remake_topic("T", 200)
        await story.kill(100)
        story.delete_oldest()
        await story.start(OURS)
        story.reader("wire")
        await story.send(100)
        await story.stop()
        await story.settle()
    finally:
        story.close()


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
