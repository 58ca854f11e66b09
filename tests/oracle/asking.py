"""One reader's loop: it asks after every message that is acknowledged, and notes what was wrong."""

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.oracle.judge import INCOMPLETE, NEVER_COMPLETE, Expected, Judge, Verdict
from tests.oracle.ledger import Acked, LedgerView
from tests.oracle.messages import content_of, shared_key
from tests.oracle.questions import Question, Reply

MAX_FAILURES_TOLD = 25
LATE_MS = 1000
SHARED_KEY_MESSAGES = 16
NEWEST_MESSAGES = 10
AGAIN_AT_ONCE = 3


class Waiting(NamedTuple):
    """A question whose answer was not complete and missed something."""

    question: Question
    since_ms: int
    reply: Reply


class Failure(NamedTuple):
    """A wrong answer, with what helps to find out why."""

    verdict: str
    detail: str
    question: str
    complete: bool
    says: str
    asked_again: str
    fresh: str
    state: str


class Asker:
    """Asks one reader, judges its answers, counts and reports."""

    def __init__(
        self,
        reader: Any,
        judge: Judge,
        report: Callable[[Failure], None],
        *,
        seed: int,
        fresh: Any = None,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self.reader = reader
        self.judge = judge
        self.view: LedgerView = judge.view
        self.report = report
        self.fresh = fresh
        self.now_ms = now_ms
        self.chance = random.Random(seed)
        self.asked: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.waiting: list[Waiting] = []
        self.max_late_ms = 0
        self.late_count = 0
        self._turn = 0

    def ask_about(self, number: int, count: int = 1) -> None:
        """Ask for a message in the next ``count`` ways, if it should be in the store now."""
        for _ in range(count):
            acked = self.view.here().get(number)
            if acked is None or not self.view.is_current(acked):
                return
            kind, way = self.reader.kinds[self._turn % len(self.reader.kinds)]
            self._turn += 1
            self.ask(question_about(self.view.seed, acked, kind, way))

    def ask(self, question: Question) -> Reply:
        """Ask, and judge the answer."""
        expected = self.judge.expect(question)
        reply = self.reader.ask(question)
        self.view.read()
        verdicts = self._excused(expected, self.judge.verdicts(expected, reply))
        self.asked[f"{question.kind}/{question.way}"] += 1
        for verdict in verdicts:
            self.note(verdict, question, reply)
        return reply

    def note(self, verdict: Verdict, question: Question, reply: Reply) -> None:
        """Count a verdict; report what is a failure, and ask the rest again later."""
        self.verdicts[verdict.what] += 1
        if verdict.what == INCOMPLETE:
            self.waiting.append(Waiting(question, self.now_ms(), reply))
            return
        if sum(self.verdicts.values()) - self.verdicts[INCOMPLETE] <= MAX_FAILURES_TOLD:
            self.report(self._failure(verdict, question, reply))

    def ask_again(self, count: int = AGAIN_AT_ONCE) -> None:
        """Ask some of the questions again whose answers were incomplete."""
        for waiting in self.waiting[:count]:
            self.waiting.remove(waiting)
            before = len(self.waiting)
            self.ask(waiting.question)
            late_ms = self.now_ms() - waiting.since_ms
            if len(self.waiting) > before:
                self.waiting[-1] = waiting
            else:
                self.max_late_ms = max(self.max_late_ms, late_ms)
                self.late_count += late_ms > LATE_MS

    def give_up_waiting(self) -> None:
        """Report what is still incomplete though nothing is written any more."""
        for waiting in self.waiting:
            self.verdicts[NEVER_COMPLETE] += 1
            if self.verdicts[NEVER_COMPLETE] <= AGAIN_AT_ONCE:
                verdict = Verdict(NEVER_COMPLETE, f"incomplete since {waiting.since_ms}")
                self.report(self._failure(verdict, waiting.question, waiting.reply))
        self.waiting.clear()

    def ask_wide(self) -> None:
        """Ask for many messages at once: a stretch of time, or the newest of a topic."""
        here = self.view.here()
        if not here:
            return
        about = here[self._recent(here)]
        if self.chance.random() < 0.5:
            question = Question("newest", topic=about.topic, max_num=NEWEST_MESSAGES, way="find")
        else:
            end_ms = self.chance.choice((None, about.acked_ms))
            question = Question(
                "time", topic=about.topic, begin_ms=about.begun_ms, end_ms=end_ms, way="find"
            )
        self.ask(question)

    def ask_any(self) -> None:
        """Ask for a message from anywhere, mostly a recent one."""
        here = self.view.here()
        if here:
            self.ask_about(self._recent(here))

    def ask_everything(self) -> None:
        """Ask for each message that should be there, in a way that changes from one to the next."""
        for number in list(self.view.here()):
            self.ask_about(number)

    def _recent(self, here: dict[int, Acked]) -> int:
        newest = next(reversed(here))
        low = newest - (100 if self.chance.random() < 0.8 else newest)
        number = self.chance.randrange(max(low, 0), newest + 1)
        return number if number in here else newest

    def _excused(self, expected: Expected, verdicts: list[Verdict]) -> list[Verdict]:
        """Leave out an incomplete answer over the wire when its broker went away meanwhile."""
        if not getattr(self.reader, "can_ask", True) or (
            hasattr(self.reader, "can_ask") and expected.broker_changes != self.view.broker_changes
        ):
            return [verdict for verdict in verdicts if verdict.what != INCOMPLETE]
        return verdicts

    def _failure(self, verdict: Verdict, question: Question, reply: Reply) -> Failure:
        state = self.reader.state()
        fresh = self._told(self.fresh, question) if self.fresh else "none"
        again = self._told(self.reader, question)
        detail = verdict.detail[:1500]
        words = (str(question), reply.complete, f"{len(reply.found)} found; {reply.says[:1500]}")
        return Failure(verdict.what, detail, *words, again, fresh, state)

    def _told(self, reader: Any, question: Question) -> str:
        expected = self.judge.expect(question)
        reply = reader.ask(question)
        self.view.read()
        verdicts = [verdict.what for verdict in self.judge.verdicts(expected, reply)]
        words = f"{len(reply.found)} found, complete {reply.complete}, {reply.error or ''}"
        return f"{words} -> {verdicts or 'right'}"


def question_about(seed: int, acked: Acked, kind: str, way: str) -> Question:
    """Return a question whose answer must have this message."""
    topic, number = acked.topic, acked.number
    match kind:
        case "offset-id":
            text = acked.offset_msg_id
        case "unique-key":
            text = acked.unique_key
        case "queue-offset":
            text = f"{topic}/{acked.queue_id}/{acked.queue_offset}"
            place = (acked.queue_id, acked.queue_offset)
            return Question(kind, text, topic, number, place, way=way)
        case "time":
            times = {"begin_ms": acked.begun_ms, "end_ms": acked.acked_ms}
            return Question(kind, topic=topic, about=number, way=way, **times)
        case "shared-key" if shared_key(number) in content_of(seed, number).keys:
            shared = shared_key(number)
            return Question("key", shared, topic, None, max_num=SHARED_KEY_MESSAGES, way=way)
        case _:
            # Each key in turn.
            keys = content_of(seed, number).keys
            if way == "own":
                keys = (*keys, acked.unique_key)
            text = keys[number // 7 % len(keys)]
            max_num = SHARED_KEY_MESSAGES if text == shared_key(number) else None
            return Question("key", text, topic, None, max_num=max_num, way=way)
    return Question(kind, text, topic, number, way=way)
