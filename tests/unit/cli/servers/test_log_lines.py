"""What others say is one line of the servers' log, and nothing that a terminal obeys."""

import io
import json
import logging
import sys
import threading
from argparse import Namespace

import pytest

from rocketlens import limits
from rocketlens.cli.servers.log_lines import (
    EscapingFormatter,
    JsonFormatter,
    LineBudget,
    LineWriter,
    log_to_stderr,
)
from rocketlens.errors import BadInput

FORGED = "no\n2026-01-01 00:00:00,000 ERROR rocketlens.broker: forged"


def record_of(words, *values, name="rocketlens.x", level=logging.WARNING, error=None):
    return logging.LogRecord(name, level, "f", 1, words, values, error)


@pytest.mark.parametrize("form", [EscapingFormatter, JsonFormatter])
@pytest.mark.parametrize(
    "said", [FORGED, "a\rb", "\x1b[2J", "\x07", "\u061c", "\u200b", "\u2028", "\x9b", "\ud800"]
)
@pytest.mark.parametrize("words", ["name server %s cannot be told", "%s"])
def test_a_message_is_one_line_without_anything_that_is_obeyed_or_hides(said, words, form):
    line = form().format(record_of(words, said))
    assert line.isprintable()
    assert line.encode()
    if form is JsonFormatter:
        expected = words % said.encode("utf-8", "backslashreplace").decode()
        assert json.loads(line)["message"] in (words % said, expected)
    else:
        assert line.endswith(words % said.encode("unicode_escape").decode())


def test_a_traceback_keeps_its_lines_and_nothing_else():
    try:
        int("\x1b[31mred\x9b")
    except ValueError:
        record = record_of("it %s", "failed", level=logging.ERROR, error=sys.exc_info())
    lines = EscapingFormatter().format(record).split("\n")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1].startswith("ValueError: invalid literal")
    assert all(line.isprintable() for line in lines)
    in_json = JsonFormatter().format(record)
    assert in_json.isprintable()
    assert "ValueError: invalid literal" in json.loads(in_json)["exception"]


@pytest.mark.parametrize(
    ("name", "area"),
    [
        ("rocketlens.store.write.cleaner", "store"),
        ("rocketlens.broker", "broker"),
        ("asyncio", "asyncio"),
    ],
)
def test_a_line_has_the_time_in_utc_its_level_and_where_it_is_from(name, area):
    record = record_of("said %d", 1, name=name, level=logging.INFO)
    record.created = 1_795_295_636.674
    assert (
        EscapingFormatter().format(record) == f"2026-11-21T21:13:56.674+00:00 INFO  {area}: said 1"
    )
    assert json.loads(JsonFormatter().format(record)) == {
        "time": "2026-11-21T21:13:56.674+00:00",
        "level": "info",
        "area": area,
        "message": "said 1",
    }


def test_lines_that_differ_in_their_values_only_are_bounded_and_the_others_counted(monkeypatch):
    monkeypatch.setattr(limits, "MAX_LIKE_LOG_LINES", 2)
    now = [0.0]
    budget = LineBudget(lambda: now[0])
    shown = [budget.filter(record_of("client %d 100 %%", number)) for number in range(5)]
    assert shown == [True, True, False, False, False]
    assert budget.filter(record_of("another"))
    assert all(budget.filter(record_of("client", level=logging.ERROR)) for _ in range(5))
    now[0] = 10.0
    record = record_of("client %d 100 %%", 5)
    assert budget.filter(record)
    assert record.getMessage() == "client 5 100 % (3 like it before it are not shown)"
    assert budget.filter(record := record_of("client %d 100 %%", 6))
    assert record.getMessage() == "client 6 100 %"


class Unread(io.StringIO):
    """A stream like a full pipe: it takes nothing before it is read."""

    def __init__(self):
        super().__init__()
        self.is_waiting = threading.Event()
        self.is_read = threading.Event()

    def write(self, text):
        self.is_waiting.set()
        self.is_read.wait()
        return super().write(text)


def test_a_log_that_is_not_read_holds_up_no_server_and_lost_lines_are_counted(monkeypatch):
    monkeypatch.setattr(limits, "MAX_WAITING_LOG_LINES", 3)
    stream = Unread()
    writer = LineWriter(stream)
    writer.setFormatter(logging.Formatter("%(message)s"))
    writer.emit(record_of("first"))
    stream.is_waiting.wait()
    for number in range(5):
        writer.emit(record_of("line %d", number))
    stream.is_read.set()
    writer.flush()
    writer.emit(record_of("last"))
    writer.flush()
    lost = " (2 lines before it are lost: they were not read in time)"
    assert stream.getvalue().splitlines() == ["first", "line 0", "line 1", "line 2", f"last{lost}"]


def test_a_closed_stream_ends_nothing():
    stream = io.StringIO()
    stream.close()
    writer = LineWriter(stream)
    writer.emit(record_of("unheard"))
    writer.flush()


def test_a_word_in_the_environment_that_is_neither_level_nor_format_is_refused(monkeypatch):
    monkeypatch.setenv("ROCKETLENS_LOG", "debug, loud")
    with pytest.raises(BadInput, match="ROCKETLENS_LOG: 'loud' is neither a level"):
        log_to_stderr(Namespace(log_level=None, log_format=None))
