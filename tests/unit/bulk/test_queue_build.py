"""Consume queue files from parts: slices of a regular queue, an irregular one settled whole.

Index entries of a stretch of log as Arrow batches, which show when one is missing.
What a range of the log gives to index and queues is written in parts, in the log's order.
An index build whose disk fails ends with a clear error, and the old files stay whole.
"""

import errno
import pickle
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from rocketlens import limits
from rocketlens.bulk import index_entries, index_plan, queue_build
from rocketlens.bulk.extract import HASHES, RECORD_FIELDS, RECORDS, ExtractTask, extract
from rocketlens.bulk.queue_build import read_entries, read_queue_offsets
from rocketlens.bulk.ranges import open_range, true_start
from rocketlens.errors import StoreError
from rocketlens.formats.index_file import Geometry
from rocketlens.model.text import java
from rocketlens.pipeline import dispatch, jobs
from rocketlens.store.disk import Disk
from rocketlens.store.read.former_topics import TopicEvidence
from tests.support.failing_disks import QuickDisk
from tests.support.synthetic import files_below, index_keys, record, reference_queue, write_log
from tests.support.written_stores import content_of, open_small, send_many
from tests.unit.bulk.built_stores import build, ranges_of

FILE_ENTRIES = 8


def extracted(tmp_path, log):
    """Return the records of a log, and its queue parts."""
    records = write_log(tmp_path / "store", log, 1 << 16)
    (tmp_path / "work").mkdir()
    return records, [
        part
        for one in ranges_of(tmp_path / "store")
        for part in extract(
            ExtractTask(
                one,
                str(tmp_path / "work"),
                with_index=False,
                with_tags=False,
                with_queues=True,
                disk=Disk(),
            )
        ).queues
    ]


def built(tmp_path, log):
    """Build the queues of a log; return its records, the tasks and their results."""
    records, parts = extracted(tmp_path, log)
    units, count, unsafe = queue_build.plan_queues(parts, tmp_path / "queues", FILE_ENTRIES)
    tasks = queue_build.tasks_of(units, FILE_ENTRIES, (0,), 2, Disk())
    return records, count, unsafe, [queue_build.build(task) for task in tasks]


@pytest.mark.parametrize("first", [0, 5, 8, 1234])
def test_a_regular_queue_is_cut_at_its_files_and_filled_below(tmp_path, first):
    log = [record(n, queue_offset=first + n) for n in range(30)]
    records, count, unsafe, results = built(tmp_path, log)
    assert (count, unsafe) == (1, [])
    expected = reference_queue(records, FILE_ENTRIES)
    assert files_below(tmp_path / "queues" / "Topic" / "0") == expected
    assert sum(result.files for result in results) == len(expected)
    assert sum(result.entries for result in results) == 30


@pytest.mark.parametrize("queue_offsets", [range(5, 15), (5, 6, 8, 9, 12, 13, 14, 15, 16, 20)])
def test_records_of_a_deleted_topic_leave_the_others_their_queue_offsets(tmp_path, queue_offsets):
    log = [record(n, queue_offset=offset) for n, offset in enumerate(queue_offsets)]
    records, parts = extracted(tmp_path, log)
    end = records[4].physical_offset
    evidence = TopicEvidence({"Topic": end}, frozenset({"Topic"}), frozenset({"Topic"}), 0)
    [part], former, _ = queue_build.parts_to_build(parts, evidence)
    assert former == {"Topic": 4}
    assert queue_build.read_queue_offsets(part).tolist() == list(queue_offsets)[4:]
    assert (part.first_queue_offset, part.first_offset) == (queue_offsets[4], end)


def test_a_queue_with_holes_and_repetitions_keeps_every_other_entry(tmp_path):
    log = [record(n, queue_offset=at) for n, at in enumerate((3, 4, 5, 4, 5, 6, 7))]
    records, _, _, [result] = built(tmp_path, log)
    assert files_below(tmp_path / "queues" / "Topic" / "0") == reference_queue(
        records, FILE_ENTRIES
    )
    assert (result.entries, result.repeated, result.impossible) == (5, 2, 0)


def test_a_topic_that_is_not_safe_in_a_path_gets_no_queue_and_is_named(tmp_path):
    _, count, unsafe, results = built(
        tmp_path, [record(0, topic="../x"), record(1, queue_offset=0)]
    )
    assert (count, unsafe) == (1, ["../x"])
    assert sum(result.files for result in results) == 1
    assert list(files_below(tmp_path / "queues")) == [f"Topic/0/{0:020}"]


@pytest.mark.parametrize(
    ("claims", "kept", "impossible"),
    [
        ([5, 6, 7], [0, 1, 2], []),
        ([5, 6, 6, 5, 7], [0, 1, 4], []),
        ([-1, 0, 1], [1, 2], [0]),
        ([0, limits.MAX_QUEUE_OFFSET + 1, 1], [0, 2], [1]),
        # More others than fit between two records.
        ([0, 1 << 40, 1, 2], [0, 2, 3], [1]),
        # The first, which nothing stands before, is outvoted by three in a row.
        ([1 << 30, 5, 6, 7], [1, 2, 3], [0]),
        ([], [], []),
    ],
)
def test_the_first_record_that_claims_a_queue_offset_has_it(claims, kept, impossible):
    offsets = np.arange(len(claims), dtype=np.int64) * 200
    is_kept, is_impossible = queue_build.resolve_repeated(np.array(claims, np.int64), offsets)
    assert np.flatnonzero(is_kept).tolist() == kept
    assert np.flatnonzero(is_impossible).tolist() == impossible


def test_each_index_file_is_written_by_one_task_and_small_ones_share_it(tmp_path):
    header = index_plan.IndexHeader(0, 0, 0, 0, 0, 1)
    plans = [index_plan.IndexPlan(str(number), (), header, 0) for number in range(10)]
    tasks = index_plan.tasks_of(plans, tmp_path, Geometry(100, 10), 1, Disk())
    assert [plan for task in tasks for plan in task.plans] == plans
    assert [len(task.plans) for task in tasks] == [3, 3, 3, 1]
    assert index_plan.tasks_of([], tmp_path, Geometry(100, 10), 1, Disk()) == []


def table_of(log_ranges):
    batches = []
    for one in log_ranges:
        with open_range(one) as mapped:
            first = true_start(one, mapped.view)
            batches += index_entries.batches(one, first, mapped.view, with_tags=True)
    return pa.Table.from_batches(batches)


@pytest.fixture
def written(tmp_path):
    return build(tmp_path)


def test_the_entries_of_a_stretch_are_those_of_every_key_and_its_end_is_said(written, tmp_path):
    [whole] = ranges_of(tmp_path)
    entries, reached = index_entries.collect(table_of([whole]), 0)
    expected = [
        (java.index_hash(key), one.physical_offset, one.store_timestamp_ms)
        for one in written
        for key in index_keys(one, with_tags=True)
    ]
    columns = (entries.hashes, entries.offsets, entries.timestamps)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert reached == whole.stop


def test_stretches_that_meet_are_one_and_one_that_lacks_is_a_gap(written, tmp_path):
    [whole] = ranges_of(tmp_path)
    edge = written[20].physical_offset
    halves = [whole._replace(stop=edge), whole._replace(start=edge, known=False)]
    entries, reached = index_entries.collect(table_of(halves), 0)
    assert (len(entries.hashes), reached) == (3 * len(written), whole.stop)
    with pytest.raises(index_entries.Gap, match=f"physical offsets 0 to {edge}"):
        index_entries.collect(table_of(halves[1:]), 0)
    entries, _ = index_entries.collect(table_of(halves[1:]), edge)
    assert entries.offsets.tolist()[0] == edge


@pytest.fixture
def written_log(tmp_path):
    log = [record(n, queue_id=n % 2, queue_offset=n // 2, TAGS=f"t{n % 3}") for n in range(40)]
    return write_log(tmp_path / "store", log, 1 << 16)


def extracted_part(tmp_path, *, with_index=True, with_tags=True, with_queues=True):
    (tmp_path / "work").mkdir()
    [log_range] = ranges_of(tmp_path / "store")
    work = str(tmp_path / "work")
    return extract(ExtractTask(log_range, work, with_index, with_tags, with_queues, Disk()))


@pytest.mark.parametrize("with_tags", [False, True])
def test_index_entries_are_those_of_every_key_in_the_order_of_the_log(
    written_log, tmp_path, with_tags
):
    part = extracted_part(tmp_path, with_tags=with_tags).index
    expected = [
        (java.index_hash(key), one.physical_offset, one.store_timestamp_ms)
        for one in written_log
        for key in index_keys(one, with_tags=with_tags)
    ]
    hashes = np.fromfile(part.stem + HASHES, np.int32).tolist()
    records = np.fromfile(part.stem + RECORDS, RECORD_FIELDS)
    entries = np.repeat(records, records["entry_count"])
    columns = hashes, entries["offset"].tolist(), entries["timestamp_ms"].tolist()
    assert list(zip(*columns, strict=True)) == expected
    assert part.entry_count == len(expected)
    assert len(records) == len({offset for _, offset, _ in expected})


def test_each_queue_has_its_own_rows_in_one_file(written_log, tmp_path):
    made = extracted_part(tmp_path)
    assert made.walked.record_count == len(written_log)
    assert [(part.topic, part.queue_id, part.record_count) for part in made.queues] == [
        ("Topic", 0, 20),
        ("Topic", 1, 20),
    ]
    for part in made.queues:
        own = [one for one in written_log if one.queue_id == part.queue_id]
        [content] = reference_queue(own, 20).values()
        assert read_entries(part, (0,)).tobytes() == content
        assert read_queue_offsets(part).tolist() == list(range(20))
        assert part.is_consecutive
        assert (part.first_offset, part.last_offset) == (
            own[0].physical_offset,
            own[-1].physical_offset,
        )


def test_a_queue_that_begins_again_begins_another_part(tmp_path):
    log = [record(n, queue_offset=offset) for n, offset in enumerate((0, 1, 2, 0, 1))]
    write_log(tmp_path / "store", log, 1 << 16)
    parts = extracted_part(tmp_path).queues
    assert [(part.start, part.record_count, part.last_queue_offset) for part in parts] == [
        (0, 3, 2),
        (3, 2, 1),
    ]


def test_only_what_is_asked_for_is_written(written_log, tmp_path):
    made = extracted_part(tmp_path, with_index=False, with_queues=False)
    assert (made.index.entry_count, made.queues) == (0, [])
    assert list((tmp_path / "work").iterdir()) == []


OPERATIONS = (
    "new_file",
    "make_reserved_file",
    "make_directory",
    "open_file",
    "sync_file",
    "sync_directory",
    "exchange_directories",
)
"""What a build asks of the disk, deleting its work directory excepted."""


class FullDisk(QuickDisk):
    """A disk on which one operation, counted from 0, fails for want of room."""

    def __init__(self, fails_at=None):
        self.fails_at = fails_at
        self.operations = []

    def count(self, name, path):
        self.operations.append(name)
        if len(self.operations) - 1 == self.fails_at:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


def counted(name):
    def operation(self, path, *arguments, **named):
        self.count(name, path)
        return getattr(super(FullDisk, self), name)(path, *arguments, **named)

    return operation


for name in OPERATIONS:
    setattr(FullDisk, name, counted(name))


def build_at(store, disk):
    """Build without Spark: each task is done here, in order."""
    context = SimpleNamespace(defaultParallelism=2)
    return dispatch.dispatch(
        context, store, slot_count=5, entry_count=40, tag_index=True, queues=True, disk=disk
    )


@pytest.fixture
def store(tmp_path, monkeypatch):
    def run_here(_spark, _phase, tasks, function, _progress=None):
        return [function(task) for task in tasks]

    monkeypatch.setattr(jobs, "run", run_here)
    path = tmp_path / "store"
    with open_small(path) as opened:
        send_many(opened, 40)
    (path / "index" / "20010101000000000").write_bytes(b"old")
    (path / "consumequeue" / "old").write_bytes(b"old")
    return path


def test_a_build_on_a_disk_that_fails_anywhere_says_so_and_leaves_whole_directories(
    store, tmp_path
):
    names = ("index", "consumequeue")
    old = {name: content_of(store, name) for name in names}
    copy, disk = shutil.copytree(store, tmp_path / "copy"), FullDisk()
    build_at(copy, disk)
    new = {name: content_of(copy, name) for name in names}
    assert set(disk.operations) == set(OPERATIONS)
    assert new["index"] != old["index"]
    for fails_at in range(len(disk.operations)):
        trial = shutil.copytree(store, tmp_path / f"trial{fails_at}")
        with pytest.raises(StoreError, match=r"the build failed: .*No space left on device"):
            build_at(trial, FullDisk(fails_at))
        for name in names:
            assert content_of(trial, name) in (old[name], new[name])
        assert [path.name for path in trial.iterdir() if path.name.startswith(".")] == []


def test_a_disk_goes_with_a_task_to_another_process():
    assert type(pickle.loads(pickle.dumps(Disk()))) is Disk
