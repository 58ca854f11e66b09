"""Spark pulls topics of a real broker: the rows of its store, and nothing left behind."""

import pytest

from rocketlens import Message
from rocketlens.client.blocking.sync_producer import SyncProducer
from rocketlens.model.rocketmq import SYSTEM_GROUPS, TOOLS_GROUP
from rocketlens.model.text import json_dialect
from tests.support.patience import PATIENCE_S

BODY = b"a body that is worth compressing " * 300


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_rows_equal_those_of_a_real_store_and_the_broker_keeps_nothing_of_the_reader(
    peer, spark, tmp_path, version
):
    from rocketlens.pipeline.source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)

    def rows_of(**options):
        reader = spark.read.format("rocketmq").options(**options).load()
        return [row.asDict() for row in reader.orderBy("physical_offset").collect()]

    with peer.start(version, tmp_path) as broker:
        with SyncProducer(broker.namesrv_address, send_timeout_s=PATIENCE_S) as producer:
            for number in range(150):
                body = BODY if number % 50 == 0 else b"%d" % number
                message = Message("AB"[number % 2], body, keys=f"k{number} x", tags="t")
                producer.send(message)
            producer.send_batch([Message("A", b"one of %d" % number) for number in range(9)])
        cluster = {"namesrv": broker.namesrv_address, "failOnDataLoss": "true"}
        for topics, count in (("A", 84), ("B", 75)):
            pulled = rows_of(**cluster, subscribe=topics, maxRecordsPerPartition="7")
            assert pulled == rows_of(store=str(broker.store), topic=topics)
            assert len(pulled) == count
        at = pulled[30]["store_timestamp_ms"]
        bound = {"startingTimestamp": str(at), "endingTimestamp": str(at + 20)}
        found = rows_of(**cluster, subscribe="A,B", **bound)
        assert found == rows_of(store=str(broker.store), topic="A,B", **bound)
        assert found
        # Among all topics are those of the broker itself.
        assert len(rows_of(**cluster, subscribe="*")) >= 84 + 75
        # It writes its tables when it stops.
        broker.stop()
        config = broker.store / "config"
        offsets = json_dialect.loads_file((config / "consumerOffset.json").read_bytes())
        assert offsets["offsetTable"] == {}
        # 5.x keeps how far each group pulled last, that of its own tools included.
        pulled_by = {name.partition("@")[2] for name in offsets.get("pullOffsetTable", {})}
        assert pulled_by <= {TOOLS_GROUP}
        groups = config / "subscriptionGroup.json"
        assert not groups.exists() or set(
            json_dialect.loads_file(groups.read_bytes())["subscriptionGroupTable"]
        ) <= {*SYSTEM_GROUPS}
