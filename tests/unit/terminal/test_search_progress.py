"""The line of a search that takes a while, and Ctrl-C in it."""

import io
import os
import signal
import threading

import pytest

from rocketlens.terminal.progress import SearchProgress, line_of


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def test_nothing_is_shown_in_the_first_second_and_the_line_goes_when_results_come():
    stream, clock = Terminal(), Clock()
    progress = SearchProgress(stream, clock)
    clock.now_s += 0.9
    assert progress.report(10, 100, 1)
    assert stream.getvalue() == ""
    clock.now_s += 0.2
    progress.report(50 << 20, 200 << 20, 1_234)
    line = stream.getvalue()
    assert line.startswith("\rread 1,234 messages, 50.0M of 200.0M, 25%, 45.5M/s")
    progress.report(51 << 20, 200 << 20, 1_300)
    assert stream.getvalue() == line
    progress.close()
    assert stream.getvalue() == line + "\r" + " " * (len(line) - 1) + "\r"
    clock.now_s += 5
    progress.report(60 << 20, 200 << 20, 2_000)
    assert stream.getvalue().count("read ") == 1


def test_a_shorter_line_leaves_nothing_of_a_longer_one():
    stream, clock = Terminal(), Clock()
    progress = SearchProgress(stream, clock)
    clock.now_s += 2
    progress.report(1, 1 << 30, 1_000_000)
    long = len(stream.getvalue())
    clock.now_s += 1
    progress.report(1, 2, 1)
    assert len(stream.getvalue()) == 2 * long


def test_nothing_is_shown_where_stderr_is_no_terminal():
    stream, clock = io.StringIO(), Clock()
    progress = SearchProgress(stream, clock)
    clock.now_s += 10
    assert progress.report(1, 2, 1)
    progress.close()
    assert stream.getvalue() == ""


def test_the_first_interrupt_asks_the_search_to_stop_and_the_second_ends_it():
    before = signal.getsignal(signal.SIGINT)
    with SearchProgress(io.StringIO()) as progress:
        assert progress.report(1, 2, 1)
        os.kill(os.getpid(), signal.SIGINT)
        assert progress.is_interrupted
        assert not progress.report(1, 2, 1)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_in_other_threads_interrupts_are_left_alone():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def search():
        with SearchProgress(io.StringIO()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize(
    ("read", "total", "share"), [(0, 0, "100%"), (5, 10, "50%"), (9, 3, "100%")]
)
def test_the_share_is_never_more_than_all(read, total, share):
    assert f", {share}, " in line_of(read, total, 1, 1.0)


def test_a_line_without_a_total_has_no_share():
    stream, clock = Terminal(), Clock()
    progress = SearchProgress(stream, clock)
    clock.now_s += 2
    progress.report(3 << 20, None, 4_000)
    assert stream.getvalue() == "\rread 4,000 messages, 3.0M, 1.5M/s; Ctrl-C stops"


def test_the_line_fits_eighty_columns():
    assert len(line_of(999 << 30, 999 << 30, 10**9, 1000.0)) <= 80
