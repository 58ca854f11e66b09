"""Which timers are delivered, as the file says; what happens with them is in test_timers.py."""

import pytest

from rocketlens.broker.tables.timer_progress import TimerProgress
from rocketlens.errors import StoreFailed
from rocketlens.formats.timer_checkpoint import TimerCheckpoint
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout

NOW_MS = 1_700_000_000_000


def open_progress(root, delivered=lambda: None, log_checksums=dict):
    return TimerProgress(StoreLayout(root), Disk(), lambda: NOW_MS, delivered, log_checksums)


def save(progress, *, oldest_waiting=None, oldest_late=None):
    """Write the progress; nothing waits but what is said."""
    waiting = progress.queue_offset if oldest_waiting is None else oldest_waiting
    progress.oldest = lambda: (waiting, oldest_late)
    progress.snapshot()()


def written(root, content):
    path = StoreLayout(root).config / "timercheck"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_what_was_written_is_read_again(tmp_path):
    progress = open_progress(tmp_path, log_checksums=lambda: {0: 1, 1024: 77})
    progress.next_queue_offset = 9
    progress.advance(NOW_MS, 5)
    save(progress, oldest_waiting=3)
    again = open_progress(tmp_path)
    assert (again.read_time_ms, again.second_queue_offset) == (NOW_MS, 5)
    assert (again.next_queue_offset, again.queue_offset) == (9, 3)
    assert again.log == {1024: 77}
    assert again.is_delivered(8, NOW_MS - 1000)
    assert again.is_delivered(4, NOW_MS)
    assert not again.is_delivered(5, NOW_MS)
    assert not again.is_delivered(0, NOW_MS + 1000)


def test_it_never_goes_back_but_after_a_clock_did(tmp_path):
    progress = open_progress(tmp_path)
    progress.advance(NOW_MS, 5)
    progress.advance(NOW_MS - 1000, 9)
    progress.advance(NOW_MS, 0)
    assert (progress.read_time_ms, progress.second_queue_offset) == (NOW_MS, 5)
    progress.set_back(NOW_MS - 1000)
    assert progress.read_time_ms == NOW_MS
    progress.set_back(NOW_MS - 2000)
    assert (progress.read_time_ms, progress.second_queue_offset) == (NOW_MS - 2000, 0)


def test_what_is_late_is_read_again_after_a_restart(tmp_path):
    progress = open_progress(tmp_path)
    progress.next_queue_offset = 9
    save(progress, oldest_waiting=2, oldest_late=4)
    again = open_progress(tmp_path)
    assert (again.next_queue_offset, again.queue_offset) == (4, 2)


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 4096, b"\x7f" * 4096])
def test_damage_makes_it_begin_anew_and_it_can_be_written(tmp_path, content):
    written(tmp_path, content)
    progress = open_progress(tmp_path)
    assert progress.read_time_ms <= NOW_MS
    assert progress.queue_offset == 0
    progress.fit_to_queue(2, 5)
    assert 2 <= progress.queue_offset <= progress.next_queue_offset <= 5
    save(progress)
    assert open_progress(tmp_path).queue_offset == progress.queue_offset


def test_of_a_file_of_rocketmq_a_time_ahead_of_the_clock_is_not_believed(tmp_path):
    theirs = TimerCheckpoint(NOW_MS + 60_000, 0, 7, 7)
    written(tmp_path, theirs.encode()[:56].ljust(4096, b"\0"))
    progress = open_progress(tmp_path)
    assert (progress.read_time_ms, progress.next_queue_offset) == (NOW_MS, 7)
    assert progress.queue_offset == 0


def test_nothing_is_written_before_what_was_delivered_is_durable(tmp_path):
    def fail():
        raise StoreFailed("no disk")

    progress = open_progress(tmp_path, fail)
    with pytest.raises(StoreFailed):
        save(progress)
    assert not progress.path.exists()


def test_what_rocketmq_derived_is_removed_only_once_the_file_is_there(tmp_path):
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerwheel").write_bytes(b"wheel")

    class Full(Disk):
        def write_durably(self, path, content):
            raise OSError(28, "full", f"{path}: {len(content)} bytes")

    progress = TimerProgress(StoreLayout(tmp_path), Full(), lambda: NOW_MS, lambda: None)
    with pytest.raises(OSError, match="full"):
        save(progress)
    assert (tmp_path / "timerlog").exists()
    assert (tmp_path / "timerwheel").exists()
    save(open_progress(tmp_path))
    assert not (tmp_path / "timerlog").exists()
    assert not (tmp_path / "timerwheel").exists()
