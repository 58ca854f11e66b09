"""Two messages side by side: what differs is marked, what is equal is not in the way."""

import re
from html import unescape
from urllib.parse import parse_qsl, urlencode

import pytest

from rocketlens.console.message.compare import MAX_COMPARED_LINES, compared
from tests.support.console_client import answer, store_at
from tests.support.made_stores import NOW_MS, Sent, make_store

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
def store(tmp_path_factory):
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


def page(store, *pairs, status=200):
    found = answer(f"/compare?{urlencode(pairs)}", store)
    assert found.status_code == status
    return found.text


def test_fields_and_lines_that_differ_are_marked_and_the_older_message_is_left(store):
    text = page(store, ("chosen", SECOND), ("chosen", FIRST))
    assert text.index("Orders 0/0</a>") < text.index("Orders 0/1</a>")
    assert "&#34;sum&#34;: <del>1</del>" in text
    assert "&#34;sum&#34;: <ins>20</ins>" in text
    assert "<del>0/0</del>" in text
    assert "<ins>0/1</ins>" in text
    differing, _, equal = text.partition('<details class="equal">')
    assert "K &lt;b&gt;" not in differing
    assert "K &lt;b&gt;" in equal


def test_equal_bodies_are_said_to_be_equal(store):
    text = page(store, ("chosen", FIRST), ("chosen", OTHER))
    assert "The bodies are equal." in text
    assert "<del>Orders</del>" in text


def test_a_message_is_compared_with_another_of_its_key_or_with_any_position(store):
    (link,) = re.findall(r'href="/compare\?([^"]+)"', answer(FIRST, store).text)
    text = page(store, *parse_qsl(link))
    links = [unescape(each) for each in re.findall(r'href="/compare\?([^"]+)"', text)]
    marked = [re.findall("<(del|ins)>(.*?)<", page(store, *parse_qsl(each))) for each in links]
    assert ("ins", "Others") in marked[0]
    assert ("ins", "20") in marked[1]
    asked = page(store, ("chosen", FIRST), ("position", "Orders/0/1"))
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
def test_what_is_not_two_messages_is_refused_with_the_reason(store, pairs, status, why):
    assert why in page(store, *pairs, status=status)


def test_of_a_long_body_the_beginning_is_compared(tmp_path):
    lines = [f"{n}" for n in range(MAX_COMPARED_LINES + 5)]
    bodies = ["\n".join(lines), "\n".join([*lines[:-1], "end"])]
    sent = [Sent(topic="Orders", body=each.encode()) for each in bodies]
    made = store_at(make_store(tmp_path / "store", sent).path, "s")
    assert "2,000 lines at most" in page(made, ("chosen", FIRST), ("chosen", SECOND))
