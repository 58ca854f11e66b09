"""Directories that are replaced: the old one or the new one is there, however the job ends."""

from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import rocketlens
from rocketlens.bulk.workspace import Workspace, check_output
from rocketlens.cli import doctor
from rocketlens.errors import BadInput, StoreLocked
from rocketlens.store import disk, fs
from rocketlens.store.lock import StoreLock
from tests.unit.store.written_stores import content_of, open_small, send_many


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
    warned = [check.name for check in doctor.store_checks(store) if "is missing" in check.detail]
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


def test_another_store_is_no_output_unless_that_is_forced(store, tmp_path):
    other = tmp_path / "other"
    with open_small(other) as opened:
        send_many(opened, 10)
    before = content_of(other)
    with pytest.raises(BadInput, match=r"is another store, with commitlog.*--force"):
        check_output(store, other)
    assert content_of(other) == before
    check_output(store, other, force=True)
    check_output(store, None)
    check_output(store, tmp_path / "new")


def test_the_store_itself_is_known_however_it_is_named(store, tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to(store)
    monkeypatch.chdir(tmp_path)
    for named in (store, Path("store"), link, store / "index" / "..", Path("./link/../store")):
        check_output(store, named)
        assert fs.is_same(store, named)
        check_output(named, store)


@pytest.mark.parametrize("inside", ["commitlog/x", "index", "consumequeue/a/b"])
def test_nothing_is_written_where_a_broker_takes_every_file_for_its_own(store, inside):
    with pytest.raises(BadInput, match="takes every file for its own"):
        check_output(store, store / inside, force=True)


def test_an_output_that_cannot_be_written_to_is_refused_and_nothing_is_left(store, tmp_path):
    with pytest.raises(BadInput, match="/proc/x cannot be written to"):
        check_output(store, Path("/proc/x"))
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(BadInput, match="cannot be written to"):
        check_output(store, file / "below")
    assert file.read_text() == "x"


def test_an_output_that_a_broker_has_is_refused(store, tmp_path):
    with StoreLock(store), pytest.raises(StoreLocked):
        check_output(store, None)
