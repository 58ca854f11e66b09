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
        PERM_READ_WRITE, "Permissions of clients for its topics: 4 read, 2 write.", allowed=range(8)
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
        "Maximum time that a send waits for a slave, with SYNC_MASTER.",
        unit="ms",
        allowed=_INTERVALS_MS,
    )
    haSlaveFallbehindMax: int = key(
        256 * 1024 * 1024,
        "Sends do not wait for a slave that lacks this much of the log. RocketMQ 5: "
        "haMaxGapNotInSync.",
        unit="bytes",
        allowed=range(1, 2**40 + 1),
    )
    storeReplyMessageEnable: bool = key(
        True, "Store replies to requests of producers in <cluster>_REPLY_TOPIC."
    )
    recallMessageEnable: bool = key(
        False, "Let producers recall messages that have their own delivery time.", since=SINCE_5
    )
    regionId: str = key(DEFAULT_REGION, "Property MSG_REGION of its messages.", allowed=_NAME)
    traceOn: bool = key(True, "Property TRACE_ON of its messages.")
    traceTopicEnable: bool = key(False, "Create the topic of message traces.")
    msgTraceTopicName: str = key(TRACE_TOPIC, "Name of the topic of message traces.", allowed=_NAME)
    defaultTopicQueueNums: int = key(
        8,
        "Maximum number of queues of a topic that a send creates.",
        allowed=range(1, limits.MAX_TOPIC_QUEUES + 1),
    )
    autoCreateTopicEnable: bool = key(True, "Create a topic at the first send to it.")
    autoCreateSubscriptionGroup: bool = key(
        True, "Create consumer groups when they are first used."
    )
    maxMsgsNumBatch: int = key(
        64, "Maximum number of messages in the response to a query.", allowed=_QUERY_MESSAGES
    )
    defaultQueryMaxNum: int = key(
        32,
        "Maximum number of messages in the response to a query by unique key.",
        allowed=_QUERY_MESSAGES,
    )
    maxTransferBytesOnMessageInMemory: int = key(
        262_144,
        "Maximum size of the messages in the response to a pull near the end of the log.",
        unit="bytes",
        allowed=_PULL_BYTES,
    )
    maxTransferCountOnMessageInMemory: int = key(
        32, "Maximum number of these messages.", allowed=_PULL_MESSAGES
    )
    maxTransferBytesOnMessageInDisk: int = key(
        65_536, "The same farther from the end of the log.", unit="bytes", allowed=_PULL_BYTES
    )
    maxTransferCountOnMessageInDisk: int = key(
        8, "Maximum number of these messages.", allowed=_PULL_MESSAGES
    )
    accessMessageInMemoryMaxRatio: int = key(
        40,
        "Size of the end of the log that is assumed to be in memory.",
        unit="% of the machine's memory",
        allowed=range(96),
    )
    longPollingEnable: bool = key(
        True, "Hold pulls at the end of a queue until messages arrive, as long as the pull allows."
    )
    shortPollingTimeMills: int = key(
        1_000,
        "Time for which such pulls are held without longPollingEnable.",
        unit="ms",
        allowed=_INTERVALS_MS,
    )
    enablePropertyFilter: bool = key(
        False, "Allow consumers to subscribe by an SQL92 expression over properties."
    )
    transactionTimeOut: int = key(
        6_000,
        "Age of a half message at which its producers are asked about it.",
        unit="ms",
        allowed=_INTERVALS_MS,
    )
    transactionCheckMax: int = key(15, "Maximum number of such questions.", allowed=range(1, 255))
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
        3_000, "Timeout of requests to name servers.", unit="ms", allowed=_INTERVALS_MS
    )
    flushConsumerOffsetInterval: int = key(
        5_000, "Time between two saves of changed tables.", unit="ms", allowed=_INTERVALS_MS
    )
    flushDelayOffsetInterval: int = key(
        10_000,
        "Maximum time between two saves of the offsets of delay levels.",
        unit="ms",
        allowed=_INTERVALS_MS,
    )

    def check_together(self) -> None:
        if 0 < self.listenPort <= VIP_DISTANCE:
            raise BadInput(f"listenPort {self.listenPort}: the port two below is needed, too")
        if self.brokerId:
            raise BadInput(
                f"brokerId {self.brokerId}: give 0; this broker cannot be a slave, "
                "but rocketlens tap follows one"
            )

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.namesrvAddr.split(";") if word.strip())

    @property
    def is_sync_master(self) -> bool:
        return self.brokerRole == "SYNC_MASTER"

    @property
    def listen_address(self) -> str:
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
        path = self.broker.storePathCommitLog
        return Path(path) if path else self.store_path / "commitlog"

    @property
    def layout(self) -> StoreLayout:
        is_elsewhere = self.commit_log_path != self.store_path / "commitlog"
        return StoreLayout(self.store_path, (self.commit_log_path,) if is_elsewhere else ())

    def with_broker(self, **changes: Any) -> "BrokerSettings":
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
    return java_properties.loads(text)


def parse_settings(text: str, **changes: Any) -> BrokerSettings:
    """Parse the content of a ``broker.conf``. Log a warning if any client can connect to the
    broker.

    ``changes`` are keys of the broker that override it.

    :raises BadInput: as :func:`settings_of` and :func:`check_advertised`.
    :raises OSError: if the file of TLS settings cannot be read.
    """
    settings = settings_of(java_properties.loads(text), "broker.conf").with_broker(**changes)
    check_advertised(settings.broker)
    if not settings.auth.is_on:
        warn_if_open(settings.broker.listen_address, settings.tls)
    return settings


def check_advertised(config: BrokerConfig) -> None:
    """Check that clients can reach the broker at the address that it reports to them.

    :raises BadInput: if it is unspecified, or loopback although the broker listens elsewhere.
    """
    listens, advertises = ip_address(config.listen_address), ip_address(config.brokerIP1)
    remedy = "name the address that clients use with --advertise or brokerIP1"
    if advertises.is_unspecified:
        raise BadInput(
            f"clients would get {advertises}, which is not a machine's address: {remedy}"
        )
    if advertises.is_loopback and not listens.is_loopback:
        raise BadInput(
            f"the broker would listen on {listens}, but clients on other machines would get "
            f"{advertises}, their own loopback address: {remedy}, or listen on {advertises}"
        )


def settings_of(properties: Mapping[str, str], where: str) -> BrokerSettings:
    """Return the settings of a ``broker.conf``; errors name the source ``where``.

    :raises BadInput: if a value is not allowed, or a key must not be ignored.
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
        raise BadInput(f"storePathCommitLog {path}: give the absolute path of one directory")
    return settings
