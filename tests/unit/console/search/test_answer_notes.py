"""What a complete answer leaves out is said on its page, with the search that has it."""

from html import unescape

import pytest

from rocketlens.console.search.question import Question
from rocketlens.console.search.reasons import notes_of
from rocketlens.console.values import CoverageValue
from rocketlens.model.text.sentences import Sentence
from tests.support.console_client import answer, store_at
from tests.support.made_stores import Sent, make_store

TRACE = "RMQ_SYS_TRACE_TOPIC"
HINT = "No message had a property amount; bodies do: body.$.amount"
CHINESE = {"cookies": {"rl_language": "zh"}}


@pytest.fixture
def store(tmp_path):
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


def test_messages_of_rocketmqs_own_topics_that_are_not_listed_are_counted_with_a_link(store):
    link = 'href="/search?q=ORDER-1&amp;all=true"'
    page = answer("/search?q=ORDER-1", store_at(store))
    assert f"3 messages of RocketMQ&#39;s own topics, in {TRACE}, left out." in page.text
    assert link in page.text
    everything = answer("/search?q=ORDER-1&all=true", store_at(store))
    assert everything.text.count("data-path") == 4
    assert "Not listed" not in everything.text
    chinese = answer("/search?q=ORDER-1", store_at(store), **CHINESE).text
    assert f"RocketMQ 自身主题（{TRACE}）中的 3 条消息未列入" in chinese


def test_the_count_is_told_for_an_answer_that_is_streamed_too(store):
    page = answer("/search/rows?q=ORDER-1", store_at(store))
    assert "3 messages of RocketMQ" in page.text


def test_a_filter_by_a_property_that_no_message_has_leads_to_the_field_of_bodies(store):
    page = answer("/search?where=amount+>+1", store_at(store))
    assert HINT in page.text
    link = "/search?where=body.%24.amount+%3E+1"
    assert f'href="{link}"' in unescape(page.text)
    found = answer(link, store_at(store))
    assert (found.text.count("data-path"), HINT in found.text) == (1, False)
    chinese = answer("/search?where=amount+>+1", store_at(store), **CHINESE).text
    assert "没有消息具有属性 amount" in chinese


def test_a_position_in_a_topic_that_is_not_there_leads_to_the_one_probably_meant(store):
    page = answer("/search?q=Ordrs/0/0", store_at(store))
    assert "There is no topic &#39;Ordrs&#39;; did you mean Orders?" in page.text
    link = Question(text="Orders/0/0").address("/search")
    assert f'href="{link}"' in unescape(page.text)
    chinese = answer("/search?q=Ordrs/0/0", store_at(store), **CHINESE).text
    assert "没有主题 &#39;Ordrs&#39;" in chinese


@pytest.mark.parametrize(
    ("where", "instead"),
    [
        ("amount > 1 AND prop.amount < 9", "body.$.amount > 1 AND body.$.amount < 9"),
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
    store, text, note
):
    page = answer(f"/search?q={text}", store_at(store)).text
    assert f">{note}." in page
    assert "may not have set this text as a key" not in page
    assert "reasons" not in page
