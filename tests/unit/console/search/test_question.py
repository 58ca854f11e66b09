"""A search as an address has it: read, refused, and written again."""

import asyncio
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketlens
from rocketlens import limits
from rocketlens.console.search.question import MAX_CONSOLE_SKIPPED, Cursor, Question
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput
from rocketlens.model.message import Host
from rocketlens.model.message_id import NOT_IN_LOG
from rocketlens.query.find import find_in_all
from rocketlens.query.threaded_source import ThreadedSource
from tests.support.made_stores import Sent, make_store

NUMBERS = st.integers(0, limits.MAX_LONG)
CURSORS = st.builds(
    Cursor,
    NUMBERS,
    st.builds(Host, st.text(max_size=20), st.integers(0, limits.MAX_PORT)),
    st.integers(NOT_IN_LOG, limits.MAX_LONG),
    st.text(max_size=20),
    st.integers(0, limits.MAX_INT),
    NUMBERS,
    st.integers(0, MAX_CONSOLE_SKIPPED),
)


def test_words_of_the_box_narrow_its_text():
    question = Question.read(q='ORDER-42 topic:order-* tag:"A || B" since:2026-11-20 source:prod')
    assert (question.text, question.topic, question.tag) == ("ORDER-42", "order-*", "A || B")
    assert question.sources == ("prod",)
    request = question.request()
    assert (request.text, request.topics) == ("ORDER-42", ("order-*",))
    assert request.tags == frozenset({"A", "B"})


def test_the_word_for_a_broker_is_a_condition_of_the_filter():
    for where, whole in (("", "broker = 'b''s'"), ("a = 1 OR b = 2", "{} AND (a = 1 OR b = 2)")):
        question = Question.read(q='ORDER-42 broker:"b\'s"', where=where)
        assert question.text == "ORDER-42"
        assert question.where == whole.format("broker = 'b''s'")
        assert question.request().content.where.texts_of("broker") == {"b's"}


def test_a_key_with_a_colon_is_a_text():
    assert Question.read(q="http://x/y").text == "http://x/y"
    assert Question.read(q="order:42").text == "order:42"
    assert Question.read(q="topic:x", kind="key").text == "topic:x"


def test_key_and_id_words_say_what_the_text_is():
    assert Question.read(q="key:topic/1/2").kind == "key"
    assert Question.read(q="id:AB").text == "AB"


def test_times_are_read_in_the_zone_of_the_reader():
    at = Question.read(topic="t", since="2026-11-20 10:00", zone_name="Asia/Shanghai").begin
    assert at == Question.read(topic="t", since="2026-11-20 02:00").begin
    assert at == Question.read(topic="t", since="2026-11-20T10:00+08:00").begin


def test_a_link_finds_the_same_for_a_reader_in_another_zone():
    question = Question.read(
        topic="t", since="2026-11-20", until="2026-11-20", zone_name="Asia/Shanghai"
    )
    values = dict(parse_qsl(question.address("/search").partition("?")[2]))
    values["zone_name"] = values.pop("zone")
    there = Question.read(**values).in_zone("UTC")
    assert (there.begin, there.end) == (question.begin, question.end)
    assert (there.since, there.until) == ("2026-11-19 16:00:00.000", "2026-11-20 15:59:59.999")
    again = Question.read(topic="t", since=there.since, until=there.until)
    assert (again.begin, again.end) == (question.begin, question.end)


@pytest.mark.parametrize(
    "values",
    [
        {"since": "tomorrow"},
        {"since": "2h", "until": "3h"},
        {"kind": "wrong"},
        {"max_num": 0},
        {"max_num": limits.MAX_CONSOLE_ROWS + 1},
        {"q": "x" * (limits.MAX_CONSOLE_TEXT + 1)},
        {"q": "a\0b"},
        {"where": "a = '\0'"},
        {"grep": "x" * (limits.MAX_CONSOLE_TEXT + 1)},
        {"cursor": "x"},
        {"cursor": "é"},
        {"cursor": "W10"},
    ],
)
def test_what_cannot_be_used_is_refused(values):
    with pytest.raises(BadInput):
        Question.read(**values)


@given(CURSORS)
def test_a_cursor_is_read_as_it_was_written(cursor):
    assert Cursor.parse(str(cursor)) == cursor


@given(st.text(max_size=200))
def test_any_other_cursor_is_refused(text):
    try:
        Cursor.parse(text)
    except BadInput:
        return


def test_an_address_asks_the_same():
    question = Question.read(
        q="a b&c",
        topic="t",
        tag="A",
        where="body.$.n > 1 AND tag = 'A&B'",
        grep=" a|b ",
        since="2h",
        sources=["s"],
        max_num=7,
    )
    values = dict(parse_qsl(question.address("/search").partition("?")[2]))
    values["sources"] = [values.pop("source")]
    values["max_num"] = int(values.pop("max"))
    assert Question.read(**values) == question
    assert Question().address("/search") == "/search"


def test_pages_cut_at_one_millisecond_have_each_message_once(tmp_path):
    sent = [Sent(keys="k", body=b"%d" % n, store_timestamp_ms=1_700_000_000_000) for n in range(25)]
    made = make_store(tmp_path / "store", sent)
    seen, cursor = [], None
    with rocketlens.open_store(made.path) as store:
        for _ in range(7):
            question = Question(text="k", kind="key", max_num=4, cursor=cursor)
            found = asyncio.run(find_in_all(question.request(), [ThreadedSource(store.source)]))
            page = [m for m in found.messages if cursor is None or cursor.is_before(m)][-4:]
            seen += [m.physical_offset for m in reversed(page)]
            cursor = Cursor.after(page, cursor)
    assert seen == [record.physical_offset for record in reversed(made.records)]


def test_filters_on_content_are_asked_with_the_rest_and_alone():
    question = Question.read(topic="t", where="body.$.n > 1", grep="paid|sent")
    request = question.request()
    assert (request.topics, request.content.text) == (("t",), "body.$.n > 1, grep paid|sent")
    for alone in ({"where": "tag = 'A'"}, {"grep": " "}):
        assert not Question.read(**alone).is_empty
    assert Question.read(where=" ", grep="").is_empty
    assert Question(text="x").request().content is None


def test_bodies_are_decoded_for_a_filter_by_the_rules_that_are_passed():
    rules = BodyRules()
    assert Question(grep="x").request(rules).content.rules is rules


@pytest.mark.parametrize("wrong", [{"where": "body.$.n >"}, {"grep": "("}])
def test_a_filter_that_is_not_well_formed_is_refused_when_it_is_asked(wrong):
    with pytest.raises(BadInput):
        Question.read(**wrong).request()


def test_what_was_typed_keeps_its_columns_unless_they_are_wrong():
    assert Question.as_typed({"where": "x ="}, (), ("keys,id",)).columns == ("keys", "id")
    assert Question.as_typed({}, (), ("nonsense",)).columns == ()


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("0", 100), ("x", 100), ("9" * 9, 100)])
def test_what_was_typed_keeps_its_number_of_messages_unless_it_is_wrong(text, number):
    assert Question.as_typed({"where": "x =", "max": text}).max_num == number
