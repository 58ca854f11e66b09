"""Stores as Spark's batches read them: of every layout, while segments go, by options."""

import errno
import shutil

import pytest

from rocketlens.bulk.options import OPTIONS
from rocketlens.errors import BadInput, StoreError
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from tests.conftest import fingerprint
from tests.support.layouts import BATCHES, DLEDGER, LAYOUTS, ROCKSDB, copied
from tests.support.synthetic import record, write_log


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


def planned(store, **options):
    """A reader with its partitions, as a job has them when its tasks begin."""
    from rocketlens.pipeline.source import RocketMQReader

    reader = RocketMQReader({"store": str(store), "maxPartitionBytes": "16384", **options})
    return reader, reader.partitions()


def rows_of(reader, partitions):
    return [row for one in partitions for batch in reader.read(one) for row in batch.to_pylist()]


@pytest.fixture
def rolling_store(tmp_path):
    records = write_log(tmp_path, [record(n, body=bytes(500)) for n in range(100)], 1 << 14)
    return tmp_path, [one.physical_offset for one in records]


def test_a_segment_deleted_between_plan_and_task_is_left_out_and_named(rolling_store, caplog):
    store, offsets = rolling_store
    reader, partitions = planned(store)
    damage_reader, damage_partitions = planned(store, table="damage")
    (store / "commitlog" / f"{0:020}").unlink()
    rest = [offset for offset in offsets if offset >= 1 << 14]
    assert [row["physical_offset"] for row in rows_of(reader, partitions)] == rest
    assert "physical offsets 0 to 16384 were deleted while they were read" in caplog.text
    assert rows_of(damage_reader, damage_partitions) == [
        {
            "physical_offset": 0,
            "length": 1 << 14,
            "reason": "the broker deleted this segment while it was read",
        }
    ]


def test_a_read_that_must_not_lose_anything_fails_for_a_deleted_segment(rolling_store):
    store, _ = rolling_store
    reader, partitions = planned(store, failOnDataLoss="true")
    (store / "commitlog" / f"{1 << 14:020}").unlink()
    with pytest.raises(StoreError, match="physical offsets 16384 to 32768 were deleted"):
        rows_of(reader, partitions)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.ENOMEM])
@pytest.mark.parametrize("table", ["messages", "damage"])
def test_a_segment_that_cannot_be_opened_now_fails_the_task_and_the_next_try_has_it(
    rolling_store, monkeypatch, code, table
):
    store, _ = rolling_store
    reader, partitions = planned(store, table=table)
    expected = rows_of(reader, partitions)

    def refuse(path, *_, **__):
        raise OSError(code, "no", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(fs, "MappedFile", refuse)
        with pytest.raises(OSError, match="no"):
            rows_of(reader, partitions)
    assert rows_of(reader, partitions) == expected


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOENT])
def test_a_failed_open_behind_a_damaged_record_is_not_the_end_of_the_segment(
    rolling_store, monkeypatch, code
):
    store, offsets = rolling_store
    path = store / "commitlog" / f"{0:020}"
    content = bytearray(path.read_bytes())
    content[offsets[3] + 4] ^= 0xFF
    path.write_bytes(content)
    reader, partitions = planned(store, failOnDataLoss="true")
    open_file = fs.MappedFile

    def refuse(path, size=None, **options):
        # The log that looks for the next record tells its size; the reader of a range does not.
        if size is not None:
            raise OSError(code, "no", str(path))
        return open_file(path, size, **options)

    with monkeypatch.context() as patched:
        patched.setattr(fs, "MappedFile", refuse)
        with pytest.raises((OSError, StoreError)):
            rows_of(reader, partitions)
    found = [row["physical_offset"] for row in rows_of(reader, partitions)]
    assert found == [offset for offset in offsets if offset != offsets[3]]


def streaming(store, **options):
    from rocketlens.pipeline.stream import RocketMQStreamReader

    return RocketMQStreamReader({"store": str(store), **options})


def latest(reader):
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_a_stream_syncs_what_it_is_about_to_read_where_no_broker_of_ours_says_how_far_that_is(
    rolling_store, monkeypatch
):
    store, _ = rolling_store
    synced = []
    monkeypatch.setattr(Disk, "sync_for_reading", lambda _, path: synced.append(path.name))
    reader = streaming(store)
    end = latest(reader)
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    assert synced == names
    synced.clear()
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert latest(streaming(store, includeUnsynced="true")) == end
    assert synced == []


def test_what_cannot_be_synced_is_not_given(rolling_store, monkeypatch):
    store, _ = rolling_store

    def fail(_, path):
        raise OSError(errno.EIO, "no", str(path))

    monkeypatch.setattr(Disk, "sync_file", fail)
    with pytest.raises(OSError, match="no"):
        latest(streaming(store))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("number", range(4))
def test_a_failed_open_never_moves_a_stream_over_what_it_did_not_read(
    rolling_store, monkeypatch, code, number
):
    store, _ = rolling_store
    expected = latest(streaming(store))
    open_file = fs.MappedFile

    def refuse(path, *arguments, **options):
        if path.name == f"{number << 14:020}":
            raise OSError(code, "no", str(path))
        return open_file(path, *arguments, **options)

    reader = streaming(store)
    start = reader.initialOffset()
    with monkeypatch.context() as patched:
        patched.setattr(fs, "MappedFile", refuse)
        with pytest.raises(OSError, match="no"):
            latest(reader)
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == expected


def batch(store, **options):
    from rocketlens.pipeline.source import RocketMQReader

    return RocketMQReader({"store": str(store), **options})


@pytest.mark.parametrize("make", [batch, streaming])
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("topics", "topic"),
        ("maxPartitionByte", "maxPartitionBytes"),
        ("check_crc", "checkCrc"),
        ("failondatalos", "failOnDataLoss"),
    ],
)
def test_an_option_that_is_none_is_refused_with_the_one_that_was_meant(make, tmp_path, name, meant):
    with pytest.raises(BadInput, match=rf"no option '{name}'; did you mean {meant}\? \(options: "):
        make(tmp_path, **{name: "x"})


@pytest.mark.parametrize("make", [batch, streaming])
def test_an_option_like_no_other_is_refused_with_all_there_are(make, tmp_path):
    with pytest.raises(BadInput, match=r"no option 'qwertz' \(options: store, brokerConf, topic, "):
        make(tmp_path, qwertz="x")


def test_options_of_streams_and_of_batches_are_told_apart(tmp_path):
    with pytest.raises(BadInput, match="maxBytesPerTrigger is not for batch reads"):
        batch(tmp_path, maxBytesPerTrigger="5")
    with pytest.raises(BadInput, match=r"maxOffsetsPerTrigger is not for batch reads$"):
        batch(tmp_path, maxOffsetsPerTrigger="5")
    with pytest.raises(BadInput, match=r"namesrv is not for streams$"):
        streaming(tmp_path, namesrv="a:1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"nameServer": "a:1", "topic": "T"},
            "'nameServer'; did you mean namesrv? (options: namesrv",
        ),
        ({"name.srv.addr": "a:1"}, "did you mean namesrv? (options: namesrv, topic"),
        ({"store": "/s", "nameServer": "a:1"}, "no option 'nameServer' (options: store, "),
        ({"namesrv": "a:1", "topic": "T", "maxBytesPerTrigger": "5"}, "mean maxOffsetsPerTrigger?"),
        (
            {"namesrv": "a:1", "topic": "T", "maxPartitionBytes": "5"},
            "mean maxRecordsPerPartition?",
        ),
        ({"store": "/s", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a whole number"),
        ({"store": "/s", "maxBytesPerTrigger": "0"}, "maxBytesPerTrigger is a whole number"),
        ({"namesrv": "a:1", "topic": "T", "startingOffset": "5"}, "earliest or latest or pos"),
        ({"store": "/s", "topic": "T", "subscribe": "T"}, "subscribe is another name of topic"),
        ({"store": "/s", "startingOffset": "5", "startingOffsets": "earliest"}, "give one"),
        ({"store": "/s", "startingOffsets": "-5"}, "latest or a physical offset or positions"),
    ],
)
def test_spark_refuses_options_when_it_loads(options, said):
    from rocketlens.pipeline.source import RocketMQDataSource

    with pytest.raises(BadInput) as refused:
        RocketMQDataSource(options).schema()
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"store": "/s", "startingOffset": "latest", "includeUnsynced": "true"},
        {"store": "/s", "startingoffsets": "4096", "table": "index_entries"},
        {"store": "/s", "maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "5"},
        {"store": "/s", "endingoffset": "4096", "table": "damage"},
        {"NAMESRV": "a:1", "subscribe": "T", "startingOffset": '{"T":{"0":1}}'},
        {"namesrv": "a:1", "topic": "T", "startingOffset": "latest", "maxOffsetsPerTrigger": "5"},
    ],
)
def test_spark_takes_what_a_batch_read_or_a_stream_can_have(options):
    from rocketlens.pipeline.source import RocketMQDataSource

    assert RocketMQDataSource(options).schema()


@pytest.mark.parametrize(("make", "reader"), [(batch, "batch reads"), (streaming, "streams")])
def test_every_option_of_the_table_is_taken_with_its_default(make, reader, tmp_path):
    options = [option for option in OPTIONS if reader in option.readers]
    assert len(options) > 10
    make(tmp_path, **{option.name: option.default for option in options if option.default})


@pytest.fixture(scope="module")
def store(golden, tmp_path_factory):
    return shutil.copytree(golden("5.5.0").store, tmp_path_factory.mktemp("store") / "store")


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("PayTopc", "has no topic 'PayTopc'; did you mean PayTopic"),
        ("paytopic", "has no topic 'paytopic'; did you mean PayTopic"),
        ("PayTopic,NoSuchThing", r"has no topic 'NoSuchThing' .for messages of a deleted topic"),
        ("Zzz*", r"has no topic that matches 'Zzz\*'"),
        (" , ", "the topic is empty"),
    ],
)
def test_a_topic_that_the_store_does_not_have_is_refused(store, topic, says):
    with pytest.raises(BadInput, match=says):
        batch(store, topic=topic).partitions()
    with pytest.raises(BadInput, match=says):
        streaming(store, topic=topic).initialOffset()


def topics_of(reader):
    batches = (one for part in reader.partitions() for one in reader.read(part))
    return {topic for one in batches for topic in one.column("topic").to_pylist()}


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("PayTopic", {"PayTopic"}),
        ("PayTopic, T22", {"PayTopic", "T22"}),
        ("Pay*", {"PayTopic"}),
        ("T2?,PayTopic", {"PayTopic", "T22"}),
    ],
)
def test_several_topics_and_patterns_may_be_asked_for(store, topic, expected):
    assert topics_of(batch(store, topic=topic)) == expected


def test_a_topic_of_the_log_alone_can_be_asked_for(store, tmp_path):
    write_log(tmp_path, [record(0, topic="Alone"), record(1, topic="Other")], 1 << 16)
    assert topics_of(batch(tmp_path, topic="Alone")) == {"Alone"}
    assert topics_of(batch(store, topic="NoSuch", allowUnknownTopic="true")) == set()
