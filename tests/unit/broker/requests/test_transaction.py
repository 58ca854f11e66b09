"""Half messages become messages once, or never."""

import pytest

from tests.support.async_tests import within
from tests.support.broker_world import in_broker, properties_of, records_of
from tests.unit.broker.transactions import (
    COMMIT,
    HALF,
    MARKS,
    ROLLBACK,
    UNKNOWN,
    end,
    half_properties,
    send_half,
)


@within(in_broker, "tmp_path")
async def test_a_commit_stores_the_message_in_its_topic(world, /):
    await send_half(world)
    fields = await send_half(world, 1)
    assert (await world.query("k1")).code == 22
    assert (await end(world, fields)).code == 0
    (record,) = world.stored("Orders", 2)
    half = world.stored(HALF)[1]
    assert (record.body, record.sys_flag) == (b"1", 8)
    assert record.prepared_transaction_offset == half.physical_offset
    assert record.born_host == half.born_host
    dropped = ("REAL_TOPIC", "REAL_QID")
    expected = {n: v for n, v in half_properties(half).items() if n not in dropped}
    assert list(half_properties(record).items()) == list(expected.items())
    found = records_of((await world.query("k1")).body)
    assert [each.physical_offset for each in found] == [record.physical_offset]


@within(in_broker, "tmp_path")
async def test_a_rollback_stores_nothing_but_its_mark(world, /):
    await send_half(world)
    fields = await send_half(world, 1)
    assert (await end(world, fields, commitOrRollback=ROLLBACK)).code == 0
    assert not world.stored("Orders", 2)
    (mark,) = world.stored(MARKS)
    assert (mark.body, half_properties(mark)["TAGS"]) == (b"1,", "d")


@within(in_broker, "tmp_path")
async def test_an_unknown_end_leaves_it_open(world, /):
    fields = await send_half(world)
    assert (await end(world, fields, commitOrRollback=UNKNOWN)).code == 0
    assert not world.stored(MARKS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"producerGroup": "others"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 2**62}, "Find prepared transaction message failed"),
    ],
)
@within(in_broker, "tmp_path")
async def test_an_end_of_another_message_is_refused(world, /, changes, words):
    fields = await send_half(world)
    answer = await end(world, fields, **changes)
    assert (answer.code, answer.remark) == (1, words)
    assert not world.stored("Orders", 2)


@within(in_broker, "tmp_path")
async def test_a_message_that_is_no_half_cannot_be_committed(world, /):
    sent = await world.send(properties=properties_of(PGROUP="producers"))
    fields = {"producerGroup": "producers", "tranStateTableOffset": 0}
    offset = int(sent.ext_fields["msgId"][16:], 16)
    answer = await end(world, fields, commitLogOffset=offset, commitOrRollback=COMMIT)
    assert answer.remark == "Find prepared transaction message failed"


@within(in_broker, "tmp_path")
async def test_a_delayed_half_message_is_delayed_from_its_commit_on(world, /):
    fields = await send_half(world, DELAY=2)
    await end(world, fields)
    (record,) = world.stored("SCHEDULE_TOPIC_XXXX", 1)
    assert half_properties(record)["REAL_TOPIC"] == "Orders"
    assert record.sys_flag == 8
