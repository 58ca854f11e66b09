"""Decides what is old enough to go, and takes it: log, then queues, then index files.

RocketMQ's rules. A segment is expired when its file was last written more than
``fileReservedTime`` hours ago. Expired segments go, oldest first, at the hours of ``deleteWhen``
and whenever the disk is fuller than ``diskMaxUsedSpaceRatio``; above
``diskSpaceCleanForciblyRatio`` segments go whatever their age. At most ten go at once, up to the
first that is not expired, and never the last. Above ``diskSpaceWarningLevelRatio`` nothing is
stored any more.

Who has a deleted file open reads on: its bytes go with the last mapping.
"""

from pathlib import Path
from typing import Final, NamedTuple

from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.formats.consumequeue_entry import decode as decode_entry
from rocketlens.store import fs
from rocketlens.store.config import StoreConfig
from rocketlens.store.disk import Disk

MOST_AT_ONCE: Final = 10
_HOUR_MS: Final = 3_600_000


class SegmentAge(NamedTuple):
    """A segment, and when it was last written."""

    path: Path
    base_offset: int
    modified_ms: int


class CleanPlan(NamedTuple):
    """What a round of cleaning does."""

    segments: tuple[SegmentAge, ...]
    """Those to delete, oldest first."""
    is_full: bool
    """Whether the disk is too full to store anything."""


def plan(
    config: StoreConfig, segments: list[SegmentAge], now_ms: int, used_ratio: float
) -> CleanPlan:
    """Choose the segments to delete. ``segments`` ascend; ``used_ratio`` is 0 to 1."""
    is_full = used_ratio > config.diskSpaceWarningLevelRatio / 100
    is_forced = config.cleanFileForciblyEnable and (
        used_ratio > config.diskSpaceCleanForciblyRatio / 100
    )
    is_due = config.is_time_to_delete(now_ms) or used_ratio > config.diskMaxUsedSpaceRatio / 100
    expired: list[SegmentAge] = []
    if is_due or is_forced:
        for segment in segments[:-1][:MOST_AT_ONCE]:
            age_ms = now_ms - segment.modified_ms
            if not is_forced and age_ms <= config.fileReservedTime * _HOUR_MS:
                break
            expired.append(segment)
    return CleanPlan(tuple(expired), is_full)


def remove(plan: CleanPlan, disk: Disk, directory: Path) -> None:
    """Delete the segments of a plan, each durably before the next.

    So a power cut leaves no hole in the log, and brings none back whose queue and index files were
    deleted afterwards.

    :raises OSError: when one cannot be deleted.
    """
    for segment in plan.segments:
        disk.remove_file(segment.path)
        disk.sync_directory(directory)


def expired_queue_files(
    files: list[tuple[int, Path]], file_bytes: int, min_physical_offset: int
) -> list[Path]:
    """Choose the files of a queue whose last entry is for a deleted record, never the last file."""
    expired: list[Path] = []
    for _, path in files[:-1]:
        with fs.MappedFile(path) as mapped:
            if len(mapped) < file_bytes:
                break
            last = decode_entry(mapped.view, file_bytes - ENTRY_BYTES)
        if last.is_end or last.physical_offset >= min_physical_offset:
            break
        expired.append(path)
    return expired
