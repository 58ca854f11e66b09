"""The compiled check of an index file has the outcome that its rules have, read one by one."""

import random
import struct
from array import array
from itertools import pairwise

import pytest

from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.commitlog_record import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    store_timestamp_at,
)
from rocketlens.formats.compiled.index import check_records, list_records
from rocketlens.formats.index_file import HEADER_BYTES, check_chains, decode_entry
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.index.index_check import Extent, check_whole, is_blank_before
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.made_stores import flip, make_store, overwrite, some_messages, write_index

SLOTS, ENTRIES = 50, 400


@pytest.fixture
def made(tmp_path):
    return make_store(tmp_path / "store", some_messages(60), segment_bytes=8192, index=(SLOTS, 400))


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
        raise IndexFileError("its header has not the time of its last message")
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


def both(made):
    """The outcome for each file of a store, after comparing it with what the rules say."""
    log = CommitLog(made.path / "commitlog")
    try:
        found = [checked(path, log, check_whole) for path in made.index_paths()]
        assert found == [checked(path, log, defined) for path in made.index_paths()]
        return found
    finally:
        log.close()


def test_a_sound_file_passes_with_the_log_that_it_covers(made):
    first, last = (made.records[at].physical_offset for at in (0, -1))
    assert both(made) == [(first, last, ())]


def test_every_changed_byte_has_the_same_outcome(made):
    path = made.index_paths()[0]
    entries = HEADER_BYTES + 4 * SLOTS
    used = range(entries + 20 * (1 + 3 * 60))
    wrong = 0
    for position in random.Random(7).sample(used, 900):
        for bits in (0x01, 0x80):
            flip(path, position, bits)
            wrong += isinstance(both(made)[0], str)
            flip(path, position, bits)
    assert wrong > 900
    assert not isinstance(both(made)[0], str)


def test_every_changed_byte_of_the_log_has_the_same_outcome(made):
    bases = sorted(path.name for path in (made.path / "commitlog").iterdir())
    rng = random.Random(11)
    outcomes = set()
    for _ in range(300):
        path = made.path / "commitlog" / rng.choice(bases)
        position = rng.randrange(8192)
        flip(path, position, 0x10)
        outcomes.add(str(both(made)))
        flip(path, position, 0x10)
    assert len(outcomes) > 10


def test_records_without_entries_are_gaps(tmp_path):
    made = make_store(tmp_path / "store", some_messages(60), index=None)
    records = made.records
    write_index(made.path, [*records[:20], *records[22:40], *records[41:]], SLOTS, ENTRIES)
    ends = [record.physical_offset + record.total_size for record in records]
    gaps = ((ends[19], ends[21]), (ends[39], ends[40]))
    assert both(made) == [(0, records[-1].physical_offset, gaps)]


def test_a_damaged_record_is_no_gap_and_two_files_meet(tmp_path):
    made = make_store(tmp_path / "store", some_messages(200), index=(SLOTS, 301))
    overwrite(made.segment_path(0), made.records[9].physical_offset + 4, bytes(4))
    before, after = both(made)
    assert before.gaps == after.gaps == ()
    assert before.last < after.first


def test_a_log_that_lost_its_begin_or_its_end_has_the_same_outcome(made):
    segments = sorted((made.path / "commitlog").iterdir())
    for lost in (segments[-1], segments[0]):
        content = lost.read_bytes()
        lost.unlink()
        ((found,),) = [both(made)]
        assert not isinstance(found, str)
        lost.write_bytes(content)


def test_files_of_another_log_are_refused(made, tmp_path):
    other = make_store(tmp_path / "other", some_messages(60, body_bytes=333), segment_bytes=8192)
    made.index_paths()[0].replace(other.index_paths()[0])
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


def test_a_kernel_refuses_rows_and_entries_that_are_not_there(made):
    file = IndexFile(made.index_paths()[0])
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
    content = made.segment_path(0).read_bytes()
    for base_offset in (0, -(2**63), 2**63 - 1):
        for _ in range(2):
            many = (lying, lying, lying[:], lying[:], bytearray(len(lying)))
            assert 0 <= check_records(content, base_offset, entries, 0, many, 0, 5) <= 5
    file.close()
