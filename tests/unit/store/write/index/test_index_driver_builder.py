"""The broker's own index builder: nothing twice, nothing missing, whatever happened before."""

import errno
import shutil
from dataclasses import replace

import pytest

import rocketlens
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from tests.support.written_stores import (
    QUIET,
    builder_of,
    entries_of,
    expected_entries,
    open_small,
    send,
    send_many,
)


@pytest.mark.parametrize("step_bytes", [1, 300, 5000, 10**9])
def test_files_are_the_same_however_the_log_is_cut(log_only, step_bytes):
    path, end = log_only
    builder = builder_of(path, end)
    while not builder.build(end, at_most_bytes=step_bytes):
        pass
    builder.sync()
    builder.close()
    assert entries_of(path) == expected_entries(path)
    assert builder.safe_offset == end


@pytest.mark.parametrize("synced_every", [1, 3, 7])
def test_a_builder_killed_anywhere_leaves_neither_gap_nor_duplicate(log_only, synced_every):
    path, end = log_only
    whole = None
    for killed_after in range(1, 400):
        builder = builder_of(path, end)
        step = 0
        while step < killed_after and not builder.build(end, at_most_bytes=700):
            step += 1
            if step % synced_every == 0:
                builder.sync()
        if step < killed_after:
            builder.sync()
            builder.close()
            whole = entries_of(path)
            break
        builder.close_abruptly()
        assert builder.safe_offset <= builder.resume_point.physical_offset
    assert whole == expected_entries(path)


DAMAGE = {
    "the directory deleted": lambda files: shutil.rmtree(files[0].parent),
    "the first file deleted": lambda files: files[0].unlink(),
    "the last file deleted": lambda files: files[-1].unlink(),
    "a file emptied": lambda files: files[2].write_bytes(b""),
    "a header zeroed": lambda files: write_at(files[1], 0, bytes(40)),
    "the last header zeroed": lambda files: write_at(files[-1], 0, bytes(40)),
    "a file of another geometry": lambda files: files[3].write_bytes(bytes(5000)),
    "a stray file": lambda files: (files[0].parent / "20990101000000000").write_bytes(b"x" * 999),
    "our state deleted": lambda files: state_of(files).unlink(),
    "our state damaged": lambda files: state_of(files).write_text('{"safeOffset": "x"}'),
    "our state ahead": lambda files: state_of(files).write_text(
        state_of(files).read_text().replace('"safeOffset":', '"safeOffset":9')
    ),
}


def state_of(files):
    return files[0].parents[1] / "rocketlens/index.json"


def write_at(path, position, content):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_an_index_in_any_state_is_made_whole(tmp_path, what, end):
    store = open_small(tmp_path)
    send_many(store, 200)
    store.flush_log()
    while not store.build_index():
        pass
    store.close() if end == "closed" else store.close_abruptly()
    DAMAGE[what](sorted((tmp_path / "index").iterdir()))
    with open_small(tmp_path) as store:
        send(store, 200)
    assert entries_of(tmp_path) == expected_entries(tmp_path)
    with rocketlens.open_store(tmp_path) as reader:
        assert len(reader.query_message("Orders", "all", max_num=None).messages) == 201


def test_a_disk_that_is_full_costs_the_builder_time_only(log_only):
    path, end = log_only

    class FullNowAndThen(Disk):
        tries = 0

        def make_file(self, path, size, scratch):
            self.tries += 1
            if self.tries % 2:
                raise OSError(28, "No space left on device", str(path))
            super().make_file(path, size, scratch)

    builder = builder_of(path, end)
    builder._disk = FullNowAndThen()
    failures = 0
    while True:
        try:
            if builder.build(end):
                break
        except OSError:
            failures += 1
    builder.sync()
    builder.close()
    assert failures > 5
    assert entries_of(path) == expected_entries(path)


@pytest.fixture
def failing_open(monkeypatch):
    """Have one mapping of a log's segment fail: ``failing_open.update(at=n, number=errno)``."""
    failing = {"at": -1, "number": errno.EMFILE, "opens": 0}
    whole = fs.MappedFile.__init__

    def refuse(self, path, *arguments, **named):
        if path.parent.name == "commitlog":
            failing["opens"] += 1
            # Twice, for what is kept open is given up, and the first try made again.
            if failing["at"] <= failing["opens"] <= failing["at"] + 1:
                raise OSError(failing["number"], "refused", str(path))
        whole(self, path, *arguments, **named)

    monkeypatch.setattr(fs.MappedFile, "__init__", refuse)
    return failing


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EIO])
def test_a_segment_that_could_not_be_opened_once_leaves_no_hole_in_the_index(
    log_only, failing_open, number
):
    path, end = log_only
    expected = expected_entries(path)
    failures = 0
    for at in range(1, 100):
        shutil.rmtree(path / "index", ignore_errors=True)
        shutil.rmtree(path / "rocketlens", ignore_errors=True)
        builder = builder_of(path, end)
        failing_open.update(at=at, number=number, opens=0)
        is_done = False
        while not is_done:
            try:
                is_done = builder.build(end)
                builder.sync()
            except OSError:
                failures += builder.safe_offset < end
                is_done = False
        builder.close()
        assert entries_of(path) == expected
        if failing_open["opens"] < at:
            break
    assert failures > 1


def test_a_store_that_could_not_open_a_segment_once_goes_on_indexing_it(tmp_path, failing_open):
    store = open_small(tmp_path / "store", options=replace(QUIET, build_index=True))
    send_many(store, 300)
    store.flush_log()
    failing_open.update(at=2, opens=0)
    built = [store.build_index() for _ in range(4)]
    assert failing_open["opens"] >= 2
    assert built[0] is False
    assert built[-1] is True
    store.close()
    assert entries_of(tmp_path / "store") == expected_entries(tmp_path / "store")
