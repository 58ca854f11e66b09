"""Beside an answer stands what its messages are counted by, each a link that narrows the search."""

import asyncio
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import testing
from rocketlens.client.send.message import Message
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.search.question import Question
from rocketlens.console.search.search import (
    MAX_FACET_VALUES,
    MAX_TIME_BARS,
    facets_of,
    question_for_bar,
    question_for_facet,
    time_counts,
)
from rocketlens.console.sources.masks import MaskRule, Masks
from rocketlens.console.values import MessageRow
from rocketlens.query.filters.pattern import TextPattern
from rocketlens.terminal.contexts import Context
from tests.support.console_client import (
    answer,
    answers,
    cluster_at,
    console_client,
    log_in,
    store_at,
)
from tests.support.console_users import user
from tests.support.made_stores import NOW_MS, Sent, make_store
from tests.support.xss_payloads import PAYLOADS

HOUR_MS = 3_600_000
TAGS = ("PAY", "REFUND", None)


@pytest.fixture
def orders(tmp_path):
    """A store with messages of two topics, two tags and none, and three hours."""
    sent = [
        Sent(
            topic="order-paid" if n % 4 else "order-created",
            keys="all",
            tags=TAGS[n % 3],
            store_timestamp_ms=NOW_MS + n // 4 * HOUR_MS,
        )
        for n in range(12)
    ]
    return store_at(make_store(tmp_path / "orders", sent).path, "s")


def facets_in(found):
    """Give the facets of an answer of the API by name: pairs of value and count."""
    return {
        facet["name"]: [(each["value"], each["count"]) for each in facet["counts"]]
        for facet in found.json()["facets"]
    }


def links_in(page):
    """Give the links of the facets of a page, each with the number that stands in it."""
    (area,) = re.findall(r'<dl class="facets">(.*?)</dl>', page.text, re.DOTALL)
    link = r'<a class="chip" href="([^"]+)">[^<]*<span class="muted">(\d+)</span>'
    links = re.findall(link, area)
    return [(unescape(path), int(count)) for path, count in links]


def test_topics_tags_and_hours_of_what_was_found_are_counted(orders):
    facets = facets_in(answer("/api/search?q=all", orders))
    assert facets["topic"] == [("order-paid", 9), ("order-created", 3)]
    assert dict(facets["tag"]) == {"PAY": 4, "REFUND": 4, None: 4}
    first = NOW_MS // HOUR_MS * HOUR_MS
    assert facets["hour"] == [(str(first + n * HOUR_MS), 4) for n in (2, 1, 0)]


@pytest.mark.parametrize("search", ["q=all", "topic=order-*", f"q=all&since={NOW_MS + 1}"])
def test_each_link_finds_the_messages_that_it_counts(orders, search):
    links = links_in(answer(f"/search?{search}", orders))
    assert len(links) >= 6
    assert all(path.startswith("/search?") for path, _ in links)
    for path, count in links:
        found = answer(f"/api{path}", orders).json()
        assert (found["complete"], len(found["messages"])) == (True, count), path


def test_a_facet_with_one_value_is_left_out(orders):
    found = answer("/api/search?q=all&topic=order-paid&tag=PAY", orders)
    assert set(facets_in(found)) == {"hour"}
    page = answer("/search?q=all&max=1", orders)
    assert page.status_code == 200
    assert 'class="facets"' not in page.text


def test_facets_of_a_part_say_so_and_those_of_all_do_not(orders):
    (first,) = answers(["/api/search?q=all&max=7"], orders)
    cursor = first.json()["next_cursor"]
    part, rest, whole = answers(
        ["/search?q=all&max=5", f"/search?q=all&max=7&cursor={cursor}", "/search?q=all"], orders
    )
    said = "Counted in the {} messages of this page only"
    assert said.format(5) in part.text
    assert said.format(5) in rest.text
    assert "of this page only" not in whole.text
    assert sum(count for _, count in facets_in(first)["topic"]) == 7


def test_more_values_than_are_listed_are_counted(tmp_path):
    count = MAX_FACET_VALUES + 3
    made = make_store(tmp_path / "s", [Sent(keys="all", tags=f"T{n}") for n in range(count)])
    source = store_at(made.path, "s")
    (facet,) = answer("/api/search?q=all", source).json()["facets"]
    assert (len(facet["counts"]), facet["more"]) == (MAX_FACET_VALUES, 3)
    assert "and 3 more" in answer("/search?q=all", source).text


def test_hostile_tags_add_nothing_to_the_page_but_their_text(tmp_path):
    texts = [each for each in PAYLOADS if each.strip()][:10]
    sent = [Sent(keys="all", tags=each) for each in ("harmless", *texts)]
    page = answer("/search?q=all", store_at(make_store(tmp_path / "s", sent).path, "s"))
    (area,) = re.findall(r'<dl class="facets">(.*?)</dl>', page.text, re.DOTALL)
    assert set(re.findall(r"<(\w+)", area)) <= {"div", "dt", "dd", "a", "span"}
    assert all(path.startswith("/search?") for path, _ in links_in(page))
    assert not re.search(r"<[^>]*\son\w+=", area)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tag", None),
        ("tag", "A || B"),
        ("tag", " A"),
        ("tag", "*"),
        ("tag", "P***"),
        ("tag", "T" * 300),
        ("topic", "a*"),
        ("topic", "a,b"),
    ],
)
def test_what_no_search_can_be_narrowed_to_is_counted_without_a_link(name, value):
    assert question_for_facet(Question.read(q="all"), name, value) is None


def test_an_hour_is_narrowed_within_the_times_that_were_asked_for():
    hour = NOW_MS // HOUR_MS * HOUR_MS
    asked = Question.read(q="all", since=str(hour + 5), until=str(hour + 9))
    found = question_for_facet(asked, "hour", str(hour))
    assert (found.since, found.until) == (str(hour + 5), str(hour + 9))
    found = question_for_facet(Question.read(q="all"), "hour", str(hour))
    assert (found.begin, found.end) == (hour, hour + HOUR_MS - 1)


def test_of_nothing_there_is_no_facet():
    assert facets_of([]) == []


def test_a_tag_that_is_masked_is_masked_in_its_facet(tmp_path):
    sent = [Sent(topic="Orders", keys="all", tags=each) for each in ("PAY", "SECRET-1", "SECRET-2")]
    source = store_at(make_store(tmp_path / "s", sent).path, "s")
    rule = MaskRule(("*",), (), (), TextPattern("SECRET-[0-9]"))
    li = user("li", Grant(Role.VIEWER))
    root = user("root", Grant(Role.ADMIN))

    async def ask(name):
        async with console_client(source, users=LocalUsers([li, root], Masks([rule]))) as client:
            await log_in(client, name)
            return await client.get("/api/search?q=all"), await client.get("/search?q=all")

    found, page = asyncio.run(ask("li"))
    assert sorted(facets_in(found)["tag"]) == [("***", 2), ("PAY", 1)]
    assert "SECRET" not in page.text
    assert [path for path, _ in links_in(page)] == ["/search?q=all&tag=PAY"]
    found, _ = asyncio.run(ask("root"))
    assert len(facets_in(found)["tag"]) == 3


def test_links_of_a_cluster_with_a_namespace_find_what_they_count():
    with testing.cluster() as running:
        with running.producer() as producer:
            for topic in ("shop%paid", "shop%paid", "shop%created"):
                producer.send(Message(topic, b"x", keys="all"))
        context = ("s", Context(namesrv=running.name_server, namespace="shop"))

        async def ask():
            async with console_client(context) as client:
                links = links_in(await client.get("/search?q=all"))
                found = [(await client.get(f"/api{path}")).json() for path, _ in links]
                return [count for _, count in links], [len(each["messages"]) for each in found]

        counts, found = asyncio.run(ask())
    assert counts == found == [2, 1]


def test_facets_are_described_for_programs(orders):
    described = answer("/api/openapi.json", orders).json()["components"]["schemas"]
    assert "facets" in described["SearchAnswer"]["required"]
    assert set(described["FacetValue"]["properties"]) == {"name", "counts", "more"}


MINUTE_MS = 60_000


def rows_of(times):
    return [MessageRow.model_construct(store_timestamp_ms=each) for each in times]


@given(times=st.lists(st.integers(0, 2**45), min_size=1, max_size=50))
def test_every_message_is_in_one_bar_and_there_are_not_too_many_bars(times):
    found = time_counts(rows_of(times), Question(), is_whole=False)
    if found is None:
        return
    assert sum(found.counts) == len(times)
    assert 2 <= len(found.counts) <= MAX_TIME_BARS
    assert found.begin_ms % found.step_ms == 0
    assert found.begin_ms <= min(times)
    assert max(times) < found.begin_ms + found.step_ms * len(found.counts)
    assert found.counts[0]
    assert len(found.counts) >= 20 or found.step_ms > 1


def test_messages_of_one_time_have_no_bars():
    assert time_counts([], Question(), is_whole=True) is None
    assert time_counts(rows_of([NOW_MS]), Question(), is_whole=True) is None
    assert time_counts(rows_of([NOW_MS] * 9), Question(), is_whole=False) is None


def test_a_page_with_all_that_was_found_has_all_of_the_time_that_was_asked_for():
    rows = rows_of([NOW_MS, NOW_MS + 10 * MINUTE_MS])
    asked = Question.read(topic="T", since=str(NOW_MS - 3_600_000), until=str(NOW_MS + 3_600_000))
    whole = time_counts(rows, asked, is_whole=True)
    part = time_counts(rows, asked, is_whole=False)
    assert whole.step_ms * len(whole.counts) >= 2 * 3_600_000
    assert part.step_ms * len(part.counts) <= 12 * MINUTE_MS


def test_messages_that_a_long_time_has_in_one_bar_have_bars_of_their_own_time():
    rows = rows_of([NOW_MS, NOW_MS + 700])
    asked = Question.read(topic="T", since=str(NOW_MS - 86_400_000))
    found = time_counts(rows, asked, is_whole=True)
    assert found.step_ms < 1000
    assert sum(found.counts) == 2


def test_a_part_of_a_time_is_within_what_was_asked_for_and_written_as_its_reader_does():
    asked = Question.read(topic="T", since=str(NOW_MS), until=str(NOW_MS + 100))
    found = question_for_bar(asked, NOW_MS - 50, NOW_MS + 49, "Asia/Shanghai")
    assert (found.begin, found.end) == (NOW_MS, NOW_MS + 49)
    again = Question.read(
        topic="T", since=found.since, until=found.until, zone_name="Asia/Shanghai"
    )
    assert (again.begin, again.end) == (NOW_MS, NOW_MS + 49)


@pytest.fixture
def three_minutes(tmp_path):
    """A store with messages of three minutes: one, two and four of them."""
    minutes = [0, 1, 1, 2, 2, 2, 2]
    begin_ms = NOW_MS // MINUTE_MS * MINUTE_MS
    sent = [
        Sent(keys=f"all K-{n}", tags="TagA", store_timestamp_ms=begin_ms + each * MINUTE_MS + n)
        for n, each in enumerate(minutes)
    ]
    return store_at(make_store(tmp_path / "orders", sent).path, "s")


def bars_in(page):
    """Give the links of the bars of a page, each with its number."""
    (plot,) = re.findall(r'<svg class="bars".*?</svg>', page, re.DOTALL)
    found = re.findall(r'href="([^"]+)"><title>[^<]*: (\d+)</title>', plot)
    return [(unescape(path), int(count)) for path, count in found]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_each_bar_leads_to_the_messages_that_it_counts(three_minutes, zone):
    cookies = {"rl_zone": zone}
    bars = bars_in(answer("/search?q=all", three_minutes, cookies=cookies).text)
    assert sum(count for _, count in bars) == 7
    filled = [each for each in bars if each[1]]
    assert len(filled) == 3
    for path, count in filled:
        assert path.startswith("/search?q=all&since=")
        found = answer(f"/api{path}", three_minutes, cookies=cookies).json()
        assert (found["complete"], len(found["messages"])) == (True, count), path


def test_the_bars_are_of_the_page_which_says_so_where_there_are_more(three_minutes):
    part, whole, api = answers(
        ["/search?q=all&max=5", "/search?q=all", "/api/search?q=all&max=5"], three_minutes
    )
    assert sum(count for _, count in bars_in(part.text)) == 5
    assert "Counted in the 5 messages of this page only" in part.text
    assert "of this page only" not in whole.text
    assert sum(api.json()["time_counts"]["counts"]) == 5


def bars_of(query, *contexts):
    """Give the bars of an answer of the API that are not empty, and whether they are of all."""
    found = answer(f"/api/search?{query}&max=2", *contexts).json()["time_counts"]
    assert found is None or len(found["counts"]) <= MAX_TIME_BARS
    return found and ([each for each in found["counts"] if each], found["is_of_all"])


SINCE = f"since={NOW_MS - 2 * MINUTE_MS}&until={NOW_MS + 5 * MINUTE_MS}"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"topic=Orders&{SINCE}", ([1, 2, 4], True)),
        (f"topic=Orders&since={NOW_MS}&until={NOW_MS + MINUTE_MS}", ([2], True)),
        # No queue counts these; of a store no queue says its oldest time.
        ("topic=Orders", ([1, 1], False)),
        (f"topic=Order*&{SINCE}", ([1, 1], False)),
        (f"topic=Orders&tag=TagA&{SINCE}", ([1, 1], False)),
        (f"q=all&topic=Orders&{SINCE}", ([1, 1], False)),
        (f"topic=Orders&where=tag='TagA'&{SINCE}", ([1, 1], False)),
    ],
)
def test_the_bars_of_a_time_of_a_topic_are_of_all_of_it(three_minutes, query, expected):
    assert bars_of(query, three_minutes) == expected


def test_what_two_sources_can_have_both_is_not_counted_twice(three_minutes):
    other = ("copy", three_minutes[1])
    query = f"topic=Orders&{SINCE}"
    assert bars_of(query, three_minutes, other)[1] is False
    assert bars_of(f"{query}&source=copy", three_minutes, other) == ([1, 2, 4], True)
    page = answer(f"/search?{query}&max=2", three_minutes).text
    assert "about 7 in all" in page
    assert "of this page only" not in page


def test_the_bars_of_a_topic_of_a_cluster_are_of_all_its_messages():
    with testing.cluster() as running:
        with running.producer() as producer:
            for number in range(9):
                producer.send(Message("order-paid", f"{number}"))
        live = cluster_at(running.name_server, "live")
        for query in ("topic=order-paid", "topic=order-paid&since=1h"):
            counts, is_of_all = bars_of(query, live)
            assert (sum(counts), is_of_all) == (9, True)


def test_an_answer_that_streams_in_has_its_bars_too(three_minutes):
    streamed = answer("/search/rows?q=all", three_minutes).text.rpartition("event: answer")[2]
    assert sum(count for _, count in bars_in(streamed)) == 7


def test_one_message_has_no_plot(three_minutes):
    assert "<svg" not in answer("/search?q=K-1", three_minutes).text
    assert answer("/api/search?q=K-1", three_minutes).json()["time_counts"] is None


def test_the_plot_is_there_in_chinese(three_minutes):
    page = answer("/search?q=all", three_minutes, cookies={"rl_language": "zh"}).text
    assert "消息的时间分布" in page
    assert "Messages by time" not in page
