"""Messages as lines of JSON, notes on an answer, and counts of messages that wait."""

import asyncio
import io
import json

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens import limits, open_store, testing
from rocketlens.client.send.message import Message
from rocketlens.errors import RocketLensError, TopicNotFound
from rocketlens.formats.commitlog_record import message_of
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState, hint
from rocketlens.model.message import Host
from rocketlens.model.text.escape import safe_json
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk
from rocketlens.terminal import as_json
from rocketlens.terminal.notes import note_lines
from rocketlens.terminal.waiting_messages import waiting_in_cluster, waiting_in_store
from tests.support.made_stores import NOW_MS, Sent, make_store

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


def coverage(state, error=None, source="index/1"):
    return Coverage(source, SourceKind.INDEX_FILE, state, None, error)


@pytest.mark.parametrize(
    ("count", "begin"), [(0, "nothing found, COMPLETE"), (1, "1 message, "), (2, "2 messages, ")]
)
def test_the_first_line_has_the_count_and_the_verdict(count, begin):
    searched = Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED)
    answer = Answer("k", (), (searched,))
    (line,) = note_lines(answer, count)
    assert line.startswith(begin)
    assert line.endswith("searched broker-a")


def test_what_an_answer_relies_on_is_said_with_the_option_that_reads_it():
    kind, searched = SourceKind.BROKER, SourceState.SEARCHED
    answer = Answer("k", (), (Coverage("broker-a", kind, searched, relies_on="an order"),))
    _, relies_on, option = note_lines(answer, 0, verbose=True)
    assert relies_on == "assumed, not read in full: an order"
    assert "find --exhaustive" in option


def test_a_complete_answer_without_messages_is_one_line_and_only_what_may_be_meant_is_beside_it():
    kind, searched = SourceKind.BROKER, SourceState.SEARCHED
    coverage = (Coverage("broker-a", kind, searched, relies_on="an order"),)
    (line,) = note_lines(Answer("k", (), coverage), 0)
    assert line == "nothing found, COMPLETE: searched broker-a (-v: 2 notes)"
    meant = hint("position", "T/3 ends at 7")
    queue = hint("consumequeue/T/9", "it has no files", SourceKind.CONSUME_QUEUE)
    line, *others = note_lines(Answer("k", (), (*coverage, meant, queue)), 0)
    assert line.endswith("(-v: 3 notes)")
    assert others == ["position: T/3 ends at 7"]


def test_hints_on_messages_that_were_found_are_counted_and_printed_with_verbose():
    kind, searched = SourceKind.BROKER, SourceState.SEARCHED
    left_out = hint("topics", "3 system messages left out")
    answer = Answer("k", (), (Coverage("broker-a", kind, searched, relies_on="an order"), left_out))
    (line,) = note_lines(answer, 2)
    assert line == "2 messages, COMPLETE: searched broker-a (-v: 3 notes)"
    assert "topics: 3 system messages left out" in note_lines(answer, 2, verbose=True)
    failed = Answer("k", (), (*answer.coverage, coverage(SourceState.FAILED, "cut short")))
    assert "topics: 3 system messages left out" in note_lines(failed, 2)


def test_a_failure_is_named_and_makes_the_answer_incomplete():
    failed = coverage(SourceState.FAILED, "cut\x1b short")
    lines = list(note_lines(Answer("k", (), (failed,)), 0))
    assert "INCOMPLETE" in lines[0]
    assert "failed: index/1: cut\\x1b short" in lines
    assert "exit code 3" in lines[-1]


def test_damage_that_did_not_matter_is_said_to_be_so():
    damaged = coverage(SourceState.DAMAGED, "bad header")
    searched = Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED)
    lines = list(note_lines(Answer("k", (), (searched, damaged)), 0))
    assert "damaged, and not needed for this answer: index/1: bad header" in lines


def test_a_long_list_is_cut_and_counted():
    failed = tuple(coverage(SourceState.FAILED, "x", f"index/{n}") for n in range(50))
    lines = list(note_lines(Answer("k", (), failed), 0))
    assert len(lines) < 30
    assert "failed: 30 more (all of them: -o json)" in lines


def test_of_an_incomplete_answer_damage_is_not_said_to_be_unneeded():
    damaged = coverage(SourceState.DAMAGED, "its entry 0 leads to a bad record")
    failed = coverage(SourceState.FAILED, "bad checksum", "commitlog")
    lines = list(note_lines(Answer("k", (), (damaged, failed)), 0))
    assert "damaged: index/1: its entry 0 leads to a bad record" in lines


def test_the_time_that_was_searched_has_its_zone():
    kind, searched = SourceKind.BROKER, SourceState.SEARCHED
    answer = Answer("k", (), (Coverage("broker-a", kind, searched, 1_700_000_000_000),))
    (line,) = note_lines(answer, 0)
    assert line.partition(", up to ")[2][-6] in "+-"


def test_a_consume_queue_that_is_not_there_is_not_said_to_be_searched():
    queue = hint("consumequeue/T/9", "it has no files: the log was read", SourceKind.CONSUME_QUEUE)
    broker = Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED)
    first, *others = note_lines(Answer("k", (), (broker, queue)), 0, verbose=True)
    assert "consumequeue" not in first
    assert "consumequeue/T/9: it has no files: the log was read" in others


def test_a_gap_between_an_archive_and_what_brokers_still_hold_is_said():
    def notes(begin_ms):
        broker = Coverage("b", SourceKind.BROKER, SourceState.SEARCHED, held_from_ms=begin_ms)
        archive = Coverage(
            "lake", SourceKind.ARCHIVE, SourceState.SEARCHED, 2_000_000, held_from_ms=1_000_000
        )
        return list(note_lines(Answer("q", (), (archive, broker)), 0))

    _, held, gap = notes(3_000_000)
    assert held.startswith("b: from ")
    assert gap.startswith("gap: of ")
    assert len(notes(1_500_000)) == 2


def delayed(topic, level, at_ms=NOW_MS):
    return Sent(
        "SCHEDULE_TOPIC_XXXX",
        queue_id=level - 1,
        store_timestamp_ms=at_ms,
        named=(("REAL_TOPIC", topic), ("DELAY", str(level))),
    )


@pytest.fixture
def waiting_store(tmp_path):
    """Give a store whose newest message is of ten seconds after the first."""
    waiting_message = make_store(
        tmp_path / "store",
        [
            delayed("Orders", 18),
            delayed("Orders", 17),
            delayed("Paid", 18),
            delayed("Orders", 1),
            Sent(store_timestamp_ms=NOW_MS + 10_000),
        ],
    )
    with rocketlens.open_store(waiting_message.path) as opened:
        yield opened


def test_what_is_due_later_than_the_newest_message_of_a_store_waits(waiting_store):
    waiting = waiting_in_store(waiting_store, waiting_store.topics())
    assert (dict(waiting.counts), waiting.is_exact) == ({"Orders": 2, "Paid": 1}, True)


def test_nothing_is_known_of_a_store_that_cannot_be_asked(waiting_store):
    class Failing:
        def find(self, **_):
            raise RocketLensError("no")

    assert waiting_in_store(Failing(), waiting_store.topics()) is None


def test_what_waits_in_a_cluster_is_counted_by_the_names_of_its_namespace():
    with testing.cluster() as cluster:
        with cluster.producer() as producer:
            for topic in ("shop%Orders", "shop%Orders", "Orders"):
                producer.send(Message(topic, b"later", delay_level=18))

        async def ask():
            async with rocketlens.MQAdmin(cluster.name_server, namespace="shop") as admin:
                return await waiting_in_cluster(admin)

        waiting = asyncio.run(ask())
    assert waiting.counts["Orders"] == 2
    assert waiting.is_exact


@pytest.mark.parametrize(("error", "is_known"), [(TopicNotFound, True), (RocketLensError, False)])
def test_a_cluster_without_timers_is_known_and_one_that_fails_is_not(error, is_known):
    class Admin:
        namespace = ""

        async def find(self, topic, **_):
            raise error(topic)

    assert (asyncio.run(waiting_in_cluster(Admin())) is not None) == is_known
