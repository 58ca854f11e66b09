"""The line of a search that takes a while, and Ctrl-C in it."""

import io
import os
import signal
import sys
import threading

import pytest

from rocketlens.terminal.progress import SearchProgress, line_of, paged
from tests.support.clocks import Seconds


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nothing_is_shown_in_the_first_second_and_the_line_goes_when_results_come():
    stream, clock = Terminal(), Seconds(100.0)
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
    stream, clock = Terminal(), Seconds(100.0)
    progress = SearchProgress(stream, clock)
    clock.now_s += 2
    progress.report(1, 1 << 30, 1_000_000)
    long = len(stream.getvalue())
    clock.now_s += 1
    progress.report(1, 2, 1)
    assert len(stream.getvalue()) == 2 * long


def test_nothing_is_shown_where_stderr_is_no_terminal():
    stream, clock = io.StringIO(), Seconds(100.0)
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
    stream, clock = Terminal(), Seconds(100.0)
    progress = SearchProgress(stream, clock)
    clock.now_s += 2
    progress.report(3 << 20, None, 4_000)
    assert stream.getvalue() == "\rread 4,000 messages, 3.0M, 1.5M/s; Ctrl-C stops"


def test_the_line_fits_eighty_columns():
    assert len(line_of(999 << 30, 999 << 30, 10**9, 1000.0)) <= 80


class PagedTerminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def screen(monkeypatch):
    """Make a terminal of stdout and stdin; in the test, for pytest sets both before it."""

    def make():
        terminal = PagedTerminal()
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setattr("sys.stdin", PagedTerminal())
        return terminal

    return make


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A pager that writes what it gets to a file."""
    script = tmp_path / "pager"
    script.write_text(f'#!/bin/sh\nexec cat > "{tmp_path}/$1"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PAGER", f"{script} 'its page'")
    return tmp_path / "its page"


def write(text, *, is_allowed=True):
    with paged(is_allowed=is_allowed):
        is_terminal = sys.stdout.isatty()
        sys.stdout.write(text)
        sys.stdout.flush()
    return is_terminal


def test_text_goes_to_the_pager_which_looks_like_a_terminal(page, screen):
    terminal = screen()
    assert write("订单 1\norder 2\n")
    assert page.read_text(encoding="utf-8") == "订单 1\norder 2\n"
    assert terminal.getvalue() == ""


def test_without_text_no_pager_is_started(page, screen):
    terminal = screen()
    with paged(is_allowed=True):
        sys.stdout.flush()
    assert not page.exists()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("pager", ["", "cat", "/there/is/none"])
def test_without_a_pager_text_is_printed(monkeypatch, screen, pager):
    monkeypatch.setenv("PAGER", pager)
    terminal = screen()
    write("order 1\n")
    assert terminal.getvalue() == "order 1\n"


def test_no_pager_is_used_where_it_is_not_allowed(page, screen):
    terminal = screen()
    write("order 1\n", is_allowed=False)
    assert terminal.getvalue() == "order 1\n"
    assert not page.exists()


def test_no_pager_is_used_in_a_pipe(page, capsys):
    assert not write("order 1\n")
    assert capsys.readouterr().out == "order 1\n"
    assert not page.exists()


def test_a_pager_that_the_user_ended_is_a_reader_that_has_had_enough(monkeypatch, screen):
    monkeypatch.setenv("PAGER", "true")
    screen()
    # A pipe takes 64 KiB before anyone reads.
    with pytest.raises(BrokenPipeError):
        write("x" * (1 << 22))
