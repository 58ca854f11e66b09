"""The data source ``rocketmq``: messages of a store or cluster as a table, read as Arrow batches.

::

    spark.read.format("rocketmq").option("store", DIR).load()
    spark.read.format("rocketmq").option("namesrv", ADDR).option("subscribe", TOPIC).load()

The options are in :data:`rocketlens.bulk.options.OPTIONS`. ``write`` is in
:mod:`rocketlens.pipeline.sink`. ``docs/reference/spark.md`` says what is
left out and when a job fails. ``spark.readStream`` is in :mod:`rocketlens.pipeline.stream`; what
reads a cluster is in :mod:`rocketlens.pipeline.cluster_scan` and ``cluster_stream``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rocketlens.bulk.index_entries import INDEX_ENTRY_COLUMNS
from rocketlens.bulk.messages import DAMAGE_COLUMNS, BatchScan
from rocketlens.bulk.options import ForeignOption, choice_option, is_cluster, known_options
from rocketlens.errors import BadInput
from rocketlens.pipeline.session import use_this_python
from rocketlens.pipeline.stream import TABLES, RocketMQStreamReader, SharePartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from rocketlens.pipeline.cluster_scan import ClusterScan

# Before a session is started, whose workers must be able to import this, too.
use_this_python()


class RocketMQDataSource(DataSource):
    """Spark makes one for each ``load()``. The module's docstring has the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "rocketmq"

    def schema(self) -> str:
        """Return the columns of the table that the options ask for. Spark calls this in ``load()``.

        :raises BadInput: when neither a batch read nor a stream can have these options.
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
        """Return the reader of a table.

        :raises BadInput: if the caller gave a schema of its own.
        """
        self._check_schema(schema)
        return RocketMQReader(self.options)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        """Return the reader of a stream. Spark's name.

        :raises BadInput: if the caller gave a schema of its own.
        """
        self._check_schema(schema)
        return _stream_reader(self.options)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":  # noqa: FBT001
        """Return what sends the rows of a table.

        :raises BadInput: naming what is not valid.
        """
        from rocketlens.pipeline.sink import RocketMQWriter, RowSender, kinds_of

        if overwrite:
            raise BadInput('messages cannot be overwritten: use mode("append")')
        return RocketMQWriter(RowSender.of(self.options, kinds_of(schema)))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: "StructType",
        overwrite: bool,  # noqa: ARG002, FBT001 - of the output mode complete
    ) -> "DataSourceStreamWriter":
        """Return what sends the rows of micro-batches.

        :raises BadInput: naming what is not valid.
        """
        from rocketlens.pipeline.sink import RocketMQStreamWriter, RowSender, kinds_of

        return RocketMQStreamWriter(RowSender.of(self.options, kinds_of(schema)))

    def _check_schema(self, schema: "StructType") -> None:
        # Otherwise a worker fails in the middle of the job.
        fixed = [column.split()[0] for column in self.schema().split(", ")]
        if schema.names != fixed:
            raise BadInput(
                "the source rocketmq has a fixed schema: leave out .schema(...), and choose "
                "columns with select(...)"
            )


class RocketMQReader(DataSourceReader):
    """Plans ranges of the log, and reads one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options.

        :raises BadInput: naming the option that is not valid.
        """
        self.scan: BatchScan | ClusterScan = _scan(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges, or stretches of queues, that can hold rows of the answer.

        :raises NotAStore: when there is no commit log.
        :raises BadInput: when the store does not have a topic that is asked for.
        :raises TopicNotFound: when the cluster does not have it.
        :raises RemotingError: when a name server or broker does not answer.
        """
        # Spark refuses a source without partitions.
        return list(map(SharePartition, self.scan.shares())) or [SharePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the record batches of one share; runs in an executor.

        :raises StoreError: when the broker deleted what was planned, if ``failOnDataLoss`` is set.
        :raises OSError: when a segment cannot be opened for another reason; Spark tries again.
        :raises RemotingError: when a broker does not answer; Spark tries again.
        """
        return iter(()) if partition.value is None else self.scan.read(partition.value)


def _stream_reader(options: Mapping[str, str]) -> "DataSourceStreamReader":
    if is_cluster(options):
        from rocketlens.pipeline.cluster_stream import ClusterStreamReader

        return ClusterStreamReader(options)
    return RocketMQStreamReader(options)


def _scan(options: Mapping[str, str]) -> "BatchScan | ClusterScan":
    if is_cluster(options):
        # Late: reading a store needs no sockets.
        from rocketlens.pipeline.cluster_scan import ClusterScan

        return ClusterScan(known_options(options, "cluster reads"))
    checked = known_options(options, "batch reads")
    if choice_option(checked, "table", TABLES) == "index_entries":
        raise BadInput("the table index_entries is for streams: use readStream")
    return BatchScan(checked)
