"""RocketMQ's own store writes records of every kind, and its decoder says what is in them.

`python -m tests.peer.test_java_records` writes the fixed vectors of the unit tests anew.
"""

import tempfile
from pathlib import Path

from rocketlens.formats import commitlog_record as records
from tests.peer.rocketmq_peer import RocketMQPeer
from tests.unit.formats import record_vectors

PROGRAM = Path(__file__).parent / "java" / "JavaRecords.java"
VERSION = "5.5.0"


def ask_java(peer, directory):
    """Lines of JavaRecords, first without, then with the checksum of the whole record."""
    return [
        line
        for with_crc in ("false", "true")
        for line in peer.java(VERSION, PROGRAM, str(directory / with_crc), with_crc).splitlines()
        if line
    ]


def test_records_that_rocketmq_writes_read_as_rocketmq_reads_them(peer, tmp_path):
    lines = ask_java(peer, tmp_path)
    seen = [record_vectors.parse(line) for line in lines if line.startswith("record")]
    assert len(seen) == 34
    for raw, expected in seen:
        record = records.decode(raw, physical_offset=expected["physical_offset"])
        assert record_vectors.fields_of(record) == expected
        assert records.encode(record) == raw


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        record_vectors.VECTORS.write_text(
            "# What the store and the decoder of RocketMQ 5.5.0 made: see JavaRecords.java.\n"
            + "\n".join(ask_java(RocketMQPeer(), Path(scratch)))
            + "\n",
            encoding="utf-8",
        )
