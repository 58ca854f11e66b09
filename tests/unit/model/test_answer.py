"""Answers and what they list: complete by what their coverage proves, and by nothing else."""

import re

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.group import (
    FoundGroup,
    GroupClient,
    GroupQueue,
    GroupsAnswer,
    ProducerGroup,
    ProducersAnswer,
)
from rocketlens.model.status import BrokersAnswer, BrokerStatus, ClusterStatus
from rocketlens.model.topic import FoundTopic, TopicKind, TopicQueue, TopicsAnswer

SEARCHED, DAMAGED, FAILED = SourceState.SEARCHED, SourceState.DAMAGED, SourceState.FAILED
INDEX = Coverage("index/1", SourceKind.INDEX_FILE, SEARCHED, 5, None, 0, 100)
MEMORY = Coverage("commitlog: from 100", SourceKind.TAIL, SEARCHED, 9, None, 100, 200)
TOPICS = Coverage("3 topics", SourceKind.TOPICS, SEARCHED)
BROKER = Coverage("broker-a (10.0.0.1:10911)", SourceKind.BROKER, SEARCHED)
LOST = Coverage("commitlog", SourceKind.COMMIT_LOG, FAILED, None, "cannot be read")


def log(end_offset, log_end_offset):
    kind = SourceKind.COMMIT_LOG
    return Coverage("commitlog", kind, SEARCHED, None, None, 0, end_offset, log_end_offset)


@pytest.mark.parametrize(
    "coverage",
    [
        (log(200, 200),),
        (log(200, 190),),
        (INDEX, MEMORY, TOPICS, log(200, 200)),
        (BROKER,),
        (BROKER, TOPICS),
        (Coverage("broker-a (b)", SourceKind.BROKER, DAMAGED, None, "answered by a slave"),),
    ],
)
def test_an_answer_that_saw_all_of_a_log_or_was_given_by_a_broker_is_complete(coverage):
    answer = Answer("q", (), coverage)
    assert (answer.complete, answer.failures) == (True, ())


@pytest.mark.parametrize(
    "coverage",
    [
        (),
        (INDEX, MEMORY),
        (TOPICS,),
        (log(None, None),),
        (log(199, 200),),
        (log(None, 200),),
        (log(200, 200), LOST),
        (log(200, 200), log(10, 11)),
        (BROKER, LOST),
        (Coverage("broker-a", SourceKind.BROKER, FAILED, None, "no answer"),),
    ],
)
def test_an_answer_without_a_proof_or_with_a_failure_is_incomplete(coverage):
    assert not Answer("q", (), coverage).complete


def test_a_log_that_was_not_read_to_its_end_is_a_failure():
    short = log(199, 200)
    assert Answer("q", (), (INDEX, short, LOST)).failures == (short, LOST)


def test_nobody_can_state_that_an_answer_is_complete():
    with pytest.raises(TypeError):
        Answer("q", (), (), complete=True)
    with pytest.raises(TypeError):
        Answer("q", ())


def topic(name):
    return FoundTopic(name, ())


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (TopicsAnswer, topic),
        (GroupsAnswer, lambda name: FoundGroup(name, (), None, None, (), None)),
        (ProducersAnswer, lambda name: ProducerGroup(name, ())),
        (BrokersAnswer, lambda name: BrokerStatus("c", name, 0, "a:1")),
    ],
)
def test_what_is_listed_is_a_list_with_a_first_one(kind, part):
    parts = tuple(map(part, "abc"))
    answer = kind(parts, (BROKER,))
    first, _, last = parts
    assert (answer.first, answer[0], answer[-1], answer[1:]) == (first, first, last, parts[1:])
    assert (len(answer), list(answer)) == (3, list(parts))
    assert re.fullmatch(rf"{kind.__name__}\(3 \w+s, complete\)", repr(answer))
    with pytest.raises(IndexError):
        answer[3]
    nothing = kind((), ())
    assert (nothing.first, len(nothing), nothing.complete) == (None, 0, False)


def test_an_answer_has_a_first_message(write_store):
    with rocketlens.open_store(write_store({"properties": {"KEYS": "k"}})) as store:
        answer = store.find("k")
    assert answer.first is answer[0]
    assert Answer("x", (), ()).first is None


def test_the_sources_of_a_message_are_those_of_a_copy_of_it_too(write_store):
    with rocketlens.open_store(write_store({"properties": {"KEYS": "k"}})) as store:
        answer = replace(store.find("k"), held_by=(("one", "two"),))
    [message] = answer
    assert answer.sources_of(message) == answer.sources_of(replace(message)) == ("one", "two")
    assert answer.sources_of(replace(message, physical_offset=1)) == ()


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


def test_retries_of_pop_are_no_lag():
    queues = [replace(QUEUE, topic=each) for each in ("T", "%RETRY%g_T", "%RETRY%g+T")]
    group = replace(GROUP, queues=tuple(queues))
    assert (group.lag, group.to_retry) == (6, 12)


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


def broker(broker_id, **fields):
    return BrokerStatus("c", "a", broker_id, "127.0.0.1:1", **fields)


def group(name, *clients):
    members = tuple(GroupClient(each, "127.0.0.1:2", "JAVA", 1) for each in clients)
    return FoundGroup(name, members, None, {}, (), 0)


def cluster(*brokers, groups=()):
    return ClusterStatus(("127.0.0.1:9876",), brokers, 0, 0, groups, ())


def test_log_bytes_need_both_ends():
    assert broker(0, min_offset=3, end_offset=10).log_bytes == 7
    assert broker(0, end_offset=10).log_bytes is None


def test_clients_of_several_groups_count_once_and_slaves_do_not_count():
    found = cluster(
        broker(0, producers=2), broker(1), groups=(group("g", "x", "y"), group("h", "x"))
    )
    assert (found.producers, found.consumers) == (2, 2)


def test_a_count_that_lacks_a_broker_is_not_known():
    unknown = FoundGroup("g", None, None, None, None, None)
    found = cluster(broker(0, producers=2), broker(0), groups=(group("h", "x"), unknown))
    assert found.producers is found.consumers is None


def test_nothing_searched_is_not_complete():
    assert not cluster().complete


def test_a_broker_is_as_far_behind_as_the_slower_of_queues_and_index():
    assert broker(0, dispatch_behind_bytes=3, index_behind_bytes=10).behind_bytes == 10
    assert broker(0, dispatch_behind_bytes=3).behind_bytes == 3
    assert broker(0).behind_bytes is None


def test_brokers_of_which_one_failed_are_not_complete():
    searched = Coverage("a", SourceKind.BROKER, SourceState.SEARCHED)
    failed = Coverage("b", SourceKind.BROKER, SourceState.FAILED, None, "refused")
    assert BrokersAnswer((broker(0),), (searched,)).complete
    assert not BrokersAnswer((broker(0),), (searched, failed)).complete
