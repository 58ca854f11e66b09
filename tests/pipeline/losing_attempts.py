"""Run a job whose first attempts at two tasks are lost: MASTER archive TABLE STORE, or MASTER send
NAMESRV.

The one of partition 0 is so slow that Spark speculates and kills it, the one of partition 1 kills
its worker with SIGKILL. Both have done a part of their work by then.
"""

import os
import signal
import sys
from itertools import islice
from threading import Event

from pyspark import TaskContext

from rocketlens.archive.files import ShareFiles
from rocketlens.archive.journal import ArchiveTables
from rocketlens.pipeline import archive, jobs
from rocketlens.pipeline.duplicates import find_duplicates
from rocketlens.pipeline.session import start
from rocketlens.pipeline.sink import RocketMQWriter
from rocketlens.pipeline.source import RocketMQDataSource

PARTITIONS = 4
ROWS = 6_000
SENT_BY_EACH_LOSER = 1_000
SPECULATES = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}


def is_slow():
    """Return whether this attempt is to lose against another one."""
    return (TaskContext.get().partitionId(), TaskContext.get().attemptNumber()) == (0, 0)


def is_killed():
    """Return whether this attempt is to end with its worker."""
    return (TaskContext.get().partitionId(), TaskContext.get().attemptNumber()) == (1, 0)


def write_share(task):
    if is_killed():
        files = ShareFiles(task.location, task.cluster, task.broker)
        files.add(islice(task.scan.read(task.share), 1))
        os.kill(os.getpid(), signal.SIGKILL)
    written = archive.write_share(task)
    if is_slow():
        Event().wait()
    return written


class LosingWriter(RocketMQWriter):
    """Sends a part of its rows in attempts that lose."""

    def write(self, iterator):
        if is_slow() or is_killed():
            super().write(islice(iterator, SENT_BY_EACH_LOSER // 500))
            if is_killed():
                os.kill(os.getpid(), signal.SIGKILL)
            Event().wait()
        return super().write(iterator)


class LosingSource(RocketMQDataSource):
    """The source with that writer."""

    def writer(self, schema, overwrite):
        return LosingWriter(super().writer(schema, overwrite)._sender)


def run_archive(spark, table, store):
    archive._SHARE_BYTES = 1 << 20
    tables = ArchiveTables(table, create=True)
    source = archive.ArchivedStore(store, "broker-a")
    counts = []

    def run(tasks):
        counts.append(len(tasks))
        return jobs.run(spark.sparkContext, "archive", tasks, write_share)

    while archive.archive_next(tables, source, run) is not None:
        pass
    assert counts == [PARTITIONS], counts


def run_send(spark, name_server):
    spark.dataSource.register(LosingSource)
    rows = spark.range(0, ROWS, 1, PARTITIONS).selectExpr("cast(id as string) as body")
    writing = rows.write.format("rocketmq").option("namesrv", name_server)
    writing.option("topic", "Lost").mode("append").save()
    reading = spark.read.format("rocketmq").option("namesrv", name_server)
    report = find_duplicates(reading.option("subscribe", "Lost").load(), max_num=1)
    sys.stdout.write(f"{report.unique_keys}\n")


if __name__ == "__main__":
    master, job, *arguments = sys.argv[1:]
    session = start(master, config=SPECULATES)
    {"archive": run_archive, "send": run_send}[job](session, *arguments)
    session.stop()
