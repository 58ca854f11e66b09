"""Dispatch as a stream: builds the index files of a store while its broker appends to the log.

A Structured Streaming query reads index entries (:mod:`rocketlens.pipeline.stream`) in
micro-batches; executors walk the log, and the driver, which holds the index lock, puts each batch
into the index files, syncs them, and then moves the safe offset
(:mod:`rocketlens.store.write.index.index_writer`).

The stream resumes at that safe offset, not at Spark's checkpoint, which could be ahead of the files
after a power cut, and behind them after a kill. So each start has a new checkpoint and begins at
the safe offset, and earlier entries of a batch are dropped: there is neither a gap nor a duplicate,
wherever it was killed.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Struct, field

from rocketlens.bulk import index_entries
from rocketlens.errors import NotAStore, StoreError
from rocketlens.formats.index_file import Geometry
from rocketlens.pipeline import jobs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.state import read_synced_offset
from rocketlens.store.write.index.index_writer import IndexWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MAX_STREAM_STARTS: Final = 5
"""Consecutive starts of the stream that may fail because a worker starts too slowly."""
MAX_FOLLOW_TRIGGER_BYTES: Final = 128 << 20
"""Bytes of log in one batch of the builder that runs beside a broker."""
TRIGGER: Final = "1 second"
"""Even an empty micro-batch costs a fifth of a second of one core. No reader waits for it: readers
index the rest of the log in memory."""
_WATCH_SECONDS: Final = 0.5
_SELECTABLE_DESCRIPTORS: Final = 1024
_CLEAN_SECONDS: Final = 10.0
_SLOW_START: Final = "Python worker failed to connect back"
_log: Final = logging.getLogger(__name__)


class IndexFollower(Struct):
    """Holds the index lock of a store and follows its log. A context manager.

    Opening takes the lock without Spark, so that a missing lock is reported before the JVM starts.
    """

    store: Path
    writer: IndexWriter
    with_tags: bool
    disk: Disk
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_ending: bool = False

    @classmethod
    def open(
        cls,
        store: Path,
        geometry: Geometry,
        *,
        with_tags: bool,
        clock: Callable[[], int],
        disk: Disk | None = None,
    ) -> Self:
        """Lock the index, and compute where to resume.

        :raises NotAStore: if no RocketLens broker ever wrote to the store.
        :raises StoreLocked: if another builder runs.
        :raises OSError: if the index files cannot be read or repaired.
        """
        layout = StoreLayout.of(store)
        synced = read_synced_offset(layout)
        if synced is None:
            raise NotAStore(
                f"{store} is not the store of a RocketLens broker, whose log could be followed; "
                "for others there is `rocketlens index build`"
            )
        disk = disk or Disk()
        writer = IndexWriter(
            layout, geometry, with_tags=with_tags, disk=disk, clock=clock, log_end=synced
        )
        return cls(store, writer, with_tags, disk)

    def follow(self, spark: "SparkSession", stop: threading.Event, trigger: str = TRIGGER) -> None:
        """Index the synced part of the log, until ``stop`` is set.

        :raises StoreError: if a micro-batch failed, with the reason. Finished batches stay, and
            another call can resume.
        """
        cleaned = 0.0

        def watch(query: Any) -> None:
            nonlocal cleaned
            while not stop.wait(_WATCH_SECONDS) and query.isActive:
                cleaned += _WATCH_SECONDS
                if cleaned >= _CLEAN_SECONDS:
                    cleaned = 0.0
                    self.clean()
            self._is_ending = stop.is_set()

        self._run(spark, trigger, watch)

    def run_once(self, spark: "SparkSession") -> None:
        """Index the part of the log that is synced now, and return.

        :raises StoreError: as :meth:`follow`.
        """
        from pyspark.errors import StreamingQueryException

        def watch(query: Any) -> None:
            with suppress(StreamingQueryException):
                query.awaitTermination()

        self._run(spark, None, watch)

    def _run(
        self, spark: "SparkSession", trigger: str | None, watch: Callable[[Any], None]
    ) -> None:
        """Run the query until ``watch``, which is called with it, returns.

        It starts the query again if Spark gave up on a slow Python worker, for example on a busy
        machine: Spark waits 10 s for it, and no setting changes that.
        """
        remaining_starts = MAX_STREAM_STARTS
        while True:
            begin = self.writer.resume_point
            query = self._start(spark, trigger)
            try:
                watch(query)
                failure = query.exception()
            except BaseException:
                self._is_ending = True
                raise
            finally:
                query.stop()
            if failure is None:
                return
            reason = jobs.reason_of(failure)
            remaining_starts = (
                MAX_STREAM_STARTS if self.writer.resume_point != begin else remaining_starts - 1
            )
            if remaining_starts == 0 or self._is_ending or _SLOW_START not in reason:
                raise StoreError(f"indexing ended: {reason}") from failure
            _log.warning("%s: the query is started again", reason)

    def _start(self, spark: "SparkSession", trigger: str | None) -> Any:
        """Start the query: with a trigger, or once for all existing data."""
        _start_callbacks(spark)
        checkpoint = StoreLayout.of(self.store).own / "dispatch"
        self.disk.remove_tree(checkpoint)
        stream = (
            spark.readStream.format("rocketmq")
            .option("store", str(self.store))
            .option("table", "index_entries")
            .option("tagIndex", str(self.with_tags).lower())
            .option("startingOffset", str(self.writer.resume_point.physical_offset))
            .option("maxBytesPerTrigger", str(MAX_FOLLOW_TRIGGER_BYTES))
            .option("maxPartitionBytes", str(MAX_FOLLOW_TRIGGER_BYTES // 4))
            .load()
        )
        writing = stream.writeStream.foreachBatch(self._put).option(
            "checkpointLocation", checkpoint.as_uri()
        )
        if trigger is None:
            return writing.trigger(availableNow=True).start()
        return writing.trigger(processingTime=trigger).start()

    def _put(self, batch: "DataFrame", _: int) -> None:
        """Write one micro-batch, sync, and advance the safe offset."""
        begin = self.writer.resume_point.physical_offset
        entries, end = index_entries.collect(batch.toArrow(), begin)
        with self._lock:
            if not self._is_ending:
                self.writer.put(entries, end)
                self.writer.sync()

    def clean(self) -> None:
        """Delete index files whose records the broker deleted."""
        log = CommitLog.of(StoreLayout.of(self.store))
        min_offset = log.min_offset
        log.close()
        with self._lock:
            self.writer.forget_below(min_offset)

    def close(self) -> None:
        with self._lock:
            self._is_ending = True
            self.writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start_callbacks(spark: "SparkSession") -> None:
    """Start the server through which Spark calls `_put` in this process.

    Its thread waits with select(2), which accepts small descriptors only: with a larger one the
    thread ends, and each micro-batch waits forever.

    :raises StoreError: if its descriptor is too large because this process has many files open.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark has no public name for it
    ensure_callback_server_started(gateway)
    server = gateway._callback_server  # noqa: SLF001 - Py4J has none either
    if server.server_socket.fileno() >= _SELECTABLE_DESCRIPTORS:
        raise StoreError(
            f"this process has more than {_SELECTABLE_DESCRIPTORS} files open, so Spark cannot "
            "call it: follow the log in a process of its own (`rocketlens index follow`)"
        )
