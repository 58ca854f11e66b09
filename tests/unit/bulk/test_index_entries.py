"""Index entries of a stretch of log as Arrow batches, which show when one is missing."""

import pyarrow as pa
import pytest

from rocketlens.bulk import index_entries
from rocketlens.bulk.ranges import open_range, true_start
from rocketlens.model.text import java
from tests.support.synthetic import index_keys
from tests.unit.bulk.built_stores import build, ranges_of


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
    entries, reached = index_entries.collected(table_of([whole]), 0)
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
    entries, reached = index_entries.collected(table_of(halves), 0)
    assert (len(entries.hashes), reached) == (3 * len(written), whole.stop)
    with pytest.raises(index_entries.Gap, match=f"physical offsets 0 to {edge}"):
        index_entries.collected(table_of(halves[1:]), 0)
    entries, _ = index_entries.collected(table_of(halves[1:]), edge)
    assert entries.offsets.tolist()[0] == edge
