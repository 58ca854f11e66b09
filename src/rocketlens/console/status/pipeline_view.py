"""Values from samples of brokers: rates between two of them, and how old the oldest message is that
the pipeline has not come to.

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
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal

from pydantic import Field

from rocketlens import limits
from rocketlens.console.login.viewer import current_viewer
from rocketlens.console.sources.sources import Sources
from rocketlens.console.status.pipeline_samples import (
    BrokerSamples,
    PipelineSample,
    PipelineSamples,
)
from rocketlens.console.values import ConsoleValue

FOLLOWS_S: Final = 2.5 * limits.PIPELINE_SAMPLE_S
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
        _broker(each, has_points=number < limits.MAX_PIPELINE_PLOTS)
        for number, each in enumerate(histories)
    ]
    failed = any(each.newest.error is not None for each in brokers)
    return PipelineValue(
        complete=samples.are_of(clusters) and not (errors or left_out or failed),
        every_s=limits.PIPELINE_SAMPLE_S,
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
