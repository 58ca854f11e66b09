"""Holds an answer to what was acknowledged.

===============  ==================================================================================
verdict          when
===============  ==================================================================================
wrong            a message that was not sent so, is not of the store at the path, does not match the
                 question, comes twice or out of order, or is of a topic deleted since and stands
                 where the topic's new messages are
false complete   complete, and a message that was acknowledged before the question is missing
error            something other than an answer, an incomplete answer or one of our errors
incomplete       a message is missing, and the answer says that something was not searched: counted,
                 and asked again until it is found; how long that took is its lateness
===============  ==================================================================================

A message may be missing when the store has deleted it (its offset is below the first segment after
the answer), when its topic was deleted, or when the store was moved since the question.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.oracle.ledger import Acked, LedgerView
from tests.oracle.messages import SENT_AS, content_of
from tests.oracle.questions import Found, Question, Reply

WRONG = "wrong"
FALSE_COMPLETE = "false complete"
ERROR = "error"
INCOMPLETE = "incomplete"
NEVER_COMPLETE = "never complete"


class Verdict(NamedTuple):
    """What is wrong with an answer."""

    what: str
    detail: str


@dataclass
class Expected:
    """What the ledger said when the question was asked."""

    question: Question
    messages: dict[int, Acked]
    moves: int
    broker_changes: int
    lineage: int | None
    deletions: int = 0
    """How often the topic was deleted before the newest messages of the queue asked about."""
    seen: set[int] = field(default_factory=set)


def min_offset_of(store: Path) -> int:
    """Return where the log at the path begins now; 0 when there is none."""
    try:
        names = [path.name for path in (store / "commitlog").iterdir()]
    except OSError:
        return 0
    return min((int(name) for name in names if len(name) == 20 and name.isdigit()), default=0)


class Judge:
    """Judges the answers of one reader by one view of the ledger."""

    def __init__(self, view: LedgerView, min_offset: Callable[[], int]) -> None:
        self.view = view
        self.min_offset = min_offset

    def expect(self, question: Question) -> Expected:
        """Note, before the question is asked, which messages its answer must have."""
        view = self.view
        deletions = 0
        if question.kind == "queue-offset" and question.about in view.here():
            about = view.here()[question.about]
            deletions = view.deletions_before(about.topic, about.queue_id)
        messages = {acked.number: acked for acked in self._wanted(question)}
        return Expected(
            question, messages, view.moves, view.broker_changes, view.lineage, deletions
        )

    def _wanted(self, q: Question) -> Iterator[Acked]:
        here = self.view.here()
        if q.kind in ("offset-id", "queue-offset", "unique-key"):
            candidates = [here[q.about]] if q.about in here else []
        elif q.kind == "key":
            candidates = list(self.view.with_key(q.text, q.topic if q.way != "no-topic" else None))
        else:
            low_ms, high_ms = q.begin_ms, q.end_ms if q.end_ms is not None else 2**62
            candidates = [
                acked
                for acked in here.values()
                if acked.topic == q.topic and low_ms <= acked.begun_ms <= acked.acked_ms <= high_ms
            ]
        return (acked for acked in candidates if self.view.is_current(acked))

    def verdicts(self, expected: Expected, reply: Reply) -> list[Verdict]:
        """Judge a whole answer. The view must have been read again since it came."""
        found = [v for one in reply.found for v in self.wrong(expected, one)]
        q = expected.question
        places = [one.physical_offset for one in reply.found]
        if places != sorted(set(places)):
            found.append(Verdict(WRONG, f"not in order, or one twice: {places}"))
        if q.max_num is not None and len(places) > q.max_num:
            found.append(Verdict(WRONG, f"{len(places)} messages, {q.max_num} asked for"))
        if reply.error is not None and not reply.is_ours and not self.is_moved(expected):
            found.append(Verdict(ERROR, f"{reply.error}: {reply.says}"))
        is_cut = reply.truncated or q.max_num in (len(places), reply.row_count)
        missing = self.missing(expected, min(places) if is_cut and places else -1)
        if is_cut and reply.row_count:
            missing = []  # which rows were cut cannot be known from their number
        if len(missing) > reply.row_count:
            what = FALSE_COMPLETE if reply.complete else INCOMPLETE
            found.append(Verdict(what, f"missing {len(missing)}: {missing[:3]}"))
        return found

    def wrong(self, expected: Expected, found: Found) -> Iterator[Verdict]:
        """Judge one message of an answer."""
        sent_as = found.properties.get(SENT_AS, "")
        number = _number_of(sent_as, self.view.seed)
        if number is None:
            yield Verdict(WRONG, f"nobody sent this: {_short(found)}")
            return
        expected.seen.add(number)
        content = content_of(self.view.seed, number)
        shown = (found.topic, found.body, found.keys, found.tags)
        if shown != (sent_as.split("/")[2], content.body, content.keys, content.tags):
            yield Verdict(WRONG, f"not as it was sent: {_short(found)}")
        elif not content.properties.items() <= found.properties.items():
            yield Verdict(WRONG, f"properties are not as they were sent: {found.properties}")
        if mismatch := _mismatch(expected.question, found):
            yield Verdict(WRONG, f"{mismatch}: {_short(found)}")
        if not self.is_moved(expected):
            yield from self._misplaced(expected, number, found)

    def _misplaced(self, expected: Expected, number: int, found: Found) -> Iterator[Verdict]:
        acked = self.view.here().get(number)
        if acked is None:
            if self.view.is_elsewhere(number):
                yield Verdict(WRONG, f"it is not in the store at this path: {_short(found)}")
            return
        place = (acked.queue_id, acked.queue_offset, acked.physical_offset)
        if place != (found.queue_id, found.queue_offset, found.physical_offset):
            yield Verdict(WRONG, f"acknowledged as {acked}: {_short(found)}")
        elif (acked.offset_msg_id, acked.unique_key) != (found.offset_msg_id, found.unique_key):
            yield Verdict(WRONG, f"its ids are not those of {acked}: {_short(found)}")
        if acked.times_deleted < expected.deletions:
            yield Verdict(WRONG, f"its topic was deleted and made again: {_short(found)}")

    def missing(self, expected: Expected, above: int = -1) -> list[Acked]:
        """Return the messages that must be in the answer and were not seen in it.

        ``above``: only those with a greater physical offset, where the answer was cut.
        """
        absent = [a for n, a in expected.messages.items() if n not in expected.seen]
        if not absent or self.is_moved(expected):
            return []
        low = self.min_offset()
        # The directory may have been moved away since, and then has no log.
        self.view.read()
        if self.is_moved(expected):
            return []
        return [
            acked
            for acked in absent
            if acked.physical_offset >= low
            and acked.physical_offset > above
            and self.view.is_current(acked)
        ]

    def is_moved(self, expected: Expected) -> bool:
        """Say whether the store is not the one that it was when the question was asked."""
        return expected.lineage is None or self.view.moves != expected.moves


def _number_of(sent_as: str, seed: int) -> int | None:
    parts = sent_as.split("/")
    if len(parts) != 3 or parts[0] != str(seed) or not parts[1].isdigit():
        return None
    return int(parts[1])


def _mismatch(q: Question, found: Found) -> str | None:
    """Say how a message does not match a question."""
    if q.topic is not None and q.way != "no-topic" and found.topic != q.topic:
        return f"of topic {found.topic}, asked for {q.topic}"
    if q.kind in ("key", "unique-key") and q.text not in (*found.keys, found.unique_key):
        return f"it does not have the key {q.text}"
    if q.kind == "offset-id" and found.offset_msg_id != q.text:
        return f"its id is {found.offset_msg_id}, asked for {q.text}"
    if q.kind == "queue-offset" and (found.queue_id, found.queue_offset) != q.place:
        return f"at {found.queue_id}/{found.queue_offset}, asked for {q.place}"
    end_ms = q.end_ms if q.end_ms is not None else 2**62
    if not q.begin_ms <= found.store_timestamp_ms <= end_ms:
        return f"stored at {found.store_timestamp_ms}, asked for {q.begin_ms} to {q.end_ms}"
    return None


def _short(found: Found) -> str:
    place = f"{found.topic}/{found.queue_id}/{found.queue_offset} at {found.physical_offset}"
    sent_as = found.properties.get(SENT_AS)
    return f"{place}, sent as {sent_as}, {len(found.body)} bytes, {found.offset_msg_id}"
