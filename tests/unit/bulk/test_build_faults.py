"""An index build whose disk fails ends with a clear error, and the old files stay whole."""

import errno
import pickle
import shutil
from types import SimpleNamespace

import pytest

from rocketlens.errors import StoreError
from rocketlens.pipeline import dispatch, jobs
from rocketlens.store.disk import Disk
from tests.support.failing_disks import QuickDisk
from tests.support.written_stores import content_of, open_small, send_many

OPERATIONS = (
    "new_file",
    "make_reserved_file",
    "make_directory",
    "open_file",
    "sync_file",
    "sync_directory",
    "exchange_directories",
)
"""What a build asks of the disk, deleting its work directory excepted."""


class FullDisk(QuickDisk):
    """A disk on which one operation, counted from 0, fails for want of room."""

    def __init__(self, fails_at=None):
        self.fails_at = fails_at
        self.operations = []

    def count(self, name, path):
        self.operations.append(name)
        if len(self.operations) - 1 == self.fails_at:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


def counted(name):
    def operation(self, path, *arguments, **named):
        self.count(name, path)
        return getattr(super(FullDisk, self), name)(path, *arguments, **named)

    return operation


for name in OPERATIONS:
    setattr(FullDisk, name, counted(name))


def build(store, disk):
    """Build without Spark: each task is done here, in order."""
    context = SimpleNamespace(defaultParallelism=2)
    return dispatch.dispatch(
        context, store, slot_count=5, entry_count=40, tag_index=True, queues=True, disk=disk
    )


@pytest.fixture
def store(tmp_path, monkeypatch):
    def run_here(_spark, _phase, tasks, function, _progress=None):
        return [function(task) for task in tasks]

    monkeypatch.setattr(jobs, "run", run_here)
    path = tmp_path / "store"
    with open_small(path) as opened:
        send_many(opened, 40)
    (path / "index" / "20010101000000000").write_bytes(b"old")
    (path / "consumequeue" / "old").write_bytes(b"old")
    return path


def test_a_build_on_a_disk_that_fails_anywhere_says_so_and_leaves_whole_directories(
    store, tmp_path
):
    names = ("index", "consumequeue")
    old = {name: content_of(store, name) for name in names}
    copy, disk = shutil.copytree(store, tmp_path / "copy"), FullDisk()
    build(copy, disk)
    new = {name: content_of(copy, name) for name in names}
    assert set(disk.operations) == set(OPERATIONS)
    assert new["index"] != old["index"]
    for fails_at in range(len(disk.operations)):
        trial = shutil.copytree(store, tmp_path / f"trial{fails_at}")
        with pytest.raises(StoreError, match=r"the build failed: .*No space left on device"):
            build(trial, FullDisk(fails_at))
        for name in names:
            assert content_of(trial, name) in (old[name], new[name])
        assert [path.name for path in trial.iterdir() if path.name.startswith(".")] == []


def test_a_disk_goes_with_a_task_to_another_process():
    assert type(pickle.loads(pickle.dumps(Disk()))) is Disk
