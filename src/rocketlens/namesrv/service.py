"""A name server as a whole: start and stop.

Several can run at once, independently: every broker registers with all of them.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.message import Host
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.kv import KvConfig
from rocketlens.namesrv.processors import Processors
from rocketlens.namesrv.routes import Reserved, RouteTable
from rocketlens.net.channel import Channel
from rocketlens.net.channel_group import ConnectionLimits
from rocketlens.net.event_loop import end_on_signals, within
from rocketlens.net.server import RemotingServer, network_metrics
from rocketlens.net.status_port import StatusPort, StatusSource
from rocketlens.store.disk import Disk
from rocketlens.store.fs import raise_open_file_limit

if TYPE_CHECKING:
    from prometheus_client import Metric

_log: Final = logging.getLogger("rocketlens.namesrv")

SCAN_INTERVAL_S: Final = 5.0


class NameServer:
    """A name server in the running event loop. ``disk`` writes its key-value pairs.

    :raises ConfigError: if their file exceeds the bound for reading.
    """

    def __init__(
        self,
        config: NameServerConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        disk: Disk | None = None,
    ) -> None:
        self.config: Final = config
        self.routes: Final = RouteTable()
        self.kv: Final = KvConfig(config.kv_config_path, disk)
        self._clock: Final = clock
        processors = Processors(self.routes, self.kv, clock, config)
        most = config.max_connections
        if most is None:
            most = min(raise_open_file_limit() * 3 // 4, limits.MAX_CONNECTIONS)
        self.server: Final = RemotingServer(
            processors.handlers(),
            bounds=ConnectionLimits(connections=most),
            tls=config.tls,
            clock=clock,
            on_close=self._on_close,
        )
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Host:
        """:raises BadInput: if the address cannot be bound."""
        host, port = self.config.bindAddress, self.config.listenPort
        try:
            bound = self.server.listen(host, port)
        except OSError as error:
            raise BadInput(f"cannot listen on {Host(host, port)}: {error.strerror}") from None
        self._tick()
        _log.info("listens on %s", bound)
        return bound

    def status_source(self) -> StatusSource:
        """Return the metrics and problems of this name server. Call it in its event loop."""

        async def collect() -> "Iterable[Metric]":
            from prometheus_client.core import GaugeMetricFamily

            labels, node = ("node_type", "node_id"), ("nameserver", str(self.server.addresses[0]))
            metrics: list[Metric] = []
            for name, meaning, number in (
                ("rocketlens_namesrv_brokers", "Registered brokers.", self.routes.broker_count),
                ("rocketlens_namesrv_topics", "Topics with a route.", self.routes.topic_count),
            ):
                metric = GaugeMetricFamily(name, meaning, labels=labels)
                metric.add_metric(node, float(number))
                metrics.append(metric)
            return [*metrics, *network_metrics(self.server.group, labels, node)]

        def problems() -> list[str]:
            return [] if self.server.addresses else ["it does not listen"]

        return StatusSource("name server", asyncio.get_running_loop(), collect, problems)

    def reserve(
        self, broker_name: str, own: Callable[[], Container[str]], address: str = ""
    ) -> None:
        """Reserve a name and an address for one broker.

        ``own`` returns the local addresses of that broker's connections; it is called for each
        registration, in the thread of this name server.
        """
        self.routes.reserved = Reserved(
            broker_name,
            address,
            lambda channel: isinstance(channel, Channel) and channel.address in own(),
        )

    async def stop(self, hurried: asyncio.Event | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            await within(
                self.server.stop(limits.MAX_STOP_ANSWERS_S), limits.MAX_FAREWELL_S, hurried
            )
        finally:
            await self.server.abort()
            await self.kv.close()
            _log.info("stopped")

    def sweep(self) -> None:
        """Drop expired brokers; runs every 5 s after the start."""
        for channel in self.routes.expire(self._clock()):
            if isinstance(channel, Channel):
                _log.warning("the broker at %s sent no heartbeat in time", channel.address)
                channel.close()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SCAN_INTERVAL_S, self._tick)
        self.sweep()

    def _on_close(self, channel: Channel) -> None:
        for address in self.routes.channel_closed(channel):
            _log.info("the broker %s is gone: its connection ended", address)


async def run(
    config: NameServerConfig,
    *,
    ready: Callable[[Host], None] | None = None,
    stop: asyncio.Event | None = None,
    status: StatusPort | None = None,
) -> None:
    """Run a name server until a signal or ``stop``; ``ready`` is called when it listens.

    ``status`` serves its metrics and health.

    :raises BadInput: if it cannot listen.
    :raises ConfigError: if the file of key-value pairs exceeds the bound for reading.
    """
    ending = end_on_signals(stop)
    server = NameServer(config)
    bound = server.start()
    if status is not None:
        status.add(server.status_source())
    try:
        if ready is not None:
            ready(bound)
        await ending.ended.wait()
    finally:
        await server.stop(ending.hurried)
