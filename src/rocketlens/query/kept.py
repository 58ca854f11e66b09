"""Finds messages that brokers keep for topics: delayed, timed and half messages.

They are stored in topics of the broker (`rocketlens.model.life`). After a search that names topics,
these are searched for records whose ``REAL_TOPIC`` is one of the topics; a store searches both at
once.

==========================  ====================================================================
search                      includes
==========================  ====================================================================
by id or key                all of them, unless the answer shows that they were delivered
newest, or by time          delayed and timed messages that are due later, among the newest
                            `rocketlens.limits.MAX_WAITING_MESSAGES`
==========================  ====================================================================

The coverage says for each of them its topic and when it is due. Later means later than now for a
cluster, and later than the newest message for a store or an archive, whose broker may be down.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import Final

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.errors import RocketLensError, TopicNotFound
from rocketlens.formats.commitlog_record import Record, message_of
from rocketlens.model import properties as props
from rocketlens.model.answer import Answer, SourceKind, hint
from rocketlens.model.life import (
    KEEPING_TOPICS,
    WAITING_TOPICS,
    LifeState,
    delivered_ms,
    due_text,
    life_of,
)
from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.facts.waiting import KEPT_FOR_MS
from rocketlens.query.request import FindRequest
from rocketlens.query.source import Source, Steps

KEPT: Final = "waiting"
"""The source name in coverage."""
_MAX_NOTES: Final = 20
"""Waiting messages that the coverage lists one by one."""


class KeptFindings(Findings):
    """Filters kept messages by the topics of a search, and adds them to its findings.

    ``request`` is the query for the source.
    """

    def __init__(self, asked: FindRequest, outer: Findings, source: Source) -> None:
        """Prepare the search of a source after the search for ``asked``."""
        super().__init__(outer.messages, tally=outer.tally)
        self._outer: Final = outer
        self._is_looked_up: Final = asked.text is not None
        full_topic = getattr(source, "full_topic", str)
        self.topics: Final = [full_topic(each) for each in asked.topics]
        """The requested names and patterns of topics."""
        self._now_ms: Final = _now_ms()
        self._seen = 0
        self.late: Final = AnswerMessages(None)
        """Messages of a store or archive that were due before now; they wait if it ends earlier."""
        self._ends: Final = source.kind is not SourceKind.BROKER
        begin = asked.begin
        if not (self._is_looked_up or self._ends):
            begin = max(begin or 0, self._now_ms - max(KEPT_FOR_MS.values()))
        self.request: Final = replace(
            asked,
            topics=tuple(sorted(KEEPING_TOPICS if self._is_looked_up else WAITING_TOPICS)),
            begin=begin,
            all_topics=True,
        )

    def take(self, record: Record) -> bool:
        return self.add(message_of(record))

    def add(self, message: MessageExt) -> bool:
        """Add a message if it waits for one of the topics."""
        self._seen += 1
        real = message.properties.get(props.REAL_TOPIC, "")
        life = life_of(message)
        if any(fnmatchcase(real, each) for each in self.topics):
            if self._is_looked_up or (life.next_ms or 0) > self._now_ms:
                self._outer.add(message)
            elif self._ends:
                self.late.add(message)
        return self._is_looked_up or self._seen < limits.MAX_WAITING_MESSAGES

    def end(self) -> None:
        """Add failed sources to the coverage of the search."""
        failed = {each.source for each in self._outer.searched if each.is_failure}
        self._outer.cover(
            tuple(each for each in self.searched if each.is_failure and each.source not in failed)
        )
        if not self._is_looked_up and self._seen >= limits.MAX_WAITING_MESSAGES:
            note = Sentence("more_wait", count=limits.MAX_WAITING_MESSAGES)
            self._outer.cover((hint(KEPT, note),))


def kept_steps(request: FindRequest, findings: Findings, source: Source) -> Steps[None]:
    """Search a source for messages that brokers keep for the requested topics.

    Does nothing after an incomplete search without a text, or if the source already searched both.

    :raises RocketLensError: if the source cannot be searched.
    """
    # The search can also be incomplete because the caller stopped it.
    is_ended = request.text is None and not findings.is_complete
    if is_ended or findings.has_kept or not request.asks_for_kept:
        return
    lacks = getattr(source, "lacks", None) if request.text is None else None
    if lacks is not None and (yield partial(lacks, sorted(WAITING_TOPICS))):
        return
    kept = KeptFindings(request, findings, source)
    with suppress(TopicNotFound):
        yield partial(source.find, kept.request, kept)
    if len(kept.late):
        # Expensive: without queues, the whole log is read for its newest message.
        end_ms = (yield from newest_time_steps([source])) or _now_ms()
        for each in kept.late.in_order():
            if (life_of(each).next_ms or 0) > end_ms:
                findings.add(each)
    kept.end()


def newest_time_steps(sources: Sequence[Source]) -> Steps[int | None]:
    """Return the store time of the newest message of stores and archives, in epoch milliseconds.

    None without a message, or if a source is a cluster, where new messages can always arrive.
    """
    if any(each.kind is SourceKind.BROKER for each in sources):
        return None
    newest = []
    for each in sources:
        findings = Findings(AnswerMessages(1))
        try:
            yield partial(each.find, FindRequest(max_num=1, all_topics=True), findings)
        except RocketLensError:
            # The answer reports it.
            continue
        newest += [one.store_timestamp_ms for one in findings.messages.in_order()]
    return max(newest, default=None)


def describe_waiting(
    request: FindRequest, answer: Answer, sources: Sequence[Source]
) -> Steps[Answer]:
    """Remove delivered messages from an answer, and describe the waiting ones in its coverage."""
    kept = [each for each in answer.messages if each.topic in KEEPING_TOPICS]
    if not kept or not request.asks_for_kept:
        return answer
    others = [each for each in answer.messages if each.topic not in KEEPING_TOPICS]
    # The description of a recalled message mentions the recall.
    waits = [
        each
        for each in kept
        if life_of(each).state is not LifeState.RECALL and not _is_delivered(each, others)
    ]
    gone = {id(each) for each in kept} - {id(each) for each in waits}
    shown = [number for number, each in enumerate(answer.messages) if id(each) not in gone]
    end_ms = yield from newest_time_steps(sources if waits else ())
    notes = tuple(hint(KEPT, each) for each in _notes(waits, kept, end_ms))
    return replace(
        answer,
        messages=tuple(answer.messages[number] for number in shown),
        held_by=tuple(answer.held_by[number] for number in shown if answer.held_by),
        coverage=(*answer.coverage, *notes),
    )


def _is_delivered(kept: MessageExt, others: list[MessageExt]) -> bool:
    same = [each for each in others if each.unique_key and each.unique_key == kept.unique_key]
    if life_of(kept).state is LifeState.HALF:
        return bool(same)
    return delivered_ms(kept, same) is not None


def _notes(
    waits: list[MessageExt], kept: list[MessageExt], end_ms: int | None
) -> Iterator[Sentence]:
    now_ms = _now_ms()
    for each in waits[:_MAX_NOTES]:
        topic = each.properties.get(props.REAL_TOPIC, "?")
        same = [other for other in kept if other.unique_key == each.unique_key]
        due = due_text(each, same, now_ms, end_ms)
        if due is None:
            yield Sentence("half_waits", at=each.position, topic=topic)
        else:
            yield Sentence("waits_for", at=each.position, topic=topic, due=due)
    if waits[_MAX_NOTES:]:
        yield Sentence("more_waiting", count=len(waits) - _MAX_NOTES)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
