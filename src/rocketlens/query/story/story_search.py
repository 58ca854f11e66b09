"""Collects evidence about a message from several sources, and builds its story.

First the message is found like in `find`. Then each source is searched for records with its unique
key and for its traces, and asked about groups. Failures and omissions become part of the story, so
that missing evidence is never mistaken for a fact.
"""

import time
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.errors import BadInput, RocketLensError, TopicNotFound, WrongUse
from rocketlens.formats import trace_body
from rocketlens.model import properties as props
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.group import GroupsAnswer
from rocketlens.model.life import (
    HALF_MESSAGE_TOPICS,
    WAITING_TOPICS,
    LifeState,
    ends_half,
    handed_out_by,
    life_of,
)
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import (
    HALF_MESSAGE_TOPIC,
    OP_MESSAGE_TOPIC,
    REVIVE_PREFIX,
    ROCKSDB_OP_MESSAGE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    is_system_topic,
)
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.facts.group_state import GroupFacts
from rocketlens.query.find import find_in_all, find_steps
from rocketlens.query.kept import newest_time_steps
from rocketlens.query.request import FindRequest, StoryRequest
from rocketlens.query.source import Source, Steps, run_in_loop
from rocketlens.query.story.story import (
    Story,
    StoryEvidence,
    Unlearnt,
    build_story,
    choose_message,
    combine_stories,
    groups_in,
    is_same_message,
    rank_of,
)
from rocketlens.query.story.story_events import TraceEntry, deliveries_of

MAX_MARKS: Final = 10_000
"""Marks of ended transactions, after a half message, that are searched for its own."""
MAX_HAND_OUTS: Final = 1_000
"""Newest records of POP, and timers, that are searched for those of a message."""
MAX_STORIES: Final = 20
"""Messages with one key whose stories are returned; others are listed."""
_MAX_OTHERS: Final = 100
"""Other matching messages that a story lists."""


class SourceFacts(Struct, frozen=True):
    """The facts of one source about the groups of a message."""

    groups: tuple[GroupFacts, ...] = ()
    unlearnt: tuple[Unlearnt, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    broker_names: dict[str, str] | None = None
    """Names of brokers by store host."""
    no_group: str | None = None
    """Why the requested group does not exist; empty if it exists, None if unknown."""


class CopyTopics(Struct, frozen=True):
    """The topics of a source to search for copies of a message; empty for all."""

    topics: tuple[str, ...] = ()
    left_out: int = 0
    """The number of topics that are not searched but could contain a copy."""
    coverage: tuple[Coverage, ...] = ()


class StorySource:
    """A source of messages, with facts about groups that subclasses add.

    Methods of subclasses can return awaitables.
    """

    source: Source

    def __init__(self, source: Source) -> None:
        self.source = source

    def facts(
        self, _message: MessageExt, _groups: set[str], _group: str | None
    ) -> SourceFacts | Awaitable[SourceFacts]:
        """Return facts about the groups of the message's topic and about ``groups``, or only about
        ``group``.
        """
        return SourceFacts()

    def copy_topics(self, _messages: Sequence[MessageExt]) -> CopyTopics | Awaitable[CopyTopics]:
        """Return the topics to search for copies of a message, given some of its records.

        :raises RocketLensError: if that cannot be determined.
        """
        return CopyTopics()

    def said_by(self, _message: MessageExt) -> str | Awaitable[str]:
        """Describe the source of a record in a few words."""
        return self.source.name


class _Gathered(Struct):
    """The evidence of all sources so far."""

    copies: dict[tuple[object, ...], MessageExt] = {}
    sources: dict[str, str] = {}
    traces: dict[tuple[object, ...], TraceEntry] = {}
    unlearnt: list[Unlearnt] = []
    coverage: list[Coverage] = []

    def fail(self, what: str, error: RocketLensError) -> None:
        """Add an unknown fact. Errors of the caller are raised."""
        if isinstance(error, WrongUse | BadInput):
            raise error
        self.unlearnt.append(Unlearnt(what, str(error), is_failure=True))


async def find_story(question: StoryRequest, sources: Sequence[StorySource]) -> Story:
    """Return the story of the message that a request finds; see `story_steps`."""
    return await run_in_loop(story_steps(question, sources))


def story_steps(question: StoryRequest, sources: Sequence[StorySource]) -> Steps[Story]:
    """Return the story of the message that a request finds; its `message` is None if none is found.

    If several messages match, for example by a business key, the story of the worst has the others
    in `more`. With ``one``, only the first original message has a story, and the others are listed.

    :raises TopicNotFound: if nothing is found and the topic does not exist.
    :raises RocketLensError: if the only source cannot be searched.
    """
    request = replace(question.message, max_num=limits.MAX_STORY_RECORDS)
    several = len(sources) > 1
    if several:
        all_of_them = [each.source for each in sources]
        answer: Answer = yield partial(find_in_all, request, all_of_them)
    else:
        answer = yield from find_steps(request, sources[0].source)
    traces_in = question.trace_topic or TRACE_TOPIC
    # The keys of a trace are the ids of its messages.
    matches = [each for each in answer.messages if each.topic != traces_in] or answer.messages
    messages = distinct_messages(matches)
    if not messages:
        return Story(request.query, None, (), (), (), (), (), answer.coverage)
    chosen = messages[: 1 if question.one else MAX_STORIES]
    others = tuple(each.position for each in messages[len(chosen) :][:_MAX_OTHERS])
    stories: list[Story] = []
    for each in chosen:
        stories += [(yield from _story_of(question, sources, answer, each, others))]
    return combine_stories(request.query, stories)


def distinct_messages(matches: Sequence[MessageExt]) -> list[MessageExt]:
    """Return the first readable record of each message."""
    messages: list[MessageExt] = []
    by_rank = sorted(matches, key=rank_of)
    for each in by_rank:
        if not any(is_same_message(each, message) for message in messages[:_MAX_OTHERS]):
            messages.append(each)
    return messages


def _story_of(
    question: StoryRequest,
    sources: Sequence[StorySource],
    answer: Answer,
    chosen: MessageExt,
    others: tuple[str, ...],
) -> Steps[Story]:
    request, several = question.message, len(sources) > 1
    traces_in = question.trace_topic or TRACE_TOPIC
    gathered = _Gathered()
    if answer.truncated:
        gathered.unlearnt.append(_too_many("too_many_matches", query=request.query))
    # One look-up of the unique key in all topics found all copies.
    is_of_all = not several and not request.topics and request.text == chosen.unique_key
    has_all = is_of_all and not answer.truncated
    for each in sources:
        messages = [chosen] if several else list(answer.messages)
        if not has_all:
            messages += yield from _find_copies(each, chosen, messages, gathered)
        yield from _add_copies(each, chosen, messages, gathered)
    copies = list(gathered.copies.values())
    message = choose_message(copies) or chosen
    for each in sources:
        yield from _find_traces(each, message, copies, traces_in, gathered)
    if _has_later_retry(message, gathered):
        # Some retries were stored and consumed during the search for copies.
        for each in sources:
            more = yield from _find_copies(each, message, copies, gathered)
            yield from _add_copies(each, message, more, gathered)
        copies = list(gathered.copies.values())
    open_half = yield from _end_transaction(sources, gathered)
    yield from _find_hand_outs(sources, message, gathered)
    copies = list(gathered.copies.values())
    facts = yield from _collect_group_facts(sources, message, gathered, question.group)
    waits = any(each.topic in WAITING_TOPICS for each in copies)
    end_ms = yield from newest_time_steps([each.source for each in sources] if waits else ())
    evidence = StoryEvidence(
        message,
        copies,
        list(gathered.traces.values()),
        facts.groups,
        gathered.sources,
        facts.broker_names,
        gathered.unlearnt,
        time.time_ns() // 1_000_000,
        end_ms,
        open_half,
    )
    coverage = (*answer.coverage, *dict.fromkeys(gathered.coverage))
    return build_story(request.query, evidence, others, coverage)


def _too_many(name: str, **values: object) -> Unlearnt:
    why = Sentence(name, count=limits.MAX_STORY_RECORDS, **values)
    return Unlearnt(Sentence("all_records"), why, is_failure=True)


def _find_copies(
    source: StorySource, chosen: MessageExt, messages: Sequence[MessageExt], gathered: _Gathered
) -> Steps[list[MessageExt]]:
    """Return the records with the unique key of a message, or without one, with its first key."""
    try:
        own = [each for each in messages if is_same_message(each, chosen)]
        where: CopyTopics = yield partial(source.copy_topics, own)
    except RocketLensError as error:
        gathered.fail(Sentence("copies"), error)
        return []
    gathered.coverage += where.coverage
    if where.left_out:
        gathered.unlearnt.append(_unsearched_topics(where, chosen))
    by_key = FindRequest(topics=where.topics, all_topics=True, only_delivered=True)
    origin = chosen.properties.get(props.ORIGIN_MESSAGE_ID)
    if chosen.unique_key is not None:
        requests = [replace(by_key, text=chosen.unique_key, kind="unique-key")]
    else:
        requests = [replace(by_key, text=key, kind="key") for key in chosen.keys[:1]]
        requests += [] if origin is None else [FindRequest(origin, kind="offset-id")]
    copies: list[MessageExt] = []
    for each in requests:
        limited = replace(each, max_num=limits.MAX_STORY_RECORDS)
        try:
            more = yield from find_steps(limited, source.source)
        except RocketLensError as error:
            gathered.fail(Sentence("copies"), error)
            continue
        gathered.coverage += more.failures
        copies += more.messages
        if more.truncated:
            gathered.unlearnt.append(_too_many("too_many_records"))
    return copies


def _unsearched_topics(where: CopyTopics, chosen: MessageExt) -> Unlearnt:
    key = chosen.unique_key
    more = "" if key is None else Sentence("find_searches_all", unique_key=key)
    searched = Sentence("some_topics", count=len(where.topics), more=more)
    return Unlearnt(Sentence("copies_elsewhere", count=where.left_out), searched)


def _add_copies(
    source: StorySource, chosen: MessageExt, copies: Sequence[MessageExt], gathered: _Gathered
) -> Steps[None]:
    for message in copies:
        if is_same_message(message, chosen):
            yield from _add(source, message, gathered)


def _add(source: StorySource, message: MessageExt, gathered: _Gathered) -> Steps[None]:
    identity = (message.store_host, message.physical_offset, message.topic)
    gathered.copies.setdefault(identity, message)
    if message.offset_msg_id not in gathered.sources:
        gathered.sources[message.offset_msg_id] = yield partial(source.said_by, message)


def _end_transaction(
    sources: Sequence[StorySource], gathered: _Gathered
) -> Steps[MessageExt | None]:
    """Add the mark of an ended transaction; return the half message if it is open.

    None if the message is committed, ended, or in an unknown state.
    """
    halves = [each for each in gathered.copies.values() if each.topic in HALF_MESSAGE_TOPICS]
    if not halves or len(halves) < len(gathered.copies):
        return None
    last = max(halves, key=lambda each: each.physical_offset)
    marks = OP_MESSAGE_TOPIC if last.topic == HALF_MESSAGE_TOPIC else ROCKSDB_OP_MESSAGE_TOPIC
    request = FindRequest(
        topics=(marks,), begin=last.store_timestamp_ms, max_num=MAX_MARKS, oldest=True
    )
    what = Sentence("how_ended")
    is_known = True
    for source in sources:
        try:
            answer = yield from find_steps(request, source.source)
        except TopicNotFound:
            continue
        except RocketLensError as error:
            gathered.fail(what, error)
            is_known = False
            continue
        for each in answer.messages:
            if ends_half(each, last):
                yield from _add(source, each, gathered)
                return None
        if answer.truncated or not answer.complete:
            is_known = False
            why = Sentence("marks_unread")
            if answer.truncated:
                why = Sentence("too_many_marks", count=MAX_MARKS)
            gathered.unlearnt.append(Unlearnt(what, why, is_failure=True))
    return last if is_known else None


def _find_hand_outs(
    sources: Sequence[StorySource], message: MessageExt, gathered: _Gathered
) -> Steps[None]:
    """Add the records of POP deliveries and acknowledgements of a message.

    They are in revive topics, and among the timers until their messages are visible again. Only the
    newest records are read.
    """
    if is_system_topic(message.topic):
        return
    at = {(each.store_host, each.position) for each in gathered.copies.values()}
    since_ms = message.store_timestamp_ms
    for source in sources:
        for topic in (f"{REVIVE_PREFIX}*", TIMER_TOPIC):
            request = FindRequest(
                topics=(topic,), begin=since_ms, max_num=MAX_HAND_OUTS, all_topics=True
            )
            try:
                answer = yield from find_steps(request, source.source)
            except TopicNotFound:
                # Without a revive topic, POP was never used.
                break
            except RocketLensError as error:
                gathered.fail(Sentence("hand_outs"), error)
                break
            gathered.coverage += answer.failures
            if answer.truncated:
                why = Sentence("newest_of_pop", count=MAX_HAND_OUTS)
                gathered.unlearnt.append(Unlearnt(Sentence("hand_outs"), why))
            for each in answer.messages:
                is_one = life_of(each).state in {LifeState.HANDED_OUT, LifeState.ACKNOWLEDGED}
                given = handed_out_by(each) if is_one else None
                if given and any((each.store_host, one) in at for one in given.positions):
                    yield from _add(source, each, gathered)


def _find_traces(
    source: StorySource,
    message: MessageExt,
    copies: Sequence[MessageExt],
    trace_topic: str,
    gathered: _Gathered,
) -> Steps[None]:
    ids = {message.unique_key} if message.unique_key else {each.offset_msg_id for each in copies}
    damage: list[str] = []
    is_known = True
    for msg_id in sorted(filter(None, ids)):
        request = FindRequest(msg_id, (trace_topic,), kind="key", max_num=limits.MAX_STORY_RECORDS)
        try:
            answer = yield from find_steps(request, source.source)
        except TopicNotFound:
            is_known = False
            continue
        except RocketLensError as error:
            gathered.fail(Sentence("trace"), error)
            return
        gathered.coverage += answer.failures
        for entry in trace_entries(answer.messages, msg_id, trace_topic, damage):
            gathered.traces.setdefault((entry.record, entry.client_address), entry)
    for each in damage:
        damaged = Sentence("trace_damaged", damage=each)
        gathered.unlearnt.append(Unlearnt(Sentence("part_of_trace"), damaged, is_failure=True))
    if not gathered.traces:
        why = Sentence("not_in_trace" if is_known else "no_trace_topic", topic=trace_topic)
        gathered.unlearnt.append(Unlearnt(Sentence("said_by_clients"), why))


def trace_entries(
    messages: Iterable[MessageExt], msg_id: str, trace_topic: str, damage: list[str]
) -> Iterator[TraceEntry]:
    """Yield the trace records of one message; add unreadable parts to ``damage``."""
    for stored in messages:
        said_by = f"{trace_topic}/{stored.queue_id}/{stored.queue_offset}"
        for record in trace_body.decode(stored.body, damage):
            if record.msg_id == msg_id:
                address = record.client_host or stored.born_host.address
                yield TraceEntry(record, address, said_by)


def _has_later_retry(message: MessageExt, gathered: _Gathered) -> bool:
    """Return whether traces report a later retry in a group than the copies show."""
    retries: dict[str | None, int] = {}
    for copy in gathered.copies.values():
        group = life_of(copy, (message.topic,)).group
        retries[group] = max(retries.get(group, 0), copy.reconsume_times)
    deliveries = deliveries_of(list(gathered.traces.values()))
    return any(each.retry_times > retries.get(each.group, 0) for each in deliveries)


def missing_group(answer: GroupsAnswer) -> str:
    """Return why a requested group does not exist; empty if it may exist."""
    said = [each.note for each in answer.coverage if each.source == "groups" and each.note]
    return said[0] if said and answer.complete else ""


def _collect_group_facts(
    sources: Sequence[StorySource], message: MessageExt, gathered: _Gathered, group: str | None
) -> Steps[SourceFacts]:
    if is_system_topic(message.topic):
        # It waits at its broker, so no group can have received it.
        return SourceFacts()
    copies, traces = list(gathered.copies.values()), list(gathered.traces.values())
    names = groups_in(message, copies, traces)
    groups: dict[str, GroupFacts] = {}
    broker_names: dict[str, str] | None = None
    no_group: list[str] = []
    for each in sources:
        try:
            facts: SourceFacts = yield partial(each.facts, message, names, group)
        except RocketLensError as error:
            gathered.fail(Sentence("groups_did"), error)
            continue
        gathered.unlearnt += facts.unlearnt
        gathered.coverage += facts.coverage
        for group_facts in facts.groups:
            groups[group_facts.group] = _more_precise(groups.get(group_facts.group), group_facts)
        if facts.broker_names is not None:
            broker_names = {**(broker_names or {}), **facts.broker_names}
        if facts.no_group is not None:
            no_group.append(facts.no_group)
    if no_group and all(no_group):
        gathered.unlearnt.append(Unlearnt(Sentence("group_did", group=group), no_group[0]))
    return SourceFacts(tuple(groups.values()), broker_names=broker_names)


def _more_precise(one: GroupFacts | None, other: GroupFacts) -> GroupFacts:
    """Return the more precise facts: those of a running cluster rather than of a store."""
    if one is None or (one.is_online is None and other.is_online is not None):
        return other
    return other if one.has_offsets is None and other.has_offsets is not None else one
