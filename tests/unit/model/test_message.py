"""Hosts, messages and answers as values.

Java's signed integers, as annotations.
"""

import dataclasses
from datetime import UTC, datetime
from typing import get_type_hints

import pytest

import rocketlens
from rocketlens import WrongUse, errors, open_store
from rocketlens.formats.columns import COLUMNS
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.message import I32, I64, MESSAGE_FIELDS, Host, MessageExt
from rocketlens.terminal.as_json import message_fields


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
    assert list(COLUMNS) == [*values, "store_time", "born_time"]
    assert set(written) == set(values) | {"body_encoding"}
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


@pytest.fixture
def answer(golden):
    with open_store(golden("5.5.0").store) as store:
        return store.find("order-42")


def test_an_answer_is_indexed_as_a_sequence_is(answer):
    assert answer[0] == answer.messages[0]
    assert answer[-1] == answer.messages[-1]
    assert answer[1:3] == answer.messages[1:3]
    with pytest.raises(IndexError):
        answer[7]


def test_what_is_printed_is_short_whatever_the_body(answer):
    assert repr(answer) == "Answer('order-42', 7 messages, complete)"
    message = dataclasses.replace(answer[0], body=b"x" * 1_000_000, keys=("k" * 30_000,))
    assert len(repr(message)) < 400
    assert message.position in repr(message)
    incomplete = dataclasses.replace(answer, coverage=(), truncated=True)
    assert repr(incomplete) == "Answer('order-42', 7 messages, INCOMPLETE: 0 failed, truncated)"


def test_a_notebook_shows_a_table_that_obeys_no_message(answer):
    evil = dataclasses.replace(answer[0], body=b"<script>alert(1)</script>", tags="<b>")
    shown = dataclasses.replace(answer, messages=(evil,) * 30)._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert shown.count("<tr>") == 21
    assert "and 10 more" in shown
    failed = Coverage("0", SourceKind.COMMIT_LOG, SourceState.FAILED, error="a <hole>")
    assert "a &lt;hole&gt;" in dataclasses.replace(answer, coverage=(failed,))._repr_html_()


def test_a_body_is_text_and_json_and_times_have_a_zone(answer):
    message = dataclasses.replace(answer[0], body='{"城": 1}'.encode(), born_timestamp_ms=1)
    assert message.text == '{"城": 1}'
    assert message.json() == {"城": 1}
    assert message.store_time.timestamp() * 1000 == message.store_timestamp_ms
    assert message.born_time == datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)
    with pytest.raises(UnicodeDecodeError):
        _ = dataclasses.replace(message, body=b"\xff").text
    with pytest.raises(ValueError, match="Expecting value"):
        dataclasses.replace(message, body=b"x").json()
    with pytest.raises(OverflowError):
        _ = dataclasses.replace(message, born_timestamp_ms=2**62).born_time


def test_a_store_and_a_scan_say_what_they_are(golden):
    path = golden("5.5.0").store
    store = open_store(path)
    scan = store.scan("PayTopic")
    assert repr(scan) == f"Scan('{path}', PayTopic, at physical offset 0)"
    list(scan)
    assert repr(scan) == f"Scan('{path}', PayTopic, read)"
    assert repr(store) == f"Store('{path}')"
    store.close()
    assert repr(store) == f"Store('{path}', closed)"
    with pytest.raises(WrongUse, match="this store is closed"):
        list(scan)


def test_every_error_can_be_imported_from_the_package():
    named = {name for name, each in vars(errors).items() if isinstance(each, type)}
    assert named <= set(rocketlens.__all__)
    assert all(getattr(rocketlens, name) is getattr(errors, name) for name in named)


class Counter:
    number: I32
    offset: I64


def test_a_declared_width_is_found_in_the_annotation_and_is_an_int_otherwise():
    assert get_type_hints(Counter) == {"number": int, "offset": int}
    declared = get_type_hints(Counter, include_extras=True)
    assert declared["number"].__metadata__ == ("i32",)
    assert declared["offset"].__metadata__ == ("i64",)
