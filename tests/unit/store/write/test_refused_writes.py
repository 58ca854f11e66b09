"""A full disk is a few lines of the log, however many writes it refuses."""

import errno
import logging

import pytest

from rocketlens import limits
from rocketlens.errors import StoreFull
from rocketlens.store.write.refused_writes import RefusedWrites
from tests.support.failing_disks import FailingDisk
from tests.support.written_stores import Clock, open_small, send

INTERVAL_MS = int(limits.MIN_WARNING_INTERVAL_S * 1000)
FULL = OSError(errno.ENOSPC, "No space left on device", "/s")
BEGINS = f"nothing can be stored now: {FULL}"


@pytest.fixture(autouse=True)
def _levels(caplog):
    caplog.set_level(logging.INFO)


class ToldDisk(FailingDisk):
    """A disk that is full when it is told to be."""

    is_full = False

    def count_reserve(self, path):
        """Fail while it is full."""
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_burst_of_refused_sends_is_one_line_and_one_when_it_is_over(tmp_path, caplog):
    disk = ToldDisk()
    with open_small(tmp_path, disk=disk) as store:
        send(store, 0)
        caplog.clear()
        disk.is_full = True
        for number in range(6):
            with pytest.raises(StoreFull):
                send(store, number, queue_id=1)
        assert len(caplog.messages) == 1
        assert caplog.messages[0].startswith("nothing can be stored now: [Errno 28] ")
        disk.is_full = False
        send(store, 7, queue_id=1)
        send(store, 8, queue_id=2)
        assert caplog.messages[1:] == ["messages are stored again; writes refused meanwhile: 6"]


def test_while_it_lasts_there_is_a_line_an_interval_with_how_many_were_refused(caplog):
    clock = Clock()
    refused = RefusedWrites(clock)
    for _ in range(2 * 10 + 1):
        refused.refuse(FULL)
        clock.now_ms += INTERVAL_MS // 10
    assert caplog.messages == [
        BEGINS,
        f"{BEGINS}; writes refused so far: 11",
        f"{BEGINS}; writes refused so far: 21",
    ]


def test_what_begins_again_and_again_is_counted_and_has_no_more_lines(caplog):
    clock = Clock()
    refused = RefusedWrites(clock)
    for _ in range(5):
        refused.refuse(FULL)
        refused.accept()
    over = "messages are stored again; writes refused meanwhile: "
    assert caplog.messages == [BEGINS, f"{over}1"]
    clock.now_ms += INTERVAL_MS
    refused.refuse(FULL)
    refused.accept()
    assert caplog.messages[2:] == [f"{BEGINS}; writes refused so far: 5", f"{over}5"]


def test_a_clock_that_is_set_back_silences_nothing(caplog):
    clock = Clock()
    refused = RefusedWrites(clock)
    refused.refuse(FULL)
    clock.now_ms -= 1
    refused.refuse(FULL)
    assert len(caplog.messages) == 2


def test_writes_that_are_accepted_are_not_logged(caplog):
    RefusedWrites(Clock()).accept()
    assert caplog.messages == []
