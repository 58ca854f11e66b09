"""The pipelines of brokers: samples of them, and rates, lag and plots from these.

The brokers of all clusters are sampled every ten seconds while a console runs, whether the page is
looked at or not: it is looked at when something was wrong before. The samples of an hour are kept,
in memory only. A broker that does not answer in time has a sample without values, with the reason.

=====================  ==========================================================================
value                  from
=====================  ==========================================================================
messages stored        the broker's count; None where it begins again, as after a restart
bytes stored           the end of the log
bytes dispatched       the end of the log without what is in no queue yet
bytes indexed          the end of the log without what is in no index file yet
lag in time            when the log, by the samples, ended where the pipeline is now; if that was
                       before the first sample, it is more than the age of that
=====================  ==========================================================================

Nothing is computed across a gap: a sample without values, or a longer time than two samples take.

Plots are SVG. Positions are parts of a thousand of the plot's width and height, the height from the
top. Lines are broken where nothing is known, and such times are marked as gaps.
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
"""Seconds between two samples of the brokers of all clusters, one request to each."""
PIPELINE_ROUND_S: Final = 8.0
"""Seconds in which brokers answer for a sample; the others have none then. Less than the above."""
MAX_PIPELINE_SAMPLES: Final = 360
"""Samples of one broker that a console keeps: those of an hour."""
MAX_PIPELINE_BROKERS: Final = 256
"""Brokers that a console samples, in 30 MB; others are counted."""
MAX_PIPELINE_PLOTS: Final = 8
"""Brokers that are plotted on one page, or have all their samples in one answer of the API."""
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


class PlotLine(Struct, frozen=True):
    """One line: its name, its path (``d``), and its last and its largest value."""

    name: str
    path: str
    last: float | None
    largest: float


class Plot(Struct, frozen=True):
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


_log: Final = logging.getLogger("rocketlens.console")


class PipelineSample(NamedTuple):
    """The values of one broker at one moment; without an ``end_offset`` it did not answer."""

    at_s: float
    """When, in seconds of a clock that only goes forward: rates are computed by it."""
    time_ms: int
    """When, in epoch milliseconds."""
    end_offset: int | None = None
    put_total: int | None = None
    dispatch_behind_bytes: int | None = None
    index_behind_bytes: int | None = None
    error: str | None = None
    """Why it said nothing."""


class SampledBroker(NamedTuple):
    """The name of a broker, which may move to another address."""

    source: str
    cluster: str
    name: str
    broker_id: int


class BrokerSamples(Struct):
    """The samples of one broker, the oldest first."""

    broker: SampledBroker
    address: str
    samples: "deque[PipelineSample]" = field(
        default_factory=lambda: deque(maxlen=MAX_PIPELINE_SAMPLES)
    )

    def add(self, sample: PipelineSample) -> None:
        """Add the newest sample, and drop the oldest if there are too many."""
        if self.samples and sample.time_ms < self.samples[-1].time_ms:
            # The clock was set back: what was before has times to come.
            self.samples.clear()
        self.samples.append(sample)

    @property
    def has_no_values(self) -> bool:
        """Whether no sample that is kept has a value."""
        return all(each.end_offset is None for each in self.samples)


class PipelineSamples:
    """Samples clusters; belongs to one event loop. ``clock`` returns monotonic seconds, and
    ``now_ms`` epoch milliseconds.
    """

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
        """Take samples until :meth:`close`; nothing if there is no cluster."""
        if self._clusters and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Take no more samples, and wait for no answer. No effect if it never began."""
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
        """Return why clusters among some sources could not be asked for their brokers just now."""
        return {name: why for name, why in self._errors.items() if why and name in sources}

    def are_of(self, sources: Collection[str]) -> bool:
        """Return whether each of some clusters was asked once, with an answer or not."""
        return all(name in self._errors for name in sources)

    def left_out(self, sources: Collection[str]) -> int:
        """Return how many brokers of some sources are not sampled, because there are too many."""
        return sum(len(several) for name, several in self._left_out.items() if name in sources)

    async def sample(self) -> None:
        """Ask every broker of every cluster once, all side by side, and keep what each said."""
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
        """Keep what a broker said; return False if there are too many brokers."""
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
        if samples.has_no_values and len(samples.samples) == samples.samples.maxlen:
            # It was gone for as long as samples are kept.
            del self._by_broker[broker]


FOLLOWS_S: Final = 2.5 * PIPELINE_SAMPLE_S
"""Seconds within which a sample follows another: one may be late, and none missing."""


class PipelinePoint(ConsoleValue):
    """The state at one moment; None stands for values that are not known."""

    time_ms: int
    error: str | None = Field(description="why there is no sample")
    put_per_second: float | None = Field(description="messages stored, since the sample before")
    stored_per_second: float | None = Field(description="bytes of log, likewise")
    dispatched_per_second: float | None = Field(description="bytes of log that came into queues")
    indexed_per_second: float | None = Field(description="bytes of log that came into the index")
    dispatch_behind_bytes: int | None
    index_behind_bytes: int | None
    behind_bytes: int | None = Field(description="the larger of the two: the pipeline's lag")
    behind_ms: int | None = Field(description="about how old the oldest message is that it lacks")
    behind_over_ms: int | None = Field(
        description="the age of the first sample, where that message is older and its age not known"
    )


class PipelineBroker(ConsoleValue):
    """A broker and its samples."""

    source: str
    cluster: str
    name: str
    broker_id: int
    role: Literal["master", "slave"]
    address: str
    newest: PipelinePoint
    points: list[PipelinePoint] | None = Field(
        description="the oldest first; None of brokers beyond the first ones: ask for one by name"
    )


class PipelineValue(ConsoleValue):
    """The pipelines of the brokers of all clusters."""

    complete: bool = Field(description="whether there is a last sample, and every broker in it")
    every_s: float = Field(description="seconds between two samples")
    brokers: list[PipelineBroker]
    left_out: int = Field(description="brokers that are not sampled: there are too many")
    errors: dict[str, str] = Field(description="why clusters could not be asked for brokers now")
    stores: list[str] = Field(description="stores and archives: see /api/brokers")
    hidden: list[str] = Field(description="sources of which the user may not see all topics")


def pipeline_value(
    sources: Sources, samples: PipelineSamples, names: Collection[str] = (), broker: str = ""
) -> PipelineValue:
    """Return what is known of some sources, all without names; of one broker, if it is named.

    :raises BadInput: if there is no source of a name.
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


def points_of(samples: Sequence[PipelineSample]) -> Iterator[PipelinePoint]:
    """Yield what each sample tells, together with those before it."""
    written = _Written()
    before: PipelineSample | None = None
    for sample in samples:
        written.add(sample)
        yield _point(sample, before, written)
        before = sample


def newest_of(samples: Sequence[PipelineSample]) -> PipelinePoint:
    """Return what the last sample tells, together with those before it."""
    written = _Written()
    for each in samples:
        written.add(each)
    return _point(samples[-1], samples[-2] if len(samples) > 1 else None, written)


def is_gap(before: PipelineSample, sample: PipelineSample) -> bool:
    """Return whether nothing is known of the time between two samples."""
    if before.end_offset is None or sample.end_offset is None:
        return True
    steps_s = (sample.at_s - before.at_s, (sample.time_ms - before.time_ms) / 1000)
    # Both clocks: one stands still while a machine sleeps, the other can be set.
    return min(steps_s) <= 0 or max(steps_s) > FOLLOWS_S


class _Written:
    """Where the log ended at each sample, to find when it was at an offset."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times: list[int] = []

    def add(self, sample: PipelineSample) -> None:
        if sample.end_offset is None:
            return
        if self._ends and sample.end_offset < self._ends[-1]:
            # It is another log now, or its end was cut off.
            self._ends.clear()
            self._times.clear()
        self._ends.append(sample.end_offset)
        self._times.append(sample.time_ms)

    @property
    def first_ms(self) -> int:
        """When the first sample was of which the others tell."""
        return self._times[0]

    def time_of(self, offset: int) -> int | None:
        """Return when the log ended at an offset; None if that was before the first sample."""
        # The last sample at which the log did not go beyond it: since then something is missing.
        after = bisect_left(self._ends, offset + 1)
        if not after:
            return None
        if after == len(self._ends):
            return self._times[-1]
        low, high = self._ends[after - 1], self._ends[after]
        begin_ms, end_ms = self._times[after - 1], self._times[after]
        return begin_ms + round((end_ms - begin_ms) * (offset - low) / (high - low))


def _point(
    sample: PipelineSample, before: PipelineSample | None, written: _Written
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
            behind_over_ms = sample.time_ms - written.first_ms
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
    """Return messages, and how far log, queues and index came."""
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
    points = list(points_of(history.samples)) if has_points else None
    return PipelineBroker(
        source=source,
        cluster=cluster,
        name=name,
        broker_id=broker_id,
        role="slave" if broker_id else "master",
        address=history.address,
        newest=points[-1] if points else newest_of(history.samples),
        points=points,
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
    """Return the plots of a broker that has points, each with its kind."""
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
