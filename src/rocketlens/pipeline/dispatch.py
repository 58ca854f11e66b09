"""Builds index files and consume queues from the log alone, in parallel, as RocketMQ would.

1. *read*: each range of the log becomes parts: its index entries, and its consume queue entries by
   queue (``extract``). The driver stitches the ranges (``ranges``), and counts.
2. *build*: each index file is cut from the sequence of all parts, each queue file from the parts of
   its queue (``index_plan``, ``queue_build``).
3. *sync*, *swap*: the new directories are synced, and each replaces its old one in one step. If the
   job ends before, nothing has changed; between the two swaps, each directory is either the old or
   the new one, and whole.

The driver sees ranges, parts and files, never entries.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from rocketlens import limits
from rocketlens.bulk import delay_levels, index_plan, queue_build, store_settings
from rocketlens.bulk.delay_levels import DelayLevels
from rocketlens.bulk.extract import Extracted, ExtractTask, QueuePart, extract
from rocketlens.bulk.ranges import RANGE_BYTES, LogRange, cut, stitch
from rocketlens.bulk.workspace import Workspace, check_output
from rocketlens.errors import BadInput, StoreError
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.formats.index_file import Geometry
from rocketlens.model.rocketmq import DELAY_TOPIC, LMQ_PREFIX
from rocketlens.model.text.counted import counted
from rocketlens.pipeline import jobs
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.consumequeue import ConsumeQueues
from rocketlens.store.read.former_topics import read_evidence
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import Damage

if TYPE_CHECKING:
    from pyspark import SparkContext

_RANGES_PER_CORE: Final = 4


class DispatchResult(Struct):
    """The result of a dispatch."""

    out: Path
    geometry: Geometry
    tag_index: bool
    records: int = 0
    log_end_offset: int = 0
    index_files: int = 0
    index_entries: int = 0
    queues: int = 0
    queue_files: int = 0
    queue_entries: int = 0
    bytes_written: int = 0
    """The size of all files; they are sparse where nothing is written yet."""
    delay_levels: DelayLevels | None = None
    """None without delayed messages, or if no queues were requested."""
    damage: list[Damage] = field(default_factory=list)
    """Bytes of the log without a readable record, at most ``limits.MAX_DAMAGE_REPORTS`` of them."""
    damage_count: int = 0
    torn: Damage | None = None
    """An unfinished write after the last record."""
    notes: list[str] = field(default_factory=list)
    """Further findings for operators, a sentence each."""
    kept: list[Path] = field(default_factory=list)
    """The replaced directories."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each phase."""


def dispatch(
    context: "SparkContext",
    store_path: str | Path,
    *,
    out: str | Path | None = None,
    slot_count: int | None = None,
    entry_count: int | None = None,
    tag_index: bool | None = None,
    queues: bool = False,
    queue_file_size: int | None = None,
    delays_ms: Sequence[int] | None = None,
    force: bool = False,
    range_bytes: int = RANGE_BYTES,
    progress: jobs.Progress = jobs.no_progress,
    disk: Disk | None = None,
) -> DispatchResult:
    """Build ``index/``, and with ``queues`` also ``consumequeue/``, from ``commitlog/``.

    They replace those of the store, or go to the directory ``out``, which may be another store only
    with ``force``. Defaults: ``slot_count`` and ``entry_count`` are those of the store's index
    files, else RocketMQ's; ``tag_index`` (entries for tags, as 5.5 writes) is True if the index
    files have them, or without index files if the store is one of 5.5; ``queue_file_size`` in bytes
    is that of its consume queues, else 6,000,000; ``delays_ms[level]`` (element 0 unused) is
    determined by :mod:`rocketlens.bulk.delay_levels`.

    Damaged bytes of the log cost only the records in them; the result lists them. The output
    directory is locked as RocketMQ locks its store. The output does not depend on partitioning or
    machine, except for the names of index files, which follow the local time zone.

    :raises StoreLocked: if a broker or another job uses the output directory.
    :raises NotAStore: if there is no commit log.
    :raises BadInput: if a count or size is impossible, or ``out`` cannot be written to or is
        another store.
    :raises StoreError: if a task or a write failed, for example because the disk is full.
    """
    layout = StoreLayout.of(Path(store_path))
    store, log = layout.root, CommitLog.of(layout)
    check_output(store, Path(out) if out else None, force=force, disk=disk)
    in_place = not out or fs.is_same(store, Path(out))
    if queues and in_place and store_settings.queues_are_in_rocksdb(store):
        raise BadInput(f"the consume queues of {store} are in RocksDB, which is not rebuilt here")
    if in_place and layout.is_log_of_queue:
        raise BadInput(f"{store} is the log of one queue, which has no index: give --out")
    root = store if in_place else Path(out or store)
    with _convert_errors(root), Workspace(root, disk) as workspace:
        log.refresh()
        geometry = chosen_geometry(store, slot_count, entry_count)
        with_tags = (
            store_settings.has_tag_entries(store, log, geometry) if tag_index is None else tag_index
        )
        result = DispatchResult(workspace.root, geometry, with_tags)
        job = _Dispatch(context, store, log, workspace, result, progress)
        with job.timed("read"):
            stitched = job.read(range_bytes, with_queues=queues)
        index_directory = workspace.new("index")
        with job.timed("build"):
            work = job.plan_index(stitched, index_directory)
            if queues:
                file_bytes = queue_file_size or store_settings.queue_file_bytes(store)
                work += job.plan_queues(
                    stitched, workspace.new("consumequeue"), file_bytes, delays_ms
                )
            job.build(work)
        names = ["consumequeue", "index"] if queues else ["index"]
        job.publish(names)
    log.close()
    return result


@contextmanager
def _convert_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{root}: the build failed: {error}; each directory is whole, the old one or the new"
        ) from error


def chosen_geometry(store: Path, slot_count: int | None, entry_count: int | None) -> Geometry:
    """Return the requested counts, with defaults from the store; raise BadInput if impossible."""
    if slot_count is None or entry_count is None:
        own = store_settings.index_geometry(store)
    else:
        own = Geometry(slot_count, entry_count)
    geometry = Geometry(slot_count or own.slot_count, entry_count or own.entry_count)
    if geometry.slot_count < 1 or geometry.entry_count < 2:
        raise BadInput("an index file needs at least 1 slot and 2 entries")
    if geometry.file_bytes > limits.MAX_INT:
        raise BadInput(f"RocketMQ cannot map an index file of {geometry.file_bytes} bytes")
    return geometry


class _Dispatch(Struct):
    """One run: the state that its phases share."""

    context: "SparkContext"
    store: Path
    log: CommitLog
    workspace: Workspace
    result: DispatchResult
    progress: jobs.Progress

    @property
    def parallelism(self) -> int:
        return self.context.defaultParallelism

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.result.seconds[phase] = time.perf_counter() - begin

    def read(self, range_bytes: int, *, with_queues: bool) -> list[Extracted]:
        """Read the whole log into parts; return those that are used, in log order."""

        def task_of(log_range: LogRange) -> ExtractTask:
            return ExtractTask(
                log_range,
                str(self.workspace.parts),
                with_index=True,
                with_tags=self.result.tag_index,
                with_queues=with_queues,
                disk=self.workspace.disk,
            )

        def reread(log_range: LogRange) -> Extracted:
            return jobs.run(self.context, "read", [task_of(log_range)], extract)[0]

        ranges = cut(self.log, range_bytes, self.parallelism * _RANGES_PER_CORE)
        extracted = jobs.run(
            self.context, "read", [task_of(one) for one in ranges], extract, self.progress
        )
        stitched = stitch(extracted, reread)
        kept = stitched.results
        result = self.result
        result.damage, result.damage_count = stitched.damage, stitched.damage_count
        result.torn, result.log_end_offset = stitched.torn, stitched.end_offset
        result.records = sum(one.walked.record_count for one in kept)
        return kept

    def plan_index(self, extracted: Sequence[Extracted], directory: Path) -> list[Any]:
        """Return the tasks that write the index files."""
        parts = [one.index for one in extracted]
        plans = index_plan.plan_files(parts, self.result.geometry)
        self.result.index_files = len(plans)
        self.result.index_entries = sum(plan.header.last_entry for plan in plans)
        self.result.bytes_written += len(plans) * self.result.geometry.file_bytes
        geometry = self.result.geometry
        disk = self.workspace.disk
        return [*index_plan.tasks_of(plans, directory, geometry, self.parallelism, disk)]

    def plan_queues(
        self,
        extracted: Sequence[Extracted],
        directory: Path,
        file_bytes: int,
        delays_ms: Sequence[int] | None,
    ) -> list[Any]:
        """Return the tasks that write the queue files."""
        if file_bytes < ENTRY_BYTES or file_bytes % ENTRY_BYTES:
            raise BadInput(f"a queue file of {file_bytes} bytes does not hold whole entries of 20")
        batch_topics = store_settings.batch_topics(self.store)
        parts = [p for one in extracted for p in one.queues if p.topic not in batch_topics]
        if batch_topics:
            self.result.notes.append(f"batch queues are left as they are: {sorted(batch_topics)}")
        evidence = read_evidence(self.store, self.log)
        parts, former, inferred = queue_build.parts_to_build(parts, evidence)
        self.result.notes += _former_notes(former, inferred)
        delays = self._delays(parts, delays_ms)
        file_entries = file_bytes // ENTRY_BYTES
        units, queue_count, unsafe = queue_build.plan_queues(parts, directory, file_entries)
        self.result.queues = queue_count
        if unsafe:
            self.result.notes.append(
                f"{len(unsafe)} topics whose name is unfit for a path get no queue: {unsafe[:10]}"
            )
        self._keep_queues(directory, {(part.topic, part.queue_id) for part in parts})
        return list(
            queue_build.tasks_of(units, file_entries, delays, self.parallelism, self.workspace.disk)
        )

    def _keep_queues(self, directory: Path, built: set[tuple[str, int]]) -> None:
        """Keep the queues that cannot be built because the log has no record of their own.

        Those are queues whose last record was deleted (their files hold the next queue offset for a
        broker) and light queues, whose entries refer to records of other topics.
        """
        queues = ConsumeQueues(self.store / "consumequeue")
        kept: list[str] = []
        dropped: list[str] = []
        for name in queues.names():
            if tuple(name) in built:
                continue
            queue = queues.queue(*name)
            last = queue.last_entry() if queue else None
            is_light = name.topic.startswith(LMQ_PREFIX)
            is_deleted = last is not None and last.physical_offset < self.log.min_offset
            is_kept = self.workspace.root == self.store and (is_light or is_deleted)
            (kept if is_kept else dropped).append(f"{name.topic}/{name.queue_id}")
            if is_kept and queue:
                new = directory / name.topic / str(name.queue_id)
                for file in queue.files:
                    self.workspace.disk.link_file(file.path, new / file.path.name)
        queues.close()
        for names, what in (
            (kept, "have no record of their own in the log, and are left as they are"),
            (dropped, "have no record in the log, and are not built"),
        ):
            if names:
                self.result.notes.append(f"{len(names)} queues {what}: {', '.join(names[:10])}")

    def _delays(
        self, parts: Sequence[QueuePart], delays_ms: Sequence[int] | None
    ) -> tuple[int, ...]:
        used = {part.queue_id + 1 for part in parts if part.topic == DELAY_TOPIC}
        if not used:
            return (0,)
        learned: dict[int, int] = {}
        copies: dict[int, int] = {}
        if delays_ms is None:
            learned = store_settings.delays_in_queues(self.store, self.log, DELAY_TOPIC)
            if not used <= learned.keys():
                ranges = cut(self.log, RANGE_BYTES, self.parallelism)
                samples = jobs.run(
                    self.context,
                    "delays",
                    ranges,
                    delay_levels.sample_delayed_messages,
                    self.progress,
                )
                copies = delay_levels.delays_of_copies(samples)
        self.result.delay_levels = delay_levels.resolve(used, delays_ms, learned, copies)
        return self.result.delay_levels.delays_ms

    def build(self, work: Sequence[Any]) -> None:
        results = jobs.run(self.context, "build", work, _build, self.progress)
        repeated = impossible = 0
        for done, task in zip(results, work, strict=True):
            if isinstance(task, queue_build.QueueBuildTask):
                self.result.queue_files += done.files
                self.result.queue_entries += done.entries
                self.result.bytes_written += done.files * task.file_entries * ENTRY_BYTES
                repeated += done.repeated
                impossible += done.impossible
        if repeated:
            who = counted(repeated, "record")
            self.result.notes.append(f"{who} with a queue offset that another record has")
        if impossible:
            who = counted(impossible, "record")
            self.result.notes.append(f"{who} with an impossible queue offset")

    def publish(self, names: Sequence[str]) -> None:
        """Sync the new directories, and swap them in."""
        with self.timed("sync"):
            for done, name in enumerate(names):
                self.progress("sync", done, len(names))
                self.workspace.sync(name)
            self.progress("sync", len(names), len(names))
        with self.timed("swap"):
            for done, name in enumerate(names):
                self.progress("swap", done, len(names))
                replaced = self.workspace.swap_in(name, keep=self.workspace.root == self.store)
                self.result.kept += filter(None, [replaced])
            self.progress("swap", len(names), len(names))


def _former_notes(former: Counter[str], inferred: set[str]) -> Iterator[str]:
    """Yield notes on records without a queue entry because their topic was deleted."""
    if former:
        yield (
            f"{former.total()} records of deleted topics get no queue entry: "
            f"{', '.join(sorted(former)[:10])}"
        )
    if inferred:
        yield (
            f"{len(inferred)} of these topics are taken for deleted and made again only because "
            f"the store has no queue of theirs: {', '.join(sorted(inferred)[:10])}; to build their "
            "queues, move consumequeue away first"
        )


def _build(task: Any) -> Any:
    """Do one task of the build phase; runs in an executor."""
    if isinstance(task, index_plan.IndexTask):
        return index_plan.build(task)
    return queue_build.build(task)
