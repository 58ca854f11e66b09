"""A job writes where it may, and nowhere else."""

from pathlib import Path

import pytest

from rocketlens.bulk.workspace import Workspace, check_output
from rocketlens.errors import BadInput, StoreLocked
from rocketlens.store import fs
from rocketlens.store.lock import StoreLock
from tests.support.written_stores import content_of, open_small, send_many


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    with open_small(path) as opened:
        send_many(opened, 100)
    return path


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


def test_what_is_replaced_is_kept_until_the_next_time(store):
    def replace(content):
        with Workspace(store) as workspace:
            (workspace.new("index") / "file").write_text(content)
            workspace.sync("index")
            return workspace.swap_in("index", keep=True)

    first = replace("1")
    assert first == store / "rocketlens/replaced/index"
    assert not (first / "file").exists()
    assert replace("2") == first
    assert [path.read_text() for path in first.iterdir()] == ["1"]
    assert (store / "index/file").read_text() == "2"


def test_nothing_is_kept_where_nothing_was(store):
    with Workspace(store) as workspace:
        workspace.new("other")
        workspace.sync("other")
        assert workspace.swap_in("other", keep=True) is None
