"""What queries by tag find, by the entries of queues."""

from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import (
    NOW_MS,
    bodies,
    in_broker,
    properties_of,
    records_of,
)


@within(in_broker, "tmp_path")
async def test_messages_are_found_by_tag(world, /):
    for number in range(200):
        world.clock.now_ms = NOW_MS + number
        tags = "AaTag" if number % 2 else "BBTag"
        await world.send(body=b"%d" % number, e=number % 4, properties=properties_of(TAGS=tags))
    odd = [b"%d" % number for number in range(1, 200, 2)]
    assert bodies(await world.query("AaTag", indexType="T", maxNum=10)) == odd[-10:]
    times = {"beginTimestamp": NOW_MS + 10, "endTimestamp": NOW_MS + 14}
    answer = await world.query("AaTag", indexType="T", **times)
    assert bodies(answer) == [b"11", b"13"]
    assert (await world.query("NoTag", indexType="T")).code == 22


async def by_tag(world, tag, **changes):
    """The bodies of the messages that a query by tag finds."""
    answer = await world.query(tag, indexType="T", **changes)
    if answer.code == 22:
        return []
    assert answer.code == 0, answer.remark
    return [record.body for record in records_of(answer.body)]


@within(in_broker, "tmp_path")
async def test_twins_of_a_tag_do_not_hide_it(world, /):
    for number in range(5):
        await world.send(body=b"wanted %d" % number, properties=properties_of(TAGS="Aa"))
    for number in range(40):
        await world.send(body=b"twin %d" % number, properties=properties_of(TAGS="BB"))
    found = await by_tag(world, "Aa", maxNum=32)
    assert found == [b"wanted %d" % number for number in range(5)]
    found = await by_tag(world, "Aa", maxNum=2)
    assert found == [b"wanted 3", b"wanted 4"]


@within(in_broker, "tmp_path")
async def test_the_newest_of_a_tag_come_from_all_queues_together(world, /):
    for number in range(40):
        sent = {"e": number % 4, "properties": properties_of(TAGS="a")}
        await world.send(body=b"%d" % number, **sent)
    assert await by_tag(world, "a", maxNum=6) == [b"%d" % each for each in range(34, 40)]


@within(in_broker, "tmp_path")
async def test_messages_of_a_tag_are_found_by_time_though_the_clock_was_set_back(world, /):
    at_ms = world.clock.now_ms
    for place, seconds in enumerate((100, 101, 102, 10, 11, 103, 12, 104, 105, 106)):
        world.clock.now_ms = at_ms + seconds * 1000
        await world.send(body=b"%d" % place, properties=properties_of(TAGS="a"))
    window = {"beginTimestamp": at_ms + 10_000, "endTimestamp": at_ms + 12_000}
    assert await by_tag(world, "a", **window) == [b"3", b"4", b"6"]
    window = {"beginTimestamp": at_ms + 102_000, "endTimestamp": at_ms + 103_000}
    assert await by_tag(world, "a", **window) == [b"2", b"5"]


@within(in_broker, "tmp_path")
async def test_delayed_messages_are_found_by_tag_where_they_wait(world, /):
    for tag in ("a", "b"):
        sent = properties_of(TAGS=tag, DELAY=3)
        await world.send(body=tag.encode(), properties=sent)
    assert await by_tag(world, "b", topic="SCHEDULE_TOPIC_XXXX") == [b"b"]
    assert await by_tag(world, "b") == []


@within(in_broker, "tmp_path")
async def test_a_tag_is_not_said_to_be_nowhere_when_a_queue_cannot_be_read(world, /):
    for _ in range(150):
        await world.send(properties=properties_of(TAGS="b"))
    await world.send(properties=properties_of(TAGS="a"), e=1)
    files = world.core.store.queues.get("Orders", 0).files()
    assert len(files) == 2
    files[1][1].unlink()
    answer = await world.query("none", indexType="T")
    assert (answer.code, "queue Orders/0 cannot be read" in answer.remark) == (1, True)
    answer = await world.query("a", indexType="T")
    assert answer.code == 0
    assert "queue Orders/0 cannot be read" in answer.ext_fields["notSearched"]


@within(in_broker, "tmp_path")
async def test_a_tag_is_not_said_to_be_nowhere_in_a_topic_that_was_deleted(world, /):
    await world.send(properties=properties_of(TAGS="old"))
    await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
    await world.send(properties=properties_of(TAGS="new"))
    assert len(await by_tag(world, "new")) == 1
    answer = await world.query("old", indexType="T")
    assert (answer.code, "Orders was deleted" in answer.remark) == (1, True)
