"""Files are mapped, listed and read in parts, and holes in them are left out.

Files stay mapped while they are used, and no more of them than allowed.
"""

import os

from rocketlens.store import fs
from tests.support.patched import change_for


def test_written_parts_leave_out_holes(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 20)
        file.seek(300_000)
        file.write(b"x")
    parts = list(fs.data_extents(path, 0, 1 << 20))
    assert all(low <= high for low, high in parts)
    assert any(low <= 300_000 < high for low, high in parts)
    assert list(fs.data_extents(path, 10, 10)) == []
    path.unlink()
    assert list(fs.data_extents(path, 5, 99)) == [(5, 99)]


def test_a_small_file_is_copied_and_a_part_can_be_mapped(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 1000)
    copied = fs.MappedFile(path, copy_bytes=20_000)
    assert isinstance(copied.content, bytes)
    assert bytes(fs.MappedFile(path, 12).view) == b"012345678901"
    assert len(fs.MappedFile(path, 10**9)) == 10_000


def test_entries_are_listed_by_name_and_a_directory_that_is_not_there_has_none(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / name).write_bytes(b"xy")
    assert [(entry.name, fs.size_of(entry)) for entry in fs.entries(tmp_path)] == [
        ("a", 2),
        ("b", 2),
        ("c", 2),
    ]
    assert list(fs.entries(tmp_path / "nowhere")) == list(fs.entries(tmp_path / "a")) == []


def test_a_file_deleted_after_it_was_listed_has_no_size_and_no_identity(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (entry,) = fs.entries(tmp_path)
    (tmp_path / "a").unlink()
    assert (fs.size_of(entry), fs.file_id(entry)) == (0, None)


def test_a_file_that_is_missing_is_told_from_one_that_is_empty(tmp_path):
    path = tmp_path / "file"
    for missing in (path, tmp_path / "no" / "file"):
        assert fs.file_size(missing) is None
        assert fs.read_bytes(missing, 10) is None
        assert fs.read_part(missing, 0, 10) == b""
    path.touch()
    assert (fs.file_size(path), fs.read_bytes(path, 10), fs.read_part(path, 0, 10)) == (0, b"", b"")


def test_a_part_ends_with_the_file_and_no_more_is_read_than_was_asked(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert fs.read_part(path, 3, 4) == b"3456"
    assert fs.read_part(path, 8, 100) == b"89"
    assert fs.read_part(path, 10, 100) == b""
    assert fs.read_bytes(path, 4) == b"0123"


def test_a_byte_that_is_not_zero_is_found_behind_holes_and_written_zeros(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(bytes(300_000))
        file.truncate(5 << 20)
        file.seek(4 << 20)
        file.write(b"x")
    written = 4 << 20
    assert fs.has_bytes_from(path, 0)
    assert fs.has_bytes_from(path, written)
    assert not fs.has_bytes_from(path, written + 1)
    assert not fs.has_bytes_from(path, 10 << 20)
    content = fs.MappedFile(path)
    assert fs.last_written(path, content.view, 0) == written
    assert fs.last_written(path, content.view, written + 1) is None
    content.close()


def test_a_stamp_holds_until_a_name_in_the_directory_changes(tmp_path, monkeypatch):
    (tmp_path / "a").touch()
    assert fs.directory_stamp(tmp_path / "nowhere") is None
    changed_ns = tmp_path.stat().st_mtime_ns
    # What was changed just now may change again without leaving another time.
    change_for(monkeypatch, fs, "time", time_ns=lambda: changed_ns)
    assert fs.directory_stamp(tmp_path) is None
    change_for(monkeypatch, fs, "time", time_ns=lambda: changed_ns + 10**11)
    stamp = fs.directory_stamp(tmp_path)
    assert fs.is_as_stamped(str(tmp_path), stamp)
    (tmp_path / "b").touch()
    os.utime(tmp_path, ns=(changed_ns, changed_ns + 1))
    assert not fs.is_as_stamped(str(tmp_path), stamp)
    assert not fs.is_as_stamped(str(tmp_path / "nowhere"), stamp)


def test_a_watch_notices_files_that_come_change_and_go(tmp_path, monkeypatch):
    change_for(monkeypatch, fs, "time", time_ns=lambda: 1 << 62)
    there, missing = tmp_path / "there", tmp_path / "no" / "file"
    there.write_bytes(b"1")
    watch = fs.FileWatch([there, missing])

    def changes_once():
        return (watch.has_changed(), watch.has_changed()) == (True, False)

    assert changes_once()
    there.write_bytes(b"12")
    assert changes_once()
    missing.parent.mkdir()
    assert changes_once()
    missing.write_bytes(b"")
    assert changes_once()
    missing.unlink()
    assert changes_once()
    there.rename(tmp_path / "other")
    assert changes_once()
    missing.parent.rmdir()
    assert changes_once()


def test_a_watch_believes_no_time_that_a_change_now_could_have_too(tmp_path):
    watch = fs.FileWatch([tmp_path / "file"])
    (tmp_path / "file").write_bytes(b"1")
    assert watch.has_changed()
    assert watch.has_changed()


def test_one_file_is_the_same_by_whatever_path_and_a_missing_one_is_no_other(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.touch()
    link.symlink_to(path)
    assert fs.is_same(path, link)
    assert not fs.is_same(path, tmp_path)
    assert not fs.is_same(tmp_path / "nowhere", path)


def test_no_more_files_are_kept_mapped_than_allowed_and_those_in_use_stay_valid(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("rocketlens.store.fs.MAX_MAPPED_FILES", 4)
    paths = [tmp_path / str(n) for n in range(12)]
    for n, path in enumerate(paths):
        path.write_bytes(bytes([n]) * 5000)
    files = fs.MappedFiles()
    held = [files.get(path, 5000) for path in paths]
    assert len(files._files) == 4
    assert [one.view[0] for one in held] == list(range(12))
    assert files.get(paths[-1], 5000) is held[-1]
    assert files.get(paths[-1], 4000) is not held[-1]
    files.close()
