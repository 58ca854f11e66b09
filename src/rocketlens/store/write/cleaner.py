"""Decides what is old enough to go, and takes it: log, then queues, then index files.

RocketMQ's rules. A segment is expired when its file was last written more than
``fileReservedTime`` hours ago. Expired segments go, oldest first, at the hours of ``deleteWhen``
and whenever the disk is fuller than ``diskMaxUsedSpaceRatio``; above
``diskSpaceCleanForciblyRatio`` segments go that are not expired, too, if they were last written
more than ``minFileReservedTime`` hours ago, which RocketMQ does not ask: what is younger is kept,
and messages are refused first. At most ten go at once, up to the first that stays, and never the
last. Above ``diskSpaceWarningLevelRatio`` nothing is stored any more.

Who has a deleted file open reads on: its bytes go with the last mapping.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.formats.consumequeue_entry import decode as decode_entry
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.queue_append import QueueWriter

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
    forced_count: int = 0
    """How many of them, from the first that is not expired on, go only because it is so full."""


def plan(
    config: StoreConfig,
    segments: list[SegmentAge],
    now_ms: int,
    used_ratio: float,
    *,
    may_force: bool = True,
) -> CleanPlan:
    """Choose the segments to delete. ``segments`` ascend; ``used_ratio`` is 0 to 1.

    Without ``may_force`` only what is expired goes.
    """
    is_full = used_ratio > config.diskSpaceWarningLevelRatio / 100
    is_forced = (
        may_force
        and config.cleanFileForciblyEnable
        and used_ratio > config.diskSpaceCleanForciblyRatio / 100
    )
    is_due = config.is_time_to_delete(now_ms) or used_ratio > config.diskMaxUsedSpaceRatio / 100
    kept_ms = config.minFileReservedTime * _HOUR_MS
    chosen: list[SegmentAge] = []
    expired_count = 0
    if is_due or is_forced:
        for segment in segments[:-1][: limits.MAX_DELETED_SEGMENTS]:
            age_ms = now_ms - segment.modified_ms
            if age_ms > config.fileReservedTime * _HOUR_MS:
                expired_count += 1
            # Of a clock that was set back, files are younger than new; without a floor they go.
            elif not is_forced or (kept_ms and age_ms < kept_ms):
                break
            chosen.append(segment)
    return CleanPlan(tuple(chosen), is_full, len(chosen) - expired_count)


def remove(plan: CleanPlan, disk: Disk, directory: Path) -> None:
    """Delete the segments of a plan, each durably before the next.

    So a power cut leaves no hole in the log, and brings none back whose queue and index files were
    deleted afterwards.

    :raises OSError: when one cannot be deleted.
    """
    for segment in plan.segments:
        disk.remove_file(segment.path)
        disk.sync_directory(directory)


def describe_forced(plan: CleanPlan, now_ms: int, used_ratio: float, topics: list[str]) -> str:
    """Return a line that tells which messages go because the disk is full, not because of age."""
    ages = [max(now_ms - segment.modified_ms, 0) // 60_000 for segment in plan.segments]
    files = ", ".join(
        f"{segment.path.name} (last written {minutes} min ago)"
        for segment, minutes in zip(plan.segments, ages, strict=True)
    )
    named = ", ".join(topics[: limits.MAX_TOPICS_NAMED])
    if len(topics) > limits.MAX_TOPICS_NAMED:
        named += " and others"
    return (
        f"the disk is {used_ratio:.0%} full: {plan.forced_count} of {len(plan.segments)} commit "
        f"log files are deleted before they are fileReservedTime hours old: {files}; with "
        f"messages of {named or 'no topic'}"
    )


def topics_below(
    queues: Iterable[QueueWriter], first_of: Callable[[QueueWriter], int], end_offset: int
) -> list[str]:
    """Return the topics with a queue whose first message is below a physical offset, by name.

    ``first_of`` gives a queue's first queue offset. At most some names, of at most some queues.
    """
    topics: set[str] = set()
    for queue in islice(queues, limits.MAX_QUEUES_ASKED):
        if queue.topic in topics or len(topics) > limits.MAX_TOPICS_NAMED:
            continue
        first = queue.entry(first_of(queue))
        if first is not None and not first.is_filler and first.physical_offset < end_offset:
            topics.add(queue.topic)
    return sorted(topics)


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
