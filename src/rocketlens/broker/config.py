"""The keys of a ``broker.conf`` about the broker itself, in RocketMQ's spelling.

The store's keys are in :mod:`rocketlens.store.write.config`, those of TLS in
:mod:`rocketlens.net.tls`, those of access control in :mod:`rocketlens.broker.access_config`. For
unknown keys see :mod:`rocketlens.model.config_keys`. Source: ``BrokerConfig``,
``MessageStoreConfig``, ``NettyServerConfig``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.broker.access_config import NO_AUTH, AuthConfig
from rocketlens.errors import BadInput
from rocketlens.formats import java_properties
from rocketlens.model.config_keys import DAY_MS, IP_ADDRESS, SINCE_5, Configuration, KeyForm, key
from rocketlens.model.rocketmq import (
    DEFAULT_CLUSTER,
    DEFAULT_REGION,
    PERM_READ_WRITE,
    TRACE_TOPIC,
    is_topic_name,
)
from rocketlens.net.tls import (
    TlsMode,
    TlsSettings,
    tls_of_properties,
    warn_if_open,
    warn_of_unknown,
)
from rocketlens.store.layout import StoreLayout
from rocketlens.store.write.config import StoreConfig

HA_DISTANCE: Final = 1
"""The port for slaves is this far above the first."""
VIP_DISTANCE: Final = 2
"""The second port is this far below the first."""

_NAME: Final = KeyForm("1 to 255 letters, digits, % | _ and -", is_topic_name)
_MASTER: Final = KeyForm(
    "ASYNC_MASTER or SYNC_MASTER; this broker cannot be a slave, but rocketlens tap follows one",
    lambda text: text in ("ASYNC_MASTER", "SYNC_MASTER"),
)
_INTERVALS_MS: Final = range(1, DAY_MS + 1)
_QUERY_MESSAGES: Final = range(1, 10_001)
_PULL_BYTES: Final = range(1, 2**30 + 1)
_PULL_MESSAGES: Final = range(1, 100_001)


@dataclass(frozen=True, slots=True)
class BrokerConfig(Configuration):
    """The broker's keys with RocketMQ's names and defaults, except those of addresses."""

    brokerName: str = key("broker-a", "Name of the broker.", allowed=_NAME)
    brokerClusterName: str = key(DEFAULT_CLUSTER, "Name of its cluster.", allowed=_NAME)
    brokerId: int = key(
        0, "0: the master. This broker cannot be a slave.", allowed=range(limits.MAX_INT + 1)
    )
    brokerIP1: str = key(
        "127.0.0.1",
        "Address for clients, also in message ids. RocketMQ: this machine's.",
        allowed=IP_ADDRESS,
    )
    bindAddress: str = key(
        "",
        "Address to listen on; brokerIP1 unless set. RocketMQ: 0.0.0.0.",
        allowed=IP_ADDRESS,
        since=SINCE_5,
    )
    listenPort: int = key(
        10911,
        "Port to listen on, with the one two below it; 0: any free port.",
        allowed=range(limits.MAX_PORT + 1),
    )
    namesrvAddr: str = key("", "Addresses of name servers, with semicolons between them.")
    storePathRootDir: str = key(
        "", "The store directory; that of --home unless set. RocketMQ: ~/store."
    )
    storePathCommitLog: str = key(
        "", "The directory of the log: commitlog in the store unless it is set."
    )
    brokerPermission: int = key(
        PERM_READ_WRITE, "What clients may do with its topics: 4 read, 2 write.", allowed=range(8)
    )
    brokerRole: str = key(
        "ASYNC_MASTER",
        "With SYNC_MASTER a send is acknowledged when a slave has the message. RocketMQ 5: only "
        "with inSyncReplicas above 1.",
        allowed=_MASTER,
    )
    haListenPort: int = key(
        0,
        "Port on which slaves copy the log, without a password and without TLS. 0: the one above "
        "listenPort, and none with access control or tls.server.mode=enforcing.",
        allowed=range(limits.MAX_PORT + 1),
    )
    slaveTimeout: int = key(
        3_000,
        "How long a send waits for a slave with SYNC_MASTER.",
        unit="ms",
        allowed=_INTERVALS_MS,
    )
    haSlaveFallbehindMax: int = key(
        256 * 1024 * 1024,
        "A slave that lacks so much of the log is not waited for. RocketMQ 5: haMaxGapNotInSync.",
        unit="bytes",
        allowed=range(1, 2**40 + 1),
    )
    storeReplyMessageEnable: bool = key(
        True, "Store replies to requests of producers in <cluster>_REPLY_TOPIC."
    )
    recallMessageEnable: bool = key(
        False, "Let producers take back messages with a delivery time of their own.", since=SINCE_5
    )
    regionId: str = key(DEFAULT_REGION, "Property MSG_REGION of its messages.", allowed=_NAME)
    traceOn: bool = key(True, "Property TRACE_ON of its messages.")
    traceTopicEnable: bool = key(False, "Create the topic of message traces.")
    msgTraceTopicName: str = key(TRACE_TOPIC, "Name of the topic of message traces.", allowed=_NAME)
    defaultTopicQueueNums: int = key(
        8,
        "Queues of a topic that is created by a send, at most.",
        allowed=range(1, limits.MAX_TOPIC_QUEUES + 1),
    )
    autoCreateTopicEnable: bool = key(True, "Create topics when they are sent to.")
    autoCreateSubscriptionGroup: bool = key(
        True, "Create consumer groups when they are first used."
    )
    maxMsgsNumBatch: int = key(
        64, "Messages in the answer to a query, at most.", allowed=_QUERY_MESSAGES
    )
    defaultQueryMaxNum: int = key(
        32, "Messages in the answer to a query by unique key, at most.", allowed=_QUERY_MESSAGES
    )
    maxTransferBytesOnMessageInMemory: int = key(
        262_144,
        "Messages in the answer to a pull, at most, near the end of the log.",
        unit="bytes",
        allowed=_PULL_BYTES,
    )
    maxTransferCountOnMessageInMemory: int = key(
        32, "The same as a number of messages.", allowed=_PULL_MESSAGES
    )
    maxTransferBytesOnMessageInDisk: int = key(
        65_536,
        "Messages in the answer to a pull, at most, farther from the end.",
        unit="bytes",
        allowed=_PULL_BYTES,
    )
    maxTransferCountOnMessageInDisk: int = key(
        8, "The same as a number of messages.", allowed=_PULL_MESSAGES
    )
    accessMessageInMemoryMaxRatio: int = key(
        40,
        "Size of the end of the log that is assumed to be in memory.",
        unit="% of the machine's memory",
        allowed=range(96),
    )
    longPollingEnable: bool = key(
        True, "Hold pulls at the end of a queue until messages arrive, as long as they allow."
    )
    shortPollingTimeMills: int = key(
        1_000,
        "Without longPollingEnable: how long such pulls are held, whatever arrives.",
        unit="ms",
        allowed=_INTERVALS_MS,
    )
    enablePropertyFilter: bool = key(
        False, "Allow consumers to subscribe by an SQL92 expression over properties."
    )
    transactionTimeOut: int = key(
        6_000,
        "How old a half message must be before its producers are asked about it.",
        unit="ms",
        allowed=_INTERVALS_MS,
    )
    transactionCheckMax: int = key(15, "How often they are asked, at most.", allowed=range(1, 255))
    transactionCheckInterval: int = key(
        30_000,
        "Time between two checks of open transactions. RocketMQ 4.9: 60000.",
        unit="ms",
        allowed=_INTERVALS_MS,
    )
    registerNameServerPeriod: int = key(
        30_000, "Time between two registrations.", unit="ms", allowed=_INTERVALS_MS
    )
    registerBrokerTimeoutMills: int = key(
        3_000, "How long a name server may take to answer.", unit="ms", allowed=_INTERVALS_MS
    )
    flushConsumerOffsetInterval: int = key(
        5_000, "Time between two saves of changed tables.", unit="ms", allowed=_INTERVALS_MS
    )
    flushDelayOffsetInterval: int = key(
        10_000,
        "Time between two saves of the offsets of delay levels, at most.",
        unit="ms",
        allowed=_INTERVALS_MS,
    )

    def check_together(self) -> None:
        """Check that there is a second port, and that the broker is a master.

        :raises BadInput: with the key.
        """
        if 0 < self.listenPort <= VIP_DISTANCE:
            raise BadInput(f"listenPort {self.listenPort}: the port two below is needed, too")
        if self.brokerId:
            raise BadInput(
                f"brokerId {self.brokerId}: give 0; this broker cannot be a slave, "
                "but rocketlens tap follows one"
            )

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers."""
        return tuple(word.strip() for word in self.namesrvAddr.split(";") if word.strip())

    @property
    def is_sync_master(self) -> bool:
        """Whether sends wait for a slave."""
        return self.brokerRole == "SYNC_MASTER"

    @property
    def listen_address(self) -> str:
        """The address to listen on."""
        return self.bindAddress or self.brokerIP1


NO_TLS: Final = TlsSettings()


class BrokerSettings(NamedTuple):
    """The content of a ``broker.conf``."""

    broker: BrokerConfig
    store: StoreConfig
    unknown: tuple[str, ...] = ()
    """Keys that RocketLens does not know."""
    tls: TlsSettings = NO_TLS
    auth: AuthConfig = NO_AUTH

    @property
    def store_path(self) -> Path:
        """The store directory: ``storePathRootDir``, or RocketMQ's default."""
        root = self.broker.storePathRootDir
        return Path(root) if root else Path.home() / "store"

    @property
    def commit_log_path(self) -> Path:
        """The directory of the log."""
        path = self.broker.storePathCommitLog
        return Path(path) if path else self.store_path / "commitlog"

    @property
    def layout(self) -> StoreLayout:
        """The paths of the store."""
        is_elsewhere = self.commit_log_path != self.store_path / "commitlog"
        return StoreLayout(self.store_path, (self.commit_log_path,) if is_elsewhere else ())

    def with_broker(self, **changes: Any) -> "BrokerSettings":
        """Return these settings with other values for some of the broker's keys."""
        return self._replace(broker=replace(self.broker, **changes))

    def ha_port(self, port: int) -> int:
        """Return the port for slaves of a broker at ``port``; 0 if there is none."""
        if self.broker.haListenPort:
            return self.broker.haListenPort
        is_closed = self.auth.is_on or self.tls.server.mode is TlsMode.ENFORCING
        return 0 if is_closed or port + HA_DISTANCE > limits.MAX_PORT else port + HA_DISTANCE

    def properties_in_effect(self, port: int) -> dict[str, str]:
        """Return each key with its value in effect for a broker at ``port``; no value is secret."""
        in_effect = self.with_broker(
            bindAddress=self.broker.listen_address,
            listenPort=port,
            haListenPort=self.ha_port(port),
            storePathRootDir=str(self.store_path),
            storePathCommitLog=str(self.commit_log_path),
        )
        return {
            **in_effect.broker.properties(),
            **self.store.properties(),
            **self.tls.server.properties(),
            **self.auth.properties(),
        }


def properties_of(text: str) -> dict[str, str]:
    """Return the keys and values of a ``broker.conf`` as they stand there."""
    return java_properties.loads(text)


def parse_settings(text: str, **changes: Any) -> BrokerSettings:
    """Parse the content of a ``broker.conf``; warn of a broker that any client can reach.

    ``changes`` are keys of the broker that override it. Raises what :func:`settings_of` does.

    :raises BadInput: if clients of other machines would be told an address that leads them astray.
    """
    settings = settings_of(java_properties.loads(text), "broker.conf").with_broker(**changes)
    check_advertised(settings.broker)
    if not settings.auth.is_on:
        warn_if_open(settings.broker.listen_address, settings.tls)
    return settings


def check_advertised(config: BrokerConfig) -> None:
    """Check that the address that clients get is one at which they reach the broker.

    :raises BadInput: if it is not an address of a machine, or the loopback interface's although the
        broker listens on others.
    """
    listens, advertises = ip_address(config.listen_address), ip_address(config.brokerIP1)
    remedy = "name the address that clients use with --advertise or brokerIP1"
    if advertises.is_unspecified:
        raise BadInput(f"clients would be told {advertises}, which is no machine's: {remedy}")
    if advertises.is_loopback and not listens.is_loopback:
        raise BadInput(
            f"the broker would listen on {listens} and tell clients of other machines to use "
            f"{advertises}, which leads them to themselves: {remedy}, or listen on {advertises}"
        )


def settings_of(properties: Mapping[str, str], where: str) -> BrokerSettings:
    """Return the settings of the keys of a ``broker.conf``; errors name the source ``where``.

    :raises BadInput: if a value is not allowed, a key must not be ignored, or
        ``storePathCommitLog`` is not the path of one directory.
    :raises OSError: if the file of TLS settings cannot be read.
    """
    tls, values = tls_of_properties(properties)
    broker, others = BrokerConfig.from_properties(values)
    auth, others = AuthConfig.from_properties(others)
    store, unknown = StoreConfig.from_properties(others)
    passed_over = warn_of_unknown(unknown, (BrokerConfig, AuthConfig, StoreConfig), where)
    settings = BrokerSettings(broker, store, passed_over, tls, auth)
    path = broker.storePathCommitLog
    if "," in path or (path and not Path(path).is_absolute()):
        raise BadInput(f"storePathCommitLog {path}: give the whole path of one directory")
    return settings
