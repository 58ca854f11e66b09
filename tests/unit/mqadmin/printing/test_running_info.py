"""What is inferred from what consumers say they are doing."""

from dataclasses import replace

from rocketlens.mqadmin.printing.form import Form
from rocketlens.mqadmin.printing.running_info import (
    START_TIMESTAMP,
    is_push,
    is_subscribed_alike,
    stuck_queues_text,
)
from tests.support.fake_cluster import T0
from tests.support.group_world import running_info, subscription

LATER = T0 + 600_000
NEW, OLD = Form(), Form(is_5=False)


def test_subscriptions_differ_by_topic_and_expression_once_the_first_runs_for_two_minutes():
    first = running_info("g-push")
    other = replace(first, subscriptions=(subscription("T", "TagA"),))
    none = replace(first, subscriptions=())
    assert is_subscribed_alike(NEW, {"a": first, "b": first}, LATER)
    assert not is_subscribed_alike(NEW, {"a": first, "b": other}, LATER)
    assert is_subscribed_alike(NEW, {"a": first, "b": other}, T0 + 120_000)
    # Only 4.9 takes a client that subscribes to nothing for one that differs.
    assert is_subscribed_alike(NEW, {"a": none}, LATER)
    assert not is_subscribed_alike(OLD, {"a": none}, LATER)
    pulls = running_info("g-pull")
    assert is_subscribed_alike(NEW, {"a": pulls, "b": other}, LATER)
    unsaid = replace(first, properties={**first.properties, START_TIMESTAMP: "soon"})
    assert is_subscribed_alike(NEW, {"a": unsaid, "b": other}, LATER)


def test_queues_that_seem_stuck_are_named():
    text = stuck_queues_text(NEW, "c", running_info("g-push"), LATER)
    assert [line.split("queueId=")[1] for line in text.splitlines()] == [
        "1] can't consume for a while, maybe blocked, 599998ms",
        "2] can't consume for a while, maybe blocked, 599998ms",
    ]
    orderly = stuck_queues_text(NEW, "c", running_info("g-tag"), LATER)
    assert [line.split("queueId=")[1] for line in orderly.splitlines()] == [
        "0] can't lock for a while, 599997ms",
        "2] unlock 2 times, still failed",
    ]
    assert stuck_queues_text(NEW, "c", running_info("g-pull"), LATER) == ""
    assert stuck_queues_text(NEW, "c", running_info("g-push"), T0 + 1_000) == ""
    assert is_push(running_info("g-push"))
    assert not is_push(running_info("g-pop"))
