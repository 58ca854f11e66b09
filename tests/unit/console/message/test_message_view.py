"""Messages as values: previews, bodies in each form, ids decoded.

Two messages side by side: what differs is marked, what is equal is not in the way.
The story of a key that several messages have, on a page of its own, the failed ones first.
"""

import base64
import json
import re
from html import unescape
from urllib.parse import parse_qsl, urlencode

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.console.message.message_pages import MAX_COMPARED_LINES, compared
from rocketlens.console.message.message_view import (
    BODY_FORMS,
    MAX_PAGE_BODY_CHARACTERS,
    body_of,
    decoded_ids,
    deliveries_after_the_first,
    detail_of,
    row_of,
)
from rocketlens.console.values import MessageRow
from rocketlens.decode.rules import BodyRules
from rocketlens.model.message_id import UniqueKey
from tests.support.console_client import answer, store_at
from tests.support.made_stores import NOW_MS, Sent, make_store
from tests.unit.conftest import NOON_MS

RULES = BodyRules()


def message_with(tmp_path, body, **others):
    made = make_store(tmp_path / "store", [Sent(keys="k", body=body, **others)])
    with rocketlens.open_store(made.path) as store:
        return store.find("k")[0]


def test_a_row_has_the_address_of_its_page(tmp_path):
    message = message_with(tmp_path, b"{}", topic="%RETRY%g")
    row = row_of(message, "prod", "broker a/b", RULES)
    assert row.path == "/m/prod/%25RETRY%25g/broker%20a%2Fb/0/0"
    assert row.topic_kind == "retry"


@pytest.mark.parametrize(
    ("body", "name", "preview"),
    [
        (b"", "text", ""),
        (b'{"a":\n  1.10}', "json", '{"a": 1.10}'),
        ("订单".encode(), "text", "订单"),
        ("订单编号已经支付".encode("gb18030"), "text", "订单编号已经支付"),
        (b"\x00\xff\xfe", "binary", "0x00fffe"),
        (b"a\x1b[31mb\xe2\x80\xae", "text", "a\\x1b[31mb\\u202e"),
        ("€".encode() * limits.MAX_PREVIEW_BYTES, "text", "€" * 159 + "…"),
    ],
    ids=range(7),
)
def test_a_preview_is_short_and_safe(tmp_path, body, name, preview):
    row = row_of(message_with(tmp_path, body), "s", "b", RULES)
    assert (row.body_format, row.preview) == (name, preview)


@pytest.mark.parametrize("form", BODY_FORMS)
@pytest.mark.parametrize(
    "body",
    [b"", b'{"n": 12345678901234567890.10}', b"\xff\x00\x01", b"plain", b"\x08\x96\x01\x10\x02"],
)
def test_a_body_is_shown_in_every_form(tmp_path, body, form):
    value = body_of(message_with(tmp_path, body), RULES, form)
    assert not value.is_cut
    if form == "base64":
        assert base64.b64decode(value.content) == body
    elif form == "hex":
        digits = [line[10:58] for line in value.content.splitlines()]
        assert bytes.fromhex("".join(digits)) == body
    elif form in {"json", "decoded"} and value.is_json:
        json.loads(value.content)
        assert value.format != "json" or value.content.encode() == body


def test_a_long_body_is_cut_and_says_so(tmp_path):
    message = message_with(tmp_path, b"x" * (MAX_PAGE_BODY_CHARACTERS + 1))
    for form in BODY_FORMS:
        value = body_of(message, RULES, form)
        assert value.is_cut or not value.content
        assert len(value.content) <= MAX_PAGE_BODY_CHARACTERS


def test_ids_are_decoded(tmp_path):
    stored_ms = 1_700_000_000_000
    key = UniqueKey.at(stored_ms, "10.0.0.7", process_id=8, client_hash=9, counter=3).encode()
    message = message_with(tmp_path, b"x", unique_key=key, store_timestamp_ms=stored_ms)
    unique, offset = decoded_ids(message)
    parts = {each.name: each.value for each in unique.parts}
    assert (parts["client_address"], parts["process_number"]) == ("10.0.0.7", "8")
    assert (parts["made_about"], parts["counter"]) == (str(stored_ms), "3")
    assert {each.name: each.value for each in offset.parts} == {
        "store_host": str(message.store_host),
        "physical_offset": "0",
    }


def test_an_id_of_another_form_has_no_parts(tmp_path):
    message = message_with(tmp_path, b"x", unique_key="my-own-id")
    assert decoded_ids(message)[0].parts == []


def test_properties_are_those_of_the_producer_and_of_rocketmq(tmp_path):
    message = message_with(tmp_path, b"x", tags="T", named=(("mine", "1"),))
    row = row_of(message, "s", "b", RULES)
    detail = detail_of(message, row, RULES, "decoded")
    assert detail.properties == {"mine": "1"}
    assert detail.system_properties["TAGS"] == "T"


@pytest.mark.parametrize(
    ("kind", "times", "shown"),
    [("dead_letter", 3, 2), ("dead_letter", 0, 0), ("retry", 2, 2), ("normal", 0, 0)],
)
def test_a_dead_letter_was_delivered_again_as_often_as_its_story_says(kind, times, shown):
    row = MessageRow.model_construct(topic_kind=kind, reconsume_times=times)
    assert deliveries_after_the_first(row) == shown


@pytest.mark.parametrize(
    ("topic", "named", "due_ms"),
    [
        ("SCHEDULE_TOPIC_XXXX", (("DELAY", "18"),), NOW_MS + 7_200_000),
        ("rmq_sys_wheel_timer", (("TIMER_OUT_MS", str(NOW_MS + 5)),), NOW_MS + 5),
        ("Orders", (("DELAY", "18"),), None),
    ],
)
def test_a_message_that_is_kept_for_later_says_when_it_is_due(tmp_path, topic, named, due_ms):
    message = message_with(tmp_path, b"", topic=topic, named=named)
    assert detail_of(message, row_of(message, "s", "b", RULES), RULES, "text").due_ms == due_ms


FIRST, SECOND, OTHER = "/m/s/Orders/-/0/0", "/m/s/Orders/-/0/1", "/m/s/Others/-/0/0"


def shown(left, right):
    """Give the pairs of lines of two texts, marked parts in brackets; a number of equal ones."""

    def text(line):
        return None if line is None else f"{line[0]}[{line[1]}]{line[2]}".replace("[]", "")

    pairs = compared(left.split("|"), right.split("|"))
    return [each.skipped or (text(each.left), text(each.right)) for each in pairs]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("a", "a", [1]),
        ("x=1;", "x=22;", [("x=[1];", "x=[22];")]),
        ("aa", "aaa", [("aa", "aa[a]")]),
        ("a|b", "a|b|c", [("a", "a"), ("b", "b"), (None, "[c]")]),
        ("c|a", "a", [("[c]", None), ("a", "a")]),
        ("1|2|3|4|5|x", "1|2|3|4|5|y", [2, ("3", "3"), ("4", "4"), ("5", "5"), ("[x]", "[y]")]),
        ("x|1|2|3|4|5", "y|1|2|3|4|5", [("[x]", "[y]"), ("1", "1"), ("2", "2"), ("3", "3"), 2]),
    ],
)
def test_lines_that_differ_are_beside_each_other(left, right, expected):
    assert shown(left, right) == expected


@pytest.fixture(scope="module")
def made_copies(tmp_path_factory):
    bodies = (b'{"id": 42, "sum": 1}', b'{"id": 42, "sum": 20}', b'{"id": 42, "sum": 1}')
    sent = [
        Sent(
            topic="Orders" if n < 2 else "Others",
            keys="K <b>",
            body=body,
            store_timestamp_ms=NOW_MS + n,
        )
        for n, body in enumerate(bodies)
    ]
    return store_at(make_store(tmp_path_factory.mktemp("made") / "store", sent).path, "s")


def page(made_copies, *pairs, status=200):
    found = answer(f"/compare?{urlencode(pairs)}", made_copies)
    assert found.status_code == status
    return found.text


def test_fields_and_lines_that_differ_are_marked_and_the_older_message_is_left(made_copies):
    text = page(made_copies, ("chosen", SECOND), ("chosen", FIRST))
    assert text.index("Orders 0/0</a>") < text.index("Orders 0/1</a>")
    assert "&#34;sum&#34;: <del>1</del>" in text
    assert "&#34;sum&#34;: <ins>20</ins>" in text
    assert "<del>0/0</del>" in text
    assert "<ins>0/1</ins>" in text
    differing, _, equal = text.partition('<details class="equal">')
    assert "K &lt;b&gt;" not in differing
    assert "K &lt;b&gt;" in equal


def test_equal_bodies_are_said_to_be_equal(made_copies):
    text = page(made_copies, ("chosen", FIRST), ("chosen", OTHER))
    assert "The bodies are equal." in text
    assert "<del>Orders</del>" in text


def test_a_message_is_compared_with_another_of_its_key_or_with_any_position(made_copies):
    (link,) = re.findall(r'href="/compare\?([^"]+)"', answer(FIRST, made_copies).text)
    text = page(made_copies, *parse_qsl(link))
    links = [unescape(each) for each in re.findall(r'href="/compare\?([^"]+)"', text)]
    pages = [page(made_copies, *parse_qsl(each)) for each in links]
    marked = [re.findall("<(del|ins)>(.*?)<", each) for each in pages]
    assert ("ins", "Others") in marked[0]
    assert ("ins", "20") in marked[1]
    asked = page(made_copies, ("chosen", FIRST), ("position", "Orders/0/1"))
    assert "<ins>20</ins>" in asked


@pytest.mark.parametrize(
    ("pairs", "status", "why"),
    [
        ([("chosen", each) for each in (FIRST, SECOND, OTHER)], 400, "3 messages are chosen"),
        ([], 400, "choose two"),
        ([("chosen", "/jobs/x")], 400, "is not the address of a message"),
        ([("chosen", FIRST), ("position", "nowhere")], 400, "nowhere"),
        ([("chosen", FIRST), ("position", "Orders/0/9")], 404, "no message at Orders/0/9"),
    ],
)
def test_what_is_not_two_messages_is_refused_with_the_reason(made_copies, pairs, status, why):
    assert why in page(made_copies, *pairs, status=status)


def test_of_a_long_body_the_beginning_is_compared(tmp_path):
    lines = [f"{n}" for n in range(MAX_COMPARED_LINES + 5)]
    bodies = ["\n".join(lines), "\n".join([*lines[:-1], "end"])]
    sent = [Sent(topic="Orders", body=each.encode()) for each in bodies]
    made = store_at(make_store(tmp_path / "store", sent).path, "s")
    assert "2,000 lines at most" in page(made, ("chosen", FIRST), ("chosen", SECOND))


KEY = "order-4711"


def record(topic, unique_key, offset=0, after_ms=0, **more):
    return {
        "topic": topic,
        "queue_offset": offset,
        "store_timestamp_ms": NOON_MS + after_ms,
        "properties": {"KEYS": KEY, "UNIQ_KEY": unique_key, **more},
    }


def store_of(write_store):
    dead = {"RETRY_TOPIC": "payments", "CONSUME_FAILURE": "billing 2 pod-7 OutOfStock: none left"}
    path = write_store(
        record("orders", "U1"),
        record("payments", "U2", after_ms=5),
        {**record("%DLQ%billing", "U2", after_ms=9, **dead), "reconsume_times": 3},
    )
    return store_at(path, "s")


def test_a_search_by_key_links_to_the_story_of_all_its_messages(write_store):
    source = store_of(write_store)
    page = answer(f"/search?q={KEY}", source).text
    assert 'href="/story?q=order-4711&amp;source=s"' in page
    assert "/story?" not in answer("/search?q=U1", source).text
    told = answer(f"/story?q={KEY}&source=s", source)
    assert told.status_code == 200
    assert "payments/0/0 is a dead letter of billing" in told.text
    assert told.text.index("payments 0/0") < told.text.index("orders 0/0")
    assert "OutOfStock: none left" in told.text


def test_programs_get_the_same(write_store):
    source = store_of(write_store)
    value = answer(f"/api/story?q={KEY}&source=s", source).json()
    assert value["summary"].startswith(f"{KEY}: 2 messages; payments/0/0 is a dead letter of")
    assert "OutOfStock: none left" in value["summary"]
    assert [each["message"]["topic"] for each in value["told"]] == ["payments", "orders"]
    assert value["others"] == []
    nothing = answer("/api/story?q=nowhere&source=s", source).json()
    assert (nothing["told"], nothing["summary"]) == ([], "")
    assert answer("/api/story?topic=orders&source=s", source).status_code == 400
