"""Each message of the batches that a real broker stored is a row of its own, whatever reads it.

What is sent to a topic with `queue.type=BatchCQ` as a batch is one record of its log.
"""

import json

import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from rocketlens.bulk.messages import read_batches
from rocketlens.main import main

# At once: it must not be imported while what it imports is patched.
from rocketlens.query.offline import open_store
from tests.support.layouts import copied

FIELDS = ("topic", "queue_id", "queue_offset", "offset_msg_id", "keys", "body")


@pytest.fixture(scope="module")
def layout(layouts, tmp_path_factory):
    directory = tmp_path_factory.mktemp("batches")
    return copied(layouts, "batchcq-5.5.0", directory / "broker")


def sent_one_by_one(layout, topics=("Orders", "Payments")):
    """Return what was sent as rows, sorted: the queue offset of a batch is that of its first."""
    rows = []
    for sent in layout.sent:
        last = sent.get("batch", sent.get("n"))
        first = last - 2 if "batch" in sent else last
        for number in range(first, last + 1):
            place = (sent["topic"], sent["queue_id"], sent["queue_offset"] + number - first)
            rows.append((*place, sent["offset_msg_id"], f"k{number}", number))
    return sorted(row for row in rows if row[0] in topics)


def told(rows):
    """Return rows of any door as `sent_one_by_one` has them."""
    return sorted(
        (*(row[name] for name in FIELDS[:4]), *row["keys"], json.loads(row["body"])["n"])
        for row in rows
        if row["topic"] in ("Orders", "Payments")
    )


def rows_of(batches):
    return [row for batch in batches for row in batch.to_pylist()]


def test_what_was_sent_is_120_messages_of_80_records(layout):
    expected = sent_one_by_one(layout)
    assert len(expected) == 120
    assert len({row[3] for row in expected}) == 80
    assert len({row[:3] for row in expected}) == len({row[4] for row in expected}) == 120


@pytest.mark.parametrize("max_num", range(1, 8))
def test_the_newest_messages_are_the_last_ones_of_the_newest_batch(layout, max_num):
    every = [row for row in sent_one_by_one(layout) if row[0] == "Orders"]
    newest = sorted(every, key=lambda row: (int(row[3][16:], 16), row[2]))[-max_num:]
    with open_store(layout.store) as store:
        for options in ({}, {"where": "body.$.n >= 0"}):
            answer = store.find(topic="Orders", max_num=max_num, **options)
            assert [(each.queue_id, each.queue_offset) for each in answer] == [
                row[1:3] for row in newest
            ]


def test_a_scan_has_each_message_as_a_row_and_as_an_object(layout):
    expected = sent_one_by_one(layout)
    with open_store(layout.store) as store:
        rows = store.scan().to_arrow().to_pylist()
        assert told(rows) == expected
        messages = [each for each in store.scan() if each.topic in ("Orders", "Payments")]
        unique_keys = [each.unique_key for each in messages]
        assert len(set(unique_keys)) == 120
        assert unique_keys == [row["unique_key"] for row in rows if row["unique_key"]]
        narrowed = store.scan("Orders", where="body.$.n >= 60")
        assert told(narrowed.to_arrow().to_pylist()) == [
            row for row in expected if row[0] == "Orders" and row[5] >= 60
        ]
        assert narrowed.complete
        without = store.scan("Orders").record_batches(with_body=False)
        assert [row["body"] for row in rows_of(without)] == [None] * 80


def test_find_prints_each_message_as_a_line_and_exports_it(layout, tmp_path, capsys):
    expected = sent_one_by_one(layout, ["Orders"])
    where = ["--store", str(layout.store), "-t", "Orders"]
    assert main(["find", *where, "-o", "jsonl"]) == 0
    assert told(map(json.loads, capsys.readouterr().out.splitlines())) == expected
    for name in ("a.jsonl", "a.parquet", "a.arrow"):
        assert main(["export", str(tmp_path / name), *where]) == 0
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert told(map(json.loads, lines)) == expected
    assert told(pq.read_table(tmp_path / "a.parquet").to_pylist()) == expected
    with ipc.open_file(tmp_path / "a.arrow") as file:
        assert told(file.read_all().to_pylist()) == expected


def test_sql_counts_messages_and_not_batches(layout, capsys):
    query = "SELECT topic, count(*) n, count(DISTINCT keys[1]) keys FROM messages GROUP BY 1"
    assert main(["sql", query, "--store", str(layout.store), "-o", "json"]) == 0
    counted = {row["topic"]: row for row in json.loads(capsys.readouterr().out)}
    assert counted["Orders"] == {"topic": "Orders", "n": 80, "keys": 80}
    assert counted["Payments"] == {"topic": "Payments", "n": 40, "keys": 40}


@pytest.mark.parametrize("options", [{}, {"checkCrc": False}, {"maxPartitionBytes": 4096}])
def test_a_bulk_read_has_each_message_as_a_row(layout, options):
    assert told(rows_of(read_batches(layout.store, **options))) == sent_one_by_one(layout)


def test_a_bulk_read_takes_and_leaves_messages_of_one_batch(layout):
    expected = sent_one_by_one(layout, ["Orders"])
    (batch, *_) = [each for each in layout.sent if "batch" in each]
    queue_id, middle = batch["queue_id"], batch["queue_offset"] + 1
    of_queue = [row for row in expected if row[1] == queue_id]
    place = json.dumps({"Orders": {str(queue_id): middle}})
    for option, kept in (
        ("startingOffsets", [row for row in of_queue if row[2] >= middle]),
        ("endingOffsets", [row for row in of_queue if row[2] < middle]),
    ):
        found = told(rows_of(read_batches(layout.store, topic="Orders", **{option: place})))
        assert [row for row in found if row[1] == queue_id] == kept
        assert [row for row in found if row[1] != queue_id] == [
            row for row in expected if row[1] != queue_id
        ]


def test_a_batch_that_is_damaged_is_damage_and_no_row(layouts, tmp_path):
    layout = copied(layouts, "batchcq-5.5.0", tmp_path / "broker")
    (batch, *_) = [each for each in layout.sent if "batch" in each]
    physical_offset = int(batch["offset_msg_id"][16:], 16)
    segment = max(
        (each for each in layout.log_files() if int(each.name) <= physical_offset),
        key=lambda each: each.name,
    )
    with segment.open("r+b") as file:
        # The last byte of the first message's body.
        file.seek(physical_offset - int(segment.name) + 120)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    found = told(rows_of(read_batches(layout.store)))
    assert found == [row for row in sent_one_by_one(layout) if row[3] != batch["offset_msg_id"]]
    (damage,) = rows_of(read_batches(layout.store, table="damage", topic="Orders"))
    assert damage["physical_offset"] == physical_offset
    with open_store(layout.store) as store:
        scan = store.scan("Orders")
        assert len(scan.to_arrow()) == 77
        assert not scan.complete
