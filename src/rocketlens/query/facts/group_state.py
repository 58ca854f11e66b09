"""Infers the state of a message in a consumer group.

Brokers and files have one number for each group and queue: the next offset of the group. It can be
past a message because the group consumed it, but also because of a filter, a reset, or offline
clients. So each state comes with its reasons, and is never guessed. The first row that applies
counts; "past" means that the offset is past the message.

====================  ===========================================================================
state                 facts
====================  ===========================================================================
unknown               the group's offsets are unknown
filtered              past, and the subscription of its clients excludes the message
passed_by_reset       past, by more than one pull from the start of the last pull, which was at or
                      before the message
passed_offline        past, and no client is online
consumed              past, and a client is online that subscribes to the topic
passed                past, and no client is known to subscribe
broadcasting          no offset, and its clients consume by broadcasting: brokers store no offsets
never_subscribed      no offset in the topic, and no client subscribes to it
not_yet               all other cases: the offset is not past the message
====================  ===========================================================================

`rocketlens.query.story.story` first derives states from copies and traces (retrying, dead_letter,
reported consumption).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from rocketlens import limits
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import ALL_TAGS, SQL92_TYPE
from rocketlens.model.sql92 import InvalidSql92, parse_sql92
from rocketlens.model.text.sentences import Sentence

BROADCASTING: Final = "BROADCASTING"


class GroupState(StrEnum):
    """The state of a message in a consumer group."""

    CONSUMED = "consumed"
    FILTERED = "filtered"
    NOT_YET = "not_yet"
    PASSED = "passed"
    PASSED_OFFLINE = "passed_offline"
    PASSED_BY_RESET = "passed_by_reset"
    NEVER_SUBSCRIBED = "never_subscribed"
    RETRYING = "retrying"
    DEAD_LETTER = "dead_letter"
    BROADCASTING = "broadcasting"
    UNKNOWN = "unknown"


FAILED_STATES: Final = frozenset({GroupState.RETRYING, GroupState.DEAD_LETTER})
"""States of messages that a group failed to consume."""


class GroupVerdict(NamedTuple):
    """A state, and the reason on one line."""

    state: GroupState
    rests_on: str


class Subscribed(Struct, frozen=True):
    """The subscription of a group's clients to a topic."""

    expression_type: str
    expression: str
    tags: tuple[str, ...] = ()
    """The tags in the expression; empty for all."""


class GroupFacts(Struct, frozen=True):
    """The facts about a group and a message; None for unknown facts."""

    group: str
    is_online: bool | None = None
    """Whether a client of the group is online; unknown in a store."""
    message_model: str | None = None
    subscribes: bool | None = None
    """Whether its clients subscribe to the message's topic."""
    subscribed: Subscribed | None = None
    has_offsets: bool | None = None
    """Whether it has an offset in any queue of the topic; None if its offsets are unknown."""
    consumer_offset: int | None = None
    """Its next offset in the message's queue; None if unknown or missing."""
    pull_offset: int | None = None
    """The start of its last pull from the queue, in files of RocketMQ 5. Brokers return the larger
    one of this and the offset (code 208), which is useless."""
    retry_offsets: Mapping[tuple[str, str | None, int], int] | None = None
    """Its next offsets in its retry topics, by topic, broker name and queue id."""
    retry_max_times: int | None = None
    offsets_source: str = ""
    """The source of its offsets: a broker or a file."""
    clients_source: str = ""
    """The source of its clients."""


def judge(facts: GroupFacts, message: MessageExt) -> GroupVerdict:
    """Return the state of the message in the group: see the table above."""
    if facts.has_offsets is None:
        return GroupVerdict(GroupState.UNKNOWN, Sentence("offsets_unknown"))
    offset = facts.consumer_offset
    if offset is not None and offset > message.queue_offset:
        return _passed(facts, message, offset)
    if facts.message_model == BROADCASTING and not facts.has_offsets:
        return GroupVerdict(GroupState.BROADCASTING, Sentence("broadcasts"))
    if not facts.has_offsets and not facts.subscribes:
        name = "no_offset_nor_subscription" if facts.is_online else "no_offset_in_topic"
        rests_on = Sentence(name, topic=message.topic)
        return GroupVerdict(GroupState.NEVER_SUBSCRIBED, rests_on)
    rests_on = (
        Sentence("no_offset_in_queue") if offset is None else Sentence("goes_on", offset=offset)
    )
    if facts.is_online is False:
        rests_on = Sentence("and_offline", offset=rests_on)
    elif facts.subscribes is False:
        rests_on = Sentence("and_not_subscribed", offset=rests_on)
    return GroupVerdict(GroupState.NOT_YET, rests_on)


def _passed(facts: GroupFacts, message: MessageExt, offset: int) -> GroupVerdict:
    if facts.subscribed is not None and passes(facts.subscribed, message) is False:
        shown = facts.subscribed.expression[: limits.MAX_QUOTATION_CHARACTERS]
        name = "passed_filtered" if shown else "passed_unsubscribed"
        values = {"expression": shown} if shown else {}
        rests_on = Sentence(name, offset=offset, **values)
        return GroupVerdict(GroupState.FILTERED, rests_on)
    began = facts.pull_offset
    is_pull_known = began is not None and 0 <= began <= message.queue_offset
    if began is not None and is_pull_known and offset - began > limits.MAX_PULL_BATCH:
        rests_on = Sentence("passed_by_reset", offset=offset, began=began)
        return GroupVerdict(GroupState.PASSED_BY_RESET, rests_on)
    if facts.is_online is False:
        rests_on = Sentence("passed_offline", offset=offset)
        return GroupVerdict(GroupState.PASSED_OFFLINE, rests_on)
    if facts.is_online and facts.subscribes:
        rests_on = Sentence("passed_subscribed", offset=offset)
        return GroupVerdict(GroupState.CONSUMED, rests_on)
    name = "passed_not_subscribed" if facts.is_online else "passed_unrecorded"
    return GroupVerdict(GroupState.PASSED, Sentence(name, offset=offset))


def passes(subscribed: Subscribed, message: MessageExt) -> bool | None:
    """Return whether a subscription includes a message; None if that cannot be decided."""
    if subscribed.expression_type == SQL92_TYPE:
        try:
            return parse_sql92(subscribed.expression).passes(message.properties)
        except InvalidSql92:
            return None
    return not subscribed.tags or bool({message.tags, ALL_TAGS} & {*subscribed.tags})
