"""Spark reads stores of every layout, by their directory and by their broker.conf."""

import pytest

from rocketlens.errors import BadInput, NotAStore
from tests.conftest import fingerprint
from tests.support.layouts import BATCHES, DLEDGER, LAYOUTS, ROCKSDB, copied


@pytest.fixture
def registered(spark):
    from rocketlens.pipeline.source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
    return spark


@pytest.fixture
def layout(layouts, name, tmp_path):
    layout = copied(layouts, name, tmp_path / "broker")
    # Nothing but its own path leads to it.
    (tmp_path / "etc").mkdir()
    layout.conf = layout.conf.rename(tmp_path / "etc" / "any.conf")
    return layout


def read(spark, **options):
    reader = spark.read.format("rocketmq")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_table_has_each_message_of_a_layout_and_nothing_changes(registered, layout):
    before = fingerprint(layout.path)
    rows = read(registered, brokerConf=layout.conf, topic="Orders,Payments").collect()
    found = {
        (row.topic, row.queue_id, row.queue_offset, row.offset_msg_id, row["keys"][0])
        for row in rows
    }
    assert found == {
        (sent.topic, sent.queue_id, sent.queue_offset, sent.offset_msg_id, sent.key)
        for sent in layout.messages
    }
    assert len(rows) == len(found)
    assert read(registered, brokerConf=layout.conf, table="damage").count() == 0
    assert fingerprint(layout.path) == before


@pytest.mark.parametrize(
    "name",
    [
        *("multi-5.5.0", BATCHES),
        *(pytest.param(each, marks=pytest.mark.slow) for each in (DLEDGER[1], ROCKSDB)),
    ],
)
def test_a_stream_has_each_message_of_a_layout(registered, layout, tmp_path):
    stream = (
        registered.readStream.format("rocketmq")
        .option("brokerConf", str(layout.conf))
        .option("topic", "Orders,Payments")
        .load()
    )
    query = (
        stream.writeStream.format("memory")
        .queryName("layout")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = registered.table("layout").collect()
    assert sorted((row.topic, row.queue_id, row.queue_offset) for row in rows) == sorted(
        (sent.topic, sent.queue_id, sent.queue_offset) for sent in layout.messages
    )


@pytest.mark.parametrize("name", ["multi-5.5.0"])
def test_a_broker_conf_that_names_what_is_not_there_is_refused(registered, layout):
    from rocketlens.pipeline.source import RocketMQReader

    text = layout.conf.read_text(encoding="utf-8")
    layout.conf.write_text(f"{text}\nstorePathCommitLog={layout.path / 'disk9'}\n")
    with pytest.raises(NotAStore, match="disk9, which is not a directory"):
        RocketMQReader({"brokerConf": str(layout.conf)}).partitions()
    with pytest.raises(Exception, match="disk9, which is not a directory"):
        read(registered, brokerConf=layout.conf).count()


@pytest.mark.parametrize("name", ["multi-5.5.0"])
def test_a_store_and_a_broker_conf_together_are_refused(layout):
    from rocketlens.pipeline.source import RocketMQReader

    with pytest.raises(BadInput, match="give only one"):
        RocketMQReader({"brokerConf": str(layout.conf), "path": str(layout.store)})
