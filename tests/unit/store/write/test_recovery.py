"""Whatever state a store is in, opening it loses nothing that can be read, and says the rest."""

import errno
import shutil
import struct
from dataclasses import replace

import pytest
from msgspec import structs

from rocketlens.errors import StoreFull
from tests.support import made_stores
from tests.support.failing_disks import QuickDisk, RestartedDisk
from tests.support.written_stores import (
    QUIET,
    SMALL,
    assert_finds,
    be_a_real_broker,
    content_of,
    damage,
    kill,
    open_small,
    properties_of,
    records_of,
    send,
    send_many,
)


def log_file(path, number=0):
    return sorted((path / "commitlog").iterdir())[number]


def test_a_killed_store_keeps_every_message(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 100)
    store.flush()
    send_many(store, 100, first=100)
    kill(store)
    with open_small(tmp_path) as store:
        assert store.recovered.record_count == 100
        assert store.recovered.damage == []
        assert store.recovered.cut is None
        assert send(store, 200).queue_offset == 67
    assert len(records_of(tmp_path)) == 201
    assert_finds(tmp_path, range(201))


def test_recovering_twice_gives_the_same_bytes(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 150)
    store.flush()
    end = store.end_offset
    send_many(store, 5, first=150)
    kill(store)
    position = end % SMALL.mappedFileSizeCommitLog + 100
    damage(log_file(tmp_path, end // SMALL.mappedFileSizeCommitLog), position, b"garbage")
    contents = []
    for _ in range(3):
        kill(open_small(tmp_path))
        contents.append(content_of(tmp_path))
    assert contents[0] == contents[1] == contents[2]


@pytest.mark.parametrize("tear", ["zeros", "garbage", "stale"])
def test_a_record_torn_at_any_byte_is_cut_and_nothing_else(tmp_path, tear):
    store = open_small(tmp_path / "whole")
    send_many(store, 3, queues=1)
    store.flush()
    last = send(store, 3)
    kill(store)
    size = last.store_size
    for torn_at in range(size):
        path = tmp_path / "torn"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", path)
        rest = size - torn_at
        stale = records_bytes(path, 0, rest)
        content = {"zeros": bytes(rest), "garbage": b"\xa5" * rest, "stale": stale}[tear]
        damage(log_file(path), last.physical_offset + torn_at, content)
        unchanged = records_bytes(tmp_path / "whole", last.physical_offset, size) == records_bytes(
            path, last.physical_offset, size
        )
        options = structs.replace(QUIET, build_index=False)
        with open_small(path, options=options, disk=QuickDisk()) as store:
            # The end of the properties has no checksum: what is torn there may still be a record.
            kept = store.recovered.end_offset != last.physical_offset
            assert kept or not unchanged
            assert store.recovered.damage == []
            again = send(store, 4)
            assert again.queue_offset == 3 + kept
        records = records_of(path)
        assert len(records) == 4 + kept
        assert [r.queue_offset for r in records] == list(range(4 + kept))


def records_bytes(path, start, size):
    with log_file(path).open("rb") as file:
        file.seek(start)
        return file.read(size)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("part", ["size", "magic", "position", "body", "topic_length"])
def test_a_bad_record_before_the_synced_end_costs_itself_alone(tmp_path, part, is_killed):
    store = open_small(tmp_path)
    appended = send_many(store, 40)
    store.flush()
    send_many(store, 40, first=40)
    if is_killed:
        store.flush_log()
        kill(store)
    else:
        store.close()
    bad = appended[20]
    place = {"size": 0, "magic": 4, "position": 28, "body": 90, "topic_length": 84 + 76}[part]
    content = bytearray(records_bytes(tmp_path, bad.physical_offset + place, 1))
    content[0] ^= 0x10
    damage(log_file(tmp_path), bad.physical_offset + place, content)
    before = content_of(tmp_path, "commitlog")
    # Without our state the whole log is read, as with a real broker's store.
    shutil.rmtree(tmp_path / "rocketlens")
    with open_small(tmp_path) as store:
        assert [(d.start, d.stop) for d in store.recovered.damage] == [
            (bad.physical_offset, bad.physical_offset + bad.store_size)
        ]
        assert store.recovered.cut is None
        assert (tmp_path / "rocketlens/aside" / f"{bad.physical_offset:020}.damaged").exists()
        assert content_of(tmp_path, "commitlog") == before
        send(store, 80)
    assert_finds(tmp_path, range(81), lost={20})


def test_bad_bytes_behind_the_synced_end_are_cut_with_what_follows_and_kept_aside(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.flush()
    synced = store.end_offset
    later = send_many(store, 20, first=20)
    kill(store)
    damage(log_file(tmp_path), later[5].physical_offset + 100, b"#")
    with open_small(tmp_path) as store:
        assert store.recovered.end_offset == later[5].physical_offset > synced
        assert store.recovered.cut.stop == later[-1].physical_offset + later[-1].store_size
        aside = tmp_path / "rocketlens/aside" / f"{later[5].physical_offset:020}.cut"
        assert len(aside.read_bytes()) == store.recovered.cut.stop - store.recovered.cut.start
        assert [store.queues.max_offset("Orders", q) for q in range(3)] == [9, 8, 8]
        assert send(store, 99, queue_id=1).queue_offset == 8
    assert_finds(tmp_path, [*range(25), 99])


def test_no_log_file_is_ever_deleted_or_shortened(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 200)
    kill(store)
    before = {p.name: p.stat().st_size for p in (tmp_path / "commitlog").iterdir()}
    damage(log_file(tmp_path, 1), 0, bytes(SMALL.mappedFileSizeCommitLog))
    with open_small(tmp_path):
        pass
    assert {p.name: p.stat().st_size for p in (tmp_path / "commitlog").iterdir()} == before


@pytest.mark.parametrize("kept", [("index",), ("index", "consumequeue"), ("rocketlens",), ()])
def test_files_of_a_log_that_is_gone_answer_for_nothing(tmp_path, kept):
    with open_small(tmp_path) as store:
        send_many(store, 200)
    for name in ("commitlog", "consumequeue", "index", "rocketlens"):
        if name not in kept:
            shutil.rmtree(tmp_path / name)
    with open_small(tmp_path) as store:
        new = [
            store.append(
                "Orders", 0, b"new", properties_of(n), (b"\x7f\0\0\1\0\0\0\1"), born_timestamp_ms=1
            )
            for n in range(1000, 1100)
        ]
        assert [a.queue_offset for a in new] == list(range(100))
    assert_finds(tmp_path, range(1000, 1100))
    assert_finds(tmp_path, range(200), lost=range(200))


def test_a_store_of_another_log_under_our_state_is_read_as_it_is(tmp_path):
    for name, first in (("a", 0), ("b", 1000)):
        with open_small(tmp_path / name) as store:
            send_many(store, 150, first=first, body_bytes=60 + first // 10)
    for name in ("commitlog", "consumequeue"):
        shutil.rmtree(tmp_path / "a" / name)
        shutil.copytree(tmp_path / "b" / name, tmp_path / "a" / name)
    with open_small(tmp_path / "a") as store:
        assert store.recovered.record_count == 150
        send(store, 2000)
    assert_finds(tmp_path / "a", [*range(1000, 1150), 2000])


def test_what_a_real_broker_appended_since_is_not_taken_for_torn(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.flush()
    later = send_many(store, 20, first=20)
    kill(store)
    # A real broker writes its checkpoint, and nothing of ours.
    (tmp_path / "checkpoint").write_bytes(struct.pack(">qqq", 1, 1, 1).ljust(4096, b"\0"))
    damage(log_file(tmp_path), later[5].physical_offset + 100, b"#")
    with open_small(tmp_path) as store:
        assert [d.start for d in store.recovered.damage] == [later[5].physical_offset]
    assert_finds(tmp_path, range(40), lost={25})


def test_a_large_log_is_recovered_by_the_kernels_as_by_the_interpreter(tmp_path):
    config = replace(SMALL, mappedFileSizeCommitLog=1 << 20)
    store = open_small(tmp_path, config=config)
    bad = send_many(store, 6000, body_bytes=200)[4000]
    store.flush()
    kill(store)
    before = content_of(tmp_path, "consumequeue")
    damage(log_file(tmp_path, bad.physical_offset >> 20), (bad.physical_offset & 0xFFFFF) + 4, b"?")
    shutil.rmtree(tmp_path / "rocketlens")
    with open_small(tmp_path, config=config) as store:
        assert store.recovered.record_count == 5999
        assert [d.start for d in store.recovered.damage] == [bad.physical_offset]
    assert content_of(tmp_path, "consumequeue") == before


def test_a_record_without_its_own_checksum_is_reported_also_when_its_body_is_sound(tmp_path):
    """RocketMQ 5 can store a checksum over the whole record, its properties included."""
    sent = [made_stores.Sent(keys=f"key{n}", append_crc=True) for n in range(9)]
    made = made_stores.make_store(tmp_path, sent, segment_bytes=SMALL.mappedFileSizeCommitLog)
    hit = made.records[4]
    path = made.segment_path(hit.physical_offset)
    place = path.read_bytes().index(b"key4")
    damage(path, place, b"Key")
    store = open_small(tmp_path, replace(SMALL, mappedFileSizeConsumeQueue=2_000))
    assert [each.start for each in store.recovered.damage] == [hit.physical_offset]
    assert store.recovered.record_count == 9
    store.close()


def test_what_a_real_broker_that_was_killed_appended_is_not_behind_our_synced_position(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.flush()
    later = send_many(store, 20, first=20)
    store.close_abruptly()
    # It wrote no checkpoint in the seconds that it lived.
    be_a_real_broker(tmp_path, writes_checkpoint=False)
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(later[5].physical_offset + 100)
        file.write(b"#")
    with open_small(tmp_path) as store:
        assert [damage.start for damage in store.recovered.damage] == [later[5].physical_offset]
        assert store.recovered.cut is None


def test_all_that_is_cut_is_kept_aside_whatever_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.store.write.recovery.MAX_KEPT_PIECE_BYTES", 1000)
    store = open_small(tmp_path)
    send_many(store, 20)
    store.flush()
    later = send_many(store, 120, first=20)
    store.close_abruptly()
    segment = tmp_path / "commitlog" / f"{0:020}"
    with segment.open("r+b") as file:
        file.seek(later[5].physical_offset + 100)
        file.write(b"#")
    before = b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))
    with open_small(tmp_path) as store:
        cut = store.recovered.cut
        assert cut.start == later[5].physical_offset
        assert cut.stop - cut.start > SMALL.mappedFileSizeCommitLog
    kept = bytearray(len(before))
    for path in (tmp_path / "rocketlens/aside").iterdir():
        content, start = path.read_bytes(), int(path.name[:20])
        kept[start : start + len(content)] = content
    assert kept[cut.start : cut.stop] == before[cut.start : cut.stop]


def test_records_behind_many_written_zeros_are_not_destroyed(tmp_path):
    config = replace(SMALL, mappedFileSizeCommitLog=32 << 20)
    store = open_small(tmp_path, config=config)
    large = [send(store, number, body=b"x" * (4 << 20)) for number in range(3)]
    small = send_many(store, 50)
    store.close_abruptly()
    segment = tmp_path / "commitlog" / f"{0:020}"
    sound = segment.read_bytes()
    with segment.open("r+b") as file:
        file.write(bytes(large[-1].physical_offset + large[-1].store_size))
    shutil.rmtree(tmp_path / "rocketlens")
    be_a_real_broker(tmp_path)
    open_small(tmp_path, config=config).close_abruptly()
    left = bytearray(segment.read_bytes())
    for path in (tmp_path / "rocketlens").glob("aside/*.cut"):
        content, start = path.read_bytes(), int(path.name[:20])
        left[start : start + len(content)] = content
    start = small[0].physical_offset
    assert left[start:] == sound[start:]


def test_nothing_is_zeroed_or_stored_before_there_is_room_to_keep_it_aside(tmp_path):
    class FullDisk(QuickDisk):
        is_full = True

        def write_durably(self, path, content):
            if path.parent.name == "aside" and self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            super().write_durably(path, content)

    store = open_small(tmp_path)
    send_many(store, 20)
    store.flush()
    later = send_many(store, 20, first=20)
    store.close_abruptly()
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(later[5].physical_offset + 100)
        file.write(b"#")
    before = content_of(tmp_path, "commitlog")
    disk = FullDisk()
    with open_small(tmp_path, disk=disk) as store:
        assert store.end_offset == later[5].physical_offset
        with pytest.raises(StoreFull, match="aside"):
            send(store, 25)
        assert content_of(tmp_path, "commitlog") == before
        disk.is_full = False
        assert send(store, 25).physical_offset == later[5].physical_offset
    assert [r.queue_offset for r in records_of(tmp_path)[24:]] == [8, 9]
    (kept,) = (tmp_path / "rocketlens/aside").iterdir()
    assert b"body" not in kept.read_bytes()[:90]
    assert len(kept.read_bytes()) > 10 * later[5].store_size


def test_a_store_with_damage_opens_also_where_there_is_no_room_for_a_copy_of_it(tmp_path):
    class FullDisk(QuickDisk):
        def write_durably(self, path, content):
            if path.suffix == ".damaged":
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            super().write_durably(path, content)

    store = open_small(tmp_path)
    bad = send_many(store, 40)[20]
    store.close()
    damage(log_file(tmp_path), bad.physical_offset + 90, b"#")
    shutil.rmtree(tmp_path / "rocketlens")
    with open_small(tmp_path, disk=FullDisk()) as store:
        assert [each.start for each in store.recovered.damage] == [bad.physical_offset]
        (note,) = store.recovered.notes
        assert note.startswith("there is no room for a copy of the damaged bytes of the log")
        send(store, 40)
    assert_finds(tmp_path, range(41), lost={20})


def test_what_is_kept_aside_is_not_written_over(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.flush()
    end = store.end_offset
    store.close_abruptly()
    for content in (b"first", b"other"):
        with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
            file.seek(end)
            file.write(content)
        open_small(tmp_path).close_abruptly()
    kept = sorted((tmp_path / "rocketlens/aside").iterdir())
    assert [path.read_bytes() for path in kept] == [b"other", b"first"]


def test_a_queue_entry_that_a_power_cut_tore_has_its_tags_again(tmp_path):
    """Else consumers of a tag would miss the message."""
    store = open_small(tmp_path)
    for number in range(10):
        send(store, number)
    store.flush()
    for number in range(10, 29):
        send(store, number)
    kill(store)
    before = content_of(tmp_path, "consumequeue")
    # Entry 25 begins in one sector, and ends in the next.
    damage(tmp_path / "consumequeue/Orders/0" / f"{0:020}", 512, bytes(8))
    with open_small(tmp_path, disk=RestartedDisk()):
        assert content_of(tmp_path, "consumequeue") == before


def test_a_log_goes_on_at_a_segment_that_a_power_cut_took_though_it_left_later_ones(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 30)
    store.flush()
    send_many(store, 300, first=30)
    kill(store)
    log = sorted((tmp_path / "commitlog").iterdir())
    assert len(log) > 3
    log[1].unlink()
    for file in log[2:]:
        file.write_bytes(bytes(file.stat().st_size))
    with open_small(tmp_path) as store:
        count = len(records_of(tmp_path))
        (appended, *_) = send_many(store, 300, first=400)
        assert appended.physical_offset == SMALL.mappedFileSizeCommitLog
    assert len(records_of(tmp_path)) == count + 300
