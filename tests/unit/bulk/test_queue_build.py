"""Consume queue files from parts: slices of a regular queue, an irregular one settled whole."""

import numpy as np
import pytest

from rocketlens import limits
from rocketlens.bulk import queue_build
from rocketlens.bulk.extract import ExtractTask, extract
from rocketlens.store.disk import Disk
from rocketlens.store.read.former_topics import TopicEvidence
from tests.support.synthetic import files_below, record, reference_queue, write_log
from tests.unit.bulk.built_stores import ranges_of

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
