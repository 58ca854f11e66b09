"""The bars above the messages of a page count each once, and lead to those that they count."""

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.console.search.question import Question
from rocketlens.console.search.time_counts import time_counts, within
from rocketlens.console.values import MessageRow
from tests.support.console_client import answer, answers, store_at
from tests.support.made_stores import NOW_MS, Sent, make_store

MINUTE_MS = 60_000


def rows_of(times):
    return [MessageRow.model_construct(store_timestamp_ms=each) for each in times]


@given(times=st.lists(st.integers(0, 2**45), min_size=1, max_size=50))
def test_every_message_is_in_one_bar_and_there_are_not_too_many_bars(times):
    found = time_counts(rows_of(times), Question(), is_whole=False)
    if found is None:
        return
    assert sum(found.counts) == len(times)
    assert 2 <= len(found.counts) <= limits.MAX_TIME_BARS
    assert found.begin_ms % found.step_ms == 0
    assert found.begin_ms <= min(times)
    assert max(times) < found.begin_ms + found.step_ms * len(found.counts)
    assert found.counts[0]
    assert found.counts[-1]


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
    found = within(asked, NOW_MS - 50, NOW_MS + 49, "Asia/Shanghai")
    assert (found.begin, found.end) == (NOW_MS, NOW_MS + 49)
    again = Question.read(
        topic="T", since=found.since, until=found.until, zone_name="Asia/Shanghai"
    )
    assert (again.begin, again.end) == (NOW_MS, NOW_MS + 49)


@pytest.fixture
def orders(tmp_path):
    """A store with messages of three minutes: one, two and four of them."""
    minutes = [0, 1, 1, 2, 2, 2, 2]
    begin_ms = NOW_MS // MINUTE_MS * MINUTE_MS
    sent = [
        Sent(keys=f"all K-{n}", store_timestamp_ms=begin_ms + each * MINUTE_MS + n)
        for n, each in enumerate(minutes)
    ]
    return store_at(make_store(tmp_path / "orders", sent).path, "s")


def bars_in(page):
    """Give the links of the bars of a page, each with its number."""
    (plot,) = re.findall(r'<svg class="bars".*?</svg>', page, re.DOTALL)
    found = re.findall(r'href="([^"]+)"><title>[^<]*: (\d+)</title>', plot)
    return [(unescape(path), int(count)) for path, count in found]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_each_bar_leads_to_the_messages_that_it_counts(orders, zone):
    cookies = {"rl_zone": zone}
    bars = bars_in(answer("/search?q=all", orders, cookies=cookies).text)
    assert sum(count for _, count in bars) == 7
    filled = [each for each in bars if each[1]]
    assert len(filled) == 3
    for path, count in filled:
        assert path.startswith("/search?q=all&since=")
        found = answer(f"/api{path}", orders, cookies=cookies).json()
        assert (found["complete"], len(found["messages"])) == (True, count), path


def test_the_bars_are_of_the_page_which_says_so_where_there_are_more(orders):
    part, whole, api = answers(
        ["/search?q=all&max=5", "/search?q=all", "/api/search?q=all&max=5"], orders
    )
    assert sum(count for _, count in bars_in(part.text)) == 5
    assert "Counted in the 5 messages of this page only" in part.text
    assert "of this page only" not in whole.text
    assert sum(api.json()["time_counts"]["counts"]) == 5


def test_an_answer_that_streams_in_has_its_bars_too(orders):
    streamed = answer("/search/rows?q=all", orders).text.rpartition("event: answer")[2]
    assert sum(count for _, count in bars_in(streamed)) == 7


def test_one_message_has_no_plot(orders):
    assert "<svg" not in answer("/search?q=K-1", orders).text
    assert answer("/api/search?q=K-1", orders).json()["time_counts"] is None


def test_the_plot_is_there_in_chinese(orders):
    page = answer("/search?q=all", orders, cookies={"rl_language": "zh"}).text
    assert "消息的时间分布" in page
    assert "Messages by time" not in page
