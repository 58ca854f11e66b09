"""Queue entries are written in files that come and go, with Java's tags codes, and read back.

Entries of a queue, read beside the one that appends to it.
"""

import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from rocketlens.errors import BadInput
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, FILLER
from rocketlens.model.text.java import string_hash
from rocketlens.store.disk import Disk
from rocketlens.store.write.append import TagsCodes
from rocketlens.store.write.queue.queue_append import read_entries
from rocketlens.store.write.queue.queue_files import (
    first_physical_offset,
    good_end,
    list_queue_files,
)
from tests.support.written_stores import BORN_HOST, SMALL, content_of, open_small, send, send_many

FILE_ENTRIES = SMALL.mappedFileSizeConsumeQueue // ENTRY_BYTES


def test_a_batch_over_several_queue_files_has_all_its_entries(tmp_path):
    members = [(0, b"", b"") for _ in range(100)]
    with open_small(tmp_path) as store:
        send(store, 0)
        appended = store.append_batch("Orders", 0, members, BORN_HOST, born_timestamp_ms=1)
        queue = store.queues.get("Orders", 0)
        assert [queue.entry(a.queue_offset)[:2] for a in appended] == [
            (a.physical_offset, a.store_size) for a in appended
        ]
    assert len(list((tmp_path / "consumequeue/Orders/0").iterdir())) == 4


def test_a_queue_that_begins_inside_a_file_is_filled_before_it(tmp_path):
    with open_small(tmp_path) as store:
        store._appender.queue("T", 0).next_offset = 7
        assert send(store, 1, topic="T").queue_offset == 7
        queue = store.queues.get("T", 0)
        assert [queue.entry(n) for n in range(7)] == [FILLER] * 7
        assert store.queues.min_offset("T", 0) == 7


def test_more_queues_than_may_be_open_are_all_written(tmp_path):
    with open_small(tmp_path) as store:
        store._appender._open_queues._max_open = 3
        for number in range(200):
            send(store, number, queue_id=number % 17)
            if number % 50 == 0:
                store.flush()
        for queue_id in range(17):
            queue = store.queues.get("Orders", queue_id)
            expected = len(range(queue_id, 200, 17))
            assert queue.next_offset == expected
            assert all(queue.entry(n) for n in range(expected))


def test_queues_written_in_turn_have_no_more_files_open_than_they_may_and_are_synced(tmp_path):
    synced = []

    class Watched(Disk):
        def sync_file(self, path):
            synced.append(path)
            super().sync_file(path)

    with open_small(tmp_path, disk=Watched()) as store:
        store._appender._open_queues._max_open = 3
        send_many(store, 10, queues=1)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for number in range(200):
            send(store, number, topic="Many", queue_id=number % 40)
        # Three queues of two descriptors each, and perhaps the next segments, not synced yet.
        segments = len(list((tmp_path / "commitlog").iterdir()))
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 6 + 2 * segments
        store.flush()
        files = set((tmp_path / "consumequeue/Many").rglob("0*0"))
        assert len({path for path in synced if "Many" in path.parts} & files) >= 37
        assert not any(queue.is_dirty for queue in store._appender.queues.values())


def test_entries_are_read_in_runs_that_end_with_a_file_or_the_queue(tmp_path):
    with open_small(tmp_path) as store:
        sent = send_many(store, 70, queues=1)
        queue = store.queues.get("Orders", 0)
        for start, count, expected in ((0, 10, 10), (25, 10, 5), (30, 99, 30), (65, 99, 5)):
            entries = queue.read(start, count)
            assert [entry.physical_offset for entry in entries] == [
                a.physical_offset for a in sent[start : start + expected]
            ]
        assert queue.read(70, 5) == queue.read(-1, 5) == []


@pytest.fixture
def queue(tmp_path):
    """A queue of three whole files, and of one that is being written."""
    with open_small(tmp_path) as store:
        send_many(store, 3 * FILE_ENTRIES + 10, queues=1)
        yield store.queues.get("Orders", 0)


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, FILE_ENTRIES),
        (FILE_ENTRIES + 3, 2 * FILE_ENTRIES),
        (3 * FILE_ENTRIES, 3 * FILE_ENTRIES + 10),
        (5, 5),
    ],
)
def test_entries_are_those_that_were_appended(queue, start, stop):
    read = read_entries(queue, start, stop)
    expected = [queue.entry(number) for number in range(start, stop)]
    for name in ("physical_offset", "store_size", "tags_code"):
        assert read[name].tolist() == [getattr(entry, name) for entry in expected]


def test_of_a_file_that_is_short_the_whole_entries_are_read(queue):
    base, path = queue.files()[1]
    os.truncate(path, 5 * ENTRY_BYTES + 7)
    start = base // ENTRY_BYTES
    assert len(read_entries(queue, start + 1, start + FILE_ENTRIES)) == 4


def test_a_file_that_is_gone_is_an_error(queue):
    queue.files()[0][1].unlink()
    with pytest.raises(FileNotFoundError):
        read_entries(queue, 0, FILE_ENTRIES)


@pytest.mark.parametrize(
    ("properties", "tags"),
    [
        (b"", ""),
        (b"TAGS\x01a\x02", "a"),
        (b"TAGS\x01a", "a"),
        (b"KEYS\x01k\x02TAGS\x01\xe6\xa0\x87\x02", "\u6807"),
        (b"TAGS\x01a\x02TAGS\x01b\x02", "b"),
        (b"TAGS\x01a\x02TAGS\x01\x02", "a"),
        (b"XTAGS\x01a\x02", ""),
        (b"TAGS\x01a\x02XTAGS\x01b\x02", "a"),
        (b"K\x01TAGS\x01b\x02TAGS\x01a\x02K\x01TAGS\x01c", "a"),
        (b"TAGS\x01\xff\x02", "\ufffd"),
    ],
)
def test_tags_codes_are_javas_whether_seen_before_or_not(properties, tags):
    codes = TagsCodes()
    assert [codes.of(properties) for _ in range(3)] == [string_hash(tags)] * 3


@pytest.mark.parametrize("with_state", [True, False])
@pytest.mark.parametrize("size", [300, 500, 900, 1200, 6_000_000])
def test_queue_files_of_another_size_are_refused_with_theirs_named_and_stay(
    tmp_path, size, with_state
):
    with open_small(tmp_path) as store:
        send_many(store, 200)
    if not with_state:
        shutil.rmtree(tmp_path / "rocketlens")
    before = content_of(tmp_path)
    with pytest.raises(BadInput, match="mappedFileSizeConsumeQueue must be 600") as error:
        open_small(tmp_path, config=replace(SMALL, mappedFileSizeConsumeQueue=size))
    assert str(size) in str(error.value)
    assert not (tmp_path / "abort").exists()
    assert content_of(tmp_path) == before
    with open_small(tmp_path) as store:
        assert store.recovered.damage == []


def test_a_queue_file_that_is_too_long_is_refused_and_not_cut(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 200)
    file = min((tmp_path / "consumequeue/Orders/1").iterdir())
    with file.open("ab") as longer:
        longer.write(bytes(20))
    with pytest.raises(BadInput, match=f"{file.name} has 620 bytes"):
        open_small(tmp_path)
    assert file.stat().st_size == 620


def write_queue(path, entries, *, base=0, file_entries=2000):
    """Write queue files of a queue of topic T; an entry is a physical offset and a size."""
    directory = path / "T" / "0"
    directory.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(entries), file_entries):
        part = entries[start : start + file_entries]
        content = b"".join(struct.pack(">qiq", offset, size, 0) for offset, size in part)
        file_bytes = file_entries * 20
        name = f"{base + start // file_entries * file_bytes:020}"
        (directory / name).write_bytes(content.ljust(file_bytes, b"\0"))
    return list_queue_files(path)["T", 0]


def test_queue_files_are_listed_in_order_and_files_of_other_names_are_not(tmp_path):
    write_queue(tmp_path, [(n * 100, 100) for n in range(50)], file_entries=20)
    (tmp_path / "T" / "0" / "notes").write_bytes(b"x")
    files = list_queue_files(tmp_path)["T", 0]
    assert [(file.base, file.size, file.path.name) for file in files] == [
        (base, 400, f"{base:020}") for base in (0, 400, 800)
    ]
    assert list_queue_files(tmp_path / "nowhere") == {}


@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 60, 3000])
def test_a_queue_ends_behind_its_last_entry_wherever_that_is(tmp_path, count):
    files = write_queue(tmp_path, [(n * 100, 100) for n in range(count)] or [(0, 0)])
    assert good_end(files, 0, 10**12) == count


@pytest.mark.parametrize("at", [1, 700, 1500])
@pytest.mark.parametrize(
    "bad", [(0, 0), (50, 100), (10**9, 100)], ids=["empty", "before the last", "behind the log"]
)
def test_the_first_entry_that_cannot_follow_the_one_before_ends_the_queue(tmp_path, at, bad):
    entries = [(n * 100, 100) for n in range(2500)]
    entries[at] = bad
    assert good_end(write_queue(tmp_path, entries), 0, 10**9) == at


def test_a_missing_file_ends_the_queue(tmp_path):
    files = write_queue(tmp_path, [(n * 100, 100) for n in range(60)], file_entries=20)
    assert good_end(files, 0, 10**9) == 60
    assert good_end([files[0], files[2]], 0, 10**9) == 20


def test_entries_before_the_known_ones_are_not_looked_at(tmp_path):
    entries = [(n * 100, 100) for n in range(60)]
    entries[5] = (0, 0)
    files = write_queue(tmp_path, entries, file_entries=20)
    assert good_end(files, 0, 10**9) == 5
    assert good_end(files, 6, 10**9) == good_end(files, 30, 10**9) == 60


def test_fillers_are_no_first_message_and_do_not_end_a_queue(tmp_path):
    filler = FILLER.physical_offset, FILLER.store_size
    entries = [*[filler] * 30, *[(7_000 + n * 100, 100) for n in range(20)]]
    files = write_queue(tmp_path, entries)
    assert first_physical_offset(files) == 7_000
    assert good_end(files, 0, 10**9) == 50
    assert first_physical_offset(write_queue(tmp_path / "empty", [(0, 0)])) is None
