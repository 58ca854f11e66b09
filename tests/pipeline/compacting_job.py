"""Compact an archive with Spark and vacuum it, and kill this job with SIGKILL: TABLE POINT NUMBER.

POINT is ``task`` (a task of Spark has written a part of its files), ``before`` or ``after`` a
commit of the compaction, or ``vacuum`` (a file is to be deleted). NUMBER is how often it has come
there.
"""

import os
import signal
import sys
from collections import Counter
from pathlib import Path

from rocketlens.archive.files import TableFile
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.maintenance import compact, vacuum, write_merged
from rocketlens.pipeline import jobs
from rocketlens.pipeline.session import start
from tests.support.archives import make_old

table, point, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
driver = os.getpid()
counts: Counter[str] = Counter()


def come_to(name):
    counts[name] += 1
    if (name, counts[name]) == (point, number):
        os.kill(driver, signal.SIGKILL)


class DyingTables(ArchiveTables):
    """Tables around a commit of which the process ends."""

    def replace_files(self, *arguments):
        come_to("before")
        super().replace_files(*arguments)
        come_to("after")


def write_and_kill(task):
    rows = task.location.parquet(task.location.path(task.table, task.paths[0])).read_row_group(0)
    TableFile(task.location, task.table, task.day).write(rows)
    os.kill(driver, signal.SIGKILL)


def run(tasks):
    return jobs.run(
        spark.sparkContext, "compact", tasks, write_and_kill if point == "task" else write_merged
    )


def removed(self, path):
    come_to("vacuum")
    return remove(self, path)


remove, ArchiveLocation.remove = ArchiveLocation.remove, removed
tables = DyingTables(table)
spark = start("local[2]")
compact(tables, run)
make_old(Path(table))
vacuum(tables, 0)
