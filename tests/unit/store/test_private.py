"""What a store makes is for its owner alone; what is there already stays as it is."""

import os
import stat

import pytest

from tests.unit.store.written_stores import open_small, send_many


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
