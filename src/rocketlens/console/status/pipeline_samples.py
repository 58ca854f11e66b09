"""Samples the brokers of all clusters while a console runs: what they stored, and how far their
pipeline came.

Every ten seconds each broker is asked once, whether the page is looked at or not: it is looked at
when something was wrong before. The samples of an hour are kept, in memory only. A broker that does
not answer in time has a sample without values, with the reason.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.console.sources.sources import ClusterOfConsole
from rocketlens.errors import RocketLensError
from rocketlens.model.status import BrokerStatus

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


@dataclass(slots=True)
class BrokerSamples:
    """The samples of one broker, the oldest first."""

    broker: SampledBroker
    address: str
    samples: "deque[PipelineSample]" = field(
        default_factory=lambda: deque(maxlen=limits.MAX_PIPELINE_SAMPLES)
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
            due_s = max(due_s + limits.PIPELINE_SAMPLE_S, self.clock())
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
            async with asyncio.timeout(limits.PIPELINE_ROUND_S):
                await cluster.status(keep)
        except TimeoutError:
            why = f"no answer in {limits.PIPELINE_ROUND_S:g} s"
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
            if len(self._by_broker) >= limits.MAX_PIPELINE_BROKERS:
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
