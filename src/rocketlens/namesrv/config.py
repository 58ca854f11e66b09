"""The keys of a ``namesrv.conf``, in RocketMQ's spelling.

Keys of TLS are in :mod:`rocketlens.net.tls`. For unknown keys see
:mod:`rocketlens.model.config_keys`. Source: ``NamesrvConfig``, ``NettyServerConfig``.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.formats import java_properties
from rocketlens.model.config_keys import IP_ADDRESS, SINCE_5, Configuration, key
from rocketlens.net.tls import ServerTls, tls_of_properties, warn_if_open, warn_of_unknown

NO_TLS: Final = ServerTls()


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig(Configuration):
    """The name server's keys with RocketMQ's names, and settings of the program.

    It listens on the loopback interface by default, because clients are not authenticated.
    """

    bindAddress: str = key(
        "127.0.0.1", "Address to listen on. RocketMQ: 0.0.0.0.", allowed=IP_ADDRESS, since=SINCE_5
    )
    listenPort: int = key(
        9876, "Port to listen on; 0: any free port.", allowed=range(limits.MAX_PORT + 1)
    )
    kvConfigPath: str = key(
        "",
        "File of key-value pairs; unless set they are kept in memory only. "
        "RocketMQ: ~/namesrv/kvConfig.json.",
    )
    orderMessageEnable: bool = key(False, "Put the order of topics into routes.")
    returnOrderTopicConfigToBroker: bool = key(
        True, "Answer registrations of brokers with the order of topics.", since=SINCE_5
    )
    tls: ServerTls = NO_TLS
    max_connections: int | None = None
    """None: as many as the limit on open files permits."""

    @property
    def kv_config_path(self) -> Path | None:
        return Path(self.kvConfigPath) if self.kvConfigPath else None

    def properties_in_effect(self) -> dict[str, str]:
        """Return each key with its value in effect; no value is secret."""
        return {**self.properties(), **self.tls.properties()}


def parse_config(
    text: str, port: int | None = None, address: str | None = None
) -> NameServerConfig:
    """Parse the content of a ``namesrv.conf``; ``port`` and ``address`` override its keys.

    Logs a warning if any client can connect to the name server.

    :raises BadInput: if a value is not allowed, or a key has no effect here but must not be
        ignored.
    :raises OSError: if the file of TLS settings cannot be read.
    """
    tls, values = tls_of_properties(java_properties.loads(text))
    config, unknown = NameServerConfig.from_properties(values)
    warn_of_unknown(unknown, (NameServerConfig,), "namesrv.conf")
    config = replace(
        config,
        tls=tls.server,
        listenPort=config.listenPort if port is None else port,
        bindAddress=address or config.bindAddress,
    )
    warn_if_open(config.bindAddress, tls)
    return config
