"""stdout and stderr in any state; whole processes are tested with the program."""

import io
import sys

from rocketlens.terminal.streams import discard_stdout, prepare_streams


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
