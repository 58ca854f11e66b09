"""Samples of brokers: every one in each round, gaps with their reason, and no more than is kept."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from rocketlens import limits
from rocketlens.console.status.pipeline_samples import (
    BrokerSamples,
    PipelineSample,
    PipelineSamples,
    SampledBroker,
)
from rocketlens.errors import RemotingError
from rocketlens.model.status import BrokersAnswer, BrokerStatus
from tests.support.patience import PATIENCE_S

MASTER = BrokerStatus("C", "broker-a", 0, "10.0.0.1:1", end_offset=100, put_total=7)
SLAVE = BrokerStatus("C", "broker-a", 1, "10.0.0.2:1", end_offset=90, index_behind_bytes=10)


class Cluster:
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
    cluster, other = Cluster(), Cluster("other", (replace(MASTER, name="b"),))

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
    cluster = Cluster()

    def fail():
        failed = BrokerStatus("C", "broker-a", 0, "10.0.0.1:1", error="refused")
        cluster.brokers = (failed, SLAVE)

    samples = sampled(cluster, fail)
    assert errors_of(samples) == [None, "refused"]
    assert samples.brokers(["live"])[0].samples[1].end_offset is None
    assert samples.errors(["live"]) == {}


def test_a_broker_that_does_not_tell_where_its_log_ends_has_none_either():
    cluster = Cluster(brokers=(replace(MASTER, end_offset=None),))
    assert errors_of(sampled(cluster)) == ["it does not report where its log ends"]


def test_a_cluster_that_cannot_be_asked_is_named_and_its_brokers_have_gaps():
    cluster = Cluster()

    def fail():
        cluster.error = RemotingError("10.0.0.9:9876", "no name server answers")

    samples = sampled(cluster, fail)
    assert "no name server answers" in samples.errors(["live"])["live"]
    assert "no name server answers" in errors_of(samples)[1]
    assert samples.errors(["other"]) == {}


def test_an_error_that_is_over_is_not_named_any_more():
    cluster = Cluster()
    cluster.error = RemotingError("10.0.0.9:9876", "no name server answers")
    samples = sampled(cluster, lambda: setattr(cluster, "error", None))
    assert samples.errors(["live"]) == {}
    assert errors_of(samples) == [None]


def test_brokers_that_do_not_answer_in_time_have_a_gap_and_the_others_their_sample(monkeypatch):
    monkeypatch.setattr(limits, "PIPELINE_ROUND_S", 0.01)
    cluster = Cluster()

    def hang():
        cluster.brokers, cluster.hangs = (MASTER,), True

    first, second = sampled(cluster, hang).brokers(["live"])
    assert [each.error for each in first.samples] == [None, None]
    assert [each.error for each in second.samples] == [None, "no answer in 0.01 s"]


def test_a_cluster_that_never_answers_in_time_is_named(monkeypatch):
    monkeypatch.setattr(limits, "PIPELINE_ROUND_S", 0.01)
    cluster = Cluster(brokers=())
    cluster.hangs = True
    samples = sampled(cluster)
    assert samples.errors(["live"]) == {"live": "no answer in 0.01 s"}
    assert samples.are_of(["live"])


def test_before_the_first_round_there_are_no_samples_of_a_cluster():
    assert not samples_of(Cluster()).are_of(["live"])
    assert samples_of().are_of([])


def test_a_broker_that_is_gone_as_long_as_samples_are_kept_is_forgotten(monkeypatch):
    monkeypatch.setattr(limits, "MAX_PIPELINE_SAMPLES", 2)
    cluster = Cluster(brokers=(MASTER,))

    def leave():
        cluster.brokers = ()

    once = sampled(cluster, leave)
    assert errors_of(once) == [None, "it is not registered any more"]
    assert sampled(cluster, leave, leave, leave).brokers(["live"]) == []


def test_only_the_newest_samples_are_kept(monkeypatch):
    monkeypatch.setattr(limits, "MAX_PIPELINE_SAMPLES", 3)
    cluster = Cluster(brokers=(MASTER,))
    ends = iter(range(10))

    def grow():
        cluster.brokers = (replace(MASTER, end_offset=next(ends)),)

    (kept,) = sampled(cluster, *[grow] * 10).brokers(["live"])
    assert [each.end_offset for each in kept.samples] == [7, 8, 9]


def test_brokers_beyond_the_bound_are_counted_and_not_kept(monkeypatch):
    monkeypatch.setattr(limits, "MAX_PIPELINE_BROKERS", 1)
    samples = sampled(Cluster(), lambda: None)
    assert (len(samples.brokers(["live"])), samples.left_out(["live"])) == (1, 1)
    assert samples.left_out(["other"]) == 0


def test_a_broker_that_moves_is_the_same_with_another_address():
    cluster = Cluster(brokers=(MASTER,))

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
    cluster, clock = Cluster(brokers=(MASTER,)), Clock()

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

    assert asyncio.run(run()) == (True, {limits.PIPELINE_SAMPLE_S})


def test_a_mistake_in_one_round_does_not_end_the_others(caplog):
    cluster = Cluster(brokers=(MASTER,))
    cluster.error = KeyError("a mistake")

    async def run():
        samples = samples_of(cluster)
        samples.start()
        await cluster.asked_times(2)
        await samples.close()

    asyncio.run(run())
    assert "brokers could not be sampled" in caplog.text


@pytest.mark.parametrize("clusters", [(), (Cluster(),)])
async def test_closing_waits_for_nothing_that_is_asked(clusters):
    for each in clusters:
        each.hangs = True
    samples = samples_of(*clusters)
    samples.start()
    await asyncio.sleep(0)
    await samples.close()
