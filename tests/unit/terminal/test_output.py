"""Lines on stderr, and colour."""

import io

from rocketlens.terminal.output import BOLD, coloured, note


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
