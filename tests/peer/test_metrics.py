"""Values with RocketMQ's names are those that RocketMQ 5 exports."""

import asyncio
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from rocketlens import Message, Producer
from rocketlens.broker.life import metrics
from tests.peer.rocketmq_peer import free_ports
from tests.support.broker_world import in_broker

NOT_WITHOUT_LOAD = {
    "rocketmq_messages_out_total",
    "rocketmq_consumer_connections",
    "rocketmq_consumer_lag_messages",
    "rocketmq_timing_messages",
}
"""What the real one has only with consumers, or with messages that wait."""


def test_names_and_labels_are_those_of_the_real_exporter(peer, tmp_path):
    port = free_ports()
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": port}
    with peer.start("5.5.0", tmp_path / "theirs", **settings) as broker:

        async def send():
            async with Producer(broker.namesrv_address) as producer:
                await producer.send(Message("Orders", b"body"))

        asyncio.run(send())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    theirs = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            theirs.setdefault(sample.name, set(sample.labels))

    async def collect(world):
        assert (await world.send("Orders", b"body")).code == 0
        return await metrics.collect(world.core, metrics.CauseReader())

    ours = {
        sample.name: set(sample.labels)
        for metric in in_broker(tmp_path, collect)
        for sample in metric.samples
        if sample.name.startswith("rocketmq_")
    }
    assert ours.keys() - theirs.keys() <= NOT_WITHOUT_LOAD, sorted(theirs)
    for name in ours.keys() & theirs.keys():
        assert ours[name] <= theirs[name], name
