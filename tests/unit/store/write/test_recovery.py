"""Whatever state a store is in, opening it loses nothing that can be read, and says the rest."""

import os
import shutil
import struct
import subprocess
import sys
from dataclasses import replace

import pytest

import rocketlens
from rocketlens.errors import BadInput, StoreLocked
from rocketlens.model.message import Host
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore, StoreOptions
from tests.conftest import fingerprint
from tests.crash import made_stores
from tests.crash.failing_disks import QuickDisk, RestartedDisk
from tests.unit.store.written_stores import (
    QUIET,
    SMALL,
    Clock,
    content_of,
    open_small,
    properties_of,
    records_of,
    send,
    send_many,
)

GOLDEN = StoreConfig(
    mappedFileSizeCommitLog=262_144,
    mappedFileSizeConsumeQueue=20_000,
    maxHashSlotNum=500,
    maxIndexNum=1000,
    diskSpaceWarningLevelRatio=100,
)


def kill(store):
    """End a store as a kill does: what was written is in the page cache, nothing else is done."""
    store.close_abruptly()


def log_file(path, number=0):
    return sorted((path / "commitlog").iterdir())[number]


def damage(path, position, content):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def assert_finds(path, numbers, lost=()):
    with rocketlens.open_store(path) as reader:
        for number in numbers:
            found = reader.query_message("Orders", f"k{number}", max_num=None).messages
            assert len(found) == (number not in lost), number
            if found:
                message = found[0]
                assert message.unique_key == f"U{number:06}"
                by_queue = reader.query_by_queue_offset(
                    "Orders", message.queue_id, message.queue_offset
                )
                assert by_queue.physical_offset == message.physical_offset


def test_a_closed_store_opens_without_reading_its_log(tmp_path):
    with open_small(tmp_path) as store:
        last = send_many(store, 300)[-1]
    assert not (tmp_path / "abort").exists()
    before = content_of(tmp_path)
    with open_small(tmp_path) as store:
        assert (tmp_path / "abort").read_text().isdigit()
        assert store.recovered.record_count == 0
        assert store.recovered.end_offset == last.physical_offset + last.store_size
        assert store.queues.max_offset("Orders", 0) == 100
    assert content_of(tmp_path) == before


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


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("state", ["store", "crashed"])
def test_a_store_of_a_real_broker_is_taken_over_as_it_is(golden, version, state, end, tmp_path):
    golden_store = golden(version)
    path = tmp_path / "store"
    shutil.copytree(getattr(golden_store, state), path)
    before = content_of(path, "commitlog", "consumequeue")
    options = replace(QUIET, with_tag_index=version == "5.5.0")
    store = open_small(path, config=GOLDEN, options=options)
    assert store.recovered.damage == []
    assert store.recovered.cut is None
    while not store.build_index():
        pass
    if end == "closed":
        store.close()
    else:
        kill(store)
    after = content_of(path, "commitlog", "consumequeue")
    # Queue files without an entry are not kept; all others are as they were.
    assert {name: after.get(name) for name in after} == {name: before[name] for name in after}
    if state == "store":
        ours, theirs = (
            [p.read_bytes() for p in sorted((root / "index").iterdir())]
            for root in (path, golden_store.store)
        )
        assert ours == theirs
    with rocketlens.open_store(path) as reader:
        for sent in golden_store.sent:
            if not sent["kind"].startswith("tx"):
                message = reader.view_message(sent["offset_msg_id"])
                assert message.queue_offset == sent["queue_offset"]


def test_a_second_opener_is_refused_and_touches_nothing(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 50)
        before = fingerprint(tmp_path)
        with pytest.raises(StoreLocked):
            open_small(tmp_path)
        program = (
            "import sys; from tests.unit.store.written_stores import open_small;"
            "open_small(sys.argv[1])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "StoreLocked" in done.stderr
        assert fingerprint(tmp_path) == before
        send(store, 50)


def test_a_store_of_other_file_sizes_is_refused_with_its_size_named(tmp_path):
    with open_small(tmp_path) as store:
        send(store, 1)
    before = content_of(tmp_path, "commitlog", "consumequeue", "index")
    with pytest.raises(BadInput, match="16384 bytes: mappedFileSizeCommitLog"):
        open_small(tmp_path, config=replace(SMALL, mappedFileSizeCommitLog=32_768))
    assert content_of(tmp_path, "commitlog", "consumequeue", "index") == before
    with open_small(tmp_path) as store:
        assert send(store, 2).queue_offset == 1


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
        options = replace(QUIET, build_index=False)
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


QUEUE_DAMAGE = {
    "all queues deleted": lambda path: shutil.rmtree(path / "consumequeue"),
    "one queue deleted": lambda path: shutil.rmtree(path / "consumequeue/Orders/1"),
    "the first file deleted": lambda path: queue_file(path, 0).unlink(),
    "the last file deleted": lambda path: queue_file(path, -1).unlink(),
    "a file emptied": lambda path: queue_file(path, 0).write_bytes(b""),
    "a file cut": lambda path: queue_file(path, -1).write_bytes(
        queue_file(path, -1).read_bytes()[:70]
    ),
    "an entry zeroed": lambda path: damage(queue_file(path, 0), 100, bytes(20)),
    "an entry flipped": lambda path: damage(queue_file(path, -1), 104, b"\x55"),
    "entries behind the end": lambda path: damage(
        queue_file(path, -1), 560, struct.pack(">qiq", 10**9, 300, 0)
    ),
    "our state deleted": lambda path: shutil.rmtree(path / "rocketlens"),
    "our state damaged": lambda path: (path / "rocketlens/state.json").write_text("{"),
    "the checkpoint deleted": lambda path: (path / "checkpoint").unlink(),
    "the checkpoint damaged": lambda path: (path / "checkpoint").write_bytes(b"\xff" * 4096),
    "abort there": lambda path: (path / "abort").write_text("1"),
}


def queue_file(path, number):
    return sorted((path / "consumequeue/Orders/1").iterdir())[number]


@pytest.mark.parametrize("with_state", [True, False])
@pytest.mark.parametrize("what", QUEUE_DAMAGE)
def test_queues_are_as_they_were_whatever_happened_to_them(tmp_path, what, with_state):
    with open_small(tmp_path) as store:
        send_many(store, 200)
    before = content_of(tmp_path, "commitlog", "consumequeue")
    QUEUE_DAMAGE[what](tmp_path)
    if not with_state:
        shutil.rmtree(tmp_path / "rocketlens", ignore_errors=True)
    with open_small(tmp_path) as store:
        assert store.recovered.damage == []
    assert content_of(tmp_path, "commitlog", "consumequeue") == before
    assert_finds(tmp_path, range(200))


def test_queue_offsets_go_on_after_the_log_of_a_queue_is_gone(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 10, queues=1)
        for number in range(200):
            send(store, 100 + number, topic="Others", body=b"x" * 200)
    for name in sorted((tmp_path / "commitlog").iterdir())[:2]:
        name.unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    with open_small(tmp_path) as store:
        assert send(store, 300).queue_offset == 10
        assert store.queues.min_offset("Orders", 0) == 10
        assert store.queues.max_offset("Others", 0) == 200
        assert store.queues.min_offset("Others", 0) > 0


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


def test_the_store_host_may_change_between_runs(tmp_path):
    for port in (1, 2):
        options = StoreOptions(Host("10.1.1.1", port), threads=False)
        with MessageStore(tmp_path, SMALL, options) as store:
            send(store, port)
    assert [record.store_host.port for record in records_of(tmp_path)] == [1, 2]


@pytest.mark.parametrize("has_record", [True, False])
def test_a_queue_entry_that_was_not_synced_is_believed_only_if_it_is_of_its_record(
    tmp_path, has_record
):
    with open_small(tmp_path) as store:
        stored = send_many(store, 9, queues=3)
    store = open_small(tmp_path)
    if has_record:
        send(store, 9, queue_id=0)
        store.flush_log()
    kill(store)
    # What a disk may have there when the power goes: an entry of another queue, further on.
    other = stored[-1]
    queue = next((tmp_path / "consumequeue/Orders/0").iterdir())
    damage(queue, 3 * 20, struct.pack(">qiq", other.physical_offset, other.store_size, 0))
    with open_small(tmp_path, disk=RestartedDisk()) as store:
        assert store.queues.max_offset("Orders", 0) == 3 + has_record
        numbers = range(10 if has_record else 9)
        assert_finds(tmp_path, numbers)
        entries = [store.queues.get("Orders", 0).entry(place) for place in range(3 + has_record)]
    records = [record for record in records_of(tmp_path) if record.queue_id == 0]
    assert [entry[0] for entry in entries] == [record.physical_offset for record in records]


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


@pytest.mark.parametrize("ending", ["closed", "killed"])
@pytest.mark.parametrize("lost", ["all of its files", "its first entries", "its last entries"])
def test_a_queue_that_lost_entries_of_messages_that_are_gone_is_looked_for_once(
    tmp_path, lost, ending
):
    clock = Clock()
    config = replace(SMALL, diskMaxUsedSpaceRatio=1, deleteWhen="00")
    store = open_small(tmp_path, config, clock=clock)
    for number in range(40):
        send(store, number, topic="Old")
    while len(list((tmp_path / "commitlog").iterdir())) < 4:
        send(store, 100, topic="New", body=b"x" * 1000)
    store.flush()
    for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
        os.utime(path, (0, clock.now_ms / 1000 - 80 * 3600))
    assert len(store.clean()) == 2
    store.close()
    (file,) = (tmp_path / "consumequeue/Old/0").iterdir()
    if lost == "all of its files":
        file.unlink()
    else:
        start, stop = (0, 5 * 20) if lost == "its first entries" else (3 * 20, 10 * 20)
        content = file.read_bytes()
        file.write_bytes(content[:start] + bytes(stop - start) + content[stop:])
    with open_small(tmp_path, config, clock=clock) as store:
        assert store.recovered.record_count > 0
        assert store.queues.max_offset("Old", 0) == 40
    for _ in range(2):
        store = open_small(tmp_path, config, clock=clock)
        assert store.recovered.record_count == 0
        assert store.recovered.notes == []
        assert store.queues.min_offset("Old", 0) == store.queues.max_offset("Old", 0) == 40
        store.close() if ending == "closed" else store.close_abruptly()
    with open_small(tmp_path, config, clock=clock) as store:
        assert send(store, 40, topic="Old").queue_offset == 40
        assert store.queues.get("Old", 0).entry(40) is not None
        assert store.queues.min_offset("Old", 0) == 40
    with open_small(tmp_path, config, clock=clock) as store:
        assert store.recovered.record_count == 0
        assert store.queues.max_offset("Old", 0) == 41
