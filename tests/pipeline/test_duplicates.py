"""Unique keys that are stored more than once: counted, told apart by cause, and listed."""

import pytest
from pyspark.sql import Row

from rocketlens.errors import StoreError
from rocketlens.model.properties import RESENT
from rocketlens.model.rocketmq import PRODUCER_RETRY_MS
from rocketlens.pipeline.duplicates import Cause, DuplicateGroup, archived_messages, find_duplicates
from rocketlens.pipeline.jobs import shorten_errors
from tests.support.archives import archive_store
from tests.support.object_store import BUCKET, object_store
from tests.support.synthetic import START_MS, record, write_log

SCHEMA = (
    "topic string, unique_key string, queue_id int, queue_offset bigint, store_timestamp_ms bigint,"
    " born_timestamp_ms bigint, born_host string, properties map<string,string>"
)
HOUR_MS = 3_600_000


def row(topic, key, number, *, born_ms=0, host="10.0.0.1:50000", **properties):
    return Row(topic, key, number % 4, number, 1000 + number, born_ms, host, properties)


def test_copies_are_grouped_by_topic_producer_and_cause_and_listed_with_their_positions(spark):
    rows = [
        row("Orders", "RETRIED", 1),
        row("Orders", "RETRIED", 5, born_ms=PRODUCER_RETRY_MS - 1, host="10.0.0.1:50001"),
        row("Orders", "AGAIN", 2),
        row("Orders", "AGAIN", 6, born_ms=PRODUCER_RETRY_MS),
        row("Orders", "AGAIN", 7, born_ms=HOUR_MS),
        row("Orders", "ELSEWHERE", 3),
        row("Orders", "ELSEWHERE", 8, host="10.0.0.2:50000"),
        row("Orders", "RESENT", 4),
        row("Orders", "RESENT", 9, born_ms=HOUR_MS, **{RESENT: "job/1"}),
        row("Orders", "ONCE", 10),
        row("Payments", "ONCE", 11),
        row("Payments", None, 12),
        row("Payments", None, 13),
        row("%RETRY%g", "CONSUMED", 14),
        row("%RETRY%g", "CONSUMED", 15),
        row("RMQ_SYS_TRANS_HALF_TOPIC", "HALF", 16),
        row("RMQ_SYS_TRANS_HALF_TOPIC", "HALF", 17),
    ]
    report = find_duplicates(spark.createDataFrame(rows, SCHEMA), max_num=2)
    assert report.groups == [
        DuplicateGroup("Orders", "10.0.0.1", Cause.SENT_AGAIN, 2, 3),
        DuplicateGroup("Orders", "10.0.0.1", Cause.RESENT, 1, 1),
        DuplicateGroup("Orders", "10.0.0.1", Cause.RETRIED, 1, 1),
    ]
    assert (report.unique_keys, report.messages) == (4, 11)
    first, second = report.duplicates
    assert (first.unique_key, first.count, first.cause) == ("AGAIN", 3, Cause.SENT_AGAIN)
    assert [(copy.queue_id, copy.queue_offset) for copy in first.copies] == [(2, 2), (2, 6), (3, 7)]
    assert (second.unique_key, second.count) == ("ELSEWHERE", 2)


@pytest.mark.parametrize("keys", ["", "A", "ABC"])
def test_messages_are_counted_where_none_has_a_copy(spark, keys):
    rows = [row("Orders", key, number) for number, key in enumerate(keys)]
    report = find_duplicates(spark.createDataFrame(rows, SCHEMA), max_num=2)
    assert (report.messages, report.groups, report.duplicates) == (len(keys), [], [])


def test_of_an_archive_in_an_object_store_they_are_those_of_one_in_a_directory(
    spark, tmp_path, monkeypatch
):
    sent = [record(n, UNIQ_KEY=f"KEY{n // 2 * 2}", KEYS="k") for n in range(40)]
    write_log(tmp_path / "store", sent, 1 << 14)
    with object_store() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        reports = []
        for root in (tmp_path / "lake", f"s3://{BUCKET}/lake"):
            archive_store(root, tmp_path / "store")
            for chosen in (
                ("", None, None),
                ("Top*", START_MS, START_MS + 14_000),
                ("Other", None, None),
            ):
                table, problems = archived_messages(spark, str(root), *chosen)
                assert problems == []
                reports.append(find_duplicates(table, max_num=100))
    in_directory, in_object_store = reports[:3], reports[3:]
    assert in_object_store == in_directory
    assert in_directory[0].unique_keys > in_directory[1].unique_keys > in_directory[2].unique_keys


def test_a_damaged_file_of_an_archive_is_named_and_no_answer(spark, tmp_path):
    write_log(tmp_path / "store", [record(n, UNIQ_KEY="KEY") for n in range(9)], 1 << 14)
    archive_store(tmp_path / "lake", tmp_path / "store")
    (path,) = (tmp_path / "lake").glob("messages/*/*.parquet")
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    table, _ = archived_messages(spark, str(tmp_path / "lake"), "", None, None)
    with pytest.raises(StoreError, match=f"{path.name} cannot be read"), shorten_errors():
        find_duplicates(table, max_num=10)
