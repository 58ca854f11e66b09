"""The archive job: copies messages of stores or a cluster into an archive, each exactly once.

A source continues at the end of its last journal row; there is no other checkpoint. The source
plans a batch, Spark's tasks write its shares (`write_share`), and the driver commits it
(`rocketlens.archive.journal`) with the copied range of each queue, and with what the source is
known to have in addition. If only that changed, the row has no messages.

======================================  ============================================================
event                                   effect
======================================  ============================================================
a job is killed                         the next job adds what its last batch lacks, and continues
a task fails                            the job ends; nothing of the batch was added
two jobs archive one source             one adds the batch, the other ends with `ArchiveTaken`
messages expired before they were read  the batch has a line on that, which coverage then shows
a record is damaged                     likewise; the others are archived
one broker is read in two ways          refused: its messages would be archived twice
a log, or a queue, was replaced         it is archived from its start; losses have a line
======================================  ============================================================
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.streaming.datasource import ReadMaxBytes

from rocketlens.archive.copied import (
    Copied,
    Missing,
    QueueRange,
    behind_of,
    join_ranges,
    lost_between,
)
from rocketlens.archive.files import DataFile, ShareFiles
from rocketlens.archive.journal import ArchivedBatch, ArchiveTables, next_batch
from rocketlens.archive.location import ArchiveLocation
from rocketlens.bulk.stream_offset import StreamOffset
from rocketlens.errors import BadInput
from rocketlens.pipeline.stream import RocketMQStreamReader
from rocketlens.query.topic_choice import parse_topics

if TYPE_CHECKING:
    from rocketlens.bulk.messages import BatchScan
    from rocketlens.decode.rules import BodyRules
    from rocketlens.pipeline.archive_cluster import ArchivedCluster
    from rocketlens.pipeline.cluster_scan import ClusterScan

    ArchivedSource: TypeAlias = "ArchivedStore | ArchivedCluster"

MAX_ARCHIVE_BATCH_BYTES: Final = 1 << 30
"""The log in one batch of an archive: a killed job repeats at most this much."""
DEFAULT_CLUSTER: Final = "DefaultCluster"
_SHARE_BYTES: Final = 64 << 20
_LOG: Final = "log"


class ShareTask(Struct, frozen=True):
    """One task: write a share of a source to an archive."""

    scan: "BatchScan | ClusterScan"
    share: Any
    location: ArchiveLocation
    cluster: str
    broker: str
    body_rules: "BodyRules | None" = None


class WrittenShare(Struct, frozen=True):
    """The files that a task wrote, their ranges of queues, and lines on what could not be read."""

    files: list[DataFile]
    ranges: list[QueueRange]
    losses: list[str]


RunTasks = Callable[[Sequence[ShareTask]], Sequence[WrittenShare]]


def write_share(task: ShareTask) -> WrittenShare:
    """Write the files of a share; runs in an executor."""
    files = ShareFiles(task.location, task.cluster, task.broker, task.body_rules)
    lines: list[str] = []
    task.scan.losses.lines = lines
    try:
        files.add(task.scan.read(task.share))
        return WrittenShare(files.close(), files.ranges, lines)
    except BaseException:
        files.abort()
        raise


class Plan(Struct, frozen=True):
    """The next batch of a source.

    ``shares`` are pairs of a broker and the share of one task. ``ranges`` are their queues, for a
    cluster. ``asked_ms`` is when the source was asked for its offsets.
    """

    begin: Any
    end: Any
    asked_ms: int
    shares: Sequence[tuple[str, Any]]
    ranges: Sequence[QueueRange] = ()
    lost: Sequence[Missing] = ()
    behind: Sequence[Missing] = ()


class ArchivedStore(RocketMQStreamReader):
    """A store directory as a source of an archive: its log, from front to back."""

    def __init__(
        self, path: str, broker: str, *, cluster: str = DEFAULT_CLUSTER, topics: Sequence[str] = ()
    ) -> None:
        """Check the store, which broker ``broker`` wrote; raise NotAStore without a commit log."""
        options = {
            "store": path,
            "failOnDataLoss": "false",
            "maxBytesPerTrigger": str(MAX_ARCHIVE_BATCH_BYTES),
            "maxPartitionBytes": str(_SHARE_BYTES),
        }
        super().__init__(options | ({"topic": ",".join(topics)} if topics else {}))
        self._messages.with_derived = self._messages.with_text = False
        self.scan: Final = self._messages
        self.cluster = cluster
        self.broker: Final = broker
        self.chosen = frozenset(parse_topics(",".join(topics)) if topics else ())
        self.name = f"{cluster}/{broker}"

    def plan(self, copied: Copied, last: ArchivedBatch | None) -> Plan:
        """Return the next part of the log; errors as `latestOffset`."""
        asked_ms = now_ms()
        begin = self.initialOffset() if last is None else last.end_offsets
        lines: list[str] = []
        self._messages.losses.lines = lines
        end = self.latestOffset(begin, self.getDefaultReadLimit())
        shares = [] if end == begin else self.partitions(begin, end)
        first, stop = (StreamOffset.from_json(each).physical_offset for each in (begin, end))
        # Only a full batch leaves messages behind: those stored after `asked_ms` do not count.
        # The look beyond the end may add lines, so these are copied first.
        known = list(lines)
        is_full = bool(known) or stop >= first + self._max_bytes
        behind = []
        if is_full and self.latestOffset(end, ReadMaxBytes(1)) != end:
            newest_ms = _last_of(end)[1]
            low_ms = None if newest_ms is None else min(newest_ms, asked_ms)
            what = "its log continues behind what was archived: run `rocketlens archive run` again"
            behind = [Missing(what, self.broker, part=_LOG, low_ms=low_ms)]
        plan = Plan(
            begin, end, asked_ms, [(self.broker, each.value) for each in shares], behind=behind
        )
        return replace(plan, lost=[self.lost(plan, copied, (), None, each) for each in known])

    def check_same(self) -> None:
        """No effect: a replaced log has other files."""

    def lost(
        self, plan: Plan, _copied: Copied, ranges: Sequence[QueueRange], _share: Any, what: str
    ) -> Missing:
        """Return a loss of a share that was written with ``ranges``."""
        end_offset, _ = _last_of(plan.end)
        newest = [each.last.physical_offset for each in ranges if each.last is not None]
        is_end_copied = end_offset is not None and max(newest, default=-1) == end_offset
        return lost_between(
            what, _last_of(plan.begin)[1], ranges, plan.asked_ms, is_end_copied=is_end_copied
        )

    def behind(self, plan: Plan, _ranges: Sequence[QueueRange]) -> Sequence[Missing]:
        """Return whether the log continues after the batch."""
        return plan.behind


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _last_of(offset: Any) -> tuple[int | None, int | None]:
    """Return the physical offset and the store time of the last record before an offset."""
    anchors = StreamOffset.from_json(offset).anchors
    return (anchors[0].last_offset, anchors[0].last_timestamp_ms) if anchors else (None, None)


def archive_next(
    tables: ArchiveTables,
    source: "ArchivedSource",
    run_tasks: RunTasks,
    body_rules: "BodyRules | None" = None,
) -> ArchivedBatch | None:
    """Archive the next batch of a source; return None if there is nothing new.

    With ``body_rules``, decoded bodies are archived, too.

    :raises ArchiveTaken: if another job has added that batch.
    :raises BadInput: if another source of the archive has messages of the same broker, or if this
        source was archived with other topics, whose earlier messages would be missing.
    :raises ArchiveError: if the archive cannot be written.
    :raises StoreError: if a task failed.
    """
    tables.refresh()
    tables.repair(source.name)
    copied = tables.copied(source.name)
    last = tables.last_batch(source.name)
    if last is not None and source.chosen != frozenset(last.chosen):
        raise BadInput(
            f"{tables.root} has {source.name} with {_topics_text(last.chosen)}, and not with "
            f"{_topics_text(source.chosen)}: archive the same, or to another archive"
        )
    plan = source.plan(copied, last)
    tasks = [
        ShareTask(source.scan, share, tables.location, source.cluster, broker, body_rules)
        for broker, share in plan.shares
    ]
    brokers = {f"{task.cluster}/{task.broker}" for task in tasks}
    _check_not_mixed(tables, source.name, brokers)
    if body_rules is not None and tasks:
        tables.add_decoded()
    written = run_tasks(tasks) if tasks else []
    source.check_same()
    ranges = _written_ranges(plan, written)
    behind = source.behind(plan, ranges)
    if not tasks and not plan.ranges and not _is_news(behind, last):
        return None
    lost = list(plan.lost)
    for task, each in zip(tasks, written, strict=True):
        lost += (source.lost(plan, copied, ranges, task.share, what) for what in each.losses)
    batch = next_batch(
        source.name,
        last,
        (plan.begin, plan.end),
        (file for each in written for file in each.files),
        topics={each.topic for each in ranges if each.rows},
        brokers=brokers,
        lost=lost,
        run=tables.run,
        chosen=source.chosen,
        asked_ms=plan.asked_ms,
        queues=ranges,
        behind=behind,
    )
    tables.commit(batch)
    return batch


def _written_ranges(plan: Plan, written: Sequence[WrittenShare]) -> list[QueueRange]:
    """Join the planned ranges of queues with the written ones."""
    generations = {each.key: each.generation for each in plan.ranges}
    return join_ranges(
        [
            *plan.ranges,
            *(
                each._replace(generation=generations.get(each.key, 0))
                for share in written
                for each in share.ranges
            ),
        ]
    )


def _is_news(behind: Sequence[Missing], last: ArchivedBatch | None) -> bool:
    """Return True if the last batch of the source does not record ``behind``."""
    if last is None:
        return bool(behind)
    known = {(each.key, each.high_ms) for each in behind_of(last)}
    return not last.asked_ms or known != {(each.key, each.high_ms) for each in behind}


def _topics_text(chosen: Collection[str]) -> str:
    return f"--topic {','.join(sorted(chosen))}" if chosen else "all topics"


def _check_not_mixed(tables: ArchiveTables, name: str, brokers: set[str]) -> None:
    for batch in tables.batches():
        both = brokers.intersection(batch.brokers)
        if batch.source != name and both:
            raise BadInput(
                f"{tables.root} has {min(both)} already, archived as {batch.source}: as {name} its "
                "messages would be there twice. Archive a broker in one way, or to another archive"
            )
