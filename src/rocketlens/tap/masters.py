"""Finds the master of a followed broker, and copies its tables: topics, groups and offsets."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.client.admin.cluster_status import runtime_number
from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.cluster import ClusterCalls, runtime_table
from rocketlens.client.connect.topology import Topology
from rocketlens.errors import BadAnswer, BrokerError, CopyFailed
from rocketlens.formats.index_file import DEFAULT_GEOMETRY, Geometry
from rocketlens.model.rocketmq import MASTER_ID
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.write.config import StoreConfig
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.brokers import GET_ALL_TOPIC_CONFIG
from rocketlens.wire.commands.groups import (
    GET_ALL_CONSUMER_OFFSET,
    GET_ALL_DELAY_OFFSET,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
)
from rocketlens.wire.declare import AnyCommand, NoFields

_DIRECTORY_NAME: Final = re.compile(r"[A-Za-z0-9%|_-][A-Za-z0-9%|_.-]{0,199}")
"""Broker names that are also safe names of directories."""
REPLACED: Final = ".replaced-"
"""Part of the name of a directory with a copy of an earlier log."""
_NUMBERS: Final = {
    "mappedFileSizeCommitLog": ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"),
    "mappedFileSizeConsumeQueue": ("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"),
    "maxHashSlotNum": ("maxHashSlotNum",),
    "maxIndexNum": ("maxIndexNum",),
}
"""Keys of the broker on which the bytes of the copy depend, each with its spellings."""
_HOST: Final = re.compile(r"[A-Za-z0-9:%_-]([A-Za-z0-9:%_.-]{0,252}[A-Za-z0-9])?")
_MAX_PORT: Final = 65_535
_MAX_FILE_BYTES: Final = 1 << 40
_FOLLOWED_ROLES: Final = ("ASYNC_MASTER", "SYNC_MASTER")


class MasterAbsent(CopyFailed):
    """The broker has no registered master now, and can have one later.

    ``is_known``: a name server knows the broker, for example by its slaves, or knows no broker yet.
    """

    def __init__(self, message: str, *, is_known: bool) -> None:
        super().__init__(message)
        self.is_known: Final = is_known


class Master(NamedTuple):
    """A master, from its own answers and the name servers'."""

    name: str
    address: str
    ha_host: str
    ha_port: int
    min_offset: int
    end_offset: int
    config: dict[str, str]
    """The store's keys on which the copy depends, with our names."""

    @property
    def segment_bytes(self) -> int:
        return int(self.config["mappedFileSizeCommitLog"])

    def store_config(self, **own: Any) -> StoreConfig:
        """:raises BadInput: if the broker's configuration cannot be used."""
        return replace(StoreConfig.from_properties(self.config)[0], **own)


async def find_master(cluster: ClusterCalls, topology: Topology, name: str) -> Master:
    """:raises MasterAbsent: if there is no such broker, or it has no master.
    :raises CopyFailed: if its master cannot be followed.
    :raises BadAnswer: if an answer is invalid.
    :raises BrokerError: if the broker refuses a request.
    :raises RemotingError: if the broker, or every name server, does not answer.
    """
    brokers = (await topology.brokers()).value
    if name not in brokers:
        names = ", ".join(sorted(brokers)[: limits.MAX_NAMED_STORES]) or "none"
        message = f"no name server knows broker {name}; they know {names}"
        raise MasterAbsent(message, is_known=not brokers)
    address = brokers[name].addresses.get(MASTER_ID)
    if address is None:
        message = f"broker {name} has no master that is registered now"
        raise MasterAbsent(message, is_known=True)
    config = await broker_calls.configuration(cluster, address)
    table = await runtime_table(cluster, address)
    least, end = (runtime_number(table.get(f"commitLog{end}Offset")) for end in ("Min", "Max"))
    if least is None or end is None or not max(least, 0) <= end:
        raise BadAnswer(address, "GET_BROKER_RUNTIME_INFO", "it lacks the offsets of the log")
    # RocketMQ 4.9 has -1 as the minimum of a log without files.
    least, end = int(end if least < 0 else least), int(end)
    try:
        ha_address, keys = _ha_address(config, address, name), _store_keys(config, name)
    except ValueError as error:
        raise BadAnswer(address, "GET_BROKER_CONFIG", str(error)) from error
    return Master(name, address, *ha_address, least, end, keys)


def directory_name(broker_name: str) -> str:
    """:raises CopyFailed: if the name is not safe for a directory."""
    if not _DIRECTORY_NAME.fullmatch(broker_name) or REPLACED in broker_name:
        raise CopyFailed(f"broker name {broker_name[:300]!r} cannot be the name of a directory")
    return broker_name


def _ha_address(config: dict[str, str], address: str, name: str) -> tuple[str, int]:
    role = config.get("brokerRole", "ASYNC_MASTER")
    if role not in _FOLLOWED_ROLES or config.get("enableControllerMode") == "true":
        raise CopyFailed(
            f"broker {name} cannot be followed: its role is {role}"
            f"{' in controller mode' if role in _FOLLOWED_ROLES else ''}, not "
            f"{' or '.join(_FOLLOWED_ROLES)} without a controller"
        )
    if config.get("enableDLegerCommitLog") == "true":
        raise CopyFailed(f"broker {name} cannot be followed: its log has DLedger's format")
    host, _, port = address.rpartition(":")
    ha_host = config.get("brokerIP2") or host.strip("[]")
    if not _HOST.fullmatch(ha_host) or ".." in ha_host:
        raise ValueError(f"brokerIP2 is {ha_host[:300]!r}, which is not an address")
    ha_port = _number(config, "haListenPort", _MAX_PORT) or int(port) + 1
    return ha_host, ha_port


def _number(config: dict[str, str], key: str, most: int) -> int:
    """:raises ValueError: if the value is not a number from 1 to ``most``. Missing: 0."""
    text = config.get(key) or ""
    if not text:
        return 0
    # Very long numbers take long to parse.
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    if not 0 < number <= most:
        raise ValueError(f"{key} is {text[:300]!r}, which is not a number from 1 to {most}")
    return number


def _store_keys(config: dict[str, str], name: str) -> dict[str, str]:
    keys = {}
    for ours, spellings in _NUMBERS.items():
        number = next(filter(None, (_number(config, key, _MAX_FILE_BYTES) for key in spellings)), 0)
        if number:
            keys[ours] = str(number)
    if "mappedFileSizeCommitLog" not in keys:
        raise CopyFailed(f"broker {name} does not report the size of its log files")
    slots = int(keys.get("maxHashSlotNum", DEFAULT_GEOMETRY.slot_count))
    entries = int(keys.get("maxIndexNum", DEFAULT_GEOMETRY.entry_count))
    if Geometry(slots, entries).file_bytes > DEFAULT_GEOMETRY.file_bytes:
        # The copy builds its own index, whose size a broker must not decide.
        for key in ("maxHashSlotNum", "maxIndexNum"):
            keys.pop(key, None)
    levels = config.get("messageDelayLevel")
    return {**keys, "messageDelayLevel": levels} if levels else keys


_TABLES: Final = (
    (GET_ALL_TOPIC_CONFIG, "topics.json"),
    (GET_ALL_CONSUMER_OFFSET, "consumerOffset.json"),
    (GET_ALL_DELAY_OFFSET, "delayOffset.json"),
    (GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroup.json"),
)
_UNKNOWN: Final = frozenset({ResponseCode.REQUEST_CODE_NOT_SUPPORTED})


async def copy_tables(
    cluster: ClusterCalls, address: str, layout: StoreLayout, disk: Disk, written: dict[str, bytes]
) -> None:
    """Request the tables of a master as a slave does, and write those that differ from ``written``,
    which is updated. A broker need not have all of them.

    The answer is the content of the broker's file in ``config/``; it is written unchanged, if it is
    JSON. If one table fails, the others are still written.

    :raises BrokerError: if the broker refuses a request.
    :raises RemotingError: if it does not answer, or a table is not JSON.
    :raises OSError: if a file cannot be written.
    """
    refused: BrokerError | BadAnswer | None = None
    for command, file in _TABLES:
        try:
            body = (await cluster.ask(address, command, NoFields())).body
            if body and written.get(file) != body:
                _check_table(address, command, body)
                disk.make_directory(layout.config)
                disk.write_durably(layout.config / file, body)
                written[file] = body
        except (BrokerError, BadAnswer) as error:
            if not (isinstance(error, BrokerError) and error.code in _UNKNOWN):
                refused = refused or error
    if refused is not None:
        raise refused


def _check_table(address: str, command: AnyCommand, body: bytes) -> None:
    try:
        is_table = isinstance(json.loads(body), Mapping)
    except (ValueError, RecursionError):
        # RocketMQ 4.9 writes numbers as names, which is not JSON.
        is_table = body.lstrip().startswith(b"{") and body.rstrip().endswith(b"}")
    if not is_table or len(body) > limits.MAX_JSON_BODY_BYTES:
        raise BadAnswer(address, command.code.name, "it is not a table")
