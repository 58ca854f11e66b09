"""Samples of the brokers' indexing pipelines; rates, lag and plots from them.

While the console runs, it samples the brokers of all clusters every ten seconds, so that the page
shows the past. Samples of an hour are kept, in memory only. If a broker does not answer in time,
its sample has the reason instead of values.

=====================  ==========================================================================
value                  source
=====================  ==========================================================================
messages stored        the broker's count; None after a reset, as by a restart
bytes stored           the end of the log
bytes dispatched       the end of the log minus the bytes in no queue yet
bytes indexed          the end of the log minus the bytes in no index file yet
lag in time            the age of the oldest byte not indexed yet, by earlier samples of the end of
                       the log; if it is older than the first sample, more than the age of that one
=====================  ==========================================================================

No value is computed across a gap: a sample without values, or a missing sample.

Plots are SVG. Positions are in 1/1000 of width and height, from the top left. Gaps interrupt the
lines and are marked.
"""

import asyncio
import contextlib
import logging
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from itertools import count, pairwise
from typing import Final, Literal, NamedTuple

from fastapi.responses import Response
from msgspec import Struct, field
from pydantic import Field

from rocketlens.console.login.viewer import current_viewer
from rocketlens.console.pages import Here, Name, Sourced, api_router, page_router
from rocketlens.console.sources.sources import ClusterOfConsole, Sources
from rocketlens.console.values import ConsoleValue
from rocketlens.errors import RocketLensError
from rocketlens.model.status import BrokerStatus

PIPELINE_SAMPLE_S: Final = 10.0
"""Seconds between two samples: one request to each broker of all clusters."""
PIPELINE_ROUND_S: Final = 8.0
"""Seconds for the answers of a sample; less than PIPELINE_SAMPLE_S."""
MAX_PIPELINE_SAMPLES: Final = 360
"""Samples of one broker: those of an hour."""
MAX_PIPELINE_BROKERS: Final = 256
"""Sampled brokers: 30 MB of samples."""
MAX_PIPELINE_PLOTS: Final = 8
"""Brokers with plots on one page, or with all samples in one API answer."""
SIZE: Final = 1000
"""Width and height of a plot in its own units."""
_MAX_MARKS: Final = 4
_MIN_SPAN_MS: Final = 300_000
"""The shortest time axis: the first samples do not fill a plot."""
_MARK_STEPS_MS: Final = tuple(60_000 * each for each in (1, 2, 5, 10, 15, 30, 60))


class Mark(NamedTuple):
    """A mark of an axis."""

    at: float
    value: float

    @property
    def percent(self) -> str:
        """Its position as an SVG attribute."""
        return f"{self.at / SIZE:.2%}"


class PlotGap(NamedTuple):
    """A time without values."""

    at: float
    width: float


class PlotLine(Struct, frozen=True):
    """A line of a plot. ``path`` is the ``d`` attribute."""

    name: str
    path: str
    last: float | None
    largest: float


class Plot(Struct, frozen=True):
    """A plot of several lines."""

    lines: tuple[PlotLine, ...]
    """Lines without any value are left out."""
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
    """Return the plot of named series, with a value or None for each time.

    Times are in order. Two that are more than ``max_step_ms`` apart have a gap between them.
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
    """Return the points of a line, split at missing values and gaps."""
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
        # A single point: a line of length 0, of which the round caps are drawn.
        return f"M{points[0][0]:g} {points[0][1]:g}h0"
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _gaps(
    times_ms: Sequence[int], rows: Sequence[Sequence[float | None]], max_step_ms: float
) -> list[tuple[int, int]]:
    """Return the times without values in all series, from the sample before to the one after."""
    moments = [
        number for number in range(len(times_ms)) if any(row[number] is not None for row in rows)
    ]
    gaps = [
        (times_ms[low], times_ms[high])
        for low, high in pairwise(moments)
        if high - low > 1 or times_ms[high] - times_ms[low] > max_step_ms
    ]
    # A single sample at an end is no gap: the first sample never has a rate.
    first, last = (moments[0], moments[-1]) if moments else (len(times_ms) - 1, len(times_ms) - 1)
    ends = [(times_ms[0], times_ms[first]), (times_ms[last], times_ms[-1])] if times_ms else []
    return sorted(gaps + [each for each in ends if each[1] - each[0] > max_step_ms])


def _steps(*, is_bytes: bool) -> Iterator[float]:
    """Yield the steps between marks: 1, 2, 5, 10 ..., or powers of two for bytes."""
    for power in count():
        yield from ((2**power,) if is_bytes else (each * 10**power for each in (1, 2, 5)))


def _scale(values: Sequence[float], *, is_bytes: bool) -> tuple[float, float]:
    """Return the value at the top of a plot, and the step between two marks."""
    largest = max(values, default=0)
    step = next(each for each in _steps(is_bytes=is_bytes) if each * _MAX_MARKS >= largest)
    return step * max(math.ceil(largest / step), 1), step


def _times(begin_ms: int, end_ms: int) -> list[int]:
    """Return the marks of a time axis, on whole minutes."""
    step = next(
        (each for each in _MARK_STEPS_MS if (end_ms - begin_ms) / each <= 2 * _MAX_MARKS),
        _MARK_STEPS_MS[-1],
    )
    first = -(-begin_ms // step) * step
    return list(range(first, end_ms + 1, step))


_log: Final = logging.getLogger("rocketlens.console")


class PipelineSample(NamedTuple):
    """The values of a broker at one time. ``end_offset`` is None if it did not answer."""

    at_s: float
    """Monotonic seconds, for rates."""
    time_ms: int
    """Epoch milliseconds."""
    end_offset: int | None = None
    put_total: int | None = None
    dispatch_behind_bytes: int | None = None
    index_behind_bytes: int | None = None
    error: str | None = None
    """Why there are no values."""


class SampledBroker(NamedTuple):
    """A broker by name, as its address can change."""

    source: str
    cluster: str
    name: str
    broker_id: int


class BrokerSamples(Struct):
    """The samples of one broker, oldest first."""

    broker: SampledBroker
    address: str
    samples: "deque[PipelineSample]" = field(
        default_factory=lambda: deque(maxlen=MAX_PIPELINE_SAMPLES)
    )

    def add(self, sample: PipelineSample) -> None:
        """Add the newest sample. A full series drops its oldest."""
        if self.samples and sample.time_ms < self.samples[-1].time_ms:
            # The clock was set back: older samples are in the future now.
            self.samples.clear()
        self.samples.append(sample)


class PipelineSamples:
    """Samples clusters; belongs to one event loop. ``clock`` is monotonic, in seconds."""

    def __init__(
        self,
        clusters: Sequence[ClusterOfConsole],
        *,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._clusters: Final = clusters
        self.clock: Final = clock
        self.now_ms: Final = now_ms
        self._sleep: Final = sleep
        self._by_broker: Final[dict[SampledBroker, BrokerSamples]] = {}
        self._left_out: Final[dict[str, set[SampledBroker]]] = {}
        self._errors: Final[dict[str, str]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Sample until `close`. No effect without clusters."""
        if self._clusters and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop at once. No effect if it was not started."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def brokers(self, sources: Collection[str]) -> list[BrokerSamples]:
        """Return the brokers of some sources, by source, cluster, name and broker id."""
        series = (each for each in self._by_broker.values() if each.broker.source in sources)
        return sorted(series, key=lambda each: each.broker)

    def errors(self, sources: Collection[str]) -> dict[str, str]:
        """Return why clusters could not be asked for their brokers, by source."""
        return {name: why for name, why in self._errors.items() if why and name in sources}

    def are_of(self, sources: Collection[str]) -> bool:
        """Return whether all these clusters were sampled at least once."""
        return all(name in self._errors for name in sources)

    def left_out(self, sources: Collection[str]) -> int:
        """Return how many brokers are not sampled because there are too many."""
        return sum(len(several) for name, several in self._left_out.items() if name in sources)

    async def sample(self) -> None:
        """Sample all brokers of all clusters once."""
        await asyncio.gather(*map(self._sample, self._clusters))

    async def _run(self) -> None:
        due_s = self.clock()
        while True:
            try:
                await self.sample()
            except Exception:  # noqa: BLE001 - a mistake must not end all samples to come
                _log.exception("brokers could not be sampled")
            due_s = max(due_s + PIPELINE_SAMPLE_S, self.clock())
            await self._sleep(due_s - self.clock())

    async def _sample(self, cluster: ClusterOfConsole) -> None:
        answered: set[SampledBroker] = set()
        left_out: set[SampledBroker] = set()

        def keep(status: BrokerStatus) -> None:
            broker = SampledBroker(cluster.name, status.cluster_name, status.name, status.broker_id)
            answered.add(broker)
            if not self._keep(broker, status):
                left_out.add(broker)

        why, error = "it is not registered any more", ""
        try:
            async with asyncio.timeout(PIPELINE_ROUND_S):
                await cluster.status(keep)
        except TimeoutError:
            why = f"no answer in {PIPELINE_ROUND_S:g} s"
            error = "" if answered else why
        except (RocketLensError, OSError) as failure:
            why = error = str(failure)
        self._errors[cluster.name] = error
        self._left_out[cluster.name] = left_out
        for broker in list(self._by_broker):
            if broker.source == cluster.name and broker not in answered:
                self._add_missing(broker, why)

    def _keep(self, broker: SampledBroker, status: BrokerStatus) -> bool:
        """Add a sample; return False if there are too many brokers."""
        samples = self._by_broker.get(broker)
        if samples is None:
            if len(self._by_broker) >= MAX_PIPELINE_BROKERS:
                return False
            samples = self._by_broker[broker] = BrokerSamples(broker, status.address)
        samples.address = status.address
        error = status.error
        if error is None and status.end_offset is None:
            error = "it does not report where its log ends"
        samples.add(
            PipelineSample(
                self.clock(),
                self.now_ms(),
                status.end_offset,
                status.put_total,
                status.dispatch_behind_bytes,
                status.index_behind_bytes,
                error,
            )
        )
        return True

    def _add_missing(self, broker: SampledBroker, why: str) -> None:
        samples = self._by_broker[broker]
        samples.add(PipelineSample(self.clock(), self.now_ms(), error=why))
        is_full = len(samples.samples) == samples.samples.maxlen
        if is_full and all(each.end_offset is None for each in samples.samples):
            # Gone for as long as samples are kept.
            del self._by_broker[broker]


FOLLOWS_S: Final = 2.5 * PIPELINE_SAMPLE_S
"""Seconds between consecutive samples: one can be late, none missing."""


class PipelinePoint(ConsoleValue):
    """The state of a broker at one time. None stands for unknown values."""

    time_ms: int
    error: str | None = Field(description="why there are no values")
    put_per_second: float | None = Field(description="messages stored, since the previous sample")
    stored_per_second: float | None = Field(description="bytes of log written")
    dispatched_per_second: float | None = Field(description="bytes of log put into queues")
    indexed_per_second: float | None = Field(description="bytes of log put into the index")
    dispatch_behind_bytes: int | None
    index_behind_bytes: int | None
    behind_bytes: int | None = Field(description="the lag: the larger of the two")
    behind_ms: int | None = Field(description="about the age of the oldest message not indexed yet")
    behind_over_ms: int | None = Field(description="a lower bound, if behind_ms is unknown")


class PipelineBroker(ConsoleValue):
    """A broker and its samples."""

    source: str
    cluster: str
    name: str
    broker_id: int
    role: Literal["master", "slave"]
    address: str
    newest: PipelinePoint
    points: list[PipelinePoint] | None = Field(description="oldest first; null: request by name")


class PipelineValue(ConsoleValue):
    """The indexing pipelines of all brokers."""

    complete: bool = Field(description="true if the last sample has every broker")
    every_s: float = Field(description="seconds between two samples")
    brokers: list[PipelineBroker]
    left_out: int = Field(description="brokers that are not sampled: there are too many")
    errors: dict[str, str] = Field(description="why brokers of clusters could not be listed")
    stores: list[str] = Field(description="stores and archives: see /api/brokers")
    hidden: list[str] = Field(description="sources of which the user may not see all topics")


def pipeline_value(
    sources: Sources, samples: PipelineSamples, names: Collection[str] = (), broker: str = ""
) -> PipelineValue:
    """Return the pipelines of some sources, or of one broker name in them.

    :raises BadInput: if a source does not exist.
    """
    viewer = current_viewer()
    chosen = sources.chosen(list(names))
    hidden = [each.name for each in chosen if not viewer.sees_all(each.name)]
    visible = [each for each in chosen if each.name not in hidden]
    clusters = [each.name for each in visible if each.kind == "cluster"]
    histories = [each for each in samples.brokers(clusters) if broker in {"", each.broker.name}]
    errors = samples.errors(clusters)
    left_out = samples.left_out(clusters)
    brokers = [
        _broker(each, has_points=number < MAX_PIPELINE_PLOTS)
        for number, each in enumerate(histories)
    ]
    failed = any(each.newest.error is not None for each in brokers)
    return PipelineValue(
        complete=samples.are_of(clusters) and not (errors or left_out or failed),
        every_s=PIPELINE_SAMPLE_S,
        brokers=brokers,
        left_out=left_out,
        errors=errors,
        stores=[each.name for each in visible if each.kind != "cluster"],
        hidden=hidden,
    )


def points_of(samples: Sequence[PipelineSample], first: int = 0) -> Iterator[PipelinePoint]:
    """Yield the values of each sample from the ``first`` on. They depend on all earlier samples."""
    written = _LogEnds()
    before: PipelineSample | None = None
    for number, sample in enumerate(samples):
        written.add(sample)
        if number >= first:
            yield _point(sample, before, written)
        before = sample


def is_gap(before: PipelineSample, sample: PipelineSample) -> bool:
    if before.end_offset is None or sample.end_offset is None:
        return True
    steps_s = (sample.at_s - before.at_s, (sample.time_ms - before.time_ms) / 1000)
    # Check both clocks: one stops while the machine sleeps, the other can be set.
    return min(steps_s) <= 0 or max(steps_s) > FOLLOWS_S


class _LogEnds:
    """The ends of the log by time, to find when it ended at an offset."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self.times_ms: list[int] = []

    def add(self, sample: PipelineSample) -> None:
        if sample.end_offset is None:
            return
        if self._ends and sample.end_offset < self._ends[-1]:
            # Another log, or a truncated one.
            self._ends.clear()
            self.times_ms.clear()
        self._ends.append(sample.end_offset)
        self.times_ms.append(sample.time_ms)

    def time_of(self, offset: int) -> int | None:
        """Return when the log ended at an offset; None if before the first sample."""
        # The first sample after the log passed the offset.
        after = bisect_left(self._ends, offset + 1)
        if not after:
            return None
        if after == len(self._ends):
            return self.times_ms[-1]
        low, high = self._ends[after - 1], self._ends[after]
        begin_ms, end_ms = self.times_ms[after - 1], self.times_ms[after]
        return begin_ms + round((end_ms - begin_ms) * (offset - low) / (high - low))


def _point(
    sample: PipelineSample, before: PipelineSample | None, written: _LogEnds
) -> PipelinePoint:
    behind = [
        each
        for each in (sample.dispatch_behind_bytes, sample.index_behind_bytes)
        if each is not None
    ]
    behind_bytes = max(behind, default=None)
    behind_ms = 0 if behind_bytes == 0 else None
    behind_over_ms = None
    if behind_bytes and sample.end_offset is not None:
        since_ms = written.time_of(sample.end_offset - behind_bytes)
        if since_ms is None:
            behind_over_ms = sample.time_ms - written.times_ms[0]
        else:
            behind_ms = sample.time_ms - since_ms
    put, stored, dispatched, indexed = (
        _rate(before, sample, low, high)
        for low, high in zip(_counts(before), _counts(sample), strict=True)
    )
    return PipelinePoint(
        time_ms=sample.time_ms,
        error=sample.error,
        put_per_second=put,
        stored_per_second=stored,
        dispatched_per_second=dispatched,
        indexed_per_second=indexed,
        dispatch_behind_bytes=sample.dispatch_behind_bytes,
        index_behind_bytes=sample.index_behind_bytes,
        behind_bytes=behind_bytes,
        behind_ms=behind_ms,
        behind_over_ms=behind_over_ms,
    )


def _counts(sample: PipelineSample | None) -> tuple[int | None, ...]:
    """Return messages stored, and the offsets of log, queues and index."""
    if sample is None or sample.end_offset is None:
        return (None,) * 4
    end = sample.end_offset
    behinds = (sample.dispatch_behind_bytes, sample.index_behind_bytes)
    return (sample.put_total, end, *(None if each is None else end - each for each in behinds))


def _rate(
    before: PipelineSample | None, sample: PipelineSample, low: int | None, high: int | None
) -> float | None:
    if before is None or low is None or high is None or high < low or is_gap(before, sample):
        return None
    return (high - low) / (sample.at_s - before.at_s)


def _broker(history: BrokerSamples, *, has_points: bool) -> PipelineBroker:
    source, cluster, name, broker_id = history.broker
    last = len(history.samples) - 1
    points = list(points_of(history.samples, 0 if has_points else last))
    return PipelineBroker(
        source=source,
        cluster=cluster,
        name=name,
        broker_id=broker_id,
        role="slave" if broker_id else "master",
        address=history.address,
        newest=points[-1],
        points=points if has_points else None,
    )


_PLOTS: Final = {
    "lag": {"dispatch": "dispatch_behind_bytes", "index": "index_behind_bytes"},
    "messages": {"put": "put_per_second"},
    "bytes": {
        "stored": "stored_per_second",
        "dispatched": "dispatched_per_second",
        "indexed": "indexed_per_second",
    },
}
api = api_router()
pages = page_router()


def plots_of(broker: PipelineBroker) -> list[tuple[str, Plot]]:
    """Return the plots of a broker with points, by kind."""
    points = broker.points or []
    times = [each.time_ms for each in points]
    return [
        (
            kind,
            plot_of(
                times,
                [
                    (name, [getattr(each, value) for each in points])
                    for name, value in lines.items()
                ],
                max_step_ms=FOLLOWS_S * 1000,
                is_bytes=kind != "messages",
            ),
        )
        for kind, lines in _PLOTS.items()
    ]


@api.get("/pipeline")
async def pipeline(here: Here, source: Sourced, broker: Name = None) -> PipelineValue:
    """Return samples of brokers: rates, and how far queues and index were behind."""
    return pipeline_value(here.sources, here.console.samples, source, broker or "")


@pages.get("/pipeline")
async def _pipeline_page(here: Here, source: Sourced, broker: Name = None) -> Response:
    found = pipeline_value(here.sources, here.console.samples, source, broker or "")
    return here.page(
        "pipeline.html",
        found=found,
        broker=broker,
        has_clusters=any(each.kind == "cluster" for each in here.sources.chosen(source)),
        plotted=[(each, plots_of(each)) for each in found.brokers if each.points],
    )
