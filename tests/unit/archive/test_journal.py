"""Each message is archived exactly once, wherever a job ends, and however many there are."""

import os
import shutil
import sys
import time

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rocketlens
from rocketlens.archive import files, journal, tables
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.maintenance import compact, vacuum, write_merged
from rocketlens.bulk import ranges
from rocketlens.errors import ArchiveError, ArchiveTaken, BadInput, PackageMissing
from rocketlens.pipeline.archive import ArchivedStore, archive_next
from tests.support.archives import archive_store, run_here
from tests.support.synthetic import START_MS, record, write_log

SEGMENT_BYTES = 1 << 14


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def store(tmp_path):
    """A store with some messages."""
    return written(tmp_path, 30)


def written(tmp_path, count):
    write_log(tmp_path / "store", map(record, range(count)), SEGMENT_BYTES)
    return tmp_path / "store"


def keys_in(root):
    """Return the keys of all messages, and check that each key finds its message, once."""
    with rocketlens.open_archive(root) as archive:
        answer = archive.find(topic="Topic")
        keys = sorted(int(each.keys[0].removeprefix("key-")) for each in answer.messages)
        for key in keys[::7]:
            assert len(archive.find(f"key-{key}").messages) == 1
    return keys


def rows_of(root):
    """Return how many rows ``messages`` and ``message_keys`` have."""
    opened = ArchiveTables(str(root))
    return [sum(each.rows for each in opened.files(name)) for name in ("messages", "message_keys")]


def test_a_job_that_is_run_twice_adds_nothing_twice(tmp_path, store):
    assert [each.messages for each in archive_store(tmp_path / "lake", store)] == [30]
    assert archive_store(tmp_path / "lake", store) == []
    written(tmp_path, 45)
    assert [each.number for each in archive_store(tmp_path / "lake", store)] == [2]
    assert keys_in(tmp_path / "lake") == list(range(45))
    assert rows_of(tmp_path / "lake") == [45, 90]


POINTS = ("before the journal", "before the messages", "before the keys", "after all")


@pytest.mark.parametrize("point", POINTS)
def test_a_job_that_is_killed_at_any_commit_is_resumed(tmp_path, store, monkeypatch, point):
    root = tmp_path / "lake"
    archive_store(root, store)
    written(tmp_path, 45)
    add, commit = ArchiveTables._add, ArchiveTables.commit

    def add_or_die(self, table, batch, files):
        name = "before the messages" if table is self.messages else "before the keys"
        if name == point and batch.number == 2:
            raise Killed
        add(self, table, batch, files)

    def commit_or_die(self, batch):
        if point == "before the journal":
            raise Killed
        commit(self, batch)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveTables, "_add", add_or_die)
        patched.setattr(ArchiveTables, "commit", commit_or_die)
        with pytest.raises(Killed):
            archive_store(root, store)
    # What a reader sees meanwhile is whole: a batch is there with its keys, or not at all.
    count = 45 if point in POINTS[2:] else 30
    assert keys_in(root) == list(range(count))
    assert [each.messages for each in ArchiveTables(str(root)).batches()] == [30, 15][: count // 22]
    archive_store(root, store)
    assert keys_in(root) == list(range(45))
    assert rows_of(root) == [45, 90]


def test_files_of_killed_tasks_are_removed_and_committed_ones_never(tmp_path, store, monkeypatch):
    root = tmp_path / "lake"
    with monkeypatch.context() as patched:
        patched.setattr(ArchiveTables, "_add", lambda *_: None)
        archive_store(root, store)
    (of_messages,) = root.glob("messages/*/*.parquet")
    orphan, young = of_messages.with_name("orphan.parquet"), of_messages.with_name("young.parquet")
    shutil.copy(of_messages, young)
    shutil.copy(of_messages, orphan)
    week_ago = time.time() - 8 * 86_400
    for path in (orphan, *root.glob("*/*/*-*.parquet")):
        os.utime(path, (week_ago, week_ago))
    assert [path.rpartition("/")[2] for path in vacuum(ArchiveTables(str(root)))] == [
        "orphan.parquet"
    ]
    assert young.exists()
    assert keys_in(root) == list(range(30))
    version = ArchiveTables(str(root)).messages.version()
    assert vacuum(ArchiveTables(str(root))) == []
    assert ArchiveTables(str(root)).messages.version() == version


def test_of_two_archivers_one_adds_and_the_other_is_told(tmp_path, store):
    root = tmp_path / "lake"
    archive_store(root, store)
    written(tmp_path, 45)
    slow = ArchiveTables(str(root))

    def overtaken(tasks):
        results = run_here(tasks)
        archive_store(root, store)
        return results

    with pytest.raises(ArchiveTaken, match=r"another archiver .* has added batch 2"):
        archive_next(slow, ArchivedStore(str(store), "broker-a"), overtaken)
    assert rows_of(root) == [45, 90]
    assert archive_next(slow, ArchivedStore(str(store), "broker-a"), run_here) is None


def test_archivers_of_different_brokers_share_a_table(tmp_path, store):
    archive_store(tmp_path / "lake", store, "broker-a")

    def meanwhile(tasks):
        results = run_here(tasks)
        archive_store(tmp_path / "lake", store, "broker-c")
        return results

    archive_store(tmp_path / "lake", store, "broker-b", meanwhile)
    assert rows_of(tmp_path / "lake") == [90, 180]


def test_a_broker_is_not_archived_in_two_ways(tmp_path, store):
    archive_store(tmp_path / "lake", store)
    source = ArchivedStore(str(store), "broker-a")
    source.name = "another name"
    with pytest.raises(BadInput, match="would be there twice"):
        archive_next(ArchiveTables(str(tmp_path / "lake")), source, run_here)


def test_what_expired_before_it_was_archived_is_a_gap_of_its_time(tmp_path):
    store = written(tmp_path, 300)
    for segment in sorted((store / "commitlog").iterdir())[1:]:
        segment.rename(tmp_path / segment.name)
    archive_store(tmp_path / "lake", store)
    first_part = keys_in(tmp_path / "lake")
    written(tmp_path, 300)
    segments = sorted((store / "commitlog").iterdir())
    for segment in segments[:2]:
        segment.unlink()
    (batch,) = archive_store(tmp_path / "lake", store)
    assert "were deleted before they were read" in batch.gaps[0]
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        answer = archive.find("no such key")
        assert not answer.complete
        assert "were deleted before they were read" in str(answer.failures[0].error)
        before = archive.find("key-1", end=archive.find("key-1").messages[0].store_timestamp_ms)
        assert before.complete
        assert len(archive.find(topic="Topic").messages) == len(first_part) + batch.messages


def test_a_gap_is_named_though_a_clock_was_set_back_before_it(tmp_path, monkeypatch):
    hour = 3_600_000
    monkeypatch.setattr("rocketlens.pipeline.archive.MAX_ARCHIVE_BATCH_BYTES", 2_000)
    records = [
        record(n, store_timestamp_ms=START_MS + n + (hour if n < 20 else 0)) for n in range(100)
    ]
    write_log(tmp_path / "store", records, SEGMENT_BYTES)
    segments = sorted((tmp_path / "store/commitlog").iterdir())
    content = b"".join(each.read_bytes() for each in segments)
    at = content.index(b"body", content.index(b"key-59"))
    segment = segments[at // SEGMENT_BYTES]
    whole = bytearray(segment.read_bytes())
    whole[at % SEGMENT_BYTES] ^= 1
    segment.write_bytes(whole)
    batches = archive_store(tmp_path / "lake", tmp_path / "store")
    assert [each.number for each in batches if each.gaps] != []
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        for text, topic in ((None, "Topic"), ("key-60", None)):
            answer = archive.find(text, topic, begin=START_MS + 60, end=START_MS + 60)
            assert (len(answer), answer.complete) == (0, False)
        early = archive.find(topic="Topic", begin=START_MS + 20, end=START_MS + 25)
        assert (len(early), early.complete) == (6, True)
        assert "clocks that were not set back" in early.relies_on[0]


def test_a_log_that_goes_on_behind_the_last_batch_is_not_complete(tmp_path, store, monkeypatch):
    monkeypatch.setattr("rocketlens.pipeline.archive.MAX_ARCHIVE_BATCH_BYTES", 1_000)
    root = tmp_path / "lake"
    batch = archive_next(
        ArchiveTables(str(root), create=True), ArchivedStore(str(store), "broker-a"), run_here
    )
    assert batch.messages < 30
    with rocketlens.open_archive(root) as archive:
        for answer in (archive.find("key-29"), archive.find(topic="Topic")):
            assert "continues behind what was archived" in str(answer.failures[0].error)
        assert archive.status().sources[0].behind
    archive_store(root, store)
    with rocketlens.open_archive(root) as archive:
        assert archive.find("no such key").complete
        assert not archive.status().sources[0].behind


def test_what_is_stored_while_a_batch_is_planned_is_not_behind(tmp_path, store, monkeypatch):
    latest = ArchivedStore.latestOffset

    def then_more(source, *arguments):
        offset = latest(source, *arguments)
        written(tmp_path, 45)
        return offset

    with monkeypatch.context() as patched:
        patched.setattr(ArchivedStore, "latestOffset", then_more)
        source = ArchivedStore(str(store), "broker-a")
        tables = ArchiveTables(str(tmp_path / "lake"), create=True)
        batch = archive_next(tables, source, run_here)
    assert (batch.messages, batch.behind) == (30, ())
    with rocketlens.open_archive(tmp_path / "lake") as archive:
        assert archive.find("no such key").complete


def test_an_earlier_version_did_not_say_whether_the_log_went_on(tmp_path, store, monkeypatch):
    make, root = journal.next_batch, tmp_path / "lake"

    def earlier(*arguments, **named):
        batch = make(*arguments, **named)
        batch = journal.replace(batch, asked_ms=0, queues="", lost=(), behind=())
        return journal.replace(batch, checksum=batch.expected_checksum)

    with monkeypatch.context() as patched:
        patched.setattr("rocketlens.pipeline.archive.next_batch", earlier)
        source = ArchivedStore(str(store), "broker-a")
        archive_next(ArchiveTables(str(root), create=True), source, run_here)
    with rocketlens.open_archive(root) as archive:
        answer = archive.find("key-3")
        assert (len(answer), answer.complete) == (1, False)
        assert "run `rocketlens archive run` with this archive again" in str(
            answer.failures[0].error
        )
    assert [each.messages for each in archive_store(root, store)] == [0]
    assert archive_store(root, store) == []
    with rocketlens.open_archive(root) as archive:
        assert archive.find("key-3").complete


def test_a_damaged_record_is_named_and_the_others_are_archived(tmp_path, store):
    (segment,) = (store / "commitlog").iterdir()
    content = segment.read_bytes()
    at = content.index(b"body", 1000)
    segment.write_bytes(content[:at] + b"BODY" + content[at + 4 :])
    (batch,) = archive_store(tmp_path / "lake", store)
    assert batch.messages == 29
    assert len(batch.gaps) == 1
    assert "checksum" in batch.gaps[0]


def test_many_batches_leave_a_short_journal(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.archive.journal._COMPACTED_FILES", 3)
    for count in range(1, 9):
        archive_store(tmp_path / "lake", written(tmp_path, count))
    opened = ArchiveTables(str(tmp_path / "lake"))
    assert len(opened.files("journal")) < 3
    assert [each.number for each in opened.batches()] == list(range(1, 9))
    assert keys_in(tmp_path / "lake") == list(range(8))


def test_a_table_with_features_that_are_not_known_is_refused(tmp_path, store):
    archive_store(tmp_path / "lake", store)
    log = tmp_path / "lake/messages/_delta_log"
    protocol = (
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,'
        '"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}'
    )
    (log / "00000000000000000002.json").write_text(protocol + "\n")
    with pytest.raises(ArchiveError, match="deletionVectors"):
        ArchiveTables(str(tmp_path / "lake"))


def test_a_batch_whose_confirmation_is_lost_is_there_once(tmp_path, store, monkeypatch):
    write = deltalake.write_deltalake

    def lose_answer(*arguments, **options):
        write(*arguments, **options)
        raise OSError("the connection ended")

    monkeypatch.setattr(deltalake, "write_deltalake", lose_answer)
    assert [each.messages for each in archive_store(tmp_path / "lake", store)] == [30]
    assert keys_in(tmp_path / "lake") == list(range(30))
    assert rows_of(tmp_path / "lake") == [30, 60]


def older(monkeypatch):
    """Have an archive written as a version did that had three columns less."""
    columns = tables.message_schema()
    fewer = pa.schema(
        [each for each in columns if each.name not in {"flag", "tags", "reconsume_times"}]
    )
    monkeypatch.setattr(tables, "message_schema", lambda: fewer)
    monkeypatch.setattr(journal, "message_schema", lambda: fewer)
    monkeypatch.setattr(files, "SEALED", ".parquet")


def test_a_table_of_an_older_version_is_read_and_widened(tmp_path, store, monkeypatch):
    root = tmp_path / "lake"
    with monkeypatch.context() as patched:
        older(patched)
        archive_store(root, store)
    with rocketlens.open_archive(root) as archive:
        (message,) = archive.find("key-7").messages
        assert (message.tags, message.flag, message.body) == (None, 0, b"body")
        assert list(archive.scan(where="tag IS NOT NULL")) == []
    written(tmp_path, 45)
    archive_store(root, store)
    names = [each.name for each in ArchiveTables(str(root)).messages.schema().fields]
    assert {"flag", "tags", "reconsume_times"} < {*names}
    assert keys_in(root) == list(range(45))
    compact(ArchiveTables(str(root)), lambda tasks: list(map(write_merged, tasks)))
    assert keys_in(root) == list(range(45))


@pytest.mark.parametrize("create", [True, False])
def test_a_table_of_a_newer_version_is_refused(tmp_path, store, create):
    archive_store(tmp_path / "lake", store)
    properties = {"rocketlens.archiveVersion": "2"}
    table = ArchiveTables(str(tmp_path / "lake")).messages
    table.alter.set_table_properties(properties, raise_if_not_exists=False)
    with pytest.raises(ArchiveError, match=r"has archive version 2, .*use a newer"):
        ArchiveTables(str(tmp_path / "lake"), create=create)


def test_a_table_that_is_of_something_else_is_refused(tmp_path):
    names = ("topic", "queue_offset", "physical_offset", "store_timestamp_ms")
    columns = pa.schema([pa.field(each, pa.int64()) for each in names])
    columns = columns.append(pa.field("queue_id", pa.int32()))
    deltalake.DeltaTable.create(str(tmp_path / "messages"), columns)
    with pytest.raises(ArchiveError, match=r"the column topic with another type, .*long"):
        ArchiveTables(str(tmp_path), create=True)


def test_tasks_look_for_their_first_record_nearby(tmp_path, monkeypatch):
    monkeypatch.setattr(ranges, "_STEP_BYTES", 500)
    source = ArchivedStore(str(written(tmp_path, 100)), "broker-a")
    source.scan.partition_bytes = 3000
    begin = source.initialOffset()
    end = source.latestOffset(begin, source.getDefaultReadLimit())
    shares = [each.value for each in source.partitions(begin, end)]
    assert len(shares) > 5
    assert all(0 <= each.log_range.start - each.known_start < 1000 for each in shares)


def test_files_have_the_columns_of_their_tables(tmp_path, store):
    archive_store(tmp_path / "lake", store)
    for name in ("messages", "message_keys"):
        (path,) = (tmp_path / "lake" / name).glob("*/*.parquet")
        assert pq.read_schema(path).equals(tables.columns_of(name))


def test_keys_of_many_brokers_are_written_together(tmp_path):
    location = ArchiveLocation.of(tmp_path)
    columns = tables.key_schema()
    count = 40_000
    numbers = range(count)
    rows = tables.add_missing_columns(
        pa.table(
            {
                "key_hash": pa.array(numbers, pa.int64()),
                "key": [f"key-{number}" for number in numbers],
                "kind": [("key", "unique-key")[number % 2] for number in numbers],
                "cluster": [f"cluster-{number % 3}" for number in numbers],
                "broker": [f"broker-{number % 100}" for number in numbers],
                "topic": [f"topic-{number % 1000}" for number in numbers],
                "queue_offset": pa.array([-number for number in numbers], pa.int64()),
                "physical_offset": pa.array([2**62 - number for number in numbers], pa.int64()),
            }
        ),
        columns,
        columns.names,
    )
    file = files.TableFile(location, "message_keys", "2026-11-20")
    for start in range(0, count, 17_000):
        file.write(rows.slice(start, 17_000))
    assert (
        pq.read_table(location.path("message_keys", file.close().path), partitioning=None) == rows
    )


def test_without_deltalake_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(PackageMissing, match=r"an archive needs deltalake: pip install .*archive"):
        ArchiveTables(str(tmp_path / "lake"), create=True)


@pytest.mark.parametrize("damage", ["zeros", "gone"])
def test_a_journal_that_cannot_be_read_is_an_error_of_one_line(tmp_path, store, damage):
    archive_store(tmp_path / "lake", store)
    (path,) = (tmp_path / "lake/journal").glob("*.parquet")
    if damage == "zeros":
        path.write_bytes(bytes(path.stat().st_size))
    else:
        path.unlink()
    with pytest.raises(ArchiveError, match=r"journal/.* cannot be read: ") as raised:
        rocketlens.open_archive(tmp_path / "lake")
    assert "\n" not in str(raised.value)


def test_topics_of_a_source_are_chosen_once_and_answers_name_them(tmp_path, golden):
    def archive(*topics):
        source = ArchivedStore(str(golden("5.5.0").store), "broker-a", topics=topics)
        return list(iter(lambda: archive_next(opened, source, run_here), None))

    opened = ArchiveTables(str(tmp_path), create=True)
    with pytest.raises(BadInput, match=r"PayTopc.*did you mean PayTopic"):
        archive("PayTopc")
    assert archive("PayTopic", "Order*")
    assert archive("Order*,PayTopic") == []
    for others in ((), ("PayTopic",), ("PayTopc",)):
        with pytest.raises(BadInput, match=r"with --topic Order\*,PayTopic, and not"):
            archive(*others)
    with rocketlens.open_archive(tmp_path) as archived:
        answer = archived.find("order-42")
        assert answer.complete
        assert "(Order*, PayTopic)" in answer.coverage[0].source
        assert {each.topic for each in answer} == {"PayTopic", "OrderTopic"}
        missing = archived.find("%RETRY%golden_cg/0/37")
        assert (missing.messages, missing.complete) == ((), False)
        assert "topic %RETRY%golden_cg is not archived, but" in missing.failures[0].error
        assert archived.find("PayTopic/1/0").complete
