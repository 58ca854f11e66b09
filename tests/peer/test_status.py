"""The status of real brokers and of their stores, beside what RocketMQ's own tool prints."""

import re
import time

import pytest

import rocketlens
from rocketlens.model.status import StoreClosing
from tests.peer.rocketmq_peer import POLL_SECONDS, VERSIONS

WRITTEN_BY = {"4.9.7": "RocketMQ 4", "5.5.0": "RocketMQ 5.5"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_broker_says_the_same_to_both_tools(version, peer, tmp_path):
    with peer.start(version, tmp_path) as broker:
        address = broker.namesrv_address
        with (
            rocketlens.SyncProducer(address, group="p") as producer,
            rocketlens.SyncMQAdmin(address) as admin,
        ):
            producer.send(rocketlens.Message("Orders", "1"))
            # 4.9.7 fails (NoSuchElementException) until it has taken the samples for its rates.
            while not (status := admin.status()).complete:
                time.sleep(POLL_SECONDS)
            producers = admin.producers()
        printed = peer.mqadmin(version, "brokerStatus", "-n", address, "-c", "DefaultCluster")
        with rocketlens.open_store(broker.store) as store:
            assert store.status().closing is StoreClosing.IN_USE
        broker.stop()
        with rocketlens.open_store(broker.store) as store:
            closed = store.status()
    values = dict(re.findall(r"(\w+) +: (\S+)", printed))
    [real] = status.brokers
    assert (real.version, real.is_master) == (values["brokerVersionDesc"], True)
    assert real.started_ms == int(values["bootTimestamp"])
    assert real.min_offset == int(values["commitLogMinOffset"])
    assert real.disk_ratio == pytest.approx(float(values["commitLogDiskRatio"]), abs=0.05)
    # It has no rates in its first ten seconds.
    assert (real.put_per_second or 0.0) >= 0
    assert (real.get_per_second or 0.0) >= 0
    assert real.producers == 1
    assert {each.name: len(each.members) for each in producers.groups}["p"] == 1
    assert producers.complete
    now, morning = (int(values[f"msgPutTotalToday{each}"]) for each in ("Now", "Morning"))
    assert (real.put_total, real.put_today) == (now, now - morning)
    assert real.get_today == 0
    # A real broker builds its index as it dispatches, and tells of both together.
    assert real.behind_bytes == real.dispatch_behind_bytes >= 0
    assert real.index_behind_bytes is real.index_builder is None
    assert real.end_offset == closed.end_offset
    # 4.9.7 said -1 while its log had one message.
    assert real.oldest_ms in (None, closed.oldest_ms)
    assert closed.oldest_ms == closed.newest_ms
    assert (closed.closing, closed.written_by) == (StoreClosing.CLEAN, WRITTEN_BY[version])
