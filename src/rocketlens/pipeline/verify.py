"""Compares log, consume queues and index files of a store, in parallel, without changing them.

1. *index*: each index file by itself: header, slots, chains.
2. *log*: each range of the log: its checksums, and the queue and index entries of its records.
3. *queues*: each queue: entries without a record.

A healthy store has no findings, however it was closed. Notes report normal conditions that
operators should know: entries of records that the cleaner deleted, tails that a crash left
unfinished, tags that an older broker did not index.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from rocketlens.bulk import check_index, check_queue, store_settings
from rocketlens.bulk.check_index import IndexFileFacts
from rocketlens.bulk.check_range import RangeChecked, RangeTask, check_range
from rocketlens.bulk.ranges import RANGE_BYTES, LogRange, cut, stitch
from rocketlens.bulk.report import Finding, FindingKind, StoreFindings
from rocketlens.errors import CheckpointError, StoreError
from rocketlens.formats import checkpoint
from rocketlens.model.rocketmq import LMQ_PREFIX
from rocketlens.pipeline import jobs
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.consumequeue import ConsumeQueues
from rocketlens.store.read.former_topics import (
    WHOLE_LOG,
    Run,
    TopicEvidence,
    ends_of_former,
    read_evidence,
)
from rocketlens.store.read.log.commitlog import CommitLog

if TYPE_CHECKING:
    from pyspark import SparkContext

    from rocketlens.formats.index_file import Geometry

_RANGES_PER_CORE: Final = 4
_MAX_ATTEMPTS: Final = 3
"""Attempts at a comparison during which the cleaner deletes no segment."""


class VerifyReport(Struct):
    """The counts of a comparison, its findings, and notes."""

    store: Path
    records: int = 0
    log_end_offset: int = 0
    index_files: int = 0
    index_entries: int = 0
    queues: int = 0
    queue_entries: int = 0
    counts: Counter[FindingKind] = field(default_factory=Counter)
    """The number of findings of each kind."""
    findings: list[Finding] = field(default_factory=list)
    """The first findings of each kind, at most ``limits.MAX_DAMAGE_REPORTS`` together."""
    notes: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    """Parts that were not compared, a sentence each: they may be wrong."""

    @property
    def is_sound(self) -> bool:
        return not self.counts


def verify(
    context: "SparkContext",
    store_path: str | Path,
    *,
    check_crc: bool = True,
    range_bytes: int = RANGE_BYTES,
    progress: jobs.Progress = jobs.no_progress,
) -> VerifyReport:
    """Compare ``commitlog/``, ``consumequeue/`` and ``index/`` of a store.

    ``check_crc``: compare every record with its checksums. A broker that writes meanwhile causes
    false findings. If it deletes segments, everything is compared again.

    :raises NotAStore: if there is no commit log.
    :raises StoreError: if a task failed, or the broker deletes segments faster than they are
        compared.
    """
    layout = StoreLayout.of(Path(store_path))
    store = layout.root
    for _ in range(_MAX_ATTEMPTS):
        before = _segments(layout)
        report: VerifyReport | None = None
        failure: StoreError | None = None
        try:
            report = _verify(context, Path(store_path), range_bytes, progress, check_crc=check_crc)
        except StoreError as error:
            failure = error
        # A segment created meanwhile is not compared, so it does not matter.
        if before <= _segments(layout):
            if report is None:
                raise failure or StoreError(f"{store} was not compared")
            return report
    raise StoreError(
        f"{store}: its broker deleted segments during each of {_MAX_ATTEMPTS} attempts to compare "
        "them; compare a copy, or stop the broker"
    )


def _segments(layout: StoreLayout) -> set[Path]:
    log = CommitLog.of(layout)
    log.close()
    return {segment.path for segment in log.segments}


def _verify(
    context: "SparkContext",
    store_path: Path,
    range_bytes: int,
    progress: jobs.Progress,
    *,
    check_crc: bool,
) -> VerifyReport:
    layout = StoreLayout.of(store_path)
    store, log = layout.root, CommitLog.of(layout)
    report = VerifyReport(store)
    findings = StoreFindings()
    is_open = (store / "abort").exists()
    if is_open:
        report.notes.append("the store was not closed (abort exists): its tails may be unfinished")
    job = _Verify(context, store, store_path, findings, report, progress, is_open)
    files = job.check_index_files(log.min_offset)
    ranges = cut(log, range_bytes, context.defaultParallelism * _RANGES_PER_CORE)
    with_queues = not store_settings.queues_are_in_rocksdb(store)
    if not with_queues:
        report.not_compared.append("the consume queues, which are in RocksDB")

    evidence = read_evidence(store, log)

    def task_of(log_range: LogRange) -> RangeTask:
        return RangeTask(log_range, str(store_path), tuple(files), check_crc, with_queues, evidence)

    tasks = [task_of(one) for one in ranges]
    checked = jobs.run(context, "log", tasks, check_range, progress)

    def reread(log_range: LogRange) -> RangeChecked:
        return jobs.run(context, "log", [task_of(log_range)], check_range)[0]

    stitched = stitch(checked, reread)
    for damage in stitched.damage:
        detail = f"{damage.length} bytes: {damage.reason}"
        findings.add(Finding(FindingKind.LOG_DAMAGE, detail, physical_offset=damage.start))
    findings.counts[FindingKind.LOG_DAMAGE] += stitched.damage_count - len(stitched.damage)
    if stitched.torn:
        detail = f"behind the last record: {stitched.torn.reason}"
        if is_open:
            report.notes.append(f"an unfinished write {detail}")
        else:
            offset = stitched.torn.start
            findings.add(Finding(FindingKind.LOG_TORN, detail, physical_offset=offset))
    report.records = sum(one.walked.record_count for one in stitched.results)
    report.log_end_offset = stitched.end_offset
    job.report_whole_log(stitched.results, files)
    if with_queues:
        job.check_queues(stitched.results, evidence)
    job.check_checkpoint(stitched.results)
    report.counts = Counter({kind: n for kind, n in findings.counts.items() if n})
    order = list(FindingKind)
    report.findings = sorted(findings.listed, key=lambda one: order.index(one.kind))
    log.close()
    return report


class _Verify(Struct):
    """One run: the state that its parts share."""

    context: "SparkContext"
    store: Path
    store_path: Path
    findings: StoreFindings
    report: VerifyReport
    progress: jobs.Progress
    is_open: bool

    def check_index_files(self, min_offset: int) -> list[IndexFileFacts]:
        """Check each index file; return the facts of the usable ones, oldest first."""
        paths = store_settings.index_paths(self.store)
        names = {path.name for path in paths}
        for entry in fs.entries(self.store / "index"):
            if entry.name not in names:
                detail = "no index file is named so"
                self.findings.add(Finding(FindingKind.INDEX_FILE, detail, file=entry.path))
        likely: tuple[Geometry, ...] = (store_settings.index_geometry(self.store),)
        tasks = [
            check_index.IndexFileTask(
                str(path), likely, min_offset, self.is_open and path == paths[-1]
            )
            for path in paths
        ]
        facts: list[IndexFileFacts] = []
        for checked in jobs.run(
            self.context, "index", tasks, check_index.check_file, self.progress
        ):
            self.findings.merge(checked.findings)
            self.report.notes += checked.notes
            if checked.facts is not None:
                facts.append(checked.facts)
        self.report.index_files = len(paths)
        self.report.index_entries = sum(one.last_entry for one in facts)
        return facts

    def report_whole_log(
        self, results: Sequence[RangeChecked], files: Sequence[IndexFileFacts]
    ) -> None:
        """Report the findings that need the whole log."""
        compared: Counter[str] = Counter()
        sound: Counter[str] = Counter()
        firsts = [one.index.first_tag_offset for one in results]
        first_tag = min((offset for offset in firsts if offset is not None), default=None)
        tags_unindexed = duplicates = 0
        for one in results:
            for part in (one.findings, one.index.findings, one.queues.findings):
                self.findings.merge(part)
            duplicates += one.index.duplicates
            compared.update(one.index.seen)
            sound.update(one.index.sound)
            start = one.walked.log_range.base_offset + one.walked.log_range.start
            if first_tag is None or start <= first_tag:
                tags_unindexed += one.index.early_tags.counts.total()
            else:
                self.findings.merge(one.index.early_tags)
        for facts in files:
            self._report_file(facts, compared[facts.path], sound[facts.path])
        unindexed = sum(one.index.unindexed for one in results)
        self._report_tail(
            FindingKind.INDEX_MISSING, unindexed, "keys at the log's end are not indexed"
        )
        undispatched = sum(one.queues.undispatched for one in results)
        what = "records behind the end of their queue have no entry"
        self._report_tail(FindingKind.QUEUE_MISSING, undispatched, what)
        if duplicates:
            self.report.notes.append(
                f"{duplicates} entries are in the index twice: a broker that starts indexes its"
                " last record again"
            )
        if tags_unindexed:
            self.report.notes.append(
                f"{tags_unindexed} tags are not indexed, as before RocketMQ 5.5"
            )

    def _report_file(self, facts: IndexFileFacts, compared: int, sound: int) -> None:
        if compared and not sound:
            detail = "none of its entries belongs to this log: it is another store's"
            self.findings.add(Finding(FindingKind.INDEX_FILE, detail, file=facts.path))
        if facts.deleted:
            detail = f"has {facts.deleted} entries of records that the log no longer has"
            self.report.notes.append(f"{facts.path} {detail}, which is normal")
        beyond = facts.last_entry - facts.deleted - compared
        if beyond:
            detail = f"{beyond} entries are for offsets where the log has no records"
            self.findings.add(Finding(FindingKind.INDEX_EXTRA, detail, file=facts.path), beyond)

    def _report_tail(self, kind: FindingKind, count: int, what: str) -> None:
        if count and self.is_open:
            self.report.notes.append(f"{count} {what}, yet")
        elif count:
            self.findings.add(Finding(kind, f"{count} {what}"), count)

    def check_queues(self, results: Sequence[RangeChecked], evidence: TopicEvidence) -> None:
        """Report queue entries without a record, and those of deleted topics."""
        begins = self._check_repeated(results)
        sound: Counter[tuple[str, int]] = Counter()
        for one in results:
            sound.update(one.queues.sound)
        names = ConsumeQueues(self.store / "consumequeue").names()
        light = [name for name in names if name.topic.startswith(LMQ_PREFIX)]
        if light:
            self.report.not_compared.append(f"{len(light)} light queues ({LMQ_PREFIX})")
            names = [name for name in names if name not in light]
        tasks = [
            check_queue.QueueCheckTask(
                str(self.store_path),
                name.topic,
                name.queue_id,
                sound[name.topic, name.queue_id],
                max(evidence.end_of(name.topic), begins.get((name.topic, name.queue_id), 0)),
            )
            for name in names
        ]
        checked = jobs.run(self.context, "queues", tasks, check_queue.check_queue, self.progress)
        for one_queue in checked:
            self.findings.merge(one_queue.findings)
        self.report.queues = len(names)
        self.report.queue_entries = sum(one_queue.entries for one_queue in checked)
        self._note_former(results)

    def _check_repeated(self, results: Sequence[RangeChecked]) -> dict[tuple[str, int], int]:
        """Report records of a topic that was created again whose entries are those of the deleted
        topic.

        Return the first offset of each queue of these topics after the re-creation.
        """
        runs: dict[str, dict[int, list[Run]]] = {}
        for one in results:
            for (topic, queue_id), own in one.queues.runs.items():
                runs.setdefault(topic, {}).setdefault(queue_id, []).extend(own)
        begins = {
            (topic, queue_id): begin
            for topic, queues in runs.items()
            for queue_id, begin in ends_of_former(queues).items()
        }
        for one in results:
            for name, repeated in one.queues.repeated.items():
                for offset in (o for part in repeated for o in part.tolist()):
                    if offset >= begins.get(name, WHOLE_LOG):
                        detail = "it names a record from before its topic was deleted"
                        self.findings.add(
                            Finding(
                                FindingKind.QUEUE_WRONG, detail, None, *name, physical_offset=offset
                            )
                        )
        return begins

    def _note_former(self, results: Sequence[RangeChecked]) -> None:
        """Report records without a queue entry because their topic was deleted."""
        former: Counter[str] = Counter()
        inferred: Counter[str] = Counter()
        for one in results:
            former.update(one.queues.former)
            inferred.update(one.queues.inferred)
        if former.total():
            self.report.notes.append(
                f"{former.total()} records of deleted topics have no queue entry, which is normal: "
                f"{', '.join(sorted(+former)[:10])}"
            )
        if inferred.total():
            self.report.not_compared.append(
                f"{inferred.total()} records of topics that have no queue: "
                f"{', '.join(sorted(+inferred)[:10])}. Such a topic was deleted, made again and "
                "not sent to since; or its queues are lost"
            )

    def check_checkpoint(self, results: Sequence[RangeChecked]) -> None:
        """Compare the times of the checkpoint with those of the log."""
        path = self.store / "checkpoint"
        content = fs.read_bytes(path, checkpoint.CHECKPOINT_BYTES)
        if content is None:
            self.report.notes.append("there is no checkpoint: a broker would read the whole log")
            return
        try:
            fields = checkpoint.decode(content)
        except CheckpointError as error:
            self.findings.add(Finding(FindingKind.CHECKPOINT, str(error), file=str(path)))
            return
        newest = max((one.newest_timestamp_ms for one in results), default=0)
        latest = max(fields[:3])
        if latest > newest:
            detail = f"it names time {latest}, the newest record has {newest}"
            self.findings.add(Finding(FindingKind.CHECKPOINT, detail, file=str(path)))
