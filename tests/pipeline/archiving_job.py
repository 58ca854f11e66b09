"""Run an archive job in batches of 64 KiB that kills itself with SIGKILL: TABLE STORE POINT NUMBER.

POINT is ``task`` (a task of Spark has written a part of its files), or the table whose commit is
next. NUMBER is the batch in which that happens.
"""

import os
import signal
import sys

from rocketlens.archive.files import ShareFiles
from rocketlens.archive.journal import ArchiveTables
from rocketlens.pipeline import archive, jobs
from rocketlens.pipeline.session import start

table, store, point, number = *sys.argv[1:4], int(sys.argv[4])
archive.MAX_ARCHIVE_BATCH_BYTES = 1 << 16
driver = os.getpid()


class DyingTables(ArchiveTables):
    """Tables before a commit of which the process ends."""

    def commit(self, batch):
        self._die_at("journal", batch)
        super().commit(batch)

    def _add(self, table, batch, files):
        self._die_at("messages" if table is self.messages else "message_keys", batch)
        super()._add(table, batch, files)

    def _die_at(self, name, batch):
        if (name, batch.number) == (point, number):
            os.kill(driver, signal.SIGKILL)


def write_and_kill(task):
    files = ShareFiles(task.location, task.cluster, task.broker)
    files.add(task.scan.read(task.share))
    os.kill(driver, signal.SIGKILL)


def run(tasks):
    is_dying = point == "task" and count + 1 == number
    return jobs.run(
        spark.sparkContext, "archive", tasks, write_and_kill if is_dying else archive.write_share
    )


count = 0
tables = DyingTables(table, create=True)
source = archive.ArchivedStore(store, "broker-a")
spark = start("local[2]")
while archive.archive_next(tables, source, run) is not None:
    count += 1
