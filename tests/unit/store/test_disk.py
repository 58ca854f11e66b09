"""Directories are replaced whole, and what is made is for its owner alone."""

import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import rocketlens
from rocketlens.bulk.workspace import Workspace
from rocketlens.cli import doctor
from rocketlens.store import disk
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
