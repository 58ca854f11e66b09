"""Of what sources add: the newest are kept, each once, as many as fit, and coverage once."""

import itertools

import pytest
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.formats.commitlog_record import MAGIC_V1, Record, message_of
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.message import Host
from rocketlens.query import answer_builder
from rocketlens.query.answer_builder import AnswerMessages, Findings

HOST, OTHER = Host("10.0.0.1", 10911), Host("10.0.0.2", 10911)


def record(offset, time_ms=None, host=HOST, topic="T", body=b"body"):
    time_ms = offset if time_ms is None else time_ms
    return Record(
        91 + len(body), MAGIC_V1, len(body), 0, 0, offset, offset, 0, time_ms, host, time_ms, host,
        0, 0, body, topic, b"",
    )  # fmt: skip


@pytest.fixture
def decoded(monkeypatch):
    """The records whose bodies were looked at."""
    seen = []
    message_of = answer_builder.message_of
    monkeypatch.setattr(
        answer_builder, "message_of", lambda each: seen.append(each) or message_of(each)
    )
    return seen


def offsets(messages):
    return [message.physical_offset for message in messages.in_order()]


@pytest.mark.parametrize("in_log_order", [False, True])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
@pytest.mark.parametrize("oldest", [False, True])
def test_in_whatever_order_they_come_the_same_are_kept(order, oldest, in_log_order):
    for max_num in (0, 1, 3, 4, None):
        messages = AnswerMessages(max_num, oldest=oldest, in_log_order=in_log_order)
        for offset in (*order, *order):
            messages.take(record(offset))
        count = 4 if max_num is None else max_num
        assert offsets(messages) == (list(range(count)) if oldest else list(range(4 - count, 4)))
        assert messages.truncated == (count < 4)


def test_what_is_left_out_is_not_decompressed(decoded):
    messages = AnswerMessages(2)
    for offset in range(10, 0, -1):
        messages.take(record(offset))
    assert [each.physical_offset for each in decoded] == [10, 9]
    assert messages.is_past(7)
    assert not messages.is_past(8)


def test_an_answer_has_no_more_bytes_than_it_may(monkeypatch):
    monkeypatch.setattr(limits, "MAX_ANSWER_BYTES", 3 * (1000 + limits.MESSAGE_OVERHEAD_BYTES))
    messages = AnswerMessages(None)
    findings = Findings(messages)
    may_go_on = [findings.take(record(9 - n, body=b"x" * 1000)) for n in range(5)]
    assert may_go_on == [True, True, True, False, False]
    assert offsets(messages) == [7, 8, 9]
    assert messages.truncated


def test_a_source_may_stop_once_it_added_one_more_than_was_asked_for():
    findings = Findings(AnswerMessages(2))
    assert [findings.take(record(n)) for n in (9, 8, 7)] == [True, True, False]
    assert findings.count == 3


def test_messages_of_several_brokers_are_told_apart_and_those_of_one_are_not():
    messages = AnswerMessages(None)
    first, second = Findings(messages), Findings(messages)
    for findings in (first, second):
        findings.take(record(1, time_ms=7))
        findings.take(record(1, time_ms=7, host=OTHER))
    # Two brokers can have one address, each in a network of its own.
    second.take(record(1, time_ms=7, topic="U"))
    assert len(messages) == 3
    assert not messages.truncated


def test_a_log_has_its_own_order_whatever_the_clock_did():
    messages = AnswerMessages(2, in_log_order=True)
    for offset, time_ms in ((1, 30), (2, 10), (3, 20)):
        messages.take(record(offset, time_ms))
    assert offsets(messages) == [2, 3]


def broker(name, newest_ms=None, state=SourceState.SEARCHED, error=None):
    return Coverage(name, SourceKind.BROKER, state, newest_ms, error)


def test_a_broker_stands_in_the_coverage_once_with_its_newest_time():
    findings = Findings(AnswerMessages(None))
    failed = broker("b", None, SourceState.FAILED, "gone")
    part = Coverage("log", SourceKind.COMMIT_LOG, SourceState.SEARCHED, None, None, 0, 10, 10)
    for coverage in ((broker("a", 5),), (broker("a", 7), failed), (broker("a"), failed, part)):
        findings.cover(coverage)
    assert findings.coverage == (broker("a", 7), failed, part)
    assert not findings.is_complete


def test_nothing_covered_is_not_complete():
    assert not Findings(AnswerMessages(None)).answer("k").complete


def test_what_was_read_is_reported_as_sums():
    reported = []
    findings = Findings(AnswerMessages(None), on_read=lambda *read: reported.append(read))
    findings.add_read(100, 2)
    findings.add_read(50, 1)
    Findings(AnswerMessages(None)).add_read(1, 1)
    findings.report_read(10, 40, 1)
    assert reported == [(100, None, 2), (150, None, 3), (10, 40, 1)]


def test_of_two_copies_the_one_whose_body_can_be_read_is_kept_and_both_sources_are_named():
    unread = replace(message_of(record(1)), body=b"?", body_error="damaged")
    for first, second in ((unread, message_of(record(1))), (message_of(record(1)), unread)):
        messages = AnswerMessages(None)
        messages.add(first, "a")
        messages.add(second, "b")
        messages.add(second, "b")
        kept = messages.in_order()
        assert [each.body_error for each in kept] == [None]
        assert messages.holders_of(kept, ["a", "b", "c"]) == (("a", "b"),)
