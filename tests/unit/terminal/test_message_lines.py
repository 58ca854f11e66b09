"""Lines of JSON that are written by orjson, from messages or from their records, are json's."""

import io
import json
from dataclasses import replace

import pytest

from rocketlens import limits, open_store
from rocketlens.formats.commitlog_record import message_of
from rocketlens.model.message import Host
from rocketlens.model.text.escape import safe_json
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk
from rocketlens.terminal import as_json
from tests.support.made_stores import Sent, make_store

SENT = [
    *(Sent(keys="a b  c", unique_key="0A01", body=b"x" * n) for n in (0, 1, 2, 5, 100)),
    Sent(keys="订单 1"),
    Sent(keys='say "hi"'),
    Sent(tags="back\\slash"),
    Sent(unique_key="tab\there"),
    Sent(named=(("del", "\x7f"), ("zero-width", "\u200b"), ("flag", "\U000e0001"))),
    Sent(named=(("a", "1"), ("b", "2"), ("a", "3"))),
    Sent(topic="Topic", sys_flag=1, body=b"not compressed"),
    Sent(store_host=Host("::1", 10911)),
    Sent(born_host=Host("2001:db8::1", 1), store_host=Host("::1", 2)),
    Sent(born_host=Host("255.255.255.255", 65535), store_host=Host("0.0.0.0", 0)),
    Sent(store_timestamp_ms=-5),
    Sent(store_timestamp_ms=limits.MAX_TIMESTAMP_MS),
    Sent(body="上海 \U0001f680".encode()),
    Sent(body=bytes(range(256))),
    Sent(body=bytes(range(0x80))),
    Sent(body=b'{"a": "\\\\b/"}\r\n\t\b\f'),
    Sent(body=b"\x1b[2J"),
    Sent(body=b'"' * 800_000),
    Sent(body="\ud800".encode("utf-8", "surrogatepass")),
]


@pytest.fixture
def made(tmp_path):
    return make_store(tmp_path / "store", SENT)


@pytest.fixture(params=["utf-8", "ascii"])
def written(request, monkeypatch):
    def written_by(write):
        out = io.TextIOWrapper(io.BytesIO(), encoding=request.param)
        monkeypatch.setattr("sys.stdout", out)
        write()
        out.flush()
        return out.buffer.getvalue().decode(request.param)

    written_by.encoding = request.param
    return written_by


def test_each_message_is_the_line_that_json_writes(made, written):
    for record in made.records:
        message = message_of(record)
        line = json.dumps(
            as_json.message_fields(message),
            ensure_ascii=written.encoding == "ascii",
            separators=(",", ":"),
        )
        lines = written(lambda message=message: as_json.write_message(message, "\n"))
        assert lines == safe_json(line) + "\n"


def test_rows_of_records_are_the_same_lines(made, written):
    def one_by_one():
        for record in made.records:
            as_json.write_message(message_of(record), "\n")

    walk = LogWalk(CommitLog(made.path / "commitlog"), 0)
    counts = []
    lines = written(lambda: counts.extend(map(as_json.write_rows, walk.rows())))
    assert sum(counts) == len(made.records)
    assert lines == written(one_by_one)


def test_what_orjson_refuses_is_written_by_json(written):
    fields = {"lone": "\ud83d", "long": 1 << 70, "body": "\u202e"}
    lines = written(lambda: as_json.sys.stdout.write(as_json.message_line({"long": 1 << 70})))
    assert lines == '{"long":1180591620717411303424}'
    if written.encoding == "ascii":
        assert json.loads(written(lambda: as_json.sys.stdout.write(as_json.message_line(fields))))


def test_golden_stores_are_written_alike(golden, run):
    for version in ("4.9.7", "5.5.0"):
        store = golden(version).store
        lines = run("find", "--topic", "*", "--store", store, "-o", "jsonl").out.splitlines()
        with open_store(store) as opened:
            messages = [as_json.message_fields(each) for each in opened.scan("*")]
        assert [json.loads(line) for line in lines] == messages
        assert len(lines) > 1600


def test_a_damaged_message_is_left_out_and_named(tmp_path, run):
    made = make_store(tmp_path / "store", [replace(each, topic="T") for each in SENT[:5]])
    path = made.segment_path(0)
    content = bytearray(path.read_bytes())
    content[content.index(b"xxxxx")] ^= 1
    path.write_bytes(content)
    done = run("find", "--topic", "T", "--store", made.path, "-o", "jsonl")
    assert done.code == 3
    assert len(done.out.splitlines()) == 4
    assert "INCOMPLETE" in done.err
