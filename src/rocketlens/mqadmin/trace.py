"""queryMsgTraceById: what the clients of a message said they did."""

import time

from rocketlens import limits
from rocketlens.client.connect.cluster import failures
from rocketlens.errors import MessageNotFound
from rocketlens.formats.trace_body import TraceRecord, TraceType, decode
from rocketlens.model.properties import java_order
from rocketlens.model.rocketmq import TRACE_TOPIC
from rocketlens.mqadmin.printing.form import padded, seconds_of
from rocketlens.mqadmin.tool import Call, incomplete
from rocketlens.terminal.output import note

Row = tuple[TraceRecord, str]
"""A record, and the address that its client had."""


async def trace_by_id(call: Call) -> None:
    """Print who sent and who consumed a message, as they said it themselves.

    :raises MessageNotFound: if there is no trace of it.
    :raises AnswerIncomplete: if a broker failed; what the others have is printed.
    """
    given = call.given
    msg_id, topic = given.required("i"), given.text("t") or TRACE_TOPIC
    now_ms = time.time_ns() // 1_000_000
    answer = await call.tool.admin.query_message(
        topic,
        msg_id,
        given.number("c", limits.DEFAULT_QUERY_MESSAGES, 1, limits.MAX_INT),
        given.number("b", 0, 0),
        given.number("e", limits.MAX_TIMESTAMP_MS if call.form.is_5 else now_ms, 0),
    )
    rows: list[Row] = []
    damage: list[str] = []
    for message in answer:
        records = decode(message.body, damage)
        rows += [(each, message.born_host.address) for each in records if each.msg_id == msg_id]
    call.print(trace_text(call, rows))
    for each in damage:
        note(f"a trace message has {each}")
    if not answer.complete:
        raise incomplete(failures(answer.coverage))
    if not answer.messages:
        raise MessageNotFound(f"topic {topic} has no trace of {msg_id}")


def trace_text(call: Call, rows: list[Row]) -> str:
    """Return a table for each send, then one for each consumer group."""
    consumed: dict[str, list[Row]] = {}
    parts = []
    for row in rows:
        if row[0].trace_type is TraceType.PUB:
            parts += [_head("#ProducerGroup", "#SendTime"), _row(call, "Pub", row), "\n"]
        elif row[0].trace_type is TraceType.SUB_AFTER:
            consumed.setdefault(row[0].group or "", []).append(row)
    for group in java_order(dict.fromkeys(consumed, ""), 16):
        parts.append(_head("#ConsumerGroup", "#ConsumerTime"))
        parts += [_row(call, "Sub", row) for row in consumed[group]]
        parts.append("\n")
    return "".join(parts)


def _head(group: str, when: str) -> str:
    return _cells("#Type", group, "#ClientHost", when, "#CostTimes", "#Status")


def _row(call: Call, kind: str, row: Row) -> str:
    record, host = row
    shown = call.form.shown
    # A consumer that is too old to say when is printed with the time of printing.
    when_ms = time.time_ns() // 1_000_000 if record.timestamp_ms is None else record.timestamp_ms
    status = "success" if record.is_success else "failed"
    group, when = shown(record.group or ""), seconds_of(when_ms)
    return _cells(kind, group, host, when, f"{record.cost_ms}ms", status)


def _cells(*cells: str) -> str:
    widths = (10, 20, 20, 20, 10, 10)
    return " ".join(padded(cell, width) for cell, width in zip(cells, widths, strict=True)) + "\n"
