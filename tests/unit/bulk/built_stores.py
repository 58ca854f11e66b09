"""A store with index and one consume queue, by the plainest possible builders."""

from rocketlens.formats.index_file import Geometry
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.synthetic import record, reference_index, reference_queue, write_log

GEOMETRY = Geometry(50, 40)
FILE_ENTRIES = 20


def build(store, count=50):
    """Build it; return the records of its log, all of queue 0 of one topic."""
    log = write_log(store, [record(n, TAGS=f"t{n % 3}") for n in range(count)], 1 << 16)
    (store / "index").mkdir()
    for number, content in enumerate(reference_index(log, GEOMETRY, with_tags=True)):
        (store / "index" / f"{20240101000000000 + number}").write_bytes(content)
    queue = store / "consumequeue" / "Topic" / "0"
    queue.mkdir(parents=True)
    for name, content in reference_queue(log, FILE_ENTRIES).items():
        (queue / name).write_bytes(content)
    return log


def change(path, at, new):
    content = bytearray(path.read_bytes())
    content[at : at + len(new)] = new
    path.write_bytes(content)


def ranges_of(store, range_bytes=1 << 20):
    from rocketlens.bulk.ranges import cut

    log = CommitLog(store / "commitlog")
    try:
        return cut(log, range_bytes)
    finally:
        log.close()
