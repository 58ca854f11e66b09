"""Topics as values: their kinds, and what follows from their queues."""

import pytest

from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.topic import FoundTopic, TopicKind, TopicQueue, TopicsAnswer


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Orders", TopicKind.NORMAL),
        ("%RETRY%billing", TopicKind.RETRY),
        ("%DLQ%billing", TopicKind.DEAD_LETTER),
        ("TBW102", TopicKind.SYSTEM),
        ("rmq_sys_wheel_timer", TopicKind.SYSTEM),
    ],
)
def test_the_name_of_a_topic_decides_its_kind(name, kind):
    assert FoundTopic(name, ()).kind is kind


def test_the_numbers_of_a_topic_are_those_of_its_queues():
    queues = (
        TopicQueue(None, 0, 10, 15, 1_000, 2_000, 500),
        TopicQueue(None, 1, 3, 3),
        TopicQueue(None, 2, 0, 4, 900, 1_500, 300),
    )
    topic = FoundTopic("Orders", queues)
    assert (topic.messages, topic.oldest_ms, topic.newest_ms) == (9, 900, 2_000)
    # The size of one is not known.
    assert topic.size_bytes is None
    assert FoundTopic("Orders", (queues[0], queues[2])).size_bytes == 800


def test_what_is_not_known_of_a_topic_is_none():
    topic = FoundTopic("Orders", None)
    assert (topic.messages, topic.size_bytes, topic.oldest_ms) == (None, None, None)
    assert FoundTopic("Orders", ()).messages == 0


def test_an_answer_of_topics_is_iterated_over_and_printed_in_few_words():
    found = FoundTopic("Orders", None)
    searched = Coverage("broker-b", SourceKind.BROKER, SourceState.SEARCHED)
    failed = Coverage("broker-a", SourceKind.BROKER, SourceState.FAILED, error="no answer")
    assert list(TopicsAnswer((found,), (searched,))) == [found]
    assert repr(TopicsAnswer((found,), (searched,))) == "TopicsAnswer(1 topic, complete)"
    assert repr(TopicsAnswer((), (failed,))) == "TopicsAnswer(0 topics, INCOMPLETE: 1 failed)"
