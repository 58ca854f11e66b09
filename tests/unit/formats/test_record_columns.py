"""Fields of many records at once."""

import numpy as np
import pytest

from rocketlens.formats import commitlog_record, record_columns
from rocketlens.formats.commitlog_record import MAGIC_V1, Record
from rocketlens.model.message import Host

V4, V6 = Host("10.0.0.1", 10911), Host("fd00::7", 10911)


def log_of(born_hosts):
    """Return the bytes of a record for each born host, with their offsets."""
    content, offsets = b"", []
    for number, born_host in enumerate(born_hosts):
        offsets.append(len(content))
        content += commitlog_record.encode(
            Record(
                *(0, MAGIC_V1, 0, number, 0, 0, len(content), 0, 1, born_host, 1000 + number),
                *(V6, 0, 0, b"", "T", b""),
            )
        )
    return np.frombuffer(content, np.uint8), np.array(offsets, np.int64)


def test_a_column_has_the_field_of_each_record_in_the_order_asked_for():
    content, offsets = log_of([V4, V6, V4])
    order = offsets[[2, 0, 1]]
    assert record_columns.column(content, order, "physical_offset").tolist() == order.tolist()
    assert record_columns.column(content, order, "queue_id").tolist() == [2, 0, 1]
    assert record_columns.column(content[:0], offsets[:0], "queue_id").tolist() == []


def test_store_times_are_found_behind_hosts_of_both_kinds():
    content, offsets = log_of([V4, V6, V6, V4])
    times = record_columns.store_timestamps(content, offsets)
    assert times.tolist() == [1000, 1001, 1002, 1003]
    for offset, time in zip(offsets.tolist(), times.tolist(), strict=True):
        assert commitlog_record.store_timestamp_at(content.data, offset) == time


def test_a_field_that_ends_outside_is_an_error():
    content, offsets = log_of([V4])
    short = content[: commitlog_record.HEADS[0].offsets["sys_flag"] + 3]
    with pytest.raises(IndexError):
        record_columns.column(short, offsets, "sys_flag")
    with pytest.raises(IndexError):
        record_columns.column(content[:3], offsets, "total_size")
