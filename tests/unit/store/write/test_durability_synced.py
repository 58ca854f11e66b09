"""How far the log is synced is written in place, and survives a half-written slot."""

import errno

import pytest

from rocketlens.store.disk import Disk, WritableFile
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.state import SYNCED_BYTES, Synced, read_synced
from rocketlens.store.write.durability import SyncedFile


@pytest.fixture
def layout(tmp_path):
    made = StoreLayout(tmp_path)
    made.own.mkdir()
    return made


def test_a_new_file_names_no_position(layout):
    SyncedFile(layout, Disk()).close()
    assert layout.synced.stat().st_size == SYNCED_BYTES
    assert read_synced(layout) is None


def test_what_was_written_last_is_read_also_after_the_file_is_opened_again(layout):
    for start in (0, 3):
        file = SyncedFile(layout, Disk())
        for number in range(start, start + 3):
            synced = Synced(1000 + number, 900 + number, number)
            file.write(synced)
            assert read_synced(layout) == synced
        file.sync()
        file.close()
    assert read_synced(layout) == Synced(1005, 905, 5)


def test_writes_take_turns_so_that_the_one_before_is_whole(layout):
    file = SyncedFile(layout, Disk())
    first, second = Synced(100, 50, 1), Synced(200, 150, 2)
    file.write(first)
    before = layout.synced.read_bytes()
    file.write(second)
    file.close()
    content = layout.synced.read_bytes()
    changed = [at for at in range(SYNCED_BYTES) if content[at] != before[at]]
    assert {at // 512 for at in changed} == {0}
    for at in changed:
        torn = content[:at] + before[at:512] + content[512:]
        layout.synced.write_bytes(torn)
        assert read_synced(layout) == first


@pytest.mark.parametrize("size", [0, 10, SYNCED_BYTES - 1, SYNCED_BYTES + 1])
def test_a_file_of_another_size_is_made_anew(layout, size):
    layout.synced.write_bytes(b"x" * size)
    file = SyncedFile(layout, Disk())
    file.write(Synced(7))
    file.close()
    assert layout.synced.stat().st_size == SYNCED_BYTES
    assert read_synced(layout) == Synced(7)


def test_a_full_disk_is_an_error_and_leaves_no_file_open(layout, monkeypatch):
    closed = []

    def refuse(self, *_):
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path))

    close = WritableFile.close
    monkeypatch.setattr(WritableFile, "reserve", refuse)
    monkeypatch.setattr(WritableFile, "close", lambda self: closed.append(close(self)))
    with pytest.raises(OSError, match="No space left"):
        SyncedFile(layout, Disk())
    assert closed == [None]
