"""Messages as a stream: ``spark.readStream.format("rocketmq")``."""

import json
import pickle
import shutil
from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException

from rocketlens.errors import BadInput, StoreError
from rocketlens.pipeline.source import RocketMQDataSource
from rocketlens.pipeline.stream import RocketMQStreamReader
from tests.support.synthetic import record, write_log
from tests.support.written_stores import open_small, send, send_many

SEGMENT_BYTES = 1 << 14


@pytest.fixture
def registered(spark):
    spark.dataSource.register(RocketMQDataSource)
    return spark


class Stream:
    """Reads a store as a stream, run by run, as a query with one checkpoint does."""

    def __init__(self, spark, store, checkpoint, **options):
        reader = spark.readStream.format("rocketmq").option("store", str(store))
        for name, value in options.items():
            reader = reader.option(name, value)
        self.table = reader.load()
        self.checkpoint = checkpoint
        self.batches = []

    def run(self):
        """Read what there is now; gives the rows of all micro-batches."""
        before = len(self.batches)
        while not self._run_once():
            pass
        return [row for batch in self.batches[before:] for row in batch]

    def _run_once(self):
        """Run the query to its end; False when Spark could not start it in time.

        It waits ten seconds for a Python process, which is too short on a busy machine.
        """
        self.query = (
            self.table.writeStream.foreachBatch(
                lambda batch, _: self.batches.append(batch.collect())
            )
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            self.query.awaitTermination()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" in str(error):
                return False
            raise
        return True


class DrivenStream:
    """Reads a store as :class:`Stream` does, through the calls that Spark makes, in this process.

    Each query of Spark starts Python anew, which takes longer than all that the reader does.
    """

    def __init__(self, store, checkpoint, **options):
        self.options = {"store": str(store)} | options
        self.checkpoint = checkpoint
        self.batches = []
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True, exist_ok=True)

    def run(self):
        """Read what there is now; gives the rows of all micro-batches."""
        before = len(self.batches)
        reader = RocketMQStreamReader(self.options)
        reader.prepareForTriggerAvailableNow()
        number = len(list((self.checkpoint / "commits").iterdir()))
        done = self._offset(number - 1)
        # A batch that was planned and did not end comes again as it was.
        end = self._offset(number)
        while True:
            # The first batch is made even if it is empty, so that its offset is kept.
            begin = done or _as_json(reader.initialOffset())
            end = end or _as_json(reader.latestOffset(begin, reader.getDefaultReadLimit()))
            if end == done:
                break
            planned = self.checkpoint / "offsets" / str(number)
            planned.write_text("v1\n{}\n" + json.dumps(end))
            self.batches.append(rows_of(reader, begin, end))
            reader.commit(end)
            (self.checkpoint / "commits" / str(number)).touch()
            done, end, number = end, None, number + 1
        return [row for batch in self.batches[before:] for row in batch]

    def _offset(self, number):
        path = self.checkpoint / "offsets" / str(number)
        return json.loads(path.read_text().splitlines()[-1]) if path.exists() else None


def _as_json(offset):
    return json.loads(json.dumps(offset))


def rows_of(reader, begin, end):
    """Read what lies between two offsets, planned there and read elsewhere."""
    rows = []
    for partition in reader.partitions(begin, end):
        for batch in reader.read(pickle.loads(pickle.dumps(partition))):
            rows += [SimpleNamespace(**row) for row in batch.to_pylist(maps_as_pydicts="strict")]
    return rows


FAILURES = (StreamingQueryException, StoreError)


@pytest.fixture
def spark_stream_of(registered, tmp_path):
    return lambda store, **options: Stream(registered, store, tmp_path / "checkpoint", **options)


@pytest.fixture(
    params=["driven", pytest.param("spark", marks=[pytest.mark.slow, pytest.mark.spark])]
)
def stream_of(request, tmp_path):
    if request.param == "spark":
        return request.getfixturevalue("spark_stream_of")
    return lambda store, **options: DrivenStream(store, tmp_path / "checkpoint", **options)


def offsets(rows):
    return [row.physical_offset for row in rows]


def test_a_stream_gives_each_message_once_as_the_log_grows(spark_stream_of, tmp_path):
    store = tmp_path / "store"
    log = [record(n, body=bytes(200)) for n in range(400)]
    first = write_log(store, log[:150], SEGMENT_BYTES)
    stream = spark_stream_of(store, maxPartitionBytes=str(SEGMENT_BYTES // 3))
    assert offsets(stream.run()) == offsets(first)
    assert stream.run() == []
    (store / "commitlog").rename(tmp_path / "old")
    all_of_them = write_log(store, log, SEGMENT_BYTES)
    assert len(list((store / "commitlog").iterdir())) > 5
    assert offsets(stream.run()) == offsets(all_of_them[150:])


def test_its_rows_are_those_of_a_table(spark_stream_of, registered, golden):
    store = golden("5.5.0").store
    table = registered.read.format("rocketmq").option("store", str(store)).load()
    assert spark_stream_of(store).run() == table.collect()


def test_a_micro_batch_is_bounded_by_bytes_of_log_and_ends_with_a_whole_record(
    spark_stream_of, tmp_path
):
    log = write_log(tmp_path / "store", [record(n, body=bytes(900)) for n in range(100)], 1 << 16)
    stream = spark_stream_of(tmp_path / "store", maxBytesPerTrigger="20000")
    assert offsets(stream.run()) == offsets(log)
    sizes = [sum(row.store_size for row in batch) for batch in stream.batches if batch]
    assert max(sizes) < 20_000 + log[0].total_size
    assert len(sizes) > 4


@pytest.mark.parametrize(
    ("most", "counts"), [(40, [40, 40, 20]), (1, [1] * 100), (100, [100]), (1000, [100])]
)
def test_a_micro_batch_is_bounded_by_messages_as_of_a_cluster(stream_of, tmp_path, most, counts):
    log = write_log(tmp_path / "store", [record(n) for n in range(100)], 1 << 20)
    stream = stream_of(tmp_path / "store", maxOffsetsPerTrigger=str(most))
    assert offsets(stream.run()) == offsets(log)
    assert [len(batch) for batch in stream.batches if batch] == counts


def test_it_begins_with_the_first_record_at_or_after_the_starting_offset(stream_of, tmp_path):
    log = write_log(tmp_path / "store", [record(n) for n in range(100)], SEGMENT_BYTES)
    inside = log[70].physical_offset - 1
    assert offsets(stream_of(tmp_path / "store", startingOffset=str(inside)).run()) == offsets(
        log[70:]
    )


def test_the_latest_offset_is_the_end_of_the_log(stream_of, tmp_path):
    store = tmp_path / "store"
    log = [record(n) for n in range(20)]
    write_log(store, log[:10], SEGMENT_BYTES)
    stream = stream_of(store, startingOffset="latest")
    assert stream.run() == []
    (store / "commitlog").rename(tmp_path / "old")
    written = write_log(store, log, SEGMENT_BYTES)
    assert offsets(stream.run()) == offsets(written[10:])


def send_to_queues(store, first, stop):
    """Send messages to queues 0 to 2 in turn: message n is in queue n % 3, at offset n // 3."""
    with open_small(store) as opened:
        for number in range(first, stop):
            send(opened, number, queue_id=number % 3)


def numbers_of(rows):
    return sorted(row.queue_offset * 3 + row.queue_id for row in rows)


@pytest.mark.parametrize("has_name", [True, False], ids=["broker", "no broker"])
def test_it_begins_at_positions_of_queues_and_has_all_that_comes_later(
    stream_of, tmp_path, has_name
):
    store = tmp_path / "store"
    send_to_queues(store, 0, 60)
    queues = {"0": 15, "1": -1}
    positions = {"Orders": {"any": queues} if has_name else queues}
    stream = stream_of(store, startingOffsets=json.dumps(positions), maxBytesPerTrigger="2000")
    first = [n for n in range(60) if n % 3 == 2 or (n % 3 == 0 and n >= 45)]
    assert numbers_of(stream.run()) == first
    assert len(stream.batches) > 3
    send_to_queues(store, 60, 75)
    assert numbers_of(stream.run()) == list(range(60, 75))


@pytest.mark.parametrize(
    ("positions", "said"),
    [
        ({"Orders": {"3": 0}}, "the store has no such queue: topic Orders, queue 3"),
        ({"Ordrs": {"0": 0}}, "no topic 'Ordrs'; did you mean Orders"),
        ({"Orders": {"0": 21}}, "queue 0 ends at offset 20, but startingOffsets is 21"),
    ],
)
def test_a_position_that_is_not_there_fails_the_start_of_a_stream(tmp_path, positions, said):
    send_to_queues(tmp_path, 0, 60)
    options = {"store": str(tmp_path), "startingOffsets": json.dumps(positions)}
    with pytest.raises((BadInput, StoreError), match=said):
        RocketMQStreamReader(options).initialOffset()


def test_a_position_behind_the_end_is_logged_where_a_loss_is(tmp_path, caplog):
    send_to_queues(tmp_path / "store", 0, 60)
    options = {"startingOffsets": '{"Orders":{"0":21}}', "failOnDataLoss": "false"}
    stream = DrivenStream(tmp_path / "store", tmp_path / "checkpoint", **options)
    assert numbers_of(stream.run()) == [n for n in range(60) if n % 3]
    assert "queue 0 ends at offset 20, but startingOffsets is 21" in caplog.text
    send_to_queues(tmp_path / "store", 60, 66)
    assert numbers_of(stream.run()) == list(range(60, 66))


def test_index_entries_begin_at_no_positions(tmp_path):
    options = {"store": str(tmp_path), "startingOffsets": '{"T":{"0":1}}', "table": "index_entries"}
    with pytest.raises(BadInput, match="leave out startingOffsets"):
        RocketMQStreamReader(options)


def test_damage_costs_its_records_only_and_what_a_broker_deleted_is_passed_over(
    stream_of, tmp_path
):
    store = tmp_path / "store"
    log = write_log(store, [record(n, body=bytes(500)) for n in range(150)], SEGMENT_BYTES)
    stream = stream_of(store, maxBytesPerTrigger="30000")
    hit = next(one for one in log if one.physical_offset > 2 * SEGMENT_BYTES + 1000)
    path = store / "commitlog" / f"{2 * SEGMENT_BYTES:020}"
    content = bytearray(path.read_bytes())
    content[hit.physical_offset - 2 * SEGMENT_BYTES + 2] ^= 0x55
    path.write_bytes(content)
    (store / "commitlog" / f"{0:020}").unlink()
    expected = [one for one in log if one.physical_offset >= SEGMENT_BYTES and one != hit]
    assert offsets(stream.run()) == offsets(expected)


def test_a_torn_end_is_read_when_it_is_whole(stream_of, tmp_path):
    store = tmp_path / "store"
    log = write_log(store, [record(n) for n in range(30)], SEGMENT_BYTES)
    path = store / "commitlog" / f"{0:020}"
    whole = path.read_bytes()
    cut = log[-1].physical_offset + 40
    path.write_bytes(whole[:cut].ljust(len(whole), b"\0"))
    stream = stream_of(store)
    assert offsets(stream.run()) == offsets(log[:-1])
    path.write_bytes(whole)
    assert offsets(stream.run()) == offsets(log[-1:])


def replace_log(store, records):
    shutil.rmtree(store / "commitlog")
    return write_log(store, records, SEGMENT_BYTES)


def test_a_store_that_was_replaced_fails_the_stream_and_says_what_is_lost(
    spark_stream_of, tmp_path
):
    store = tmp_path / "store"
    log = write_log(store, [record(n, body=bytes(90)) for n in range(100)], SEGMENT_BYTES)
    assert len(spark_stream_of(store).run()) == 100
    replace_log(store, [record(n, body=bytes(91)) for n in range(200)])
    with pytest.raises(StreamingQueryException, match="the log is not the one") as caught:
        spark_stream_of(store).run()
    end = log[-1].physical_offset + log[-1].total_size
    assert f"physical offsets 0 to {end} may be other ones" in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)


def test_without_failing_a_replaced_store_is_read_from_its_begin(stream_of, tmp_path):
    store = tmp_path / "store"
    write_log(store, [record(n, body=bytes(90)) for n in range(100)], SEGMENT_BYTES)
    assert len(stream_of(store, failOnDataLoss="false").run()) == 100
    other = replace_log(store, [record(n, body=bytes(91)) for n in range(60)])
    stream = stream_of(store, failOnDataLoss="false")
    assert offsets(stream.run()) == offsets(other)
    assert stream.run() == []


def test_a_log_that_lost_its_end_is_read_again_from_where_it_is_the_same(stream_of, tmp_path):
    store = tmp_path / "store"
    log = [record(n, body=bytes(90)) for n in range(60)]
    for count in (20, 40, 60):
        replace_log(store, log[:count]) if count > 20 else write_log(store, log[:20], SEGMENT_BYTES)
        assert len(stream_of(store, failOnDataLoss="false").run()) == 20
    # The machine lost power: 10 messages are gone, and 15 others have their offsets.
    log[50:] = [record(n, body=bytes(77)) for n in range(100, 115)]
    changed = replace_log(store, log)
    assert offsets(stream_of(store, failOnDataLoss="false").run()) == offsets(changed[40:])


def test_what_was_deleted_before_it_was_read_fails_the_stream_or_is_passed_over(
    stream_of, tmp_path
):
    store = tmp_path / "store"
    log = [record(n, body=bytes(500)) for n in range(150)]
    write_log(store, log[:10], SEGMENT_BYTES)
    assert len(stream_of(store).run()) == 10
    written = replace_log(store, log)
    for number in range(2):
        (store / "commitlog" / f"{number * SEGMENT_BYTES:020}").unlink()
    with pytest.raises(FAILURES, match="deleted before they were read") as caught:
        stream_of(store).run()
    begin = written[10].physical_offset
    assert f"{2 * SEGMENT_BYTES - begin} bytes of the log" in str(caught.value)
    assert "after 2023-11-14T22:13:26" in str(caught.value)
    rest = [one for one in written if one.physical_offset >= 2 * SEGMENT_BYTES]
    assert offsets(stream_of(store, failOnDataLoss="false").run()) == offsets(rest)


def test_a_record_that_is_still_being_written_is_given_once_and_whole(stream_of, tmp_path):
    store = tmp_path / "store"
    log = write_log(store, [record(n, body=bytes(range(200))) for n in range(30)], SEGMENT_BYTES)
    (store / "abort").touch()
    path = store / "commitlog" / f"{0:020}"
    whole = path.read_bytes()
    stream = stream_of(store)
    end = log[-1].physical_offset + log[-1].total_size
    given = []
    # Its header is there; half its body; all but the last byte of its properties; all of it.
    for cut in (log[-1].physical_offset + 90, log[-1].physical_offset + 200, end - 1, end):
        path.write_bytes(whole[:cut].ljust(len(whole), b"\0"))
        given.append(stream.run())
    assert [len(rows) for rows in given] == [29, 0, 0, 1]
    assert given[-1][0].properties["UNIQ_KEY"] == f"{29:032X}"


def test_nothing_is_given_before_our_broker_has_synced_it_unless_asked_for(stream_of, tmp_path):
    written = open_small(tmp_path / "store")
    send_many(written, 20)
    written.flush()
    send_many(written, 10, first=20)
    stream = stream_of(tmp_path / "store")
    assert len(stream.run()) == 20
    written.flush()
    assert len(stream.run()) == 10
    send_many(written, 5, first=30)
    assert len(stream_of(tmp_path / "store", includeUnsynced="true").run()) == 5
    written.close()


def test_our_note_about_syncing_is_not_believed_once_another_broker_has_written(
    stream_of, tmp_path
):
    from rocketlens.formats.checkpoint import Checkpoint

    with open_small(tmp_path / "store") as written:
        send_many(written, 20)
    note = (tmp_path / "store" / "rocketlens" / "synced").read_bytes()
    with open_small(tmp_path / "store") as written:
        send_many(written, 10, first=20)
    (tmp_path / "store" / "rocketlens" / "synced").write_bytes(note)
    (tmp_path / "store" / "checkpoint").write_bytes(Checkpoint(5, 5, 5).encode())
    assert len(stream_of(tmp_path / "store").run()) == 30


def test_a_checkpoint_of_an_earlier_version_goes_on_where_it_was(stream_of, tmp_path):
    store = tmp_path / "store"
    log = write_log(store, [record(n) for n in range(40)], SEGMENT_BYTES)
    replace_log(store, [record(n) for n in range(25)])
    assert len(stream_of(store).run()) == 25
    for path in (tmp_path / "checkpoint" / "offsets").iterdir():
        if path.name.isdigit():
            lines = path.read_text().splitlines()
            place = json.loads(lines[-1])["physical_offset"]
            path.write_text("\n".join([*lines[:-1], json.dumps({"physical_offset": place})]))
    for path in (tmp_path / "checkpoint" / "offsets").glob(".*.crc"):
        path.unlink()
    replace_log(store, [record(n) for n in range(40)])
    assert offsets(stream_of(store).run()) == offsets(log[25:])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": "damage"}, "not for streams"),
        ({"startingOffset": "-5"}, "startingOffsets is earliest or latest or a physical offset"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger is a whole number"),
    ],
)
def test_options_that_cannot_be_used_are_named(stream_of, tmp_path, options, says):
    write_log(tmp_path / "store", [record(0)], SEGMENT_BYTES)
    with pytest.raises(Exception, match=says) as caught:
        stream_of(tmp_path / "store", **options).run()
    assert not isinstance(caught.value, StreamingQueryException) or says in str(caught.value)


def test_index_entries_are_refused_for_a_store_whose_broker_is_not_ours(stream_of, tmp_path):
    write_log(tmp_path / "store", [record(0)], SEGMENT_BYTES)
    with pytest.raises(FAILURES, match="not the store of a RocketLens broker"):
        stream_of(tmp_path / "store", table="index_entries").run()


def test_a_log_that_ends_where_a_segment_does_goes_on_in_the_next(stream_of, tmp_path):
    store = tmp_path / "store"
    log = [record(n, body=bytes(300)) for n in range(100)]
    written = write_log(store, log, SEGMENT_BYTES)
    second = next(n for n, one in enumerate(written) if one.physical_offset >= SEGMENT_BYTES)
    (store / "commitlog").rename(tmp_path / "old")
    write_log(store, log[:second], SEGMENT_BYTES)
    stream = stream_of(store)
    assert offsets(stream.run()) == offsets(written[:second])
    (store / "commitlog").rename(tmp_path / "older")
    write_log(store, log, SEGMENT_BYTES)
    assert offsets(stream.run()) == offsets(written[second:])
