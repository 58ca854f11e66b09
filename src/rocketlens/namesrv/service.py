"""A name server as a whole: its configuration, its start, its end.

Several may run at once and know nothing of each other: every broker registers with all of them.
"""

import asyncio
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Self

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.message import Host
from rocketlens.namesrv.kv import KvConfig
from rocketlens.namesrv.processors import Processors
from rocketlens.namesrv.routes import Reserved, RouteTable
from rocketlens.net.channel import Channel, logger
from rocketlens.net.event_loop import end_on_signals, within
from rocketlens.net.group import Bounds
from rocketlens.net.server import RemotingServer
from rocketlens.net.tls import ServerTls
from rocketlens.store.disk import Disk
from rocketlens.store.fs import raise_open_file_limit

DEFAULT_PORT: Final = 9876
SCAN_INTERVAL_S: Final = 5.0
NO_TLS: Final = ServerTls()


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """How a name server runs; in brackets RocketMQ's keys, where it has them.

    It listens on the loopback interface unless told otherwise, for it asks nobody who he is.
    """

    host: str = "127.0.0.1"
    """[bindAddress]"""
    port: int = DEFAULT_PORT
    """[listenPort] 0: any that is free."""
    kv_config_path: Path | None = None
    """[kvConfigPath] None: values are kept in memory only."""
    order_message_enable: bool = False
    """[orderMessageEnable] Put the order of topics into routes."""
    return_order_topic_config_to_broker: bool = True
    """[returnOrderTopicConfigToBroker]"""
    tls: ServerTls = NO_TLS
    max_connections: int | None = None
    """None: as many as the open files allow that a process may have."""

    KEYS: ClassVar[tuple[str, ...]] = (
        "bindAddress",
        "listenPort",
        "kvConfigPath",
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
    )
    """RocketMQ's keys that have a meaning here."""

    @classmethod
    def from_properties(cls, values: Mapping[str, str]) -> tuple[Self, dict[str, str]]:
        """Take RocketMQ's keys; give the configuration, and the entries that are not known.

        :raises BadInput: when a value cannot be read.
        """
        left = dict(values)
        port = left.pop("listenPort", str(DEFAULT_PORT))
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65_536):
            raise BadInput(f"listenPort {port!r} is no port: give 0 to 65535")
        path = left.pop("kvConfigPath", "")
        config = cls(
            host=left.pop("bindAddress", "127.0.0.1"),
            port=int(port),
            kv_config_path=Path(path) if path else None,
            order_message_enable=_boolean(left, "orderMessageEnable", default=False),
            return_order_topic_config_to_broker=_boolean(
                left, "returnOrderTopicConfigToBroker", default=True
            ),
        )
        return config, left

    def properties(self) -> str:
        """Write what can be told to anyone (319) as a Java properties file."""
        lines = {
            "bindAddress": self.host,
            "listenPort": str(self.port),
            "kvConfigPath": str(self.kv_config_path or ""),
            "orderMessageEnable": str(self.order_message_enable).lower(),
            "returnOrderTopicConfigToBroker": str(self.return_order_topic_config_to_broker).lower(),
            "tls.server.mode": self.tls.mode.value,
        }
        return "".join(f"{key}={value}\n" for key, value in lines.items())


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
            order_message_enable=config.order_message_enable,
            return_order_topic_config_to_broker=config.return_order_topic_config_to_broker,
            configuration=config.properties(),
        )
        most = config.max_connections
        if most is None:
            most = min(raise_open_file_limit() * 3 // 4, limits.MAX_CONNECTIONS)
        self.server: Final = RemotingServer(
            processors.handlers(),
            bounds=Bounds(connections=most),
            tls=config.tls,
            clock=clock,
            on_close=self._closed,
        )
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Host:
        """Listen; give the address that was bound.

        :raises BadInput: when it cannot be bound.
        """
        host, port = self.config.host, self.config.port
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


def _boolean(values: dict[str, str], key: str, *, default: bool) -> bool:
    text = values.pop(key, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise BadInput(f"{key} {text!r} is neither true nor false")
    return text == "true"
