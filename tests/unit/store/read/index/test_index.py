"""An index file is searched along its chains, and believed only where it agrees with the log."""

import random
import struct
from array import array
from dataclasses import replace
from itertools import pairwise

import pytest

from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.commitlog_record import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    store_timestamp_at,
)
from rocketlens.formats.compiled.index import check_records, find_entries, list_records
from rocketlens.formats.index_file import HEADER_BYTES, check_chains, decode_entry
from rocketlens.model.text.java import index_hash
from rocketlens.store.read.index import index
from rocketlens.store.read.index import tail as tail_module
from rocketlens.store.read.index.index import IndexFile, is_near, log_explains
from rocketlens.store.read.index.index_check import (
    Extent,
    check_links,
    check_samples,
    check_whole,
    is_blank_before,
)
from rocketlens.store.read.index.index_files import Hit, IndexFiles
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support import made_stores, written_stores
from tests.support.made_stores import flip, make_store, overwrite, some_messages, write_index


def test_an_index_file_gives_the_entries_of_a_hash_newest_first(made, log):
    files = IndexFiles(made.path / "index", log)
    assert [state.error for state in files.states] == [None]
    (file,) = files.sound
    for record in made.records[::9]:
        for key_hash in made_stores.hashes_of(record):
            found = [offset for _, offset in file.find(key_hash, log)]
            assert record.physical_offset in found
            assert found == sorted(found, reverse=True)
        assert file.known_start_before(record.physical_offset) == record.physical_offset
        assert file.known_start_before(record.physical_offset + 1) == record.physical_offset
        assert files.has_entry_of(record)
        stranger = made_stores.replace(record, physical_offset=record.physical_offset + 1)
        assert not files.has_entry_of(stranger)
    files.close()


@pytest.mark.parametrize("geometry", [(64, 50), (7, 200), (1, 5000)])
def test_a_compiled_look_up_in_all_files_finds_what_walks_find(tmp_path, geometry):
    made = make_store(tmp_path / "store", some_messages(300), index=geometry, with_tags=True)
    log = CommitLog(made.path / "commitlog")
    files = IndexFiles(made.path / "index", log)
    wanted = {h for record in made.records[::40] for h in made_stores.hashes_of(record)}
    for hashes in [*({each} for each in wanted), wanted, {index_hash("Orders#none")}, set()]:
        walked = [
            Hit(offset, file, number)
            for file in reversed(files.sound)
            for number, offset in sorted(
                (found for each in hashes for found in file.find(each, log)), reverse=True
            )
        ]
        assert list(files.find(hashes)) == walked
    rows = files.newest_first.rows
    with pytest.raises(ValueError, match="not rows"):
        find_entries(rows[:-1], 0, array("q", wanted))
    with pytest.raises(TypeError):
        find_entries(rows, 0, array("i", [1]))
    files.close()
    assert list(files.find(wanted)) == []
    log.close()


def test_hashes_that_differ_in_one_byte_are_near():
    assert is_near(0x01020304, 0x01020384)
    assert is_near(0x01020304, 0x01FF0304)
    assert is_near(0x71020304, 0x01020304)
    assert not is_near(0x01020304, 0x01020405)


def test_a_file_that_says_it_is_empty_is_looked_through(tmp_path):
    path = tmp_path / "20231114221320000"
    path.write_bytes(struct.pack(">qqqqii", 1, 1, 1, 1, 0, 1).ljust(22040, b"\0"))
    IndexFile(path).check_empty()
    overwrite(path, 15_000, b"\1")
    with pytest.raises(IndexFileError):
        IndexFile(path).check_empty()


def test_a_long_chain_is_searched_as_a_short_one_is(tmp_path, monkeypatch):
    made = make_store(tmp_path / "store", some_messages(300), index=(1, 5000), with_tags=True)
    log = CommitLog(made.path / "commitlog")
    hashes = [h for record in made.records[::20] for h in made_stores.hashes_of(record)]
    walked = [list(IndexFile(made.index_paths()[0]).find(h, log)) for h in hashes]
    monkeypatch.setattr("rocketlens.store.read.index.index._LONG_CHAIN", 10)
    monkeypatch.setattr("rocketlens.store.read.index.index._ENTRIES_TO_PAUSE", 23)
    assert [list(IndexFile(made.index_paths()[0]).find(h, log)) for h in hashes] == walked
    # A hash with one wrong byte, on the one chain there is.
    flip(made.index_paths()[0], 44 + 20 * 50 + 2)
    hurt = IndexFile(made.index_paths()[0])
    offset = hurt.entry(50).physical_offset
    (record,) = [r for r in made.records if r.physical_offset == offset]
    errors = 0
    for key_hash in made_stores.hashes_of(record):
        try:
            list(hurt.find(key_hash, log))
        except IndexFileError:
            errors += 1
    assert errors
    log.close()


def test_an_index_file_that_a_builder_is_writing_to_is_no_damage(tmp_path):
    # A builder puts entries on their slots, and counts all of them in the header afterwards.
    config = replace(written_stores.SMALL, maxHashSlotNum=400_000)
    with written_stores.open_small(tmp_path, config=config) as store:
        sent = written_stores.send_many(store, 8)
        store.flush()
        assert store.build_index()
        (path,) = (tmp_path / "index").iterdir()
        log = CommitLog(tmp_path / "commitlog")
        opened = IndexFile(path)
        counted = path.read_bytes()[:HEADER_BYTES]
        sent += written_stores.send_many(store, 8, first=8)
        store.flush()
        assert store.build_index()
        with path.open("r+b") as file:
            file.write(counted)
        opened.count_slots()
        for number, one in enumerate(sent):
            found = [offset for _, offset in opened.find(index_hash(f"Orders#k{number}"), log)]
            assert found == [one.physical_offset]
        opened.close()
        log.close()


def test_no_record_of_a_time_or_a_later_one_is_before_the_bound_of_a_file(made, log, monkeypatch):
    monkeypatch.setattr(index, "_ENTRIES_OF_TIME", 4)
    monkeypatch.setattr(tail_module, "_BLOCK_BYTES", 100)
    files = IndexFiles(made.path / "index", log)
    (file,) = files.sound
    times = sorted({record.store_timestamp_ms for record in made.records})
    for begin_ms in (times[0] - 1, *times, times[-1] + 1000):
        late = [r.physical_offset for r in made.records if r.store_timestamp_ms >= begin_ms]
        first = files.first_offset(begin_ms)
        assert not late or first <= min(late)
    assert files.first_offset(times[-1] + 1000) is None
    assert files.first_offset(times[0]) == file.header.begin_offset
    files.close()


SLOTS, ENTRIES = 50, 1000


@pytest.fixture
def indexed(tmp_path):
    return make_store(tmp_path / "store", some_messages(100), index=(SLOTS, ENTRIES))


@pytest.fixture
def indexed_log(indexed):
    opened = CommitLog(indexed.path / "commitlog")
    yield opened
    opened.close()


def opened(made):
    return IndexFile(made.index_paths()[0])


def entry_position(number):
    return HEADER_BYTES + 4 * SLOTS + 20 * number


def used_slot(made):
    """Return the position of a slot with an entry."""
    content = made.index_paths()[0].read_bytes()
    slots = range(HEADER_BYTES, entry_position(0), 4)
    return next(at for at in slots if any(content[at : at + 4]))


def test_a_sound_file_passes_every_check_and_answers_for_its_log(indexed, indexed_log):
    file = opened(indexed)
    file.count_slots()
    check_links(file)
    first, last = (indexed.records[at].physical_offset for at in (0, -1))
    for extent in (check_whole(file, indexed_log), check_samples(file, indexed_log, 256)):
        assert extent == (first, last, ())


def test_the_columns_are_the_entries(indexed):
    file = opened(indexed)
    columns = file.entry_columns()
    assert len(columns) == file.last_entry + 1
    for number in range(1, file.last_entry + 1, 7):
        entry = file.entry(number)
        assert int(columns["key_hash"][number]) == entry.key_hash
        assert int(columns["physical_offset"][number]) == entry.physical_offset


def test_a_lost_slot_is_found_by_counting_by_chains_and_by_the_whole_check(indexed, indexed_log):
    overwrite(indexed.index_paths()[0], used_slot(indexed), bytes(4))
    file = opened(indexed)
    for check in (IndexFile.count_slots, check_links, lambda one: check_whole(one, indexed_log)):
        with pytest.raises(IndexFileError, match=file.path.name):
            check(file)


@pytest.mark.parametrize("part", [3, 16])
def test_a_changed_hash_or_link_of_any_entry_contradicts_its_chain(indexed, indexed_log, part):
    path = indexed.index_paths()[0]
    for number in range(1, opened(indexed).last_entry + 1, 17):
        flip(path, entry_position(number) + part, 0x01)
        with pytest.raises(IndexFileError):
            check_whole(opened(indexed), indexed_log)
        with pytest.raises(IndexFileError):
            check_links(opened(indexed))
        flip(path, entry_position(number) + part, 0x01)
    check_whole(opened(indexed), indexed_log)


def test_files_of_another_log_are_told_by_their_offsets(indexed, tmp_path):
    other = make_store(tmp_path / "other", some_messages(100, body_bytes=333))
    log = CommitLog(other.path / "commitlog")
    with pytest.raises(IndexFileError):
        check_whole(opened(indexed), log)
    # The first record is the same in both logs, and all that the file may answer for.
    assert check_samples(opened(indexed), log, 256)[:2] == (0, 0)
    log.close()


def test_a_damaged_record_explains_an_offset_and_a_sound_one_does_not(indexed, indexed_log):
    records = indexed.records
    assert not log_explains(indexed_log, records[0].physical_offset, records[9].physical_offset)
    end = records[-1].physical_offset + records[-1].total_size
    assert log_explains(indexed_log, records[90].physical_offset, end)
    flip(indexed.segment_path(0), records[9].physical_offset + 4)
    hurt = CommitLog(indexed.path / "commitlog")
    assert log_explains(hurt, records[0].physical_offset, records[9].physical_offset)
    assert not log_explains(hurt, records[0].physical_offset, records[8].physical_offset)
    hurt.close()


WHOLE_SLOTS, WHOLE_ENTRIES = 50, 400


@pytest.fixture
def whole(tmp_path):
    return make_store(
        tmp_path / "store", some_messages(60), segment_bytes=8192, index=(WHOLE_SLOTS, 400)
    )


def checked(path, log, check):
    """What a check returns, or what it says is wrong."""
    try:
        file = IndexFile(path)
    except IndexFileError:
        return None
    try:
        return check(file, log)
    except IndexFileError as error:
        return str(error).removeprefix(f"{path.name}: ")
    finally:
        file.close()


def defined(file, log):
    """The rules of the module, one by one."""
    geometry, header = file.geometry, file.header
    entries = [file.entry(number) for number in range(1, file.last_entry + 1)]
    columns = [[entry.key_hash for entry in entries], [entry.previous_entry for entry in entries]]
    chains = check_chains(*columns, file.view[HEADER_BYTES : geometry.entry_position(0)])
    unused = decode_entry(file.view, geometry, 0)
    offsets = [entry.physical_offset for entry in entries]
    is_used = unused.key_hash or unused.previous_entry
    if not chains.is_good or chains.used_slot_count != header.used_slot_count:
        raise IndexFileError("its slots and entries contradict each other")
    if is_used or offsets != sorted(offsets):
        raise IndexFileError("its slots and entries contradict each other")
    lasts = {offset: number for number, offset in enumerate(offsets, 1) if offset >= log.min_offset}
    rows = [(offset, *head_of(log, offset), number) for offset, number in lasts.items()]
    good = [row for row, (*_, number) in enumerate(rows) if is_timely(file, number, rows[row])]
    if not rows:
        return Extent(header.begin_offset, header.end_offset)
    if 2 * len(good) < len(rows):
        raise IndexFileError("most of its entries point to no records of this log")
    if good[-1] == len(rows) - 1 and rows[-1][2] != header.end_timestamp_ms:
        raise IndexFileError("its header lacks the time of its last message")
    for row in good[:: len(good) // 8 + 1]:
        file.is_for_its_record(log, rows[row][3])
    gaps = []
    for before, after in pairwise(good):
        start, stop = rows[before][1], rows[after][0]
        between = rows[before + 1 : after]
        is_damage = between and between[0][0] == start and all(row[0] == row[1] for row in between)
        if start < stop and not is_damage and not is_blank_before(log, start, stop):
            gaps.append((start, stop))
    return Extent(rows[good[0]][0], rows[good[-1]][0], tuple(gaps))


def head_of(log, offset):
    """Where the record at an offset ends by its head, and its time; the offset without one."""
    segment = log.segment_of(offset)
    try:
        view = memoryview(b"") if segment is None else log.map(segment).view
    except RecordError:
        view = memoryview(b"")
    position = offset - segment.base_offset if segment else 0
    room = len(view) - position
    if room >= MIN_RECORD_BYTES:
        size, magic = struct.unpack_from(">ii", view, position)
        (own,) = struct.unpack_from(">q", view, position + 28)
        if magic in {MAGIC_V1, MAGIC_V2} and own == offset and MIN_RECORD_BYTES <= size <= room:
            return offset + size, store_timestamp_at(view, position)
    return offset, 0


def is_timely(file, number, row):
    """Whether a record can be read, and its last entry has its time."""
    start, end, time_ms, _ = row
    begin_ms, seconds = file.header.begin_timestamp_ms, file.entry(number).seconds
    if end <= start:
        return False
    if number == 1:
        return time_ms == begin_ms
    if begin_ms <= 0:
        return seconds == 0
    least = time_ms - begin_ms - seconds * 1000
    return seconds >= 0 and (least >= 0 or seconds == 0) and (least < 1000 or seconds == 2**31 - 1)


def both(whole):
    """The outcome for each file of a store, after comparing it with what the rules say."""
    log = CommitLog(whole.path / "commitlog")
    try:
        found = [checked(path, log, check_whole) for path in whole.index_paths()]
        assert found == [checked(path, log, defined) for path in whole.index_paths()]
        return found
    finally:
        log.close()


def test_a_sound_file_passes_with_the_log_that_it_covers(whole):
    first, last = (whole.records[at].physical_offset for at in (0, -1))
    assert both(whole) == [(first, last, ())]


def test_every_changed_byte_has_the_same_outcome(whole):
    path = whole.index_paths()[0]
    entries = HEADER_BYTES + 4 * WHOLE_SLOTS
    used = range(entries + 20 * (1 + 3 * 60))
    wrong = 0
    for position in random.Random(7).sample(used, 900):
        for bits in (0x01, 0x80):
            flip(path, position, bits)
            wrong += isinstance(both(whole)[0], str)
            flip(path, position, bits)
    assert wrong > 900
    assert not isinstance(both(whole)[0], str)


def test_every_changed_byte_of_the_log_has_the_same_outcome(whole):
    bases = sorted(path.name for path in (whole.path / "commitlog").iterdir())
    rng = random.Random(11)
    outcomes = set()
    for _ in range(300):
        path = whole.path / "commitlog" / rng.choice(bases)
        position = rng.randrange(8192)
        flip(path, position, 0x10)
        outcomes.add(str(both(whole)))
        flip(path, position, 0x10)
    assert len(outcomes) > 10


def test_records_without_entries_are_gaps(tmp_path):
    whole = make_store(tmp_path / "store", some_messages(60), index=None)
    records = whole.records
    write_index(
        whole.path, [*records[:20], *records[22:40], *records[41:]], WHOLE_SLOTS, WHOLE_ENTRIES
    )
    ends = [record.physical_offset + record.total_size for record in records]
    gaps = ((ends[19], ends[21]), (ends[39], ends[40]))
    assert both(whole) == [(0, records[-1].physical_offset, gaps)]


def test_a_damaged_record_is_no_gap_and_two_files_meet(tmp_path):
    whole = make_store(tmp_path / "store", some_messages(200), index=(WHOLE_SLOTS, 301))
    overwrite(whole.segment_path(0), whole.records[9].physical_offset + 4, bytes(4))
    before, after = both(whole)
    assert before.gaps == after.gaps == ()
    assert before.last < after.first


def test_a_log_that_lost_its_begin_or_its_end_has_the_same_outcome(whole):
    segments = sorted((whole.path / "commitlog").iterdir())
    for lost in (segments[-1], segments[0]):
        content = lost.read_bytes()
        lost.unlink()
        ((found,),) = [both(whole)]
        assert not isinstance(found, str)
        lost.write_bytes(content)


def test_files_of_another_log_are_refused(whole, tmp_path):
    other = make_store(tmp_path / "other", some_messages(60, body_bytes=333), segment_bytes=8192)
    whole.index_paths()[0].replace(other.index_paths()[0])
    assert "point to no records" in both(other)[0]


def test_the_golden_files_pass(golden):
    for version in ("4.9.7", "5.5.0"):
        store = golden(version).store
        log = CommitLog(store / "commitlog")
        paths = sorted((store / "index").iterdir())
        extents = [checked(path, log, check_whole) for path in paths]
        assert extents == [checked(path, log, defined) for path in paths]
        assert all(
            before.first <= before.last <= after.first for before, after in pairwise(extents)
        )
        log.close()


def test_a_kernel_refuses_rows_and_entries_that_are_not_there(whole):
    file = IndexFile(whole.index_paths()[0])
    entries = file.view[file.geometry.entry_position(0) :]
    rows = array("q", bytes(8 * file.last_entry))
    with pytest.raises(ValueError, match="bytes hold no"):
        list_records(entries[:100], file.last_entry, 0, rows, rows[:])
    with pytest.raises(ValueError, match="too few"):
        list_records(entries, file.last_entry, 0, rows[1:], rows[:])
    written = (rows, rows[:], rows[:], rows[:], bytearray(len(rows)))
    for row, count in ((-1, 1), (0, len(rows) + 1)):
        with pytest.raises(ValueError, match="there are no rows"):
            check_records(b"", 0, entries, 0, written, row, count)
    lying = array("q", [2**63 - 1, -1, 0, 60, 10**9])
    content = whole.segment_path(0).read_bytes()
    for base_offset in (0, -(2**63), 2**63 - 1):
        for _ in range(2):
            many = (lying, lying, lying[:], lying[:], bytearray(len(lying)))
            assert 0 <= check_records(content, base_offset, entries, 0, many, 0, 5) <= 5
    file.close()
