"""A source as one user may see it: the single point that enforces roles on reads.

Sources are asked about visible topics only, so messages, counts, times, errors and order do not
depend on hidden topics. A hidden topic looks like one that does not exist.

====================  ================================================================
question              question to the source
====================  ================================================================
no topic              the patterns of the grants
a name                the same if visible; else there is no such topic
a pattern             the intersection with the grants (`narrowed_topics`)
``TOPIC/QUEUE/N``     the same if the topic is visible; else keys only
an offset message id  the same; a message of a hidden topic is dropped
====================  ================================================================

Coverage keeps its meaning for completeness, but without file names and error texts: both can name
topics.

The intersection of two patterns can be several patterns: that of ``ab*`` and ``*bc`` is ``ab*bc``
and ``abc``.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.errors import BadInput, RocketLensError, TopicNotFound, WrongUse
from rocketlens.formats.commitlog_record import Record, message_of
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.group import FoundGroup, GroupsAnswer, ProducersAnswer
from rocketlens.model.life import dead_letter_topic, origin_topics, retry_topic
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import is_group_topic
from rocketlens.model.status import ArchiveStatus, BrokersAnswer, BrokerStatus, StoreStatus
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.topic import TopicKind, TopicsAnswer, TopicSettings
from rocketlens.query.answer_builder import Findings
from rocketlens.query.facts.waiting import WaitingMessages
from rocketlens.query.filters.content_filter import ContentFilter, RecordSubject
from rocketlens.query.source import Source, awaited
from rocketlens.query.story.story import Story
from rocketlens.query.topic_choice import is_pattern

if TYPE_CHECKING:
    from rocketlens.console.login.viewer import Viewer
    from rocketlens.console.sources.sources import ClusterOfConsole
    from rocketlens.formats.commitlog_record import RecordView
    from rocketlens.query.options import Kind
    from rocketlens.query.request import FindRequest
    from rocketlens.query.tally import SearchTally


MAX_NARROWED_STARS: Final = 6
"""Stars in a pattern of a user with restricted topics: each multiplies the work."""
MAX_NARROWED_PATTERNS: Final = 512
"""Patterns in the intersection of a pattern with the grants of a user."""


class ConsoleSource:
    """A source of a console. Facts that a kind of source does not have are None."""

    kind: Literal["store", "cluster", "archive"]
    name: str
    """Its name in page addresses."""
    title: str
    """Its path, or the addresses of name servers."""
    command_options: Sequence[str]
    """The command line options that name the same source."""
    source: Source
    """The source of messages."""
    cluster: "ClusterOfConsole | None" = None
    """The underlying cluster, without the restrictions of a viewer."""
    namespace: str = ""
    """The namespace of its topics, which grants leave out. Empty for files."""

    def plain(self, topic: str) -> str:
        """Return a topic without the namespace, as users and grants name it."""
        return without_namespace(self.namespace, topic)

    async def broker_of(self, message: MessageExt) -> str:
        """Return the name of the broker that stored a message, or its address."""
        return str(message.store_host)

    async def story(self, message: MessageExt, group: str | None = None) -> Story:
        """Return the story of a message, or that of one group."""
        raise NotImplementedError

    async def topics(self, names: Sequence[str] | None = None) -> TopicsAnswer | None:
        """Return all topics, or those named; None if the source does not know them."""
        raise NotImplementedError

    async def topic_names(self) -> Sequence[str]:
        """Return the topic names that are known at little cost."""
        raise NotImplementedError

    async def topic_settings(self, topic: str) -> Sequence[TopicSettings]:
        """Return the configuration of a topic, by broker."""
        del topic
        return ()

    async def stored_since(self, topic: str, times_ms: Sequence[int]) -> list[int] | None:
        """Return about how many messages were stored since each time; None if costly."""

    async def waiting(self, answer: TopicsAnswer) -> WaitingMessages | None:
        """Return how many messages wait for each topic of ``answer``."""

    async def groups(self, name: str | None = None) -> GroupsAnswer | None:
        """Return the consumer groups, or one; None if the source does not know them."""

    async def producers(self) -> ProducersAnswer | None:
        """Return the producers; None if unknown or hidden."""

    async def status(self) -> BrokersAnswer | StoreStatus | ArchiveStatus | None:
        """Return the state of brokers or files; None if the user may not see it."""

    async def close(self) -> None:
        """Close the source."""


_HIDDEN_ERROR: Final = Sentence("not_shown")
_RELIES_ON: Final = Sentence("in_part_only")


def without_names(coverage: Iterable[Coverage]) -> tuple[Coverage, ...]:
    """Return coverage that proves as much, without file names and error texts."""
    brokers: dict[str, Coverage] = {}
    others: list[Coverage] = []
    for each in coverage:
        if each.kind is SourceKind.BROKER:
            broker = brokers.get(each.source)
            if broker is None or (each.is_failure and not broker.is_failure):
                brokers[each.source] = _without_details(each, each.source, each.kind)
        else:
            others.append(each)
    if not others:
        return tuple(brokers.values())
    failed = [each for each in others if each.is_failure]
    proofs = [each for each in others if each.is_proof]
    worst = (failed or proofs or others)[0]
    relies_on = next((each.relies_on for each in others if each.relies_on), None)
    kind = SourceKind.COMMIT_LOG if failed or proofs else worst.kind
    one = _without_details(replace(worst, relies_on=relies_on), "", kind)
    if proofs and not failed:
        one = replace(one, begin_offset=0, end_offset=0, log_end_offset=0)
    return (*brokers.values(), one)


def _without_details(coverage: Coverage, source: str, kind: SourceKind) -> Coverage:
    state = SourceState.FAILED if coverage.is_failure else SourceState.SEARCHED
    error = _HIDDEN_ERROR if coverage.is_failure else None
    relies_on = _RELIES_ON if coverage.relies_on else None
    return Coverage(source, kind, state, None, error, relies_on=relies_on)


_NOTHING_VISIBLE: Final = Coverage(
    "", SourceKind.COMMIT_LOG, SourceState.SEARCHED, None, None, 0, 0, 0
)
"""The coverage of a search about hidden topics alone: complete, without messages."""


def no_topic(name: str) -> TopicNotFound:
    """Return the error for an unknown topic, or a hidden one, which must look the same."""
    return TopicNotFound(
        Sentence("no_topic_matches" if is_pattern(name) else "no_topic", name=repr(name))
    )


class _Rights:
    """The rights of one viewer in one source. Grants name topics without the namespace."""

    def __init__(self, source: ConsoleSource, viewer: "Viewer") -> None:
        self._source: Final = source
        self._viewer: Final = viewer
        self.patterns: Final = viewer.patterns(source.name)

    def may_see(self, topic: str) -> bool:
        return self._viewer.may_see(self._source.name, self._source.plain(topic))

    def may_see_message(self, message: "MessageExt | RecordSubject") -> bool:
        plain = self._source.plain
        origins = list(map(plain, origin_topics(message.topic, message.properties)))
        return self._viewer.may_see_message(self._source.name, plain(message.topic), origins)


class _VisibleContent(ContentFilter, frozen=True):
    """A content filter that skips hidden messages, which coverage would quote."""

    rights: _Rights | None = None

    def passes(self, record: "Record | RecordView", tally: "SearchTally") -> bool:
        assert self.rights is not None  # noqa: S101 - only made with one
        if TopicKind.of(record.topic) is TopicKind.NORMAL:
            is_visible = self.rights.may_see(record.topic)
        else:
            is_visible = self.rights.may_see_message(RecordSubject(record))
        return is_visible and ContentFilter.passes(self, record, tally)


class _VisibleFindings(Findings):
    """Findings that drop hidden messages, and add the rest to others."""

    def __init__(self, outer: Findings, rights: _Rights) -> None:
        super().__init__(outer.messages, outer.on_added, tally=outer.tally)
        self._rights: Final = rights

    def take(self, record: Record) -> bool:
        if TopicKind.of(record.topic) is not TopicKind.NORMAL:
            # Its properties name the topic that it is a copy of.
            return self.add(message_of(record))
        if not self._rights.may_see(record.topic):
            return self._may_take_more
        return super().take(record)

    def add(self, message: "MessageExt") -> bool:
        is_visible = self._rights.may_see_message(message)
        return super().add(message) if is_visible else self._may_take_more


class _VisibleMessages:
    """The visible messages of a source."""

    def __init__(self, source: "Source", rights: _Rights) -> None:
        self._source: Final = source
        self._rights: Final = rights
        self.name: Final = source.name
        self.kind: Final = source.kind
        self.is_one_log: Final = source.is_one_log

    async def find(self, request: "FindRequest", findings: Findings) -> None:
        patterns = self._rights.patterns
        narrowed = narrowed_topics(request.topics, patterns)
        for name, parts in narrowed.items():
            if not parts:
                findings.unknown[name] = no_topic(name)
        topics = patterns
        if request.topics:
            topics = tuple(dict.fromkeys(each for parts in narrowed.values() for each in parts))
        kinds: tuple[Kind, ...] = (request.kind,)
        position = request.queue_position
        if position is not None and not self._rights.may_see(position.topic):
            # The text can still be a key.
            kinds = ("unique-key", "key") if request.kind == "auto" else ()
        if not topics or not kinds:
            findings.cover((_NOTHING_VISIBLE,))
            return
        own = _VisibleFindings(findings, self._rights)
        content = request.content
        if content is not None:
            parts_of_filter = (content.where, content.grep, content.grep_in, content.rules)
            content = _VisibleContent(*parts_of_filter, rights=self._rights)
        try:
            for kind in kinds:
                # Waiting messages are in other topics, which can be hidden.
                asked = replace(
                    request, topics=topics, kind=kind, content=content, only_delivered=True
                )
                await awaited(partial(self._source.find, asked, own))
        except (BadInput, WrongUse):
            raise
        except (RocketLensError, OSError):
            own.cover((Coverage("", self.kind, SourceState.FAILED, None, _HIDDEN_ERROR),))
        findings.count += own.count
        for name, parts in narrowed.items():
            if parts and all(each in own.unknown for each in parts):
                findings.unknown[name] = no_topic(name)
        findings.cover(without_names(own.searched))

    async def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        """Add the topics that the source does not have, or that are hidden."""
        single = [each for each in names if not is_pattern(each)]
        visible = [each for each in single if self._rights.may_see(each)]
        own = Findings(findings.messages)
        # Whether a topic is surely unknown depends on the coverage so far.
        own.cover(findings.coverage)
        if visible:
            await awaited(partial(self._source.check_topics, visible, own))
            if not own.is_complete:
                findings.cover(without_names(own.coverage))
        hidden = [each for each in single if each not in visible]
        findings.unknown.update({name: no_topic(name) for name in (*hidden, *own.unknown)})


class VisibleSource(ConsoleSource):
    """A source as a viewer may see it. Producers are hidden: they can belong to hidden topics."""

    def __init__(self, source: ConsoleSource, viewer: "Viewer") -> None:
        self._opened: Final = source
        self.name = source.name
        self.title = source.title
        self.command_options = source.command_options
        self.kind = source.kind
        self.cluster = source.cluster
        self.namespace = source.namespace
        rights = _Rights(source, viewer)
        self.source = _VisibleMessages(source.source, rights)
        self._may_see: Final = rights.may_see

    async def broker_of(self, message: "MessageExt") -> str:
        return await self._opened.broker_of(message)

    async def story(self, message: "MessageExt", group: str | None = None) -> "Story":
        """Return the story of a message without events of hidden topics."""
        story = await self._opened.story(message, group)
        hidden = {
            each.topic
            for each in story.events
            if each.topic and TopicKind.of(each.topic) is TopicKind.NORMAL
            if not self._may_see(each.topic)
        }

        def names_hidden(text: str) -> bool:
            return any(name in text for name in hidden)

        unlearnt = [
            replace(each, what=Sentence("part_of_story"), why=_HIDDEN_ERROR)
            for each in story.unlearnt
        ]
        return replace(
            story,
            events=tuple(
                each
                for each in story.events
                if each.topic not in hidden and not names_hidden(each.text)
            ),
            groups=tuple(
                replace(each, repeats=tuple(t for t in each.repeats if not names_hidden(t)))
                for each in story.groups
                if not names_hidden(each.rests_on)
            ),
            others=(),
            more=(),
            summary="",
            repeats=tuple(each for each in story.repeats if not names_hidden(each)),
            unlearnt=tuple(dict.fromkeys(unlearnt)),
            coverage=without_names(story.coverage),
        )

    async def topics(self, names: Sequence[str] | None = None) -> TopicsAnswer | None:
        """:raises TopicNotFound: if a name matches no visible topic."""
        answer = await self._opened.topics(None)
        if answer is None:
            return None
        visible = [each for each in answer.topics if self._may_see(each.name)]
        for name in names or ():
            is_there = any(fnmatchcase(each.name, name) for each in visible)
            if not is_there and (answer.complete or not self._may_see(name)):
                raise no_topic(name)
        if names:
            visible = [
                each for each in visible if any(fnmatchcase(each.name, name) for name in names)
            ]
        return TopicsAnswer(tuple(visible), without_names(answer.coverage))

    async def topic_names(self) -> Sequence[str]:
        return [each for each in await self._opened.topic_names() if self._may_see(each)]

    async def topic_settings(self, topic: str) -> Sequence[TopicSettings]:
        """:raises TopicNotFound: if the topic is hidden."""
        if not self._may_see(topic):
            raise no_topic(topic)
        settings = await self._opened.topic_settings(topic)
        return [
            replace(each, error=None if each.error is None else _HIDDEN_ERROR) for each in settings
        ]

    async def stored_since(self, topic: str, times_ms: Sequence[int]) -> list[int] | None:
        return await self._opened.stored_since(topic, times_ms) if self._may_see(topic) else None

    async def waiting(self, answer: TopicsAnswer) -> "WaitingMessages | None":
        waiting = await self._opened.waiting(answer)
        if waiting is None:
            return None
        counts = {name: n for name, n in waiting.counts.items() if self._may_see(name)}
        return waiting._replace(counts=counts)

    async def groups(self, name: str | None = None) -> GroupsAnswer | None:
        """Return the groups of visible topics, with these topics only."""
        answer = await self._opened.groups(name)
        if answer is None:
            return None
        groups = tuple(filter(None, map(self._visible_group, answer.groups)))
        # A note about an unknown group would distinguish it from a hidden one.
        coverage = (c for c in answer.coverage if c.is_failure or c.kind is not SourceKind.TOPICS)
        return GroupsAnswer(groups, without_names(coverage))

    async def status(self) -> BrokersAnswer | None:
        """Return brokers without their counts, which include hidden topics; None for files."""
        if self.kind != "cluster":
            return None
        answer = await self._opened.status()
        if not isinstance(answer, BrokersAnswer):
            return None
        return BrokersAnswer(
            tuple(map(_visible_broker, answer.brokers)), without_names(answer.coverage)
        )

    def _visible_group(self, group: FoundGroup) -> FoundGroup | None:
        subscribed = (group.subscriptions or {}).items()
        subscriptions = {topic: each for topic, each in subscribed if self._may_see(topic)}
        queues = tuple(each for each in group.queues or () if self._may_see(each.topic))
        if all(map(is_group_topic, (*subscriptions, *(each.topic for each in queues)))):
            return None
        retries = {retry_topic(group.name), *(each.topic for each in group.queues or ())}
        is_retry_visible = all(self._may_see(each) for each in filter(is_group_topic, retries))
        is_dead_visible = self._may_see(dead_letter_topic(group.name))
        made = FoundGroup if is_retry_visible else _GroupWithoutRetries
        return made(
            name=group.name,
            members=group.members,
            message_model=group.message_model,
            subscriptions=None if group.subscriptions is None else subscriptions,
            queues=None if group.queues is None else queues,
            dead_letters=group.dead_letters if is_dead_visible else None,
            last_dead_letter_ms=group.last_dead_letter_ms if is_dead_visible else None,
        )


def _visible_broker(broker: BrokerStatus) -> BrokerStatus:
    return BrokerStatus(
        broker.cluster_name,
        broker.name,
        broker.broker_id,
        broker.address,
        error=None if broker.error is None else _HIDDEN_ERROR,
        version=broker.version,
        started_ms=broker.started_ms,
    )


class _GroupWithoutRetries(FoundGroup, frozen=True):
    """A group whose retry topic is hidden."""

    @property
    def to_retry(self) -> int | None:
        return None


def narrowed_topics(topics: Iterable[str], patterns: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the visible part of each name or pattern as patterns; empty if all of it is hidden.

    :raises BadInput: if a pattern has brackets, or its visible part needs too many patterns.
    """
    patterns = tuple(patterns)
    return {each: _intersection(each, patterns) for each in topics}


def _intersection(topic: str, patterns: tuple[str, ...]) -> tuple[str, ...]:
    if not is_pattern(topic):
        return (topic,) if any(fnmatchcase(topic, each) for each in patterns) else ()
    if "[" in topic:
        raise BadInput(Sentence("pattern_brackets", topic=repr(topic[:80])))
    if len(topic) > limits.MAX_TOPIC_CHARACTERS or topic.count("*") > MAX_NARROWED_STARS:
        raise BadInput(Sentence("pattern_stars", topic=repr(topic[:80])))
    parts: set[str] = set()
    for each in patterns:
        parts |= _intersect(_without_double_stars(topic), _without_double_stars(each))
        if len(parts) > MAX_NARROWED_PATTERNS:
            raise BadInput(Sentence("pattern_stars", topic=repr(topic[:80])))
    wider = {each for each in parts if "*" in each and "?" not in each}
    # Drop patterns that another one includes: fnmatch takes their * as a character.
    kept = {each for each in parts if not any(fnmatchcase(each, w) for w in wider - {each})}
    return tuple(sorted(kept))


def _without_double_stars(pattern: str) -> str:
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    return pattern


@lru_cache(maxsize=4096)
def _intersect(one: str, other: str) -> frozenset[str]:
    """Return the intersection of two patterns."""
    if not one or not other:
        return frozenset({""}) if not (one or other).strip("*") else frozenset()
    first, second = one[0], other[0]
    if first == second == "*":
        common = {"*" + each for each in _intersect(one[1:], other) | _intersect(one, other[1:])}
    elif first == "*":
        common = set(_intersect(one[1:], other)) | {
            second + each for each in _intersect(one, other[1:])
        }
    elif second == "*":
        common = set(_intersect(one, other[1:])) | {
            first + each for each in _intersect(one[1:], other)
        }
    elif "?" in (first, second) or first == second:
        single = second if first == "?" else first
        common = {single + each for each in _intersect(one[1:], other[1:])}
    else:
        return frozenset()
    common = {_without_double_stars(each) for each in common}
    if len(common) > MAX_NARROWED_PATTERNS:
        raise BadInput(Sentence("pattern_stars", topic=repr(common.pop()[:80])))
    return frozenset(common)
