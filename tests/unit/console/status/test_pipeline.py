"""The pipelines of brokers: samples, what is computed from them, and plots."""

import asyncio
import re
from itertools import pairwise

import pytest
from msgspec.structs import replace

from rocketlens.console.login.viewer import Grant, Role, Viewer, seen_by
from rocketlens.console.sources.sources import Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.console.status.pipeline import (
    PIPELINE_SAMPLE_S,
    BrokerSamples,
    PipelineSample,
    PipelineSamples,
    SampledBroker,
    is_gap,
    pipeline_value,
    plot_of,
    points_of,
)
from rocketlens.errors import BadInput, RemotingError
from rocketlens.model.status import BrokersAnswer, BrokerStatus
from tests.support.patience import PATIENCE_S


def sample(second, end_offset=None, put_total=None, dispatch=None, index=None, *, error=None):
    return PipelineSample(second, second * 1000, end_offset, put_total, dispatch, index, error)


def points(*samples):
    return list(points_of(samples))


def test_rates_are_what_came_since_the_sample_before():
    _, point = points(sample(0, 1000, 50, 0, 600), sample(10, 3000, 70, 100, 600))
    assert point.put_per_second == 2
    assert point.stored_per_second == 200
    assert point.dispatched_per_second == 190
    assert point.indexed_per_second == 200
    assert (point.behind_bytes, point.dispatch_behind_bytes) == (600, 100)


def test_the_first_sample_has_no_rate_and_its_lag():
    (point,) = points(sample(0, 1000, 50, 0, 0))
    assert point.put_per_second is point.stored_per_second is None
    assert (point.behind_bytes, point.behind_ms) == (0, 0)


def test_nothing_is_computed_across_a_sample_without_values():
    found = points(sample(0, 1000, 5), sample(10, error="refused"), sample(20, 2000, 9))
    assert [each.stored_per_second for each in found] == [None, None, None]
    assert [each.error for each in found] == [None, "refused", None]


@pytest.mark.parametrize("second", [-10, 0, 26])
def test_nothing_is_computed_across_a_longer_time_or_none(second):
    assert is_gap(sample(0, 1), sample(second, 2))
    assert points(sample(0, 1000), sample(second, 3000))[1].stored_per_second is None


def test_a_clock_that_stood_still_does_not_make_a_rate():
    slept = PipelineSample(10, 600_000, 3000)
    assert is_gap(sample(0, 1000), slept)
    assert not is_gap(sample(0, 1000), sample(10, 3000))


def test_a_count_that_begins_again_is_no_rate():
    _, point = points(sample(0, 1000, 50), sample(10, 3000, 2))
    assert (point.put_per_second, point.stored_per_second) == (None, 200)


def test_the_lag_in_time_is_how_long_ago_the_log_ended_where_the_index_is():
    # At second 10 the log ended at 2000, at 20 at 4000, so at 3000 at second 15.
    *_, point = points(sample(0, 1000), sample(10, 2000), sample(20, 4000, index=1000))
    assert point.behind_ms == 5000


def test_the_lag_in_time_grows_while_nothing_is_written():
    *_, point = points(
        sample(0, 1000), sample(10, 2000), sample(20, 2000), sample(30, 2000, index=500)
    )
    assert point.behind_ms == 25_000


def test_a_lag_from_before_the_first_sample_is_not_known_in_time():
    *_, point = points(sample(0, 1000), sample(10, 2000, index=1500))
    assert (point.behind_bytes, point.behind_ms, point.behind_over_ms) == (1500, None, 10_000)


def test_a_log_that_was_cut_off_tells_nothing_of_the_time_before():
    *_, point = points(sample(0, 5000), sample(10, 100), sample(20, 200, index=150))
    assert point.behind_ms is None


def test_what_a_broker_does_not_tell_is_none():
    (point,) = points(sample(0, 1000))
    assert point.behind_bytes is point.behind_ms is point.indexed_per_second is None


def test_the_newest_point_is_the_last_of_all():
    rows = (sample(0, 1000, 1, 0, 5), sample(10, error="x"), sample(20, 90, 2, 1, 1))
    for number in range(1, 4):
        assert next(points_of(rows[:number], number - 1)) == points(*rows[:number])[-1]


class Cluster(ConsoleSource):
    kind = "cluster"
    command_options = ()

    def __init__(self, name, *brokers):
        self.name = self.title = name
        self._brokers = brokers

    @property
    def source(self):
        return self

    is_one_log = False

    async def status(self, on_answer):
        for each in self._brokers:
            on_answer(each)
        return BrokersAnswer(self._brokers, ())


class Directory(ConsoleSource):
    kind, name = "store", "files"


def broker(name, number=0, **fields):
    return BrokerStatus("C", name, number, "10.0.0.1:1", **{"end_offset": 5, **fields})


async def value_of(*clusters, names=(), name=""):
    samples = PipelineSamples(clusters)
    await samples.sample()
    return pipeline_value(Sources([*clusters, Directory()]), samples, names, name)


def test_brokers_of_all_clusters_are_there_and_stores_are_named():
    found = asyncio.run(
        value_of(Cluster("one", broker("a"), broker("a", 1)), Cluster("two", broker("b")))
    )
    assert [(each.source, each.name, each.role) for each in found.brokers] == [
        ("one", "a", "master"),
        ("one", "a", "slave"),
        ("two", "b", "master"),
    ]
    assert (found.complete, found.stores, found.hidden, found.errors) == (True, ["files"], [], {})


def test_one_broker_or_source_can_be_asked_for():
    clusters = Cluster("one", broker("a"), broker("b")), Cluster("two", broker("b"))
    assert [each.source for each in asyncio.run(value_of(*clusters, name="b")).brokers] == [
        "one",
        "two",
    ]
    assert len(asyncio.run(value_of(*clusters, names=["one"])).brokers) == 2
    with pytest.raises(BadInput, match="no source"):
        asyncio.run(value_of(*clusters, names=["three"]))


def test_a_broker_without_an_answer_makes_it_incomplete():
    assert not asyncio.run(
        value_of(Cluster("one", broker("a", error="refused", end_offset=None)))
    ).complete


def test_before_the_first_sample_it_is_not_complete():
    clusters = [Cluster("one", broker("a"))]
    assert not pipeline_value(Sources(clusters), PipelineSamples(clusters)).complete


def test_brokers_beyond_those_that_are_plotted_have_their_newest_sample_only(monkeypatch):
    monkeypatch.setattr("rocketlens.console.status.pipeline.MAX_PIPELINE_PLOTS", 1)
    found = asyncio.run(value_of(Cluster("one", broker("a"), broker("b"))))
    assert [each.points is None for each in found.brokers] == [False, True]
    assert found.brokers[1].newest.time_ms > 0


@pytest.mark.parametrize(
    ("grant", "hidden", "count"),
    [
        (Grant(Role.VIEWER, ("one",), ("order-*",)), ["one"], 0),
        (Grant(Role.VIEWER, ("one",)), [], 1),
        (Grant(Role.VIEWER, ("other",)), [], 0),
    ],
)
def test_samples_are_for_those_who_may_see_all_topics_of_a_source(grant, hidden, count):
    async def seen():
        with seen_by(Viewer("li", (grant,))):
            return await value_of(Cluster("one", broker("a")))

    found = asyncio.run(seen())
    assert (found.hidden, len(found.brokers), found.stores) == (hidden, count, [])


MASTER = BrokerStatus("C", "broker-a", 0, "10.0.0.1:1", end_offset=100, put_total=7)
SLAVE = BrokerStatus("C", "broker-a", 1, "10.0.0.2:1", end_offset=90, index_behind_bytes=10)


class SampledCluster:
    """A cluster with the brokers that it is given, or an error; it can hang after some of them."""

    def __init__(self, name="live", brokers=(MASTER, SLAVE)):
        self.name, self.brokers, self.error, self.hangs = name, brokers, None, False
        self.asked, self.waited_for = 0, asyncio.Event()

    async def asked_times(self, times):
        """Wait until it was asked so often."""
        async with asyncio.timeout(PATIENCE_S):
            while self.asked < times:
                self.waited_for.clear()
                await self.waited_for.wait()

    async def status(self, on_answer=None):
        self.asked += 1
        self.waited_for.set()
        if self.error is not None:
            raise self.error
        for each in self.brokers:
            on_answer(each)
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        return BrokersAnswer(tuple(self.brokers), ())


class Clock:
    """Time that passes when it is said to."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s

    def now_ms(self):
        return round(self.now_s * 1000)

    async def sleep(self, wait_s):
        self.now_s += wait_s
        await asyncio.sleep(0)


def samples_of(*clusters, clock=None):
    clock = clock or Clock()
    return PipelineSamples(clusters, clock=clock, now_ms=clock.now_ms, sleep=clock.sleep)


def sampled(cluster, *changes):
    """Give the samples after one round, and one more after each change."""

    async def run():
        samples = samples_of(cluster)
        await samples.sample()
        for change in changes:
            change()
            await samples.sample()
        return samples

    return asyncio.run(run())


def errors_of(samples):
    return [each.error for each in samples.brokers(["live"])[0].samples]


def test_every_round_asks_each_cluster_once_and_keeps_what_each_broker_said():
    cluster, other = SampledCluster(), SampledCluster("other", (replace(MASTER, name="b"),))

    async def run():
        samples = samples_of(cluster, other)
        await samples.sample()
        return samples

    samples = asyncio.run(run())
    assert (cluster.asked, other.asked) == (1, 1)
    first, second = samples.brokers(["live"])
    assert first.broker == SampledBroker("live", "C", "broker-a", 0)
    assert first.samples[0] == PipelineSample(1000.0, 1_000_000, 100, 7, None, None, None)
    assert second.samples[0].index_behind_bytes == 10
    assert [each.broker.name for each in samples.brokers(["other"])] == ["b"]
    assert samples.brokers([]) == []


def test_a_broker_that_fails_has_a_sample_without_values_and_the_reason():
    cluster = SampledCluster()

    def fail():
        failed = BrokerStatus("C", "broker-a", 0, "10.0.0.1:1", error="refused")
        cluster.brokers = (failed, SLAVE)

    samples = sampled(cluster, fail)
    assert errors_of(samples) == [None, "refused"]
    assert samples.brokers(["live"])[0].samples[1].end_offset is None
    assert samples.errors(["live"]) == {}


def test_a_broker_that_does_not_tell_where_its_log_ends_has_none_either():
    cluster = SampledCluster(brokers=(replace(MASTER, end_offset=None),))
    assert errors_of(sampled(cluster)) == ["it does not report where its log ends"]


def test_a_cluster_that_cannot_be_asked_is_named_and_its_brokers_have_gaps():
    cluster = SampledCluster()

    def fail():
        cluster.error = RemotingError("10.0.0.9:9876", "no name server answers")

    samples = sampled(cluster, fail)
    assert "no name server answers" in samples.errors(["live"])["live"]
    assert "no name server answers" in errors_of(samples)[1]
    assert samples.errors(["other"]) == {}


def test_an_error_that_is_over_is_not_named_any_more():
    cluster = SampledCluster()
    cluster.error = RemotingError("10.0.0.9:9876", "no name server answers")
    samples = sampled(cluster, lambda: setattr(cluster, "error", None))
    assert samples.errors(["live"]) == {}
    assert errors_of(samples) == [None]


def test_brokers_that_do_not_answer_in_time_have_a_gap_and_the_others_their_sample(monkeypatch):
    monkeypatch.setattr("rocketlens.console.status.pipeline.PIPELINE_ROUND_S", 0.01)
    cluster = SampledCluster()

    def hang():
        cluster.brokers, cluster.hangs = (MASTER,), True

    first, second = sampled(cluster, hang).brokers(["live"])
    assert [each.error for each in first.samples] == [None, None]
    assert [each.error for each in second.samples] == [None, "no answer in 0.01 s"]


def test_a_cluster_that_never_answers_in_time_is_named(monkeypatch):
    monkeypatch.setattr("rocketlens.console.status.pipeline.PIPELINE_ROUND_S", 0.01)
    cluster = SampledCluster(brokers=())
    cluster.hangs = True
    samples = sampled(cluster)
    assert samples.errors(["live"]) == {"live": "no answer in 0.01 s"}
    assert samples.are_of(["live"])


def test_before_the_first_round_there_are_no_samples_of_a_cluster():
    assert not samples_of(SampledCluster()).are_of(["live"])
    assert samples_of().are_of([])


def test_a_broker_that_is_gone_as_long_as_samples_are_kept_is_forgotten(monkeypatch):
    monkeypatch.setattr("rocketlens.console.status.pipeline.MAX_PIPELINE_SAMPLES", 2)
    cluster = SampledCluster(brokers=(MASTER,))

    def leave():
        cluster.brokers = ()

    once = sampled(cluster, leave)
    assert errors_of(once) == [None, "it is not registered any more"]
    assert sampled(cluster, leave, leave, leave).brokers(["live"]) == []


def test_only_the_newest_samples_are_kept(monkeypatch):
    monkeypatch.setattr("rocketlens.console.status.pipeline.MAX_PIPELINE_SAMPLES", 3)
    cluster = SampledCluster(brokers=(MASTER,))
    ends = iter(range(10))

    def grow():
        cluster.brokers = (replace(MASTER, end_offset=next(ends)),)

    (kept,) = sampled(cluster, *[grow] * 10).brokers(["live"])
    assert [each.end_offset for each in kept.samples] == [7, 8, 9]


def test_brokers_beyond_the_bound_are_counted_and_not_kept(monkeypatch):
    monkeypatch.setattr("rocketlens.console.status.pipeline.MAX_PIPELINE_BROKERS", 1)
    samples = sampled(SampledCluster(), lambda: None)
    assert (len(samples.brokers(["live"])), samples.left_out(["live"])) == (1, 1)
    assert samples.left_out(["other"]) == 0


def test_a_broker_that_moves_is_the_same_with_another_address():
    cluster = SampledCluster(brokers=(MASTER,))

    def move():
        cluster.brokers = (replace(MASTER, address="10.0.0.7:1"),)

    (moved,) = sampled(cluster, move).brokers(["live"])
    assert (moved.address, len(moved.samples)) == ("10.0.0.7:1", 2)


def test_when_the_clock_is_set_back_samples_with_times_to_come_are_dropped():
    kept = BrokerSamples(SampledBroker("s", "C", "a", 0), "h:1")
    for time_ms in (5000, 6000, 2000):
        kept.add(PipelineSample(1.0, time_ms, 1))
    assert [each.time_ms for each in kept.samples] == [2000]


def test_samples_are_taken_every_ten_seconds_until_it_is_closed():
    cluster, clock = SampledCluster(brokers=(MASTER,)), Clock()

    async def run():
        samples = samples_of(cluster, clock=clock)
        samples.start()
        samples.start()
        await cluster.asked_times(3)
        await samples.close()
        asked = cluster.asked
        await asyncio.sleep(0)
        await samples.close()
        (kept,) = samples.brokers(["live"])
        times = [each.at_s for each in kept.samples]
        return asked == cluster.asked, {high - low for low, high in pairwise(times)}

    assert asyncio.run(run()) == (True, {PIPELINE_SAMPLE_S})


def test_a_mistake_in_one_round_does_not_end_the_others(caplog):
    cluster = SampledCluster(brokers=(MASTER,))
    cluster.error = KeyError("a mistake")

    async def run():
        samples = samples_of(cluster)
        samples.start()
        await cluster.asked_times(2)
        await samples.close()

    asyncio.run(run())
    assert "brokers could not be sampled" in caplog.text


@pytest.mark.parametrize("clusters", [(), (SampledCluster(),)])
async def test_closing_waits_for_nothing_that_is_asked(clusters):
    for each in clusters:
        each.hangs = True
    samples = samples_of(*clusters)
    samples.start()
    await asyncio.sleep(0)
    await samples.close()


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
    [(every(10, 5), [1, 2, None, 3, 4]), ([0, 10_000, 60_000, 70_000], [1, 2, 3, 4])],
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
