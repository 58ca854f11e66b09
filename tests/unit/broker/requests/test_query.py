"""What queries find: at once, everything that was asked for, and nothing else."""

import asyncio
import json
import zlib

import pytest
from msgspec.structs import replace

from rocketlens.broker.lookup import look_up, search
from rocketlens.broker.lookup.turns import LookUpLimits
from rocketlens.errors import ConnectionLost
from rocketlens.formats.commitlog_record import HEADS, encode
from rocketlens.net.pool import ClientPool
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.broker_world import NOW_MS, bodies, in_broker, properties_of, records_of, running
from tests.support.patience import PATIENCE_S

KEY = "0A0000091F4018B4AAC2140DD5A20000"


async def test_a_message_is_found_by_key_unique_key_and_offset_once_its_send_is_answered(world):
    for number in range(50):
        unique_key = f"{number:032X}"
        sent = await world.send(
            body=b"%d" % number, properties=properties_of(UNIQ_KEY=unique_key, KEYS=f"k{number}")
        )
        offset = int(sent.ext_fields["msgId"][16:], 16)
        for answer in (
            await world.query(f"k{number}"),
            await world.query(unique_key, _UNIQUE_KEY_QUERY=True),
            await world.query(unique_key, indexType="U"),
            await world.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset),
        ):
            assert answer.code == 0
            assert bodies(answer) == [b"%d" % number]


async def test_a_record_in_the_body_of_a_message_is_not_given_by_its_offset(world):
    sent = await world.send(body=b"real", properties=properties_of(UNIQ_KEY=KEY))
    offset = int(sent.ext_fields["msgId"][16:], 16)
    (real,) = world.stored("Orders")
    place = offset + real.total_size + HEADS[0].size
    await world.send(body=encode(replace(real, physical_offset=place)))
    given = await world.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
    assert bodies(given) == [b"real"]
    refused = await world.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=place)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == f"can not find message by the offset, {place}"


async def test_an_answer_says_how_far_the_index_came(world):
    await world.send(properties=properties_of(KEYS="k"))
    await world.send(properties=properties_of(KEYS="other"))
    found, missing = await world.query("k"), await world.query("none")
    last = world.core.store._appender.last
    assert found.ext_fields == {
        "indexLastUpdateTimestamp": str(NOW_MS),
        "indexLastUpdatePhyoffset": str(last.physical_offset),
    }
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    assert missing.remark == "can not find message, maybe time range not correct"
    assert missing.ext_fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


async def test_a_message_that_has_a_key_twice_is_given_once(world):
    await world.send(body=b"once", properties=properties_of(UNIQ_KEY=KEY, KEYS=f"k k {KEY}"))
    assert bodies(await world.query("k")) == [b"once"]
    assert bodies(await world.query(KEY)) == [b"once"]


async def test_the_newest_are_given_in_the_order_of_the_log(world):
    for number in range(70):
        named = properties_of(UNIQ_KEY=KEY, KEYS="all")
        await world.send(body=b"%d" % number, properties=named)
    expected = [b"%d" % number for number in range(70)]
    assert bodies(await world.query("all", maxNum=5)) == expected[-5:]
    assert bodies(await world.query("all", maxNum=2**31 - 1)) == expected[-64:]
    unique = await world.query(KEY, maxNum=1, _UNIQUE_KEY_QUERY=True)
    assert bodies(unique) == expected[-32:]
    for max_num in (0, -1):
        assert (await world.query("all", maxNum=max_num)).code == 22


@pytest.mark.parametrize("is_killed", [False, True])
async def test_messages_of_before_a_restart_are_found(tmp_path, is_killed):
    async with running(tmp_path) as world:
        for number in range(300):
            named = properties_of(KEYS=f"k{number}", TAGS="T")
            await world.send(body=b"%d" % number, properties=named)
        if is_killed:
            await world.service.close_abruptly()
    async with running(tmp_path) as world:
        await world.send(body=b"new", properties=properties_of(KEYS="k7"))
        for number in range(300):
            found = bodies(await world.query(f"k{number}"))
            assert found == [b"%d" % number] + [b"new"] * (number == 7)


async def test_queries_in_a_thread_hold_up_nobody(world):
    await world.send(properties=properties_of(KEYS="k"))
    asked = [asyncio.ensure_future(world.query("k")) for _ in range(3)]
    assert (await world.send()).code == 0
    assert {answer.code for answer in await asyncio.gather(*asked)} == {0}


async def come_true(is_so):
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - it is told by nobody
            await asyncio.sleep(0)


def test_more_look_ups_by_tag_than_may_wait_are_answered_busy(tmp_path, monkeypatch):
    monkeypatch.setattr(
        search, "TAG_BOUNDS", LookUpLimits(of_one=2, of_all=10, work_s=10, wait_s=60)
    )

    async def test(world):
        await world.send(properties=properties_of(TAGS="a", KEYS="k"))
        turns = world.core.search.tag_turns
        assert turns.try_begin(object())
        asked = [asyncio.ensure_future(world.query("a", indexType="T")) for _ in range(3)]
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        (busy,) = [future.result() for future in done]
        assert busy.code == ResponseCode.SYSTEM_BUSY
        assert busy.remark == "2 look-ups of this connection wait: try again later"
        assert bodies(await world.query("k")) == [b"body"]
        assert (await world.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=0)).code == 0
        told = json.loads((await world.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert int(told["queryThreadPoolQueueSize"]) >= 2
        assert told["queryThreadPoolQueueCapacity"] == "10000"
        turns.end()
        for future in waiting:
            assert bodies(await future) == [b"body"]

    in_broker(tmp_path, test)


@pytest.mark.parametrize("has_begun", [True, False])
async def test_look_ups_of_a_connection_that_is_gone_are_dropped(world, monkeypatch, has_begun):
    asked_for = []

    def endless(*asked):
        asked_for.append(asked)
        while True:
            yield

    await world.send(properties=properties_of(TAGS="a"))
    tag_turns = world.core.search.tag_turns
    with monkeypatch.context() as patched:
        patched.setattr(look_up, "by_tag", endless)
        if not has_begun:
            assert tag_turns.try_begin(object())
        pool = ClientPool(lambda _: True)
        world.pool, own = pool, world.pool
        asked = [asyncio.ensure_future(world.query("a", indexType="T")) for _ in range(20)]
        await come_true(lambda: tag_turns.waiting == 20 and has_begun == bool(asked_for))
        world.pool = own
        await pool.close()
        await come_true(lambda: not tag_turns.waiting)
        if not has_begun:
            tag_turns.end()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(answer) for answer in answers} == {ConnectionLost}
    assert bodies(await world.query("a", indexType="T")) == [b"body"]


@pytest.mark.parametrize(
    ("sys_flag", "body"),
    [
        (0x1, b"not compressed"),
        (0x1 | 0x7 << 8, b"of no type that there is"),
        (0x1 | 0x3 << 8, zlib.compress(bytes(65 * 1024 * 1024))),
    ],
)
async def test_a_message_whose_body_cannot_be_decompressed_is_given_as_it_is_stored(
    world, sys_flag, body
):
    named = properties_of(UNIQ_KEY=KEY, KEYS="k", TAGS="a")
    sent = await world.send(body=body, properties=named, f=sys_flag)
    assert sent.code == 0
    await world.send(body=b"after")
    offset = int(sent.ext_fields["msgId"][16:], 16)
    for answer in (
        await world.query("k"),
        await world.query(KEY, _UNIQUE_KEY_QUERY=True),
        await world.query("a", indexType="T"),
        await world.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset),
    ):
        assert (answer.code, "notSearched" in answer.ext_fields) == (0, False)
        assert bodies(answer) == [body]
    pulled = await world.pull()
    assert [record.body for record in records_of(pulled.body)] == [body, b"after"]


async def test_messages_are_found_by_tag(world):
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


async def test_twins_of_a_tag_do_not_hide_it(world):
    for number in range(5):
        await world.send(body=b"wanted %d" % number, properties=properties_of(TAGS="Aa"))
    for number in range(40):
        await world.send(body=b"twin %d" % number, properties=properties_of(TAGS="BB"))
    found = await by_tag(world, "Aa", maxNum=32)
    assert found == [b"wanted %d" % number for number in range(5)]
    found = await by_tag(world, "Aa", maxNum=2)
    assert found == [b"wanted 3", b"wanted 4"]


async def test_the_newest_of_a_tag_come_from_all_queues_together(world):
    for number in range(40):
        sent = {"e": number % 4, "properties": properties_of(TAGS="a")}
        await world.send(body=b"%d" % number, **sent)
    assert await by_tag(world, "a", maxNum=6) == [b"%d" % each for each in range(34, 40)]


async def test_messages_of_a_tag_are_found_by_time_though_the_clock_was_set_back(world):
    at_ms = world.clock.now_ms
    for place, seconds in enumerate((100, 101, 102, 10, 11, 103, 12, 104, 105, 106)):
        world.clock.now_ms = at_ms + seconds * 1000
        await world.send(body=b"%d" % place, properties=properties_of(TAGS="a"))
    window = {"beginTimestamp": at_ms + 10_000, "endTimestamp": at_ms + 12_000}
    assert await by_tag(world, "a", **window) == [b"3", b"4", b"6"]
    window = {"beginTimestamp": at_ms + 102_000, "endTimestamp": at_ms + 103_000}
    assert await by_tag(world, "a", **window) == [b"2", b"5"]


async def test_delayed_messages_are_found_by_tag_where_they_wait(world):
    for tag in ("a", "b"):
        sent = properties_of(TAGS=tag, DELAY=3)
        await world.send(body=tag.encode(), properties=sent)
    assert await by_tag(world, "b", topic="SCHEDULE_TOPIC_XXXX") == [b"b"]
    assert await by_tag(world, "b") == []


async def test_a_tag_is_not_said_to_be_nowhere_when_a_queue_cannot_be_read(world):
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


async def test_a_tag_is_not_said_to_be_nowhere_in_a_topic_that_was_deleted(world):
    await world.send(properties=properties_of(TAGS="old"))
    await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
    await world.send(properties=properties_of(TAGS="new"))
    assert len(await by_tag(world, "new")) == 1
    answer = await world.query("old", indexType="T")
    assert (answer.code, "Orders was deleted" in answer.remark) == (1, True)
