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
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.errors import BadInput, RocketLensError, TopicNotFound, WrongUse
from rocketlens.formats.commitlog_record import Record, message_of
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.group import FoundGroup, GroupsAnswer
from rocketlens.model.properties import ORIGIN_TOPICS
from rocketlens.model.rocketmq import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketlens.model.status import BrokersAnswer, BrokerStatus
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.topic import FoundTopic, TopicKind, TopicsAnswer, TopicSettings
from rocketlens.query.answer_builder import Findings
from rocketlens.query.filters.content_filter import ContentFilter, RecordSubject
from rocketlens.query.topic_choice import is_pattern

if TYPE_CHECKING:
    from rocketlens.console.login.viewer import Viewer
    from rocketlens.console.sources.sources import ConsoleSource
    from rocketlens.formats.commitlog_record import RecordView
    from rocketlens.model.message import MessageExt
    from rocketlens.query.options import Kind
    from rocketlens.query.request import FindRequest
    from rocketlens.query.source import Source
    from rocketlens.query.story.story import Story

_UNSAID: Final = Sentence("not_shown")
_RELIES_ON: Final = Sentence("in_part_only")


def seen_source(source: "ConsoleSource", viewer: "Viewer") -> "ConsoleSource":
    """Return a source as a viewer may see it."""
    return source if viewer.sees_all(source.name) else SeenSource(source, viewer)


def unsaid(coverage: Iterable[Coverage]) -> tuple[Coverage, ...]:
    """Return coverage that is worth as much, without names of files and errors."""
    brokers: dict[str, Coverage] = {}
    others: list[Coverage] = []
    for each in coverage:
        if each.kind is SourceKind.BROKER:
            known = brokers.get(each.source)
            if known is None or (each.is_failure and not known.is_failure):
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
    error = _UNSAID if coverage.is_failure else None
    relies_on = _RELIES_ON if coverage.relies_on else None
    return Coverage(source, kind, state, None, error, relies_on=relies_on)


_NOTHING_ASKED: Final = Coverage(
    "", SourceKind.COMMIT_LOG, SourceState.SEARCHED, None, None, 0, 0, 0
)
"""Of a search that is about hidden topics alone: there is nothing, and that is complete."""


def no_topic(name: str) -> TopicNotFound:
    """Return the error of a topic that is hidden, or is not there: it is the same."""
    what = f"no topic matches {name!r}" if is_pattern(name) else f"there is no topic {name!r}"
    return TopicNotFound(what)


def namespace_of(source: "ConsoleSource") -> str:
    """Return the namespace of a source's topics; empty if it has none, as a store directory."""
    namespace: str = getattr(source.opened.source, "namespace", "")
    return namespace


class _Sight:
    """What a viewer may see of one source. Grants name topics as users do: without namespace."""

    def __init__(self, source: "ConsoleSource", viewer: "Viewer") -> None:
        self._name: Final = source.name
        self._viewer: Final = viewer
        self._namespace: Final[str] = namespace_of(source)
        self.patterns: Final = viewer.patterns(source.name)

    def may_see(self, topic: str) -> bool:
        return self._viewer.may_see(self._name, without_namespace(self._namespace, topic))

    def may_see_message(self, message: "MessageExt | RecordSubject") -> bool:
        origins = {
            name: without_namespace(self._namespace, message.properties[name])
            for name in ORIGIN_TOPICS
            if name in message.properties
        }
        topic = without_namespace(self._namespace, message.topic)
        return self._viewer.may_see_message(self._name, topic, origins)


@dataclass(frozen=True, slots=True)
class _SeenContent(ContentFilter):
    """A filter that looks at what may be seen only: coverage quotes what it could not decide on."""

    sight: _Sight | None = None

    @classmethod
    def of(cls, content: ContentFilter | None, sight: _Sight) -> "_SeenContent | None":
        """Return a filter, for what may be seen; it counts where the other one does."""
        if content is None:
            return None
        return cls(
            content.where, content.grep, content.grep_in, content.rules, content.tally, sight
        )

    def passes(self, record: "Record | RecordView") -> bool:
        """Return whether a record may be seen and passes."""
        assert self.sight is not None  # noqa: S101 - only made with one
        if TopicKind.of(record.topic) is TopicKind.NORMAL:
            is_seen = self.sight.may_see(record.topic)
        else:
            is_seen = self.sight.may_see_message(RecordSubject(record))
        return is_seen and ContentFilter.passes(self, record)


class _SeenFindings(Findings):
    """Takes what may be seen, for other findings."""

    def __init__(self, outer: Findings, sight: _Sight) -> None:
        super().__init__(outer.messages, outer.on_added)
        self._sight: Final = sight

    def take(self, record: Record) -> bool:
        if TopicKind.of(record.topic) is not TopicKind.NORMAL:
            # Whether it is a copy, and of what, stands in its properties.
            return self.add(message_of(record))
        if not self._sight.may_see(record.topic):
            return self._may_take_more
        return super().take(record)

    def add(self, message: "MessageExt") -> bool:
        is_seen = self._sight.may_see_message(message)
        return super().add(message) if is_seen else self._may_take_more


class _SeenMessages:
    """The messages of a source that a viewer may see."""

    def __init__(self, source: "Source", sight: _Sight) -> None:
        self._source: Final = source
        self._sight: Final = sight
        self.name: Final = source.name
        self.kind: Final = source.kind
        self.is_one_log: Final = source.is_one_log

    async def find(self, request: "FindRequest", findings: Findings) -> None:
        """Add the messages that match and may be seen."""
        patterns = self._sight.patterns
        narrowed = narrowed_topics(request.topics, patterns)
        for name, left in narrowed.items():
            if not left:
                findings.unknown[name] = no_topic(name)
        topics = patterns
        if request.topics:
            topics = tuple(dict.fromkeys(each for left in narrowed.values() for each in left))
        kinds: tuple[Kind, ...] = (request.kind,)
        position = request.queue_position
        if position is not None and not self._sight.may_see(position.topic):
            # A text of this form can still be a key.
            kinds = ("unique-key", "key") if request.kind == "auto" else ()
        if not topics or not kinds:
            findings.cover((_NOTHING_ASKED,))
            return
        own = _SeenFindings(findings, self._sight)
        content = _SeenContent.of(request.content, self._sight)
        try:
            for kind in kinds:
                await self._source.find(
                    replace(request, topics=topics, kind=kind, content=content), own
                )
        except (BadInput, WrongUse):
            raise
        except (RocketLensError, OSError):
            own.cover((Coverage("", self.kind, SourceState.FAILED, None, _UNSAID),))
        findings.count += own.count
        for name, left in narrowed.items():
            if left and all(each in own.unknown for each in left):
                findings.unknown[name] = no_topic(name)
        findings.cover(unsaid(own.coverage))

    async def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        """Add the topics that the source does not have, or that are hidden."""
        single = [each for each in names if not is_pattern(each)]
        seen = [each for each in single if self._sight.may_see(each)]
        own = Findings(findings.messages)
        # What was searched so far decides whether the source can be sure.
        own.cover(findings.coverage)
        if seen:
            await self._source.check_topics(seen, own)
            if not own.is_complete:
                findings.cover(unsaid(own.coverage))
        hidden = [each for each in single if each not in seen]
        findings.unknown.update({name: no_topic(name) for name in (*hidden, *own.unknown)})


class SeenSource:
    """A source of a console, as a viewer may see it."""

    def __init__(self, source: "ConsoleSource", viewer: "Viewer") -> None:
        self.opened: Final = source
        self.name: Final = source.name
        self.title: Final = source.title
        self.command_options: Final = source.command_options
        self.kind: Final = source.kind
        sight = _Sight(source, viewer)
        self.source: Final[Source] = _SeenMessages(source.source, sight)
        self._may_see: Final = sight.may_see

    async def broker_of(self, message: "MessageExt") -> str:
        """Return the name of the broker that stored a message, or its address."""
        return await self.opened.broker_of(message)

    async def story(self, message: "MessageExt", group: str | None = None) -> "Story":
        """Return the story of a message, without what is of hidden topics."""
        story = await self.opened.story(message, group)
        hidden = {
            each.topic
            for each in story.events
            if each.topic and TopicKind.of(each.topic) is TopicKind.NORMAL
            if not self._may_see(each.topic)
        }

        def names_hidden(*texts: str) -> bool:
            return any(name in text for text in texts for name in hidden)

        unlearnt = [
            replace(each, what=Sentence("part_of_story"), why=_UNSAID) for each in story.unlearnt
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
            repeats=tuple(each for each in story.repeats if not names_hidden(each)),
            unlearnt=tuple(dict.fromkeys(unlearnt)),
            coverage=unsaid(story.coverage),
        )

    async def topics(self, asked: Sequence[str] | None = None) -> TopicsAnswer | None:
        """Return its topics that may be seen, or those of them that are asked for.

        :raises TopicNotFound: if one that is asked for is not among them.
        """
        found = await self.opened.topics(None)
        if found is None:
            return None
        seen = [each for each in found.topics if self._may_see(each.name)]
        for name in asked or ():
            is_there = any(fnmatchcase(each.name, name) for each in seen)
            if not is_there and (found.complete or not self._may_see(name)):
                raise no_topic(name)
        if asked:
            seen = [each for each in seen if any(fnmatchcase(each.name, name) for name in asked)]
        return TopicsAnswer(tuple(seen), unsaid(found.coverage))

    async def topic_names(self) -> Sequence[str]:
        """Return the names of its topics that may be seen."""
        return [each for each in await self.opened.topic_names() if self._may_see(each)]

    async def topic_settings(self, topic: str) -> Sequence[TopicSettings]:
        """Return how a topic that may be seen is configured.

        :raises TopicNotFound: if it may not be seen.
        """
        if not self._may_see(topic):
            raise no_topic(topic)
        found = await self.opened.topic_settings(topic)
        return [replace(each, error=None if each.error is None else _UNSAID) for each in found]

    async def stored_since(self, topic: FoundTopic, since_ms: int) -> int | None:
        """Return about how many messages of a topic were stored since a time, if that is known."""
        return await self.opened.stored_since(topic, since_ms)

    async def groups(self, asked: str | None = None) -> GroupsAnswer | None:
        """Return its groups of topics that may be seen, with these topics only."""
        found = await self.opened.groups(asked)
        if found is None:
            return None
        groups = tuple(filter(None, map(self._seen_group, found.groups)))
        return GroupsAnswer(groups, unsaid(found.coverage))

    async def producers(self) -> None:
        """Return nothing: what topics they send to is not known, and some are hidden."""

    async def status(self) -> BrokersAnswer | None:
        """Return which brokers there are, and whether they answer: what they count, and what the
        files of a store are like, is of all topics.
        """
        if self.kind == "store":
            return None
        found = await self.opened.status()
        if not isinstance(found, BrokersAnswer):
            return None
        return BrokersAnswer(tuple(map(_seen_broker, found.brokers)), unsaid(found.coverage))

    def _seen_group(self, group: FoundGroup) -> FoundGroup | None:
        subscribed = (group.subscriptions or {}).items()
        subscriptions = {topic: each for topic, each in subscribed if self._may_see(topic)}
        queues = tuple(each for each in group.queues or () if self._may_see(each.topic))
        copies = {RETRY_PREFIX + group.name, DEAD_LETTER_PREFIX + group.name}
        if not {*subscriptions, *(each.topic for each in queues)} - copies:
            return None
        is_retry_seen = self._may_see(RETRY_PREFIX + group.name)
        is_dead_seen = self._may_see(DEAD_LETTER_PREFIX + group.name)
        made = FoundGroup if is_retry_seen else _GroupWithoutRetries
        return made(
            name=group.name,
            members=group.members,
            message_model=group.message_model,
            subscriptions=None if group.subscriptions is None else subscriptions,
            queues=None if group.queues is None else queues,
            dead_letters=group.dead_letters if is_dead_seen else None,
        )

    async def close(self) -> None:
        """Leave it open: it is shared with other viewers."""


def _seen_broker(broker: BrokerStatus) -> BrokerStatus:
    return BrokerStatus(
        broker.cluster_name,
        broker.name,
        broker.broker_id,
        broker.address,
        error=None if broker.error is None else _UNSAID,
        version=broker.version,
        started_ms=broker.started_ms,
    )


class _GroupWithoutRetries(FoundGroup):
    """A group whose retry topic is hidden."""

    __slots__ = ()

    @property
    def to_retry(self) -> int | None:
        return None


def narrowed_topics(asked: Iterable[str], seen: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return for each name or pattern what is left of it; nothing if all of it is hidden.

    :raises BadInput: for a pattern with brackets, and for one that is cut into too many.
    """
    seen = tuple(seen)
    return {each: _narrowed(each, seen) for each in asked}


def _narrowed(asked: str, seen: tuple[str, ...]) -> tuple[str, ...]:
    if not is_pattern(asked):
        return (asked,) if any(fnmatchcase(asked, each) for each in seen) else ()
    if "[" in asked:
        raise BadInput(f"{asked[:80]!r}: of patterns, you can use those with * and ? only")
    if len(asked) > limits.MAX_TOPIC_CHARACTERS or asked.count("*") > limits.MAX_NARROWED_STARS:
        raise BadInput(f"{asked[:80]!r} is too complicated: use fewer *")
    found: set[str] = set()
    for each in seen:
        found |= _both(_without_double_stars(asked), _without_double_stars(each))
        if len(found) > limits.MAX_NARROWED_PATTERNS:
            raise BadInput(f"{asked[:80]!r} is too complicated: use fewer *")
    wider = {each for each in found if "*" in each and "?" not in each}
    # Without those that another one has all of: the * of the one is a character for the other.
    kept = {each for each in found if not any(fnmatchcase(each, w) for w in wider - {each})}
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
        found = {"*" + each for each in _both(one[1:], other) | _both(one, other[1:])}
    elif first == "*":
        found = set(_both(one[1:], other)) | {second + each for each in _both(one, other[1:])}
    elif second == "*":
        found = set(_both(one, other[1:])) | {first + each for each in _both(one[1:], other)}
    elif "?" in (first, second) or first == second:
        single = second if first == "?" else first
        found = {single + each for each in _both(one[1:], other[1:])}
    else:
        return frozenset()
    found = {_without_double_stars(each) for each in found}
    if len(found) > limits.MAX_NARROWED_PATTERNS:
        raise BadInput("this pattern is too complicated: use fewer *")
    return frozenset(found)
