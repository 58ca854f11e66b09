"""A name server as a whole: its start and its end.

Several may run at once and know nothing of each other: every broker registers with all of them.
"""

import asyncio
import time
from collections.abc import Callable, Container
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.formats import java_properties
from rocketlens.model.message import Host
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.kv import KvConfig
from rocketlens.namesrv.processors import Processors
from rocketlens.namesrv.routes import Reserved, RouteTable
from rocketlens.net.channel import Channel, logger
from rocketlens.net.event_loop import end_on_signals, within
from rocketlens.net.group import ConnectionLimits
from rocketlens.net.server import RemotingServer
from rocketlens.store.disk import Disk
from rocketlens.store.fs import raise_open_file_limit

SCAN_INTERVAL_S: Final = 5.0


class NameServer:
    """A name server in the running event loop. ``disk``: what its values are written to.

    :raises ConfigError: when the file of values is larger than any that is read.
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
        processors = Processors(
            self.routes,
            self.kv,
            clock,
            order_message_enable=config.orderMessageEnable,
            return_order_topic_config_to_broker=config.returnOrderTopicConfigToBroker,
            configuration=java_properties.dumps_unescaped(config.properties_in_effect()),
        )
        most = config.max_connections
        if most is None:
            most = min(raise_open_file_limit() * 3 // 4, limits.MAX_CONNECTIONS)
        self.server: Final = RemotingServer(
            processors.handlers(),
            bounds=ConnectionLimits(connections=most),
            tls=config.tls,
            clock=clock,
            on_close=self._closed,
        )
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Host:
        """Listen; return the address that was bound.

        :raises BadInput: when it cannot be bound.
        """
        host, port = self.config.bindAddress, self.config.listenPort
        try:
            bound = self.server.listen(host, port)
        except OSError as error:
            raise BadInput(f"cannot listen on {Host(host, port)}: {error.strerror}") from None
        self._tick()
        return bound

    def reserve(
        self, broker_name: str, own: Callable[[], Container[str]], address: str = ""
    ) -> None:
        """Let only one broker register under a name, or at an address.

        ``own`` returns the addresses at which the connections of that broker begin; it is called
        for each registration, in the thread of this name server.
        """
        self.routes.reserved = Reserved(
            broker_name,
            address,
            lambda channel: isinstance(channel, Channel) and channel.address in own(),
        )

    async def stop(self, hurried: asyncio.Event | None = None) -> None:
        """Close the port and all connections; nobody is waited for longer than some seconds."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            await within(
                self.server.stop(limits.MAX_STOP_ANSWERS_S), limits.MAX_FAREWELL_S, hurried
            )
        finally:
            await self.server.abort()
            await self.kv.close()

    def sweep(self) -> None:
        """Drop brokers that were not heard of; done every 5 s once it has started."""
        for channel in self.routes.expire(self._clock()):
            if isinstance(channel, Channel):
                logger.warning("the broker at %s was not heard of in time", channel.address)
                channel.close()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SCAN_INTERVAL_S, self._tick)
        self.sweep()

    def _closed(self, channel: Channel) -> None:
        for address in self.routes.channel_closed(channel):
            logger.info("the broker %s is gone: its connection ended", address)


async def run(
    config: NameServerConfig,
    *,
    ready: Callable[[Host], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run a name server until a signal or ``stop``; ``ready`` is called once it listens.

    :raises BadInput: when it cannot listen.
    :raises ConfigError: when the file of values is larger than any that is read.
    """
    ending = end_on_signals(stop)
    server = NameServer(config)
    bound = server.start()
    try:
        if ready is not None:
            ready(bound)
        await ending.ended.wait()
    finally:
        await server.stop(ending.hurried)
