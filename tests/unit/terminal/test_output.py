"""Lines on stderr, and colour.

stdout and stderr in any state; whole processes are tested with the program.
"""

import io
import os
import pty
import sys
import termios

import pytest

from rocketlens.terminal.output import (
    BOLD,
    GREEN,
    coloured,
    discard_stdout,
    note,
    prepare_streams,
    say,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_note_is_one_escaped_line_on_stderr(capsys):
    note("a\nb\x1b[2J")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "rocketlens: a\\nb\\x1b[2J\n"


def test_colour_is_for_terminals_whose_user_wants_it(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert coloured("x", BOLD, Terminal()) == "\x1b[1mx\x1b[0m"
    assert coloured("x", BOLD, io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("x", BOLD, Terminal()) == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert coloured("x", BOLD, Terminal()) == "x"


LINE = "2 messages, COMPLETE: searched 1 index file and the rest of the log, up to 2026-11-21"


@pytest.mark.parametrize("columns", [30, 40, 84, 85, 120])
def test_a_line_is_wrapped_at_words_on_a_terminal(monkeypatch, columns):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    say(LINE)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert (len(lines) == 1) == (columns >= len(LINE))
    assert all(line.startswith("  ") and not line.startswith("   ") for line in lines[1:])
    assert " ".join(line.strip() for line in lines) == LINE


def test_a_word_that_is_wider_than_the_terminal_is_not_cut(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    say(f"failed: {'x' * 50} closed")
    assert terminal.getvalue() == f"failed:\n  {'x' * 50}\n  closed\n"


def test_colours_take_no_room_of_a_line(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    say(f"found, {coloured('COMPLETE', GREEN, terminal)}: all")
    assert len(terminal.getvalue().splitlines()) == 1


def test_a_line_is_not_wrapped_in_a_pipe(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    say(LINE)
    assert capsys.readouterr().err == f"{LINE}\n"


def test_the_width_is_that_of_stderr_where_stdout_is_a_pipe(monkeypatch):
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 40))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.__stdout__", None)
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        say(LINE)
        lines = os.read(leader, 1000).decode().splitlines()
    os.close(leader)
    assert len(lines) > 1
    assert max(map(len, lines)) <= 40


def test_a_character_that_an_encoding_lacks_is_escaped(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    prepare_streams()
    stream.write("支")
    stream.flush()
    assert stream.buffer.getvalue() == b"\\u652f"


def test_closed_streams_lead_nowhere(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    prepare_streams()
    with sys.stdout, sys.stderr:
        sys.stdout.write("x")
        sys.stderr.write("x")


def test_a_stream_without_a_descriptor_can_be_discarded(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    discard_stdout()
