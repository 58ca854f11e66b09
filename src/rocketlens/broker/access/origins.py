"""Which topics a stored message is of: a copy is read by those who may read what it is a copy of.

==============================================  ====================================================
a message in                                    is of
==============================================  ====================================================
a topic where messages wait (delays, timers,    its ``REAL_TOPIC`` instead, and if that is a retry
transactions) or lie that were given up         topic, the next line, too
``%RETRY%group``, ``%DLQ%group``                that topic, its ``RETRY_TOPIC`` and its
                                                ``DLQ_ORIGIN_TOPIC``
any other topic                                 that topic
==============================================  ====================================================

A client in a namespace names the origin of what it sends back without it. If the group of the copy
is in a namespace that has such a topic, that one is meant.
"""

from collections.abc import Callable
from typing import Final

from rocketlens.model import properties as props
from rocketlens.model.rocketmq import (
    DEAD_LETTER_PREFIX,
    NAMESPACE_SEPARATOR,
    RETRY_PREFIX,
    TRACE_TOPIC,
    is_group_topic,
    is_system_topic,
)
from rocketlens.model.text.java import decode_utf8

_OF_GROUPS: Final = (props.RETRY_TOPIC, props.DLQ_ORIGIN_TOPIC)


def has_copies(topic: str) -> bool:
    """Return whether messages of a topic are copies of those of other topics."""
    # Anyone may write to the trace topic, whose messages are what their properties do not say.
    return is_group_topic(topic) or (is_system_topic(topic) and topic != TRACE_TOPIC)


def topics_of(topic: str, properties: bytes, is_topic: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the topics all of which one must be allowed to read for a message.

    ``properties`` are those of its record; ``is_topic`` says whether the broker has a topic.
    """
    if not has_copies(topic):
        return (topic,)
    named = props.parse(decode_utf8(properties))
    if is_system_topic(topic):
        topic = named.get(props.REAL_TOPIC) or topic
    if not is_group_topic(topic):
        return (topic,)
    group = topic.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)
    namespace, separator, _ = group.rpartition(NAMESPACE_SEPARATOR)
    origins = []
    for origin in filter(None, map(named.get, _OF_GROUPS)):
        full = f"{namespace}{separator}{origin}"
        origins.append(full if separator and is_topic(full) else origin)
    return tuple(dict.fromkeys((topic, *origins)))
