"""The values of a broker: right, with RocketMQ's names, and bounded."""

import asyncio
import re

from rocketlens import limits
from rocketlens.broker.life import metrics
from rocketlens.errors import StoreFull
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import in_broker
from tests.unit.broker.heartbeats import beat

NAME = re.compile(r"(rocketmq|rocketlens)_[a-z_]+")


async def values_of(core):
    """Return each sample's value by its name and the labels that are its own."""
    values = {}
    for metric in await metrics.collect(core):
        assert NAME.fullmatch(metric.name)
        assert metric.documentation.endswith(".")
        for sample in metric.samples:
            node = [sample.labels.pop(label) for label in metrics.NODE_LABELS]
            assert node == ["DefaultCluster", "broker", "broker-a"]
            values[sample.name, *sample.labels.values()] = sample.value
    return values


@within(in_broker, "tmp_path")
async def test_the_values_are_those_of_the_broker(world, /):
    for _ in range(3):
        assert (await world.send("Orders", b"body")).code == 0
    await beat(world, "c1", "Orders")
    offset = {"consumerGroup": "readers", "topic": "Orders", "queueId": 0, "commitOffset": 1}
    assert (await world.call(RequestCode.UPDATE_CONSUMER_OFFSET, **offset)).code == 0
    core = world.core
    values = await values_of(core)
    assert values["rocketmq_messages_in_total", "Orders"] == 3
    assert values["rocketlens_messages_put_total",] == 3
    assert values["rocketmq_consumer_lag_messages", "Orders", "readers"] == 2
    assert values["rocketmq_topic_number",] == len(core.topics.topics)
    assert values["rocketmq_storage_size_bytes",] == core.store.end_offset > 0
    assert values["rocketmq_throughput_in_total",] == core.store.end_offset
    assert values["rocketlens_connections",] == 1
    assert values["rocketlens_store_writable",] == 1
    assert 0 < values["rocketlens_disk_used_ratio",] < 1
    consumers = [key for key in values if key[0] == "rocketmq_consumer_connections"]
    assert [key[1] for key in consumers] == ["readers"]
    assert metrics.problems(core) == []


@within(in_broker, "tmp_path")
async def test_a_new_broker_has_all_values(world, /):
    values = await values_of(world.core)
    for value in metrics.VALUES:
        assert (f"{value.name}_total" if value.is_counter else value.name,) in values


def test_values_by_topic_and_group_are_bounded_and_the_others_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.life.metrics.MAX_METRIC_SERIES", 2)

    async def test(world):
        for number in range(5):
            assert (await world.send(f"T{number}", b"body")).code == 0
        values = await values_of(world.core)
        assert sum(key[0] == "rocketmq_messages_in_total" for key in values) == 2
        assert values["rocketlens_metrics_left_out",] == 3

    in_broker(tmp_path, test)


def test_the_table_of_values_is_collected_while_others_change_it(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_PIECE_S", -1.0)

    async def test(world):
        for number in range(5):
            assert (await world.send(f"T{number}", b"body")).code == 0
        collecting = asyncio.ensure_future(values_of(world.core))
        number = 5
        while not collecting.done():
            assert (await world.send(f"T{number}", b"body")).code == 0
            number += 1
        assert (await collecting)["rocketmq_messages_in_total", "T0"] == 1

    in_broker(tmp_path, test)


@within(in_broker, "tmp_path")
async def test_a_broker_that_refuses_messages_or_is_registered_nowhere_is_not_ready(world, /):
    core = world.core
    core.store._appender.refusal = StoreFull("the broker's disk is full")
    assert metrics.problems(core) == ["messages are refused: the broker's disk is full"]
    assert (await values_of(core))["rocketlens_store_writable",] == 0
    core.store._appender.refusal = None
    server = "127.0.0.1:1"
    core.settings = core.settings.with_broker(namesrvAddr=server)
    core.config = core.settings.broker
    core.name_servers.failures[server] = "refused"
    assert metrics.problems(core) == ["registered at none of 1 name servers"]
