"""Lines over time as SVG that a server draws: where they run, and where their axes have marks.

Positions are parts of a thousand of the plot's width and height, the height from the top. Lines are
broken where nothing is known, and such times are marked as gaps.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Final, NamedTuple

SIZE: Final = 1000
"""Width and height of a plot, in its own units."""
_MAX_MARKS: Final = 4
_MIN_SPAN_MS: Final = 300_000
"""The shortest time of an axis: the first samples do not fill a plot."""
_MARK_STEPS_MS: Final = tuple(60_000 * each for each in (1, 2, 5, 10, 15, 30, 60))


class Mark(NamedTuple):
    """A mark of an axis: where, and what value is there."""

    at: float
    value: float

    @property
    def percent(self) -> str:
        """Where it is, as an attribute has it."""
        return f"{self.at / SIZE:.2%}"


class PlotGap(NamedTuple):
    """A time of which nothing is known."""

    at: float
    width: float


@dataclass(frozen=True, slots=True)
class PlotLine:
    """One line: its name, its path (``d``), and its last and its largest value."""

    name: str
    path: str
    last: float | None
    largest: float


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines in one frame."""

    lines: tuple[PlotLine, ...]
    """Without those of which no value is known."""
    times: tuple[Mark, ...]
    values: tuple[Mark, ...]
    gaps: tuple[PlotGap, ...]
    begin_ms: int
    end_ms: int


def plot_of(
    times_ms: Sequence[int],
    series: Sequence[tuple[str, Sequence[float | None]]],
    *,
    max_step_ms: float,
    is_bytes: bool,
) -> Plot:
    """Return the plot of named series with a value for each time, None where it is not known.

    Times are in order; two that are more than ``max_step_ms`` apart have a gap between them.
    ``is_bytes`` chooses marks that are round in KiB and MiB.
    """
    end_ms = times_ms[-1] if times_ms else 0
    begin_ms = min([*times_ms[:1], end_ms - _MIN_SPAN_MS])
    named_rows = [(name, row) for name, row in series if any(each is not None for each in row)]
    top, step = _scale(
        [each for _, row in named_rows for each in row if each is not None], is_bytes=is_bytes
    )

    def across(moment_ms: float) -> float:
        return round((moment_ms - begin_ms) / (end_ms - begin_ms) * SIZE, 1)

    def down(value: float) -> float:
        return round(SIZE - value / top * SIZE, 1)

    lines = []
    for name, row in named_rows:
        stretches = _stretches(times_ms, row, max_step_ms)
        path = "".join(
            _path([(across(moment), down(value)) for moment, value in each]) for each in stretches
        )
        largest = max(each for each in row if each is not None)
        lines.append(PlotLine(name, path, row[-1], largest))
    return Plot(
        lines=tuple(lines),
        times=tuple(Mark(across(each), each) for each in _times(begin_ms, end_ms)),
        values=tuple(Mark(down(step * each), step * each) for each in range(round(top / step) + 1)),
        gaps=tuple(
            PlotGap(across(low), round(across(high) - across(low), 1))
            for low, high in _gaps(times_ms, [row for _, row in series], max_step_ms)
        ),
        begin_ms=begin_ms,
        end_ms=end_ms,
    )


def _stretches(
    times_ms: Sequence[int], row: Sequence[float | None], max_step_ms: float
) -> list[list[tuple[int, float]]]:
    """Return the points of a line, cut where a value is missing or too much time passed."""
    stretches: list[list[tuple[int, float]]] = []
    last_ms: int | None = None
    for moment, value in zip(times_ms, row, strict=True):
        if value is None:
            last_ms = None
            continue
        if last_ms is None or moment - last_ms > max_step_ms:
            stretches.append([])
        stretches[-1].append((moment, value))
        last_ms = moment
    return stretches


def _path(points: Sequence[tuple[float, float]]) -> str:
    if len(points) == 1:
        # A point alone: a line without a length, of which round ends are drawn.
        return f"M{points[0][0]:g} {points[0][1]:g}h0"
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _gaps(
    times_ms: Sequence[int], rows: Sequence[Sequence[float | None]], max_step_ms: float
) -> list[tuple[int, int]]:
    """Return the times without a value in any series, as (sample before, sample after) pairs."""
    moments = [
        number for number in range(len(times_ms)) if any(row[number] is not None for row in rows)
    ]
    gaps = [
        (times_ms[low], times_ms[high])
        for low, high in pairwise(moments)
        if high - low > 1 or times_ms[high] - times_ms[low] > max_step_ms
    ]
    # At the ends only what is longer: the first sample of all has no rate.
    first, last = (moments[0], moments[-1]) if moments else (len(times_ms) - 1, len(times_ms) - 1)
    ends = [(times_ms[0], times_ms[first]), (times_ms[last], times_ms[-1])] if times_ms else []
    return sorted(gaps + [each for each in ends if each[1] - each[0] > max_step_ms])


def _steps(*, is_bytes: bool) -> Iterator[float]:
    """Yield the steps that marks can have: 1, 2, 5, 10 ..., or powers of two for bytes."""
    for power in count():
        yield from ((2**power,) if is_bytes else (each * 10**power for each in (1, 2, 5)))


def _scale(values: Sequence[float], *, is_bytes: bool) -> tuple[float, float]:
    """Return the value at the top of a plot, and the step between two marks."""
    largest = max(values, default=0)
    step = next(each for each in _steps(is_bytes=is_bytes) if each * _MAX_MARKS >= largest)
    return step * max(math.ceil(largest / step), 1), step


def _times(begin_ms: int, end_ms: int) -> list[int]:
    """Return whole minutes between two times, as many as have room."""
    step = next(
        (each for each in _MARK_STEPS_MS if (end_ms - begin_ms) / each <= 2 * _MAX_MARKS),
        _MARK_STEPS_MS[-1],
    )
    first = -(-begin_ms // step) * step
    return list(range(first, end_ms + 1, step))
