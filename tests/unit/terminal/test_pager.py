"""Text that goes through a pager, and text that does not."""

import io
import sys

import pytest

from rocketlens.terminal.progress import paged


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def screen(monkeypatch):
    """Make a terminal of stdout and stdin; in the test, for pytest sets both before it."""

    def make():
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setattr("sys.stdin", Terminal())
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
