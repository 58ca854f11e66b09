"""A source as one viewer may see it: the one point where roles are enforced on what is read.

Sources are asked about topics that may be seen only, so neither messages nor counts, times, errors
or the order of what is found depend on hidden ones. A topic outside of all grants is one that does
not exist, whether it does or not.

====================  ================================================================
asked for             what the source is asked
====================  ================================================================
no topic              the patterns of the grants
a name                the same, if it may be seen; else there is no such topic
a pattern             what it and the grants both match (`narrowed_topics`)
``TOPIC/QUEUE/N``     the same, if the topic may be seen; else keys only
an offset message id  the same; what is there is dropped if it is of a hidden topic
====================  ================================================================

Coverage says as much as before of whether an answer is complete, but names no files and quotes no
errors: both have names of topics in them.

What two patterns both match can take several patterns: of ``ab*`` and ``*bc`` these are ``ab*bc``
and ``abc``. So sources search what may be seen, and nothing else.

A source is asked for messages, and for facts that are None if it lacks them.
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
"""Of ``*`` in a pattern of a user of the console who may see some topics: each takes more work."""
MAX_NARROWED_PATTERNS: Final = 512
"""Patterns that one pattern is cut into, for a user of the console who may see some topics."""


class ConsoleSource:
    """One source of a console; each kind says more than the defaults."""

    kind: Literal["store", "cluster", "archive"]
    """Whether it runs, or is what was written."""
    name: str
    """Its name in addresses of pages."""
    title: str
    """The path or address, or the addresses of name servers."""
    command_options: Sequence[str]
    """The options by which a command line reads the same source."""
    source: Source
    """The source of messages."""
    cluster: "ClusterOfConsole | None" = None
    """The cluster that it is, whatever a viewer may see of it."""
    namespace: str = ""
    """That of its topics, which grants leave out; empty for files, which have those of several."""

    def plain(self, topic: str) -> str:
        """Return the name of a topic without the namespace, as users and grants name it."""
        return without_namespace(self.namespace, topic)

    async def broker_of(self, message: MessageExt) -> str:
        """Return the name of the broker that stored a message, or its address."""
        return str(message.store_host)

    async def story(self, message: MessageExt, group: str | None = None) -> Story:
        """Return the story of a message; of one group alone, if it is given."""
        raise NotImplementedError

    async def topics(self, names: Sequence[str] | None = None) -> TopicsAnswer | None:
        """Return its topics, or those that are asked for; None if it cannot know them."""
        raise NotImplementedError

    async def topic_names(self) -> Sequence[str]:
        """Return the names of its topics that are known at little cost."""
        raise NotImplementedError

    async def topic_settings(self, topic: str) -> Sequence[TopicSettings]:
        """Return how a topic is configured, broker by broker; what is not known is not in it."""
        del topic
        return ()

    async def stored_since(self, topic: str, times_ms: Sequence[int]) -> list[int] | None:
        """Return about how many messages of a topic were stored since each time, if that is known
        at little cost.
        """

    async def waiting(self, answer: TopicsAnswer) -> WaitingMessages | None:
        """Return how many messages wait for each topic, of a source whose topics are ``answer``."""

    async def groups(self, name: str | None = None) -> GroupsAnswer | None:
        """Return its consumer groups, or one; None if it cannot know them."""

    async def producers(self) -> ProducersAnswer | None:
        """Return its producers; None if it cannot know them, or they may not be seen."""

    async def status(self) -> BrokersAnswer | StoreStatus | ArchiveStatus | None:
        """Return its brokers, or what a store directory or an archive is like; None if that may not
        be seen.
        """

    async def close(self) -> None:
        """Close it."""


_HIDDEN_ERROR: Final = Sentence("not_shown")
_RELIES_ON: Final = Sentence("in_part_only")


def visible_source(source: ConsoleSource, viewer: "Viewer") -> ConsoleSource:
    """Return a source as a viewer may see it."""
    return source if viewer.sees_all(source.name) else VisibleSource(source, viewer)


def without_names(coverage: Iterable[Coverage]) -> tuple[Coverage, ...]:
    """Return coverage that proves as much, with file names and error texts removed."""
    brokers: dict[str, Coverage] = {}
    others: list[Coverage] = []
    for each in coverage:
        if each.kind is SourceKind.BROKER:
            broker = brokers.get(each.source)
            if broker is None or (each.is_failure and not broker.is_failure):
                brokers[each.source] = _plain(each, each.source, each.kind)
        else:
            others.append(each)
    if not others:
        return tuple(brokers.values())
    failed = [each for each in others if each.is_failure]
    proofs = [each for each in others if each.is_proof]
    worst = (failed or proofs or others)[0]
    relies_on = next((each.relies_on for each in others if each.relies_on), None)
    kind = SourceKind.COMMIT_LOG if failed or proofs else worst.kind
    one = _plain(replace(worst, relies_on=relies_on), "", kind)
    if proofs and not failed:
        one = replace(one, begin_offset=0, end_offset=0, log_end_offset=0)
    return (*brokers.values(), one)


def _plain(coverage: Coverage, source: str, kind: SourceKind) -> Coverage:
    state = SourceState.FAILED if coverage.is_failure else SourceState.SEARCHED
    error = _HIDDEN_ERROR if coverage.is_failure else None
    relies_on = _RELIES_ON if coverage.relies_on else None
    return Coverage(source, kind, state, None, error, relies_on=relies_on)


_NOTHING_VISIBLE: Final = Coverage(
    "", SourceKind.COMMIT_LOG, SourceState.SEARCHED, None, None, 0, 0, 0
)
"""Of a search that is about hidden topics alone: there is nothing, and that is complete."""


def no_topic(name: str) -> TopicNotFound:
    """Return the error for an unknown topic. A hidden topic has the same one, so that it cannot be
    told apart.
    """
    return TopicNotFound(
        Sentence("no_topic_matches" if is_pattern(name) else "no_topic", name=repr(name))
    )


class _Rights:
    """The view of one source for one viewer. Grants name topics as users do: without namespace."""

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
    """A filter that looks at what may be seen only: coverage quotes what it could not decide on."""

    rights: _Rights | None = None

    @classmethod
    def of(cls, content: ContentFilter | None, rights: _Rights) -> "_VisibleContent | None":
        """Return a filter for what may be seen."""
        if content is None:
            return None
        return cls(content.where, content.grep, content.grep_in, content.rules, rights=rights)

    def passes(self, record: "Record | RecordView", tally: "SearchTally") -> bool:
        """Return whether a record may be seen and passes."""
        assert self.rights is not None  # noqa: S101 - only made with one
        if TopicKind.of(record.topic) is TopicKind.NORMAL:
            is_visible = self.rights.may_see(record.topic)
        else:
            is_visible = self.rights.may_see_message(RecordSubject(record))
        return is_visible and ContentFilter.passes(self, record, tally)


class _VisibleFindings(Findings):
    """Findings that leave out what may not be seen, and add the rest to others."""

    def __init__(self, outer: Findings, rights: _Rights) -> None:
        super().__init__(outer.messages, outer.on_added, tally=outer.tally)
        self._rights: Final = rights

    def take(self, record: Record) -> bool:
        if TopicKind.of(record.topic) is not TopicKind.NORMAL:
            # Whether it is a copy, and of what, stands in its properties.
            return self.add(message_of(record))
        if not self._rights.may_see(record.topic):
            return self._may_take_more
        return super().take(record)

    def add(self, message: "MessageExt") -> bool:
        is_visible = self._rights.may_see_message(message)
        return super().add(message) if is_visible else self._may_take_more


class _VisibleMessages:
    """The messages of a source that a viewer may see."""

    def __init__(self, source: "Source", rights: _Rights) -> None:
        self._source: Final = source
        self._rights: Final = rights
        self.name: Final = source.name
        self.kind: Final = source.kind
        self.is_one_log: Final = source.is_one_log

    async def find(self, request: "FindRequest", findings: Findings) -> None:
        """Add the messages that match and may be seen."""
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
            # A text of this form can still be a key.
            kinds = ("unique-key", "key") if request.kind == "auto" else ()
        if not topics or not kinds:
            findings.cover((_NOTHING_VISIBLE,))
            return
        own = _VisibleFindings(findings, self._rights)
        content = _VisibleContent.of(request.content, self._rights)
        try:
            for kind in kinds:
                # What waits is asked for with its own topics, which may be hidden.
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
        # What was searched so far decides whether the source can be sure.
        own.cover(findings.coverage)
        if visible:
            await awaited(partial(self._source.check_topics, visible, own))
            if not own.is_complete:
                findings.cover(without_names(own.coverage))
        hidden = [each for each in single if each not in visible]
        findings.unknown.update({name: no_topic(name) for name in (*hidden, *own.unknown)})


class VisibleSource(ConsoleSource):
    """A source of a console, as a viewer may see it: without producers, some of whose topics may be
    hidden.
    """

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
        """Return the name of the broker that stored a message, or its address."""
        return await self._opened.broker_of(message)

    async def story(self, message: "MessageExt", group: str | None = None) -> "Story":
        """Return the story of a message, without what is of hidden topics."""
        story = await self._opened.story(message, group)
        hidden = {
            each.topic
            for each in story.events
            if each.topic and TopicKind.of(each.topic) is TopicKind.NORMAL
            if not self._may_see(each.topic)
        }

        def names_hidden(*texts: str) -> bool:
            return any(name in text for text in texts for name in hidden)

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
        """Return its topics that may be seen, or those of them that are asked for.

        :raises TopicNotFound: if one that is asked for is not among them.
        """
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
        """Return the names of its topics that may be seen."""
        return [each for each in await self._opened.topic_names() if self._may_see(each)]

    async def topic_settings(self, topic: str) -> Sequence[TopicSettings]:
        """Return how a topic that may be seen is configured.

        :raises TopicNotFound: if it may not be seen.
        """
        if not self._may_see(topic):
            raise no_topic(topic)
        settings = await self._opened.topic_settings(topic)
        return [
            replace(each, error=None if each.error is None else _HIDDEN_ERROR) for each in settings
        ]

    async def stored_since(self, topic: str, times_ms: Sequence[int]) -> list[int] | None:
        """Return the counts of a topic that may be seen."""
        return await self._opened.stored_since(topic, times_ms) if self._may_see(topic) else None

    async def waiting(self, answer: TopicsAnswer) -> "WaitingMessages | None":
        """Return how many messages wait for each topic that may be seen."""
        waiting = await self._opened.waiting(answer)
        if waiting is None:
            return None
        counts = {name: n for name, n in waiting.counts.items() if self._may_see(name)}
        return waiting._replace(counts=counts)

    async def groups(self, name: str | None = None) -> GroupsAnswer | None:
        """Return its groups of topics that may be seen, with these topics only."""
        answer = await self._opened.groups(name)
        if answer is None:
            return None
        groups = tuple(filter(None, map(self._visible_group, answer.groups)))
        # A note that there is no such group would tell it from a hidden one.
        told = (c for c in answer.coverage if c.is_failure or c.kind is not SourceKind.TOPICS)
        return GroupsAnswer(groups, without_names(told))

    async def status(self) -> BrokersAnswer | None:
        """Return which brokers there are, and whether they answer: what they count, and what the
        files of a store or an archive are like, is of all topics.
        """
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
    """Return for each name or pattern what is left of it; nothing if all of it is hidden.

    :raises BadInput: for a pattern with brackets, and for one that is cut into too many.
    """
    patterns = tuple(patterns)
    return {each: _narrowed(each, patterns) for each in topics}


def _narrowed(topic: str, patterns: tuple[str, ...]) -> tuple[str, ...]:
    if not is_pattern(topic):
        return (topic,) if any(fnmatchcase(topic, each) for each in patterns) else ()
    if "[" in topic:
        raise BadInput(Sentence("pattern_brackets", topic=repr(topic[:80])))
    if len(topic) > limits.MAX_TOPIC_CHARACTERS or topic.count("*") > MAX_NARROWED_STARS:
        raise BadInput(Sentence("pattern_stars", topic=repr(topic[:80])))
    parts: set[str] = set()
    for each in patterns:
        parts |= _both(_without_double_stars(topic), _without_double_stars(each))
        if len(parts) > MAX_NARROWED_PATTERNS:
            raise BadInput(Sentence("pattern_stars", topic=repr(topic[:80])))
    wider = {each for each in parts if "*" in each and "?" not in each}
    # Without those that another one has all of: the * of the one is a character for the other.
    kept = {each for each in parts if not any(fnmatchcase(each, w) for w in wider - {each})}
    return tuple(sorted(kept))


def _without_double_stars(pattern: str) -> str:
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    return pattern


@lru_cache(maxsize=4096)
def _both(one: str, other: str) -> frozenset[str]:
    """Return patterns that together match what both match."""
    if not one or not other:
        return frozenset({""}) if not (one or other).strip("*") else frozenset()
    first, second = one[0], other[0]
    if first == second == "*":
        common = {"*" + each for each in _both(one[1:], other) | _both(one, other[1:])}
    elif first == "*":
        common = set(_both(one[1:], other)) | {second + each for each in _both(one, other[1:])}
    elif second == "*":
        common = set(_both(one, other[1:])) | {first + each for each in _both(one[1:], other)}
    elif "?" in (first, second) or first == second:
        single = second if first == "?" else first
        common = {single + each for each in _both(one[1:], other[1:])}
    else:
        return frozenset()
    common = {_without_double_stars(each) for each in common}
    if len(common) > MAX_NARROWED_PATTERNS:
        raise BadInput(Sentence("pattern_stars", topic=repr(common.pop()[:80])))
    return frozenset(common)
