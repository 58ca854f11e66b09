"""Archives for tests, written in this process: what Spark's tasks do, without Spark."""

from rocketlens.archive.journal import ArchiveTables
from rocketlens.pipeline.archive import ArchivedStore, archive_next, write_share


def run_here(tasks):
    """Run tasks one after another."""
    return [write_share(task) for task in tasks]


def archive_store(root, store, broker="broker-a", run_tasks=run_here):
    """Archive all that a store has; return the batches."""
    tables = ArchiveTables(str(root), create=True)
    source = ArchivedStore(str(store), broker)
    return list(iter(lambda: archive_next(tables, source, run_tasks), None))
