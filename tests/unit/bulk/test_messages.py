"""A store read as Arrow batches, without a session."""

from dataclasses import replace

import pytest

from rocketlens import read_batches
from rocketlens.bulk.messages import BatchScan
from rocketlens.errors import BadInput
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH, SYS_FLAG_NEED_UNWRAP
from tests.support.synthetic import record, write_busy_log, write_log


@pytest.fixture
def busy_store(tmp_path):
    return tmp_path, write_busy_log(tmp_path)


def test_read_batches_takes_values_of_python_and_names_in_any_case(busy_store):
    store, written = busy_store
    asked = read_batches(
        store, TOPIC="Topic1", startingOffset=written[50].physical_offset, body=False
    )
    rows = [row for batch in asked for row in batch.to_pylist()]
    assert {(row["topic"], row["body"]) for row in rows} == {("Topic1", None)}
    assert len(rows) == 90


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topics": "A"}, "no option 'topics'; did you mean topic"),
        ({"path": "x"}, "no option 'path'"),
        ({"maxBytesPerTrigger": 1}, "option maxBytesPerTrigger is not for read_batches"),
        ({"table": "index_entries"}, "option table is one of messages, damage"),
        ({"body": "maybe"}, "option body is true or false"),
    ],
)
def test_read_batches_refuses_options_at_once(busy_store, options, says):
    with pytest.raises(BadInput, match=says):
        read_batches(busy_store[0], **options)


def test_a_batch_that_cannot_be_taken_apart_is_lost_for_an_archive(tmp_path):
    flags = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
    batch = replace(record(1, topic="B", body=b"none", INNER_NUM="3"), sys_flag=flags)
    written = write_log(tmp_path, [record(0, topic="B"), batch, record(0, topic="B")], 1 << 14)
    scan = BatchScan({"path": str(tmp_path)})
    scan.losses.lines = []
    rows = [row for share in scan.shares() for each in scan.read(share) for row in each.to_pylist()]
    assert [row["physical_offset"] for row in rows] == [each.physical_offset for each in written]
    # The log's end, which is not archived, is the other one.
    lost = [each for each in scan.losses.lines if "cannot be taken apart" in each]
    assert [str(written[1].physical_offset) in each for each in lost] == [True]
