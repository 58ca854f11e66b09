"""Hosts, messages and answers as values."""

import dataclasses

import pytest

from rocketlens.bulk.columns import COLUMNS
from rocketlens.cli.as_json import message_fields
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.message import MESSAGE_FIELDS, Host, MessageExt


def test_a_host_is_written_with_brackets_round_ipv6():
    assert str(Host("10.0.0.1", 10911)) == "10.0.0.1:10911"
    assert str(Host("::1", 10911)) == "[::1]:10911"


def test_every_field_of_a_message_says_what_it_means():
    assert [field.name for field in MESSAGE_FIELDS] == [
        field.name for field in dataclasses.fields(MessageExt)
    ]
    for field in MESSAGE_FIELDS:
        assert field.meaning
        assert field.kind is not int, f"{field.name} is I32 or I64"


def test_json_and_spark_have_every_field_of_a_message():
    values = {field.name: None for field in MESSAGE_FIELDS}
    values |= {"keys": ("k",), "properties": {"a": "b"}, "body": b"x"}
    written = message_fields(MessageExt(**values))
    assert list(COLUMNS) == list(values)
    assert set(written) == set(values) - {"body"} | {"body_base64"}
    assert (written["keys"], written["properties"]) == (["k"], {"a": "b"})


@pytest.mark.parametrize("kind", [Answer, Coverage, MessageExt])
def test_values_cannot_be_changed(kind):
    assert dataclasses.fields(kind)
    assert kind.__dataclass_params__.frozen
    assert not hasattr(kind, "__dict__") or "__dict__" not in kind.__slots__


def test_an_answer_is_its_messages_and_names_what_failed():
    searched = Coverage("index/1", SourceKind.INDEX_FILE, SourceState.SEARCHED, 5)
    damaged = Coverage("index/2", SourceKind.INDEX_FILE, SourceState.DAMAGED, error="cyclic")
    failed = Coverage("0", SourceKind.COMMIT_LOG, SourceState.FAILED, error="cannot be read")
    answer = Answer("q", (), (searched, damaged, failed))
    assert answer.failures == (failed,)
    assert (len(answer), list(answer)) == (0, [])


def test_words_of_coverage_are_what_the_command_line_prints():
    assert [str(state) for state in SourceState] == ["searched", "damaged", "failed"]
    assert {str(kind) for kind in SourceKind} >= {"commit_log", "index_file", "tail"}
