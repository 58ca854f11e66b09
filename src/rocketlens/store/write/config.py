"""The store's configuration keys, in RocketMQ's spelling. Source: ``MessageStoreConfig``."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.formats.index_file import DEFAULT_ENTRY_COUNT, DEFAULT_SLOT_COUNT, Geometry
from rocketlens.model.config_keys import DAY_MS, OURS, SINCE_5, Configuration, key
from rocketlens.model.rocketmq import DELAY_LEVELS, parse_delay_levels

MIN_SEGMENT_BYTES: Final = 4096
"""Minimum ``mappedFileSizeCommitLog``. RocketMQ: none."""
ASYNC_FLUSH: Final = "ASYNC_FLUSH"
SYNC_FLUSH: Final = "SYNC_FLUSH"

_MIB: Final = 1024 * 1024
_INTERVALS_MS: Final = range(1, DAY_MS + 1)
_HOURS: Final = range(876_001)
_PERCENTS: Final = range(101)


class Limits(NamedTuple):
    """Bounds of a message."""

    message_bytes: int
    """Maximum body. The record can be 64 KiB larger."""
    long_topics: bool
    """Whether topics of more than 127 characters are stored, as in RocketMQ 5."""


@dataclass(frozen=True, slots=True)
class StoreConfig(Configuration):
    """The store's keys with RocketMQ's names and defaults."""

    mappedFileSizeCommitLog: int = key(
        1024 * _MIB,
        "Size of a commit log file.",
        unit="bytes",
        allowed=range(MIN_SEGMENT_BYTES, limits.MAX_INT + 1),
    )
    mappedFileSizeConsumeQueue: int = key(
        6_000_000,
        "Size of a consume queue file, rounded up to whole entries of 20 bytes.",
        unit="bytes",
        allowed=range(ENTRY_BYTES, limits.MAX_INT + 1),
    )
    maxMessageSize: int = key(
        4 * _MIB, "Largest body of a message.", unit="bytes", allowed=range(1, 512 * _MIB + 1)
    )
    autoMessageVersionOnTopicLen: bool = key(
        True,
        "Store a message whose topic has over 127 bytes as a record of version 2.",
        since=SINCE_5,
    )
    messageDelayLevel: str = key(
        DELAY_LEVELS, "The delay of each level, from 1 on; numbers with s, m, h or d."
    )
    timerWheelEnable: bool = key(
        True, "Accept and deliver messages with a delivery time of their own.", since=SINCE_5
    )
    timerMaxDelaySec: int = key(
        259_200,
        "Maximum delay of a message with a delivery time of its own.",
        unit="s",
        allowed=range(1, limits.MAX_INT + 1),
        since=SINCE_5,
    )
    flushDiskType: str = key(
        ASYNC_FLUSH,
        "Acknowledge a send before (ASYNC_FLUSH) or after (SYNC_FLUSH) its message is on the disk.",
        allowed=(ASYNC_FLUSH, SYNC_FLUSH),
    )
    flushIntervalCommitLog: int = key(
        500, "Time between two flushes of the commit log.", unit="ms", allowed=_INTERVALS_MS
    )
    flushIntervalConsumeQueue: int = key(
        1000, "Time between two flushes of consume queues.", unit="ms", allowed=_INTERVALS_MS
    )
    syncFlushTimeout: int = key(
        5000,
        "Maximum time that a send waits for the disk with SYNC_FLUSH.",
        unit="ms",
        allowed=_INTERVALS_MS,
    )
    messageIndexEnable: bool = key(True, "Build index files, for queries by key.")
    maxHashSlotNum: int = key(
        DEFAULT_SLOT_COUNT,
        "Hash slots of an index file, which has at most 2 GiB.",
        allowed=range(1, limits.MAX_INT + 1),
    )
    maxIndexNum: int = key(
        DEFAULT_ENTRY_COUNT, "Entries of an index file.", allowed=range(2, limits.MAX_INT + 1)
    )
    fileReservedTime: int = key(
        72,
        "Age at which commit log files expire, since their last write.",
        unit="hours",
        allowed=_HOURS,
    )
    fileReservedBytes: int = key(
        0,
        "Maximum size of the log: its oldest files beyond it are deleted at any age; 0: no limit.",
        unit="bytes",
        allowed=range(limits.MAX_PHYSICAL_OFFSET),
        since=OURS,
    )
    deleteWhen: str = key(
        "04",
        "Hours of the day, local time, in which expired files are deleted: 04, or 04;16 for two.",
    )
    diskMaxUsedSpaceRatio: int = key(
        75,
        "Above it expired files are deleted at any hour.",
        unit="% of the disk",
        allowed=_PERCENTS,
    )
    diskSpaceCleanForciblyRatio: int = key(
        85,
        "Above it files that are not expired are deleted, too, the oldest first.",
        unit="% of the disk",
        allowed=_PERCENTS,
        since=SINCE_5,
    )
    diskSpaceWarningLevelRatio: int = key(
        90, "Above it sends are refused.", unit="% of the disk", allowed=_PERCENTS, since=SINCE_5
    )
    cleanFileForciblyEnable: bool = key(True, "Whether diskSpaceCleanForciblyRatio has an effect.")
    minFileReservedTime: int = key(
        1,
        "Minimum age of commit log files that a full disk deletes; 0 in RocketMQ.",
        unit="hours",
        allowed=_HOURS,
        since=OURS,
    )
    cleanResourceInterval: int = key(
        10_000, "Time between two rounds of cleaning.", unit="ms", allowed=_INTERVALS_MS
    )

    def check_together(self) -> None:
        """Check the size of index files, and values with a syntax of their own.

        :raises BadInput: if one is not valid. The message names the key.
        """
        if self.geometry.file_bytes > limits.MAX_INT:
            raise BadInput("maxHashSlotNum and maxIndexNum make index files over 2 GiB")
        parse_delay_levels(self.messageDelayLevel)
        for hour in self.delete_hours:
            if not 0 <= hour <= 23:
                raise BadInput(f"deleteWhen {self.deleteWhen!r}: hours are 00 to 23")

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.maxHashSlotNum, self.maxIndexNum)

    @property
    def queue_file_bytes(self) -> int:
        """Size of a consume queue file, rounded up to whole entries as in RocketMQ."""
        return -(-self.mappedFileSizeConsumeQueue // ENTRY_BYTES) * ENTRY_BYTES

    @property
    def is_sync_flush(self) -> bool:
        return self.flushDiskType == SYNC_FLUSH

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """Local hours of the day in which expired files are deleted."""
        try:
            return tuple(int(hour) for hour in self.deleteWhen.split(";"))
        except ValueError:
            raise BadInput(f"deleteWhen {self.deleteWhen!r}: give hours like 04 or 04;16") from None

    def is_time_to_delete(self, now_ms: int) -> bool:
        return datetime.fromtimestamp(now_ms / 1000).astimezone().hour in self.delete_hours
