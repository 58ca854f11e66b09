"""Parses lists of topic names and patterns, and suggests corrections."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.model.answer import Coverage, hint
from rocketlens.model.arguments import check_text, wrong_type
from rocketlens.model.text.nearest import nearest, suggestion
from rocketlens.model.text.sentences import Sentence

if TYPE_CHECKING:
    from rocketlens.query.request import QueuePosition

_WILDCARDS: Final = frozenset("*?[")


def parse_topics(topic: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the names and patterns in `topic`; empty for None, which means every topic.

    A str can be a comma-separated list: topic names cannot contain commas.

    :raises WrongType: if it is neither a str nor an iterable of str.
    :raises BadInput: if it contains no name.
    """
    if topic is None:
        return ()
    texts: object = (topic,) if isinstance(topic, str) else topic
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | bytearray | memoryview):
        raise wrong_type(topic, "topic", "a str, several of them, or None for every topic")
    parts = (part.strip() for text in texts for part in check_text(text, "topic").split(","))
    names = tuple(dict.fromkeys(part for part in parts if part))
    if not names:
        raise BadInput(Sentence("empty_topic"))
    return names


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern, with ``*``, ``?`` or ``[ab]``."""
    return not _WILDCARDS.isdisjoint(name)


def matching_topics(
    patterns: Iterable[str], candidates: Collection[str]
) -> tuple[list[str], dict[str, TopicNotFound]]:
    """Return the topics that match names and patterns, sorted, and errors for unmatched patterns.

    Names without wildcards are returned even if they are no candidates.
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
    """Return the error for an unknown topic; `where` is a phrase such as "this store"."""
    return TopicNotFound(f"{where} has no topic {name!r}{suggestion(name, topics)}")


def no_such_group(name: str, groups: Collection[str]) -> Coverage:
    return hint("groups", f"group {name!r} does not exist{suggestion(name, groups)}")


def no_topic_of_position(name: str, topics: Collection[str]) -> Coverage:
    """Return the coverage of a search for a position in an unknown topic."""
    meant = nearest(name, topics)
    sentence = (
        Sentence("no_topic_but", name=repr(name), meant=", ".join(meant))
        if meant
        else Sentence("no_topic", name=repr(name))
    )
    return hint("position", sentence)


def outside_of(
    position: "QueuePosition",
    bounds: tuple[int, int] | None,
    queue_ids: Collection[int],
    where: str = "",
) -> tuple[Coverage, ...]:
    """Return a remark if a position is outside of its queue.

    ``bounds`` are the first and the next offset of the queue, or None if unknown. ``queue_ids`` are
    those of the topic.
    """
    queue = f"{position.topic}/{position.queue_id}"
    if bounds is None:
        if not queue_ids or position.queue_id in queue_ids:
            return ()
        ids = {"least": min(queue_ids), "most": max(queue_ids)}
        text = Sentence("no_such_queue", queue=queue, where=where, **ids)
    elif position.queue_offset >= bounds[1]:
        text = Sentence("queue_ends", queue=queue, where=where, end=f"{bounds[1]:,}")
    elif position.queue_offset < bounds[0]:
        text = Sentence("queue_begins", queue=queue, where=where, begin=f"{bounds[0]:,}")
    else:
        return ()
    return (hint("position", text),)
