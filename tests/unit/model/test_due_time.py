"""When messages that brokers keep for later are due, and when they were delivered."""

from datetime import datetime

import pytest

from rocketlens.model.due_time import delivered_ms, due_ms, due_text
from tests.support.story_world import copy, retried, waiting
from tests.unit.conftest import NOON_MS

SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"


def time_of(after_ms):
    return (
        datetime.fromtimestamp((NOON_MS + after_ms) / 1000).astimezone().isoformat(" ", "seconds")
    )


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        (SCHEDULE, {"DELAY": "1"}, NOON_MS + 1000),
        (SCHEDULE, {"DELAY": "18"}, NOON_MS + 7_200_000),
        (SCHEDULE, {"DELAY": "19"}, None),
        (SCHEDULE, {"DELAY": "0"}, None),
        (SCHEDULE, {"DELAY": "\u0663"}, NOON_MS + 10_000),
        (SCHEDULE, {}, None),
        (TIMER, {"TIMER_OUT_MS": "1795509906000"}, 1795509906000),
        (TIMER, {"TIMER_OUT_MS": "9" * 19}, None),
        (TIMER, {"TIMER_OUT_MS": "9" * 5000}, None),
        (TIMER, {"TIMER_OUT_MS": "-5"}, None),
        ("T", {"DELAY": "3", "TIMER_OUT_MS": "5"}, None),
    ],
)
def test_a_copy_is_due_by_its_level_or_its_timer(topic, properties, expected):
    assert due_ms(copy(topic, 0, 3, properties)) == expected


def test_a_copy_that_waits_says_when_it_is_due_and_in_how_long():
    timed = copy(TIMER, 0, 3, {"REAL_TOPIC": "T", "TIMER_OUT_MS": str(NOON_MS + 7_140_000)})
    assert due_text(timed, (), NOON_MS) == f"due {time_of(7_140_000)}, in 1 h 59 min"
    delayed = copy(SCHEDULE, 0, 3, {"REAL_TOPIC": "T", "DELAY": "3"})
    level = "(delay level 3, 10s by default)"
    assert (
        due_text(delayed, (), NOON_MS + 75_000) == f"due {time_of(10_000)}, 1 min 5 s ago {level}"
    )
    unknown = copy(SCHEDULE, 0, 3, {"DELAY": "x"})
    assert due_text(unknown, (), 0) == "when it is due is not known (delay level x)"
    assert due_text(copy(), (), 0) is None


def test_a_copy_whose_message_was_delivered_says_when():
    delayed = copy(SCHEDULE, 5, 3, {"REAL_TOPIC": "T", "DELAY": "3"})
    others = [delayed, copy("U", 5), copy("T"), copy("T", 12_000), copy("T", 99_000)]
    assert delivered_ms(delayed, others) == NOON_MS + 12_000
    assert due_text(delayed, others, 0).startswith(f"delivered at {time_of(12_000)}")
    # A retry is delivered as the retry of its own number.
    assert delivered_ms(waiting(2, 0), [retried(1, 5), retried(2, 9)]) == NOON_MS + 9


def test_a_time_beyond_the_calendar_is_shown_as_a_number():
    far = copy(TIMER, 0, 3, {"TIMER_OUT_MS": str(2**62)})
    assert due_text(far, (), 0).startswith(f"due {2**62} ms, in ")


def test_show_says_when_a_message_is_due(run, write_store):
    late = {"REAL_TOPIC": "T", "KEYS": "k", "TIMER_OUT_MS": "4102444800000"}
    store = write_store({"topic": TIMER, "properties": late}, name="late")
    done = run("show", "k", "--store", store)
    assert done.code == 0
    assert "Kept for later" in done.out
    assert "due 2100-01-01" in done.out or "due 2099-12-31" in done.out
