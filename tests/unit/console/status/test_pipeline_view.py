"""Rates and lags that samples tell, and none across a gap."""

import asyncio

import pytest

from rocketlens import limits
from rocketlens.console.login.viewer import Grant, Role, Viewer, seen_by
from rocketlens.console.sources.console_source import ConsoleSource
from rocketlens.console.sources.sources import Sources
from rocketlens.console.status.pipeline_samples import PipelineSample, PipelineSamples
from rocketlens.console.status.pipeline_view import is_gap, newest_of, pipeline_value, points_of
from rocketlens.errors import BadInput
from rocketlens.model.status import BrokersAnswer, BrokerStatus


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
        assert newest_of(rows[:number]) == points(*rows[:number])[-1]


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
    monkeypatch.setattr(limits, "MAX_PIPELINE_PLOTS", 1)
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
