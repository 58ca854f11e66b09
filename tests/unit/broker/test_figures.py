"""What a broker counts, and its rates over time."""

from rocketlens.broker.figures import Figures
from tests.unit.broker.broker_world import NOW_MS, Clock


def test_rates_are_over_ten_seconds_a_minute_and_ten(tmp_path):
    clock = Clock()
    figures = Figures(clock)
    for second in range(700):
        clock.now_ms += 1000
        figures.put += 100 if second >= 690 else 10
        figures.sample()
    assert figures.put_rates() == "100.0 25.0 11.5"


def test_at_midnight_the_counts_of_the_day_are_kept():
    clock = Clock()
    figures = Figures(clock)
    for day in (1, 2):
        figures.put += 5
        clock.now_ms = NOW_MS + day * 86_400_000
        figures.sample()
    figures.put += 5
    assert (figures.put_yesterday, figures.put_morning, figures.put) == (5, 10, 15)
