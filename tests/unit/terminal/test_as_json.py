"""Messages and answers as JSON."""

import json
from base64 import b64decode

import pytest

import rocketlens
from rocketlens.model.answer import Coverage
from rocketlens.terminal.as_json import message_fields, write_message
from rocketlens.terminal.json_text import answer_fields, json_line


@pytest.fixture
def answer(write_store):
    """An answer of one message whose body is written in several pieces."""
    body = bytes(range(256)) * 4096
    with rocketlens.open_store(write_store({"body": body, "properties": {"KEYS": "k"}})) as store:
        yield store.find("k")


def test_a_message_that_is_written_in_pieces_is_the_same_json(answer, capsys):
    (message,) = answer
    write_message(message, "\n")
    written = capsys.readouterr().out
    assert written.count("\n") == 1
    assert json.loads(written) == message_fields(message)
    shown = json.loads(written)
    assert (b64decode(shown["body"]), shown["body_encoding"]) == (message.body, "base64")


def test_an_answer_has_its_coverage_with_every_field(answer):
    shown = answer_fields(answer)
    assert (shown["query"], shown["complete"], shown["truncated"]) == ("k", True, False)
    names = list(Coverage.__struct_fields__)
    assert [list(coverage) for coverage in shown["coverage"]] == [names] * len(answer.coverage)


def test_what_a_terminal_obeys_is_escaped(capsys):
    assert json.loads(json_line({"a": "\x1b[2J\u202e"})) == {"a": "\x1b[2J\u202e"}
    assert json_line({"a": "\x1b\u202e"}).isprintable()


def test_a_text_that_is_written_in_pieces_is_the_same_json(write_store, capsys):
    body = ('"\\\n\x00\u202e' + "\U0001f680" * 5).encode() * 100_000
    with rocketlens.open_store(write_store({"body": body, "properties": {"KEYS": "k"}})) as store:
        (message,) = store.find("k")
    write_message(message, "\n")
    written = capsys.readouterr().out
    assert written.count("\n") == 1
    assert json.loads(written) == message_fields(message)
