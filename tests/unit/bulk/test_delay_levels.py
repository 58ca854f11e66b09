"""How long a delay level lasts is taken from the best source that knows it."""

from rocketlens.bulk import delay_levels
from rocketlens.bulk.delay_levels import DelayedMessage, delays_of_copies, resolve


def sample(key, level, when, *, is_waiting):
    return DelayedMessage(hash(key), key, level, when, is_waiting)


def test_what_the_caller_says_counts_before_all_that_was_found():
    levels = resolve({1, 2}, [0, 5, 6], {1: 7}, {2: 8})
    assert levels.delays_ms == (0, 5, 6)
    assert levels.sources == {1: delay_levels.ARGUMENT, 2: delay_levels.ARGUMENT}
    assert levels.source == "argument"


def test_each_level_comes_from_the_queues_then_from_copies_then_from_rocketmqs_defaults():
    levels = resolve({1, 2, 3}, None, {1: 111, 4: 444}, {1: 999, 2: 222})
    assert levels.delays_ms[:5] == (0, 111, 222, 10_000, 444)
    assert levels.sources == {
        1: delay_levels.QUEUES,
        2: delay_levels.COPIES,
        3: delay_levels.DEFAULTS,
    }
    assert levels.source == "RocketMQ's defaults, consume queues, delivered copies"


def test_a_level_above_rocketmqs_lasts_as_long_as_the_last_and_an_absurd_one_costs_nothing():
    levels = resolve({20, 1 << 40}, None, {}, {})
    assert len(levels.delays_ms) == 21
    assert set(levels.delays_ms[18:]) == {2 * 3600 * 1000}
    assert set(levels.sources) == {20}


def test_the_delay_of_a_level_is_the_least_that_a_delivered_message_of_it_had_in_seconds():
    waiting = [sample(key, 2, 1000, is_waiting=True) for key in (b"a", b"b", b"c", b"d")]
    delivered = [
        sample(b"a", 2, 7300, is_waiting=False),
        sample(b"b", 2, 6100, is_waiting=False),
        # Of another level, earlier than it was sent, and of no message that waited.
        sample(b"c", 3, 2000, is_waiting=False),
        sample(b"d", 2, 500, is_waiting=False),
        sample(b"e", 2, 1000, is_waiting=False),
    ]
    assert delays_of_copies([delivered, waiting]) == {2: 5000}
    assert delays_of_copies([waiting]) == {}
