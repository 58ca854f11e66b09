"""The data source ``rocketmq``: messages of a store or cluster as a table, read as Arrow batches.

::

    spark.read.format("rocketmq").option("store", DIR).load()
    spark.read.format("rocketmq").option("namesrv", ADDR).option("subscribe", TOPIC).load()

The options are in :data:`rocketlens.bulk.options.OPTIONS`. ``docs/reference/spark.md`` says which
records are skipped and when a job fails. ``write`` is in :mod:`rocketlens.pipeline.sink`,
``spark.readStream`` in :mod:`rocketlens.pipeline.stream`; clusters are read by
:mod:`rocketlens.pipeline.cluster_scan` and ``cluster_stream``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rocketlens.bulk.index_entries import INDEX_ENTRY_COLUMNS
from rocketlens.bulk.messages import DAMAGE_COLUMNS, BatchScan
from rocketlens.bulk.options import ForeignOption, choice_option, is_cluster, known_options
from rocketlens.errors import BadInput
from rocketlens.pipeline.session import use_this_python
from rocketlens.pipeline.stream import TABLES, RocketMQStreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from rocketlens.pipeline.cluster_scan import ClusterScan

# Before a session starts: its workers must be able to import this module.
use_this_python()


class RocketMQDataSource(DataSource):
    """The source; Spark creates an instance for each ``load()``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "rocketmq"

    def schema(self) -> str:
        """Return the columns of the requested table. Spark calls this in ``load()``.

        :raises BadInput: if neither a batch read nor a stream accepts these options.
        """
        from rocketlens.model.fields import COLUMNS

        refusals: list[BadInput] = []
        for make in (_stream_reader, RocketMQReader):
            try:
                make(self.options)
                break
            except BadInput as error:
                refusals.append(error)
        else:
            raise min(refusals, key=lambda error: isinstance(error, ForeignOption))
        table = choice_option(self.options, "table", TABLES)
        if table == "damage":
            return DAMAGE_COLUMNS
        if table == "index_entries":
            return INDEX_ENTRY_COLUMNS
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: "StructType") -> "RocketMQReader":
        """Return the reader of a table; raise BadInput if the caller gave a schema."""
        self._check_schema(schema)
        return RocketMQReader(self.options)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        """Return the reader of a stream (Spark's name); raise BadInput if there is a schema."""
        self._check_schema(schema)
        return _stream_reader(self.options)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":  # noqa: FBT001
        """Return the sender of a table's rows; raise BadInput if an option or column is invalid."""
        from rocketlens.pipeline.sink import RocketMQWriter, RowSender, kinds_of

        if overwrite:
            raise BadInput('messages cannot be overwritten: use mode("append")')
        return RocketMQWriter(RowSender.of(self.options, kinds_of(schema)))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: "StructType",
        overwrite: bool,  # noqa: ARG002, FBT001 - of the output mode complete
    ) -> "DataSourceStreamWriter":
        """Return the sender of micro-batches; raise BadInput if an option or column is invalid."""
        from rocketlens.pipeline.sink import RocketMQStreamWriter, RowSender, kinds_of

        return RocketMQStreamWriter(RowSender.of(self.options, kinds_of(schema)))

    def _check_schema(self, schema: "StructType") -> None:
        # With another schema, a worker would fail in the middle of the job.
        fixed = [column.split()[0] for column in self.schema().split(", ")]
        if schema.names != fixed:
            raise BadInput(
                "the source rocketmq has a fixed schema: leave out .schema(...), and choose "
                "columns with select(...)"
            )


class RocketMQReader(DataSourceReader):
    """Plans shares of a store's log or of queues, and reads one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options; raise BadInput if one is not valid."""
        self.scan: BatchScan | ClusterScan = _scan(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the log ranges, or stretches of queues, that can hold matching rows.

        :raises NotAStore: if there is no commit log.
        :raises BadInput: if the store lacks a requested topic.
        :raises TopicNotFound: if the cluster lacks it.
        :raises RemotingError: if a name server or broker does not answer.
        """
        # Spark rejects a source without partitions.
        return list(map(InputPartition, self.scan.shares())) or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the record batches of one share; runs in an executor.

        :raises StoreError: if the broker deleted planned records and ``failOnDataLoss`` is set.
        :raises OSError: if a segment cannot be opened for another reason; Spark tries again.
        :raises RemotingError: if a broker does not answer; Spark tries again.
        """
        return iter(()) if partition.value is None else self.scan.read(partition.value)


def _stream_reader(options: Mapping[str, str]) -> "DataSourceStreamReader":
    if is_cluster(options):
        from rocketlens.pipeline.cluster_stream import ClusterStreamReader

        return ClusterStreamReader(options)
    return RocketMQStreamReader(options)


def _scan(options: Mapping[str, str]) -> "BatchScan | ClusterScan":
    if is_cluster(options):
        # Reading a store needs no sockets.
        from rocketlens.pipeline.cluster_scan import ClusterScan

        return ClusterScan(known_options(options, "cluster reads"))
    checked = known_options(options, "batch reads")
    if choice_option(checked, "table", TABLES) == "index_entries":
        raise BadInput("the table index_entries is for streams: use readStream")
    return BatchScan(checked)
