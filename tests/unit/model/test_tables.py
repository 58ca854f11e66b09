"""Answers as tables of notebooks and of pandas."""

import pytest

from rocketlens import open_store


@pytest.fixture
def store(golden):
    with open_store(golden("5.5.0").store) as opened:
        yield opened


@pytest.mark.parametrize(
    ("ask", "shown", "titles"),
    [
        (lambda store: store.topics(), "TopicsAnswer(20 topics, complete)", ["topic", "queues"]),
        (lambda store: store.groups(), "GroupsAnswer(1 group, complete)", ["group", "members"]),
        (lambda store: store.status(), "StoreStatus('", ["name", "value"]),
        (
            lambda store: store.story("order-42"),
            "Story('order-42', 4 events, 1 group, complete)",
            ["message", "time"],
        ),
    ],
    ids=["topics", "groups", "status", "story"],
)
def test_answers_are_short_texts_and_tables(store, ask, shown, titles):
    answer = ask(store)
    assert repr(answer).startswith(shown)
    assert len(repr(answer)) < 200
    table = answer._repr_html_()
    assert f"<th>{titles[0]}</th><th>{titles[1]}</th>" in table
    assert "2026-11-21 02:40:" in table
    frame = answer.to_pandas()
    assert list(frame.columns)[:2] == titles
    assert len(frame) > 0


def test_a_story_is_printed_as_lines(store):
    first, *_ = str(store.story("order-42")).splitlines()
    assert first.startswith("2026-11-21 02:40:39.117  sent from 127.0.0.1:35016")


def test_times_of_a_data_frame_have_a_zone(store):
    frame = store.topics("PayTopic").to_pandas()
    assert str(frame["newest"].dt.tz) == "UTC"
    assert frame["newest"][0].isoformat() == "2026-11-21T02:40:40.853000+00:00"
