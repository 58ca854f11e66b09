"""Lists are sorted by their columns, and asked again while they are looked at."""

import re
from types import SimpleNamespace

import pytest
from starlette.datastructures import QueryParams

from rocketlens import testing
from rocketlens.client.send.message import Message
from rocketlens.console.search import columns as list_view
from rocketlens.console.search.columns import Column, ListView, with_copies
from rocketlens.console.values import GroupValue, MessageRow, TopicValue
from tests.support.console_client import answer, answers, cluster_at, store_at
from tests.support.made_stores import NOW_MS, Sent, make_store

COLUMNS = {"name": Column(lambda each: each[0], falls_first=False), "count": Column(lambda e: e[1])}
ROWS = [("b", 2), ("a", None), ("c", 3), ("d", 2)]


def view_of(query, columns=COLUMNS):
    request = SimpleNamespace(url=SimpleNamespace(path="/list"), query_params=QueryParams(query))
    return ListView(request, columns)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "bacd"),
        ("sort=name", "abcd"),
        ("sort=-name", "dcba"),
        ("sort=count", "bdca"),
        ("sort=-count", "cbda"),
        ("sort=nonsense", "bacd"),
    ],
)
def test_rows_are_in_the_order_of_a_column_and_what_is_not_known_is_last(query, expected):
    assert "".join(name for name, _ in view_of(query).sorted(ROWS)) == expected


def test_a_column_that_is_chosen_again_is_sorted_the_other_way_round():
    view = view_of("source=s&all=true")
    assert view.sort_address("name") == "/list?source=s&all=true&sort=name"
    assert view.sort_address("count") == "/list?source=s&all=true&sort=-count"
    again = view_of("sort=-count&source=s")
    assert again.sort_address("count") == "/list?source=s&sort=count"
    assert again.sort_address("name") == "/list?source=s&sort=name"
    assert (again.order_of("count"), again.order_of("name")) == ("descending", "")


def test_the_live_view_is_in_the_address():
    assert view_of("").live_address == "/list?live=true"
    live = view_of("live=true&sort=name")
    assert live.is_live
    assert live.live_address == "/list?sort=name"


@pytest.mark.parametrize(
    ("columns", "model"),
    [
        (list_view.TOPIC_COLUMNS, TopicValue),
        (list_view.GROUP_COLUMNS, GroupValue),
        (list_view.message_columns(["id"]), MessageRow),
    ],
)
def test_every_column_is_one_of_what_is_listed(columns, model):
    empty = model.model_construct(**dict.fromkeys(model.model_fields))
    for column in columns.values():
        column.value_of(empty)


@pytest.fixture(scope="module")
def running():
    with testing.cluster() as cluster, cluster.producer() as producer:
        for name, count in (("few", 1), ("many", 9), ("some", 4)):
            for _ in range(count):
                producer.send(Message(name, b"x"))
        yield cluster


def rows_of(page):
    return re.findall(r'<tr data-path="/(?:topics/|groups\?group=)(\w+)', page.text)


def test_topics_are_sorted_and_say_so(running):
    context = cluster_at(running.name_server, "live")
    usual, most, least = answers(
        ["/topics", "/topics?sort=-messages", "/topics?sort=messages"], context
    )
    named = [each for each in rows_of(usual) if each in {"few", "many", "some"}]
    assert named == ["few", "many", "some"]
    assert rows_of(most)[:3] == ["many", "some", "few"]
    assert [each for each in rows_of(least) if each in named] == ["few", "some", "many"]
    assert most.text.count('aria-sort="descending"') == 1
    assert "aria-sort" not in usual.text
    assert 'href="/topics?sort=messages"' in most.text


def test_groups_are_sorted_by_lag(tmp_path):
    made = make_store(tmp_path / "store", [Sent() for _ in range(9)])
    offsets = '{"offsetTable": {"Orders@a": {"0": 8}, "Orders@b": {"0": 1}, "Orders@c": {"0": 5}}}'
    (made.path / "config").mkdir(exist_ok=True)
    (made.path / "config" / "consumerOffset.json").write_text(offsets)
    page = answer("/groups?sort=-lag", store_at(made.path, "s"))
    assert rows_of(page) == ["b", "c", "a"]


def test_only_a_list_that_is_looked_at_live_comes_again(running):
    context = cluster_at(running.name_server, "live")
    for path in ("/topics", "/groups", "/topics/many"):
        still, live = answers([path, f"{path}?live=true"], context)
        assert "data-refresh" not in still.text
        assert f'data-refresh="{path}?live=true" data-every="10000"' in live.text
        assert f'href="{path}?live=true"' in still.text
        assert f'href="{path}"' in live.text


@pytest.fixture
def orders(tmp_path):
    sent = [
        Sent(
            keys=f"all K-{n * 7 % 10}", body=b"x" * (n * 3 % 10 + 1), store_timestamp_ms=NOW_MS + n
        )
        for n in range(10)
    ]
    return make_store(tmp_path / "store", sent)


def offsets_in(page):
    return [int(each) for each in re.findall(r'<tr data-path="/m/s/Orders/[^/]+/0/(\d+)"', page)]


def test_results_are_sorted_within_their_page_and_the_page_says_so(orders):
    context = store_at(orders.path, "s")
    whole, part, streamed = answers(
        [
            "/search?topic=Orders&sort=size",
            "/search?topic=Orders&max=4&sort=time",
            "/search/rows?topic=Orders&sort=size",
        ],
        context,
    )
    by_size = sorted(range(10), key=lambda n: n * 3 % 10)
    assert offsets_in(whole.text) == by_size
    assert offsets_in(streamed.text.rpartition("event: answer")[2]) == by_size
    assert 'href="/search?topic=Orders&amp;sort=-size"' in streamed.text
    assert "of this page only" not in whole.text.partition("facets")[0]
    assert offsets_in(part.text) == [6, 7, 8, 9]
    assert "Only the 4 messages of this page are sorted" in part.text
    # The next page is sorted, too, and is no continuation of this one.
    assert "data-more" not in part.text
    (older,) = re.findall(r'rel="next" href="([^"]+)"', part.text)
    assert offsets_in(answer(older.replace("&amp;", "&"), context).text) == [2, 3, 4, 5]


def test_names_of_topics_are_suggested_and_those_of_groups_are_last(running):
    with running.admin() as admin:
        admin.create_topic("%RETRY%a", 1)
    found = answer("/api/topic-names", cluster_at(running.name_server, "live")).json()
    assert found["complete"]
    assert found["names"].index("some") < found["names"].index("%RETRY%a")
    page = answer("/search?form=time", cluster_at(running.name_server, "live")).text
    assert '<datalist id="suggestions">' in page
    assert 'data-suggests="topic"' in page


def test_names_of_a_store_are_suggested_and_a_source_that_fails_makes_them_incomplete(orders):
    gone = cluster_at("127.0.0.1:1", "gone")
    one, both = (
        answer("/api/topic-names", *sources).json()
        for sources in ([store_at(orders.path, "s")], [store_at(orders.path, "s"), gone])
    )
    assert one["complete"]
    assert not both["complete"]
    assert "Orders" in one["names"]
    assert "Orders" in both["names"]


FIRST, OTHER = "0A00000100002A9F0000000000000001", "0A00000100002A9F0000000000000002"


def topics_of(page):
    """Return the topic of each row, and whether the row is marked as a copy."""
    cells = re.findall(r'<td class="topic" title="([^"]*)">(.*?)</td>', page, re.DOTALL)
    return [(topic, "↳" in cell) for topic, cell in cells]


def test_all_copies_stand_under_the_first_in_the_order_of_time(tmp_path):
    topics = [
        ("SCHEDULE_TOPIC_XXXX", FIRST),
        ("Orders", FIRST),
        ("%RETRY%shipping", FIRST),
        ("Orders", OTHER),
        ("SCHEDULE_TOPIC_XXXX", FIRST),
        ("%RETRY%shipping", FIRST),
        ("%DLQ%shipping", FIRST),
    ]
    sent = [
        Sent(topic=topic, keys="ORDER-1", unique_key=key, store_timestamp_ms=NOW_MS + number)
        for number, (topic, key) in enumerate(topics)
    ]
    store = store_at(make_store(tmp_path / "store", sent).path)
    expected = [
        ("Orders", False),
        ("SCHEDULE_TOPIC_XXXX", True),
        ("%RETRY%shipping", True),
        ("SCHEDULE_TOPIC_XXXX", True),
        ("%RETRY%shipping", True),
        ("%DLQ%shipping", True),
        ("Orders", False),
    ]
    for path in ("/search?q=ORDER-1", "/search/more?q=ORDER-1"):
        assert topics_of(answer(path, store).text) == expected
    # Programs get them as they were stored.
    found = answer("/api/search?q=ORDER-1", store).json()["messages"]
    assert [each["topic"] for each in found] == [topic for topic, _ in reversed(topics)]


def test_messages_without_an_id_are_no_copies_of_each_other(tmp_path):
    sent = [Sent(keys="ORDER-1", store_timestamp_ms=NOW_MS + number) for number in range(3)]
    store = store_at(make_store(tmp_path / "store", sent).path)
    page = answer("/search?q=ORDER-1", store).text
    assert topics_of(page) == [("Orders", False)] * 3
    assert with_copies([]) == []
