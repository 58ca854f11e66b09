"""Infers what a consumer group did with a message, from what is known of both.

Brokers and files keep one number for each group and queue: the offset from which the group goes on.
An offset past a message follows from consuming it, but as well from a filter, a reset, or members
that left. So each state comes with what it rests on, and a state that the facts do not decide is
not guessed. The first row that holds counts; "past" is the offset past the message.

====================  ===========================================================================
state                 facts
====================  ===========================================================================
unknown               the group's offsets could not be learnt
filtered              past, and what its clients subscribe to leaves the message out
passed_by_reset       past, further than one pull can lead from where the last pull began; the
                      last pull began at the message or before it
passed_offline        past, and no client is online
consumed              past, and a client is online that subscribes to the topic
passed                past, and whether a client is online is not known, or none subscribes
broadcasting          no offset, and its clients have every message each: brokers keep no offsets
never_subscribed      no offset in any queue of the topic, and no client subscribes to it
not_yet               all else: the offset is not past the message
====================  ===========================================================================

What is known from copies and traces (retrying, dead_letter, a consumption that was reported) is
decided by `rocketlens.query.story.story`, which asks here for the rest.
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
"""States of messages with which a group failed, and has not succeeded since."""


class GroupVerdict(NamedTuple):
    """A state, and in one line what it rests on."""

    state: GroupState
    rests_on: str


class Subscribed(Struct, frozen=True):
    """The subscription of a group's clients to a topic."""

    expression_type: str
    expression: str
    tags: tuple[str, ...] = ()
    """The tags in the expression; none for all."""


class GroupFacts(Struct, frozen=True):
    """The facts about a group and one message; None stands for facts that are not known."""

    group: str
    is_online: bool | None = None
    """Whether a client of the group is online; files of a store cannot say."""
    message_model: str | None = None
    subscribes: bool | None = None
    """Whether its clients subscribe to the message's topic."""
    subscribed: Subscribed | None = None
    has_offsets: bool | None = None
    """Whether it has an offset in any queue of the topic; None: its offsets are not known."""
    consumer_offset: int | None = None
    """Where it goes on in the message's queue; None also if it has no offset there."""
    pull_offset: int | None = None
    """Where its last pull of the queue began, as files of RocketMQ 5 have it; its brokers answer
    with the larger of this and the offset (208), which says nothing."""
    retry_offsets: Mapping[tuple[str, str | None, int], int] | None = None
    """Where it goes on in its retry topics, by topic, broker name and queue id."""
    retry_max_times: int | None = None
    offsets_source: str = ""
    """Who said its offsets: a broker, a file."""
    clients_source: str = ""
    """Who said which clients it has."""


def judge(facts: GroupFacts, message: MessageExt) -> GroupVerdict:
    """Return what the group did with the message: see the table above."""
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
    """Return whether a message passes a subscription; None if that cannot be decided."""
    if subscribed.expression_type == SQL92_TYPE:
        try:
            return parse_sql92(subscribed.expression).passes(message.properties)
        except InvalidSql92:
            return None
    return not subscribed.tags or bool({message.tags, ALL_TAGS} & {*subscribed.tags})
