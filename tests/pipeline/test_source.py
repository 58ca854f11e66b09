import pytest
from msgspec.structs import replace
from pyspark.sql.functions import broadcast

from rocketlens.formats.commitlog_record import MAGIC_V2, encode, message_of
from rocketlens.model.fields import LIFE_COLUMNS, TEXT_COLUMNS
from rocketlens.model.message import Host
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.terminal.message_values import value_of
from tests.support.synthetic import START_MS, record, write_busy_log, write_log


def load(spark, store, **options):
    reader = spark.read.format("rocketmq").option("store", str(store))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


@pytest.fixture
def registered(spark):
    from rocketlens.pipeline.source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
    return spark


def as_row(message):
    """Give a message as the table shows it."""
    fields = {name: getattr(message, name) for name in message.__slots__}
    return fields | {
        "keys": list(message.keys),
        "born_host": str(message.born_host),
        "store_host": str(message.store_host),
        "properties": dict(message.properties),
        "body": bytearray(message.body),
        # Spark gives timestamps in local time.
        "store_time": message.store_time.astimezone().replace(tzinfo=None),
        "born_time": message.born_time.astimezone().replace(tzinfo=None),
        **{name: value_of(message, name) for name in (*LIFE_COLUMNS, *TEXT_COLUMNS)},
    }


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("kind", ["store", "crashed"])
def test_the_table_has_every_record_of_a_real_store_in_every_field(
    registered, golden, version, kind
):
    store = getattr(golden(version), kind)
    rows = load(registered, store, minPartitions=6).orderBy("physical_offset").collect()
    log = CommitLog(store / "commitlog")
    expected = [as_row(message_of(log.record_at(row.physical_offset))) for row in rows]
    log.close()
    assert [row.asDict() for row in rows] == expected
    assert len(rows) >= len(golden(version).sent)
    assert load(registered, store, table="damage").count() == 0


def test_positions_of_queues_bound_a_table(registered, golden):
    store = golden("5.5.0").store
    of_queue = load(registered, store, topic="OrderTopic").where("queue_id = 1")
    assert of_queue.count() > 3
    positions = {
        "startingOffsets": '{"OrderTopic":{"1":1}}',
        "endingOffsets": '{"OrderTopic":{"1":3}}',
    }
    table = load(registered, store, topic="OrderTopic", **positions)
    assert sorted(row.queue_offset for row in table.where("queue_id = 1").collect()) == [1, 2]
    others = load(registered, store, topic="OrderTopic").where("queue_id <> 1").count()
    assert table.where("queue_id <> 1").count() == others > 0


def test_hosts_of_ipv6_wide_topics_and_odd_text_are_given_as_java_would(registered, tmp_path):
    v6 = Host("fd00::1", 10911)
    odd = record(3, topic="T", KEYS="a  b a", TAGS="é😀")
    log = [
        replace(record(0), born_host=v6),
        replace(record(1), store_host=v6),
        replace(record(2, topic="T" * 200), magic=MAGIC_V2),
        replace(odd, properties=odd.properties + b"X\x01\xff\xc0\x02UNIQ_KEY\x01last"),
        replace(record(4), properties=b""),
        replace(record(5), body=b"not zlib", sys_flag=1),
    ]
    written = write_log(tmp_path, log, 1 << 16)
    rows = load(registered, tmp_path).orderBy("physical_offset").collect()
    stored = CommitLog(tmp_path / "commitlog")
    expected = [as_row(message_of(stored.record_at(one.physical_offset))) for one in written[:5]]
    stored.close()
    assert [row.asDict() for row in rows[:5]] == expected
    assert rows[3].unique_key == "last"
    assert rows[4].unique_key is None
    assert rows[4].msg_id == rows[4].offset_msg_id


def test_a_body_that_cannot_be_decompressed_is_as_stored_with_a_note_and_no_damage(
    registered, tmp_path
):
    log = [record(0), replace(record(1), body=b"not zlib", sys_flag=1)]
    write_log(tmp_path, log, 1 << 16)
    rows = load(registered, tmp_path).orderBy("physical_offset").collect()
    assert [row.body for row in rows] == [bytearray(b"body"), bytearray(b"not zlib")]
    assert rows[0].body_error is None
    assert "not zlib data" in rows[1].body_error
    assert rows[1].sys_flag == 1
    assert load(registered, tmp_path, table="damage").count() == 0


def test_damaged_records_cost_only_themselves_and_are_named(registered, tmp_path):
    written = write_log(tmp_path, [record(n, body=bytes(50)) for n in range(300)], 1 << 14)
    in_body, in_size, torn = written[30], written[200], written[-1]
    for one, at in ((in_body, 100), (in_size, 2), (torn, 30)):
        base = one.physical_offset >> 14 << 14
        path = tmp_path / "commitlog" / f"{base:020}"
        content = bytearray(path.read_bytes())
        content[one.physical_offset - base + at] ^= 0x10
        path.write_bytes(content)
    found = {row.physical_offset for row in load(registered, tmp_path, minPartitions=4).collect()}
    lost = {one.physical_offset for one in (in_body, in_size, torn)}
    assert found == {one.physical_offset for one in written} - lost
    damage = load(registered, tmp_path, table="damage").collect()
    assert {place.physical_offset for place in damage} == lost
    unchecked = load(registered, tmp_path, checkCrc="false").count()
    assert unchecked == len(written) - 2


@pytest.fixture
def busy_store(tmp_path):
    return tmp_path, write_busy_log(tmp_path)


FILTERS = {
    "topic = 'Topic3'": lambda one: one.topic == "Topic3",
    "topic in ('Topic1', 'Topic4', 'None')": lambda one: one.topic in ("Topic1", "Topic4"),
    f"store_timestamp_ms >= {START_MS + 200_000}": (
        lambda one: one.store_timestamp_ms >= START_MS + 200_000
    ),
    f"store_timestamp_ms between {START_MS} and {START_MS + 90_000}": (
        lambda one: one.store_timestamp_ms <= START_MS + 90_000
    ),
    "physical_offset > 200000 and physical_offset < 260000": (
        lambda one: 200_000 < one.physical_offset < 260_000
    ),
    "physical_offset = 0": lambda one: one.physical_offset == 0,
    "queue_offset in (5, 450) and topic <> 'Topic0'": lambda _: False,
    "topic = 'Topic2' or physical_offset < 5000": (
        lambda one: one.topic == "Topic2" or one.physical_offset < 5000
    ),
    "not topic = 'Topic2'": lambda one: one.topic != "Topic2",
    "topic like 'Topic%' and tags is null": lambda _: True,
}


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_give_exact_answers(registered, busy_store, condition):
    store, written = busy_store
    table = load(registered, store, minPartitions=4)
    found = {row.physical_offset for row in table.filter(condition).collect()}
    assert found == {one.physical_offset for one in written if FILTERS[condition](one)}


def test_offsets_leave_partitions_out(registered, busy_store):
    store, _ = busy_store
    options = {"minPartitions": 8, "maxPartitionBytes": 1 << 16}
    whole = load(registered, store, **options).rdd.getNumPartitions()
    part = load(registered, store, endingOffset=100_000, **options)
    assert part.rdd.getNumPartitions() == 2 < whole


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 500),
        ({"topic": "Topic1, Topic2"}, 200),
        ({"startingTimestamp": str(START_MS + 240_000)}, 70),
    ],
)
def test_columns_are_built_for_wanted_records_only(busy_store, monkeypatch, options, expected):
    from rocketlens.formats import columns
    from rocketlens.pipeline.source import RocketMQReader

    built = 0
    batches = columns.batches

    def counting(rows, **named):
        nonlocal built
        built += len(rows)
        return batches(rows, **named)

    monkeypatch.setattr(columns, "batches", counting)
    reader = RocketMQReader({"store": str(busy_store[0])} | options)
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
    assert rows == built == expected


def test_a_cached_table_is_read_whole_and_can_be_filtered_in_several_ways(registered, busy_store):
    store, written = busy_store
    table = load(registered, store).cache()
    try:
        assert table.filter("topic = 'Topic1'").count() == 100
        assert table.count() == len(written)
        assert table.filter("topic in ('Topic2', 'Topic3')").count() == 200
    finally:
        table.unpersist()


@pytest.mark.parametrize("way", ["measured", "limit", "cache", "broadcast"])
def test_a_small_table_goes_to_all_executors_of_a_join_once_spark_knows_its_size(
    registered, busy_store, way
):
    store, _ = busy_store
    table = load(registered, store).select("queue_offset", "topic")
    if way == "limit":
        table = table.limit(400)
    elif way == "cache":
        table.cache().count()
    elif way == "broadcast":
        table = broadcast(table)
    # Too large to be the side that is sent.
    numbers = registered.range(2_000_000).withColumnRenamed("id", "queue_offset")
    joined = numbers.join(table, "queue_offset")
    execution = joined._jdf.queryExecution()
    assert ("BroadcastHashJoin" in execution.executedPlan().toString()) == (way != "measured")
    counted = joined.groupBy().count()
    assert counted.collect()[0]["count"] == (400 if way == "limit" else 500)
    final = counted._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in final.partition("Initial Plan")[0]
    registered.catalog.clearCache()


def test_options_are_case_insensitive_and_wrong_ones_named(registered, busy_store):
    from pyspark.errors import PySparkException

    store, _ = busy_store
    assert (
        load(registered, store, TOPIC="Topic1", BODY="False").filter("body is null").count() == 100
    )
    assert registered.read.format("rocketmq").load(str(store)).count() == 500
    for wrong in ({"table": "x"}, {"checkCrc": "maybe"}, {"startingOffset": "-1"}):
        with pytest.raises(PySparkException, match=next(iter(wrong))):
            load(registered, store, **wrong).count()
    with pytest.raises(PySparkException, match="the option store is missing"):
        registered.read.format("rocketmq").load().count()
    with pytest.raises(PySparkException, match="no such file or directory"):
        load(registered, store / "nothing").count()


BATCH_OPTIONS = [
    {},
    {"table": "damage"},
    {"topic": "Topic1, Topic4", "body": "false"},
    {"startingTimestamp": str(START_MS + 40_000), "endingTimestamp": str(START_MS + 90_000)},
    {"startingOffset": "60000", "endingOffset": "200000", "maxPartitionBytes": "65536"},
    {"checkCrc": "false", "minPartitions": "5"},
]


@pytest.mark.parametrize("options", BATCH_OPTIONS, ids=str)
def test_read_batches_gives_what_the_source_gives_to_spark(registered, busy_store, options):
    from rocketlens import read_batches

    store, written = busy_store
    path = store / "commitlog" / f"{0:020}"
    content = bytearray(path.read_bytes())
    content[written[7].physical_offset + 100] ^= 1
    content[written[70].physical_offset] ^= 1
    path.write_bytes(content)
    spark_rows = load(registered, store, **options).orderBy("physical_offset").toArrow().to_pylist()
    batches = list(read_batches(store, **options))
    assert [row for batch in batches for row in batch.to_pylist()] == spark_rows
    assert len(spark_rows) > 1


def test_sql_can_use_it(registered, busy_store):
    store, _ = busy_store
    registered.sql(
        f"create or replace temporary view messages using rocketmq options (store '{store}')"
    )
    counts = registered.sql("select topic, count(*) n from messages group by topic").collect()
    assert {row.topic: row.n for row in counts} == {f"Topic{n}": 100 for n in range(5)}


def test_batches_are_bounded_in_rows_and_bytes(tmp_path, monkeypatch):
    from rocketlens.bulk import ranges
    from rocketlens.formats import columns
    from rocketlens.pipeline.source import RocketMQReader

    written = write_log(tmp_path, [record(n, body=bytes(2000)) for n in range(60)], 1 << 18)
    monkeypatch.setattr(columns, "STORED_BYTES_PER_BATCH", 10_000)
    monkeypatch.setattr(ranges, "ROWS_AT_ONCE", 25)
    reader = RocketMQReader({"store": str(tmp_path)})
    batches = [b for part in reader.partitions() for b in reader.read(part)]
    assert sum(batch.num_rows for batch in batches) == 60
    assert max(batch.num_rows for batch in batches) <= 10_000 // len(encode(written[0]))


def test_a_schema_of_the_callers_is_refused_when_the_query_is_planned(registered, golden):
    reader = registered.read.format("rocketmq").option("store", str(golden("5.5.0").store))
    table = reader.schema("topic string").load()
    with pytest.raises(Exception, match=r"has a fixed schema: leave out .schema"):
        table.count()
    assert reader.schema(load(registered, golden("5.5.0").store).schema).load().count() > 0
