"""Follows several brokers in one event loop, and reports the progress of each copy."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.topology import Topology
from rocketlens.errors import BadInput, CopyFailed, RocketLensError
from rocketlens.net.event_loop import end_on_signals, within
from rocketlens.net.status_port import StatusPort, StatusSource
from rocketlens.store.disk import Disk
from rocketlens.tap.copy_log import Begin, LogCopy
from rocketlens.tap.follower import Follower

if TYPE_CHECKING:
    from prometheus_client import Metric

_log: Final = logging.getLogger("rocketlens.tap")


_MEANINGS: Final = {
    "connected": "1 if the log of the broker is received, 0 if not.",
    "behind_bytes": "Bytes of the broker's log that are not copied, as far as known.",
    "behind_seconds": "Age of the last copied message if the copy is not complete, otherwise 0.",
    "offset": "Physical offset up to which the log is copied.",
    "synced_offset": "Physical offset up to which the copy is synced.",
    "gaps": "Parts of the broker's log that were deleted before they were copied.",
    "received_bytes": "Bytes of log that were received since the start.",
    "connections": "Connections to the broker since the start.",
}
_COUNTERS: Final = frozenset({"received_bytes", "connections"})
_NO_BROKER: Final = "all brokers: no broker is registered at the name servers yet"
WATCH_S: Final = 10.0
"""Seconds between two checks for new brokers."""


class TapOptions(NamedTuple):
    """The brokers that a tap follows, and the bounds of their copies."""

    home: Path
    """Each broker's copy is a directory in it, by the broker's name."""
    brokers: tuple[str, ...] = ()
    """Names of brokers; empty for all current and later ones."""
    begin: Begin = "earliest"
    acknowledges: bool = True
    retention_hours: int | None = None
    retention_bytes: int = 0
    """Maximum bytes of each copy's log; 0 for no bound."""


class Tap:
    """All followers. Created, started and stopped in one event loop."""

    def __init__(
        self,
        name_servers: str,
        options: TapOptions,
        *,
        client_options: Mapping[str, Any] | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._options: Final = options
        self._disk: Final = disk
        self._cluster: Final = ClusterCalls(name_servers, **(client_options or {}))
        self._topology: Final = Topology(self._cluster, None, monotonic)
        self.followers: Final[list[Follower]] = []
        self._tasks: Final[list[asyncio.Task[None]]] = []
        self._watch: asyncio.Task[None] | None = None
        self._has_ended: Final = asyncio.Event()

    async def start(self) -> None:
        """Open the copies, and connect; return when each follower has tried once.

        If no broker is registered, or some of several unnamed brokers cannot be followed, they are
        tried again.

        :raises CopyFailed: if a named broker cannot be followed, or no broker can.
        :raises StoreLocked, BadInput, OSError, RemotingError: if it cannot start.
        """
        named = self._options.brokers
        if len(set(named)) != len(named):
            raise BadInput("--broker: a broker is named twice")
        names = named or tuple(sorted((await self._topology.brokers()).value))
        failures: list[BaseException] = []
        for name in names:
            try:
                self.followers.append(self._follower(name))
            except CopyFailed as error:
                failures.append(error)
                _log.error("a broker is not followed: %s", error)
        first_tries = [asyncio.create_task(one.run()) for one in self.followers]
        self._tasks.extend(first_tries)
        for follower, task in zip(self.followers, first_tries, strict=True):
            await follower.has_started.wait()
            failure = task.exception() if task.done() else None
            if failure is not None:
                failures.append(failure)
                _log.error("broker %s is not followed now: %s", follower.copy.broker_name, failure)
        if failures and (named or len(failures) == len(names)):
            raise failures[0]
        self._tasks.clear()
        for follower, task in zip(self.followers, first_tries, strict=True):
            self._keep_following(follower, None if task.done() else task)
        if not named:
            if not names:
                _log.warning(_NO_BROKER)
            self._watch = asyncio.create_task(self._follow_later_ones(set(names)))

    def _follower(self, name: str) -> Follower:
        """:raises CopyFailed: if the name cannot be that of a directory."""
        options = self._options
        copy = LogCopy(
            options.home,
            name,
            begin=options.begin,
            retention_hours=options.retention_hours,
            retention_bytes=options.retention_bytes,
            disk=self._disk,
        )
        return Follower(
            self._cluster, self._topology, copy, acknowledges=options.acknowledges, disk=self._disk
        )

    def _keep_following(self, follower: Follower, task: asyncio.Task[None] | None = None) -> None:
        """Follow from now on, even if the broker cannot be followed yet."""
        follower.has_started.set()
        task = task or asyncio.create_task(follower.run())
        task.add_done_callback(lambda _: self._has_ended.set())
        self._tasks.append(task)

    async def _follow_later_ones(self, known: set[str]) -> None:
        """Follow brokers that are registered later; retry those that cannot be followed yet."""
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                names = set((await self._topology.brokers()).value) - known
            except (RocketLensError, OSError, ValueError) as error:
                _log.warning("the check for new brokers failed: %s", error)
                continue
            known |= names
            for name in sorted(names):
                try:
                    follower = self._follower(name)
                except CopyFailed as error:
                    _log.error("a new broker is not followed: %s", error)
                    continue
                _log.info("broker %s was registered, and is followed from now on", name)
                self.followers.append(follower)
                self._keep_following(follower)

    @property
    def failure(self) -> BaseException | None:
        """The error of a follower that failed permanently; None if there is none."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                return task.exception()
        return None

    async def ended(self) -> None:
        """Wait until a follower fails permanently."""
        await self._has_ended.wait()

    async def stop(self) -> None:
        """Close all connections and stores; abruptly if a sync failed."""
        tasks = [*self._tasks, *((self._watch,) if self._watch else ())]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for follower in self.followers:
            store = follower.copy.store
            await follower.close(abruptly=store is not None and store.failure is not None)
        await self._cluster.close()

    def problems(self) -> Sequence[str]:
        if not self.followers:
            return [_NO_BROKER]
        return [
            f"broker {one.copy.broker_name}: {one.problem}" for one in self.followers if one.problem
        ]

    async def metrics(self) -> "Iterable[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        metrics: dict[str, Any] = {}
        for one in self.followers:
            note, store = one.copy.note, one.copy.store
            numbers = {
                "connected": one.is_receiving,
                "behind_bytes": note.behind_bytes if note else 0,
                "behind_seconds": note.behind_ms / 1000 if note else 0,
                "offset": store.position if store else 0,
                "synced_offset": store.flushed_offset if store else 0,
                "gaps": len(note.gaps) if note else 0,
                "received_bytes": one.received_bytes,
                "connections": one.connections,
            }
            for name, number in numbers.items():
                if name not in metrics:
                    kind = CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily
                    labels = ("node_type", "node_id")
                    metrics[name] = kind(f"rocketlens_tap_{name}", _MEANINGS[name], labels=labels)
                metrics[name].add_metric(("tap", one.copy.broker_name), float(number))
        return metrics.values()


async def run(
    name_servers: str,
    options: TapOptions,
    *,
    client_options: Mapping[str, Any] | None = None,
    ready: Callable[[Tap], None] | None = None,
    stop: asyncio.Event | None = None,
    status: StatusPort | None = None,
) -> None:
    """Run a tap until a signal or ``stop``; ``ready`` is called when it has started.

    Raises what :meth:`Tap.start` raises, and the error of a follower that failed permanently.
    """
    shutdown = end_on_signals(stop)
    tap = Tap(name_servers, options, client_options=client_options)
    try:
        await within(tap.start(), None, shutdown.ended)
        if shutdown.ended.is_set():
            return
        if status is not None:
            loop = asyncio.get_running_loop()
            status.add(StatusSource("tap", loop, tap.metrics, tap.problems))
        if ready is not None:
            ready(tap)
        await within(tap.ended(), None, shutdown.ended)
        if tap.failure is not None:
            raise tap.failure
    finally:
        await tap.stop()
