"""C-3: whatever happens to index files, the answers are those of the log."""

import random
import shutil
import struct

import pytest

import rocketlens
from rocketlens.formats.compiled import index
from rocketlens.formats.rows import IndexEntries
from tests.crash.asking import assert_key, assert_right
from tests.support import made_stores
from tests.support.effort import sized
from tests.support.index_writer import HEADER
from tests.support.made_stores import Sent, flip, make_store, overwrite, some_messages, write_index

GEOMETRIES = [(500, 1000), (512, 4096), (1024, 300), (16, 2000), (1, 500)]
ODD_SEEDS = range(sized(1, 3))


@pytest.fixture(params=[False, True], ids=["whole", "sampled"])
def check(request, monkeypatch):
    """Small files are checked whole, large ones at some places: all must hold for both."""
    if request.param:
        monkeypatch.setattr("rocketlens.store.read.index.index_files.MAX_INDEX_CHECK_ENTRIES", 0)
    return request.param


@pytest.fixture
def made(tmp_path):
    return make_store(tmp_path / "store", some_messages(400), segment_bytes=1 << 15)


def assert_named(made, step=7):
    assert_right(made, step=step, topics=(None,), damaged=True)


def test_every_key_is_found_in_every_geometry(tmp_path, check):
    for number, geometry in enumerate(GEOMETRIES):
        made = make_store(tmp_path / str(number), some_messages(300), index=geometry)
        assert_right(made, step=13, topics=(None,), damaged=False)


def test_index_files_that_the_kernels_build_are_read_alike(tmp_path):
    import numpy as np

    made = make_store(tmp_path / "store", some_messages(300), index=None)
    put = [
        (key_hash, record.physical_offset, record.store_timestamp_ms)
        for record in made.records
        for key_hash in made_stores.hashes_of(record)
    ]
    new = IndexEntries(
        *(np.array(c, t) for c, t in zip(zip(*put), (np.int32, np.int64, np.int64)))  # noqa: B905
    )
    for slot_count in (512, 1024):
        slots, entries = np.zeros(4 * slot_count, np.uint8), np.zeros(20 * 2000, np.uint8)
        used = index.build(*new, 1, 0, slot_count, slots, entries)
        times, offsets = new.timestamps, new.offsets
        header = HEADER.pack(times[0], times[-1], offsets[0], offsets[-1], used, len(put) + 1)
        (path,) = write_index(made.path, made.records, slot_count, 2000)
        assert path.read_bytes() == header + slots.tobytes() + entries.tobytes()
        assert_right(made, step=9, damaged=False)


@pytest.mark.parametrize(
    "size",
    sized([0, 39, 41, 2047, 22039], [0, 1, 39, 40, 41, 1000, 2040, 2047, 2060, 5000, 22000, 22039]),
)
def test_an_index_file_cut_anywhere_is_replaced_by_the_log(made, check, size):
    for path in made.index_paths()[:2]:
        with path.open("r+b") as file:
            file.truncate(size)
    assert_named(made)


def test_index_files_that_are_deleted_are_replaced_by_the_log(made, check):
    made.index_paths()[1].unlink()
    assert_right(made, step=3, topics=(None,))
    shutil.rmtree(made.path / "index")
    assert_right(made, step=3, topics=(None,))


def test_a_file_with_some_entries_of_a_record_that_is_gone_is_replaced_by_the_log(tmp_path, check):
    """RocketMQ overwrites a file that it made in the same millisecond."""
    made = make_store(tmp_path / "store", some_messages(60), index=(5, 3))
    for path in made.index_paths()[3::7]:
        path.unlink()
    assert_right(made, step=1, topics=(None,), damaged=False)


@pytest.mark.parametrize("position", range(0, 40, sized(7, 1)))
def test_a_flipped_byte_in_a_header_changes_no_answer(made, check, position):
    flip(made.index_paths()[1], position, 1 << position % 8)
    assert_right(made, step=31)


def test_a_header_of_zeros_is_named_and_replaced_by_the_log(made, check):
    overwrite(made.index_paths()[0], 0, bytes(40))
    assert_named(made)


@pytest.mark.parametrize("geometry", [(500, 1000), (512, 1000), (1024, 4096)], ids=str)
@pytest.mark.parametrize("seed", ODD_SEEDS)
def test_random_flips_in_an_index_change_no_answer(tmp_path, geometry, seed, check):
    """Each flip alone: few of them here, 2,000 and more of each geometry when tests run in full."""
    made = make_store(tmp_path / "store", some_messages(200), index=geometry)
    chance = random.Random(seed)
    texts = made.texts()
    slots_end = 40 + 4 * geometry[0]
    for _ in range(sized(10, 350)):
        path = chance.choice(made.index_paths())
        sound = path.read_bytes()
        (next_entry,) = struct.unpack_from(">i", sound, 36)
        position = chance.choice(
            [chance.randrange(slots_end), chance.randrange(slots_end, slots_end + 20 * next_entry)]
        )
        flip(path, position, 1 << chance.randrange(8))
        asked = chance.sample(texts, 12)
        # The flipped entry's own keys, and those on its slot, first of all.
        if position >= slots_end:
            number = (position - slots_end) // 20
            (offset,) = struct.unpack_from(">q", sound, slots_end + 20 * number + 4)
            asked += [
                (r.topic, text)
                for r in made.records
                if r.physical_offset == offset
                for text in made_stores.texts_of(r)
            ]
        with rocketlens.open_store(made.path) as store:
            for topic, text in asked:
                assert_key(made, store, topic, text)
            for n in range(3):
                assert not store.query_message("Topic1", f"no key {n}").messages
        path.write_bytes(sound)


def test_a_cycle_in_a_chain_ends_no_query_late(tmp_path, check):
    made = make_store(tmp_path / "store", some_messages(300), index=(8, 2000))
    (path,) = made.index_paths()
    for number in (5, 100, 101, 500):
        place = 40 + 4 * 8 + 20 * number + 16
        overwrite(path, place, struct.pack(">i", 600 - number % 8))
    assert_named(made, step=11)


def test_links_to_themselves_and_outside_change_no_answer(made, check):
    (path, *_) = made.index_paths()
    for number, link in ((40, 40), (41, -1), (42, 2**31 - 1), (43, -(2**31)), (44, 999)):
        overwrite(path, 40 + 4 * 500 + 20 * number + 16, struct.pack(">i", link))
    assert_named(made)


@pytest.mark.parametrize("at", range(0, 22040, sized(8192, 4096)))
def test_a_zeroed_page_in_an_index_changes_no_answer(made, check, at):
    path = made.index_paths()[0]
    size = path.stat().st_size
    overwrite(path, at, bytes(min(4096, size - at)))
    assert_right(made, step=3)


def test_a_zeroed_slot_changes_no_answer(made, check):
    path = made.index_paths()[0]
    for slot in range(0, 500, 3):
        overwrite(path, 40 + 4 * slot, bytes(4))
    assert_right(made, step=3, damaged=True)


def test_files_of_other_names_in_the_index_directory_are_left_alone(made, check):
    (made.path / "index" / "notes.txt").write_text("not an index")
    (made.path / "index" / ".20231114221320000.swp").write_bytes(b"\0" * 999)
    (made.path / "index" / "20231114221320000.bak").write_bytes(b"\xff" * 22040)
    assert_right(made, step=9, damaged=False)


def test_strays_with_the_name_of_an_index_file_are_named(made, check):
    (made.path / "index" / "20231114221329999").write_bytes(random.Random(1).randbytes(22040))
    (made.path / "index" / "20231114221329998").mkdir()
    assert_named(made)


def test_a_file_where_the_index_directory_should_be_is_no_index(made, check):
    shutil.rmtree(made.path / "index")
    (made.path / "index").write_bytes(b"file")
    assert_right(made, step=9)


def test_an_index_file_twice_gives_every_message_once(made, check):
    for path in made.index_paths():
        shutil.copy(path, path.with_name(str(int(path.name) + 500_000)))
    assert_right(made, step=5, topics=(None,))


def test_an_index_file_that_cannot_be_read_is_named(made, check, monkeypatch):
    from rocketlens.store import fs

    unreadable = made.index_paths()[0]
    mapped_file = fs.MappedFile.__init__

    def refuse(self, path, *arguments, **named):
        if path == unreadable:
            raise PermissionError(13, "Permission denied", str(path))
        mapped_file(self, path, *arguments, **named)

    monkeypatch.setattr(fs.MappedFile, "__init__", refuse)
    assert_named(made)


def test_an_index_directory_that_cannot_be_read_is_named(made, check, monkeypatch):
    from rocketlens.store import fs

    listed = fs.entries

    def refuse(directory):
        if directory.name == "index":
            raise PermissionError(13, "Permission denied", str(directory))
        return listed(directory)

    monkeypatch.setattr(fs, "entries", refuse)
    assert_named(made)


def test_the_index_of_another_store_is_named_and_not_used(made, check, tmp_path):
    others = [
        Sent(topic="Topic1", keys=f"order-{n}", unique_key=f"{n + 7:032X}", body=b"x" * (n % 50))
        for n in range(500)
    ]
    other = make_store(tmp_path / "other", others)
    shutil.rmtree(made.path / "index")
    shutil.copytree(other.path / "index", made.path / "index")
    assert_named(made, step=5)


@pytest.mark.parametrize("body_bytes", [40, 61], ids=["same-sizes", "other-sizes"])
@pytest.mark.parametrize("lost_from", [100, 330, 398])
def test_messages_over_a_stale_stretch_of_the_index_are_found(
    tmp_path, check, body_bytes, lost_from
):
    """The log lost its end and grew again; RocketMQ skips what its index seems to have already."""
    first = some_messages(400)
    # What came later came at least seconds later: a broker was started in between.
    second = [
        made_stores.replace(
            sent,
            keys=f"new-{n}",
            unique_key=f"{10_000 + n:032X}",
            body=b"new".ljust(body_bytes, b"."),
            store_timestamp_ms=made_stores.NOW_MS + 600_000 + n,
        )
        for n, sent in enumerate(some_messages(420 - lost_from))
    ]
    before = make_store(tmp_path / "before", first, index=(500, 5000))
    writer = made_stores.RecordIndexWriter(tmp_path / "after" / "index", 500, 5000)
    for record in before.records:
        writer.put_record(record)
    made = make_store(tmp_path / "after", first[:lost_from] + second, index=None)
    for record in made.records[lost_from:]:
        writer.put_record(record)
    writer.store()
    with rocketlens.open_store(made.path) as store:
        for topic, text in made.texts():
            assert_key(made, store, topic, text)


def test_messages_over_the_index_of_a_log_that_was_moved_away_are_found(tmp_path, check):
    """M6: the log went, the index stayed, and 2,000 more were sent."""
    old = make_store(tmp_path / "old", some_messages(700), index=(500, 10_000))
    writer = made_stores.RecordIndexWriter(tmp_path / "new" / "index", 500, 10_000)
    for record in old.records:
        writer.put_record(record)
    fresh = [
        Sent(
            topic="Topic1",
            keys=f"k{n}",
            unique_key=f"{n + 50_000:032X}",
            body=b"fresh".ljust(30 + n % 11, b"+"),
            queue_id=n % 2,
            store_timestamp_ms=made_stores.NOW_MS + 900_000 + 3 * n,
        )
        for n in range(1200)
    ]
    made = make_store(tmp_path / "new", fresh, index=None)
    for record in made.records:
        writer.put_record(record)
    assert writer.end_offset == made.records[-1].physical_offset
    writer.store()
    with rocketlens.open_store(made.path) as store:
        for topic, text in made.texts():
            assert_key(made, store, topic, text)
        assert not store.query_message("Topic1", "order-5").messages


def test_messages_stored_while_the_index_was_off_are_found(tmp_path, check):
    made = make_store(tmp_path / "store", some_messages(600), index=None)
    write_index(made.path, [*made.records[20:200], *made.records[260:500]], 500, 1000)
    assert_right(made, step=4, topics=(None,), damaged=False)


def test_index_files_are_used_whatever_order_their_names_give(made, check):
    paths = made.index_paths()
    for path, name in zip(paths, reversed([path.name for path in paths]), strict=True):
        path.rename(path.with_name(f"9{name}"))
    assert_right(made, step=5, damaged=False)


def test_many_small_index_files_answer_alike(tmp_path):
    made = make_store(tmp_path / "store", some_messages(400), index=(64, 50))
    assert len(made.index_paths()) >= 16
    assert_right(made, step=3, topics=(None,), damaged=False)
    flip(made.index_paths()[7], 40 + 4 * 64 + 20 * 9 + 1, 0x40)
    assert_right(made, step=1)


def test_thousands_of_index_files_and_segments_need_few_open_files(tmp_path):
    resource = pytest.importorskip("resource")
    made = make_store(
        tmp_path / "store", some_messages(900), segment_bytes=512, index=(16, 5), with_queues=False
    )
    assert len(list((made.path / "commitlog").iterdir())) > 400
    assert len(made.index_paths()) > 600
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
    try:
        with rocketlens.open_store(made.path) as store:
            for topic, text in made.texts()[::50]:
                assert_key(made, store, topic, text)
            assert len(list(store.scan())) == len(made.records)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
