"""When timers are due: as a broker of RocketMQ 5.5.0 stored and refused them."""

import pytest

from rocketlens.broker.delivery.timer_time import ROLL_WINDOW_MS, TimerIllegal, out_time_ms, slot_ms

NOW_MS = 1_795_357_003_992
DAYS_MS = 259_200_000


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 1_795_357_006_000),
        ({"TIMER_DELAY_SEC": "+2"}, 1_795_357_005_000),
        ({"TIMER_DELAY_MS": "3500"}, 1_795_357_007_000),
        ({"TIMER_DELIVER_MS": "1795357007902"}, 1_795_357_007_000),
        ({"TIMER_DELIVER_MS": "1795357007000"}, 1_795_357_006_000),
        ({"TIMER_DELIVER_MS": "1795357007001"}, 1_795_357_007_000),
        (
            {"TIMER_DELIVER_MS": "1795357043902", "TIMER_DELAY_MS": "2000", "TIMER_DELAY_SEC": "5"},
            1_795_357_008_000,
        ),
        ({"TIMER_DELIVER_MS": "1795357043902", "TIMER_DELAY_MS": "2000"}, 1_795_357_005_000),
        ({"TIMER_DELAY_SEC": "259200"}, 1_795_616_203_000),
        ({"TIMER_DELAY_SEC": "0"}, None),
        ({"TIMER_DELAY_SEC": "-5"}, None),
        ({"TIMER_DELIVER_MS": str(NOW_MS)}, None),
        ({"TIMER_DELAY_SEC": str(2**63 - 1)}, None),
        ({"TIMER_DELAY_MS": str(2**63 - 1)}, None),
    ],
)
def test_a_delivery_time_is_rounded_down_to_the_second_before(properties, expected):
    assert out_time_ms(properties, NOW_MS, DAYS_MS) == expected


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "x"},
        {"TIMER_DELAY_SEC": ""},
        {"TIMER_DELAY_SEC": str(2**63)},
        {"TIMER_DELAY_SEC": "x", "TIMER_DELIVER_MS": str(NOW_MS + 5)},
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_MS": "259200001"},
        {"TIMER_DELIVER_MS": str(2**63 - 1)},
        {"TIMER_DELIVER_MS": str(NOW_MS), "TIMER_DEL_UNIQKEY": "key"},
    ],
)
def test_what_is_no_time_or_too_far_off_is_refused_in_rocketmqs_words(properties):
    with pytest.raises(TimerIllegal) as refused:
        out_time_ms(properties, NOW_MS, DAYS_MS)
    assert refused.value.code == 13
    assert str(refused.value) == (
        "timer message illegal, the delay time should not be bigger than the max delay "
        "259200000ms; or if set del msg, the delay time should be bigger than the current time"
    )


def test_what_waits_longer_than_two_days_is_stored_again_on_the_way():
    since_ms = NOW_MS // 1000 * 1000
    assert slot_ms(since_ms + ROLL_WINDOW_MS - 1000, NOW_MS) == since_ms + ROLL_WINDOW_MS - 1000
    assert slot_ms(since_ms + ROLL_WINDOW_MS, NOW_MS) == since_ms + ROLL_WINDOW_MS // 2
    assert slot_ms(since_ms + 2 * ROLL_WINDOW_MS, NOW_MS) == since_ms + ROLL_WINDOW_MS
