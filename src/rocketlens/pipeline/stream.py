"""The data source ``rocketmq`` as a stream: messages as a broker appends them.

::

    spark.readStream.format("rocketmq").option("store", DIR).load()

The options are those of :mod:`rocketlens.pipeline.source`, but for ``table=damage``, and these:

====================  ===========================================================================
option                meaning
====================  ===========================================================================
startingOffset        a physical offset: the stream begins with the first record there or after;
                      ``earliest``, which is the default, or ``latest``
maxBytesPerTrigger    about so many bytes of log in one micro-batch, at most; 256 MiB
table                 ``messages``, or ``index_entries``, from which index files are made
====================  ===========================================================================

The offset of the stream is a physical offset of the log at which a record begins or will begin.
Records that a broker deletes before they were read are passed over. Messages are given once they
are in the log; index entries once their record was synced by the broker of this project that runs
there, so that an index never knows more than the log does after a power cut.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from rocketlens.errors import BadInput, NotAStore
from rocketlens.pipeline import index_entries
from rocketlens.pipeline.source import (
    TABLES,
    RocketMQReader,
    Share,
    SharePartition,
    choice_option,
    flag_option,
    number_option,
)

if TYPE_CHECKING:
    from rocketlens.store.commitlog import CommitLog

MAX_BYTES_PER_TRIGGER: Final = 256 << 20
STARTS: Final = {"earliest": 0, "latest": 2**63 - 1}
_OFFSET: Final = "physical_offset"


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tells how far the log goes, plans stretches of it, and reads one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options.

        :raises BadInput: naming the option that can't be used.
        """
        table = choice_option(options, "table", TABLES)
        if table == "damage":
            raise BadInput("the table damage is not for streams: use read")
        self._of_entries = table == "index_entries"
        self._with_tags = flag_option(options, "tagIndex", default=True)
        self._max_bytes = number_option(options, "maxBytesPerTrigger", MAX_BYTES_PER_TRIGGER)
        start = options.get("startingOffset", "earliest").lower()
        self._first = STARTS.get(start)
        if self._first is None:
            self._first = number_option(options, "startingOffset", 0, 0)
        own = ("table", "startingoffset")
        others = {name: value for name, value in options.items() if name.lower() not in own}
        self._messages = RocketMQReader(CaseInsensitiveDict(others))
        self._store = Path(self._messages.store)
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Give where the stream begins: the first record there or after, or the log's end.

        :raises NotAStore: when there is no commit log.
        """
        from rocketlens.pipeline.ranges import walk_log

        log = self._log()
        try:
            if self._first == STARTS["latest"]:
                return {_OFFSET: self._end(log, log.min_offset, STARTS["latest"])}
            begin = log.min_offset
            segment = log.segment_of(self._first or 0)
            if segment is not None:
                begin = segment.base_offset
            return {_OFFSET: walk_log(log, begin, max(self._first or 0, begin))}
        finally:
            log.close()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Give the limit that the options set."""
        return ReadMaxBytes(self._max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where the log ends now."""
        log = self._log()
        self._target = self._end(log, log.min_offset, STARTS["latest"])
        log.close()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Give up to where to read: whole records, within the limit but for one. Spark's name."""
        begin = start[_OFFSET]
        stop = STARTS["latest"]
        if isinstance(limit, ReadMaxBytes):
            stop = begin + limit.max_bytes
        elif not isinstance(limit, ReadAllAvailable):
            stop = begin + self._max_bytes
        if self._target is not None:
            stop = min(stop, self._target)
        if self._of_entries:
            stop = min(stop, self._synced())
            if stop <= begin:
                return start
        log = self._log()
        try:
            return {_OFFSET: max(begin, self._end(log, begin, stop))}
        finally:
            log.close()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Cut what is between two offsets into stretches."""
        from rocketlens.pipeline.ranges import stretches

        log = self._log()
        try:
            return [
                SharePartition(Share(one, walk_from=walk_from))
                for one, walk_from in stretches(
                    log, start[_OFFSET], end[_OFFSET], self._messages.partition_bytes
                )
            ]
        finally:
            log.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Give the record batches of one stretch; runs in an executor."""
        if not self._of_entries:
            yield from self._messages.read(partition)
            return
        from rocketlens.pipeline import ranges

        share: Share = partition.value
        assert share.log_range is not None  # noqa: S101 - see partitions
        mapped, content = ranges.open_range(share.log_range)
        with mapped:
            first = ranges.true_start(share.log_range, content, share.walk_from)
            yield from index_entries.batches(
                share.log_range, first, content, with_tags=self._with_tags
            )
            del content

    def _log(self) -> "CommitLog":
        from rocketlens.store.commitlog import CommitLog

        return CommitLog(self._store / "commitlog")

    def _end(self, log: "CommitLog", begin: int, stop: int) -> int:
        from rocketlens.pipeline.ranges import walk_log

        return walk_log(log, begin, stop)

    def _synced(self) -> int:
        """Give how far the broker synced the log.

        :raises NotAStore: when no broker of this project ever wrote to the store.
        """
        from rocketlens.store.layout import StoreLayout
        from rocketlens.store.state import read_synced_offset

        synced = read_synced_offset(StoreLayout(self._store))
        if synced is None:
            raise NotAStore(f"{self._store} is not the store of a RocketLens broker")
        return synced
