"""Lines of JSON that a kernel writes are those of the writer for single messages."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from rocketlens import limits
from rocketlens.formats.commitlog_record import message_of
from rocketlens.formats.compiled import kernels_json
from rocketlens.formats.json_lines import json_lines
from rocketlens.model.message import MESSAGE_FIELDS, Host
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk
from rocketlens.terminal import as_json
from tests.support.made_stores import Sent, make_store

USUAL = [
    Sent(keys="a b  c", unique_key="0A01", tags="TagA", body=b"x" * length)
    for length in (0, 1, 2, 3, 4, 5, 100)
]
ODD = [
    Sent(keys="订单 1"),
    Sent(keys='say "hi"'),
    Sent(tags="back\\slash"),
    Sent(unique_key="tab\there"),
    Sent(named=(("del", "\x7f"), ("zero-width", "\u200b"))),
    Sent(topic="Topic", sys_flag=1, body=b"not compressed"),
    Sent(store_host=Host("::1", 10911)),
    Sent(born_host=Host("2001:db8::1", 1), store_host=Host("::1", 2)),
    Sent(store_timestamp_ms=-5),
    Sent(body="上海".encode()),
    Sent(body=bytes(range(256))),
    Sent(body=b"\x1b[2J"),
    Sent(body=b"\x7f"),
]
MORE_USUAL = [
    Sent(),
    Sent(named=(("a", "1"), ("b", "2"), ("a", "3"))),
    Sent(keys=" ".join("abcdefghij" * 50)),
    Sent(body=b'{"a": "\\\\b/"}\r\n\t\b\f'),
    Sent(body=bytes(range(0x20, 0x7F))),
    Sent(born_host=Host("255.255.255.255", 65535), store_host=Host("0.0.0.0", 0)),
    Sent(store_timestamp_ms=0),
    Sent(store_timestamp_ms=limits.MAX_TIMESTAMP_MS),
]


def chunks_of(made):
    return list(LogWalk(CommitLog(made.path / "commitlog"), 0).chunks())


def expected_of(made, monkeypatch, encoding="utf-8"):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", out)
    for record in made.records:
        as_json.write_message(message_of(record), "\n")
    out.flush()
    return out.buffer.getvalue().decode(encoding)


def written_of(made, monkeypatch, encoding="utf-8"):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", out)
    count = sum(map(as_json.write_chunk, chunks_of(made)))
    out.flush()
    return count, out.buffer.getvalue().decode(encoding)


def test_the_members_are_the_fields_of_a_message():
    names = [field.name for field in MESSAGE_FIELDS if field.name != "body"]
    assert list(kernels_json.FIELDS) == [*names, "body", "body_encoding"]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_usual_and_unusual_messages_are_written_in_their_order(tmp_path, monkeypatch, encoding):
    sent = [each for pair in zip(USUAL, ODD, strict=False) for each in pair]
    made = make_store(tmp_path / "store", [*sent, *MORE_USUAL, *ODD[len(USUAL) :]])
    expected = expected_of(made, monkeypatch, encoding)
    assert written_of(made, monkeypatch, encoding) == (len(made.records), expected)
    assert [json.loads(line)["physical_offset"] for line in expected.splitlines()] == [
        each.physical_offset for each in made.records
    ]


def test_the_kernel_writes_the_usual_ones_itself(tmp_path):
    made = make_store(tmp_path / "store", [*USUAL, *MORE_USUAL, *ODD])
    lengths = []
    for chunk in chunks_of(made):
        for lines in json_lines(chunk.content, chunk.base_offset, chunk.rows):
            lengths += np.diff(lines.ends, prepend=0).tolist()
    usual = len(USUAL) + len(MORE_USUAL)
    assert all(lengths[:usual])
    assert lengths[usual:] == [0] * len(ODD)


def test_golden_stores_are_written_alike(golden, monkeypatch, run):
    for version in ("4.9.7", "5.5.0"):
        store = golden(version).store
        slow = run("find", "--topic", "*", "--store", store, "-o", "jsonl")
        monkeypatch.setattr("rocketlens.store.read.log.scan.interpreted_bytes", lambda: -1)
        fast = run("find", "--topic", "*", "--store", store, "-o", "jsonl")
        monkeypatch.undo()
        assert fast == slow
        assert len(fast.out.splitlines()) > 1600


def test_lines_come_in_bounded_pieces(tmp_path, monkeypatch):
    made = make_store(tmp_path / "store", [*USUAL, *ODD, *MORE_USUAL])
    expected = expected_of(made, monkeypatch)
    monkeypatch.setattr(limits, "MAX_JSON_PIECE_BYTES", 1)
    assert written_of(made, monkeypatch) == (len(made.records), expected)
    pieces = [
        lines
        for chunk in chunks_of(made)
        for lines in json_lines(chunk.content, chunk.base_offset, chunk.rows)
    ]
    assert [len(each.ends) for each in pieces] == [1] * len(made.records)


def test_the_longest_line_of_a_record_fits(tmp_path, monkeypatch):
    keys = " ".join("k" * 10_000)
    named = tuple((chr(97 + n // 26) + chr(97 + n % 26), "v") for n in range(600))
    made = make_store(tmp_path / "store", [Sent(keys=keys, named=named, body=b'"' * 10_000)])
    expected = expected_of(made, monkeypatch)
    assert written_of(made, monkeypatch) == (1, expected)


def test_a_damaged_message_is_left_out_and_named(tmp_path, monkeypatch, run):
    monkeypatch.setattr("rocketlens.store.read.log.scan.interpreted_bytes", lambda: -1)
    made = make_store(tmp_path / "store", [replace(each, topic="T") for each in USUAL])
    path = made.segment_path(0)
    content = bytearray(path.read_bytes())
    content[content.index(b"xxxxx")] ^= 1
    path.write_bytes(content)
    done = run("find", "--topic", "T", "--store", made.path, "-o", "jsonl")
    assert done.code == 3
    assert len(done.out.splitlines()) == len(USUAL) - 1
    assert "INCOMPLETE" in done.err
