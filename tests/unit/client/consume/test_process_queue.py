"""What a consumer holds of a queue, and how far it may commit."""

from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.process_queue import CacheBounds, ProcessQueue
from tests.unit.client.consume.consumer_messages import message

QUEUE = MessageQueue("T", "broker-a", 0)


def holding(*offsets, begin=0):
    pq = ProcessQueue(QUEUE, begin, 5)
    pq.put([message(each) for each in offsets], max(offsets, default=begin - 1) + 1)
    return pq


def test_the_smallest_offset_that_is_held_is_committed():
    pq = holding(0, 1, 2, 3)
    assert pq.offset_to_commit == 0
    assert pq.remove([message(2)]) == 0
    assert pq.remove([message(0)]) == 1
    assert pq.remove([message(1)]) == 3
    assert pq.remove([message(3)]) == 4


def test_offsets_that_were_filtered_are_passed_once_nothing_before_them_is_held():
    pq = holding(0)
    pq.put([], 9)
    assert pq.offset_to_commit == 0
    assert pq.remove([message(0)]) == 9


def test_a_message_that_comes_twice_is_held_once():
    pq = holding(0, 1)
    assert [each.queue_offset for each in pq.put([message(1), message(2)], 3)] == [2]
    pq.remove([message(0)])
    assert pq.put([message(0)], 3) == []
    assert len(pq) == 2


def test_messages_that_come_in_disorder_are_held_in_order():
    pq = ProcessQueue(QUEUE, 0, 5)
    fresh = pq.put([message(2), message(0), message(1)], 3)
    assert [each.queue_offset for each in fresh] == [0, 1, 2]
    assert pq.offset_to_commit == 0


@given(st.permutations(range(12)))
def test_whatever_the_order_in_which_messages_are_done_none_is_skipped(order):
    pq = holding(*range(12))
    left = set(range(12))
    for offset in order:
        left.discard(offset)
        assert pq.remove([message(offset)]) == min(left, default=12)
    assert pq.held_bytes == 0


def test_pulling_pauses_at_so_many_messages_bytes_or_offsets():
    assert holding(0, 1).is_full(CacheBounds(messages=2))
    assert not holding(0).is_full(CacheBounds(messages=2))
    assert holding(0).is_full(CacheBounds(size=limits.MESSAGE_OVERHEAD_BYTES + 1))
    assert not holding(0).is_full(CacheBounds(size=limits.MESSAGE_OVERHEAD_BYTES + 2))
    assert holding(0, 11).is_full(CacheBounds(span=10))
    assert not holding(0, 10).is_full(CacheBounds(span=10))
    assert not holding(0, 10**9).is_full(CacheBounds(span=None))
    assert not holding().is_full(CacheBounds(1, 1, 0))


def test_the_thresholds_are_rocketmqs():
    assert CacheBounds() == (1000, 100 << 20, 2000)


def test_messages_of_a_listener_that_hangs_are_found_from_the_front():
    pq = holding(0, 1, 2)
    pq.begin([message(0)], 10.0)
    pq.begin([message(2)], 10.0)
    assert [each.queue_offset for each in pq.expired(11.0)] == [0]
    assert pq.expired(10.0) == []


def test_a_message_that_was_let_go_is_not_begun_again():
    pq = holding(0, 1)
    pq.remove([message(0)])
    assert [each.queue_offset for each in pq.begin([message(0), message(1)], 1.0)] == [1]
    assert not pq.holds(message(0))
    assert pq.holds(message(1))


def test_an_ordered_queue_is_taken_from_the_front_and_committed():
    pq = holding(0, 1, 2)
    assert [each.queue_offset for each in pq.take(2)] == [0, 1]
    assert pq.offset_to_commit == 0
    assert pq.commit_taken() == 2
    assert [each.queue_offset for each in pq.take(5)] == [2]
    assert not pq.has_waiting
    assert pq.commit_taken() == 3
    assert (len(pq), pq.held_bytes) == (0, 0)


def test_what_was_put_back_is_taken_first_again():
    pq = holding(0, 1, 2)
    taken = pq.take(2)
    pq.put_back(taken)
    assert pq.offset_to_commit == 0
    assert [each.queue_offset for each in pq.take(3)] == [0, 1, 2]


def test_rocketmqs_tools_are_shown_what_it_holds():
    pq = holding(3, 4, 5, begin=3)
    pq.take(1)
    pq.is_locked, pq.locked_at_ms = True, 77
    shown = pq.described(3)
    assert (shown.commit_offset, shown.cached_msg_count) == (3, 3)
    assert (shown.cached_msg_min_offset, shown.cached_msg_max_offset) == (3, 5)
    assert (shown.transaction_msg_min_offset, shown.transaction_msg_count) == (3, 1)
    assert (shown.locked, shown.last_lock_timestamp_ms, shown.dropped) == (True, 77, False)
    assert holding().described(0).cached_msg_min_offset == 0
