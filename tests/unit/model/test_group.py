"""Lag of a group, and what its retry and dead letter topics are named."""

from dataclasses import replace

import pytest

from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.group import FoundGroup, GroupQueue, GroupsAnswer, group_of_topic

QUEUE = GroupQueue("T", "b", 0, 10, 4, 7)
GROUP = FoundGroup("g", (), None, {}, (QUEUE, replace(QUEUE, topic="%RETRY%g", queue_id=1)), 0)


@pytest.mark.parametrize(
    ("consumer_offset", "min_offset", "lag"), [(4, 0, 6), (-1, 0, 10), (-1, 8, 2), (12, 0, 0)]
)
def test_the_lag_is_what_was_not_consumed_and_is_there(consumer_offset, min_offset, lag):
    queue = replace(QUEUE, consumer_offset=consumer_offset, min_offset=min_offset)
    assert queue.lag == lag


def test_retries_are_counted_apart():
    assert (GROUP.lag, GROUP.to_retry, GROUP.last_consumed_ms) == (6, 6, 7)


def test_what_is_not_known_is_not_zero():
    group = replace(GROUP, queues=None)
    assert (group.lag, group.to_retry, group.last_consumed_ms) == (None, None, None)


def test_groups_are_known_by_their_topics():
    assert [group_of_topic(each) for each in ("%RETRY%g", "%DLQ%g", "g")] == ["g", "g", None]


def test_an_answer_of_groups_is_iterated_over_and_printed_in_few_words():
    found = GROUP
    searched = Coverage("broker-b", SourceKind.BROKER, SourceState.SEARCHED)
    failed = Coverage("broker-a", SourceKind.BROKER, SourceState.FAILED, error="no answer")
    assert list(GroupsAnswer((found,), (searched,))) == [found]
    assert repr(GroupsAnswer((found,), (searched,))) == "GroupsAnswer(1 group, complete)"
    assert repr(GroupsAnswer((), (failed,))) == "GroupsAnswer(0 groups, INCOMPLETE: 1 failed)"


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        (None, None),
        ((), 0),
        ((GroupQueue("T", None, 0, 5, 5, 100),), 0),
        ((GroupQueue("T", None, 0, 9, 5, 400), GroupQueue("T", None, 1, 9, 5, 100)), 900),
        ((GroupQueue("T", None, 0, 9, 5, 100), GroupQueue("T", None, 1, 5, 5, 1)), 900),
        ((GroupQueue("T", None, 0, 9, -1, None),), None),
    ],
)
def test_a_group_is_behind_by_the_age_of_what_it_consumed_last(queues, expected):
    group = FoundGroup("g", None, None, None, queues, None)
    assert group.behind_ms(1000) == expected
