"""A search as an address has it: read, refused, and written again.

What a complete answer leaves out is said on its page, with the search that has it.
The form of a search shows which of its fields is wrong, and where.
"""

import asyncio
from html import unescape
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketlens
from rocketlens import limits
from rocketlens.console.search.question import MAX_CONSOLE_SKIPPED, Cursor, Question
from rocketlens.console.search.reasons import mark_of, notes_of
from rocketlens.console.values import CoverageValue
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput
from rocketlens.model.answer import hint
from rocketlens.model.message import Host
from rocketlens.model.message_id import NOT_IN_LOG
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.find import find_in_all
from rocketlens.query.threaded_source import ThreadedSource
from tests.support.console_client import answer, store_at
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
    assert Question.read(**values).parameters() == question.parameters()
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


TRACE = "RMQ_SYS_TRACE_TOPIC"
HINT = "No message had a property amount; bodies do: body.$.amount"
CHINESE = {"cookies": {"rl_language": "zh"}}


@pytest.fixture
def noted_store(tmp_path):
    messages = [
        Sent("Orders", "ORDER-1", body=b'{"amount": 5}'),
        *(Sent(TRACE, "ORDER-1", f"T-{n}", body=b"trace") for n in range(3)),
    ]
    return make_store(tmp_path / "store", messages).path


def told(question, *errors):
    coverage = [
        CoverageValue(source=f"s{n}: x", kind="filter", state="searched", is_failure=False, note=e)
        for n, e in enumerate(errors)
    ]
    return notes_of(question, coverage)


def test_messages_of_rocketmqs_own_topics_that_are_not_listed_are_counted_with_a_link(noted_store):
    link = 'href="/search?q=ORDER-1&amp;all=true"'
    page = answer("/search?q=ORDER-1", store_at(noted_store))
    assert f"3 messages of RocketMQ&#39;s own topics, in {TRACE}, left out." in page.text
    assert link in page.text
    everything = answer("/search?q=ORDER-1&all=true", store_at(noted_store))
    assert everything.text.count("data-path") == 4
    assert "Not listed" not in everything.text
    chinese = answer("/search?q=ORDER-1", store_at(noted_store), **CHINESE).text
    assert f"RocketMQ 自身主题（{TRACE}）中的 3 条消息未列入" in chinese


def test_the_count_is_told_for_an_answer_that_is_streamed_too(noted_store):
    page = answer("/search/rows?q=ORDER-1", store_at(noted_store))
    assert "3 messages of RocketMQ" in page.text


def test_a_filter_by_a_property_that_no_message_has_leads_to_the_field_of_bodies(noted_store):
    page = answer("/search?where=amount+>+1", store_at(noted_store))
    assert HINT in page.text
    link = "/search?where=body.%24.amount+%3E+1"
    assert f'href="{link}"' in unescape(page.text)
    found = answer(link, store_at(noted_store))
    assert (found.text.count("data-path"), HINT in found.text) == (1, False)
    chinese = answer("/search?where=amount+>+1", store_at(noted_store), **CHINESE).text
    assert "没有消息具有属性 amount" in chinese


def test_a_position_in_a_topic_that_is_not_there_leads_to_the_one_probably_meant(noted_store):
    page = answer("/search?q=Ordrs/0/0", store_at(noted_store))
    assert "There is no topic &#39;Ordrs&#39;; did you mean Orders?" in page.text
    link = Question(text="Orders/0/0").address("/search")
    assert f'href="{link}"' in unescape(page.text)
    chinese = answer("/search?q=Ordrs/0/0", store_at(noted_store), **CHINESE).text
    assert "没有主题 &#39;Ordrs&#39;" in chinese


@pytest.mark.parametrize(
    ("where", "instead"),
    [
        ("amount > 1 AND prop.amount < 9", "body.$.amount > 1 AND body.$.amount < 9"),
        ("properties.amount < 9", "body.$.amount < 9"),
        (
            "tag = 'amount' OR amount = 'an ''amount'''",
            "tag = 'amount' OR body.$.amount = 'an ''amount'''",
        ),
        ("other.amount = 1", None),
        ("the_amount = 1 OR amounts = 1", None),
    ],
)
def test_only_the_property_is_replaced(where, instead):
    hint = Sentence("no_such_property", name="amount", path="body.$.amount")
    (note,) = told(Question(where=where), hint)
    assert note.instead == (instead and Question(where=instead).address("/search"))


def test_each_of_several_sources_is_named_and_other_coverage_makes_no_note():
    one = Sentence("left_out", messages=Sentence("one_message"), topics=TRACE)
    assert [each.source for each in told(Question(text="k"), one, one)] == ["s0", "s1"]
    assert [each.source for each in told(Question(text="k"), one)] == [""]
    assert told(Question(text="k"), Sentence("not_in_files"), "left_out", None) == []


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("Orders/0/99999", "Orders/0 ends at 1"),
        ("Orders/9/0", "There is no queue Orders/9: its topic has queues 0 to 0"),
    ],
)
def test_a_position_that_a_topic_does_not_have_is_the_reason_and_no_other_is_guessed(
    noted_store, text, note
):
    page = answer(f"/search?q={text}", store_at(noted_store)).text
    assert f">{note}." in page
    assert "may not have set this text as a key" not in page
    assert "reasons" not in page


@pytest.fixture
def searched_store(tmp_path):
    return make_store(tmp_path / "store", [Sent(keys="ORDER-1")]).path


def page(searched_store, query):
    found = answer(f"/search?{query}", store_at(searched_store))
    assert found.status_code == 400
    return unescape(found.text)


@pytest.mark.parametrize(
    ("where", "at"),
    [
        ("body.$.amount >", 15),
        ("amount == 5", 8),
        ("a = 1 AND", 9),
        ("amount % 5 = 1", 7),
        ("a = 'x' b", 8),
    ],
)
def test_the_first_character_that_cannot_be_in_a_filter_is_marked(searched_store, where, at):
    question = Question.read(where=where)
    with pytest.raises(BadInput) as raised:
        question.request()
    assert mark_of(question, raised.value.args[0]) == ("where", at)
    text = page(searched_store, urlencode({"where": where}))
    assert (
        f'name="where" aria-invalid="true" aria-describedby="failure" data-error-at="{at}"' in text
    )
    assert text.count('id="failure"') == 1
    marked = text.partition('class="wrong"')[2].partition("</code>")[0]
    before, _, rest = marked.partition(">")[2].partition("<mark>")
    assert before == where[:at]
    assert rest.startswith((where[at : at + 1] or " ") + "</mark>")


@pytest.mark.parametrize(
    ("query", "field", "value"),
    [
        ("topic=Orders&since=foo", "since", "foo"),
        ("form=time&topic=Orders&until=2026-13-40", "until", "2026-13-40"),
        ("topic=Orders&since=now&until=2h", "since", "now"),
        ("q=ORDER-1+since:foo", "q", "ORDER-1 since:foo"),
        ("topic=Orders&grep=a%5B", "grep", "a["),
        ("topic=Orders&where=tag+=~+'a%5B'", "where", "tag =~ 'a['"),
        ("topic=Orders&where=time+>+'foo'", "where", "time > 'foo'"),
    ],
)
def test_a_field_that_is_wrong_is_marked_and_everything_that_was_typed_is_there(
    searched_store, query, field, value
):
    text = page(searched_store, query)
    mark = f'name="{field}" aria-invalid="true" aria-describedby="failure" value="{value}"'
    assert mark in text
    assert text.count("aria-invalid") == 1
    if "topic=" in query:
        assert 'name="topic" value="Orders"' in text


def test_what_no_field_is_about_marks_none(searched_store):
    assert "aria-invalid" not in answer("/search?q=x&source=nope", store_at(searched_store)).text
    assert mark_of(Question(where="a"), "text") is None


def test_notes_of_several_sources_name_them_with_their_ports():
    sentence = Sentence("no_topic", name="'x'")
    sources = ("127.0.0.1:9876", "127.0.0.2:9876")
    notes = notes_of(Question.read(text="x"), [hint(f"{s}: topics", sentence) for s in sources])
    assert [each.source for each in notes] == [*sources]
