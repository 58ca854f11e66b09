"""Copies of stored messages: in another queue, with their own values unless told otherwise."""

from tests.support.async_tests import within
from tests.support.broker_world import in_broker, properties_of

KEYS = properties_of(KEYS="k1")


@within(in_broker, "tmp_path")
async def test_a_copy_has_the_values_of_its_message_and_counts_as_one(world, /):
    await world.send("Orders", b"paid", KEYS, h=7)
    [record], total = world.stored("Orders"), world.core.stats.put_total
    world.core.copies.write(record, "Others", 2)
    [copy] = world.stored("Others", 2)
    assert (copy.topic, copy.queue_id, copy.body) == ("Others", 2, b"paid")
    for name in ("properties", "born_timestamp_ms", "born_host", "flag", "sys_flag"):
        assert getattr(copy, name) == getattr(record, name)
    assert (copy.reconsume_times, copy.prepared_transaction_offset) == (0, 0)
    assert world.core.stats.put_total == total + 1


@within(in_broker, "tmp_path")
async def test_a_copy_has_the_values_that_are_given(world, /):
    await world.send("Orders", b"paid", KEYS)
    [record] = world.stored("Orders")
    world.core.copies.write(
        record,
        "Others",
        0,
        {"TAGS": "late"},
        sys_flag=8,
        reconsume_times=3,
        prepared_transaction_offset=41,
    )
    [copy] = world.stored("Others")
    assert copy.properties == properties_of(TAGS="late").encode()
    assert (copy.sys_flag, copy.reconsume_times) == (8, 3)
    assert copy.prepared_transaction_offset == 41
