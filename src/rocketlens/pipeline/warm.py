"""Loads what each job needs in Spark's Python workers: numpy, Arrow, and the compiled kernels."""

import tempfile
from pathlib import Path

from rocketlens.bulk import extract, index_plan, queue_build, ranges
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import MAGIC_V1, Record
from rocketlens.formats.index_file import Geometry
from rocketlens.model.message import Host
from rocketlens.store.disk import Disk


def load_kernels(_task: int = 0) -> None:
    """Load in this process what every job needs, by dispatching a store of one record."""
    host = Host("127.0.0.1", 1)
    properties = b"KEYS\x01k\x02"
    record = Record(0, MAGIC_V1, 0, 0, 0, 0, 0, 0, 1, host, 1, host, 0, 0, b"", "t", properties)
    content = commitlog_record.encode(record)
    with tempfile.TemporaryDirectory(prefix="rocketlens-") as name:
        directory = Path(name)
        path = directory / "log"
        path.write_bytes(content)
        log_range = ranges.LogRange(str(path), 0, len(content), 0, len(content), known=False)
        disk = Disk()
        task = extract.ExtractTask(
            log_range, name, with_index=True, with_tags=False, with_queues=True, disk=disk
        )
        extracted = extract.extract(task)
        geometry = Geometry(1, 2)
        plans = index_plan.plan_files([extracted.index], geometry)
        for build in index_plan.tasks_of(plans, directory, geometry, 1, disk):
            index_plan.build(build)
        units, _, _ = queue_build.plan_queues(extracted.queues, directory, 1)
        for queue in queue_build.tasks_of(units, 1, (0,), 1, disk):
            queue_build.build(queue)
