"""The data source as a sink: rows of tables and streams become messages of a cluster."""

import time
from collections import Counter
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from rocketlens.errors import BadInput, RemotingError
from rocketlens.pipeline import sink
from rocketlens.pipeline.sink import RocketMQStreamWriter, RowSender
from rocketlens.testing import cluster

NOON_MS = 1_795_608_000_000
COLUMNS = "body binary, keys array<string>, tags string, properties map<string,string>"


@pytest.fixture(scope="module")
def running():
    with cluster() as running:
        yield running


@pytest.fixture
def registered(spark):
    from rocketlens.pipeline.source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
    return spark


def messages_of(running, topic, count):
    """Return all messages of a topic, of which there are ``count``."""
    with running.admin() as admin:
        answer = admin.find(topic=topic, max_num=count + 1)
    assert (len(answer.messages), answer.complete) == (count, True)
    return answer.messages


def sender(running, schema=COLUMNS, **options):
    given = {"namesrv": running.name_server, "topic": "Sink"} | options
    return RowSender.of(given, dict(column.split() for column in schema.split(", ")))


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def test_each_row_of_a_table_is_a_message_with_its_topic_body_keys_tags_and_properties(
    registered, running
):
    rows = [
        ("TableA" if n % 2 else "TableB", b"%d" % n, [f"k{n}", "all"], f"t{n % 3}", {"n": str(n)})
        for n in range(700)
    ]
    table = registered.createDataFrame(rows, f"topic string, {COLUMNS}").repartition(3)
    writing = table.write.format("rocketmq").option("namesrv", running.name_server)
    writing.mode("append").save()
    stored = [m for topic in ("TableA", "TableB") for m in messages_of(running, topic, 350)]
    assert sorted(
        (m.topic, m.body, list(m.keys), m.tags, {"n": m.properties["n"]}) for m in stored
    ) == sorted(rows, key=lambda row: (row[0], row[1]))
    assert len({m.unique_key for m in stored}) == 700


def test_a_stream_of_a_store_is_sent_on_and_each_message_once_over_several_runs(
    registered, running, golden, tmp_path
):
    lines = registered.readStream.format("rocketmq").option("store", str(golden("5.5.0").store))
    table = lines.load().select("body", "tags", "keys", "physical_offset")
    for _ in range(2):
        query = (
            table.writeStream.format("rocketmq")
            .option("namesrv", running.name_server)
            .option("topic", "Streamed")
            .option("idColumns", "physical_offset")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    count = registered.read.format("rocketmq").load(str(golden("5.5.0").store)).count()
    stored = messages_of(running, "Streamed", count)
    assert len({m.unique_key for m in stored}) == count


def test_a_row_that_is_sent_again_has_the_same_unique_key_and_is_found_by_it(running):
    rows = batch(body=[b"a", b"b"], keys=[["a"], ["b"]])
    again = sender(running, "body binary, keys array<string>", topic="Again")
    assert [again.send([rows], 0), again.send([rows.slice(1)], 0)] == [2, 1]
    stored = messages_of(running, "Again", 3)
    assert sorted(Counter(m.unique_key for m in stored).values()) == [1, 2]
    other = sender(running, "body binary, keys array<string>", topic="Again")
    other.send([rows], 0)
    stored = messages_of(running, "Again", 5)
    assert len({m.unique_key for m in stored}) == 4
    with running.admin() as admin:
        assert len(admin.find(stored[0].unique_key, "Again").messages) in (1, 2)


def test_rows_with_equal_id_columns_and_write_id_have_equal_unique_keys_and_others_do_not(running):
    schema = "body binary, id int"
    one, same, other = (
        sender(running, schema, idColumns="id", writeId=write_id) for write_id in ("w", "w", "v")
    )
    first, again = ({"body": body, "id": 7} for body in (b"a", b"b"))
    assert one.message(first).unique_key == same.message(again).unique_key
    assert one.message(first).unique_key != other.message(first).unique_key
    assert one.message(first).unique_key != one.message(first | {"id": 8}).unique_key


def test_rows_of_a_sharding_key_are_in_one_queue_in_their_order(running):
    count = 2_100
    rows = batch(
        body=[b"%d" % n for n in range(count)], sharding_key=[f"s{n % 5}" for n in range(count)]
    )
    assert (
        sender(running, "body binary, sharding_key string", topic="Ordered").send([rows], 0)
        == count
    )
    stored = messages_of(running, "Ordered", count)
    for shard in range(5):
        of_shard = [m for m in stored if int(m.body) % 5 == shard]
        assert len({m.queue_id for m in of_shard}) == 1
        in_queue = sorted(of_shard, key=lambda m: m.queue_offset)
        assert [int(m.body) for m in in_queue] == list(range(shard, count, 5))


def test_a_row_with_a_time_is_delivered_then(running):
    due_ms = time.time_ns() // 1_000_000 + 3_600_000
    delayed = sender(running, "body binary, deliver_at bigint", topic="Later")
    assert delayed.message({"body": b"x", "deliver_at": due_ms}).properties[
        "TIMER_DELIVER_MS"
    ] == str(due_ms)
    assert delayed.send([batch(body=[b"x", b"now"], deliver_at=[due_ms, None])], 0) == 2
    assert [m.body for m in messages_of(running, "Later", 1)] == [b"now"]


def test_a_micro_batch_that_is_repeated_makes_the_same_unique_keys_and_another_does_not(
    running, monkeypatch
):
    task = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "3"}
    context = SimpleNamespace(getLocalProperty=task.get, partitionId=lambda: 0)
    monkeypatch.setattr(sink, "_task", lambda: context)
    schema = StructType([StructField("body", BinaryType())])
    options = {"namesrv": running.name_server, "topic": "Micro"}
    now_ms = iter(range(NOON_MS, NOON_MS + 1000))
    monkeypatch.setattr(time, "time_ns", lambda: next(now_ms) * 1_000_000)
    for number in ("3", "3", "4"):
        task["streaming.sql.batchId"] = number
        assert RocketMQStreamWriter(options, schema).write(iter([batch(body=[b"x"])])).count == 1
    monkeypatch.undo()
    first, again, other = (
        each.unique_key
        for each in sorted(messages_of(running, "Micro", 3), key=lambda each: each.physical_offset)
    )
    assert first == again != other


def test_no_more_rows_than_allowed_are_sent_in_a_second(running, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    slow = sender(running, "body binary", topic="Slow", messagesPerSecond="40")
    slow.send([batch(body=[b"x"] * 25)], 0)
    assert waits == [0.25, 0.5, 0.625]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"body": None, "keys": ["k"]}, "its body is null"),
        ({"body": b"x", "topic": "no topic!"}, "no topic!"),
        ({"body": b"x", "keys": ["with space", "k"]}, "space"),
        ({"body": b"x", "properties": [("a\x01b", "v")]}, "U.0001"),
        ({"body": b"x", "deliver_at": -1}, "before 1970"),
    ],
)
def test_a_row_that_makes_no_message_is_named_by_partition_number_and_keys(running, row, reason):
    kinds = "topic string, deliver_at bigint, " + COLUMNS
    full = dict.fromkeys(("topic", "body", "keys", "tags", "properties", "deliver_at")) | row
    rows = pa.RecordBatch.from_pylist([full])
    with pytest.raises(BadInput, match=f"(?s)row 0 of partition 3, keys .*{reason}"):
        sender(running, kinds).send([rows], 3)


def test_rows_that_no_broker_takes_are_named(running):
    refused = batch(body=[b"x" * 5_000_000])
    with pytest.raises(RemotingError, match="rows 0 to 0 of partition 2, topic Sink"):
        sender(running, "body binary").send([refused], 2)


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        (
            "body binary, physical_offset bigint",
            {},
            "physical_offset is no part of a message",
        ),
        ("body int", {}, "column body is int: cast it to binary or string"),
        ("keys string", {}, "there is no column body"),
        ("body binary", {"topic": ""}, "there is no column topic"),
        ("body binary", {"idColumns": "id"}, "idColumns names id: the table has body"),
        ("body binary", {"namesrv": ""}, "say where to send"),
        ("body binary", {"path": "x"}, "no path"),
        ("body binary", {"subscribe": "x"}, "subscribe is not for writes"),
        ("body binary", {"messagesPerSecond": "many"}, "messagesPerSecond is a whole number"),
        ("body binary", {"accessKey": "a"}, "go together"),
    ],
)
def test_columns_and_options_that_a_write_cannot_use_are_refused_before_any_row(
    running, schema, options, reason
):
    with pytest.raises(BadInput, match=reason):
        sender(running, schema, **options)


def test_a_table_cannot_overwrite_messages(registered, running):
    table = registered.createDataFrame([(b"x",)], "body binary")
    writing = table.write.format("rocketmq").option("namesrv", running.name_server)
    with pytest.raises(Exception, match="messages cannot be overwritten"):
        writing.option("topic", "T").mode("overwrite").save()
