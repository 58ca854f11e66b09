"""A store is read as Arrow batches, by its own settings and given options, and without Spark."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import rocketlens.bulk
from rocketlens import read_batches
from rocketlens.bulk import delay_levels, store_settings
from rocketlens.bulk.delay_levels import DelayedMessage, delays_of_copies, resolve
from rocketlens.bulk.messages import PARTITION_BYTES, BatchScan
from rocketlens.bulk.options import OPTIONS, known_options, names_of, time_option
from rocketlens.bulk.workspace import Workspace, check_output
from rocketlens.errors import BadInput, StoreLocked
from rocketlens.formats.consumequeue_entry import DEFAULT_FILE_BYTES
from rocketlens.formats.index_file import DEFAULT_GEOMETRY, Geometry
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH, SYS_FLAG_NEED_UNWRAP
from rocketlens.pipeline.stream import MAX_STREAM_TRIGGER_BYTES
from rocketlens.store import fs
from rocketlens.store.lock import StoreLock
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.synthetic import record, reference_index, write_busy_log, write_log
from tests.support.written_stores import content_of, open_small, send_many


@pytest.fixture
def busy_store(tmp_path):
    return tmp_path, write_busy_log(tmp_path)


def test_read_batches_takes_values_of_python_and_names_in_any_case(busy_store):
    store, written = busy_store
    asked = read_batches(
        store, TOPIC="Topic1", startingOffset=written[50].physical_offset, body=False
    )
    rows = [row for batch in asked for row in batch.to_pylist()]
    assert {(row["topic"], row["body"]) for row in rows} == {("Topic1", None)}
    assert len(rows) == 90


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topics": "A"}, "no option 'topics'; did you mean topic"),
        ({"path": "x"}, "no option 'path'"),
        ({"maxBytesPerTrigger": 1}, "option maxBytesPerTrigger is not for read_batches"),
        ({"table": "index_entries"}, "option table is one of messages, damage"),
        ({"body": "maybe"}, "option body is one of true, false, bytes"),
    ],
)
def test_read_batches_refuses_options_at_once(busy_store, options, says):
    with pytest.raises(BadInput, match=says):
        read_batches(busy_store[0], **options)


def test_a_batch_that_cannot_be_taken_apart_is_lost_for_an_archive(tmp_path):
    flags = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
    batch = replace(record(1, topic="B", body=b"none", INNER_NUM="3"), sys_flag=flags)
    written = write_log(tmp_path, [record(0, topic="B"), batch, record(0, topic="B")], 1 << 14)
    scan = BatchScan({"path": str(tmp_path)})
    scan.losses.lines = []
    rows = [row for share in scan.shares() for each in scan.read(share) for row in each.to_pylist()]
    assert [row["physical_offset"] for row in rows] == [each.physical_offset for each in written]
    # The log's end, which is not archived, is the other one.
    lost = [each for each in scan.losses.lines if "cannot be taken apart" in each]
    assert [str(written[1].physical_offset) in each for each in lost] == [True]


MODULES = sorted(path.stem for path in Path(rocketlens.bulk.__file__).parent.glob("[a-z]*.py"))
PROGRAM = """
import sys
from importlib import import_module
sys.modules["pyspark"] = None
for name in sys.argv[2:]:
    import_module(f"rocketlens.bulk.{name}")
from rocketlens import read_batches
print(sum(batch.num_rows for batch in read_batches(sys.argv[1])))
"""


def test_a_store_is_read_as_arrow_batches_where_pyspark_is_not_installed(golden):
    store = golden("5.5.0")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(store.store), *MODULES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= len(store.sent)


@pytest.fixture
def indexed(tmp_path):
    """Make a store with an index, with or without entries of tags."""
    geometry = Geometry(50, 40)

    def make(*, with_tags):
        log = write_log(tmp_path, [record(n, TAGS=f"t{n}") for n in range(40)], 1 << 16)
        (tmp_path / "index").mkdir()
        for number, content in enumerate(reference_index(log, geometry, with_tags=with_tags)):
            (tmp_path / "index" / f"{20240101000000000 + number}").write_bytes(content)
        return tmp_path, geometry

    return make


def has_tag_entries(store, geometry):
    log = CommitLog(store / "commitlog")
    try:
        return store_settings.has_tag_entries(store, log, geometry)
    finally:
        log.close()


def test_index_files_are_those_with_a_time_for_a_name(indexed):
    store, _ = indexed(with_tags=False)
    paths = store_settings.index_paths(store)
    assert len(paths) > 1
    for stray in ("2024010100000000", "202401010000000000", "2024010100000000x", "readme"):
        (store / "index" / stray).write_bytes(b"x")
    (store / "index" / "20250101000000000").mkdir()
    assert store_settings.index_paths(store) == paths == sorted(paths)


def test_the_newest_sound_index_file_tells_the_slot_and_entry_counts(indexed, tmp_path):
    assert store_settings.index_geometry(tmp_path / "nothing") == DEFAULT_GEOMETRY
    store, geometry = indexed(with_tags=False)
    assert store_settings.index_geometry(store) == geometry
    (store / "index" / "20250101000000000").write_bytes(b"damaged")
    assert store_settings.index_geometry(store) == geometry


@pytest.mark.parametrize("with_tags", [False, True])
def test_entries_of_records_with_tags_tell_whether_tags_are_indexed(indexed, with_tags):
    store, geometry = indexed(with_tags=with_tags)
    assert has_tag_entries(store, geometry) is with_tags
    # What the files say counts before what the store looks like.
    (store / "rocksdbstore").mkdir()
    assert has_tag_entries(store, geometry) is with_tags


def test_without_entries_what_only_release_5_5_makes_tells_that_tags_are_indexed(tmp_path):
    write_log(tmp_path, [record(0)], 1 << 16)
    assert not has_tag_entries(tmp_path, DEFAULT_GEOMETRY)
    (tmp_path / "rocksdbstore").mkdir()
    assert has_tag_entries(tmp_path, DEFAULT_GEOMETRY)
    (tmp_path / "rocksdbstore").rmdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": 1}')
    assert has_tag_entries(tmp_path, DEFAULT_GEOMETRY)


def test_queue_files_have_the_size_that_most_of_them_have(tmp_path):
    assert store_settings.queue_file_bytes(tmp_path) == DEFAULT_FILE_BYTES
    for queue_id, size in enumerate((2000, 2000, 4000, 33, 0)):
        path = tmp_path / "consumequeue" / "Topic" / str(queue_id) / f"{0:020}"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(size))
    assert store_settings.queue_file_bytes(tmp_path) == 2000


def test_queues_in_rocksdb_and_of_batches_are_known(tmp_path):
    assert not store_settings.queues_are_in_rocksdb(tmp_path)
    assert store_settings.batch_topics(tmp_path) == set()
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "CURRENT").touch()
    (tmp_path / "batchconsumequeue" / "Batches").mkdir(parents=True)
    assert store_settings.queues_are_in_rocksdb(tmp_path)
    assert store_settings.batch_topics(tmp_path) == {"Batches"}


def sample(key, level, when, *, is_waiting):
    return DelayedMessage(hash(key), key, level, when, is_waiting)


def test_what_the_caller_says_counts_before_all_that_was_found():
    levels = resolve({1, 2}, [0, 5, 6], {1: 7}, {2: 8})
    assert levels.delays_ms == (0, 5, 6)
    assert levels.sources == {1: delay_levels.ARGUMENT, 2: delay_levels.ARGUMENT}
    assert levels.source == "argument"


def test_each_level_comes_from_the_queues_then_from_copies_then_from_rocketmqs_defaults():
    levels = resolve({1, 2, 3}, None, {1: 111, 4: 444}, {1: 999, 2: 222})
    assert levels.delays_ms[:5] == (0, 111, 222, 10_000, 444)
    assert levels.sources == {
        1: delay_levels.QUEUES,
        2: delay_levels.COPIES,
        3: delay_levels.DEFAULTS,
    }
    assert levels.source == "RocketMQ's defaults, consume queues, delivered copies"


def test_a_level_above_rocketmqs_lasts_as_long_as_the_last_and_an_absurd_one_costs_nothing():
    levels = resolve({20, 1 << 40}, None, {}, {})
    assert len(levels.delays_ms) == 21
    assert set(levels.delays_ms[18:]) == {2 * 3600 * 1000}
    assert set(levels.sources) == {20}


def test_the_delay_of_a_level_is_the_least_that_a_delivered_message_of_it_had_in_seconds():
    waiting = [sample(key, 2, 1000, is_waiting=True) for key in (b"a", b"b", b"c", b"d")]
    delivered = [
        sample(b"a", 2, 7300, is_waiting=False),
        sample(b"b", 2, 6100, is_waiting=False),
        # Of another level, earlier than it was sent, and of no message that waited.
        sample(b"c", 3, 2000, is_waiting=False),
        sample(b"d", 2, 500, is_waiting=False),
        sample(b"e", 2, 1000, is_waiting=False),
    ]
    assert delays_of_copies([delivered, waiting]) == {2: 5000}
    assert delays_of_copies([waiting]) == {}


def defaults_of(reader):
    return {option.name: option.default for option in OPTIONS if reader in option.readers}


def test_a_reader_has_each_option_once():
    for reader in ("batch reads", "streams", "read_batches"):
        assert len(set(names_of(reader))) == len(names_of(reader)) > 10


def test_the_defaults_in_the_table_are_those_that_are_read(tmp_path):
    defaults = defaults_of("batch reads")
    scan = BatchScan({"store": str(tmp_path)})
    assert defaults["maxPartitionBytes"] == str(scan.partition_bytes) == str(PARTITION_BYTES)
    assert defaults["minPartitions"] == str(scan.min_partitions)
    assert defaults["body"] == str(scan.with_body).lower()
    assert defaults["checkCrc"] == str(scan.check_crc).lower()
    assert defaults["failOnDataLoss"] == str(scan.losses.fails).lower()
    trigger_bytes = defaults_of("streams")["maxBytesPerTrigger"]
    assert trigger_bytes == str(MAX_STREAM_TRIGGER_BYTES)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1795132800000", 1_795_132_800_000),
        ("2026-11-20", 1_795_132_800_000),
        ("2026-11-20T00:00:00.5", 1_795_132_800_500),
        ("2026-11-20T08:00+08:00", 1_795_132_800_000),
        ("2026-11-20 00:00:00Z", 1_795_132_800_000),
        ("20261120", 20_261_120),
    ],
)
def test_a_time_is_a_number_or_iso_8601(text, milliseconds):
    assert time_option({"endingTimestamp": text}, "endingTimestamp", -7) == milliseconds
    assert time_option({}, "endingTimestamp", -7) == -7


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "1969-12-31", "1.5", "9" * 30])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(BadInput, match="endingTimestamp"):
        time_option({"endingTimestamp": text}, "endingTimestamp", 0)


def test_the_names_of_sparks_kafka_source_are_understood():
    given = {"Subscribe": "A,B", "startingOffsets": "earliest", "endingOffsets": "latest"}
    assert known_options(given, "batch reads") == {"topic": "A,B"}
    assert known_options({"startingOffsets": "Latest"}, "streams") == {"startingOffset": "latest"}
    assert known_options({"endingoffsets": "5"}, "batch reads") == {"endingOffset": "5"}


@pytest.mark.parametrize(
    ("options", "reader", "said"),
    [
        ({"subscribe": "A", "topic": "A"}, "batch reads", "give one"),
        ({"startingOffsets": "latest"}, "batch reads", "is earliest or a physical offset"),
        ({"startingOffsets": "5x"}, "streams", "earliest or latest or a physical offset or pos"),
        ({"startingOffsets": '{"A":{"0":5}}', "startingOffset": "5"}, "streams", "give one"),
        ({"startingOffsets": "earliest", "startingOffset": "5"}, "streams", "give one"),
        ({"endingOffsets": "earliest"}, "read_batches", "is latest or a physical offset"),
        ({"endingOffsets": '{"A":{"0":5}}'}, "streams", "latest or a physical offset for streams"),
        ({"endingOffset": "5"}, "cluster streams", "not for cluster streams"),
    ],
)
def test_what_those_names_cannot_mean_here_is_refused(options, reader, said):
    with pytest.raises(BadInput, match=said):
        known_options(options, reader)


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    with open_small(path) as opened:
        send_many(opened, 100)
    return path


def test_another_store_is_no_output_unless_that_is_forced(store, tmp_path):
    other = tmp_path / "other"
    with open_small(other) as opened:
        send_many(opened, 10)
    before = content_of(other)
    with pytest.raises(BadInput, match=r"is another store, with commitlog.*--force"):
        check_output(store, other)
    assert content_of(other) == before
    check_output(store, other, force=True)
    check_output(store, None)
    check_output(store, tmp_path / "new")


def test_the_store_itself_is_known_however_it_is_named(store, tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to(store)
    monkeypatch.chdir(tmp_path)
    for named in (store, Path("store"), link, store / "index" / "..", Path("./link/../store")):
        check_output(store, named)
        assert fs.is_same(store, named)
        check_output(named, store)


@pytest.mark.parametrize("inside", ["commitlog/x", "index", "consumequeue/a/b"])
def test_nothing_is_written_where_a_broker_takes_every_file_for_its_own(store, inside):
    with pytest.raises(BadInput, match="a broker opens every file"):
        check_output(store, store / inside, force=True)


def test_an_output_that_cannot_be_written_to_is_refused_and_nothing_is_left(store, tmp_path):
    with pytest.raises(BadInput, match="/proc/x cannot be written to"):
        check_output(store, Path("/proc/x"))
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(BadInput, match="cannot be written to"):
        check_output(store, file / "below")
    assert file.read_text() == "x"


def test_an_output_that_a_broker_has_is_refused(store, tmp_path):
    with StoreLock(store), pytest.raises(StoreLocked):
        check_output(store, None)


def test_what_is_replaced_is_kept_until_the_next_time(store):
    def replace(content):
        with Workspace(store) as workspace:
            (workspace.new("index") / "file").write_text(content)
            workspace.sync("index")
            return workspace.swap_in("index", keep=True)

    first = replace("1")
    assert first == store / "rocketlens/replaced/index"
    assert not (first / "file").exists()
    assert replace("2") == first
    assert [path.read_text() for path in first.iterdir()] == ["1"]
    assert (store / "index/file").read_text() == "2"


def test_nothing_is_kept_where_nothing_was(store):
    with Workspace(store) as workspace:
        workspace.new("other")
        workspace.sync("other")
        assert workspace.swap_in("other", keep=True) is None
