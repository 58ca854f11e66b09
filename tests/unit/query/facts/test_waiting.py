"""Messages that wait are counted by the topics that they are for."""

from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.query.facts.waiting import newest_ms, waiting_messages
from tests.support.story_world import KEY, copy
from tests.unit.conftest import NOON_MS

SEARCHED = (Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED),)


def delayed(at_ms, level, topic="T"):
    given = {"REAL_TOPIC": topic, "DELAY": str(level)}
    return copy("SCHEDULE_TOPIC_XXXX", at_ms, at_ms, given)


def timed(due, topic="T"):
    given = {"REAL_TOPIC": topic, "TIMER_OUT_MS": str(NOON_MS + due)}
    return copy("rmq_sys_wheel_timer", 0, 3, given)


def answer(*messages, truncated=False, coverage=SEARCHED):
    return Answer("q", messages, coverage, truncated=truncated)


def test_those_that_are_due_later_wait():
    delays = answer(delayed(0, 1), delayed(0, 3), delayed(1, 18, "U"))
    timers = answer(timed(1), timed(90_000), timed(90_000, "U"))
    found = waiting_messages([delays, timers], NOON_MS + 5000)
    assert (found.counts, found.is_exact) == ({"T": 2, "U": 2}, True)
    assert waiting_messages([delays, timers], NOON_MS + 2**40).counts == {}


def test_the_number_is_not_exact_if_older_ones_can_wait():
    cut = answer(delayed(0, 18), truncated=True)
    assert not waiting_messages([cut], NOON_MS + 1000).is_exact
    # Older ones are delivered by then.
    assert waiting_messages([cut], NOON_MS + 3 * 3_600_000).is_exact
    # A topic that could not be searched has an unknown number.
    assert waiting_messages([answer(delayed(0, 18), coverage=())], NOON_MS) is None


def test_the_time_of_a_store_is_that_of_its_newest_message():
    assert newest_ms([answer(delayed(7, 1))], [None, NOON_MS + 3]) == NOON_MS + 7
    assert newest_ms([], [None]) == 0


def test_recalled_messages_and_checkpoints_of_pop_do_not_wait():
    recall = {"REAL_TOPIC": "T", "TIMER_OUT_MS": str(NOON_MS + 9), "TIMER_DEL_UNIQKEY": KEY}
    checkpoint = {"REAL_TOPIC": "rmq_sys_REVIVE_LOG_c", "TIMER_OUT_MS": str(NOON_MS + 9)}
    timers = [
        copy("rmq_sys_wheel_timer", 0, n, each) for n, each in enumerate((recall, checkpoint))
    ]
    assert waiting_messages([answer(timed(9), *timers)], NOON_MS).counts == {}
