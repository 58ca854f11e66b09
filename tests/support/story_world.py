"""Records, traces and facts of one message, for stories."""

from rocketlens.formats.commitlog_record import message_of
from rocketlens.formats.trace_body import TraceRecord, TraceType
from rocketlens.model.properties import format_properties
from rocketlens.query.facts.group_state import GroupFacts
from rocketlens.query.story.story import StoryEvidence, build_story
from rocketlens.query.story.story_events import TraceEntry
from tests.unit.conftest import NOON_MS, record

KEY = "7F000001000100000000000000000001"


def copy(topic="T", at_ms=0, queue_offset=7, properties=(), **fields):
    """Give a record of the message, stored some milliseconds after noon."""
    text = format_properties({"UNIQ_KEY": KEY, **dict(properties)}).encode()
    stored_ms = NOON_MS + at_ms
    position = fields.pop("physical_offset", 1_000 * at_ms)
    return message_of(
        record(
            position,
            topic=topic,
            queue_offset=queue_offset,
            store_timestamp_ms=stored_ms,
            properties=text,
            **fields,
        )
    )


def waiting(retry, at_ms, group="g"):
    """Give a copy that was given back and waits."""
    real = {"REAL_TOPIC": f"%RETRY%{group}", "REAL_QID": "0", "DELAY": str(2 + retry)}
    return copy("SCHEDULE_TOPIC_XXXX", at_ms, retry, real, reconsume_times=retry)


def retried(retry, at_ms, group="g"):
    """Give a copy in the retry topic."""
    return copy(f"%RETRY%{group}", at_ms, retry, reconsume_times=retry)


def dead(retry, at_ms, group="g"):
    """Give a dead letter."""
    return copy(f"%DLQ%{group}", at_ms, 0, reconsume_times=retry)


def pub(at_ms=0):
    return TraceEntry(
        TraceRecord(
            TraceType.PUB,
            KEY,
            timestamp_ms=NOON_MS + at_ms,
            group="p",
            topic="T",
            store_host="10.0.0.5:10911",
            cost_ms=3,
            is_success=True,
        ),
        "10.0.0.9",
        "trace/0/0",
    )


def consumed(at_ms, retry=0, *, client="10.0.0.8", success=True, group="g", code=0):
    """Give both trace records of one call of a listener."""
    request_id = f"{client}-{at_ms}-{retry}"
    before = TraceRecord(
        TraceType.SUB_BEFORE,
        KEY,
        timestamp_ms=NOON_MS + at_ms,
        group=group,
        request_id=request_id,
        retry_times=retry,
    )
    after = TraceRecord(
        TraceType.SUB_AFTER,
        KEY,
        timestamp_ms=NOON_MS + at_ms + 5,
        group=group,
        request_id=request_id,
        cost_ms=5,
        is_success=success,
        context_code=code,
    )
    return [TraceEntry(each, client, "trace/0/1") for each in (before, after)]


def known(**given):
    """Give facts of a group that is offline; its offset is past the message."""
    facts = {"is_online": False, "has_offsets": True, "consumer_offset": 8, "retry_offsets": {}}
    return GroupFacts("g", **{**facts, **given})


def story(copies, traces=(), groups=None, **evidence):
    """Tell the story of the first copy."""
    found = [known()] if groups is None else groups
    evidence = StoryEvidence(copies[0], copies, traces, found, **evidence)
    return build_story("q", evidence, (), ())


def texts_of(told):
    """Give every text of a story that is there for people."""
    texts = [text for each in told.events for text in (each.text, each.source)]
    for each in told.groups:
        texts += (each.rests_on, each.source, *each.repeats)
    texts += told.repeats
    return texts + [text for each in told.unlearnt for text in (each.what, each.why)]
