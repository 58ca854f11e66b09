"""A cluster as a stream: each message once, new queues, and no loss in silence."""

import asyncio
import json
import pickle

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rocketlens import Message
from rocketlens.bulk.options import OPTIONS
from rocketlens.errors import BadInput, RemotingError, StoreError, TopicNotFound
from rocketlens.pipeline.cluster_stream import ClusterStreamReader, from_json, to_json
from rocketlens.pipeline.source import RocketMQDataSource
from rocketlens.testing import cluster
from tests.support.async_tests import within
from tests.support.fake_cluster import T0, fail, running
from tests.support.patience import PATIENCE_S

ALL = ReadAllAvailable()


class Stream:
    """A query that is run micro-batch by micro-batch, with its offset as a checkpoint keeps it."""

    def __init__(self, namesrv, **options):
        self.options = {"namesrv": namesrv, "subscribe": "T", **options}
        self.offset = None

    def reader(self):
        return pickle.loads(pickle.dumps(ClusterStreamReader(self.options)))

    def batch(self, limit=None, reader=None):
        """Read one micro-batch; return its bodies as numbers."""
        reader = reader or self.reader()
        if self.offset is None:
            self.offset = json.dumps(reader.initialOffset())
        start = json.loads(self.offset)
        end = json.loads(json.dumps(reader.latestOffset(start, limit or ALL)))
        found = self.between(reader, start, end)
        assert self.between(self.reader(), start, end) == found
        self.offset = json.dumps(end)
        return found

    @staticmethod
    def between(reader, start, end):
        return sorted(
            int(row["body"])
            for part in reader.partitions(start, end)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        )


def with_stream(scenario, *, brokers=1, slaves=0, **options):
    """Run ``await scenario(cluster, stream, batch)``; queues have 40 messages together."""

    async def main():
        async with running(masters=brokers, slaves=slaves) as fake:
            for broker in (*fake.masters[:1], *fake.slaves):
                send(broker, range(40))
            stream = Stream(fake.given, **options)

            async def batch(*limits, **named):
                return await asyncio.to_thread(stream.batch, *limits, **named)

            return await scenario(fake, stream, batch)

    return asyncio.run(main())


def send(broker, numbers):
    for number in numbers:
        broker.store("T", b"%d" % number, queue_id=number % 4)


@within(with_stream)
async def test_each_message_is_returned_once_as_they_are_sent(fake, stream, batch, /):
    assert await batch() == list(range(40))
    assert await batch() == []
    send(fake.masters[0], range(40, 50))
    assert await batch() == list(range(40, 50))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "latest"}, range(40, 50)),
        ({"startingOffsets": "earliest"}, range(50)),
        # Message n was stored in millisecond n + 1.
        ({"startingTimestamp": str(T0 + 31)}, range(30, 50)),
    ],
)
def test_it_begins_where_it_is_told_to(options, expected):
    async def scenario(fake, stream, batch):
        first = await batch()
        send(fake.masters[0], range(40, 50))
        assert first + await batch() == list(expected)

    with_stream(scenario, **options)


# Message n is in queue n % 4, at offset n // 4.
PLACED = {"T": {"broker-a": {"0": 3, "1": -1, "2": -2}}}


def begins_at(positions):
    """Return which of 40 messages a stream has that begins at positions."""
    starts = {"-1": 40, "-2": 0}
    of_queue = {int(queue): starts.get(str(at), at * 4) for queue, at in positions.items()}
    return [number for number in range(40) if number >= of_queue.get(number % 4, 0)]


@pytest.mark.parametrize("offsets", [PLACED, {"T": PLACED["T"]["broker-a"]}], ids=["names", "one"])
def test_it_begins_at_positions_of_queues_and_others_at_their_first_message(offsets):
    async def scenario(fake, stream, batch):
        assert await batch() == begins_at(PLACED["T"]["broker-a"])
        send(fake.masters[0], range(40, 50))
        assert await batch() == list(range(40, 50))

    with_stream(scenario, startingOffsets=json.dumps(offsets))


@within(with_stream)
async def test_positions_count_for_the_first_start_alone(fake, stream, batch, /):
    assert await batch() == list(range(40))
    stream.options["startingOffsets"] = json.dumps({"T": {"0": 100}})
    send(fake.masters[0], range(40, 44))
    assert await batch() == list(range(40, 44))


@pytest.mark.parametrize(
    ("offsets", "error", "said"),
    [
        ({"T": {"4": 0}}, BadInput, "the cluster has no such queue: topic T, queue 4"),
        (
            {"T": {"broker-x": {"0": 0}}},
            BadInput,
            "the cluster has no such queue: broker-x, topic T",
        ),
        ({"T": {"0": 11}}, StoreError, "ends at offset 10, but startingOffsets is 11: messages"),
    ],
)
def test_a_position_that_is_not_there_fails_the_start_of_a_stream(offsets, error, said):
    async def scenario(fake, stream, batch):
        with pytest.raises(error, match=said):
            await batch()

    with_stream(scenario, startingOffsets=json.dumps(offsets))


def test_without_failing_a_queue_without_its_position_is_read_from_its_begin(caplog):
    async def scenario(fake, stream, batch):
        assert await batch() == list(range(40))
        assert "ends at offset 10, but startingOffsets is 11: messages were lost" in caplog.text

    options = {"startingOffsets": '{"T":{"0":11}}', "failOnDataLoss": "false"}
    with_stream(scenario, **options)


@within(with_stream, slaves=1, startingOffsets='{"T":{"0":12}}')
async def test_a_slave_that_is_behind_its_position_waits_there(fake, stream, batch, /):
    send(fake.masters[0], range(40, 50))
    await fail(fake.masters[0], "erring")
    assert await batch() == begins_at({"0": -1})
    assert json.loads(stream.offset)["T"]["broker-a"]["0"] == 12


@within(with_stream, maxOffsetsPerTrigger="5")
async def test_a_micro_batch_is_bounded_and_every_queue_has_its_part(fake, stream, batch, /):
    first = await batch(ReadMaxRows(8))
    assert first == list(range(8))
    found = first
    while len(found) < 40:
        more = await batch(ReadMaxRows(8))
        assert 0 < len(more) <= 8
        found += more
    assert sorted(found) == list(range(40))
    assert ClusterStreamReader(stream.options).getDefaultReadLimit() == ReadMaxRows(5)


@within(with_stream)
async def test_what_is_available_now_ends_where_it_began(fake, stream, batch, /):
    reader = ClusterStreamReader(stream.options)
    await asyncio.to_thread(reader.prepareForTriggerAvailableNow)
    send(fake.masters[0], range(40, 50))
    assert await batch(reader=reader) == list(range(40))
    assert await batch(reader=reader) == []


@within(with_stream, brokers=2)
async def test_new_queues_are_read_from_their_first_message_on(fake, stream, batch, /):
    fake.name_servers[0].topics["T"] = ["broker-a"]
    assert await batch() == list(range(40))
    fake.name_servers[0].topics["T"] = ["broker-a", "broker-b"]
    send(fake.masters[1], range(100, 110))
    # First their begin is written down, so that a repeated batch has the same messages.
    assert await batch() == []
    assert await batch() == list(range(100, 110))


@within(with_stream, brokers=2)
async def test_a_broker_that_is_gone_for_a_while_is_read_on_where_it_was(
    fake, stream, batch, /, caplog
):
    send(fake.masters[1], range(100, 110))
    assert len(await batch()) == 50
    fake.name_servers[0].topics["T"] = ["broker-a"]
    send(fake.masters[1], range(110, 120))
    assert await batch() == []
    assert "no broker has it now" in caplog.text
    fake.name_servers[0].topics["T"] = ["broker-a", "broker-b"]
    assert await batch() == list(range(110, 120))


@within(with_stream)
async def test_a_broker_that_does_not_answer_fails_the_batch_and_loses_nothing(
    fake, stream, batch, /
):
    assert await batch() == list(range(40))
    fake.masters[0].err()
    with pytest.raises(RemotingError, match="broker-a: "):
        await batch()
    fake.masters[0].fails_with = None
    send(fake.masters[0], range(40, 44))
    assert await batch() == list(range(40, 44))


@within(with_stream, slaves=1)
async def test_a_slave_that_is_behind_moves_nothing_back(fake, stream, batch, /, caplog):
    send(fake.masters[0], range(40, 50))
    assert await batch() == list(range(50))
    before = stream.offset
    await fail(fake.masters[0], "erring")
    assert await batch() == []
    assert stream.offset == before
    assert "which may lack the newest messages" in caplog.text


def make_again(broker):
    """Delete the topic and make it again, with 3 messages in queue 0."""
    for queue in broker.queues.values():
        queue.clear()
    for number in (500, 504, 508):
        broker.store("T", b"%d" % number, queue_id=0)


@within(with_stream)
async def test_a_topic_that_was_made_again_fails_the_stream_and_is_named(fake, stream, batch, /):
    await batch()
    make_again(fake.masters[0])
    with pytest.raises(StoreError, match=r"queueId=0\] ends at offset 3, and was read up to 10"):
        await batch()


@within(with_stream, failOnDataLoss="false")
async def test_without_failing_it_is_read_from_its_begin(fake, stream, batch, /, caplog):
    await batch()
    make_again(fake.masters[0])
    assert await batch() == []
    assert await batch() == [500, 504, 508]
    assert "ends at offset 3, and was read up to 10: messages were lost" in caplog.text


@within(with_stream)
async def test_messages_that_are_gone_fail_the_stream_by_default(fake, stream, batch, /):
    broker = fake.masters[0]
    record = broker.queues["T", 0][2]
    broker.log[record.physical_offset : record.physical_offset + 8] = bytes(8)
    with pytest.raises(StoreError, match="8 have no message that can be read"):
        await batch()


def test_the_offset_is_that_of_each_queue_by_its_names():
    offset = {"A": {"b-1": {"0": 5, "1": 7}, "b-2": {"0": 0}}, "%RETRY%g": {"b-1": {"0": 3}}}
    assert to_json(from_json(offset)) == offset


@pytest.mark.parametrize(
    "offset", [{"physical_offset": 7}, {"T": {"b": 7}}, {"T": {"b": {"x": 1}}}]
)
def test_the_checkpoint_of_another_stream_is_refused(offset):
    with pytest.raises(BadInput, match="not of a stream of a cluster"):
        from_json(offset)


def test_the_defaults_in_the_table_are_those_of_a_stream():
    defaults = {
        option.name: option.default for option in OPTIONS if "cluster streams" in option.readers
    }
    given = {name: text for name, text in defaults.items() if text}
    reader = ClusterStreamReader({**given, "namesrv": "a:1", "subscribe": "T"})
    assert defaults["maxOffsetsPerTrigger"] == str(reader.getDefaultReadLimit().max_rows)
    assert defaults["failOnDataLoss"] == str(reader._scan.losses.fails).lower()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "both say where to begin"),
        ({"endingTimestamp": "5"}, "not for cluster streams"),
        ({"maxBytesPerTrigger": "5"}, "not for cluster streams"),
        ({"startingOffsets": "5"}, "earliest or latest or positions of queues as JSON for cluster"),
        ({"startingOffsets": '{"T":1}'}, 'startingOffsets has 1: expected {"TOPIC":'),
        ({"startingOffsets": '{"U":{"0":1}}'}, "names topic U, which is not read"),
        ({"startingOffsets": '{"T":{"0":1}}', "startingTimestamp": "5"}, "not both options"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1 on"),
    ],
)
def test_options_that_cannot_be_are_refused(options, said):
    with pytest.raises(BadInput, match=said):
        ClusterStreamReader({"namesrv": "a:1", "subscribe": "T", **options})


@within(with_stream)
async def test_an_unknown_topic_is_refused(fake, stream, batch, /):
    fake.name_servers[0].topics.clear()
    with pytest.raises(TopicNotFound, match="this cluster has no topic 'T'"):
        await batch()


def test_a_query_returns_the_rows_of_the_store_once_over_several_runs(spark, tmp_path):
    spark.dataSource.register(RocketMQDataSource)
    with cluster() as running_cluster, running_cluster.producer() as producer:

        def rows_of_run():
            """Run the query to its end; once more when Spark could not start it in time."""
            found = []
            for _ in range(5):
                query = (
                    spark.readStream.format("rocketmq")
                    .option("namesrv", running_cluster.name_server)
                    .option("subscribe", "Orders")
                    .option("maxOffsetsPerTrigger", "30")
                    .load()
                    .drop("cluster", "broker")
                    .writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
                    .option("checkpointLocation", str(tmp_path / "checkpoint"))
                    .trigger(availableNow=True)
                    .start()
                )
                try:
                    assert query.awaitTermination(PATIENCE_S)
                except StreamingQueryException as error:
                    if "Python worker failed to connect back" not in str(error):
                        raise
                else:
                    break
            return found

        found = []
        for first in (0, 40):
            for number in range(first, first + 40):
                producer.send(Message("Orders", b"%d" % number, keys=f"k{number}"))
            rows = rows_of_run()
            assert len(rows) == 40
            found += rows
        of_store = spark.read.format("rocketmq").load(str(running_cluster.store))
        # The files of a store do not have these names.
        expected = of_store.drop("cluster", "broker").orderBy("physical_offset").collect()
        assert sorted(found, key=lambda row: row.physical_offset) == expected
