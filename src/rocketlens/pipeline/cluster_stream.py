"""The data source ``rocketmq`` as a stream of a running cluster: messages as producers send them.

::

    spark.readStream.format("rocketmq").option("namesrv", ADDR).option("subscribe", TOPIC).load()

The offset of the stream is the next offset of every queue, as JSON: topic, broker, queue id. Spark
keeps it, not the brokers. The range between two offsets always has the same messages.

====================================  ============================================================
event                                 effect
====================================  ============================================================
a topic gets queues or brokers        they are read from their first stored message on
a broker is not registered            its queues keep their offsets until it is
a broker does not answer              the query fails; a restart continues at the same offsets
a queue ends before its next offset   messages were lost, for example because the topic was created
                                      again: the query fails, or reads the queue from its start
a slave that lags answers             its queues keep their offsets
====================================  ============================================================
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rocketlens import limits
from rocketlens.bulk.messages import INT64
from rocketlens.bulk.options import flag_option, known_options, number_option
from rocketlens.bulk.positions import EARLIEST, LATEST
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.queue_stretch import QueueStretch
from rocketlens.errors import BadInput
from rocketlens.pipeline.cluster_scan import ClusterScan

QueueOffsets = dict[MessageQueue, int]


class ClusterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reports the ends of queues, plans stretches of them, and reads one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options; raise BadInput if one is not valid."""
        checked = known_options(options, "cluster streams")
        self._most = number_option(checked, "maxOffsetsPerTrigger", limits.MAX_TRIGGER_OFFSETS)
        self._from_latest = checked.pop("startingOffset", "earliest") == "latest"
        if self._from_latest and "startingTimestamp" in checked:
            raise BadInput("options startingOffsets and startingTimestamp both say where to begin")
        fails = flag_option(checked, "failOnDataLoss", default=True)
        self._scan = ClusterScan({**checked, "failOnDataLoss": str(fails).lower()}, is_stream=True)
        self._target: QueueOffsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of the stream: the first or the next offset of each queue.

        :raises TopicNotFound: if the cluster lacks a requested topic.
        :raises BadInput: if it lacks a queue that has a starting position.
        :raises StoreError: if a queue does not have its position, unless ``failOnDataLoss`` is
            false.
        :raises RemotingError: if a name server or broker does not answer.
        """
        begin_ms, _ = self._scan.times
        stored = self._scan.stored(begin_ms, INT64[1])
        starts = self._scan.starts.by_queue(stretch.queue for stretch, _ in stored)
        otherwise = LATEST if self._from_latest else EARLIEST
        begins: QueueOffsets = {}
        for stretch, warning in stored:
            start = starts.get(stretch.queue, otherwise)
            begins[stretch.queue] = self._begin(stretch, start, may_end_later=warning is not None)
        return to_json(begins)

    def _begin(self, stretch: QueueStretch, start: int, *, may_end_later: bool) -> int:
        """Return the starting offset of a queue for a position."""
        queue, first, stop = stretch
        if start < 0:
            return stop if start == LATEST else first
        if may_end_later and start > stop:
            # The slave lags: keep the offset, and wait for the queue to reach it.
            return start
        outside = self._scan.starts.outside(queue, start, (first, stop))
        for what in outside:
            self._report_loss(what)
        return first if outside else start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the current ends of the queues."""
        self._target = {each.queue: each.stop for each, _ in self._scan.stored(*INT64)}

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the next offset: the ends of the queues, or about as far as the limit.

        :raises StoreError: if messages were lost, unless ``failOnDataLoss`` is false.
        :raises RemotingError: if a name server or broker does not answer.
        """
        ends = from_json(start)
        begins = dict(ends)
        available: QueueOffsets = {}
        stored = self._scan.stored(*INT64)
        for missing in self._scan.missing:
            self._scan.losses.warn(missing)
        for (queue, first, stop), warning in stored:
            begin = begins.pop(queue, None)
            if begin is None:
                ends[queue] = first
            elif stop >= begin:
                end = stop if self._target is None else min(stop, self._target.get(queue, 0))
                available[queue] = max(end - begin, 0)
            elif warning is None:
                self._report_loss(f"{queue} ends at offset {stop}, and was read up to {begin}")
                ends[queue] = first
            if warning is not None:
                self._scan.losses.warn(warning)
        for queue in begins:
            self._scan.losses.warn(
                f"{queue}: no broker has it now, it stays at offset {ends[queue]}"
            )
        total = sum(available.values())
        most = total if isinstance(limit, ReadAllAvailable) else self._most
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
        for queue, count in available.items():
            ends[queue] += count if total <= most else min(count, max(count * most // total, 1))
        return to_json(ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split the range between two offsets; the same offsets always give the same partitions."""
        begins = from_json(start)
        stretches = [
            QueueStretch(queue, begins[queue], stop)
            for queue, stop in from_json(end).items()
            if queue in begins
        ]
        return list(map(InputPartition, self._scan.cut(stretches)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the record batches of one stretch; runs in an executor.

        :raises StoreError: if messages are missing, unless ``failOnDataLoss`` is false.
        :raises RemotingError: if a broker does not answer; Spark tries again.
        """
        return self._scan.read(partition.value)

    def _report_loss(self, what: str) -> None:
        self._scan.losses.add(f"{what}: messages were lost", "reads the queue from its start")


def to_json(offsets: QueueOffsets) -> dict[str, Any]:
    """Return next offsets in the form that Spark keeps: by topic, broker and queue id."""
    result: dict[str, Any] = {}
    for (topic, broker_name, queue_id), offset in sorted(offsets.items()):
        result.setdefault(topic, {}).setdefault(broker_name, {})[str(queue_id)] = offset
    return result


def from_json(offset: Mapping[str, Any]) -> QueueOffsets:
    """Parse the next offsets of :func:`to_json`; raise BadInput for those of another stream."""
    try:
        return {
            MessageQueue(topic, broker_name, int(queue_id)): int(next_offset)
            for topic, of_topic in offset.items()
            for broker_name, of_broker in of_topic.items()
            for queue_id, next_offset in of_broker.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise BadInput(
            f"the checkpoint is not of a stream of a cluster: its offset is {str(offset)[:80]!r}"
        ) from None
