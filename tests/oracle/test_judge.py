"""The oracle finds what it is there to find: readers that are wrong in one way each."""

import dataclasses
from collections import Counter

import pytest

from rocketlens.model.message import Host
from rocketlens.model.message_id import OffsetMessageId
from tests.oracle.asking import Asker, question_about
from tests.oracle.judge import Judge
from tests.oracle.ledger import Acked, Ledger, LedgerView
from tests.oracle.messages import SENT_AS, content_of
from tests.oracle.questions import Found, Question, Reply
from tests.oracle.readers import HandleReader

SEED = 5
TOPICS = ("Orders", "T")
RECORD_BYTES = 1000
NOW_MS = 1_700_000_000_000


def acked_of(number, times_deleted=0, lineage=0):
    physical_offset = number * RECORD_BYTES
    offset_msg_id = OffsetMessageId(Host("127.0.0.1", 10911), physical_offset).encode()
    unique_key = f"{0xFD:02X}{number:030X}"
    place = (TOPICS[number % 2], 0, number // 2 % 50, physical_offset)
    time_ms = NOW_MS + number
    ids = (offset_msg_id, unique_key)
    return Acked(number, *place, *ids, time_ms, time_ms, times_deleted, lineage)


def found_of(acked):
    content = content_of(SEED, acked.number)
    sent_as = {SENT_AS: f"{SEED}/{acked.number}/{acked.topic}"}
    return Found(
        acked.topic,
        content.tags,
        content.keys,
        acked.unique_key,
        acked.offset_msg_id,
        acked.queue_id,
        acked.queue_offset,
        acked.physical_offset,
        acked.acked_ms,
        content.properties | sent_as,
        content.body,
    )


class TrueReader:
    """Answers from the ledger's own messages."""

    kinds = HandleReader.kinds

    def __init__(self, view):
        self.view = view

    def matches(self, question, acked):
        if question.way != "no-topic" and acked.topic != question.topic:
            return False
        match question.kind:
            case "offset-id" | "unique-key" | "queue-offset":
                return acked.number == question.about
            case "key":
                return question.text in (*content_of(SEED, acked.number).keys, acked.unique_key)
        end_ms = question.end_ms or 2**62
        return question.begin_ms <= acked.acked_ms <= end_ms

    def messages(self):
        return self.view.here().values()

    def ask(self, question):
        found = [found_of(one) for one in self.messages() if self.matches(question, one)]
        if question.max_num is not None and len(found) > question.max_num:
            return Reply(tuple(found[-question.max_num :]), truncated=True)
        return Reply(tuple(found))

    def state(self):
        return ""


class DropsOne(TrueReader):
    """Misses one message, and says it searched everything."""

    def messages(self):
        return [one for one in super().messages() if one.number != 42]


class ForgetsTheNewest(TrueReader):
    """Goes blind at some place, as a handle that no longer sees the log grow."""

    def messages(self):
        return [one for one in super().messages() if one.number < 60]


class ShowsAnotherBody(TrueReader):
    def ask(self, question):
        reply = super().ask(question)
        other = content_of(SEED, 7).body
        return dataclasses.replace(reply, found=tuple(m._replace(body=other) for m in reply.found))


class LosesProperties(TrueReader):
    def ask(self, question):
        reply = super().ask(question)
        only = [m._replace(properties={SENT_AS: m.properties[SENT_AS]}) for m in reply.found]
        return dataclasses.replace(reply, found=tuple(only))


class ShowsAnotherMessage(TrueReader):
    def ask(self, question):
        reply = super().ask(question)
        others = [
            found_of(acked_of((m.physical_offset // RECORD_BYTES + 2) % 100)) for m in reply.found
        ]
        return dataclasses.replace(reply, found=tuple(others))


class ShowsTwice(TrueReader):
    def ask(self, question):
        reply = super().ask(question)
        return dataclasses.replace(reply, found=reply.found * 2)


class Raises(TrueReader):
    def ask(self, _):
        return Reply(complete=False, error="IndexError", is_ours=False)


class IsEmpty(TrueReader):
    def ask(self, _):
        return Reply()


class World:
    def __init__(self, tmp_path, count=100):
        self.ledger = Ledger(tmp_path / "ledger", SEED)
        self.view = LedgerView(tmp_path / "ledger")
        for number in range(count):
            self.ledger.ack(acked_of(number))
        self.view.read()
        self.failures = []
        self.min_offset = 0
        self.now_ms = NOW_MS

    def asker(self, reader):
        judge = Judge(self.view, lambda: self.min_offset)
        return Asker(reader, judge, self.failures.append, seed=1, now_ms=lambda: self.now_ms)

    def verdicts_of(self, reader_class):
        """What is said of a reader that is asked everything."""
        asker = self.asker(reader_class(self.view))
        for _ in TrueReader.kinds:
            asker.ask_everything()
            # The next time round each message is asked for in the next way.
            asker._turn += 1
        for _ in range(20):
            asker.ask_wide()
        asker.ask(Question("scan", topic="T"))
        return asker.verdicts


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.ledger.end()
    made.view.close()


def test_a_reader_that_is_right_is_found_right(world):
    assert world.verdicts_of(TrueReader) == Counter()
    assert world.failures == []


@pytest.mark.parametrize(
    ("reader_class", "what"),
    [
        (DropsOne, {"false complete"}),
        (ForgetsTheNewest, {"false complete"}),
        (IsEmpty, {"false complete"}),
        (ShowsAnotherBody, {"wrong"}),
        (LosesProperties, {"wrong"}),
        (ShowsTwice, {"wrong"}),
        (ShowsAnotherMessage, {"wrong", "false complete"}),
        (Raises, {"error", "incomplete"}),
    ],
)
def test_a_reader_that_is_wrong_in_one_way_is_found_so(world, reader_class, what):
    assert set(world.verdicts_of(reader_class)) == what
    assert world.failures


@pytest.mark.parametrize("kind_and_way", TrueReader.kinds)
def test_one_missing_message_is_noticed_by_every_kind_of_question(world, kind_and_way):
    asker = world.asker(IsEmpty(world.view))
    asker.ask(question_about(SEED, acked_of(43), *kind_and_way))
    assert asker.verdicts == {"false complete": 1}


@pytest.mark.parametrize("kind", ["time", "newest", "scan"])
def test_one_missing_message_is_noticed_by_every_question_for_many(world, kind):
    asker = world.asker(DropsOne(world.view))
    asker.ask(Question(kind, topic="Orders", max_num=50 if kind == "newest" else None))
    assert asker.verdicts == {"false complete": 1}


def test_a_message_that_the_store_has_deleted_may_be_missing(world):
    world.min_offset = 43 * RECORD_BYTES
    assert world.verdicts_of(DropsOne) == Counter()
    world.min_offset = 42 * RECORD_BYTES
    assert set(world.verdicts_of(DropsOne)) == {"false complete"}


def test_a_message_may_be_missing_once_its_topic_is_deleted(world):
    asker = world.asker(IsEmpty(world.view))
    question = question_about(SEED, world.view.here()[42], "key", "own")
    world.ledger.deleting("Orders")
    asker.ask(question)
    assert asker.verdicts == Counter()
    asker.ask(question_about(SEED, world.view.here()[43], "key", "own"))
    assert asker.verdicts == {"false complete": 1}


def test_a_message_of_a_deleted_topic_in_the_place_of_a_new_one_is_wrong(world):
    world.ledger.deleting("Orders")
    new = acked_of(200, times_deleted=1)._replace(queue_offset=5)
    world.ledger.ack(new)
    world.view.read()
    old = world.view.here()[10]
    assert (old.topic, old.queue_offset) == (new.topic, new.queue_offset)

    class ShowsTheOld(TrueReader):
        def matches(self, _, acked):
            return acked == old

    asker = world.asker(ShowsTheOld(world.view))
    asker.ask(question_about(SEED, new, "queue-offset", "own"))
    assert asker.verdicts == {"wrong": 1, "false complete": 1}


def test_a_late_answer_is_measured_and_one_that_never_comes_is_a_failure(world):
    is_late = True

    class IsLate(TrueReader):
        def ask(self, question):
            return Reply(complete=False) if is_late else super().ask(question)

    asker = world.asker(IsLate(world.view))
    asker.ask_about(42)
    assert asker.verdicts == {"incomplete": 1}
    world.now_ms += 600
    asker.ask_again()
    world.now_ms += 900
    is_late = False
    asker.ask_again()
    assert (asker.late_count, asker.max_late_ms, asker.waiting) == (1, 1500, [])
    is_late = True
    asker.ask_about(43)
    asker.give_up_waiting()
    assert asker.verdicts["never complete"] == 1
    assert world.failures


def test_while_a_store_is_moved_anything_may_be_missing_and_nothing_may_be_wrong(world):
    asker = world.asker(IsEmpty(world.view))
    question = question_about(SEED, world.view.here()[42], "key", "own")
    world.ledger.moving()
    asker.ask(question)
    assert asker.verdicts == Counter()
    wrong = world.asker(ShowsAnotherBody(world.view))
    wrong.reader.messages = lambda: [acked_of(42)]
    wrong.ask(question)
    assert wrong.verdicts == {"wrong": 1}


def test_a_store_that_is_moved_away_while_an_answer_is_judged_may_miss_anything(world):
    def begin_of_nothing():
        world.ledger.moving()
        return 0

    question = question_about(SEED, world.view.here()[42], "key", "own")
    at_rest = Judge(world.view, lambda: 0)
    assert [acked.number for acked in at_rest.missing(at_rest.expect(question))] == [42]
    judge = Judge(world.view, begin_of_nothing)
    assert judge.missing(judge.expect(question)) == []


def test_a_message_of_the_store_that_was_here_before_is_wrong(world):
    old = world.view.here()[42]
    world.ledger.moving()
    world.ledger.placed(1, None)
    world.view.read()

    class Remembers(TrueReader):
        def messages(self):
            return [old]

    asker = world.asker(Remembers(world.view))
    asker.ask(question_about(SEED, old, "key", "own"))
    assert asker.verdicts == {"wrong": 1}
    world.ledger.moving()
    world.ledger.placed(0)
    world.view.read()
    asker.ask(question_about(SEED, old, "key", "own"))
    assert asker.verdicts == {"wrong": 1}


def test_a_copy_has_what_was_acknowledged_before_it_was_made_and_not_what_came_after(world):
    world.ledger.moving()
    world.ledger.placed(1, 0)
    world.ledger.ack(acked_of(100, lineage=1))
    world.view.read()
    assert len(world.view.here()) == 101
    assert world.verdicts_of(DropsOne)["false complete"] > 0
    world.ledger.moving()
    world.ledger.placed(0)
    world.view.read()
    assert len(world.view.here()) == 100
