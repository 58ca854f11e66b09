"""What a range of the log gives to index and queues is written in parts, in the log's order."""

import numpy as np
import pytest

from rocketlens.bulk.extract import HASHES, RECORD_FIELDS, RECORDS, ExtractTask, extract
from rocketlens.bulk.queue_build import read_entries, read_queue_offsets
from rocketlens.model.text import java
from rocketlens.store.disk import Disk
from tests.support.synthetic import index_keys, record, reference_queue, write_log
from tests.unit.bulk.built_stores import ranges_of


@pytest.fixture
def written(tmp_path):
    log = [record(n, queue_id=n % 2, queue_offset=n // 2, TAGS=f"t{n % 3}") for n in range(40)]
    return write_log(tmp_path / "store", log, 1 << 16)


def extracted(tmp_path, *, with_index=True, with_tags=True, with_queues=True):
    (tmp_path / "work").mkdir()
    [log_range] = ranges_of(tmp_path / "store")
    work = str(tmp_path / "work")
    return extract(ExtractTask(log_range, work, with_index, with_tags, with_queues, Disk()))


@pytest.mark.parametrize("with_tags", [False, True])
def test_index_entries_are_those_of_every_key_in_the_order_of_the_log(written, tmp_path, with_tags):
    part = extracted(tmp_path, with_tags=with_tags).index
    expected = [
        (java.index_hash(key), one.physical_offset, one.store_timestamp_ms)
        for one in written
        for key in index_keys(one, with_tags=with_tags)
    ]
    hashes = np.fromfile(part.stem + HASHES, np.int32).tolist()
    records = np.fromfile(part.stem + RECORDS, RECORD_FIELDS)
    entries = np.repeat(records, records["entry_count"])
    columns = hashes, entries["offset"].tolist(), entries["timestamp_ms"].tolist()
    assert list(zip(*columns, strict=True)) == expected
    assert part.entry_count == len(expected)
    assert len(records) == len({offset for _, offset, _ in expected})


def test_each_queue_has_its_own_rows_in_one_file(written, tmp_path):
    made = extracted(tmp_path)
    assert made.walked.record_count == len(written)
    assert [(part.topic, part.queue_id, part.row_count) for part in made.queues] == [
        ("Topic", 0, 20),
        ("Topic", 1, 20),
    ]
    for part in made.queues:
        own = [one for one in written if one.queue_id == part.queue_id]
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
    parts = extracted(tmp_path).queues
    assert [(part.start, part.row_count, part.last_queue_offset) for part in parts] == [
        (0, 3, 2),
        (3, 2, 1),
    ]


def test_only_what_is_asked_for_is_written(written, tmp_path):
    made = extracted(tmp_path, with_index=False, with_queues=False)
    assert (made.index.entry_count, made.queues) == (0, [])
    assert list((tmp_path / "work").iterdir()) == []
