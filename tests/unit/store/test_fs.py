"""Files are mapped, listed and read in parts; directories are replaced whole."""

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import rocketlens
from rocketlens.bulk.workspace import Workspace
from rocketlens.cli.doctor import doctor_store
from rocketlens.store import disk, fs
from tests.support.patched import change_for
from tests.support.written_stores import content_of, open_small, send_many


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


class Killed(BaseException):
    """The process ends here: nothing it would do later is done."""


@pytest.fixture
def killed_at(monkeypatch):
    """Refuse atomic exchanges, and end the process at its n-th rename."""
    really = Path.rename

    @contextmanager
    def kill(at):
        left = [at]

        def rename(path, target):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return really(path, target)

        with monkeypatch.context() as patched, suppress(Killed):
            patched.setattr(disk, "_exchange", lambda *_: False)
            patched.setattr(Path, "rename", rename)
            yield

    return kill


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    with open_small(path) as opened:
        send_many(opened, 100)
    return path


def replace_index(path, name="index"):
    """Replace a directory by one with another file in it, as a job does."""
    workspace = Workspace(path)
    (workspace.new(name) / "20990101000000000").write_bytes(b"new")
    workspace.swap_in(name)
    workspace.close()


@pytest.mark.parametrize("name", ["index", "consumequeue"])
@pytest.mark.parametrize(
    ("at", "opener"), [(at, opener) for at in (0, 1, 2) for opener in ("job", "broker")]
)
def test_a_job_killed_between_two_renames_is_put_right_by_the_next_that_opens_the_store(
    store, killed_at, name, at, opener
):
    before = content_of(store, "index", "consumequeue")
    workspace = Workspace(store)
    with killed_at(at):
        (workspace.new(name) / "20990101000000000").write_bytes(b"new")
        workspace.swap_in(name)
    workspace._lock.release()
    assert (store / name).exists() == (at != 1)
    assert disk.missing_directories(store) == ([name] if at == 1 else [])
    checks = doctor_store.store_checks(store)
    warned = [check.name for check in checks if "is missing: the job" in check.detail]
    assert warned == ([name] if at == 1 else [])
    with rocketlens.open_store(store) as reader:
        answer = reader.query_message("Orders", "all", max_num=None)
        assert (len(answer.messages), answer.complete) == (100, True)
    if opener == "job":
        with Workspace(store):
            pass
        after = content_of(store, "index", "consumequeue")
        if at < 2:
            assert after == before
        else:
            assert [key for key in after if key.startswith(name)] == [f"{name}/20990101000000000"]
    else:
        with open_small(store) as opened:
            send_many(opened, 1, first=100)
        with rocketlens.open_store(store) as reader:
            assert len(reader.query_message("Orders", "all", max_num=None).messages) == 101
    assert not [entry for entry in store.iterdir() if "old" in entry.name]


def test_an_exchange_that_fails_changes_nothing(store, monkeypatch):
    before = content_of(store)
    really, calls = Path.rename, []

    def rename(path, target):
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return really(path, target)

    monkeypatch.setattr(disk, "_exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="No space"):
        replace_index(store)
    assert content_of(store) == before


def test_what_an_earlier_version_left_aside_is_put_back(store):
    before = content_of(store)
    (store / "index").rename(store / "index.4711.old")
    with Workspace(store):
        assert content_of(store) == before
    (store / "index.4711.old").mkdir()
    with Workspace(store):
        assert (store / "index.4711.old").exists()


@pytest.fixture
def _no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_no_umask")
def test_everything_that_a_store_makes_is_for_its_owner_alone(tmp_path):
    root = tmp_path / "home" / "store"
    with open_small(root) as store:
        send_many(store, 300)
    made = [tmp_path / "home", *(tmp_path / "home").rglob("*")]
    assert len(made) > 20
    for path in made:
        assert mode_of(path) == (0o700 if path.is_dir() else 0o600), path


def test_directories_and_files_that_are_there_keep_their_permissions(tmp_path):
    with open_small(tmp_path / "store") as store:
        send_many(store, 10)
    opened = [tmp_path / "store", tmp_path / "store/commitlog", tmp_path / "store/rocketlens"]
    for path in opened:
        path.chmod(0o755)
    note = tmp_path / "store/rocketlens/state.json"
    note.chmod(0o640)
    with open_small(tmp_path / "store") as store:
        send_many(store, 10, first=10)
    assert [mode_of(path) for path in opened] == [0o755] * 3
    assert mode_of(note) == 0o640


def test_a_file_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    path, scratch = tmp_path / "log" / "file", tmp_path / "scratch"
    whole = disk.Disk()
    whole.make_file(path, 10_000, scratch)
    assert path.read_bytes() == bytes(10_000)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="No space") as error:
        whole.make_file(path.with_name("other"), 10_000, scratch)
    assert error.value.filename == str(path.with_name("other"))
    assert list(scratch.iterdir()) == []
    assert list(path.parent.iterdir()) == [path]


def test_a_small_file_is_replaced_in_one_step_and_stays_when_that_fails(tmp_path, monkeypatch):
    path = tmp_path / "made" / "note"
    disk.Disk().write_durably(path, b"first")
    path.chmod(0o640)
    disk.Disk().write_durably(path, b"second")
    assert (path.read_bytes(), mode_of(path)) == (b"second", 0o640)

    def refuse(*_):
        raise fs.SyncFailed(28, "No space left on device")

    monkeypatch.setattr(disk.Disk, "sync_file", refuse)
    with pytest.raises(OSError, match="No space"):
        disk.Disk().write_durably(path, b"third")
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_what_is_mapped_for_writing_is_seen_by_readers_and_cleared_to_its_end(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    file = disk.Disk().open_file(path)
    file.reserve(0, len(file))
    file.content[100:103] = b"abc"
    assert fs.read_part(path, 99, 5) == b"xabcx"
    file.clear(102)
    assert path.read_bytes() == b"x" * 100 + b"ab" + bytes(10_000 - 102)
    file.sync()
    file.close()


def test_what_is_written_in_parts_is_seen_by_readers_at_once_and_whole(tmp_path, monkeypatch):
    path, real = tmp_path / "file", os.pwrite
    disk.Disk().make_file(path, 30_000, tmp_path / "scratch")
    file = disk.Disk().open_file(path)
    file.reserve(0, len(file))
    # The system may write fewer bytes than it was passed.
    monkeypatch.setattr(os, "pwrite", lambda one, some, at: real(one, some[:4_097], at))
    written = bytes(range(256)) * 80
    file.write(5_000, memoryview(written))
    assert file.content[:] == path.read_bytes() == bytes(5_000) + written + bytes(4_520)
    file.close()


def test_a_directory_that_is_tried_leaves_none_of_those_above_it(tmp_path, monkeypatch):
    whole = Path.mkdir

    def refuse(self, *arguments, **named):
        if self.name == "c":
            raise OSError(28, "No space left on device", str(self))
        return whole(self, *arguments, **named)

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OSError, match="No space"):
        disk.Disk().check_writable(tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []
    disk.Disk().check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "is_error"), [(errno.EROFS, False), (errno.EINVAL, False), (errno.EIO, True)]
)
def test_only_a_disk_that_could_have_written_is_waited_for_before_reading(number, is_error):
    class Refusing(disk.Disk):
        def sync_file(self, path):
            raise OSError(number, "refused", str(path))

    if is_error:
        with pytest.raises(OSError, match="refused"):
            Refusing().sync_for_reading(Path("file"))
    else:
        Refusing().sync_for_reading(Path("file"))


def test_a_link_replaces_what_had_its_name_and_nothing_is_lost_when_nothing_is_there(tmp_path):
    path, target = tmp_path / "a", tmp_path / "new" / "b"
    path.write_bytes(b"a")
    target.parent.mkdir()
    target.write_bytes(b"b")
    disk.Disk().link_file(path, target)
    assert (path.read_bytes(), target.read_bytes()) == (b"a", b"a")
    disk.Disk().remove_file(target)
    disk.Disk().remove_file(target)
    disk.Disk().remove_tree(target.parent)
    disk.Disk().remove_tree(target.parent)
    assert list(tmp_path.iterdir()) == [path]
