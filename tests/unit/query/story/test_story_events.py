"""Each record and trace becomes one event, in words; calls of listeners are paired."""

from dataclasses import replace
from datetime import datetime

import pytest

from rocketlens.formats.trace_body import TraceRecord, TraceType
from rocketlens.query.story.story_events import TraceEntry, deliveries_of, events_of
from tests.support.story_world import KEY, consumed, copy, dead, pub, retried, waiting
from tests.unit.conftest import NOON_MS


def text_of(after_ms):
    """Give the local time that long after noon."""
    return (
        datetime.fromtimestamp((NOON_MS + after_ms) / 1000).astimezone().isoformat(" ", "seconds")
    )


def event_of(record):
    told = events_of(record, [record], [], [], {record.offset_msg_id: "broker-a"}, now_ms=NOON_MS)
    assert [each.kind for each in told if each.offset_msg_id is None] == ["sent"]
    [event] = [each for each in told if each.offset_msg_id is not None]
    assert event.source == "broker-a"
    return event


@pytest.mark.parametrize(
    ("record", "kind", "group", "text"),
    [
        (copy(), "stored", None, "stored as T/0/7"),
        (copy(sys_flag=8), "stored", None, "transaction committed, stored as T/0/7"),
        (
            copy("SCHEDULE_TOPIC_XXXX", 0, 3, {"REAL_TOPIC": "T", "DELAY": "4"}),
            "delayed",
            None,
            (
                f"kept in SCHEDULE_TOPIC_XXXX/0/3 for topic T: due {text_of(30_000)}, in 30 s "
                "(delay level 4, 30s by default)"
            ),
        ),
        (
            copy(
                "rmq_sys_wheel_timer",
                0,
                3,
                {"REAL_TOPIC": "T", "TIMER_OUT_MS": str(NOON_MS + 7_140_000)},
            ),
            "delayed",
            None,
            f"kept in rmq_sys_wheel_timer/0/3 for topic T: due {text_of(7_140_000)}, in 1 h 59 min",
        ),
        (
            copy("rmq_sys_wheel_timer", 0, 3, {"REAL_TOPIC": "T", "TIMER_OUT_MS": "soon"}),
            "delayed",
            None,
            "kept in rmq_sys_wheel_timer/0/3 for topic T: when it is due is not known",
        ),
        (
            copy("SCHEDULE_TOPIC_XXXX", 0, 3, {"DELAY": "x"}),
            "delayed",
            None,
            (
                "kept in SCHEDULE_TOPIC_XXXX/0/3 for topic ?: when it is due is not known "
                "(delay level x)"
            ),
        ),
        (
            waiting(2, 0),
            "given_back",
            "g",
            (
                "given back by group g: retry 2 is kept in SCHEDULE_TOPIC_XXXX/0/2: due "
                f"{text_of(30_000)}, in 30 s (delay level 4, 30s by default)"
            ),
        ),
        (retried(2, 0), "retry", "g", "retry 2 of group g stored as %RETRY%g/0/2"),
        (dead(17, 0), "dead_letter", "g", "dead letter of group g: %DLQ%g/0/0"),
        (
            copy(
                "RMQ_SYS_TRANS_HALF_TOPIC",
                0,
                1,
                {"REAL_TOPIC": "T", "TRANSACTION_CHECK_TIMES": "2"},
            ),
            "half",
            None,
            "half message in RMQ_SYS_TRANS_HALF_TOPIC/0/1 for topic T, checks so far: 2",
        ),
        (
            copy("RMQ_SYS_TRANS_HALF_TOPIC", 0, 1),
            "half",
            None,
            "half message in RMQ_SYS_TRANS_HALF_TOPIC/0/1 for topic ?",
        ),
        (
            copy("TRANS_CHECK_MAX_TIME_TOPIC"),
            "transaction_ended",
            None,
            (
                "the broker gave its transaction up after too many checks, and keeps it in "
                "TRANS_CHECK_MAX_TIME_TOPIC/0/7"
            ),
        ),
    ],
)
def test_a_record_is_one_event(record, kind, group, text):
    event = event_of(record)
    assert (event.kind, event.group, event.time_ms) == (kind, group, record.store_timestamp_ms)
    assert event.text == text
    position = (record.topic, record.queue_id, record.queue_offset)
    assert (event.topic, event.queue_id, event.queue_offset) == position


def test_a_second_record_in_the_topic_is_stored_again():
    records = [copy(), copy(at_ms=1, queue_offset=8), copy(at_ms=2, queue_offset=9, sys_flag=8)]
    told = events_of(records[0], records, [], [], {}, now_ms=NOON_MS)
    assert [each.text for each in told[2:]] == [
        "stored again as T/0/8",
        "transaction committed, stored again as T/0/9",
    ]


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"UNIQ_KEY": ""}, "sent from 10.0.0.9:5555"),
        ({"UNIQ_KEY": "", "PGROUP": "p"}, "sent from 10.0.0.9:5555 by producer group p"),
        (
            {"PGROUP": "p"},
            "sent from 10.0.0.9:5555 by producer group p; its unique key was made on 127.0.0.1",
        ),
    ],
)
def test_a_record_says_who_sent_it(properties, text):
    record = copy(properties=properties)
    [sent] = events_of(record, [], [], [], {}, now_ms=NOON_MS)
    assert (sent.text, sent.source) == (text, "its record")


def test_what_producers_said_is_told():
    ended = TraceRecord(
        TraceType.END_TRANSACTION,
        KEY,
        timestamp_ms=NOON_MS + 9,
        group="p",
        transaction_state="COMMIT_MESSAGE",
        from_transaction_check=True,
    )
    recalled = TraceRecord(TraceType.RECALL, KEY, NOON_MS + 10, group="p", is_success=False)
    traces = [pub(4), *(TraceEntry(each, "10.0.0.9", "t/0/1") for each in (ended, recalled))]
    texts = [each.text for each in events_of(copy(), [], traces, [], {}, now_ms=NOON_MS)]
    assert texts == [
        "sent from 10.0.0.9:5555; its unique key was made on 127.0.0.1",
        "producer group p at 10.0.0.9 sent it to 10.0.0.5:10911 in 3 ms",
        "producer group p at 10.0.0.9 ended the transaction when it was asked: COMMIT_MESSAGE",
        "producer group p at 10.0.0.9 recalled it, which failed",
    ]
    others = [
        replace(pub(4).record, is_success=False),
        replace(ended, from_transaction_check=False),
        replace(recalled, is_success=True),
    ]
    traces = [TraceEntry(each, "10.0.0.9", "t/0/1") for each in others]
    texts = [each.text for each in events_of(copy(), [], traces, [], {}, now_ms=NOON_MS)]
    assert texts[1:] == [
        (
            "producer group p at 10.0.0.9 sent it to 10.0.0.5:10911 in 3 ms, and was told that it "
            "failed"
        ),
        "producer group p at 10.0.0.9 ended the transaction: COMMIT_MESSAGE",
        "producer group p at 10.0.0.9 recalled it",
    ]


def test_begin_and_end_of_a_call_are_one_delivery_in_any_order():
    traces = [*consumed(50), *consumed(10, client="10.0.0.7", success=False, code=1)]
    early, late = deliveries_of(traces[::-1])
    assert (early.client_address, early.begin_ms, early.end_ms) == (
        "10.0.0.7",
        NOON_MS + 10,
        NOON_MS + 15,
    )
    assert early.outcome == "client 10.0.0.7 failed to consume it in 5 ms: too late"
    assert late.outcome == "consumed by client 10.0.0.8 in 5 ms"


@pytest.mark.parametrize(
    ("traces", "text"),
    [
        (consumed(50), "group g: consumed by client 10.0.0.8 in 5 ms"),
        (consumed(50, 2), "group g: consumed by client 10.0.0.8 in 5 ms (retry 2)"),
        (
            consumed(50, 1, success=False, code=3),
            "group g: client 10.0.0.8 failed to consume it in 5 ms: null returned (retry 1)",
        ),
        (consumed(50, success=False), "group g: client 10.0.0.8 failed to consume it in 5 ms"),
        (
            consumed(50)[:1],
            "group g: handed to client 10.0.0.8, which did not tell how it ended",
        ),
    ],
)
def test_a_delivery_is_one_event(traces, text):
    [_, event] = events_of(copy(), [], traces, deliveries_of(traces), {}, now_ms=NOON_MS)
    assert event.text == text


def test_a_call_that_did_not_end_or_begin_is_told_as_far_as_it_is_known():
    before, after = consumed(50)
    [begun] = deliveries_of([before])
    assert (begun.is_success, begun.end_ms) == (None, None)
    assert begun.outcome == "handed to client 10.0.0.8, which did not tell how it ended"
    [ended] = deliveries_of([after])
    assert (ended.group, ended.begin_ms, ended.is_success) == ("g", None, True)
