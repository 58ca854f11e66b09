"""Records as columns: the same fields as a message has, in batches of bounded size.

Fields of many records at once.
"""

import subprocess
import sys

import numpy as np
import pytest
from msgspec.structs import replace

from rocketlens.bulk.ranges import RangeReader, open_range
from rocketlens.console.message.message_view import row_of
from rocketlens.decode.rules import BodyRules
from rocketlens.formats import columns, commitlog_record
from rocketlens.formats.commitlog_record import MAGIC_V1, Record, encode, message_of
from rocketlens.model import arrow
from rocketlens.model.fields import COLUMNS, LIFE_COLUMNS
from rocketlens.model.life import LifeState
from rocketlens.model.message import Host
from rocketlens.model.message_id import NOT_IN_LOG
from rocketlens.terminal.as_json import message_fields
from rocketlens.terminal.message_values import value_of
from tests.support.synthetic import record, write_log
from tests.unit.bulk.built_stores import ranges_of

COMPRESSED = 1
V4, V6 = Host("10.0.0.1", 10911), Host("fd00::7", 10911)


def batches_of(store, **options):
    [log_range] = ranges_of(store)
    with open_range(log_range) as mapped:
        return [
            batch
            for rows in RangeReader(log_range, mapped.view)
            for batch in columns.batches(rows, **({"with_body": True} | options))
        ]


def rows_of(batches):
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def written(tmp_path):
    log = [record(n, topic=f"T{n % 2}", body=bytes(100), TAGS="ä") for n in range(30)]
    return write_log(tmp_path, log, 1 << 16)


def test_a_row_has_the_fields_of_the_message(written, tmp_path):
    for row, one in zip(rows_of(batches_of(tmp_path)), written, strict=True):
        message = message_of(one)
        assert list(row) == list(COLUMNS)
        assert (row["topic"], row["tags"], row["keys"]) == (
            message.topic,
            message.tags,
            list(message.keys),
        )
        assert (row["msg_id"], row["offset_msg_id"]) == (message.msg_id, message.offset_msg_id)
        assert dict(row["properties"]) == dict(message.properties)
        assert (row["store_host"], row["body"]) == (str(message.store_host), message.body)
        assert row["body_error"] is None


def test_every_door_says_where_a_message_is_and_its_real_topic(tmp_path):
    """Rows of Spark, tables of Python, ``--fields`` and JSON of commands, rows of the console."""
    kinds = [
        ("T", {}, 0, ("stored", "T")),
        ("T", {}, 8, ("committed", "T")),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "pay", "DELAY": "3"}, 0, ("delayed", "pay")),
        ("rmq_sys_wheel_timer", {"REAL_TOPIC": "pay"}, 0, ("timed", "pay")),
        ("rmq_sys_wheel_timer", {"REAL_TOPIC": "a", "TIMER_DEL_UNIQKEY": "k"}, 0, ("recall", "a")),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "pay"}, 4, ("half", "pay")),
        ("%RETRY%g", {"RETRY_TOPIC": "pay"}, 0, ("retry", "pay")),
        ("%DLQ%g", {}, 0, ("dead_letter", None)),
        ("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "pay"}, 0, ("given_up", "pay")),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", {"TAGS": "d"}, 0, ("ended", None)),
        ("rmq_sys_REVIVE_LOG_c", {"TAGS": "ck"}, 0, ("handed_out", None)),
        ("rmq_sys_REVIVE_LOG_c", {"TAGS": "ack"}, 0, ("acknowledged", None)),
    ]
    assert {each[3][0] for each in kinds} == set(LifeState)
    log = [
        replace(record(number, topic=topic, **properties), sys_flag=sys_flag)
        for number, (topic, properties, sys_flag, _) in enumerate(kinds)
    ]
    stored = write_log(tmp_path, log, 1 << 16)
    expected = [each[3] for each in kinds]
    rows = rows_of(batches_of(tmp_path))
    assert [(row["state"], row["real_topic"]) for row in rows] == expected
    messages = list(map(message_of, stored))
    (batch,) = arrow.batches_of(messages)
    assert list(zip(*(batch[name].to_pylist() for name in LIFE_COLUMNS), strict=True)) == expected
    names = ("state", "real_topic")
    assert [tuple(value_of(each, name) for name in names) for each in messages] == expected
    fields = map(message_fields, messages)
    assert [(each["state"], each["real_topic"]) for each in fields] == expected
    shown = [row_of(each, "s", "b", BodyRules()) for each in messages]
    assert [(each.state, each.real_topic) for each in shown] == expected


def test_a_row_whose_place_in_the_log_is_not_known_has_no_offset_message_id(written, tmp_path):
    [log_range] = ranges_of(tmp_path)
    with open_range(log_range) as mapped:
        (rows,) = RangeReader(log_range, mapped.view)
        offsets = np.array(rows.offsets())
        offsets[3] = NOT_IN_LOG
        (batch,) = columns.batches(rows, with_body=False, physical_offsets=offsets)
    expected = [each.offset_msg_id for each in written]
    expected[3] = ""
    assert batch.column("offset_msg_id").to_pylist() == expected


def test_a_batch_ends_at_its_stored_bytes_and_one_record_always_fits(
    written, tmp_path, monkeypatch
):
    size = max(len(encode(one)) for one in written)
    for limit, rows in ((10 * size, 10), (size // 2, 1)):
        monkeypatch.setattr(columns, "STORED_BYTES_PER_BATCH", limit)
        assert {batch.num_rows for batch in batches_of(tmp_path)} == {rows}


def test_bodies_that_are_not_wanted_are_null(written, tmp_path):
    assert {row["body"] for row in rows_of(batches_of(tmp_path, with_body=False))} == {None}
    assert len(written) == 30


def test_columns_that_follow_from_others_can_be_left_out(written, tmp_path):
    odd = replace(record(31, body=b"no zlib"), sys_flag=COMPRESSED)
    write_log(tmp_path, [*written, odd], 1 << 16)
    kept = [name for name in COLUMNS if name not in columns.DERIVED]
    assert len(COLUMNS) - len(kept) == 10
    expected = [batch.select(kept) for batch in batches_of(tmp_path)]
    assert batches_of(tmp_path, with_derived=False) == expected


def test_a_body_that_cannot_be_decompressed_is_as_stored_and_says_why(tmp_path):
    odd = replace(record(1, body=b"no zlib"), sys_flag=COMPRESSED)
    write_log(tmp_path, [record(0), odd], 1 << 16)
    sound, broken = rows_of(batches_of(tmp_path))
    assert (sound["body"], sound["body_error"]) == (b"body", None)
    assert broken["body"] == b"no zlib"
    assert broken["body_error"]


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
    assert columns.column(content, order, "physical_offset").tolist() == order.tolist()
    assert columns.column(content, order, "queue_id").tolist() == [2, 0, 1]
    assert columns.column(content[:0], offsets[:0], "queue_id").tolist() == []


def test_store_times_are_found_behind_hosts_of_both_kinds():
    content, offsets = log_of([V4, V6, V6, V4])
    times = columns.store_timestamps(content, offsets)
    assert times.tolist() == [1000, 1001, 1002, 1003]
    for offset, time in zip(offsets.tolist(), times.tolist(), strict=True):
        assert commitlog_record.store_timestamp_at(content.data, offset) == time


def test_a_field_that_ends_outside_is_an_error():
    content, offsets = log_of([V4])
    short = content[: commitlog_record.HEADS[0].offsets["sys_flag"] + 3]
    with pytest.raises(IndexError):
        columns.column(short, offsets, "sys_flag")
    with pytest.raises(IndexError):
        columns.column(content[:3], offsets, "total_size")


def test_columns_are_built_without_pandas(tmp_path):
    damaged = replace(record(0, body=b"damaged"), sys_flag=COMPRESSED)
    of_v6 = replace(record(1), sys_flag=0x30, born_host=V6, store_host=V6)
    write_log(tmp_path, [damaged, of_v6, record(2)], 1 << 20)
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.unit.formats.test_columns import batches_of\n"
        f"[batch] = batches_of(Path({str(tmp_path)!r}))\n"
        "assert batch.num_rows == 3 and batch['body_error'].null_count == 2\n"
        "assert 'pandas' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
