"""Deletes expired files of a store: log, then queues, then index files.

The rules are RocketMQ's, with two more keys. A segment is expired ``fileReservedTime`` hours after
its last write. The oldest segments are deleted

* if they are expired: at the hours of ``deleteWhen``, and whenever the disk is fuller than
  ``diskMaxUsedSpaceRatio``;
* if the log is larger than ``fileReservedBytes`` (RocketLens only): at once;
* if the disk is fuller than ``diskSpaceCleanForciblyRatio``: also before they are expired, but
  ``minFileReservedTime`` hours after the last write (RocketLens only).

At most ten are deleted at once, up to the first that must stay, and never the last. Above
``diskSpaceWarningLevelRatio`` messages are refused.

Readers with an open deleted file can read on: the disk space is freed with the last mapping.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, field

from rocketlens.errors import StoreFull
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.formats.consumequeue_entry import decode as decode_entry
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.write.append import Appender
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.durability import Durability
from rocketlens.store.write.index.index_driver import IndexDriver
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.store.write.refused_writes import DISK_FULL
from rocketlens.store.write.store_views import LogView, QueueView

MAX_TOPICS_NAMED: Final = 20
MAX_QUEUES_READ: Final = 2_000
"""Queues that are read for the topics of deleted segments, in some 0.1 s."""
MAX_DELETED_SEGMENTS: Final = 10
"""Segments that a cleaner deletes at once. RocketMQ: the same (deleteFileBatchMax)."""
_log: Final = logging.getLogger(__name__)

_QUEUES_AT_ONCE: Final = 50
"""Queues that are cleaned in one step, in some milliseconds."""
_HOUR_MS: Final = 3_600_000


class SegmentAge(NamedTuple):
    """A segment, and its time of modification."""

    path: Path
    base_offset: int
    modified_ms: int


class CleanPlan(NamedTuple):
    """The decisions of a round of cleaning."""

    segments: tuple[SegmentAge, ...]
    is_full: bool
    """Whether the disk is too full to store anything."""
    forced_count: int = 0
    """The number of last segments that are deleted only because the disk is full."""
    is_too_large: bool = False
    """Whether some are deleted because the log is larger than ``fileReservedBytes``."""


def plan(
    config: StoreConfig,
    segments: list[SegmentAge],
    now_ms: int,
    used_ratio: float,
    *,
    may_force: bool = True,
) -> CleanPlan:
    """Choose the segments to delete. ``segments`` ascend; ``used_ratio`` is 0 to 1.

    Without ``may_force``, no segment is deleted only because the disk is full.
    """
    is_full = used_ratio > config.diskSpaceWarningLevelRatio / 100
    is_forced = (
        may_force
        and config.cleanFileForciblyEnable
        and used_ratio > config.diskSpaceCleanForciblyRatio / 100
    )
    is_due = config.is_time_to_delete(now_ms) or used_ratio > config.diskMaxUsedSpaceRatio / 100
    kept_ms = config.minFileReservedTime * _HOUR_MS
    excess = 0
    if config.fileReservedBytes:
        excess = len(segments) - config.fileReservedBytes // config.mappedFileSizeCommitLog
    chosen: list[SegmentAge] = []
    expired_count = 0
    if is_due or is_forced or excess > 0:
        for number, segment in enumerate(segments[:-1][:MAX_DELETED_SEGMENTS]):
            age_ms = now_ms - segment.modified_ms
            is_expired = age_ms > config.fileReservedTime * _HOUR_MS
            if number < excess or (is_expired and (is_due or is_forced)):
                expired_count += 1
            # After a clock was set back, ages can be negative: without a minimum they would pass.
            elif not is_forced or (kept_ms and age_ms < kept_ms):
                break
            chosen.append(segment)
    return CleanPlan(tuple(chosen), is_full, len(chosen) - expired_count, excess > 0)


def remove(plan: CleanPlan, disk: Disk, directory: Path) -> None:
    """Delete the segments of a plan, each durably before the next.

    So a power cut leaves no hole in the log, and restores no segment whose queue and index files
    were deleted afterwards.
    """
    for segment in plan.segments:
        disk.remove_file(segment.path)
        disk.sync_directory(directory)


def describe_forced(plan: CleanPlan, now_ms: int, used_ratio: float, topics: list[str]) -> str:
    ages = [max(now_ms - segment.modified_ms, 0) // 60_000 for segment in plan.segments]
    files = ", ".join(
        f"{segment.path.name} (last written {minutes} min ago)"
        for segment, minutes in zip(plan.segments, ages, strict=True)
    )
    named = ", ".join(topics[:MAX_TOPICS_NAMED])
    if len(topics) > MAX_TOPICS_NAMED:
        named += " and others"
    return (
        f"the disk is {used_ratio:.0%} full: {plan.forced_count} of {len(plan.segments)} commit "
        f"log files are deleted before they are fileReservedTime hours old: {files}; with "
        f"messages of {named or 'no topic'}"
    )


def describe_deleted(plan: CleanPlan, config: StoreConfig, used_ratio: float) -> str:
    names = [segment.path.name for segment in plan.segments]
    files = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    up_to = datetime.fromtimestamp(plan.segments[-1].modified_ms / 1000, UTC)
    if plan.forced_count:
        why = f"the disk is {used_ratio:.0%} full, over diskSpaceCleanForciblyRatio"
    elif plan.is_too_large:
        why = f"the log is larger than fileReservedBytes ({config.fileReservedBytes})"
    else:
        is_filling = used_ratio > config.diskMaxUsedSpaceRatio / 100
        when = (
            f"the disk is {used_ratio:.0%} full" if is_filling else "it is the hour of deleteWhen"
        )
        why = f"older than fileReservedTime ({config.fileReservedTime} hours), and {when}"
    return (
        f"deleted {len(names)} commit log files, {files}, with messages up to "
        f"{up_to.isoformat(timespec='seconds')}: {why}"
    )


def topics_below(
    queues: Iterable[QueueWriter], first_of: Callable[[QueueWriter], int], end_offset: int
) -> list[str]:
    """Return topics with a queue whose first message is below a physical offset, by name.

    ``first_of`` returns a queue's first queue offset. The result is bounded, and so are the queues
    that are read.
    """
    topics: set[str] = set()
    for queue in islice(queues, MAX_QUEUES_READ):
        if queue.topic in topics or len(topics) > MAX_TOPICS_NAMED:
            continue
        first = queue.entry(first_of(queue))
        if first is not None and not first.is_filler and first.physical_offset < end_offset:
            topics.add(queue.topic)
    return sorted(topics)


def expired_queue_files(
    files: list[tuple[int, Path]], file_bytes: int, min_physical_offset: int
) -> list[Path]:
    """Return the files of a queue that lead only to deleted records, never the last file."""
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


class Cleaner(Struct):
    """Deletes expired files of a store. For the thread that appends."""

    layout: StoreLayout
    config: StoreConfig
    disk: Disk
    clock: Callable[[], int]
    appender: Appender
    durability: Durability
    log: LogView
    queues: QueueView
    index: IndexDriver
    _cleaned_below: int = -1
    _cleaning_below: int = -1
    _uncleaned: list[QueueWriter] = field(default_factory=list)

    def clean(self, *, may_force: bool = True) -> list[Path]:
        """Delete expired files, and refuse or accept messages by the use of the disk.

        Return the deleted segments. ``may_force`` as for `plan`. Files of many queues are deleted
        in steps, which :meth:`clean_queues` continues.
        """
        now_ms = self.clock()
        used_ratio = max(map(self.disk.used_ratio, self.layout.disks))
        ages = [
            SegmentAge(one.path, one.base_offset, int(one.path.stat().st_mtime * 1000))
            for one in self.log.list_segments()
        ]
        planned = plan(self.config, ages, now_ms, used_ratio, may_force=may_force)
        self._refuse_or_resume(used_ratio, is_full=planned.is_full)
        if planned.segments:
            end_offset = planned.segments[-1].base_offset + self.config.mappedFileSizeCommitLog
            if self.durability.state_offset <= end_offset:
                # The record that identifies the durable state must stay.
                self.durability.flush()
                if self.durability.state_offset <= end_offset:
                    _log.warning("nothing is deleted until the checkpoint can be written")
                    return []
            if planned.forced_count:
                topics = topics_below(
                    list(self.appender.queues.values()),
                    lambda queue: self.queues.min_offset(queue.topic, queue.queue_id),
                    end_offset,
                )
                _log.warning("%s", describe_forced(planned, now_ms, used_ratio, topics))
            remove(planned, self.disk, self.layout.commit_log)
            self.log.list_segments()
            _log.info("%s", describe_deleted(planned, self.config, used_ratio))
        self.clean_queues()
        return [segment.path for segment in planned.segments]

    def _refuse_or_resume(self, used_ratio: float, *, is_full: bool) -> None:
        refusal = self.appender.refusal
        if is_full and refusal is None:
            self.appender.refusal = StoreFull(f"{DISK_FULL} [{used_ratio:.2f} used]")
            text = "the disk is %.0f %% full, above %d %%: messages are refused"
            _log.error(text, used_ratio * 100, self.config.diskSpaceWarningLevelRatio)
        elif not is_full and isinstance(refusal, StoreFull):
            self.appender.refusal = None
            _log.warning("the disk is %.0f %% full: messages are stored again", used_ratio * 100)

    def clean_queues(self) -> bool:
        """Delete files of some queues, and then index files, that lead only to deleted records.

        Return True if queues are left for the next call: a call takes only milliseconds.
        """
        min_offset = self.log.min_offset
        if min_offset == self._cleaned_below:
            return False
        if min_offset != self._cleaning_below:
            self._cleaning_below = min_offset
            self._uncleaned = list(self.appender.queues.values())
        some = self._uncleaned[-_QUEUES_AT_ONCE:]
        del self._uncleaned[-_QUEUES_AT_ONCE:]
        try:
            for queue in some:
                files = [] if queue.is_removed else queue.files()
                for path in expired_queue_files(files, queue.file_bytes, min_offset):
                    self.disk.remove_file(path)
                    queue.first_offset += queue.file_bytes // ENTRY_BYTES
        except OSError:
            self._cleaning_below = -1  # all of them again
            raise
        if self._uncleaned:
            return True
        # The builder may be busy: then the next round tries again.
        if self.index.forget_below(min_offset):
            self._cleaned_below = min_offset
        return False
