"""Large index files of a store that lost power: what an old page hides is found all the same."""

import struct

import pytest

import rocketlens
from rocketlens.formats.checkpoint import Checkpoint
from rocketlens.formats.index_file import HEADER_BYTES, Geometry, decode_header
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.model.text.java import index_hash
from rocketlens.store.layout import StoreLayout
from rocketlens.store.lock import StoreLock
from rocketlens.store.read.index import index_files
from rocketlens.store.read.index.index_files import SyncedFiles
from rocketlens.store.read.index.index_state import IndexState, ResumePoint
from tests.support.made_stores import Sent, make_store, overwrite, write_index

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
