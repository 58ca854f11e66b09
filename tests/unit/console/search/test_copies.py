"""Records of one message stand together on a page, under the one that groups read first."""

import re

from rocketlens.console.search.copies import with_copies
from tests.support.console_client import answer, store_at
from tests.support.made_stores import NOW_MS, Sent, make_store

FIRST, OTHER = "0A00000100002A9F0000000000000001", "0A00000100002A9F0000000000000002"


def topics_of(page):
    """Return the topic of each row, and whether the row is marked as a copy."""
    cells = re.findall(r'<td class="topic" title="([^"]*)">(.*?)</td>', page, re.DOTALL)
    return [(topic, "↳" in cell) for topic, cell in cells]


def test_retries_dead_letters_and_delayed_copies_stand_under_the_first(tmp_path):
    topics = [
        ("SCHEDULE_TOPIC_XXXX", FIRST),
        ("Orders", FIRST),
        ("%RETRY%shipping", FIRST),
        ("Orders", OTHER),
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
