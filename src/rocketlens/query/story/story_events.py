"""Derives the events of a message from its records and traces, in order of time."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from rocketlens.errors import BadInput
from rocketlens.formats.trace_body import TraceRecord, TraceType
from rocketlens.model import properties as props
from rocketlens.model.life import (
    Life,
    LifeState,
    due_text,
    failure_of,
    handed_out_by,
    life_of,
    producer_group_of,
    time_text,
)
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import UniqueKey
from rocketlens.model.text.sentences import Sentence

CHECK_INTERVAL_MS: Final = 30_000
"""Time between checks of a half message. RocketMQ 5: transactionCheckInterval, default."""
_CONTEXT: Final = ("", "too_late", "exception", "null_returned")
"""The names of sentences by RocketMQ's ConsumeReturnType; 0 has none."""


class EventKind(StrEnum):
    """Kinds of events, in the order in which they can occur at the same time."""

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
    """A record of the trace topic, the client's address, and the source."""

    record: TraceRecord
    client_address: str
    source: str


class StoryEvent(Struct, frozen=True):
    """A fact with its time in epoch milliseconds, and its source.

    Times of sends and consumptions are from clients, the others from brokers; their clocks can
    differ.
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


class Delivery(Struct, frozen=True):
    """A call of a listener, as reported by the client."""

    group: str
    client_address: str
    retry_times: int
    begin_ms: int | None
    end_ms: int | None
    cost_ms: int | None
    is_success: bool | None
    """None: the client did not report the result."""
    context_code: int | None
    source: str = ""

    @property
    def outcome(self) -> str:
        client = self.client_address
        if self.is_success is None:
            return Sentence("handed_out", client=client)
        took = "" if self.cost_ms is None else Sentence("took", ms=self.cost_ms)
        if self.is_success:
            return Sentence("consumed_by", client=client, took=took)
        code = self.context_code or 0
        is_told = 0 < code < len(_CONTEXT)
        why = Sentence("because", why=Sentence(_CONTEXT[code])) if is_told else ""
        return Sentence("consume_failed", client=client, took=took, why=why)


def deliveries_of(traces: Sequence[TraceEntry]) -> list[Delivery]:
    """Return the calls of listeners in traces, in order of time.

    The start and end of a call have the same request id. O(n log n).
    """
    begun: dict[str | None, TraceEntry] = {}
    ends: dict[str | None, TraceEntry] = {}
    for each in traces:
        if each.record.trace_type is TraceType.SUB_BEFORE:
            begun.setdefault(each.record.request_id, each)
        elif each.record.trace_type is TraceType.SUB_AFTER:
            ends.setdefault(each.record.request_id, each)
    deliveries = []
    for request_id in dict.fromkeys((*begun, *ends)):
        begin, end = begun.get(request_id), ends.get(request_id)
        deliveries.append(_delivery(begin, end))
    return sorted(
        deliveries, key=lambda each: (each.begin_ms or each.end_ms or 0, each.retry_times)
    )


def _delivery(begin: TraceEntry | None, end: TraceEntry | None) -> Delivery:
    """Return a call of a listener from its start, its end, or both."""
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
    *,
    now_ms: int,
    end_ms: int | None = None,
    open_half: MessageExt | None = None,
) -> list[StoryEvent]:
    """Return all events in order of time.

    ``now_ms`` decides if a message is due; ``end_ms`` as in `due_text`. ``open_half`` is the half
    message of an open transaction.
    """
    events = [_sent_event(message)]
    is_stored = False
    for copy in copies:
        due = due_text(copy, copies, now_ms, end_ms) or ""
        if copy is open_half:
            due = _next_check(copy, now_ms)
        source = sources.get(copy.offset_msg_id, "")
        events.append(_copy_event(message, copy, source, due, is_again=is_stored))
        is_stored |= events[-1].kind is EventKind.STORED
    for each in traces:
        event = _trace_event(each)
        if event is not None:
            events.append(event)
    for delivery in deliveries:
        kind = EventKind.CONSUMED if delivery.is_success else EventKind.CONSUME_FAILED
        kind = EventKind.HANDED_OUT if delivery.is_success is None else kind
        number = delivery.retry_times
        retry = Sentence("delivery_retry", number=number) if number else ""
        time_ms = delivery.end_ms if delivery.end_ms is not None else delivery.begin_ms
        group = delivery.group
        text = Sentence("delivery", group=group, outcome=delivery.outcome, retry=retry)
        events.append(StoryEvent(time_ms, kind, text, delivery.source, group))
    return sorted(events, key=lambda each: (each.time_ms or 0, _KINDS.index(each.kind)))


def _by(message: MessageExt) -> str:
    group = producer_group_of(message)
    return Sentence("sent_by", group=group) if group else ""


def _sent_event(message: MessageExt) -> StoryEvent:
    group, by = producer_group_of(message), _by(message)
    try:
        maker = UniqueKey.decode(message.unique_key or "")
    except BadInput:
        made = ""
    else:
        made = Sentence("key_made_on", address=maker.address)
    text = Sentence("sent", host=message.sent_from, by=by, made=made)
    if props.CONSUME_FAILURE in message.properties:
        # A consumer sent this record, so its producer is the consumer group.
        text = Sentence("sent_first", by=by, made=made)
    said_by = Sentence("by_record")
    return StoryEvent(message.born_timestamp_ms, EventKind.SENT, text, said_by, group)


def _copy_event(
    message: MessageExt, copy: MessageExt, source: str, due: str, *, is_again: bool
) -> StoryEvent:
    life = life_of(copy, (message.topic,))
    kind, text = _describe_copy(copy, life, due, is_again=is_again)
    return StoryEvent(
        copy.store_timestamp_ms,
        kind,
        text,
        source,
        life.group,
        copy.topic,
        copy.queue_id,
        copy.queue_offset,
        copy.offset_msg_id,
    )


def _describe_copy(
    copy: MessageExt, life: Life, due: str, *, is_again: bool
) -> tuple[EventKind, str]:
    at, group, number = copy.position, life.group, copy.reconsume_times
    topic = life.topic or "?"
    resent, why = resend_values(copy), _failed_at(copy)
    times = copy.properties.get(props.TRANSACTION_CHECK_TIMES)
    checked = Sentence("half_checked", times=times) if times else ""
    match life.state:
        case LifeState.DELAYED | LifeState.TIMED if group is not None:
            text = Sentence("given_back", group=group, number=number, at=at, due=due, why=why)
            return EventKind.GIVEN_BACK, text
        case LifeState.DELAYED | LifeState.TIMED:
            return EventKind.DELAYED, Sentence("delayed", at=at, topic=topic, due=due)
        case LifeState.HALF:
            text = Sentence("half", at=at, topic=topic, checked=checked, open=due)
            return EventKind.HALF, text
        case LifeState.ENDED:
            return EventKind.TRANSACTION_ENDED, Sentence("rolled_back", at=at)
        case LifeState.RECALL:
            by = _by(copy)
            text = Sentence("recalled_by", host=str(copy.born_host), by=by, at=at)
            return EventKind.RECALLED, text
        case LifeState.GIVEN_UP:
            after = Sentence("after_checks", times=times) if times else ""
            return EventKind.TRANSACTION_ENDED, Sentence("given_up", at=at, checked=after)
        case LifeState.HANDED_OUT | LifeState.ACKNOWLEDGED:
            return EventKind.HANDED_OUT, _handed_out(copy)
        case LifeState.DEAD_LETTER:
            text = Sentence("dead_letter_stored", group=group, at=at, why=why)
            return EventKind.DEAD_LETTER, text
        case LifeState.RETRY if resent and not number:
            text = Sentence("resent_to_group", group=group, at=at, **resent)
            return EventKind.RETRY, text
        case LifeState.RETRY:
            text = Sentence("retry_stored", number=number, group=group, at=at, why=why)
            return EventKind.RETRY, text
    if resent:
        kind = EventKind.STORED_AGAIN if is_again else EventKind.STORED
        return kind, Sentence("resent_stored", at=at, **resent)
    name = "committed" if life.state is LifeState.COMMITTED else "stored"
    if is_again:
        return EventKind.STORED_AGAIN, Sentence(f"{name}_again", at=at)
    return EventKind.STORED, Sentence(name, at=at)


def _failed_at(copy: MessageExt) -> str:
    failure = failure_of(copy)
    return "" if failure is None else Sentence("failed_at", host=failure.host, error=failure.error)


def resend_values(copy: MessageExt) -> dict[str, object]:
    """Return the job that sent a message again, and why; empty for other messages."""
    job, why = (copy.properties.get(name) for name in (props.RESENT, props.RESENT_WHY))
    if job is None:
        return {}
    return {"job": job, "why": Sentence("resent_why", why=why) if why else ""}


def _handed_out(record: MessageExt) -> Sentence:
    given = handed_out_by(record)
    if given is None:
        return Sentence("pop_unknown", at=record.position)
    values = {"at": record.position, "group": given.group, "messages": ", ".join(given.positions)}
    time = time_text(given.handed_out_ms)
    if given.visible_ms is None:
        return Sentence("pop_acknowledged", time=time, **values)
    return Sentence("pop_handed_out", time=time, again=time_text(given.visible_ms), **values)


def _next_check(half: MessageExt, now_ms: int) -> Sentence:
    check_ms = half.store_timestamp_ms + CHECK_INTERVAL_MS
    if check_ms <= now_ms:
        return Sentence("half_open")
    return Sentence("half_next_check", time=time_text(check_ms))


def _trace_event(entry: TraceEntry) -> StoryEvent | None:
    """Return the event of a producer's trace; None for consumers' traces, which are deliveries."""
    record, address, source = entry
    group = record.group or ""
    values: dict[str, object] = {"group": group, "address": address}
    if record.trace_type is TraceType.PUB:
        name = "sent_to" if record.is_success else "sending_failed"
        values |= {"host": record.store_host or "?", "ms": record.cost_ms}
        kind = EventKind.SENT
    elif record.trace_type is TraceType.END_TRANSACTION:
        is_asked = record.from_transaction_check
        name = "transaction_ended_when_asked" if is_asked else "transaction_ended"
        values["state"] = record.transaction_state
        kind = EventKind.TRANSACTION_ENDED
    elif record.trace_type is TraceType.RECALL:
        name = "recalled" if record.is_success else "recall_failed"
        kind = EventKind.RECALLED
    else:
        return None
    text = Sentence(name, **values)
    return StoryEvent(record.timestamp_ms, kind, text, source, group)
