"""What a ``broker.conf`` says about the broker itself, in RocketMQ's own keys.

The store's keys are in :mod:`rocketlens.store.write.config`; what becomes of other keys is in
:mod:`rocketlens.model.config_keys`.
"""

import logging
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.config_keys import check_unknown_keys
from rocketlens.model.rocketmq import (
    DEFAULT_CLUSTER,
    DEFAULT_REGION,
    PERM_READ_WRITE,
    TRACE_TOPIC,
    is_topic_name,
)
from rocketlens.net.tls import (
    CONFIG_FILE_KEY,
    TLS_KEYS,
    TlsMode,
    TlsSettings,
    tls_of_properties,
)
from rocketlens.store.write.config import StoreConfig, parse_properties

_log: Final = logging.getLogger("rocketlens.broker")

VIP_DISTANCE: Final = 2
"""The second port is so far below the first."""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """RocketMQ's keys and defaults, the names as it spells them; sizes in bytes, times in ms."""

    brokerName: str = "broker-a"  # noqa: N815 - RocketMQ's spelling
    brokerClusterName: str = DEFAULT_CLUSTER  # noqa: N815
    brokerId: int = 0  # noqa: N815
    """0: the master."""
    brokerIP1: str = "127.0.0.1"  # noqa: N815
    """The address that clients are told, and that is in message ids."""
    bindAddress: str = ""  # noqa: N815
    """The address to listen on; ``brokerIP1`` where none is given."""
    listenPort: int = 10911  # noqa: N815
    """0: any."""
    namesrvAddr: str = ""  # noqa: N815
    """Addresses with semicolons between them."""
    storePathRootDir: str = ""  # noqa: N815
    storePathCommitLog: str = ""  # noqa: N815
    brokerPermission: int = PERM_READ_WRITE  # noqa: N815
    brokerRole: str = "ASYNC_MASTER"  # noqa: N815
    regionId: str = DEFAULT_REGION  # noqa: N815
    traceOn: bool = True  # noqa: N815
    traceTopicEnable: bool = False  # noqa: N815
    msgTraceTopicName: str = TRACE_TOPIC  # noqa: N815
    defaultTopicQueueNums: int = 8  # noqa: N815
    autoCreateTopicEnable: bool = True  # noqa: N815
    autoCreateSubscriptionGroup: bool = True  # noqa: N815
    maxMsgsNumBatch: int = 64  # noqa: N815
    """Messages that one query gives, at most."""
    defaultQueryMaxNum: int = 32  # noqa: N815
    """Messages that a query by unique key gives, at most."""
    maxTransferBytesOnMessageInMemory: int = 262_144  # noqa: N815
    maxTransferCountOnMessageInMemory: int = 32  # noqa: N815
    maxTransferBytesOnMessageInDisk: int = 65_536  # noqa: N815
    maxTransferCountOnMessageInDisk: int = 8  # noqa: N815
    accessMessageInMemoryMaxRatio: int = 40  # noqa: N815
    """Per cent of this machine's memory: so much of the log's end is taken to be in it."""
    registerNameServerPeriod: int = 30_000  # noqa: N815
    registerBrokerTimeoutMills: int = 3_000  # noqa: N815
    flushConsumerOffsetInterval: int = 5_000  # noqa: N815
    flushDelayOffsetInterval: int = 10_000  # noqa: N815

    def __post_init__(self) -> None:
        """Refuse what no broker can run with.

        :raises BadInput: with the key.
        """
        for key in ("brokerName", "brokerClusterName", "regionId", "msgTraceTopicName"):
            if not is_topic_name(getattr(self, key)):
                raise BadInput(f"{key} {getattr(self, key)!r}: letters, digits, % | _ and -")
        for key in ("brokerIP1", "bindAddress"):
            text = getattr(self, key)
            if text and not _is_address(text):
                raise BadInput(f"{key} {text!r} is not an IPv4 or IPv6 address")
        for key in ("storePathRootDir", "storePathCommitLog"):
            if "\0" in getattr(self, key):
                raise BadInput(f"{key} has a zero character in it")
        self._check("listenPort", 0, limits.MAX_PORT)
        if 0 < self.listenPort <= VIP_DISTANCE:
            raise BadInput(f"listenPort {self.listenPort}: the port two below is needed, too")
        self._check("brokerId", 0, 2**31 - 1)
        self._check("brokerPermission", 0, 7)
        self._check("defaultTopicQueueNums", 1, limits.MAX_TOPIC_QUEUES)
        for key in ("maxMsgsNumBatch", "defaultQueryMaxNum"):
            self._check(key, 1, 10_000)
        self._check("accessMessageInMemoryMaxRatio", 0, 95)
        for place in ("Memory", "Disk"):
            self._check(f"maxTransferBytesOnMessageIn{place}", 1, 2**30)
            self._check(f"maxTransferCountOnMessageIn{place}", 1, 100_000)
        for key in (
            "registerNameServerPeriod",
            "registerBrokerTimeoutMills",
            "flushConsumerOffsetInterval",
            "flushDelayOffsetInterval",
        ):
            self._check(key, 1, 86_400_000)
        if self.brokerRole not in ("ASYNC_MASTER", "SYNC_MASTER") or self.brokerId:
            raise BadInput(f"brokerRole {self.brokerRole!r}, brokerId {self.brokerId}: no slaves")

    def _check(self, key: str, low: int, high: int) -> None:
        if not low <= getattr(self, key) <= high:
            raise BadInput(f"{key} {getattr(self, key)}: give {low} to {high}")

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers."""
        return tuple(word.strip() for word in self.namesrvAddr.split(";") if word.strip())

    @property
    def listen_address(self) -> str:
        """The address to listen on."""
        return self.bindAddress or self.brokerIP1

    @classmethod
    def from_properties(cls, values: Mapping[str, str]) -> tuple[Self, dict[str, str]]:
        """Take the broker's keys; gives the configuration and the entries that are not its own.

        :raises BadInput: when a value cannot be read.
        """
        mine = {field.name: type(field.default) for field in fields(cls)}
        taken = {key: _read(key, text, mine[key]) for key, text in values.items() if key in mine}
        return cls(**taken), {key: text for key, text in values.items() if key not in mine}


NO_TLS: Final = TlsSettings()


class BrokerSettings(NamedTuple):
    """Everything that a ``broker.conf`` says."""

    broker: BrokerConfig
    store: StoreConfig
    unknown: tuple[str, ...] = ()
    """Keys that mean nothing here."""
    tls: TlsSettings = NO_TLS
    """What :mod:`rocketlens.net.tls` reads from the same file."""

    @property
    def store_path(self) -> Path:
        """The store directory: ``storePathRootDir``, or RocketMQ's default."""
        root = self.broker.storePathRootDir
        return Path(root) if root else Path.home() / "store"

    def with_broker(self, **changes: Any) -> "BrokerSettings":
        """Give the same with other values for some of the broker's keys."""
        return self._replace(broker=replace(self.broker, **changes))


def parse_settings(text: str) -> BrokerSettings:
    """Parse the content of a ``broker.conf``. Warns of a broker that everybody can reach.

    Raises what :func:`settings_of` does.
    """
    settings = settings_of(parse_properties(text), "broker.conf")
    warn_if_open(settings.broker.listen_address, settings.tls)
    return settings


def settings_of(properties: Mapping[str, str], where: str) -> BrokerSettings:
    """Return what the keys of a ``broker.conf`` say; ``where`` they stand is named in errors.

    :raises BadInput: when a value cannot be, a key must not be passed over, or
        ``storePathCommitLog`` is outside the store.
    :raises OSError: when the file of TLS settings cannot be read.
    """
    tls, values = take_tls(properties)
    broker, others = BrokerConfig.from_properties(values)
    store, unknown = StoreConfig.from_properties(others)
    keys = [field.name for config in (broker, store) for field in fields(config)]
    passed_over = warn_of_unknown(values, unknown, (*keys, *TLS_KEYS), where)
    settings = BrokerSettings(broker, store, passed_over, tls)
    if broker.storePathCommitLog:
        wanted = settings.store_path / "commitlog"
        if Path(broker.storePathCommitLog) != wanted:
            raise BadInput(f"storePathCommitLog {broker.storePathCommitLog}: it must be {wanted}")
    return settings


def warn_of_unknown(
    values: Mapping[str, str], unknown: Iterable[str], known: Iterable[str], where: str
) -> tuple[str, ...]:
    """Warn of keys that have no effect here, and return them.

    :raises BadInput: when one must not be passed over.
    """
    passed_over = check_unknown_keys(values, unknown, known, where)
    if passed_over:
        _log.warning("keys of %s without a meaning here: %s", where, ", ".join(passed_over))
    return passed_over


def take_tls(values: Mapping[str, str]) -> tuple[TlsSettings, dict[str, str]]:
    """Take the TLS settings of a server's configuration; gives them and the other entries.

    :raises BadInput: when they make no sense.
    :raises OSError: when the file that they name cannot be read.
    """
    file = values.get(CONFIG_FILE_KEY, "").strip()
    if not file:
        return tls_of_properties(values)
    if "\0" in file:
        raise BadInput(f"{CONFIG_FILE_KEY} has a zero character in it")
    with Path(file).open("rb") as opened:
        # As Java reads it.
        content = opened.read(limits.MAX_SERVER_CONFIG_BYTES).decode("latin-1")
    named = {key: text for key, text in parse_properties(content).items() if key[:4] == "tls."}
    rest = {key: text for key, text in values.items() if key != CONFIG_FILE_KEY}
    return tls_of_properties({**rest, **named})


def warn_if_open(address: str, tls: TlsSettings) -> None:
    """Warn of a server that others than this machine reach, and that tells nobody from another."""
    if ip_address(address).is_loopback:
        return
    server = tls.server
    if server.mode is not TlsMode.ENFORCING or server.context is None:
        _log.warning(
            "listening on %s without TLS: whoever reaches it can read and write everything", address
        )
    elif server.context.verify_mode is not ssl.CERT_REQUIRED:
        _log.warning(
            "listening on %s with TLS, and clients need no certificate "
            "(tls.server.need.client.auth): whoever reaches it can read and write everything",
            address,
        )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _read(key: str, text: str, kind: type) -> Any:
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise BadInput(f"{key} {text!r} is neither true nor false")
        return text.lower() == "true"
    if kind is int:
        if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII):
            raise BadInput(f"{key} {text!r} is not a whole number")
        return int(text)
    return text
