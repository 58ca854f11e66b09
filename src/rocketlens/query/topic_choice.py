"""Parses a caller's topics (names and patterns), and suggests corrections."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.arguments import check_text, wrong_type
from rocketlens.model.text.sentences import Sentence

if TYPE_CHECKING:
    from rocketlens.query.request import QueuePosition

_WILDCARDS: Final = frozenset("*?[")
_SHOWN_TOPICS: Final = 3


def asked_topics(topic: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the names and patterns that `topic` lists; none for None, which means every topic.

    A str may list several with commas between them, which no topic can have in its name.

    :raises WrongType: when it is neither a str nor several.
    :raises BadInput: when it lists nothing.
    """
    if topic is None:
        return ()
    texts: object = (topic,) if isinstance(topic, str) else topic
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | bytearray | memoryview):
        raise wrong_type(topic, "topic", "a str, several of them, or None for every topic")
    parts = (part.strip() for text in texts for part in check_text(text, "topic").split(","))
    names = tuple(dict.fromkeys(part for part in parts if part))
    if not names:
        raise BadInput("the topic is empty: name one, or leave it out to search every topic")
    return names


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern: ``*`` any characters, ``?`` one, ``[ab]`` a or b."""
    return not _WILDCARDS.isdisjoint(name)


def matching_topics(
    patterns: Iterable[str], candidates: Collection[str]
) -> tuple[list[str], dict[str, TopicNotFound]]:
    """Return the topics that names and patterns match, sorted; an unknown name stays.

    Of the patterns that match no topic the error of each is returned, too.
    """
    from fnmatch import fnmatchcase

    topics: set[str] = set()
    unknown: dict[str, TopicNotFound] = {}
    for name in patterns:
        if not is_pattern(name):
            topics.add(name)
            continue
        matches = [topic for topic in candidates if fnmatchcase(topic, name)]
        if not matches:
            unknown[name] = TopicNotFound(
                f"no topic matches {name!r}{suggestion(name, candidates)}"
            )
        topics.update(matches)
    return sorted(topics), unknown


def unknown_topic(name: str, topics: Collection[str], where: str) -> TopicNotFound:
    """Return the error for a topic that `where`, such as "this store", does not have."""
    return TopicNotFound(f"{where} has no topic {name!r}{suggestion(name, topics)}")


def no_such_group(name: str, groups: Collection[str]) -> Coverage:
    """Return what an answer without any group says of the one that was asked for."""
    text = f"group {name!r} does not exist{suggestion(name, groups)}"
    return Coverage("groups", SourceKind.TOPICS, SourceState.SEARCHED, None, text)


def no_topic_of_position(name: str, topics: Collection[str]) -> Coverage:
    """Return what an answer says of a text that names a queue's position in no known topic."""
    meant = resembling(name, topics)
    sentence = (
        Sentence("no_topic_but", name=repr(name), meant=", ".join(meant))
        if meant
        else Sentence("no_topic", name=repr(name))
    )
    return Coverage("position", SourceKind.TOPICS, SourceState.SEARCHED, None, sentence)


def outside_of(
    position: "QueuePosition",
    bounds: tuple[int, int] | None,
    queue_ids: Collection[int],
    broker: str = "",
) -> tuple[Coverage, ...]:
    """Return what says that no message has a position, if the queue does not reach so far.

    ``bounds`` are the offset of its first message and of its next one, None if it is not known.
    ``queue_ids`` are those of the topic.
    """
    queue = f"{position.topic}/{position.queue_id}"
    where = Sentence("on_broker", broker=broker) if broker else ""
    if bounds is None:
        if not queue_ids or position.queue_id in queue_ids:
            return ()
        ids = {"least": min(queue_ids), "most": max(queue_ids)}
        text = Sentence("no_such_queue", queue=queue, broker=where, **ids)
    elif position.queue_offset >= bounds[1]:
        text = Sentence("queue_ends", queue=queue, broker=where, end=f"{bounds[1]:,}")
    elif position.queue_offset < bounds[0]:
        text = Sentence("queue_begins", queue=queue, broker=where, begin=f"{bounds[0]:,}")
    else:
        return ()
    return (Coverage("position", SourceKind.TOPICS, SourceState.SEARCHED, None, text),)


def suggestion(
    name: str, candidates: Iterable[str], synonyms: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return "; did you mean A or B?" with the known names that a name resembles, or nothing.

    A name that resembles one of ``synonyms`` means what that stands for.
    """
    meant = resembling(name, candidates, synonyms)
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def resembling(
    name: str, candidates: Iterable[str], synonyms: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the known names that a name resembles, the nearest first."""
    from difflib import get_close_matches

    if name in synonyms:
        return [synonyms[name]]
    by_folded: dict[str, str] = {}
    for word in sorted({*candidates, *synonyms}):
        by_folded.setdefault(word.casefold(), synonyms.get(word, word))
    close = get_close_matches(name.casefold(), by_folded, _SHOWN_TOPICS, 0.6)
    return list(dict.fromkeys(by_folded[folded] for folded in close))
