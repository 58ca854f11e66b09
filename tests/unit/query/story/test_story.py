"""A story is told from records, traces and facts: each becomes one event, in order of time."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rocketlens.formats.trace_body import TraceRecord, TraceType
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.rocketmq import PRODUCER_RETRY_MS
from rocketlens.query.facts.group_state import GroupState
from rocketlens.query.story.story import Story, Unlearnt, choose_message, groups_in, is_same_message
from rocketlens.query.story.story_events import TraceEntry, deliveries_of, events_of
from tests.support.story_world import KEY, consumed, copy, dead, known, pub, retried, story, waiting
from tests.unit.conftest import NOON_MS

ORIGINAL = copy()


def due_in(after_ms):
    """Give the words for a time that long after noon, at noon."""
    due = datetime.fromtimestamp((NOON_MS + after_ms) / 1000).astimezone()
    return f"due {due.isoformat(' ', 'seconds')}, in {after_ms // 1000} s"


def state_of(*copies, traces=(), **facts):
    told = story([ORIGINAL, *copies], traces, [known(**facts)], now_ms=NOON_MS)
    [group] = told.groups
    return group


@pytest.mark.parametrize(
    ("copies", "facts", "state", "retries", "rests_on"),
    [
        (
            (),
            {},
            "passed_offline",
            0,
            (
                "its next offset is 8; no client is online: it consumed it before, or a reset "
                "skipped it"
            ),
        ),
        (
            (waiting(1, 10),),
            {},
            "retrying",
            1,
            f"retry 1 is SCHEDULE_TOPIC_XXXX/0/1: {due_in(10_010)} (delay level 3, 10s by default)",
        ),
        (
            (copy("rmq_sys_wheel_timer", 10, 3, {"REAL_TOPIC": "%RETRY%g"}, reconsume_times=1),),
            {},
            "retrying",
            1,
            "retry 1 is rmq_sys_wheel_timer/0/3: its due time is unknown",
        ),
        (
            (waiting(1, 10), retried(1, 20)),
            {},
            "retrying",
            1,
            "retry 1 is %RETRY%g/0/1, and has not been consumed yet",
        ),
        (
            (waiting(1, 10), retried(1, 20)),
            {"retry_offsets": {("%RETRY%g", None, 0): 2}},
            "consumed",
            1,
            "retry 1 is %RETRY%g/0/1; the group's offset there is 2, and it was not returned",
        ),
        (
            (waiting(1, 10), retried(1, 20), waiting(2, 30)),
            {"retry_offsets": {("%RETRY%g", None, 0): 2}},
            "retrying",
            2,
            f"retry 2 is SCHEDULE_TOPIC_XXXX/0/2: {due_in(30_030)} (delay level 4, 30s by default)",
        ),
        (
            (retried(1, 20),),
            {"retry_offsets": None},
            "retrying",
            1,
            "retry 1 is %RETRY%g/0/1; it is unknown whether the group received it",
        ),
        ((retried(16, 10), dead(17, 20)), {}, "dead_letter", 16, "its dead letter is %DLQ%g/0/0"),
        (
            (dead(17, 20), retried(0, 30)),
            {},
            "retrying",
            0,
            "the copy that was sent again is %RETRY%g/0/0, and has not been consumed yet",
        ),
    ],
)
def test_copies_say_what_a_group_did(copies, facts, state, retries, rests_on):
    group = state_of(*copies, **facts)
    assert (group.state, group.retries) == (state, retries)
    assert group.rests_on == rests_on
    if copies:
        assert group.since_ms == copies[-1].store_timestamp_ms


def test_what_a_client_reported_counts_more_than_offsets():
    group = state_of(traces=consumed(50), consumer_offset=7)
    assert (group.state, group.since_ms) == (GroupState.CONSUMED, NOON_MS + 55)
    assert (group.source, group.rests_on) == ("trace/0/1", "its client 10.0.0.8 reported it")


def test_a_report_of_an_earlier_attempt_does_not_end_a_retry():
    assert state_of(retried(2, 60), traces=consumed(50, 1)).state == "retrying"
    group = state_of(retried(2, 60), traces=consumed(70, 2))
    assert group.state == "consumed"
    assert group.rests_on == "its client 10.0.0.8 reported it, at retry 2"


def test_a_failure_that_a_client_reported_is_named():
    group = state_of(traces=consumed(50, success=False, code=2), consumer_offset=7)
    assert group.state == "not_yet"
    assert group.rests_on == (
        "its next offset is 7; no client is online; client 10.0.0.8 failed to consume it in 5 "
        "ms: an exception"
    )


@pytest.mark.parametrize(
    ("offsets_source", "clients_source", "source"),
    [
        ("its brokers (208)", "its connections (203)", "its brokers (208), its connections (203)"),
        ("one", "", "one"),
        ("", "two", "two"),
        ("one", "one", "one"),
        ("", "", ""),
    ],
)
def test_who_said_what_offsets_and_clients_are_is_named_once(
    offsets_source, clients_source, source
):
    group = state_of(offsets_source=offsets_source, clients_source=clients_source)
    assert group.source == source


def test_one_unique_key_at_two_offsets_is_a_retry_of_the_producer_or_a_resend():
    again = copy(at_ms=4_000, queue_offset=9, born_timestamp_ms=NOON_MS + 3_000)
    later = copy(at_ms=90_000, queue_offset=10, born_timestamp_ms=NOON_MS + 90_000)
    ours = copy(at_ms=99_000, queue_offset=11, properties={"RESENT_BY_ROCKETLENS": "j/1"})
    told = story([ORIGINAL, again, later, ours])
    assert list(told.repeats) == [
        (
            "T/0/9 has the same unique key as T/0/7: a producer's retry: sent 3.000 s after the "
            "first from 10.0.0.9, the same host"
        ),
        (
            "T/0/10 has the same unique key as T/0/7: a resend: sent 90.000 s after the first from "
            "10.0.0.9"
        ),
        "T/0/11 has the same unique key as T/0/7: a resend by RocketLens, job j/1",
    ]
    assert [each.kind for each in told.events] == ["sent", "stored", *["stored_again"] * 3]


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (
            "10.0.0.7",
            (
                "10.0.0.8, 10.0.0.7: the queue went to another client before the first had "
                "committed its offset (a rebalance, or a client that ended)"
            ),
        ),
        (
            "10.0.0.8",
            (
                "10.0.0.8: its acknowledgement failed, or the client began anew before it had "
                "committed"
            ),
        ),
    ],
)
def test_one_offset_twice_is_a_rebalance_or_a_failed_acknowledgement(client, said):
    [repeat] = state_of(traces=[*consumed(50), *consumed(80, client=client)]).repeats
    assert repeat == f"one offset was handed out 2 times, to {said}"
    traces = [*consumed(50, 1), *consumed(80, 1, client=client)]
    [repeat] = state_of(retried(1, 40), traces=traces).repeats
    assert repeat == f"retry 1 was handed out 2 times, to {said}"
    assert state_of(traces=consumed(50)).repeats == ()
    # A retry is another record, and two records may each be had once.
    retry = [*consumed(50, success=False), *consumed(80, 1)]
    assert state_of(retried(1, 70), traces=retry).repeats == ()
    both = [ORIGINAL, copy(at_ms=5, queue_offset=8)]
    assert story(both, [*consumed(50), *consumed(80)]).groups[0].repeats == ()


def test_the_message_is_the_record_that_groups_read():
    records = [waiting(1, 1), dead(3, 2), copy(at_ms=9), copy(at_ms=3)]
    assert choose_message(records) is records[3]
    assert choose_message(records[:2]) is records[0]
    assert choose_message([]) is None


def test_records_without_a_unique_key_belong_together_by_their_origin():
    first = copy(properties={"UNIQ_KEY": ""})
    again = copy(
        "%RETRY%g", 9, properties={"UNIQ_KEY": "", "ORIGIN_MESSAGE_ID": first.offset_msg_id}
    )
    assert first.unique_key is None
    assert is_same_message(first, again)
    assert not is_same_message(first, copy(at_ms=9, properties={"UNIQ_KEY": ""}))
    assert not is_same_message(first, ORIGINAL)
    told = story([first, again])
    [left] = told.unlearnt
    assert (left.what, left.why) == (
        "copies of the message",
        "it has no unique key, by which its copies could be looked up",
    )


def test_a_message_of_which_only_a_retry_is_left_says_so():
    left_over = retried(1, 20)
    [left] = story([left_over]).unlearnt
    why = f"only %RETRY%g has it; the first record ({left_over.offset_msg_id}) is gone"
    assert (left.what, left.why, left.is_failure) == ("how it was first stored", why, False)


def test_groups_are_named_by_copies_and_traces():
    copies = [ORIGINAL, waiting(1, 1, "a"), retried(1, 1, "b"), dead(1, 1, "c")]
    assert groups_in(ORIGINAL, copies, [pub(), *consumed(1, group="d")]) == {"a", "b", "c", "d"}


def test_a_story_is_complete_if_all_was_asked_and_nothing_failed():
    searched = Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED)
    failed = Coverage("broker-b", SourceKind.BROKER, SourceState.FAILED, None, "no answer")

    def is_complete(coverage, *unlearnt):
        return Story("q", ORIGINAL, (), (), (), (), unlearnt, coverage).complete

    assert is_complete((searched,))
    assert is_complete((searched,), Unlearnt("its trace", "there is none"))
    assert not is_complete(())
    assert not is_complete((searched, failed))
    assert not is_complete((searched,), Unlearnt("its trace", "no answer", is_failure=True))


COPIES = st.lists(
    st.builds(
        lambda make, retry, at_ms: make(retry, at_ms),
        st.sampled_from([waiting, retried, dead]),
        st.integers(0, 17),
        st.integers(1, 10_000),
    )
)


@given(COPIES, st.lists(st.integers(0, 10_000)), st.randoms())
def test_each_fact_is_told_once_in_order_of_time_however_it_is_found(copies, calls, random):
    traces = [each for at_ms in set(calls) for each in consumed(at_ms)]
    found = [ORIGINAL, *copies]
    told = story(found, traces)
    times = [each.time_ms for each in told.events]
    assert times == sorted(times)
    assert len(told.events) == 1 + len(found) + len(set(calls))
    assert all(each.source for each in told.events if each.offset_msg_id is None)
    [group] = told.groups
    assert group.rests_on
    if any(each.topic == "%DLQ%g" for each in copies):
        assert group.state is not GroupState.NOT_YET
    shuffled = traces[:]
    random.shuffle(shuffled)
    assert story(found, shuffled).events == told.events


@pytest.mark.parametrize(
    ("after_ms", "why"),
    [(PRODUCER_RETRY_MS - 1, "a producer's retry: "), (PRODUCER_RETRY_MS, "a resend: ")],
)
def test_a_producer_retries_within_the_time_that_duplicates_takes_for_it(after_ms, why):
    again = copy(at_ms=after_ms, queue_offset=ORIGINAL.queue_offset + 1)
    again = replace(again, born_timestamp_ms=ORIGINAL.born_timestamp_ms + after_ms)
    assert [text for text in story([ORIGINAL, again]).repeats if why in text]


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
            "kept in rmq_sys_wheel_timer/0/3 for topic T: its due time is unknown",
        ),
        (
            copy("SCHEDULE_TOPIC_XXXX", 0, 3, {"DELAY": "x"}),
            "delayed",
            None,
            (
                "kept in SCHEDULE_TOPIC_XXXX/0/3 for topic ?: its due time is unknown "
                "(delay level x)"
            ),
        ),
        (
            waiting(2, 0),
            "given_back",
            "g",
            (
                "returned by group g: retry 2 is kept in SCHEDULE_TOPIC_XXXX/0/2: due "
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
            copy("TRANS_CHECK_MAX_TIME_TOPIC", 0, 7, {"TRANSACTION_CHECK_TIMES": "15"}),
            "transaction_ended",
            None,
            (
                "the broker gave up its transaction after 15 checks, and keeps it in "
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
            {"UNIQ_KEY": "", "PGROUP": "T", "__BORNHOST": "10.0.0.8"},
            "sent from 10.0.0.8 through proxy 10.0.0.9:5555",
        ),
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
        "producer group p at 10.0.0.9 ended the transaction after a check: COMMIT_MESSAGE",
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
        "producer group p at 10.0.0.9 sent it to 10.0.0.5:10911 in 3 ms, which failed",
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
        (consumed(50)[:1], "group g: handed to client 10.0.0.8, which did not report the result"),
    ],
)
def test_a_delivery_is_one_event(traces, text):
    [_, event] = events_of(copy(), [], traces, deliveries_of(traces), {}, now_ms=NOON_MS)
    assert event.text == text


def test_a_call_that_did_not_end_or_begin_is_told_as_far_as_it_is_known():
    before, after = consumed(50)
    [begun] = deliveries_of([before])
    assert (begun.is_success, begun.end_ms) == (None, None)
    assert begun.outcome == "handed to client 10.0.0.8, which did not report the result"
    [ended] = deliveries_of([after])
    assert (ended.group, ended.begin_ms, ended.is_success) == ("g", None, True)
