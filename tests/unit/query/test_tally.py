"""RocketMQ's own topics are left out of answers and counted, unless they are asked for.

A batch that cannot be taken apart makes what it could be in incomplete, whatever reads it.
"""

import json

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens.formats.body_compression import COMPRESSED
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH, SYS_FLAG_NEED_UNWRAP, is_internal_topic
from rocketlens.query.tally import SearchTally, names_topics
from tests.support.archives import archive_store
from tests.support.async_tests import within
from tests.support.fake_cluster import ask
from tests.support.made_stores import NOW_MS, Sent, make_store
from tests.support.synthetic import record, write_log
from tests.support.trace_bodies import TRACES, UNREADABLE

TRACE = "RMQ_SYS_TRACE_TOPIC"
ORDER = Sent("Orders", "ORDER-1", "U-1", body=b'{"city": "Paris"}')
MESSAGES = [
    ORDER,
    Sent("SCHEDULE_TOPIC_XXXX", "ORDER-1", "U-1", body=b"Paris later"),
    Sent("RMQ_SYS_TRANS_HALF_TOPIC", "ORDER-1", "U-2", body=b"Paris half"),
    Sent("rmq_sys_wheel_timer", "ORDER-1", "U-3", body=b"Paris timed"),
    Sent("DefaultCluster_REPLY_TOPIC", "ORDER-1", body=b"Paris reply"),
    Sent(TRACE, "ORDER-1 U-1", "T-1", body=b"\xff\x00 Paris"),
    Sent(TRACE, "ORDER-1", "T-2", body=b"\xff\x00 Paris"),
    Sent("OFFSET_MOVED_EVENT", body=b"Paris moved"),
]
USERS = [each.topic for each in MESSAGES[:5]]
FLAGS = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP


@pytest.fixture
def path(tmp_path):
    return make_store(tmp_path / "store", MESSAGES).path


def topics_of(answer):
    return [each.topic for each in answer]


def left_out_of(answer):
    return [each.note for each in answer.coverage if "left out" in (each.note or "")]


@pytest.mark.parametrize(
    "question",
    [
        {"text": "ORDER-1"},
        {"text": "ORDER-1", "kind": "key"},
        {"where": "key = 'ORDER-1'"},
        {"where": "key = 'ORDER-1'", "exhaustive": True, "topic": "*"},
        {"grep": "Paris"},
        {"where": "body CONTAINS 'Paris'"},
        {"begin": NOW_MS, "end": NOW_MS},
        {"max_num": 100},
        {"topic": "*"},
    ],
    ids=str,
)
def test_system_topics_are_left_out_and_counted_whatever_is_asked(path, question):
    question.pop("max_num", None)
    with rocketlens.open_store(path) as store:
        answer = store.find(**question)
        everything = store.find(**question, all_topics=True)
    assert topics_of(answer) == USERS
    (told,) = left_out_of(answer)
    # What a condition on the content would say is not asked.
    count = 2 if "ORDER-1" in str(question) and "exhaustive" not in question else 3
    assert told.startswith(f"{count} messages of RocketMQ's own topics, in {TRACE}")
    assert answer.complete
    assert left_out_of(everything) == []
    if not {"grep", "where"} & set(question):
        assert topics_of(everything) == USERS + topics_of(everything)[5:]
        assert len(everything) == 5 + count


def test_traces_are_left_out_of_a_search_by_unique_key(path):
    with rocketlens.open_store(path) as store:
        assert topics_of(store.find("U-1")) == USERS[:2]
        (told,) = left_out_of(store.find("U-1"))
        assert told.startswith("1 message of")
        assert topics_of(store.find("U-1", all_topics=True)) == [*USERS[:2], TRACE]


def test_a_named_topic_is_searched_whatever_it_is(path):
    with rocketlens.open_store(path) as store:
        for topic in (TRACE, "RMQ_SYS_TR*E_TOPIC", [TRACE, "Orders"]):
            answer = store.find("ORDER-1", topic)
            assert topics_of(answer).count(TRACE) == 2
            assert left_out_of(answer) == []
        assert len(store.find(where=f"topic = '{TRACE}' AND queue_id = 0")) == 2


def test_an_id_and_a_position_find_messages_of_system_topics(path):
    with rocketlens.open_store(path) as store:
        trace = store.find("T-1", TRACE)[0]
        for text in (trace.offset_msg_id, f"{TRACE}/0/0"):
            answer = store.find(text)
            assert topics_of(answer) == [TRACE]
            assert left_out_of(answer) == []
        assert store.view_message("T-1").topic == TRACE


def test_a_scan_leaves_out_system_topics_and_says_so(path):
    with rocketlens.open_store(path) as store:
        scan = store.scan()
        assert topics_of(scan) == USERS
        assert left_out_of(scan)[0].startswith("3 messages of")
        assert scan.complete
        assert len(list(store.scan(all_topics=True))) == len(MESSAGES)


def test_a_search_that_found_only_system_topics_says_so(path):
    with rocketlens.open_store(path) as store:
        answer = store.find("T-2")
        assert (topics_of(answer), answer.complete) == ([], True)
        assert left_out_of(answer)[0].startswith("1 message of")


def test_each_source_of_several_says_what_it_left_out(path):
    answer = rocketlens.find("ORDER-1", sources=[path])
    assert topics_of(answer).count(TRACE) == 0
    assert left_out_of(answer)[0].startswith("2 messages of")
    assert len(rocketlens.find("ORDER-1", sources=[path], all_topics=True)) == 7


def test_a_story_reads_traces_all_the_same(path):
    with rocketlens.open_store(path) as store:
        story = store.story("U-1")
    assert story.message.topic == "Orders"
    assert not any("left out" in (each.note or "") for each in story.coverage)


def test_find_and_show_say_how_many_are_left_out_and_all_includes_them(run, path):
    for words in (("find", "ORDER-1"), ("find", "--since", str(NOW_MS))):
        done = run(*words, "--store", path, "-v")
        assert TRACE not in done.out
        assert f"of RocketMQ's own topics, in {TRACE}" in done.err
        assert "--all" in done.err
        done = run(*words, "--store", path, "--all")
        assert TRACE in done.out
        assert "left out" not in done.err
    answer = json.loads(run("find", "ORDER-1", "--store", path, "-o", "json").out)
    assert any("left out" in (each["note"] or "") for each in answer["coverage"])
    done = run("show", "T-1", "--store", path)
    assert done.code == 1
    assert "1 message of RocketMQ's own topics" in done.err
    assert TRACE in run("show", "T-1", "--store", path, "--all").out


def test_export_and_sql_have_every_topic(run, path, tmp_path):
    out = tmp_path / "out.jsonl"
    assert run("export", out, "--store", path).code == 0
    assert len(out.read_text().splitlines()) == len(MESSAGES)
    done = run("sql", "select count(*) as n from messages", "--store", path, "-o", "json")
    assert json.loads(done.out) == [{"n": len(MESSAGES)}]


@pytest.mark.parametrize(
    ("topic", "is_internal"),
    [
        *((name, True) for name in (TRACE, "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC", "TBW102")),
        *((name, True) for name in ("SELF_TEST_TOPIC", "BenchmarkTest")),
        *((name, True) for name in ("rmq_sys_REVIVE_LOG_c", "RMQ_SYS_TRANS_OP_HALF_TOPIC")),
        *((name, False) for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")),
        *((name, False) for name in ("rmq_sys_wheel_timer", "rmq_sys_rocksdb_timer", "Orders")),
        *((name, False) for name in ("DefaultCluster_REPLY_TOPIC", "%RETRY%g", "%DLQ%g")),
        *((name, False) for name in ("TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_MINE")),
    ],
)
def test_copies_of_users_messages_are_not_rocketmqs_own(topic, is_internal):
    assert is_internal_topic(topic) is is_internal


def test_a_star_names_no_topic():
    assert not names_topics([])
    assert not names_topics(["*", "?*"])
    assert names_topics(["*", "Orders"])
    assert names_topics(["RMQ*"])


def test_what_cannot_be_counted_is_a_least_number():
    tally = SearchTally()
    assert tally.coverage() == ()
    tally.put_internal(TRACE, 3)
    tally.put_internal("TBW102", None)
    (told,) = tally.coverage()
    assert told.note.startswith(
        f"3 messages or more of RocketMQ's own topics, in {TRACE}, TBW102, left out"
    )


def test_a_topic_that_no_one_counted_has_no_number():
    tally = SearchTally()
    tally.put_internal(TRACE, None)
    (told,) = tally.coverage()
    assert told.note.startswith(f"messages of RocketMQ's own topics, in {TRACE}, left out")


@pytest.fixture
def traced(path, tmp_path):
    """A store with traces of each kind, read in both ways as ``path`` is."""
    assert path.exists()
    sent = [Sent(TRACE, "ORDER-1", body=body) for body in TRACES.values()]
    return make_store(tmp_path / "traced", [ORDER, *sent]).path


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ({"grep": "ORDER-1"}, list(TRACES)[:-1]),
        ({"grep": r"ORDER-\d\b"}, list(TRACES)[:-1]),
        ({"grep": "订单"}, ["with keys in Chinese"]),
        ({"grep": "已支付"}, ["with keys in Chinese"]),
        ({"grep": "no such text"}, []),
        ({"where": "body CONTAINS 'ORDER-1'"}, list(TRACES)[:-1]),
    ],
    ids=str,
)
def test_traces_are_searched_by_content_and_the_answer_is_complete(traced, question, names):
    with rocketlens.open_store(traced) as store:
        for scope in ({"all_topics": True}, {"topic": TRACE}):
            answer = store.find(**question, **scope)
            bodies = [each.body for each in answer if each.topic == TRACE]
            assert bodies == [TRACES[name] for name in names]
            assert (answer.complete, answer.failures) == (True, ())


def test_a_trace_that_is_no_text_makes_a_search_by_content_incomplete(tmp_path):
    made = make_store(tmp_path / "store", [ORDER, Sent(TRACE, body=UNREADABLE)])
    with rocketlens.open_store(made.path) as store:
        answer = store.find(grep="ORDER-1", all_topics=True)
        assert (len(answer), answer.complete) == (0, False)
        assert f"{TRACE}/0/0" in answer.failures[0].error


def test_the_command_finds_a_key_in_the_trace_topic(run, traced):
    done = run("find", "-t", TRACE, "--grep", "ORDER-1", "--store", traced, "-o", "jsonl")
    assert (done.code, len(done.out.splitlines())) == (0, len(TRACES) - 1)
    assert "INCOMPLETE" not in done.err


@pytest.fixture
def store(tmp_path):
    """A store whose second record is a batch of three with a body that is none."""
    batch = replace(record(1, topic="B", body=b"none", INNER_NUM="3"), sys_flag=FLAGS)
    others = [record(0, topic="B"), record(4, topic="B"), record(0, topic="Other")]
    written = write_log(tmp_path, [others[0], batch, *others[1:]], 1 << 14)
    return tmp_path, written


def test_each_answer_that_could_have_a_message_of_it_is_incomplete_and_names_it(store):
    path, _ = store
    with rocketlens.open_store(path) as opened:
        for answer in (
            opened.find(topic="B"),
            opened.find(topic="B", where="body.$.n > 1"),
            opened.tail("B"),
            opened.query_message("B", "key-1"),
        ):
            assert not answer.complete
            assert "B/0/1" in " ".join(each.error for each in answer.failures)
        assert len(opened.find(topic="B")) == 3
        for options in ({"topic": "Other"}, {"topic": "B", "end": 1}):
            assert opened.find(**options).complete
        read = opened.scan("B")
        assert len(list(read)) == 3
        assert not read.complete
        assert "B/0/1" in " ".join(each.error or "" for each in read.coverage)


def test_an_archive_that_has_it_gives_no_complete_answer(tmp_path):
    flags = FLAGS | COMPRESSED
    batch = replace(record(1, topic="B", body=b"none", INNER_NUM="3"), sys_flag=flags)
    write_log(tmp_path / "store", [record(0, topic="B"), batch, record(0, topic="Other")], 1 << 14)
    archive_store(tmp_path / "lake", tmp_path / "store")
    with rocketlens.open_archive(str(tmp_path / "lake")) as archive:
        read = archive.scan("B", where="KEYS = 'key-0'")
        assert len(list(read)) == 1
        for answer in (archive.find("key-1", "B"), archive.tail("B", key="key-0"), read):
            assert not answer.complete
            assert "B/0/1" in " ".join(each.error or "" for each in answer.coverage)


def test_a_bulk_read_has_it_in_the_table_of_damage(store):
    path, written = store
    damage = [
        row for batch in rocketlens.read_batches(path, table="damage") for row in batch.to_pylist()
    ]
    assert [row["physical_offset"] for row in damage] == [written[1].physical_offset]
    assert "cannot be taken apart" in damage[0]["reason"]


@within(ask)
async def test_a_cluster_that_has_it_gives_no_complete_answer(cluster, admin, /):
    (broker,) = cluster.masters
    broker.topic_attributes = {"T": {"queue.type": "BatchCQ"}}
    broker.store("T", b"x", keys="first")
    batch = broker.store("T", b"none", sys_flag=FLAGS, more={"INNER_NUM": "3"})
    broker.queues["T", 0] += [batch, batch]
    for question in (
        *({"topic": "T"}, {"topic": "T", "begin": 1}, {"text": "k2", "topic": "T"}),
        *({"text": "T/0/2"}, {"text": batch.offset_msg_id}),
    ):
        answer = await admin.find(**question)
        assert not answer.complete, question
        assert "T/0/1" in " ".join(each.error for each in answer.failures)
    for read in (admin.scan("T"), admin.tail("T", 10)):
        assert len([each async for each in read]) == 2
        assert not read.complete
    assert (await admin.find("T/0/0")).complete


def test_the_first_of_many_are_named_and_each_is_counted_once():
    tally = SearchTally()
    for number in (*range(5), *range(5)):
        tally.add_batch(replace(record(number, topic="B"), physical_offset=number))
    (coverage,) = tally.coverage()
    assert coverage.is_failure
    assert coverage.error.startswith("5 records cannot be taken apart")
    assert coverage.error.endswith("B/0/0, B/0/1, B/0/2, ...")
