"""What happened to a message, as events in order of time: from its records and its traces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from rocketlens.errors import BadInput
from rocketlens.formats.trace_body import TraceRecord, TraceType
from rocketlens.model import properties as props
from rocketlens.model.group import group_of_topic
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import UniqueKey
from rocketlens.model.rocketmq import (
    CHECK_MAX_TIME_TOPIC,
    DEAD_LETTER_PREFIX,
    DELAY_LEVELS,
    HALF_TOPIC,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SYS_FLAG_COMMIT,
    SYS_FLAG_TRANSACTION_MASK,
    TIMER_TOPIC,
)

_CONTEXT: Final = ("", "too late", "an exception", "null returned")
"""What a number of ConsumeReturnType means."""


class EventKind(StrEnum):
    """What happened, in the order in which it can happen at one time."""

    SENT = "sent"
    HALF = "half"
    TRANSACTION_ENDED = "transaction_ended"
    DELAYED = "delayed"
    STORED = "stored"
    STORED_AGAIN = "stored_again"
    CONSUMED = "consumed"
    HANDED_OUT = "handed_out"
    CONSUME_FAILED = "consume_failed"
    GIVEN_BACK = "given_back"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    RECALLED = "recalled"


_KINDS: Final = list(EventKind)


class TraceEntry(NamedTuple):
    """A record of the trace topic, the address that its client had, and who said it."""

    record: TraceRecord
    client_address: str
    source: str


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """One fact with its time, in epoch milliseconds, and who said it.

    Times of sends and consumptions are those of clients, the others those of brokers: their clocks
    can differ.
    """

    time_ms: int | None
    kind: EventKind
    text: str
    source: str
    group: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    offset_msg_id: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One call of a listener, as the client told it."""

    group: str
    client_address: str
    retry_times: int
    begin_ms: int | None
    end_ms: int | None
    cost_ms: int | None
    is_success: bool | None
    """None: the client did not tell how it ended."""
    context_code: int | None
    source: str = ""

    @property
    def outcome(self) -> str:
        """What became of it, in a few words."""
        at = f"client {self.client_address}"
        if self.is_success is None:
            return f"handed to {at}, which did not tell how it ended"
        took = "" if self.cost_ms is None else f" in {self.cost_ms} ms"
        if self.is_success:
            return f"consumed by {at}{took}"
        code = self.context_code or 0
        why = _CONTEXT[code] if 0 < code < len(_CONTEXT) else ""
        return f"{at} failed to consume it{took}" + (f": {why}" if why else "")


def deliveries_of(traces: Sequence[TraceEntry]) -> list[Delivery]:
    """Return the calls of listeners that traces tell of, in order of time.

    The begin and the end of one call have one request id. O(n log n).
    """
    begun: dict[str | None, TraceEntry] = {}
    ended: dict[str | None, TraceEntry] = {}
    for each in traces:
        if each.record.trace_type is TraceType.SUB_BEFORE:
            begun.setdefault(each.record.request_id, each)
        elif each.record.trace_type is TraceType.SUB_AFTER:
            ended.setdefault(each.record.request_id, each)
    found = []
    for request_id in dict.fromkeys((*begun, *ended)):
        begin, end = begun.get(request_id), ended.get(request_id)
        found.append(_delivery(begin, end))
    return sorted(found, key=lambda each: (each.begin_ms or each.end_ms or 0, each.retry_times))


def _delivery(begin: TraceEntry | None, end: TraceEntry | None) -> Delivery:
    """Return a call of a listener, of which at least one end is known."""
    before = None if begin is None else begin.record
    after = None if end is None else end.record
    begin_ms = None if before is None else before.timestamp_ms
    end_ms = None if after is None else after.timestamp_ms
    if after is not None and end_ms is None and begin_ms is not None:
        end_ms = begin_ms + after.cost_ms
    said_by = end or begin
    group = (before is not None and before.group) or (after is not None and after.group) or ""
    return Delivery(
        group,
        "" if said_by is None else said_by.client_address,
        0 if before is None else before.retry_times or 0,
        begin_ms,
        end_ms,
        None if after is None else after.cost_ms,
        None if after is None else after.is_success,
        None if after is None else after.context_code,
        "" if said_by is None else said_by.source,
    )


def events_of(
    message: MessageExt,
    copies: Sequence[MessageExt],
    traces: Sequence[TraceEntry],
    deliveries: Sequence[Delivery],
    sources: Mapping[str, str],
) -> list[StoryEvent]:
    """Return all events in order of time."""
    events = [_born(message)]
    is_stored = False
    for copy in copies:
        events.append(_of_copy(copy, sources.get(copy.offset_msg_id, ""), is_again=is_stored))
        is_stored |= events[-1].kind is EventKind.STORED
    for each in traces:
        event = _of_trace(each)
        if event is not None:
            events.append(event)
    for delivery in deliveries:
        kind = EventKind.CONSUMED if delivery.is_success else EventKind.CONSUME_FAILED
        kind = EventKind.HANDED_OUT if delivery.is_success is None else kind
        retry = f" (retry {delivery.retry_times})" if delivery.retry_times else ""
        time_ms = delivery.end_ms if delivery.end_ms is not None else delivery.begin_ms
        text = f"group {delivery.group}: {delivery.outcome}{retry}"
        events.append(StoryEvent(time_ms, kind, text, delivery.source, delivery.group))
    return sorted(events, key=lambda each: (each.time_ms or 0, _KINDS.index(each.kind)))


def _born(message: MessageExt) -> StoryEvent:
    group = message.properties.get(props.PRODUCER_GROUP)
    text = f"sent from {message.born_host}" + (f" by producer group {group}" if group else "")
    try:
        maker = UniqueKey.decode(message.unique_key or "")
    except BadInput:
        pass
    else:
        text += f"; its unique key was made on {maker.address}"
    return StoryEvent(message.born_timestamp_ms, EventKind.SENT, text, "its record", group)


def _of_copy(copy: MessageExt, source: str, *, is_again: bool) -> StoryEvent:
    kind, text, group = _what_a_copy_is(copy, is_again=is_again)
    return StoryEvent(
        copy.store_timestamp_ms,
        kind,
        text,
        source,
        group,
        copy.topic,
        copy.queue_id,
        copy.queue_offset,
        copy.offset_msg_id,
    )


def _what_a_copy_is(copy: MessageExt, *, is_again: bool) -> tuple[EventKind, str, str | None]:
    topic, given = copy.topic, copy.properties
    at = f"{topic}/{copy.queue_id}/{copy.queue_offset}"
    real_topic = given.get(props.REAL_TOPIC, "")
    group = group_of_topic(topic)
    if topic in {SCHEDULE_TOPIC, TIMER_TOPIC}:
        waits = _waiting(copy)
        group = group_of_topic(real_topic)
        if group is not None:
            text = f"given back by group {group}: retry {copy.reconsume_times} {waits} in {at}"
            return EventKind.GIVEN_BACK, text, group
        return EventKind.DELAYED, f"{waits} in {at} for topic {real_topic or '?'}", None
    if topic in {HALF_TOPIC, ROCKSDB_HALF_TOPIC}:
        text = f"half message in {at} for topic {real_topic or '?'}"
        checked = given.get(props.TRANSACTION_CHECK_TIMES)
        return EventKind.HALF, text + (f", checked {checked} times" if checked else ""), None
    if topic == CHECK_MAX_TIME_TOPIC:
        text = f"the broker gave its transaction up after too many checks, and keeps it in {at}"
        return EventKind.TRANSACTION_ENDED, text, None
    if group is not None:
        if topic.startswith(DEAD_LETTER_PREFIX):
            return EventKind.DEAD_LETTER, f"dead letter of group {group}: {at}", group
        text = f"retry {copy.reconsume_times} of group {group} stored as {at}"
        return EventKind.RETRY, text, group
    is_commit = copy.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_COMMIT
    how = "stored again" if is_again else "stored"
    if is_commit:
        how = f"transaction committed, {how}"
    kind = EventKind.STORED_AGAIN if is_again else EventKind.STORED
    return kind, f"{how} as {at}", None


def _waiting(copy: MessageExt) -> str:
    out_ms = copy.properties.get("TIMER_OUT_MS", "")
    if copy.topic == TIMER_TOPIC:
        from_ms = int(out_ms) if out_ms.isascii() and out_ms.isdigit() else None
        return "waits" if from_ms is None else f"waits until {from_ms} (epoch ms)"
    level = copy.properties.get(props.DELAY, "")
    levels = DELAY_LEVELS.split()
    if level.isascii() and level.isdigit() and 0 < int(level[:9]) <= len(levels):
        return f"waits at delay level {level}, {levels[int(level) - 1]} by default,"
    return f"waits at delay level {level or '?'}"


def _of_trace(entry: TraceEntry) -> StoryEvent | None:
    """Return what a client said that sends; consumptions are `Delivery`."""
    record, address, source = entry
    group = record.group or ""
    who = f"producer group {group} at {address}"
    if record.trace_type is TraceType.PUB:
        ended = "" if record.is_success else ", and was told that it failed"
        text = f"{who} sent it to {record.store_host or '?'} in {record.cost_ms} ms{ended}"
        kind = EventKind.SENT
    elif record.trace_type is TraceType.END_TRANSACTION:
        asked = " when it was asked" if record.from_transaction_check else ""
        text = f"{who} ended the transaction{asked}: {record.transaction_state}"
        kind = EventKind.TRANSACTION_ENDED
    elif record.trace_type is TraceType.RECALL:
        text = f"{who} recalled it" + ("" if record.is_success else ", which failed")
        kind = EventKind.RECALLED
    else:
        return None
    return StoryEvent(record.timestamp_ms, kind, text, source, group)
