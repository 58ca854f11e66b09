"""Consume queue files of another size are refused and stay as they are."""

import shutil
import struct
from dataclasses import replace

import pytest

from rocketlens.errors import BadInput
from rocketlens.formats.consumequeue_entry import FILLER
from rocketlens.store.write.queue.queue_files import (
    first_physical_offset,
    good_end,
    list_queue_files,
)
from tests.support.written_stores import (
    SMALL,
    content_of,
    open_small,
    send_many,
)


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
