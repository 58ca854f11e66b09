"""The data source over a running cluster: the rows that the store of its broker has."""

import pytest

from rocketlens import Message
from rocketlens.testing import cluster

BODY = b"a body that is worth compressing " * 300


@pytest.fixture
def registered(spark):
    from rocketlens.pipeline.source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
    return spark


def load(spark, **options):
    reader = spark.read.format("rocketmq")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


ORIGIN = ("cluster", "broker")
"""Columns of what the files of a store do not have."""


def rows_of(table):
    table = table.drop(*ORIGIN).orderBy("physical_offset")
    return [row.asDict() for row in table.collect()]


@pytest.fixture(scope="module")
def busy():
    """A cluster with two topics, whose queues alternate in the log."""
    with cluster() as running, running.producer() as producer:
        for number in range(120):
            topic = ("Orders", "Payments")[number % 2]
            body = BODY if number % 30 == 0 else b"%d" % number
            keys = f"order-{number} k" if number % 5 else ""
            producer.send(Message(topic, body, tags=f"T{number % 3}", keys=keys))
        producer.send_batch([Message("Orders", b"one of %d" % number) for number in range(7)])
        yield running


def test_rows_equal_those_of_the_store_in_every_column(registered, busy):
    of_store = rows_of(load(registered, store=str(busy.store), topic="Orders"))
    table = load(
        registered, namesrv=busy.name_server, subscribe="Orders", maxRecordsPerPartition=10
    )
    assert rows_of(table) == of_store
    assert table.select(*ORIGIN).distinct().collect() == [("DefaultCluster", "broker-a")]
    assert len(of_store) == 67
    assert any(row["body"] == bytearray(BODY) and row["sys_flag"] & 1 for row in of_store)
    assert table.rdd.getNumPartitions() > 7


@pytest.mark.parametrize(
    "condition",
    [
        "topic = 'Payments'",
        "queue_id = 1 and queue_offset between 2 and 5",
        "physical_offset > 5000 and store_timestamp_ms > 0",
        "topic = 'None'",
    ],
)
def test_filters_give_exact_answers(registered, busy, condition):
    of_store = rows_of(load(registered, store=str(busy.store), topic="Orders,Pay*"))
    expected = load(registered, store=str(busy.store), topic="Orders,Pay*").filter(condition)
    table = load(registered, namesrv=busy.name_server, topic="Orders,Pay*")
    assert rows_of(table.filter(condition)) == rows_of(expected)
    assert len(of_store) == 127


def test_no_plan_shows_where_or_who(registered, busy, tmp_path, capsys):
    secret = tmp_path / "file-of-the-secret"
    secret.write_text("the-secret-itself\n", encoding="utf-8")
    secret.chmod(0o600)
    table = load(
        registered,
        namesrv=busy.name_server,
        subscribe="Orders",
        accessKey="reader",
        secretKeyFile=str(secret),
    )
    assert table.count() == 67
    table.explain(extended=True)
    shown = capsys.readouterr().out
    assert "rocketmq" in shown
    assert "secret" not in shown
