"""The data source as a sink: rows of tables and streams become messages of a cluster."""

import time
from collections import Counter
from itertools import groupby
from threading import Thread
from types import SimpleNamespace

import pyarrow as pa
import pytest

from rocketlens.client.blocking.sync_admin import SyncMQAdmin
from rocketlens.errors import BadInput, RemotingError
from rocketlens.pipeline import sink
from rocketlens.pipeline.sink import RocketMQStreamWriter, RowSender
from rocketlens.testing import cluster
from tests.crash.small_disk import run_on_a_small_disk
from tests.support.broker_process import BrokerProcess

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
        answer = admin.find(topic=topic, max_num=count + 1, only_delivered=True)
    assert (len(answer.messages), answer.complete) == (count, True)
    return answer.messages


def broker_admin(broker):
    return SyncMQAdmin(broker.name_server)


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


def test_a_micro_batch_whose_commit_was_lost_is_sent_again_with_the_same_unique_keys(
    registered, running, golden, tmp_path
):
    checkpoint = tmp_path / "checkpoint"
    lines = registered.readStream.format("rocketmq").option("store", str(golden("5.5.0").store))
    table = lines.load().select("body", "physical_offset").where("physical_offset < 20000")

    def run():
        writing = table.writeStream.format("rocketmq").option("namesrv", running.name_server)
        writing = writing.option("topic", "Twice").option("idColumns", "physical_offset")
        writing = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writing.start().awaitTermination()

    run()
    with running.admin() as admin:
        count = len(admin.find(topic="Twice", max_num=1_000).messages)
    assert count > 20
    # As after a driver that was killed before it had written that.
    for file in checkpoint.glob("commits/*"):
        file.unlink()
    for file in checkpoint.glob("commits/.*"):
        file.unlink()
    run()
    copies = Counter(m.unique_key for m in messages_of(running, "Twice", 2 * count))
    assert list(copies.values()) == [2] * count


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


def test_every_row_is_stored_though_the_broker_is_killed_and_started_again_meanwhile(tmp_path):
    count, shards = 4_000, 5
    with BrokerProcess(tmp_path, mappedFileSizeCommitLog=1 << 22) as broker:
        broker.start()

        def kill_and_start():
            broker.kill()
            broker.start()

        restarting = Thread(target=kill_and_start)

        def batches():
            for first in range(0, count, 500):
                if first == count // 2:
                    restarting.start()
                numbers = range(first, first + 500)
                # Half of the rows have an order, and others are in batches.
                keys = [f"s{n % shards}" if n % 2 else None for n in numbers]
                yield batch(body=[b"%d" % n for n in numbers], sharding_key=keys)

        assert sender(broker, "body binary, sharding_key string").send(batches(), 0) == count
        restarting.join()
        with broker_admin(broker) as admin:
            answer = admin.find(topic="Sink", max_num=10 * count)
    assert answer.complete
    assert {int(m.body) for m in answer.messages} == set(range(count))
    # What was perhaps stored is sent again, and can be told.
    assert len({m.unique_key for m in answer.messages}) == count
    for shard in range(shards):
        of_shard = [m for m in answer.messages if int(m.body) % 2 and int(m.body) % shards == shard]
        assert len({m.queue_id for m in of_shard}) == 1
        in_queue = [int(m.body) for m in sorted(of_shard, key=lambda m: m.queue_offset)]
        in_order = [n for n in range(count) if n % 2 and n % shards == shard]
        assert [number for number, _ in groupby(in_queue)] == in_order


def test_a_broker_that_stays_away_fails_the_task_with_the_rows_that_were_perhaps_not_stored(
    monkeypatch,
):
    monkeypatch.setattr("rocketlens.pipeline.sink.SINK_TIMEOUT_S", 1.0)
    with cluster() as running:
        sending = sender(running, "body binary")

        def batches():
            yield batch(body=[b"x"] * 1_000)
            running.stop()
            yield batch(body=[b"y"] * 10)

        with pytest.raises(RemotingError, match="rows 1000 to 1009 of partition 7, topic Sink"):
            sending.send(batches(), 7)


def test_rows_of_a_topic_that_no_broker_has_or_creates_are_named_at_once():
    named = "rows 0 to 1 .*topic Sink, .*no name server knows a broker"
    with cluster(autoCreateTopicEnable=False) as running, pytest.raises(RemotingError, match=named):
        sender(running, "body binary").send([batch(body=[b"x", b"y"])], 0)


ON_A_SMALL_DISK = """
import sys
from collections import Counter
from pathlib import Path
import pyarrow as pa
from rocketlens.errors import RemotingError
from rocketlens.pipeline import sink
from rocketlens.pipeline.sink import RowSender
from rocketlens.testing import cluster
from tests.crash.small_disk import fill
root = Path(sys.argv[1])
sink.SINK_TIMEOUT_S = 1.0
count = 3_000
rows = [pa.RecordBatch.from_pydict({"body": [b"%d" % n * 100 for n in range(count)]})]
with cluster(root, mappedFileSizeCommitLog=1 << 20) as running:
    given = {"namesrv": running.name_server, "topic": "Sink", "writeId": "job"}
    sender = RowSender.of(given, {"body": "binary"})

    def filling():
        yield rows[0].slice(0, 1_000)
        fill(root)
        yield rows[0].slice(1_000)

    try:
        sender.send(filling(), 4)
    except RemotingError as error:
        print(error)
    (root / "ballast").unlink()
    assert sender.send(rows, 4) == count
    with running.admin() as admin:
        answer = admin.find(topic="Sink", max_num=3 * count)
    assert answer.complete
    keys = Counter(m.unique_key for m in answer.messages)
    assert len(keys) == count and set(keys.values()) == {1, 2}, Counter(keys.values())
"""


def test_a_full_disk_at_the_broker_fails_the_task_and_the_job_can_be_run_again(tmp_path):
    done = run_on_a_small_disk(ON_A_SMALL_DISK, tmp_path, mib=24)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "of partition 4, topic Sink, were perhaps not stored" in done.stdout
    assert "disk is full" in done.stdout


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
    options = {"namesrv": running.name_server, "topic": "Micro"}
    now_ms = iter(range(NOON_MS, NOON_MS + 1000))
    clock = SimpleNamespace(
        sleep=time.sleep, monotonic=time.monotonic, time_ns=lambda: next(now_ms) * 1_000_000
    )
    monkeypatch.setattr(sink, "time", clock)
    writer = RocketMQStreamWriter(RowSender.of(options, {"body": "binary"}))
    for number in ("3", "3", "4"):
        task["streaming.sql.batchId"] = number
        assert writer.write(iter([batch(body=[b"x"])])).count == 1
    monkeypatch.undo()
    first, again, other = (
        each.unique_key
        for each in sorted(messages_of(running, "Micro", 3), key=lambda each: each.physical_offset)
    )
    assert first == again != other


def test_no_more_rows_than_allowed_are_sent_in_a_second(running, monkeypatch):
    waits = []
    # Of the sink alone: other threads of Spark and of clients sleep, too.
    clock = SimpleNamespace(sleep=waits.append, monotonic=lambda: 100.0, time_ns=time.time_ns)
    monkeypatch.setattr(sink, "time", clock)
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
        ("body binary, physical_offset bigint", {}, "physical_offset is not part of a message"),
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
