"""Messages with a delivery time that are taken back: 370."""

import asyncio

import pytest

from rocketlens.errors import StoreFull
from rocketlens.model import properties as props
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.recall_handle import RecallHandle
from tests.support.broker_world import NOW_MS, settings_of_test
from tests.unit.broker.delivery.test_timers import DAY_MS, TIMERS, deliver, running, send_at

DUE_MS = NOW_MS + 5_000


async def recall(world, handle, topic="Orders", **more):
    return await world.call(
        RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle, producerGroup="g", **more
    )


@pytest.fixture
async def world(request, tmp_path):
    settings = {"recallMessageEnable": True} | settings_of_test(request)
    async with running(tmp_path, **settings) as world:
        yield world


def handle_of(**changes):
    parts = {"topic": "Orders", "broker_name": "broker-a", "due_ms": DUE_MS, "unique_key": "K"}
    return RecallHandle(**parts | changes).encode()


async def test_a_recalled_message_is_not_delivered_and_others_are(world):
    sent = await send_at(world, b"recalled", DUE_MS, UNIQ_KEY="K1")
    await send_at(world, b"kept", DUE_MS, UNIQ_KEY="K2")
    answer = await recall(world, sent.ext_fields["recallHandle"])
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext_fields == {"msgId": "K1", "MSG_REGION": "DefaultRegion"}
    world.clock.now_ms = DUE_MS + 1_000
    assert deliver(world) == [b"kept"]


async def test_what_is_stored_for_a_recall_is_what_rocketmq_stores(world):
    sent = await send_at(world, b"x", DUE_MS, UNIQ_KEY="K1")
    await recall(world, sent.ext_fields["recallHandle"])
    _, record = world.stored(TIMERS)
    out_ms = (DUE_MS - 1) // 1000 * 1000
    assert record.body == b"0"
    assert props.parse(record.properties.decode()) == {
        "TAGS": "_RECALL_TAG_",
        "TIMER_DEL_UNIQKEY": "K1",
        "UNIQ_KEY": "K1",
        "TIMER_DELIVER_MS": str(out_ms + 1),
        "TIMER_OUT_MS": str(out_ms),
        "BORN_TIMESTAMP": str(NOW_MS),
        "PGROUP": "g",
        "REAL_TOPIC": "Orders",
        "REAL_QID": "0",
    }


def test_a_broker_that_forbids_recalls_says_so_and_that_is_the_default(tmp_path):
    async def test(world):
        answer = await recall(world, handle_of())
        assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")

    asyncio.run(by_default(tmp_path, test))


async def by_default(directory, test):
    async with running(directory) as world:
        await test(world)


@pytest.mark.parametrize(
    ("topic", "handle", "code", "remark"),
    [
        ("None", handle_of(), 17, "recall failed, the topic[None] not exist"),
        ("Orders", "garbage", 604, "recall handle is invalid"),
        ("Orders", handle_of(topic="Other"), 604, "recall failed, topic not match"),
        ("Orders", handle_of(broker_name="b"), 604, "recall failed, broker service not available"),
        ("Orders", handle_of(due_ms=NOW_MS), 604, "recall failed, timestamp invalid"),
        ("Orders", handle_of(due_ms="x"), 604, "recall failed, timestamp invalid"),
        ("Orders", handle_of(due_ms=NOW_MS + 3 * DAY_MS), 604, "recall failed, timestamp invalid"),
    ],
)
async def test_a_recall_that_cannot_be_is_refused_in_rocketmqs_words(
    world, topic, handle, code, remark
):
    await world.send()
    answer = await recall(world, handle, topic)
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion"}
    assert world.stored(TIMERS) == []


async def test_a_recall_that_cannot_be_stored_fails(world, monkeypatch, caplog):
    await world.send()

    def full(*_, **__):
        raise StoreFull("the disk is full")

    monkeypatch.setattr(world.core.store, "append", full)
    answer = await recall(world, handle_of())
    assert (answer.code, answer.remark) == (1, "recall failed, execute error")
    assert "the disk is full" in caplog.text


@pytest.mark.broker(flushDiskType="SYNC_FLUSH")
async def test_with_a_synchronous_flush_a_recall_is_durable_when_it_is_confirmed(world):
    sent = await send_at(world, b"x", DUE_MS, UNIQ_KEY="K1")
    assert (await recall(world, sent.ext_fields["recallHandle"])).code == 0
    assert world.core.store.flushed_offset == world.core.store.end_offset
