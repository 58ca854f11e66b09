"""Lines on stderr, and colour.

stdout and stderr in any state; whole processes are tested with the program.
"""

import io
import os
import pty
import re
import sys
import termios

import pytest

from rocketlens.errors import BadInput
from rocketlens.terminal import output
from rocketlens.terminal.output import (
    BOLD,
    GREEN,
    ExitCode,
    coloured,
    discard_stdout,
    iso_text,
    moment_text,
    note,
    parse_time,
    prepare_streams,
    range_text,
    say,
    time_text,
    zone_text,
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


def test_a_time_is_not_broken(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    say("searched broker-a, up to 2026-11-21 02:40:44.893+00:00")
    assert terminal.getvalue() == "searched broker-a, up to\n  2026-11-21 02:40:44.893+00:00\n"


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


def test_the_table_names_every_code():
    rows = re.findall(r"^(\d+) +([A-Z]+) ", output.__doc__, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(each, each.name) for each in ExitCode]


NOW_MS = 1_790_000_000_123
HOUR_MS = 3_600_000


def parsed(text, *, is_end=False):
    return parse_time(text, "--since", is_end=is_end, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        *[("now", 0), ("90s", 90_000), ("30m", HOUR_MS // 2), ("30min", HOUR_MS // 2)],
        *[("2h", 2 * HOUR_MS), ("1.5h", 3 * HOUR_MS // 2), ("3d", 72 * HOUR_MS)],
        *[("1w", 7 * 24 * HOUR_MS), (" 2h ", 2 * HOUR_MS)],
    ],
)
def test_a_span_is_that_long_ago(text, ago_ms):
    assert parsed(text) == NOW_MS - ago_ms


def test_digits_are_epoch_milliseconds():
    assert parsed("1795228834563") == 1795228834563
    assert parsed("0") == 0


@pytest.mark.parametrize(
    "text", ["1795228834563", "1795228834563000", "1795228834563999999", "20261121024034563"]
)
def test_the_number_of_digits_says_in_which_form_a_time_is(text, zone):
    zone("UTC")
    assert parsed(text) == 1795228834563


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1795228834", "2026-11-21T02:40:34"),
        ("20261121024034", "2026-11-21T02:40:34"),
        ("202611210240", "2026-11-21T02:40"),
        ("20261121", "2026-11-21"),
    ],
)
def test_seconds_and_calendar_digits_are_read(text, same, zone):
    zone("UTC")
    assert parsed(text) == parsed(same)
    assert parsed(text, is_end=True) == parsed(same, is_end=True)


@pytest.mark.parametrize("text", ["5", "179522883", "17952288345", "20261321024034", "9" * 30])
def test_digits_that_are_no_time_of_any_form_are_refused(text):
    with pytest.raises(BadInput, match="is not a time"):
        parsed(text)


def test_a_range_is_told_as_it_was_read(zone):
    zone("UTC")
    begin, end = parsed("20261121024034"), parsed("2026-11-22", is_end=True)
    first, last = "2026-11-21 02:40:34.000+00:00", "2026-11-22 23:59:59.999+00:00"
    assert range_text(begin, end) == f"stored from {first} to {last}"
    assert range_text(begin, None) == f"stored at or after {first}"
    assert range_text(None, end) == f"stored at or before {last}"


def test_iso_8601_with_a_zone_is_that_moment(zone):
    zone("America/New_York")
    for text in ("2026-11-21T02:40:34.563Z", "2026-11-21 10:40:34.563+08:00"):
        assert parsed(text) == 1795228834563


def test_iso_8601_without_a_zone_is_local_time(zone):
    zone("Asia/Shanghai")
    assert parsed("2026-11-21T10:40:34.563") == 1795228834563
    zone("UTC")
    assert parsed("2026-11-21T02:40:34.563") == 1795228834563


def test_the_notation_of_rocketmqs_own_tool_is_read(zone):
    zone("UTC")
    assert parsed("2026-11-21#02:40:34:563") == 1795228834563


def test_a_day_alone_is_all_of_that_day(zone):
    zone("Europe/Berlin")
    begin, end = parsed("2026-10-25"), parsed("2026-10-25", is_end=True)
    assert end - begin + 1 == 25 * HOUR_MS  # clocks go back
    assert parsed("2026-10-26") == end + 1


@pytest.mark.parametrize(
    "text",
    [
        *["", "tomorrow", "2x", "--2h", "2h 30x", "2026-13-01", "2026-11-21T25:00", "1e9", "٣h"],
        *["9" * 30, "9" * 100_000, "\x1b[31m", "nan", "inf", "9999-12-31T23:59:59-23:59"],
    ],
)
def test_what_is_no_time_is_refused_in_one_line(text, zone):
    zone("UTC")
    with pytest.raises(BadInput) as refused:
        parsed(text, is_end=True)
    assert len(str(refused.value)) < 300


def test_a_span_longer_than_history_is_the_beginning():
    assert parsed("999999999999999d") == 0


def test_times_are_shown_to_the_millisecond_with_their_zone(zone):
    zone("Asia/Shanghai")
    assert time_text(1795228834063) == "2026-11-21 10:40:34.063"
    assert zone_text(1795228834063) == "+08:00"
    assert iso_text(1795228834063) == "2026-11-21T10:40:34.063+08:00"
    zone("America/St_Johns")
    assert zone_text(1795228834063) == "-03:30"


@pytest.mark.parametrize("epoch_ms", [2**63 - 1, -(2**63), -1])
def test_any_number_in_a_record_can_be_shown(epoch_ms):
    assert time_text(epoch_ms)
    assert zone_text(epoch_ms)
    assert iso_text(epoch_ms)


def test_a_time_in_a_line_is_as_in_tables_also_in_a_pipe(zone):
    zone("Asia/Shanghai")
    assert moment_text(1_795_228_837_142) == "2026-11-21 10:40:37.142+08:00"
    assert parse_time(moment_text(1_795_228_837_142), "--since", is_end=False) == 1_795_228_837_142
