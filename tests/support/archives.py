"""Archives for tests, written in this process: what Spark's tasks do, without Spark."""

import atexit
import functools
import os
import shutil
import tempfile
import time
from pathlib import Path

import rocketlens
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.maintenance import vacuum
from rocketlens.pipeline.archive import ArchivedStore, archive_next, write_share
from tests.support.synthetic import START_MS, record, write_log

DAY_MS = 86_400_000
DAYS, BATCHES, EACH = 3, 4, 10
"""Days and batches of `archive_of_days`, and the messages that a batch has of each day."""


def run_here(tasks):
    """Run tasks one after another."""
    return [write_share(task) for task in tasks]


def archive_store(root, store, broker="broker-a", run_tasks=run_here, body_rules=None):
    """Archive all that a store has; return the batches."""
    tables = ArchiveTables(str(root), create=True)
    source = ArchivedStore(str(store), broker)
    return list(iter(lambda: archive_next(tables, source, run_tasks, body_rules), None))


def archive_of_days(directory):
    """Archive several days, each batch of which has messages of all of them; return its root."""
    shutil.copytree(_store_and_lake(), directory, dirs_exist_ok=True)
    return directory / "lake"


@functools.cache
def _store_and_lake():
    """Return a directory with the archive and its store, which all tests of a process copy."""
    directory = Path(tempfile.mkdtemp(prefix="rocketlens-days-"))
    atexit.register(shutil.rmtree, directory)
    records = [
        record(number, store_timestamp_ms=START_MS + DAY_MS * (number % DAYS))
        for number in range(BATCHES * DAYS * EACH)
    ]
    for batch in range(BATCHES):
        write_log(directory / "store", records[: (batch + 1) * DAYS * EACH], 1 << 16)
        archive_store(directory / "lake", directory / "store")
    return directory


def check_days(root, days=range(DAYS)):
    """Check that an archive of `archive_of_days` has each message of some days once."""
    with rocketlens.open_archive(root) as archive:
        messages = list(archive.scan())
        numbers = sorted(int(each.keys[0][4:]) for each in messages)
        assert numbers == [n for n in range(BATCHES * DAYS * EACH) if n % DAYS in days]
        for number in numbers[:7]:
            (message,) = archive.find(f"key-{number}").messages
            assert archive.find(message.position).messages == (message,)
            assert len(archive.find(message.unique_key)) == 1


def make_old(root):
    """Make all files of an archive older than what a vacuum leaves alone."""
    week_ago = time.time() - 8 * 86_400
    for path in root.glob("*/*/*.parquet"):
        os.utime(path, (week_ago, week_ago))


def delete_all_unused(root):
    """Delete what a vacuum deletes when the grace is over."""
    make_old(root)
    return vacuum(ArchiveTables(str(root)), 0)
