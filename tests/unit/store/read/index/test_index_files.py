"""The index files of a store together: which answer, and how far they are safe."""

import struct

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens.errors import IndexFileError
from rocketlens.formats.checkpoint import Checkpoint
from rocketlens.formats.index_file import HEADER_BYTES, Geometry, IndexHeader, decode_header
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.model.text.java import index_hash
from rocketlens.store.layout import StoreLayout
from rocketlens.store.lock import StoreLock
from rocketlens.store.read.index import index_files
from rocketlens.store.read.index.index_files import (
    PAUSE,
    Hit,
    IndexFiles,
    SyncedFiles,
    newest_first,
)
from rocketlens.store.read.index.index_state import (
    IndexState,
    ResumePoint,
    full_index_end,
    read_index_state,
    safe_offset_of,
)
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.note import encode_note
from tests.support.made_stores import (
    Sent,
    hashes_of,
    make_store,
    overwrite,
    some_messages,
    write_index,
)


@pytest.fixture
def many(tmp_path):
    """A store whose log is indexed by several files."""
    return make_store(tmp_path / "store", some_messages(200), index=(50, 60))


@pytest.fixture
def log(many):
    opened = CommitLog(many.path / "commitlog")
    yield opened
    opened.close()


def found(files, record):
    return [hit.physical_offset for hit in files.find({*hashes_of(record)})]


def test_every_record_is_found_in_one_of_several_files_newest_first(many, log):
    files = IndexFiles(many.path / "index", log)
    assert len(files.sound) > 3
    for record in many.records[::7]:
        offsets = found(files, record)
        assert record.physical_offset in offsets
        assert offsets == sorted(offsets, reverse=True)
    files.close()


def test_many_look_ups_find_the_same_as_the_first(many, log):
    files = IndexFiles(many.path / "index", log)
    first = found(files, many.records[50])
    assert all(found(files, many.records[50]) == first for _ in range(6))
    files.close()


def test_all_of_the_log_but_its_end_is_covered(many, log):
    files = IndexFiles(many.path / "index", log)
    assert files.uncovered() == [(many.records[-1].physical_offset, None)]
    files.close()


def test_a_missing_file_leaves_its_part_of_the_log_uncovered(many, log):
    whole = IndexFiles(many.path / "index", log)
    gone = whole.sound[1].header
    whole.close()
    many.index_paths()[1].unlink()
    files = IndexFiles(many.path / "index", log)
    (first, last), _ = files.uncovered()
    assert first <= gone.begin_offset
    assert last > gone.end_offset
    files.close()


@pytest.mark.parametrize("name", ["notes.txt", "20231114221320000x"])
def test_files_of_other_names_are_left_alone(many, log, name):
    before = len(many.index_paths())
    (many.path / "index" / name).write_bytes(b"x" * 100)
    files = IndexFiles(many.path / "index", log)
    assert len(files.states) == len(files.sound) == before
    files.close()


def test_a_damaged_file_is_not_used_and_named_with_its_reason(many, log):
    hurt = many.index_paths()[1]
    overwrite(hurt, 40 + 4 * 50 + 20, bytes(200))
    (many.path / "index" / "99990101000000000").mkdir()
    files = IndexFiles(many.path / "index", log)
    errors = {state.path.name: state.error for state in files.states if state.error}
    assert set(errors) == {hurt.name, "99990101000000000"}
    assert errors["99990101000000000"] == "is not a file"
    assert hurt not in [file.path for file in files.sound]
    files.close()


def test_a_file_that_begins_before_the_end_of_the_one_before_is_not_used(many, log):
    paths = many.index_paths()
    (many.path / "index" / "99990101000000000").write_bytes(paths[0].read_bytes())
    files = IndexFiles(many.path / "index", log)
    assert len(files.sound) == len(paths)
    assert [state.error for state in files.states if state.error and "overlaps" in state.error]
    files.close()


def test_a_rejected_file_is_not_looked_into_again(many, log):
    files = IndexFiles(many.path / "index", log)
    rejected, version = files.sound[0], files.version
    record = many.records[0]
    assert record.physical_offset in found(files, record)
    files.reject(rejected, IndexFileError("it is damaged"))
    assert rejected not in files.sound
    assert files.version > version
    assert record.physical_offset not in found(files, record)
    assert files.uncovered()[0][0] == 0
    assert "it is damaged" in {state.error for state in files.states}
    files.close()


def test_files_that_a_broker_makes_or_adds_to_are_seen(many, log, monkeypatch):
    # Small files are copied when they are opened; these are mapped, as large ones are.
    monkeypatch.setattr("rocketlens.store.read.index.index._COPY_BYTES", 0)
    last = many.index_paths()[-1]
    content = last.read_bytes()
    last.unlink()
    files = IndexFiles(many.path / "index", log)
    assert not files.has_grown()
    last.write_bytes(content)
    assert files.has_grown()
    files.close()
    files = IndexFiles(many.path / "index", log)
    next_entry = int.from_bytes(content[36:40], "big")
    overwrite(last, 36, (next_entry + 1).to_bytes(4, "big"))
    assert files.has_grown()
    files.close()


def test_a_directory_that_is_not_there_has_no_files_and_covers_nothing(many, log):
    files = IndexFiles(many.path / "nowhere", log)
    assert files.sound == []
    assert files.uncovered() == [(0, None)]
    assert list(files.find({index_hash("Topic0#k")})) == []
    files.close()


def test_hits_and_memory_are_merged_newest_first_and_each_offset_comes_once():
    hits = [Hit(at, None, number) for at, number in ((9, 3), (7, 2), (7, 1), (5, 0), (3, 1))]
    merged = list(newest_first(iter(hits), iter([10, 7, 4, 4])))
    assert merged == [(10, None), (9, hits[0]), (7, hits[1]), PAUSE, (4, None), (3, hits[4])]


SLOTS, ENTRIES = 100_000, 5000
PAGE = 4096


def page_of(key):
    return (HEADER_BYTES + 4 * (index_hash(f"Orders#{key}") % SLOTS)) // PAGE


# The pages of the newest entries are new ones in a file that can be opened at all.
NEWEST = {page_of(f"k{n}") for n in range(900, 1000)}
OFTEN = next(f"often-{n}" for n in range(99) if page_of(f"often-{n}") not in NEWEST)


@pytest.fixture
def checked(monkeypatch):
    """Files are large from 100 entries on; the names of those that are replayed."""
    monkeypatch.setattr("rocketlens.store.read.index.index_files.MAX_INDEX_CHECK_ENTRIES", 100)
    names = []

    def check_links(file):
        names.append(file.path.name)
        original(file)

    original = index_files.check_links
    monkeypatch.setattr(index_files, "check_links", check_links)
    return names


@pytest.fixture
def made(tmp_path):
    """One key on every 40th of 1,000 messages; the store was not closed."""
    messages = [Sent(keys=f"k{n}" if n % 40 else OFTEN) for n in range(1000)]
    made = make_store(tmp_path / "store", messages, index=(SLOTS, ENTRIES))
    (made.path / "abort").touch()
    return made


def put_page_back(made):
    """Let the page with the slot of the key be as it was when half of the messages were in."""
    half = write_index(made.path / "half", made.records[:500], SLOTS, ENTRIES)[0].read_bytes()
    start = max(page_of(OFTEN) * PAGE, HEADER_BYTES)
    stop = min(page_of(OFTEN) * PAGE + PAGE, HEADER_BYTES + 4 * SLOTS)
    overwrite(made.index_paths()[0], start, half[start:stop])


def often(made):
    return [r.physical_offset for r in made.with_key("Orders", OFTEN)]


def test_a_page_of_slots_that_was_not_written_hides_no_message(made, checked):
    put_page_back(made)
    with rocketlens.open_store(made.path) as store:
        answer = store.query_message("Orders", OFTEN, None)
        assert [m.physical_offset for m in answer] == often(made)
        assert answer.complete
        (file,) = [c for c in answer.coverage if c.kind is SourceKind.INDEX_FILE]
        assert file.state is SourceState.DAMAGED
        assert "contradict each other" in file.error


def test_a_sound_file_of_a_store_that_was_not_closed_is_used(made, checked):
    with rocketlens.open_store(made.path) as store:
        answer = store.query_message("Orders", OFTEN, None)
        assert [m.physical_offset for m in answer] == often(made)
        (file,) = [c for c in answer.coverage if c.kind is SourceKind.INDEX_FILE]
        assert file.state is SourceState.SEARCHED
    assert checked == [made.index_paths()[0].name]


def test_a_file_with_one_entry_more_than_its_header_counts_is_used(made, checked):
    content = bytearray(made.index_paths()[0].read_bytes())
    header = decode_header(content)
    last = header.last_entry
    entry_at = HEADER_BYTES + 4 * SLOTS + 20 * (last - 1)
    end_offset = struct.unpack_from(">i q", content, entry_at)[1]
    counted = header._replace(next_entry=last, end_offset=end_offset)
    slot = struct.unpack_from(">i", content, entry_at + 20)[0] % SLOTS
    is_new = struct.unpack_from(">i", content, entry_at + 20 + 16)[0] == 0
    counted = counted._replace(used_slot_count=header.used_slot_count - is_new)
    assert struct.unpack_from(">i", content, HEADER_BYTES + 4 * slot)[0] == last
    overwrite(made.index_paths()[0], 0, counted.encode())
    with rocketlens.open_store(made.path) as store:
        answer = store.query_message("Orders", OFTEN, None)
        assert [m.physical_offset for m in answer] == often(made)
        (file,) = [c for c in answer.coverage if c.kind is SourceKind.INDEX_FILE]
        assert file.state is SourceState.SEARCHED


def noted(name, header):
    """What the builder notes of one file."""
    geometry = Geometry(SLOTS, ENTRIES)
    return IndexState(
        ResumePoint(9, 0), with_tags=False, geometry=geometry, files=((name, header),), mark=None
    )


@pytest.mark.parametrize("why", ["closed", "in use", "full", "noted"])
def test_files_known_to_be_on_the_disk_are_not_replayed(made, checked, why):
    layout, (path,) = StoreLayout(made.path), made.index_paths()
    header = decode_header(path.read_bytes())
    lock = None
    if why == "closed":
        layout.abort.unlink()
    elif why == "in use":
        lock = StoreLock(made.path)
    elif why == "full":
        path.unlink()
        write_index(made.path, made.records, SLOTS, header.next_entry)
        times = Checkpoint(index_msg_timestamp_ms=header.end_timestamp_ms)
        layout.checkpoint.write_bytes(times.encode())
    elif why == "noted":
        layout.own.mkdir()
        layout.index_state.write_bytes(noted(path.name, header).encode())
    with rocketlens.open_store(made.path) as store:
        assert len(store.query_message("Orders", OFTEN, None)) == 25
    assert checked == []
    if lock:
        lock.release()


def test_what_is_not_known_to_be_synced_is_not_believed_to_be(made):
    layout, (path,) = StoreLayout(made.path), made.index_paths()
    header = decode_header(path.read_bytes())
    full = Geometry(SLOTS, header.next_entry)
    part = Geometry(SLOTS, header.next_entry + 1)
    assert not SyncedFiles(layout).has(path, header, full)
    for content in (b"", b"short", Checkpoint().encode()):
        layout.checkpoint.write_bytes(content)
        assert not SyncedFiles(layout).has(path, header, full)
    end_ms = header.end_timestamp_ms
    layout.checkpoint.write_bytes(Checkpoint(index_msg_timestamp_ms=end_ms - 1).encode())
    assert not SyncedFiles(layout).has(path, header, full)
    layout.checkpoint.write_bytes(Checkpoint(index_msg_timestamp_ms=end_ms).encode())
    assert SyncedFiles(layout).has(path, header, full)
    assert not SyncedFiles(layout).has(path, header, part)
    layout.own.mkdir()
    older = header._replace(next_entry=header.next_entry - 1)
    layout.index_state.write_bytes(noted(path.name, older).encode())
    assert not SyncedFiles(layout).has(path, header, part)


GEOMETRY = Geometry(50, 100)
FULL = IndexHeader(1, 2000, 10, 5000, 40, 100)
PART = IndexHeader(2001, 3000, 5100, 9000, 20, 30)
STATE = IndexState(
    ResumePoint(9100, 0),
    with_tags=True,
    geometry=GEOMETRY,
    files=(("20231114221320000", FULL), ("20231114221320001", PART)),
    mark=None,
    slots_crc=77,
)


@pytest.fixture
def layout(tmp_path):
    made = StoreLayout(tmp_path)
    made.own.mkdir()
    return made


@pytest.mark.parametrize(
    "state",
    [
        STATE,
        replace(STATE, resume_point=ResumePoint(9000, 3), with_tags=False, slots_crc=None),
        replace(STATE, files=(), is_beside=True, kept_full=FULL),
    ],
)
def test_a_state_is_read_back_as_it_was_written(layout, state):
    layout.index_state.write_bytes(state.encode())
    assert read_index_state(layout) == state
    assert safe_offset_of(layout) == state.resume_point.physical_offset


def test_without_a_file_nothing_is_safe(layout):
    assert read_index_state(layout) is None
    assert safe_offset_of(layout) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"safeOffset": "x"},
        {"geometry": [1]},
        {"geometry": None},
        {"files": [["name"]]},
        {"files": [["name", "00"]]},
        {"keptFull": "zz"},
    ],
)
def test_a_member_of_another_kind_makes_the_whole_state_unbelieved(layout, change):
    value = {
        "safeOffset": 5,
        "entriesIn": 0,
        "tags": True,
        "geometry": [50, 100],
        "slotsCrc": None,
        "beside": False,
        "keptFull": None,
        "files": [],
    }
    layout.index_state.write_bytes(encode_note("index", value, None))
    assert safe_offset_of(layout) == 5
    layout.index_state.write_bytes(encode_note("index", value | change, None))
    assert read_index_state(layout) is None
    assert safe_offset_of(layout) == 0


def test_the_newest_full_file_is_one_that_has_all_the_entries_it_can_have():
    assert STATE.newest_full() == FULL
    assert replace(STATE, files=STATE.files[1:]).newest_full() is None
    assert replace(STATE, files=()).newest_full() is None
    # Files beside the store's own are not in its index yet.
    assert replace(STATE, is_beside=True).newest_full() is None
    assert replace(STATE, is_beside=True, kept_full=FULL).newest_full() == FULL


def test_full_files_reach_as_far_as_the_note_says_or_without_one_the_checkpoint(layout):
    before = Checkpoint(1, 2, 1234)
    assert full_index_end(layout, before) == (before.index_msg_timestamp_ms, 0)
    layout.index_state.write_bytes(STATE.encode())
    assert full_index_end(layout, before) == (FULL.end_timestamp_ms, FULL.end_offset)
    layout.index_state.write_bytes(replace(STATE, files=()).encode())
    assert full_index_end(layout, before) == (0, 0)
