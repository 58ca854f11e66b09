"""The form of a search shows which of its fields is wrong, and where."""

from html import unescape
from urllib.parse import urlencode

import pytest

from rocketlens.console.search.question import Question
from rocketlens.console.search.reasons import mark_of
from rocketlens.errors import BadInput
from tests.support.console_client import answer, store_at
from tests.support.made_stores import Sent, make_store


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store", [Sent(keys="ORDER-1")]).path


def page(store, query):
    found = answer(f"/search?{query}", store_at(store))
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
def test_the_first_character_that_cannot_be_in_a_filter_is_marked(store, where, at):
    question = Question.read(where=where)
    with pytest.raises(BadInput) as raised:
        question.request()
    assert mark_of(question, raised.value.args[0]) == ("where", at)
    text = page(store, urlencode({"where": where}))
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
    store, query, field, value
):
    text = page(store, query)
    mark = f'name="{field}" aria-invalid="true" aria-describedby="failure" value="{value}"'
    assert mark in text
    assert text.count("aria-invalid") == 1
    if "topic=" in query:
        assert 'name="topic" value="Orders"' in text


def test_what_no_field_is_about_marks_none(store):
    assert "aria-invalid" not in answer("/search?q=x&source=nope", store_at(store)).text
    assert mark_of(Question(where="a"), "text") is None
