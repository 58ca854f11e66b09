"""An answer is complete by what its coverage proves, and by nothing else."""

import re
from dataclasses import replace

import pytest

import rocketlens
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.group import FoundGroup, GroupsAnswer, ProducerGroup, ProducersAnswer
from rocketlens.model.status import BrokersAnswer, BrokerStatus
from rocketlens.model.topic import FoundTopic, TopicsAnswer

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
