"""Rates as RocketMQ's tools show them: of the last minute, and failures of the last hour."""

from rocketlens.client.consume.session import ConsumeRates
from tests.support.clocks import Seconds


def test_rates_are_of_the_last_minute():
    clock = Seconds()
    rates = ConsumeRates(clock)
    rates.pulled(60, 0.002)
    rates.pulled(60, 0.004)
    rates.consumed(30, 0, 0.010)
    rates.consumed(0, 6, 0.030)
    status = rates.status()
    assert status.pull_tps == 2.0
    assert round(status.pull_rt, 6) == 3.0
    assert status.consume_ok_tps == 0.5
    assert status.consume_failed_tps == 0.1
    assert round(status.consume_rt, 6) == 20.0
    assert status.consume_failed_msgs == 6
    clock.now_s += 61
    status = rates.status()
    assert (status.pull_tps, status.pull_rt, status.consume_ok_tps) == (0.0, 0.0, 0.0)
    assert status.consume_failed_msgs == 6
    clock.now_s += 3600
    assert rates.status().consume_failed_msgs == 0


def test_hours_of_work_keep_an_hour_of_counts():
    clock = Seconds()
    rates = ConsumeRates(clock)
    for _ in range(5000):
        clock.now_s += 10
        rates.consumed(1, 1, 0.0)
    assert len(rates._slots) <= 361
    assert rates.status().consume_failed_msgs <= 361
