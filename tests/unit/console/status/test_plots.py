"""Lines are where their values are, and are broken where nothing is known."""

import re

import pytest

from rocketlens.console.status.plots import plot_of

MINUTE = 60_000


def plotted(times, *rows, is_bytes=False):
    named = [(f"row{number}", row) for number, row in enumerate(rows)]
    return plot_of(times, named, max_step_ms=25_000, is_bytes=is_bytes)


def every(seconds, count):
    return [number * seconds * 1000 for number in range(count)]


def strokes(line):
    """Give the stretches of a path, each a list of points."""
    return [
        [tuple(map(float, each.split())) for each in re.split("[Lh]", part)[: part.count("L") + 1]]
        for part in line.path.split("M")[1:]
    ]


def test_a_line_goes_through_its_values():
    (line,) = plotted([0, 10_000, 300_000], [0, 4, None]).lines
    (points,) = strokes(line)
    assert points == [(0, 1000), (33.3, 0)]
    assert (line.last, line.largest) == (None, 4)


@pytest.mark.parametrize(
    ("times", "row"),
    [
        (every(10, 5), [1, 2, None, 3, 4]),
        ([0, 10_000, 60_000, 70_000], [1, 2, 3, 4]),
    ],
)
def test_a_gap_in_the_samples_is_a_gap_in_the_line(times, row):
    plot = plotted(times, row)
    (line,) = plot.lines
    assert [len(each) for each in strokes(line)] == [2, 2]
    (gap,) = plot.gaps
    (before, behind) = strokes(line)
    assert gap.at == before[-1][0]
    assert gap.at + gap.width == pytest.approx(behind[0][0], abs=0.11)


def test_a_value_alone_is_a_point():
    (line,) = plotted(every(10, 3), [None, 5, None]).lines
    assert line.path.startswith("M")
    assert line.path.endswith("h0")


def test_what_was_not_known_at_either_end_is_a_gap_if_it_is_longer_than_a_step():
    plot = plotted(every(10, 10), [None] * 4 + [1, 2] + [None] * 4)
    assert len(plot.gaps) == 2
    assert plotted(every(10, 10), [None, *range(9)]).gaps == ()


def test_a_time_is_no_gap_if_one_of_the_lines_is_known():
    assert plotted(every(10, 4), [1, None, None, 4], [1, 2, 3, 4]).gaps == ()


def test_a_series_without_values_has_no_line():
    plot = plotted(every(10, 2), [None, None], [1, 2])
    assert [each.name for each in plot.lines] == ["row1"]


def test_nothing_at_all_is_an_empty_plot():
    for plot in (plotted([], []), plotted(every(10, 5), [None] * 5)):
        assert plot.lines == ()
    assert len(plotted(every(10, 5), [None] * 5).gaps) == 1


@pytest.mark.parametrize(
    ("largest", "is_bytes", "marks"),
    [
        (0, False, [0, 1]),
        (3, False, [0, 1, 2, 3]),
        (7, False, [0, 2, 4, 6, 8]),
        (41, False, [0, 20, 40, 60]),
        (1999, False, [0, 500, 1000, 1500, 2000]),
        (3000, True, [0, 1024, 2048, 3072]),
        (0.5, True, [0, 1]),
    ],
)
def test_values_have_few_round_marks_and_the_highest_is_not_below_any(largest, is_bytes, marks):
    plot = plotted([0, 10_000], [0, largest], is_bytes=is_bytes)
    assert [each.value for each in plot.values] == marks
    assert (plot.values[0].at, plot.values[-1].at) == (1000, 0)


@pytest.mark.parametrize(("minutes", "step"), [(1, 1), (5, 1), (15, 2), (60, 10)])
def test_times_have_marks_at_whole_minutes(minutes, step):
    begin = 7 * MINUTE + 1234
    plot = plotted([begin, begin + minutes * MINUTE], [1, 1])
    times = [each.value for each in plot.times]
    assert 2 <= len(times) <= 9
    assert all(each % (step * MINUTE) == 0 for each in times)
    assert all(0 <= each.at <= 1000 for each in plot.times)


def test_the_first_samples_do_not_fill_a_plot():
    plot = plotted([900_000, 910_000], [1, 2])
    assert plot.end_ms - plot.begin_ms == 5 * MINUTE
    assert plot.times[0].percent.endswith("%")
