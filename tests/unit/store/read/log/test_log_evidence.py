import os
import shutil
from contextlib import suppress

import pytest

import rocketlens
from rocketlens.formats.checkpoint import Checkpoint
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.log_evidence import lost_end_of
from rocketlens.store.read.state import Synced
from tests.support.made_stores import overwrite


def newest_ms(made):
    return max(record.store_timestamp_ms for record in made.records)


def write_checkpoint(made, moment_ms):
    path = made.path / "checkpoint"
    path.write_bytes(Checkpoint(moment_ms, moment_ms).encode())
    written_s = newest_ms(made) / 1000
    os.utime(path, (written_s, written_s))


def last_files(log):
    return [segment.path for segment in log.segments[-2:]]


@pytest.mark.parametrize("way", ["missing", "empty", "zeroed", "cut"])
def test_queues_prove_a_lost_end(made, log, way):
    assert lost_end_of(StoreLayout(made.path), log) is None
    shutil.rmtree(made.path / "index")
    for path in last_files(log):
        if way == "missing":
            path.unlink()
        elif way == "zeroed":
            overwrite(path, 0, bytes(path.stat().st_size))
        else:
            os.truncate(path, 0 if way == "empty" else 40)
    log.refresh()
    lost = lost_end_of(StoreLayout(made.path), log)
    assert lost is not None
    assert lost.physical_offset == made.records[-1].physical_offset
    assert "consumequeue/" in lost.text
    with rocketlens.open_store(made.path) as store:
        assert not store.find(topic=made.records[-1].topic).complete


def test_index_headers_prove_a_lost_end(made, log):
    shutil.rmtree(made.path / "consumequeue")
    last_files(log)[-1].unlink()
    with rocketlens.open_store(made.path) as store:
        answer = store.find(topic=made.records[-1].topic)
    assert not answer.complete
    assert any("index/" in (each.error or "") for each in answer.failures)


def test_an_index_file_of_another_log_proves_nothing(made, log):
    index = made.index_paths()[-1]
    overwrite(index, 0, (newest_ms(made) + 1).to_bytes(8, "big"))
    overwrite(index, 24, (log.max_offset + 1000).to_bytes(8, "big"))
    assert lost_end_of(StoreLayout(made.path), log) is None


def test_a_checkpoint_of_a_later_time_than_all_messages_proves_a_lost_end(made, log):
    write_checkpoint(made, newest_ms(made))
    assert lost_end_of(StoreLayout(made.path), log) is None
    write_checkpoint(made, newest_ms(made) + 1)
    lost = lost_end_of(StoreLayout(made.path), log)
    assert lost is not None
    assert lost.physical_offset is None


def test_a_checkpoint_that_is_damaged_proves_nothing(made, log):
    write_checkpoint(made, newest_ms(made) + 10**10)
    assert lost_end_of(StoreLayout(made.path), log) is None
    (made.path / "checkpoint").write_bytes(b"short")
    assert lost_end_of(StoreLayout(made.path), log) is None


def test_an_open_store_notices_that_its_end_is_lost(made, log):
    with rocketlens.open_store(made.path) as store:
        topic = made.records[-1].topic
        assert store.find(topic=topic).complete
        last = last_files(log)[-1]
        overwrite(last, 0, bytes(last.stat().st_size))
        assert not store.find(topic=topic).complete
        with suppress(FileNotFoundError):
            last.unlink()
        assert not store.find(topic=topic).complete


def flip_last_entry(made, byte_offset):
    path = next(iter(sorted(made.path.glob("consumequeue/*/*/*"))))
    content = path.read_bytes()
    last = max(at for at in range(0, len(content), 20) if any(content[at + 8 : at + 12]))
    overwrite(path, last + byte_offset, bytes([content[last + byte_offset] ^ 8]))


@pytest.mark.parametrize("byte_offset", range(6))
def test_an_entry_that_is_damaged_proves_nothing(made, log, byte_offset):
    shutil.rmtree(made.path / "index")
    flip_last_entry(made, byte_offset)
    assert lost_end_of(StoreLayout(made.path), log) is None


def test_an_index_header_that_is_damaged_proves_nothing(made, log):
    overwrite(made.index_paths()[-1], 24, (log.max_offset + 1000).to_bytes(8, "big"))
    assert lost_end_of(StoreLayout(made.path), log) is None


def test_the_only_message_that_is_lost_is_proved_by_its_entry(made, log):
    shutil.rmtree(made.path / "index")
    last = made.records[-1]
    path = log.segment_of(last.physical_offset).path
    overwrite(path, last.physical_offset - int(path.name), bytes(last.total_size))
    lost = lost_end_of(StoreLayout(made.path), log)
    assert lost is not None
    assert lost.physical_offset == last.physical_offset


def test_the_queues_of_rocketlens_prove_nothing_because_it_writes_them_before_records(made, log):
    shutil.rmtree(made.path / "index")
    last_files(log)[-1].unlink()
    log.refresh()
    assert lost_end_of(StoreLayout(made.path), log) is not None
    synced = StoreLayout(made.path).synced
    synced.parent.mkdir()
    synced.write_bytes(Synced(100, made.records[0].physical_offset).encode(2)[1])
    assert lost_end_of(StoreLayout(made.path), log) is None
