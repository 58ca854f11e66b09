"""The topics in which RocketMQ stores a message during its life, and the state that each proves.

Every program that derives a topic from a group, a group from a topic, or a state from a record does
it with this module. `docs/reference/life.md` describes what ends each state.

=================  ================================================================================
state              the record is in
=================  ================================================================================
``stored``         a topic that producers send to
``committed``      such a topic; bits of its ``sysFlag`` mark a transaction
``delayed``        ``SCHEDULE_TOPIC_XXXX``, until the delay of its level is over; brokers can
                   configure delays (``messageDelayLevel``)
``timed``          ``rmq_sys_wheel_timer``, until ``TIMER_OUT_MS``
``recall``         the same topic, with ``TIMER_DEL_UNIQKEY``: cancels the message with that key
``half``           ``RMQ_SYS_TRANS_HALF_TOPIC``, or RocksDB's, until its producer ends the
                   transaction
``ended``          ``RMQ_SYS_TRANS_OP_HALF_TOPIC``, or RocksDB's: names ended half messages
``given_up``       ``TRANS_CHECK_MAX_TIME_TOPIC``: its producer never answered
``retry``          ``%RETRY%GROUP``; of POP ``%RETRY%GROUP_TOPIC`` (V1), ``%RETRY%GROUP+TOPIC`` (V2)
``dead_letter``    ``%DLQ%GROUP``
``handed_out``     ``rmq_sys_REVIVE_LOG_CLUSTER``, tag ``ck``: POP delivered messages to a consumer,
                   and repeats it if they are not acknowledged in time
``acknowledged``   the same topic, tags ``ack`` and ``bAck``
=================  ================================================================================

Records of the last two states wait as timers first, with this topic as ``REAL_TOPIC``.
Sources: ``KeyBuilder``, ``PopAckConstants``, ``PopCheckPoint``, ``AckMsg``, ``PopReviveService``,
``TimerMessageStore`` and ``TransactionalMessageServiceImpl`` of RocketMQ 5.5.0.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, Self

from rocketlens import limits
from rocketlens.model import properties as props
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import (
    CHECK_MAX_TIME_TOPIC,
    DEAD_LETTER_PREFIX,
    DELAY_LEVELS,
    DELAY_TOPIC,
    HALF_MESSAGE_TOPIC,
    OP_MESSAGE_TOPIC,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    ROCKSDB_HALF_MESSAGE_TOPIC,
    ROCKSDB_OP_MESSAGE_TOPIC,
    SYS_FLAG_COMMIT,
    SYS_FLAG_TRANSACTION_MASK,
    TIMER_TOPIC,
    is_topic_name,
    parse_delay_levels,
)
from rocketlens.model.text.counted import span_text
from rocketlens.model.text.sentences import Sentence, TimeText

WAITING_TOPICS: Final = frozenset({DELAY_TOPIC, TIMER_TOPIC})
"""Brokers keep messages in these topics until a time."""
HALF_MESSAGE_TOPICS: Final = frozenset({HALF_MESSAGE_TOPIC, ROCKSDB_HALF_MESSAGE_TOPIC})
KEEPING_TOPICS: Final = WAITING_TOPICS | HALF_MESSAGE_TOPICS
"""Brokers keep messages for other topics in these."""
_V1, _V2 = "_", "+"
"""Separators of group and topic in the name of a POP retry topic."""
_DELAYS_MS: Final = parse_delay_levels(DELAY_LEVELS)
_MAX_DIGITS: Final = 19
_MAX_HOST_CHARACTERS: Final = 100
_NUMBERS: Final = re.compile(
    r"\b(?=[0-9A-Fa-f-]*[0-9])[0-9A-Fa-f]{8,}(?:-[0-9A-Fa-f]{4,})*\b|[0-9]+(?:[.,:][0-9]+)*"
)
"""Hexadecimal ids, such as UUIDs, and other numbers."""
_MAX_HANDED_OUT: Final = 32
"""Messages of one POP checkpoint that are listed. RocketMQ: popBatchNums, up to 32."""


class LifeState(StrEnum):
    """The state of a message that a record proves: see the table above."""

    STORED = "stored"
    COMMITTED = "committed"
    DELAYED = "delayed"
    TIMED = "timed"
    RECALL = "recall"
    HALF = "half"
    ENDED = "ended"
    GIVEN_UP = "given_up"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    HANDED_OUT = "handed_out"
    ACKNOWLEDGED = "acknowledged"


class Life(NamedTuple):
    """The facts about a message that one record proves."""

    state: LifeState
    topic: str | None
    """The topic that the producer sent to; None if the record does not name it."""
    group: str | None
    """The consumer group of a retry, also while it waits, or of a dead letter."""
    next_ms: int | None
    """The delivery time in epoch milliseconds, if the record has it."""


class GroupTopic(NamedTuple):
    """The group of a retry or dead letter topic; for a POP retry also the messages' topic."""

    group: str
    topic: str | None = None


_BY_TOPIC: Final = {
    DELAY_TOPIC: LifeState.DELAYED,
    TIMER_TOPIC: LifeState.TIMED,
    **dict.fromkeys(HALF_MESSAGE_TOPICS, LifeState.HALF),
    **dict.fromkeys((OP_MESSAGE_TOPIC, ROCKSDB_OP_MESSAGE_TOPIC), LifeState.ENDED),
    CHECK_MAX_TIME_TOPIC: LifeState.GIVEN_UP,
}


def life_of(message: MessageExt, topics: Collection[str] = ()) -> Life:
    """Return the facts that a record proves.

    ``topics`` are possible original topics. POP retries before RocketMQ 5.3 do not name their
    group; the topic then determines the end of the group's name.
    """
    fields = (message.topic, message.properties, message.tags, message.sys_flag)
    state, topic, group = life_of_fields(*fields, topics)
    return Life(state, topic, group, due_ms(message))


def life_of_fields(
    topic: str,
    given: Mapping[str, str],
    tags: str | None,
    sys_flag: int,
    topics: Collection[str] = (),
) -> tuple[LifeState, str | None, str | None]:
    """Return state, topic and group like `life_of`, from the fields of a record."""
    target = topic
    if target in KEEPING_TOPICS or target == CHECK_MAX_TIME_TOPIC:
        target = _topic_in(given, props.REAL_TOPIC)
    state = _BY_TOPIC.get(topic) or _state_in(target, tags, sys_flag)
    if state is LifeState.TIMED and props.TIMER_DELETED_KEY in given:
        state = LifeState.RECALL
    elif state is LifeState.TIMED and target.startswith(REVIVE_PREFIX):
        state = _state_in(target, tags, sys_flag)
    of_group = copy_topic(target, given, topics)
    group = None if of_group is None else of_group.group
    meant = _original_topic(target, of_group, given, topics)
    is_own = state in {LifeState.ENDED, LifeState.HANDED_OUT, LifeState.ACKNOWLEDGED}
    return state, None if is_own else meant or None, group


def is_plain(topic: str) -> bool:
    """Return whether a topic contains only the records that producers sent to it."""
    is_copy = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX, REVIVE_PREFIX))
    return topic not in _BY_TOPIC and not is_copy


def _original_topic(
    target: str, of_group: GroupTopic | None, given: Mapping[str, str], topics: Collection[str]
) -> str | None:
    """Return the topic that the producer sent to, from a record in, or for, the topic `target`."""
    if of_group is None or of_group.topic is not None:
        return target if of_group is None else of_group.topic
    for name in (props.RETRY_TOPIC, props.DLQ_ORIGIN_TOPIC):
        origin = _topic_in(given, name)
        if origin:
            of_origin = copy_topic(origin, given, topics)
            return origin if of_origin is None else of_origin.topic
    return None


def _topic_in(given: Mapping[str, str], name: str) -> str:
    """Return the topic that a property names; empty if it is not a valid topic name."""
    topic = given.get(name, "")
    return topic if is_topic_name(topic) else ""


def _state_in(topic: str, tags: str | None, sys_flag: int) -> LifeState:
    if topic.startswith(RETRY_PREFIX):
        return LifeState.RETRY
    if topic.startswith(DEAD_LETTER_PREFIX):
        return LifeState.DEAD_LETTER
    if topic.startswith(REVIVE_PREFIX):
        return LifeState.HANDED_OUT if tags == "ck" else LifeState.ACKNOWLEDGED
    is_commit = sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_COMMIT
    return LifeState.COMMITTED if is_commit else LifeState.STORED


def retry_topic(group: str) -> str:
    """Return the topic of a group's retries; for POP, see `retry_topics`."""
    return RETRY_PREFIX + group


def retry_topics(group: str, topics: Iterable[str]) -> set[str]:
    """Return all topics in which a group's retries of messages from ``topics`` can be."""
    of_pop = {f"{RETRY_PREFIX}{group}{mark}{topic}" for topic in topics for mark in (_V1, _V2)}
    return {retry_topic(group)} | of_pop


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def group_topics(
    name: str, groups: Collection[str] = (), topics: Collection[str] | None = None
) -> tuple[GroupTopic, ...]:
    """Return the groups that a retry or dead letter topic can belong to; empty for other topics.

    ``%RETRY%a_b_c`` can belong to group ``a_b_c``, or with POP to ``a`` for topic ``b_c`` or to
    ``a_b`` for ``c``. Readings with a known group (and topic, if ``topics`` is given) are returned;
    if no group is known, the first reading.
    """
    if name.startswith(DEAD_LETTER_PREFIX):
        return (GroupTopic(name.removeprefix(DEAD_LETTER_PREFIX)),)
    if not name.startswith(RETRY_PREFIX):
        return ()
    rest = name.removeprefix(RETRY_PREFIX)
    group, mark, topic = rest.partition(_V2)
    if mark:
        return (GroupTopic(group, topic),)
    known = [GroupTopic(rest)] if rest in groups else []
    known += [
        each
        for each in _splits(rest)
        if each.group in groups and (topics is None or each.topic in topics)
    ]
    return tuple(known) or (GroupTopic(rest),)


def group_of_topic(name: str, groups: Collection[str]) -> str | None:
    """Return the group of a retry or dead letter topic; None if the name is ambiguous."""
    readings = group_topics(name, groups)
    return readings[0].group if len(readings) == 1 else None


def _splits(rest: str) -> list[GroupTopic]:
    at = (number for number, letter in enumerate(rest) if letter == _V1)
    return [GroupTopic(rest[:number], rest[number + 1 :]) for number in at]


class HandedOut(NamedTuple):
    """A delivery by POP to a consumer, or the consumer's acknowledgement."""

    group: str
    positions: tuple[str, ...]
    """The messages as ``TOPIC/QUEUE/OFFSET``."""
    handed_out_ms: int
    visible_ms: int | None
    """When the messages are delivered again unless acknowledged; None for an acknowledgement."""


def handed_out_by(record: MessageExt) -> HandedOut | None:
    """Parse a record in state `LifeState.HANDED_OUT` or `LifeState.ACKNOWLEDGED`.

    Return None if it is cut, of another version, or without a position.
    """
    try:
        given = record.json()
        if "aol" in given or "ao" in given:
            offsets = [int(each) for each in given.get("aol", [given.get("ao")])]
            visible_ms = None
        else:
            first = int(given["so"])
            offsets = [
                first + int(each)
                for each in given.get("d") or range(min(int(given["n"]), _MAX_HANDED_OUT))
            ]
            visible_ms = int(given["pt"]) + int(given["it"])
        queue = f"{given['t']}/{int(given['q'])}"
        if not is_topic_name(given["t"]) or int(given["q"]) < 0 or min(offsets) < 0:
            return None
        shown = tuple(f"{queue}/{each}" for each in offsets[:_MAX_HANDED_OUT])
        return HandedOut(str(given["c"]), shown, int(given["pt"]), visible_ms)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, OverflowError):
        return None


class ConsumeFailure(NamedTuple):
    """Why a consumer of this package returned a message, as stored in a property of the copy.

    The text form is ``GROUP ATTEMPT HOST CLASS: FIRST LINE``.
    """

    group: str
    """Includes the namespace."""
    attempt: int
    """0 for the first delivery, which is not a retry."""
    host: str
    error: str
    """The class of the exception and the first line of its text."""

    @classmethod
    def of(cls, group: str, attempt: int, host: str, raised: Exception) -> Self:
        """Describe an exception of a listener in up to `limits.MAX_SHOWN_CHARACTERS`."""
        try:
            line = next(iter(str(raised).strip().splitlines()), "")
        except Exception:  # noqa: BLE001 - str() of a user's exception can fail, too
            line = ""
        text = f"{type(raised).__name__}: {line}" if line else type(raised).__name__
        text = "".join(each if each.isprintable() else " " for each in text)
        text = text[: limits.MAX_SHOWN_CHARACTERS]
        host = "".join(host[:_MAX_HOST_CHARACTERS].split()) or "?"
        return cls(group, attempt, host, text)

    def __str__(self) -> str:
        return f"{self.group} {self.attempt} {self.host} {self.error}"


def failure_of(copy: MessageExt) -> ConsumeFailure | None:
    """Return why the group of a retry or dead letter returned it, or None if unknown.

    A property that is left from an earlier attempt or another group is ignored.
    """
    parts = copy.properties.get(props.CONSUME_FAILURE, "").split(" ", 3)
    if len(parts) != 4 or _number(parts[1]) != copy.reconsume_times - 1:
        return None
    group, attempt, host, error = parts
    if life_of(copy, (copy.properties.get(props.RETRY_TOPIC, ""),)).group != group:
        return None
    return ConsumeFailure(group, int(attempt), host, error)


def cause_of(copy: MessageExt) -> str:
    """Return the cause that groups dead letters.

    That is the class and text of the exception, with ``#`` for each number, or else the original
    topic.
    """
    failure = failure_of(copy)
    if failure is None:
        return f"topic {life_of(copy).topic or '?'}"
    return without_numbers(failure.error)


def without_numbers(text: str) -> str:
    """Replace each number, and each hexadecimal id, by ``#``."""
    return _NUMBERS.sub("#", text)


class GroupTopics(NamedTuple):
    """The retry and dead letter topics of groups."""

    by_group: dict[str, set[str]]
    ambiguous: dict[str, tuple[GroupTopic, ...]]
    """Names that can belong to several groups, with their readings."""

    def notes(self) -> list[Sentence]:
        return [
            Sentence("two_groups", topic=name, groups=", ".join(each.group for each in readings))
            for name, readings in sorted(self.ambiguous.items())
        ]


def copy_topics_of(topics: Collection[str], groups: Collection[str]) -> GroupTopics:
    """Return the retry and dead letter topics among ``topics``, by group.

    ``groups`` are the known groups; topics of unknown groups are included, too.
    """
    by_group: dict[str, set[str]] = {}
    ambiguous = {}
    for name in topics:
        readings = group_topics(name, groups, topics)
        for each in readings:
            by_group.setdefault(each.group, set()).add(name)
        if len(readings) > 1:
            ambiguous[name] = readings
    return GroupTopics(by_group, ambiguous)


def copy_topic(
    name: str, properties: Mapping[str, str], topics: Collection[str] = ()
) -> GroupTopic | None:
    """Return the group of the retry or dead letter topic ``name``, from a record in or for it.

    None for other topics. ``topics`` as in `life_of`.
    """
    first = next(iter(group_topics(name)), None)
    if first is None or first.topic is not None or not _is_of_pop(name, properties):
        return first
    group = properties.get(props.ORIGIN_GROUP)
    splits = _splits(first.group)
    for each in splits:
        if each.group == group or (group is None and each.topic in topics):
            return each
    return first


def _is_of_pop(name: str, properties: Mapping[str, str]) -> bool:
    """Return whether POP wrote a retry: other retries have the property RETRY_TOPIC."""
    is_retry = name.startswith(RETRY_PREFIX)
    return is_retry and props.FIRST_POP_TIME in properties and props.RETRY_TOPIC not in properties


def origin_topics(topic: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the topics whose messages a record can be a copy of.

    For a POP retry of an unknown group, these are all topics that its name can mean.
    """
    named = [properties[name] for name in props.ORIGIN_TOPICS if properties.get(name)]
    for each in (topic, *named):
        of_group = copy_topic(each, properties)
        if of_group is not None and of_group.topic is not None:
            named.append(of_group.topic)
        elif of_group is not None and _is_of_pop(each, properties):
            named += [each.topic or "" for each in _splits(of_group.group)]
    return tuple(filter(None, dict.fromkeys(named)))


def producer_group_of(message: MessageExt) -> str | None:
    """Return the producer group, or None for gRPC clients: their proxy writes the topic instead."""
    group = message.properties.get(props.PRODUCER_GROUP)
    is_of_proxy = props.BORN_HOST in message.properties
    topics = message.topic, *origin_topics(message.topic, message.properties)
    if is_of_proxy and group in topics:
        return None
    return group


def recall_of(copy: MessageExt, others: Iterable[MessageExt]) -> MessageExt | None:
    """Return the record among ``others`` that recalls a timed message, or None."""
    if life_of(copy).state is not LifeState.TIMED:
        return None
    for each in others:
        is_recall = life_of(each).state is LifeState.RECALL
        if is_recall and each.properties[props.TIMER_DELETED_KEY] == copy.unique_key:
            return each
    return None


def ends_half(mark: MessageExt, half: MessageExt) -> bool:
    """Return whether a record in state `LifeState.ENDED` belongs to a half message.

    A broker writes one after a commit or rollback, and when a check stores the half message anew.
    """
    if mark.store_host != half.store_host or mark.physical_offset <= half.physical_offset:
        return False
    if mark.topic == ROCKSDB_OP_MESSAGE_TOPIC:
        return mark.properties.get(props.TRANSACTION_OFFSET) == str(half.physical_offset)
    is_queue = mark.topic == OP_MESSAGE_TOPIC and mark.queue_id == half.queue_id
    return is_queue and str(half.queue_offset).encode() in mark.body.split(b",")


def due_ms(copy: MessageExt) -> int | None:
    """Return when a delayed or timed copy is due, in epoch milliseconds, or None if unknown."""
    if copy.topic == TIMER_TOPIC:
        due = _number(copy.properties.get(props.TIMER_OUT_MS))
        return due if due is not None and due <= limits.MAX_TIMESTAMP_MS else None
    level = props.delay_level(copy.properties) if copy.topic == DELAY_TOPIC else 0
    if not 0 < level < len(_DELAYS_MS):
        return None
    return copy.store_timestamp_ms + _DELAYS_MS[level]


def delivered_ms(copy: MessageExt, others: Collection[MessageExt]) -> int | None:
    """Return when a waiting copy was delivered, in epoch milliseconds, or None if unknown.

    That is the earliest store time among ``others`` in its target topic, of the same retry.
    """
    topic, number = copy.properties.get(props.REAL_TOPIC), copy.reconsume_times
    times = [
        each.store_timestamp_ms
        for each in others
        if (each.topic, each.reconsume_times) == (topic, number)
        and each.store_timestamp_ms >= copy.store_timestamp_ms
    ]
    return min(times, default=None)


def due_text(
    copy: MessageExt, others: Collection[MessageExt], now_ms: int, end_ms: int | None = None
) -> Sentence | None:
    """Return when a copy is due, was due, or was delivered; None if it never waited.

    ``others`` are other copies of the message. ``end_ms`` is the time of a store's newest message,
    because its broker may be down; None for a running broker. Times are local with their zone.
    """
    if copy.topic not in WAITING_TOPICS:
        return None
    level = _level_text(copy) if copy.topic == DELAY_TOPIC else ""
    delivered = delivered_ms(copy, others)
    if delivered is not None:
        return Sentence("delivered_at", time=time_text(delivered), level=level)
    recall = recall_of(copy, others)
    if recall is not None:
        return Sentence("recalled_at", time=time_text(recall.store_timestamp_ms))
    due = due_ms(copy)
    if due is None:
        return Sentence("due_unknown", level=level)
    if due <= now_ms and end_ms is not None:
        return Sentence("due_there", time=time_text(due), end=time_text(end_ms), level=level)
    name = "due_in" if due > now_ms else "due_ago"
    return Sentence(name, time=time_text(due), span=span_text(abs(due - now_ms)), level=level)


def _level_text(copy: MessageExt) -> Sentence:
    number = props.delay_level(copy.properties)
    if 0 < number < len(_DELAYS_MS):
        return Sentence("at_level_for", level=number, delay=DELAY_LEVELS.split()[number - 1])
    return Sentence("at_level", level=copy.properties.get(props.DELAY, "?"))


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit()
    return int(text) if text and is_number and len(text) <= _MAX_DIGITS else None


def time_text(epoch_ms: int) -> TimeText:
    """Return a local time with its zone."""
    # Late import: few messages need it.
    from datetime import datetime

    try:
        local = datetime.fromtimestamp(epoch_ms / 1000).astimezone()
    except (OverflowError, OSError, ValueError):
        return TimeText(f"{epoch_ms} ms", epoch_ms)
    return TimeText(local.isoformat(" ", "seconds"), epoch_ms)
