"""What a broker's configuration file says about its store, in RocketMQ's own keys.

A ``broker.conf`` is a Java properties file. The keys below are the store's; others belong to the
broker, or to nobody: :meth:`StoreConfig.from_properties` hands back what it did not take, so that
the caller can name unknown keys in a warning.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Self

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.formats.index_file import (
    DEFAULT_ENTRY_COUNT,
    DEFAULT_SLOT_COUNT,
    Geometry,
)
from rocketlens.model.rocketmq import DELAY_LEVELS, parse_delay_levels

ASYNC_FLUSH: Final = "ASYNC_FLUSH"
SYNC_FLUSH: Final = "SYNC_FLUSH"

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """RocketMQ's keys and defaults, the names as it spells them; sizes in bytes, times in ms.

    ``minFileReservedTime`` is ours.
    """

    mappedFileSizeCommitLog: int = 1024 * 1024 * 1024  # noqa: N815 - RocketMQ's spelling
    mappedFileSizeConsumeQueue: int = 6_000_000  # noqa: N815
    maxMessageSize: int = 4 * 1024 * 1024  # noqa: N815
    autoMessageVersionOnTopicLen: bool = True  # noqa: N815
    messageDelayLevel: str = DELAY_LEVELS  # noqa: N815
    flushDiskType: str = ASYNC_FLUSH  # noqa: N815
    flushIntervalCommitLog: int = 500  # noqa: N815
    flushIntervalConsumeQueue: int = 1000  # noqa: N815
    syncFlushTimeout: int = 5000  # noqa: N815
    messageIndexEnable: bool = True  # noqa: N815
    maxHashSlotNum: int = DEFAULT_SLOT_COUNT  # noqa: N815
    maxIndexNum: int = DEFAULT_ENTRY_COUNT  # noqa: N815
    fileReservedTime: int = 72  # noqa: N815
    """Hours."""
    deleteWhen: str = "04"  # noqa: N815
    """Hours of the day in the local zone, separated by semicolons."""
    diskMaxUsedSpaceRatio: int = 75  # noqa: N815
    diskSpaceCleanForciblyRatio: int = 85  # noqa: N815
    diskSpaceWarningLevelRatio: int = 90  # noqa: N815
    cleanFileForciblyEnable: bool = True  # noqa: N815
    minFileReservedTime: int = 1  # noqa: N815
    """Hours for which a segment is kept however full the disk is. Ours; RocketMQ: none, so 0."""
    cleanResourceInterval: int = 10_000  # noqa: N815

    def __post_init__(self) -> None:
        """Refuse what no store can be made with.

        :raises BadInput: with the key.
        """
        self._check("mappedFileSizeCommitLog", limits.MIN_SEGMENT_BYTES, limits.MAX_INT)
        self._check("mappedFileSizeConsumeQueue", ENTRY_BYTES, limits.MAX_INT)
        self._check("maxMessageSize", 1, 512 * 1024 * 1024)
        self._check("maxHashSlotNum", 1, limits.MAX_INT)
        self._check("maxIndexNum", 2, limits.MAX_INT)
        if self.geometry.file_bytes > limits.MAX_INT:
            raise BadInput("maxHashSlotNum and maxIndexNum make index files over 2 GiB")
        if self.flushDiskType not in (ASYNC_FLUSH, SYNC_FLUSH):
            raise BadInput(f"flushDiskType {self.flushDiskType!r}: {ASYNC_FLUSH} or {SYNC_FLUSH}")
        for key in ("flushIntervalCommitLog", "flushIntervalConsumeQueue", "cleanResourceInterval"):
            self._check(key, 1, 86_400_000)
        self._check("minFileReservedTime", 0, 876_000)
        parse_delay_levels(self.messageDelayLevel)
        for hour in self.delete_hours:
            if not 0 <= hour <= 23:
                raise BadInput(f"deleteWhen {self.deleteWhen!r}: hours are 00 to 23")

    def _check(self, key: str, low: int, high: int) -> None:
        if not low <= getattr(self, key) <= high:
            raise BadInput(f"{key} {getattr(self, key)}: give {low} to {high}")

    @property
    def geometry(self) -> Geometry:
        """How large index files are."""
        return Geometry(self.maxHashSlotNum, self.maxIndexNum)

    @property
    def queue_file_bytes(self) -> int:
        """Size of a consume queue file: whole entries, rounded up as RocketMQ does."""
        return -(-self.mappedFileSizeConsumeQueue // ENTRY_BYTES) * ENTRY_BYTES

    @property
    def is_sync_flush(self) -> bool:
        """Whether an acknowledgement waits for the disk."""
        return self.flushDiskType == SYNC_FLUSH

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """Hours of the day in which expired files are deleted."""
        try:
            return tuple(int(hour) for hour in self.deleteWhen.split(";"))
        except ValueError:
            raise BadInput(f"deleteWhen {self.deleteWhen!r}: give hours like 04 or 04;16") from None

    def is_time_to_delete(self, now_ms: int) -> bool:
        """Return whether the local hour is one in which expired files are deleted."""
        return datetime.fromtimestamp(now_ms / 1000).astimezone().hour in self.delete_hours

    @classmethod
    def from_properties(cls, values: Mapping[str, str]) -> tuple[Self, dict[str, str]]:
        """Take the store's keys; gives the configuration and the entries that are not its own.

        :raises BadInput: when a value cannot be read.
        """
        readers: dict[type, Callable[[str, str], Any]] = {int: _integer, bool: _boolean, str: _text}
        mine = {field.name: readers[type(field.default)] for field in fields(cls)}
        taken = {key: mine[key](key, text) for key, text in values.items() if key in mine}
        return cls(**taken), {key: text for key, text in values.items() if key not in mine}


def parse_properties(text: str) -> dict[str, str]:
    """Read a Java properties file: comments, ``=``, ``:`` or blanks, continued lines, escapes."""
    values: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip(" \t\f")
        pending = ""
        if not line or (line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        key, value = _split(line)
        values[_unescape(key)] = _unescape(value)
    if pending:
        key, value = _split(pending)
        values[_unescape(key)] = _unescape(value)
    return values


def _split(line: str) -> tuple[str, str]:
    match = re.match(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", line)
    assert match is not None  # noqa: S101 - every part of it may be empty
    return match[1], line[match.end() :]


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replaced, text)


def _integer(key: str, text: str) -> int:
    if not re.fullmatch(r"-?\d{1,19}", text.strip(), re.ASCII):
        raise BadInput(f"{key} {text!r} is not a whole number")
    return int(text)


def _boolean(key: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise BadInput(f"{key} {text!r} is neither true nor false")
    return text.strip().lower() == "true"


def _text(_key: str, text: str) -> str:
    return text.strip()
