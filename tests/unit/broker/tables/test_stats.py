"""What a broker counts, and its rates over time."""

from rocketlens.broker.tables.stats import BrokerStats
from tests.support.broker_world import NOW_MS, Clock


def test_rates_are_over_ten_seconds_a_minute_and_ten(tmp_path):
    clock = Clock()
    stats = BrokerStats(clock)
    for second in range(700):
        clock.now_ms += 1000
        stats.put_total += 100 if second >= 690 else 10
        stats.sample()
    assert stats.put_rates() == "100.0 25.0 11.5"


def test_at_midnight_the_counts_of_the_day_are_kept():
    clock = Clock()
    stats = BrokerStats(clock)
    for day in (1, 2):
        stats.put_total += 5
        clock.now_ms = NOW_MS + day * 86_400_000
        stats.sample()
    stats.put_total += 5
    assert (stats.put_until_previous_midnight, stats.put_until_midnight, stats.put_total) == (
        5,
        10,
        15,
    )
