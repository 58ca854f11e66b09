"""Rows that Spark sends to a real broker are what a Java consumer receives."""

import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "java" / "SentRows.java"
SHARDS = 3
ORDERED = 90
PLAIN = 1_500
COLUMNS = (
    "body string, keys array<string>, tags string, properties map<string,string>, "
    "sharding_key string, deliver_at bigint, flag int"
)


@pytest.mark.slow
def test_a_java_consumer_receives_each_row_with_all_it_has_in_order_and_not_before_its_time(
    peer, spark, tmp_path
):
    from rocketlens.pipeline.source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
    with peer.start("5.5.0", tmp_path) as broker:
        due_ms = time.time_ns() // 1_000_000 + 15_000
        rows = [
            *(
                (f"o{n}", [f"k{n}", "all"], "T", {"n": str(n)}, f"s{n % SHARDS}", None, n)
                for n in range(ORDERED)
            ),
            *((f"p{n}", [f"p{n}"], None, {"n": str(n)}, None, None, 0) for n in range(PLAIN)),
            ("late", ["late"], "T", {"n": "0", "due": str(due_ms)}, None, due_ms, 0),
        ]
        table = spark.createDataFrame(rows, COLUMNS).coalesce(1)
        writing = table.write.format("rocketmq").option("namesrv", broker.namesrv_address)
        writing.option("topic", "FromSpark").mode("append").save()
        count = str(len(rows))
        printed = peer.java("5.5.0", PROGRAM, broker.namesrv_address, "FromSpark", count)
    *lines, end = printed.splitlines()
    assert end == "all: true"
    received = [line.removeprefix("row: ").split(" ", 8) for line in lines]
    assert sorted(
        (body, keys, tags, n, flag, early) for _, _, body, _, tags, n, flag, early, keys in received
    ) == sorted(
        (body, " ".join(keys), str(tags).replace("None", "null"), own["n"], str(flag), "in-time")
        for body, keys, tags, own, _, _, flag in rows
    )
    assert len({unique_key for _, _, _, unique_key, *_ in received}) == len(rows)
    for shard in range(SHARDS):
        expected = [f"o{n}" for n in range(shard, ORDERED, SHARDS)]
        of_shard = [row for row in received if row[2] in expected]
        assert len({queue_id for queue_id, *_ in of_shard}) == 1
        assert [row[2] for row in sorted(of_shard, key=lambda row: int(row[1]))] == expected
