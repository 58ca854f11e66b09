"""A batch read of a store whose broker deletes segments, or whose files cannot be opened."""

import errno

import pytest

from rocketlens.errors import StoreError
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from tests.support.synthetic import record, write_log


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
