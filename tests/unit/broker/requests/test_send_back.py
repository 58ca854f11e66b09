"""What consumers give back is retried, and ends among the dead letters."""

import pytest

from rocketlens.model import properties as props
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import in_broker, properties_of, records_of

DELAYS = "SCHEDULE_TOPIC_XXXX"
RETRY, DEAD = "%RETRY%readers", "%DLQ%readers"


async def send_back(world, physical_offset, **changes):
    fields = {
        "offset": physical_offset,
        "group": "readers",
        "delayLevel": 0,
        "originMsgId": "anything",
        "originTopic": "Orders",
        "unitMode": False,
        "maxReconsumeTimes": None,
    }
    return await world.call(RequestCode.CONSUMER_SEND_MSG_BACK, **(fields | changes))


def properties_in(record):
    return props.parse(record.properties.decode())


async def delivered_again(world, after_ms=7_200_000):
    """Deliver what is delayed; returns the newest record of the retry topic."""
    world.clock.now_ms += after_ms
    world.service._schedule.deliver_due()
    return world.stored(RETRY)[-1]


@within(in_broker, "tmp_path")
async def test_a_retry_has_the_body_and_the_ids_of_the_first(world, /):
    sent = properties_of(UNIQ_KEY="0" * 32, KEYS="k", TAGS="PAID", own="1")
    await world.send(body=b"one", properties=sent, f=1)
    (first,) = world.stored("Orders")
    assert (await send_back(world, first.physical_offset)).code == 0
    (delayed,) = world.stored(DELAYS, 2)
    expected = properties_in(first) | {
        "RETRY_TOPIC": "Orders",
        "ORIGIN_MESSAGE_ID": first.offset_msg_id,
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }
    assert list(properties_in(delayed).items()) == list(props.java_order(expected).items())
    assert (delayed.body, delayed.reconsume_times) == (b"one", 1)
    assert (delayed.flag, delayed.sys_flag) == (first.flag, first.sys_flag)
    assert delayed.born_timestamp_ms == first.born_timestamp_ms
    assert delayed.born_host == first.born_host

    retry = await delivered_again(world)
    assert (await send_back(world, retry.physical_offset)).code == 0
    (again,) = world.stored(DELAYS, 3)
    assert properties_in(again)["RETRY_TOPIC"] == "Orders"
    assert properties_in(again)["ORIGIN_MESSAGE_ID"] == first.offset_msg_id
    assert again.reconsume_times == 2
    found = records_of((await world.query("k", RETRY)).body)
    assert [each.body for each in found] == [b"one"]


@within(in_broker, "tmp_path")
async def test_after_the_last_retry_it_is_a_dead_letter(world, /):
    await world.send(body=b"one")
    record = world.stored("Orders")[0]
    for _ in range(2):
        assert (await send_back(world, record.physical_offset, maxReconsumeTimes=2)).code == 0
        assert not world.stored(DEAD)
        record = await delivered_again(world)
    assert (await send_back(world, record.physical_offset, maxReconsumeTimes=2)).code == 0
    (dead,) = world.stored(DEAD)
    assert (dead.body, dead.reconsume_times) == (b"one", 3)
    assert properties_in(dead)["RETRY_TOPIC"] == "Orders"
    assert properties_in(dead)["DELAY"] == "0"
    assert world.core.topics.get(DEAD).perm == 6


@pytest.mark.parametrize(("level", "queue_id"), [(1, 0), (18, 17), (99, 17)])
@within(in_broker, "tmp_path")
async def test_the_consumer_chooses_the_delay(world, /, level, queue_id):
    await world.send()
    await send_back(world, 0, delayLevel=level)
    assert len(world.stored(DELAYS, queue_id)) == 1


@within(in_broker, "tmp_path")
async def test_the_consumer_makes_it_a_dead_letter_at_once(world, /):
    await world.send()
    await send_back(world, 0, delayLevel=-1)
    assert len(world.stored(DEAD)) == 1


@within(in_broker, "tmp_path")
async def test_what_cannot_be_given_back_is_refused_in_rocketmqs_words(world, /):
    for offset in (0, 77, -1, 2**62):
        answer = await send_back(world, offset)
        assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")
    assert world.core.store.end_offset == 0


@within(in_broker, "tmp_path")
async def test_a_record_in_a_body_is_not_a_message(world, /):
    await world.send(body=b"x" * 100)
    first = bytes(world.core.store.record(0, 0))
    await world.send(body=first)
    inner = world.core.store.end_offset
    answer = await send_back(world, inner - len(first))
    assert answer.code == 1


@within(in_broker, "tmp_path", autoCreateSubscriptionGroup=False)
async def test_an_unknown_group_is_refused_where_groups_are_not_created(world, /):
    await world.send()
    answer = await send_back(world, 0)
    assert answer.code == 26
    assert answer.remark.startswith("subscription group not exist, readers ")


@within(in_broker, "tmp_path")
async def test_a_group_without_retry_queues_drops_what_is_given_back(world, /):
    world.core.groups.put({"readers": {"groupName": "readers", "retryQueueNums": 0}})
    await world.send()
    end_offset = world.core.store.end_offset
    assert (await send_back(world, 0)).code == 0
    assert world.core.store.end_offset == end_offset


@within(in_broker, "tmp_path")
async def test_a_groups_retry_policy_changes_no_delay_as_in_rocketmq(world, /):
    # Brokers of 5.5.0 keep the policy for proxies, and never read it themselves.
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 60_000}}
    world.core.groups.put({"readers": {"groupName": "readers", "groupRetryPolicy": policy}})
    await world.send()
    assert (await send_back(world, 0)).code == 0
    assert len(world.stored(DELAYS, 2)) == 1
