"""The columns of a list are chosen, kept in its link, and have what is in messages."""

import json
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

from rocketlens.console.search.columns import (
    MAX_CONSOLE_COLUMNS,
    USUAL,
    columns_of,
    value_columns,
    value_in,
)
from rocketlens.console.search.question import Question
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput
from rocketlens.formats.commitlog_record import message_of
from tests.support.console_client import answer, answers, store_at
from tests.support.made_stores import Sent, make_store, record_of

BODY = {"amount": 1.5, "items": [{"sku": "S-1"}, {"sku": 2}], "at": {"city": "上海"}, "no": None}


class Table(HTMLParser):
    """The titles and the cells of the table of messages."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.titles, self.rows, self._cells = [], [], None
        self.feed(html.partition('<table class="messages"')[2].partition("</table>")[0])

    def handle_starttag(self, tag, _attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self._cells = self.titles if tag == "th" else self.rows[-1]
            self._cells.append("")

    def handle_data(self, text):
        if self._cells:
            self._cells[-1] = (self._cells[-1] + text).strip()


@pytest.fixture
def store(tmp_path):
    sent = [
        Sent(
            keys="all",
            tags="PAY",
            body=json.dumps(BODY | {"amount": amount}).encode(),
            named=(("city", city),),
        )
        for amount, city in ((1.5, "Berlin"), (10, "<b>Paris"), (9, "Rome"))
    ]
    return make_store(tmp_path / "store", [*sent, Sent(keys="all", body=b"text")]).path


def page(store, columns, more=""):
    found = answer(f"/search?q=all&{urlencode({'columns': columns})}{more}", store_at(store))
    assert found.status_code == 200
    return found.text


def test_a_list_has_the_columns_that_were_chosen_in_their_order(store):
    table = Table(page(store, "prop.city,body.$.amount,body.$.items[0].sku,tag"))
    titles = ["Stored+00:00", "prop.city", "body.$.amount", "body.$.items[0].sku", "Tag"]
    assert table.titles == titles
    cells = [each[1:] for each in table.rows if each]
    assert cells[-3:] == [
        ["Rome", "9", "S-1", "PAY"],
        ["<b>Paris", "10", "S-1", "PAY"],
        ["Berlin", "1.5", "S-1", "PAY"],
    ]
    assert cells[0] == ["", "", "", ""]


def test_without_a_choice_a_list_has_the_usual_columns(store):
    usual = ["Stored+00:00", "Topic", "Queue/offset", "Tag", "Keys", "Body", "Size"]
    assert Table(answer("/search?q=all", store_at(store)).text).titles == usual
    assert Question.read(q="all", columns=[",".join(USUAL)]).columns == ()


def test_the_choice_is_in_every_link_of_the_page_and_in_its_form(store):
    chosen = "body.$.amount,id"
    text = page(store, chosen, "&max=2")
    query = urlencode({"columns": chosen})
    for path in ("/search/more?", "/search?", "/api/export?"):
        links = [each for each in text.split('"') if each.startswith(path) and "q=all" in each]
        others = [each for each in links if "q=all&amp;max=2" in each and query not in each]
        # One link takes the choice back.
        assert len(others) == (path == "/search?"), (path, others)
        assert links
    assert f'name="columns" value="{chosen}"' in text
    more = next(each for each in text.split('"') if each.startswith("/search/more?"))
    rows = Table(
        '<table class="messages">' + answer(more.replace("&amp;", "&"), store_at(store)).text
    )
    assert len(rows.rows) == 2


def test_a_list_is_sorted_by_a_field_as_numbers(store):
    up, down = (
        [
            row[1]
            for row in Table(page(store, "body.$.amount", f"&sort={sign}body.$.amount")).rows
            if row
        ]
        for sign in ("", "-")
    )
    assert (up, down) == (["1.5", "9", "10", ""], ["10", "9", "1.5", ""])


def test_a_stream_has_the_columns_too(store):
    found = answer("/search/rows?q=all&columns=prop.city", store_at(store)).text
    # What comes before the answer depends on how long it takes.
    early, _, whole = found.partition("event: answer")
    assert whole.count('<td class="value" data-label="prop.city"') == 4
    assert early.count('<td class="value"') == early.count("<tr data-path")
    assert 'class="body"' not in found


def test_messages_as_json_have_the_values_of_columns(store):
    found = answer("/api/search?q=all&columns=body.$.at.city,prop.city,topic", store_at(store))
    values = [each["values"] for each in found.json()["messages"]]
    assert values[-1] == {"body.$.at.city": "上海", "prop.city": "Berlin"}
    assert values[0] == {}


@pytest.mark.parametrize(
    "columns", ["nope", "prop.", "body.$", "body.$.*", "body.$[*]", "body.amount", "a" * 99]
)
def test_what_is_no_column_is_refused_with_what_can_be_one(store, columns):
    with pytest.raises(BadInput, match=r"unknown column .*: expected topic, .*, prop\.NAME"):
        columns_of([columns])
    wrong, good = answers(
        [f"/search?{urlencode({'q': 'all', 'columns': each})}" for each in (columns, "")],
        store_at(store),
    )
    assert (wrong.status_code, good.status_code) == (400, 200)


def test_columns_are_each_once_and_not_more_than_the_bound():
    assert columns_of(["tag, keys", "tag", ""]) == ("tag", "keys")
    with pytest.raises(BadInput, match="13 columns: at most 12 are shown"):
        columns_of([f"prop.p{number}" for number in range(MAX_CONSOLE_COLUMNS + 1)])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body.$.amount", "1.50"),
        ("body.$.at", '{"city": "上海"}'),
        ("body.$.items[1].sku", "2"),
        ("body.$.items[2]", None),
        ("body.$.items.sku", None),
        ("body.$.no", None),
        ("body.$.at.city.name", None),
        ("prop.own", "\\x1b[31m"),
        ("prop.other", None),
    ],
)
def test_a_value_is_what_the_message_has_and_safe_to_show(column, value):
    body = json.dumps(BODY, ensure_ascii=False).replace("1.5", "1.50").encode()
    record, _ = record_of(Sent(body=body, named=(("own", "\x1b[31m"),)), 0, 0)
    message = message_of(record)
    assert value_in(message, BodyRules().decode(message), column) == value
    assert value_columns([column, "topic"]) == [column]


def test_a_long_value_is_cut():
    record, _ = record_of(Sent(named=(("own", "x" * 999),)), 0, 0)
    assert value_in(message_of(record), None, "prop.own").endswith("x…")
