"""The archive job: copies messages of stores or a cluster into an archive, each exactly once.

What is next to archive of a source is where its last batch in the journal ended; there is no other
checkpoint. A batch is planned as a micro-batch of the stream of that source, its shares are written
by Spark's tasks (`write_share`), and the driver commits it (`rocketlens.archive.journal`).

======================================  ============================================================
what happens                            then
======================================  ============================================================
a job is killed                         the next one adds what its last batch lacks, and goes on
a task fails                            the job ends; nothing of the batch was added
two jobs archive one source             one adds the batch, the other ends with `ArchiveTaken`
messages expired before they were read  the batch has a line on that, which coverage then shows
a record is damaged                     likewise; the others are archived
one broker is read in two ways          refused: its messages would be there twice
======================================  ============================================================
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from rocketlens import limits
from rocketlens.archive.files import NewFile, ShareFiles
from rocketlens.archive.journal import ArchivedBatch, ArchiveTables, next_batch
from rocketlens.archive.location import ArchiveLocation
from rocketlens.errors import BadInput
from rocketlens.pipeline.cluster_stream import ClusterStreamReader
from rocketlens.pipeline.stream import RocketMQStreamReader
from rocketlens.query.topic_choice import asked_topics

if TYPE_CHECKING:
    from rocketlens.decode.rules import BodyRules

DEFAULT_CLUSTER: Final = "DefaultCluster"
_SHARE_BYTES: Final = 64 << 20


class SharesScan(Protocol):
    """Reads shares of a source; `rocketlens.bulk.messages.BatchScan` is one."""

    losses: list[str] | None

    def read(self, share: Any) -> Iterator[Any]:
        """Return the record batches of a share."""
        ...


@dataclass(frozen=True, slots=True)
class ShareTask:
    """The work of one task: to write a share of a source to an archive."""

    scan: SharesScan
    share: Any
    location: ArchiveLocation
    cluster: str
    broker: str
    body_rules: "BodyRules | None" = None


@dataclass(frozen=True, slots=True)
class WrittenShare:
    """The files that a task has written, and lines on what it could not read."""

    files: list[NewFile]
    topics: set[str]
    losses: list[str]


RunTasks = Callable[[Sequence[ShareTask]], Sequence[WrittenShare]]


def write_share(task: ShareTask) -> WrittenShare:
    """Write the files of a share; runs in an executor."""
    files = ShareFiles(task.location, task.cluster, task.broker, task.body_rules)
    task.scan.losses = []
    try:
        files.add(task.scan.read(task.share))
        return WrittenShare(files.close(), files.topics, task.scan.losses)
    except BaseException:
        files.abort()
        raise


class ArchivedStore(RocketMQStreamReader):
    """A store directory as a source of an archive: its log, from front to back."""

    def __init__(
        self, path: str, broker: str, *, cluster: str = DEFAULT_CLUSTER, topics: Sequence[str] = ()
    ) -> None:
        """Check the store. ``broker`` is the name of the broker that wrote it.

        :raises NotAStore: when there is no commit log.
        """
        options = {
            "store": path,
            "failOnDataLoss": "false",
            "maxBytesPerTrigger": str(limits.MAX_ARCHIVE_BATCH_BYTES),
            "maxPartitionBytes": str(_SHARE_BYTES),
        }
        super().__init__(options | ({"topic": ",".join(topics)} if topics else {}))
        self._messages.with_derived = False
        self.cluster: Final = cluster
        self.broker: Final = broker
        self.chosen: Final = frozenset(asked_topics(",".join(topics)) if topics else ())
        self.name: Final = f"{cluster}/{broker}"
        self.gaps: Final[list[str]] = []

    @property
    def scan(self) -> SharesScan:
        """What reads its shares."""
        return self._messages

    def broker_of(self, _share: Any) -> str:
        """Return the broker of a share."""
        return self.broker

    def _lost(self, what: str, *, always: bool = False) -> None:  # noqa: ARG002 - it is noted always
        self.gaps.append(what)


class ArchivedCluster(ClusterStreamReader):
    """Topics of a running cluster as a source of an archive: queue by queue, by pull."""

    def __init__(self, options: dict[str, str], *, cluster: str = DEFAULT_CLUSTER) -> None:
        """Check the options, which are those of the source ``rocketmq`` for streams of clusters.

        :raises BadInput: naming the option that is not valid.
        """
        super().__init__({**options, "failOnDataLoss": "false"})
        self.cluster: Final = cluster
        self.chosen: Final = self._scan.topics.names.union(self._scan.topics.patterns)
        self.name: Final = cluster
        self.gaps: Final[list[str]] = []

    @property
    def scan(self) -> SharesScan:
        """What reads its shares."""
        return self._scan

    def broker_of(self, share: Any) -> str:
        """Return the broker of a share."""
        name: str = share.queue.broker_name
        return name

    def _lost(self, what: str) -> None:
        self.gaps.append(f"{what}: messages were lost")


ArchivedSource = ArchivedStore | ArchivedCluster


def archive_next(
    tables: ArchiveTables,
    source: ArchivedSource,
    run_tasks: RunTasks,
    body_rules: "BodyRules | None" = None,
) -> ArchivedBatch | None:
    """Archive the next batch of a source; return None if there is nothing new.

    With ``body_rules`` bodies are archived decoded, too.

    :raises ArchiveTaken: if another job has added that batch.
    :raises BadInput: if another source of the archive has messages of the same broker, or this one
        was archived with other topics: those that are new would be there from now on alone.
    :raises ArchiveError: if the archive cannot be written.
    :raises StoreError: if a task failed.
    """
    tables.refresh()
    tables.repair(source.name)
    last = tables.last_batch(source.name)
    if last is not None and source.chosen != frozenset(last.chosen):
        raise BadInput(
            f"{tables.root} has {source.name} with {_topics_text(last.chosen)}, and not with "
            f"{_topics_text(source.chosen)}: archive the same, or to another archive"
        )
    begin = source.initialOffset() if last is None else json.loads(last.end)
    source.gaps.clear()
    end = source.latestOffset(begin, source.getDefaultReadLimit())
    if end == begin:
        return None
    shares = [partition.value for partition in source.partitions(begin, end)]
    tasks = [
        ShareTask(
            source.scan,
            share,
            tables.location,
            source.cluster,
            source.broker_of(share),
            body_rules,
        )
        for share in shares
    ]
    brokers = {f"{task.cluster}/{task.broker}" for task in tasks}
    _check_not_mixed(tables, source.name, brokers)
    if body_rules is not None:
        tables.add_decoded()
    written = run_tasks(tasks)
    batch = next_batch(
        source.name,
        last,
        (begin, end),
        (file for each in written for file in each.files),
        topics={topic for each in written for topic in each.topics},
        brokers=brokers,
        gaps=[*source.gaps, *(loss for each in written for loss in each.losses)],
        run=tables.run,
        chosen=source.chosen,
    )
    tables.commit(batch)
    return batch


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
