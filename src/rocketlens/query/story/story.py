"""The story of a message: sent, stored, copied, and consumed by groups, in order of time.

A story is derived from evidence: records, trace records, and facts about groups. Each fact has its
source, and unknown facts are listed with the reason. This module does no input or output.

States that copies or traces prove come first; others are inferred from offsets
(`rocketlens.query.facts.group_state`). The first row that applies counts:

====================  ===========================================================================
state                 proof
====================  ===========================================================================
dead_letter           the last copy for the group is in its dead letter topic
consumed              a client reported it in a trace; for a retried message, the last retry
retrying              the last copy for the group is a retry, and the group's offset is not past it
consumed              the last copy for the group is a retry, and the group's offset is past it
====================  ===========================================================================
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rocketlens.model import properties as props
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.life import LifeState, due_text, failure_of, life_of, time_text
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import PRODUCER_RETRY_MS, is_group_topic, is_system_topic
from rocketlens.model.tables import TableView, cell, utc_time
from rocketlens.model.text.counted import counted
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.facts.group_state import GroupFacts, GroupState, GroupVerdict, judge
from rocketlens.query.story.story_events import (
    Delivery,
    EventKind,
    StoryEvent,
    TraceEntry,
    deliveries_of,
    events_of,
    resend_values,
)

_SHOWN_QUERY: Final = 100
"""Characters of the query in a ``repr``."""


class Unlearnt(Struct, frozen=True):
    """An unknown fact, and why. ``is_failure``: because of an error or damage."""

    what: str
    why: str
    is_failure: bool = False


class GroupStory(Struct, frozen=True):
    """The state of the message in one group."""

    group: str
    state: GroupState
    rests_on: str
    source: str
    since_ms: int | None = None
    """When the state began, in epoch milliseconds, if a record or trace has it."""
    retries: int = 0
    """The number of times that the group received it again."""
    max_retries: int | None = None
    """The number of retries after which it becomes a dead letter; None if unknown."""
    repeats: tuple[str, ...] = ()
    """Why the group received one offset more than once."""
    failure: str = ""
    """Why it failed last: class and first line of the exception; empty if unknown."""


class Story(TableView, Struct, frozen=True):
    """The story of a message; `message` is None if no message was found."""

    _titles = ("message", "time", "event", "group", "text")
    query: str
    message: MessageExt | None
    others: tuple[str, ...]
    """Other messages that match the query, as ``TOPIC/QUEUE/OFFSET``."""
    events: tuple[StoryEvent, ...]
    groups: tuple[GroupStory, ...]
    repeats: tuple[str, ...]
    """Why the topic contains it more than once, so that every group receives it again."""
    unlearnt: tuple[Unlearnt, ...]
    coverage: tuple[Coverage, ...]
    more: tuple["Story", ...] = ()
    """The stories of other messages that match, the worst first."""
    summary: str = ""
    """The outcome of all messages in one sentence, if several match."""

    @property
    def complete(self) -> bool:
        """Whether all sources were read; see also `unlearnt`."""
        failed = any(each.is_failure for each in self.unlearnt)
        is_read = not failed and Answer(self.query, (), self.coverage).complete
        return is_read and all(each.complete for each in self.more)

    def __repr__(self) -> str:
        """Return the query, the number of events and groups, and whether they are complete."""
        size = f"{counted(len(self.events), 'event')}, {counted(len(self.groups), 'group')}"
        worth = "complete" if self.complete else "INCOMPLETE"
        return f"Story({self.query[:_SHOWN_QUERY]!r}, {size}, {worth})"

    def __str__(self) -> str:
        """Return a line for each event, with its time in UTC, and for each group."""
        lines = ("  ".join((cell(time), cell(text))) for _, time, _, _, text in self._rows())
        return "\n".join((*lines, *self._remarks()))

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for each in (self, *self.more):
            position = each.message.position if each.message else None
            for event in each.events:
                time = utc_time(event.time_ms)
                yield position, time, str(event.kind), event.group, event.text

    def _remarks(self) -> Iterator[str]:
        if self.summary:
            yield self.summary
        for each in (self, *self.more):
            yield from (f"{group.group}: {group.state}: {group.rests_on}" for group in each.groups)


class StoryEvidence(Struct, frozen=True):
    """The facts of a story. ``copies`` are all records of the message."""

    message: MessageExt
    copies: Sequence[MessageExt] = ()
    traces: Sequence[TraceEntry] = ()
    groups: Sequence[GroupFacts] = ()
    sources: Mapping[str, str] | None = None
    """The source of each record, by offset message id."""
    broker_names: Mapping[str, str] | None = None
    """Names of brokers by store host; None in a store, whose retry offsets have no broker name."""
    unlearnt: Sequence[Unlearnt] = ()
    now_ms: int = 0
    """The time of the story, in epoch milliseconds."""
    end_ms: int | None = None
    """The time of the newest message of stores and archives; None if a source is a cluster."""
    open_half: MessageExt | None = None
    """The half message of an open transaction."""


def choose_message(matches: Sequence[MessageExt]) -> MessageExt | None:
    """Return the message that a story is about: the first one in a topic of users."""
    return min(matches, key=rank_of, default=None)


def rank_of(message: MessageExt) -> tuple[int, int]:
    return _rank(message), message.store_timestamp_ms


def _rank(message: MessageExt) -> int:
    if is_system_topic(message.topic):
        return 1
    return 2 if is_group_topic(message.topic) else 0


def is_same_message(one: MessageExt, other: MessageExt) -> bool:
    """Return whether two records are copies of the same message."""
    if one.unique_key is not None or other.unique_key is not None:
        return one.unique_key == other.unique_key
    return _origin(one) == _origin(other)


def _origin(message: MessageExt) -> str:
    return message.properties.get(props.ORIGIN_MESSAGE_ID) or message.offset_msg_id


def groups_in(
    message: MessageExt, copies: Sequence[MessageExt], traces: Sequence[TraceEntry]
) -> set[str]:
    names = {life_of(each, (message.topic,)).group for each in copies}
    names |= {each.group for each in deliveries_of(traces)}
    return {each for each in names if each}


def build_story(
    query: str, evidence: StoryEvidence, others: tuple[str, ...], coverage: tuple[Coverage, ...]
) -> Story:
    """Return the story for some evidence."""
    message = evidence.message
    copies = sorted(evidence.copies, key=lambda each: (each.store_timestamp_ms, _position(each)))
    deliveries = deliveries_of(evidence.traces)
    originals = _originals(message, copies)
    events = events_of(
        message,
        copies,
        evidence.traces,
        deliveries,
        evidence.sources or {},
        now_ms=evidence.now_ms,
        end_ms=evidence.end_ms,
        open_half=evidence.open_half,
    )
    groups = [
        _group_story(evidence, facts, copies, originals, deliveries) for facts in evidence.groups
    ]
    unlearnt = list(dict.fromkeys(evidence.unlearnt))
    if message.unique_key is None:
        unlearnt.append(Unlearnt(Sentence("copies"), Sentence("no_unique_key")))
    if _rank(message) == 2:
        why = Sentence("first_is_gone", topic=message.topic, msg_id=_origin(message))
        unlearnt.append(Unlearnt(Sentence("first_stored"), why))
    return Story(
        query,
        message,
        others,
        tuple(events),
        tuple(sorted(groups, key=lambda each: each.group)),
        tuple(_topic_repeats(originals)),
        tuple(unlearnt),
        coverage,
    )


def without_failures(story: Story) -> Story:
    """Remove the errors of listeners from a story, since they can contain parts of a body."""

    def without(text: str) -> str:
        why = text.values.get("why") if isinstance(text, Sentence) else None
        if not (isinstance(why, Sentence) and why.name == "failed_at"):
            return text
        assert isinstance(text, Sentence)  # noqa: S101 - it has values
        return Sentence(text.name, **{**text.values, "why": ""})

    return replace(
        story,
        events=tuple(replace(each, text=without(each.text)) for each in story.events),
        groups=tuple(replace(each, failure="") for each in story.groups),
        more=(),
        summary="",
    )


_WORST_FIRST = (GroupState.DEAD_LETTER, GroupState.RETRYING, GroupState.NOT_YET)


def combine_stories(query: str, stories: Sequence[Story]) -> Story:
    """Combine the stories of messages with one key: the worst first, the others in ``more``."""
    ordered = sorted(stories, key=severity_of)
    worst = ordered[0]
    if len(ordered) == 1:
        return worst
    count = len(ordered) + len(worst.others)
    summary = Sentence("key_summary", query=query, count=count, worst=_outcome_of(worst))
    return replace(worst, more=tuple(ordered[1:]), summary=summary)


def severity_of(story: Story) -> int:
    states = [each.state for each in story.groups]
    found = [number for number, each in enumerate(_WORST_FIRST) if each in states]
    # A waiting message has no groups yet.
    waits = story.message is not None and is_system_topic(story.message.topic)
    return min(found, default=len(_WORST_FIRST) - 1 if waits else len(_WORST_FIRST))


def _outcome_of(story: Story) -> str:
    message = story.message
    assert message is not None  # noqa: S101 - stories are of messages
    at = message.position
    for state in _WORST_FIRST:
        for each in story.groups:
            if each.state is not state:
                continue
            failed = [
                one.text
                for one in story.events
                if one.kind is EventKind.CONSUME_FAILED and one.group == each.group
            ]
            last = each.failure or (failed[-1] if failed else "")
            why = Sentence("because", why=last) if last else ""
            since = ""
            if each.since_ms is not None:
                since = Sentence("since", time=time_text(each.since_ms))
            return Sentence(f"{state}_of", at=at, group=each.group, since=since, why=why)
    if is_system_topic(message.topic):
        return Sentence("still_waits", at=at, topic=life_of(message).topic or "?")
    return Sentence("none_failed")


def _position(message: MessageExt) -> tuple[str, int]:
    return str(message.store_host), message.physical_offset


def _originals(message: MessageExt, copies: Sequence[MessageExt]) -> list[MessageExt]:
    """Return the records that were sent to the topic of a message, or wait for it.

    A broker stores half messages and long timers repeatedly.
    """
    state = life_of(message).state
    own = [each for each in copies if each.topic == message.topic]
    if state is LifeState.HALF:
        return own[:1]
    if state is not LifeState.TIMED:
        return own
    sent = {(each.born_timestamp_ms, each.born_host): each for each in reversed(own)}
    return [each for each in reversed(sent.values()) if life_of(each).state is state]


def _topic_repeats(originals: Sequence[MessageExt]) -> list[str]:
    """Return the cause of each further record in the topic."""
    if not originals:
        return []
    first = originals[0]
    texts: list[str] = []
    for each in originals[1:]:
        later_ms = each.born_timestamp_ms - first.born_timestamp_ms
        is_same_host = each.born_host.address == first.born_host.address
        after = {"seconds": f"{later_ms / 1000:.3f}", "address": each.born_host.address}
        if props.RESENT in each.properties:
            why = Sentence("resent_by_job", **resend_values(each))
        elif is_same_host and 0 <= later_ms < PRODUCER_RETRY_MS:
            why = Sentence("producer_retry", **after)
        else:
            why = Sentence("resent", **after)
        at, first_at = each.position, first.position
        texts.append(Sentence("same_key", at=at, first=first_at, why=why))
    return texts


def _group_story(
    evidence: StoryEvidence,
    facts: GroupFacts,
    copies: Sequence[MessageExt],
    originals: Sequence[MessageExt],
    deliveries: Sequence[Delivery],
) -> GroupStory:
    topics = (evidence.message.topic,)
    own = [each for each in copies if life_of(each, topics).group == facts.group]
    of_group = [each for each in deliveries if each.group == facts.group]
    last = own[-1] if own else None
    retries = 0 if last is None else _retry_number(last)
    verdict, source, since_ms = _judge_group(evidence, facts, last, of_group)
    failure = None if last is None else failure_of(last)
    return GroupStory(
        facts.group,
        verdict.state,
        verdict.rests_on,
        source,
        since_ms,
        retries,
        facts.retry_max_times,
        tuple(_offset_repeats(originals, own, of_group)),
        "" if failure is None else failure.error,
    )


def _retry_number(copy: MessageExt) -> int:
    """Return the number of a retry; for a dead letter, that of the last retry."""
    is_dead = life_of(copy).state is LifeState.DEAD_LETTER
    return max(0, copy.reconsume_times - 1) if is_dead else copy.reconsume_times


def _judge_group(
    evidence: StoryEvidence,
    facts: GroupFacts,
    last: MessageExt | None,
    deliveries: Sequence[Delivery],
) -> tuple[GroupVerdict, str, int | None]:
    """Return the verdict, its source, and its start time."""
    said_by = (evidence.sources or {}).get(last.offset_msg_id, "") if last is not None else ""
    if last is not None and life_of(last).state is LifeState.DEAD_LETTER:
        rests_on = Sentence("dead_letter_is", at=last.position)
        verdict = GroupVerdict(GroupState.DEAD_LETTER, rests_on)
        return verdict, said_by, last.store_timestamp_ms
    needed = 0 if last is None else last.reconsume_times
    for each in reversed(deliveries):
        if each.is_success and each.retry_times >= needed:
            client, number = each.client_address, each.retry_times
            rests_on = Sentence("reported", client=client)
            if number:
                rests_on = Sentence("reported_at_retry", client=client, number=number)
            return GroupVerdict(GroupState.CONSUMED, rests_on), each.source, each.end_ms
    if last is not None:
        verdict = _judge_retry(evidence, facts, last)
        return verdict, said_by, last.store_timestamp_ms
    verdict = judge(facts, evidence.message)
    if deliveries and not deliveries[-1].is_success:
        outcome = deliveries[-1].outcome
        rests_on = Sentence("with_outcome", rests_on=verdict.rests_on, outcome=outcome)
        verdict = verdict._replace(rests_on=rests_on)
    offsets, clients = facts.offsets_source, facts.clients_source
    if not offsets or not clients or offsets == clients:
        return verdict, offsets or clients, None
    return verdict, Sentence("by_both", offsets=offsets, clients=clients), None


def _judge_retry(evidence: StoryEvidence, facts: GroupFacts, last: MessageExt) -> GroupVerdict:
    number = last.reconsume_times
    which = Sentence("one_retry", number=number) if number else Sentence("sent_again")
    copy: dict[str, object] = {"copy": which, "at": last.position}
    if life_of(last).state is not LifeState.RETRY:
        due = due_text(last, (), evidence.now_ms, evidence.end_ms) or ""
        rests_on = Sentence("retry_waits", due=due, **copy)
        return GroupVerdict(GroupState.RETRYING, rests_on)
    names = evidence.broker_names
    broker_name = None if names is None else names.get(str(last.store_host))
    offset = (facts.retry_offsets or {}).get((last.topic, broker_name, last.queue_id))
    if facts.retry_offsets is None:
        return GroupVerdict(GroupState.RETRYING, Sentence("retry_unknown", **copy))
    if offset is not None and offset > last.queue_offset:
        rests_on = Sentence("retry_done", offset=offset, **copy)
        return GroupVerdict(GroupState.CONSUMED, rests_on)
    return GroupVerdict(GroupState.RETRYING, Sentence("retry_not_yet", **copy))


def _offset_repeats(
    originals: Sequence[MessageExt], own: Sequence[MessageExt], deliveries: Sequence[Delivery]
) -> list[str]:
    """Return why the group received an offset more than once, according to traces."""
    records: dict[int, int] = defaultdict(int)
    records[0] = max(1, len(originals))
    for copy in own:
        if life_of(copy).state is LifeState.RETRY:
            records[copy.reconsume_times] += 1
    attempts: dict[int, list[Delivery]] = defaultdict(list)
    for each in deliveries:
        attempts[each.retry_times].append(each)
    texts: list[str] = []
    for retry, handed in sorted(attempts.items()):
        if len(handed) <= max(1, records[retry]):
            continue
        clients = list(dict.fromkeys(each.client_address for each in handed))
        texts.append(
            Sentence(
                "handed_out_again",
                what=Sentence("one_retry", number=retry) if retry else Sentence("one_offset"),
                times=len(handed),
                clients=", ".join(clients),
                why=Sentence("rebalanced" if len(clients) > 1 else "not_acknowledged"),
            )
        )
    return texts
