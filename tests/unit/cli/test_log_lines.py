"""What others say is one line of the servers' log, and nothing that a terminal obeys."""

import logging
import sys

import pytest

from rocketlens.cli.log_lines import EscapingFormatter

FORGED = "no\n2026-01-01 00:00:00,000 ERROR rocketlens.broker: forged"


@pytest.mark.parametrize(
    "said", [FORGED, "a\rb", "\x1b[2J", "\x07", "\u061c", "\u200b", "\u2028", "\x9b"]
)
@pytest.mark.parametrize("words", ["name server %s cannot be told", "%s"])
def test_a_message_is_one_line_without_anything_that_is_obeyed_or_hides(said, words):
    record = logging.LogRecord("rocketlens.x", 30, "f", 1, words, (said,), None)
    line = EscapingFormatter().format(record)
    assert line.isprintable()
    assert line.endswith(words % said.encode("unicode_escape").decode())


def test_a_traceback_keeps_its_lines_and_nothing_else():
    try:
        int("\x1b[31mred\x9b")
    except ValueError:
        record = logging.LogRecord("x", 40, "f", 1, "it %s", ("failed",), sys.exc_info())
    lines = EscapingFormatter().format(record).split("\n")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1].startswith("ValueError: invalid literal")
    assert all(line.isprintable() for line in lines)
