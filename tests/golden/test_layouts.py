"""Every message of stores that real brokers laid out in other ways is found, or is said to lack."""

import json
import shutil
from contextlib import closing

import pytest

import rocketlens
from rocketlens.bulk.messages import read_batches
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound, NotAStore
from rocketlens.formats import batchqueue_entry, dledger
from rocketlens.formats.batch_body import message_count
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.formats.rocksdb.queue_key import QueueKey
from rocketlens.model.installation import install_command
from rocketlens.model.message import Host
from rocketlens.query.facts.examination import StoreExamination
from rocketlens.query.store_reader import StoreReader
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.consumequeue import ConsumeQueues
from rocketlens.store.read.former_topics import read_evidence
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore, StoreOptions
from tests.conftest import fingerprint
from tests.support.effort import sized
from tests.support.layouts import (
    BATCHES,
    COMPACTED,
    CRASHED,
    DLEDGER,
    ELSEWHERE,
    LAYOUTS,
    LIGHT,
    ONE_ROCKSDB,
    ROCKSDB,
    TIERED,
    copied,
    ids,
)

LOST = ((), ("index",), ("consumequeue",), ("index", "consumequeue"))

BATCH_QUEUES = "batchconsumequeue"
every_loss_with_batches = pytest.mark.parametrize(
    "lost",
    [*LOST, (BATCH_QUEUES,), ("index", "consumequeue", BATCH_QUEUES)],
    ids=lambda lost: "-".join(lost) or "whole",
)
every_layout = pytest.mark.parametrize("name", LAYOUTS)
every_other_place = pytest.mark.parametrize("name", ELSEWHERE)
both_with_light_topics = pytest.mark.parametrize("name", LIGHT)
both_dledgers = pytest.mark.parametrize("name", DLEDGER)


@pytest.fixture
def layout(layouts, name, tmp_path):
    return copied(layouts, name, tmp_path / "broker")


def assert_found(store, sent):
    """Find one message by each of its ids and keys, and return it."""
    record = store.view_message(sent.offset_msg_id)
    message = store.query_by_queue_offset(sent.topic, sent.queue_id, sent.queue_offset)
    assert record.offset_msg_id == message.offset_msg_id == sent.offset_msg_id
    assert message.keys[0] == sent.key
    if sent.unique_key is not None:
        assert record.unique_key == message.unique_key == sent.unique_key
    for text in (sent.key, message.unique_key):
        for answer in (store.find(text, topic=sent.topic), store.find(text)):
            assert answer.complete, answer.failures
            assert ids(answer) == [sent.offset_msg_id]
    return message


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        *((name, lost) for name in LAYOUTS for lost in sized((LOST[0], LOST[-1]), LOST)),
        *((f"{name} crashed", lost) for name in CRASHED for lost in sized((LOST[0],), LOST)),
    ],
    ids=lambda each: each if isinstance(each, str) else "-".join(each) or "whole",
)
def test_every_message_is_found_by_each_id_and_key_and_by_topic_time_and_content(layout, lost):
    for part in lost:
        shutil.rmtree(layout.store / part)
    with layout.open() as store:
        found = {sent: assert_found(store, sent) for sent in layout.messages}
        for topic in {sent.topic for sent in found}:
            of_topic = [sent for sent in found if sent.topic == topic]
            answer = store.find(topic=topic)
            assert answer.complete, answer.failures
            assert sorted(ids(answer)) == sorted(each.offset_msg_id for each in of_topic)
            moment = found[of_topic[7]].store_timestamp_ms
            answer = store.find(topic=topic, begin=moment, end=moment)
            assert answer.complete, answer.failures
            assert of_topic[7].offset_msg_id in ids(answer)
            answer = store.find(topic=topic, where="body.$.n >= 60")
            assert sorted(ids(answer)) == sorted(
                each.offset_msg_id for each in of_topic if each.n >= 60
            )


def entries_of(path):
    content = memoryview(path.read_bytes())
    position, base = 0, int(path.name)
    while behind := dledger.bytes_before_record(content, position, base + position):
        size = int.from_bytes(content[position + 4 : position + 8], "big")
        yield position, behind, size
        position += size


@both_dledgers
def test_what_a_replica_has_not_committed_is_no_message(layout):
    """Neither its checkpoint nor a queue shows that the last entries are committed."""
    shutil.rmtree(layout.store / "consumequeue")
    shutil.rmtree(layout.store / "index")
    checkpoint = layout.store / "dledger-n0" / "checkpoint"
    committed = 99
    checkpoint.write_text(f"committedIndex={committed}\nendIndex=119\n")
    with layout.open() as store:
        for number, sent in enumerate(layout.sent):
            answer = store.find(sent["key"], topic=sent["topic"])
            assert bool(answer.messages) == (number <= committed)
            assert answer.complete == (number <= committed) or not answer.complete
        answer = store.find(topic="Orders")
        assert not answer.complete
        assert len(answer.messages) == sum(
            each["topic"] == "Orders" for each in layout.sent[: committed + 1]
        )
        with pytest.raises(AnswerIncomplete):
            store.view_message(layout.sent[committed + 1]["offset_msg_id"])
        # A copy that is open learns of it when the replica does.
        checkpoint.write_text("committedIndex=119\nendIndex=119\n")
        assert store.find(topic="Orders").complete


@both_dledgers
@pytest.mark.parametrize("keep", [3, 40, 48, 60])
def test_a_replica_that_is_cut_in_an_entry_gives_what_is_before(layout, keep):
    path = layout.log_files()[-1]
    *_, (last, _, _) = entries_of(path)
    with path.open("r+b") as file:
        file.truncate(last + keep)
    with layout.open() as store:
        *others, lost = layout.sent
        for sent in others[-9:]:
            assert ids(store.find(sent["key"], topic=sent["topic"])) == [sent["offset_msg_id"]]
        assert not store.find(lost["key"], topic=lost["topic"]).complete
        with pytest.raises(AnswerIncomplete):
            store.view_message(lost["offset_msg_id"])


@both_dledgers
def test_the_header_of_an_entry_is_no_message(layout):
    with layout.open() as store:
        first = layout.sent[0]["offset_msg_id"]
        assert int(first[16:], 16) == dledger.ENTRY_HEADER_BYTES
        with pytest.raises(MessageNotFound):
            store.view_message(first[:16] + f"{0:016X}")


@both_dledgers
def test_a_store_with_two_replicas_is_refused_by_name(layout):
    shutil.copytree(layout.store / "dledger-n0", layout.store / "dledger-n1")
    # The broker.conf says which of them is the broker's.
    layout.open().close()
    layout.conf.unlink()
    with pytest.raises(NotAStore, match=r"dledger-n0.*dledger-n1"):
        layout.open()


@pytest.mark.parametrize("name", [*DLEDGER, ROCKSDB, ONE_ROCKSDB, BATCHES])
def test_a_store_that_only_rocketmq_can_write_is_refused_and_nothing_changes(layout):
    before = fingerprint(layout.store)
    with pytest.raises(BadInput, match="which only RocketMQ can write: search it with --store"):
        MessageStore(layout.store, StoreConfig(), StoreOptions(Host("127.0.0.1", 10911)))
    (layout.store / "lock").unlink(missing_ok="lock" not in before)
    assert fingerprint(layout.store) == before


@every_other_place
def test_a_store_whose_log_is_elsewhere_is_named_by_its_broker_conf(layout, monkeypatch):
    expected = {sent["offset_msg_id"] for sent in layout.sent}
    conf = layout.conf.rename(layout.path / "other.conf")
    with pytest.raises(NotAStore, match=r"its log is elsewhere: give its broker\.conf"):
        layout.open()
    for store in (
        rocketlens.open_store(broker_conf=conf),
        rocketlens.open_store(str(conf)),
        rocketlens.Store(conf),
    ):
        with store:
            assert expected <= set(ids(store.find(topic=["Orders", "Payments"])))
    batches = read_batches(conf)
    assert expected <= {row["offset_msg_id"] for each in batches for row in each.to_pylist()}
    with pytest.raises(BadInput, match="which store"):
        rocketlens.open_store(layout.store, broker_conf=conf)


@pytest.mark.parametrize("name", ["multi-5.5.0"])
def test_a_directory_of_the_log_that_is_gone_while_the_store_is_open_is_named(layout):
    with layout.open() as store:
        assert store.find(topic="Orders").complete
        last = layout.log_files()[-1]
        last.parent.rename(layout.path / "unmounted")
        assert not store.find(topic="Orders").complete


@both_with_light_topics
@pytest.mark.parametrize("lost", [(), ("consumequeue",), ("consumequeue", "index")])
def test_a_light_topic_has_the_messages_that_were_dispatched_to_it(layout, lost):
    for part in lost:
        shutil.rmtree(layout.store / part)
    with layout.open() as store:
        for topic in ("%LMQ%anna", "%LMQ%ben"):
            sent = [each for each in layout.sent if topic in each.get("light", "").split(",")]
            expected = [each["offset_msg_id"] for each in sent]
            assert len(expected) == 60
            for answer, number in (
                (store.find(topic=topic), 60),
                (store.find(topic=topic, max_num=7), 7),
                (store.tail(topic, 5), 5),
                (store.find(topic=topic, where="body.$.n >= 60"), 30),
            ):
                assert answer.complete, answer.failures
                assert sorted(ids(answer)) == sorted(expected[-number:])
            assert [each.offset_msg_id for each in store.scan(topic)] == expected
            for queue_offset, each in enumerate(sent):
                offset_msg_id = expected[queue_offset]
                there = store.query_by_queue_offset(topic, 0, queue_offset)
                assert there.offset_msg_id == offset_msg_id
                assert ids(store.find(f"{topic}/0/{queue_offset}")) == [offset_msg_id]
                assert ids(store.find(each["key"], topic=topic)) == [offset_msg_id]
                assert store.view_message(topic, each["unique_key"]).offset_msg_id == offset_msg_id
            others = [each for each in layout.sent if each not in sent]
            for each in others[::9]:
                answer = store.find(each["key"], topic=topic)
                assert answer.complete
                assert not answer.messages
        either = [
            each for each in layout.sent if each.get("light", "") or each["topic"] == "Orders"
        ]
        answer = store.find(topic=["%LMQ%anna", "%LMQ%ben", "Orders"])
        assert sorted(ids(answer)) == sorted(each["offset_msg_id"] for each in either)


@both_with_light_topics
def test_a_light_topic_is_listed_with_the_times_of_its_messages(layout):
    with layout.open() as store:
        for topic in ("%LMQ%anna", "%LMQ%ben"):
            answer = store.topics(topic)
            assert answer.complete, answer.coverage
            (listed,) = answer.topics
            messages = list(store.scan(topic))
            assert listed.messages == len(messages) == 60
            assert listed.oldest_ms == messages[0].store_timestamp_ms
            assert listed.newest_ms == messages[-1].store_timestamp_ms


@both_with_light_topics
def test_a_bulk_read_of_a_light_topic_says_how_to_read_it(layout):
    with pytest.raises(BadInput, match=r"light topic: .* INNER_MULTI_DISPATCH"):
        list(read_batches(layout.store, topic="%LMQ%anna"))


@both_with_light_topics
def test_a_light_topic_that_is_not_there_is_told_or_refused(layout):
    with layout.open() as store:
        answer = store.find("k3", topic="%LMQ%bem")
        assert not answer.messages
        assert any("did you mean %LMQ%ben" in (each.note or "") for each in answer.coverage)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        *[(ROCKSDB, "config"), (ONE_ROCKSDB, "config")],
        *[(ONE_ROCKSDB, "config-v2"), (ROCKSDB, "separate")],
    ],
)
def test_queues_groups_and_topics_are_read_from_rocksdb_and_nothing_is_changed(layout, config):
    if config == "separate":
        put_apart(layout)
    elif config != "config":
        # What a broker with configManagerVersion=v2 has instead, to which the same was sent.
        shutil.rmtree(layout.store / "config")
        (layout.path / config).rename(layout.store / "config")
    before = {path: path.stat().st_mtime_ns for path in layout.store.rglob("*")}
    with layout.open() as store:
        topics = {topic.name: topic for topic in store.topics().topics}
        assert [topics[name].messages for name in ("Orders", "Payments")] == [60, 60]
        answer = store.groups()
        assert answer.complete
        (group,) = answer.groups
        assert group.name == "layouts_cg"
        assert [(each.max_offset, each.consumer_offset) for each in group.queues] == [(30, 30)] * 2
        for sent in layout.sent:
            position = f"{sent['topic']}/{sent['queue_id']}/{sent['queue_offset']}"
            answer = store.find(position)
            assert ids(answer) == [sent["offset_msg_id"]]
            assert [each.kind for each in answer.coverage] == ["consume_queue", "commit_log"]
            assert answer.coverage[0].error is None
    assert {path: path.stat().st_mtime_ns for path in layout.store.rglob("*")} == before


def put_apart(layout):
    """Have the database where brokers with useSeparateStorePathForRocksdbCQ have it."""
    (layout.store / "consumequeue").rename(layout.store / "consumequeue_rocksdb")
    (layout.store / "consumequeue").mkdir()


@both_with_light_topics
def test_light_topics_that_only_a_database_beside_the_files_has_are_listed(layout):
    """So they are with rocksdbCQDoubleWriteEnable and combineCQUseRocksdbForLmq."""
    with layout.open() as store:
        before = store.topics().topics
    rocksdict = pytest.importorskip("rocksdict")
    files = layout.store / "consumequeue"
    queues = ConsumeQueues(files)
    database = rocksdict.Rdict(f"{files}_rocksdb", rocksdict.Options(raw_mode=True))
    for queue, opened in queues.readable():
        for first, run in opened.contents():
            for at in range(0, len(run), ENTRY_BYTES):
                key = QueueKey(*queue, first + at // ENTRY_BYTES).encode()
                database[key] = bytes(run[at : at + ENTRY_BYTES]) + bytes(8)
    database.close()
    queues.close()
    for each in files.glob("%LMQ%*"):
        shutil.rmtree(each)
    with layout.open() as store:
        answer = store.topics()
        assert answer.complete
        assert answer.topics == before
    with pytest.raises(BadInput, match="consumequeue_rocksdb is a RocksDB database"):
        MessageStore(layout.store, StoreConfig(), StoreOptions(Host("127.0.0.1", 10911)))


@every_layout
def test_queues_of_a_sound_store_have_no_fault(layout):
    with closing(StoreReader(StoreLayout.of(layout.store))) as reader:
        assert list(StoreExamination(reader).queue_faults()) == []


@pytest.mark.parametrize("name", [ROCKSDB])
def test_a_database_of_queues_that_is_damaged_makes_lists_incomplete(layout):
    next((layout.store / "consumequeue").glob("*.sst")).unlink()
    with layout.open() as store:
        for answer in (store.topics(), store.topics("Orders"), store.groups(), store.status()):
            assert not answer.complete
            said = " ".join(each.note or each.error or "" for each in answer.coverage)
            assert str(layout.store / "consumequeue") in said
        (topic,) = store.topics("Orders").topics
        assert topic.messages == sum(each.topic == "Orders" for each in layout.messages)


@pytest.mark.parametrize("name", [ROCKSDB])
def test_what_rocksdb_has_not_written_yet_is_read_from_the_log(layout):
    # Queues are in memory first: of a broker that runs, their database is behind.
    layout.store = layout.path / "store-crashed"
    with layout.open() as store:
        for sent in layout.sent:
            position = (sent["topic"], sent["queue_id"], sent["queue_offset"])
            assert store.query_by_queue_offset(*position).offset_msg_id == sent["offset_msg_id"]
        assert [topic.messages for topic in store.topics(["Orders", "Payments"])] == [60, 60]
        (group,) = store.groups().groups
        assert [(each.max_offset, each.consumer_offset) for each in group.queues] == [(30, 30)] * 2


@pytest.mark.parametrize("name", [ROCKSDB])
def test_without_its_package_rocksdb_is_named_and_positions_are_read_from_the_log(
    layout, monkeypatch
):
    monkeypatch.setattr("rocketlens.store.read.rocks.is_readable", lambda: False)
    sent = layout.sent[7]
    with layout.open() as store:
        answer = store.find(f"{sent['topic']}/{sent['queue_id']}/{sent['queue_offset']}")
        assert ids(answer) == [sent["offset_msg_id"]]
        assert install_command("rocksdb") in answer.coverage[0].note
        assert store.topics("Orders").topics[0].messages == 60
        answer = store.groups()
        assert not answer.complete
        failures = [each.error for each in answer.coverage if each.state == "failed"]
        assert any(install_command("rocksdb") in each for each in failures)


@pytest.mark.parametrize("name", [ROCKSDB])
def test_a_database_that_is_damaged_costs_no_message(layout):
    for table in (layout.store / "consumequeue").glob("*.sst"):
        table.write_bytes(bytes(table.stat().st_size))
    with layout.open() as store:
        for sent in layout.sent[::10]:
            position = (sent["topic"], sent["queue_id"], sent["queue_offset"])
            assert store.query_by_queue_offset(*position).offset_msg_id == sent["offset_msg_id"]
            assert ids(store.find(sent["key"])) == [sent["offset_msg_id"]]
        answer = store.find(topic="Orders")
        assert len(answer.messages) == 60


@pytest.mark.parametrize("name", [ROCKSDB])
@pytest.mark.parametrize("files", ["MANIFEST-*", "*.sst"])
def test_what_is_damaged_of_a_database_is_named_by_its_own_path(layout, files):
    (path, *_) = sorted((layout.store / "consumequeue").glob(files))
    path.write_bytes(path.read_bytes()[:30])
    with layout.open() as store:
        answer = store.find(layout.messages[7].position)
        assert answer.complete
        error = next(each.error for each in answer.coverage if each.kind == "consume_queue")
        assert "RocksDB: Corruption" in error
        assert str(layout.store / "consumequeue") in error
        assert "rocketlens-rocksdb" not in error
        assert "\\n" not in error


@pytest.mark.parametrize("name", [BATCHES])
@every_loss_with_batches
def test_messages_in_batches_are_found_one_by_one(layout, lost):
    for part in lost:
        shutil.rmtree(layout.store / part)
    in_batches = 0
    with layout.open() as store:
        for sent in layout.sent:
            first = sent.get("batch", sent.get("n", 0) + 2) - 2
            count = 3 if "batch" in sent else 1
            in_batches += count if "batch" in sent else 0
            assert store.view_message(sent["offset_msg_id"])
            for number in range(count):
                offset = sent["queue_offset"] + number
                message = store.query_by_queue_offset(sent["topic"], sent["queue_id"], offset)
                assert message.offset_msg_id == sent["offset_msg_id"]
                assert message.queue_offset == offset
                assert message.keys == (f"k{first + number}",)
                assert json.loads(message.body)["n"] == first + number
                for answer in (
                    store.find(message.keys[0], topic=sent["topic"]),
                    store.find(message.keys[0]),
                ):
                    assert answer.complete, answer.failures
                    assert [each.queue_offset for each in answer.messages] == [offset]
                assert store.view_message(sent["topic"], message.unique_key) == message
            if "batch" in sent:
                # What the producer was told.
                assert ids(store.find(sent["ids"])) == [sent["offset_msg_id"]]
        assert in_batches == 60
        answer = store.find(topic="Orders", where="body.$.n >= 60")
        assert answer.complete
        assert len(answer.messages) == 40
        assert len(store.find(topic="Orders").messages) == len(list(store.scan("Orders"))) == 80
        assert len(store.find(topic="Orders", max_num=10).messages) == 10


@pytest.mark.parametrize("name", [BATCHES])
def test_each_entry_of_a_batch_queue_leads_to_its_record(layout):
    log = CommitLog(layout.store / "commitlog")
    count = 0
    for path in (layout.store / "batchconsumequeue").rglob("0" * 20):
        content = path.read_bytes()
        for start in range(0, len(content), batchqueue_entry.ENTRY_BYTES):
            entry = batchqueue_entry.decode(content, start)
            assert entry.encode() == content[start : start + batchqueue_entry.ENTRY_BYTES]
            if entry.is_end:
                break
            record = log.record_at(entry.physical_offset)
            assert entry.store_size == record.total_size
            assert entry.store_timestamp_ms == record.store_timestamp_ms
            assert entry.first_queue_offset == record.queue_offset
            assert entry.message_count == message_count(record)
            assert (str(record.queue_id), record.topic) == (path.parent.name, "Orders")
            count += 1
    assert count == 40


@pytest.mark.parametrize("name", [BATCHES])
@every_loss_with_batches
def test_topics_are_counted_message_by_message_where_batches_are_one_record(layout, lost):
    for part in lost:
        shutil.rmtree(layout.store / part)
    with layout.open() as store:
        counted = {topic.name: topic for topic in store.topics(["Orders", "Payments"]).topics}
        assert {name: topic.messages for name, topic in counted.items()} == {
            "Orders": 80,
            "Payments": 40,
        }
        assert store.topics().complete
        assert [each.max_offset for each in counted["Orders"].queues] == [20, 60]
        records = {each["offset_msg_id"] for each in layout.sent if each["topic"] == "Orders"}
        size = sum(each.size_bytes for each in counted["Orders"].queues)
        assert size == sum(store.view_message(each).store_size for each in records)
        if not lost:
            sent = layout.sent[0]
            answer = store.find(f"Orders/{sent['queue_id']}/{sent['queue_offset'] + 1}")
            assert [(each.source, each.state.value) for each in answer.coverage] == [
                ("consumequeue/Orders/1", "searched"),
                ("commitlog", "searched"),
            ]


@pytest.mark.parametrize(
    ("name", "logs", "count"),
    [
        (TIERED, "tiered/*/broker-a/*/*/COMMIT_LOG", 120),
        (COMPACTED, "store/compaction/compactionLog/*/*", 60),
    ],
)
def test_what_is_kept_of_deleted_messages_is_named_and_found_queue_by_queue(
    layout, name, logs, count
):
    first, *_ = layout.log_files()
    first.unlink()
    with layout.open() as store:
        oldest, newest = layout.sent[0], layout.sent[-1]
        position = f"Orders/{oldest['queue_id']}/{oldest['queue_offset']}"
        texts = (oldest["key"], position, None) if name == COMPACTED else ()
        for text in texts:
            answer = store.find(text, topic="Orders")
            assert not answer.complete
            assert "open the log of a queue by itself" in answer.failures[0].error
        moment = store.view_message(newest["offset_msg_id"]).store_timestamp_ms
        assert store.find(topic="Orders", begin=moment).complete
        assert store.find(newest["key"], begin=moment).complete
    found, topics = {}, {each["topic"] for each in layout.sent}
    for log in layout.path.glob(logs):
        with rocketlens.open_store(log) as store:
            answer = store.find()
            assert answer.complete
            if answer.messages[0].topic not in topics:
                # Sent before the broker was killed.
                continue
            found.update((each.unique_key, each) for each in answer.messages)
            one = answer.messages[7]
            assert store.find(one.keys[0]).messages == (one,)
            position = (one.topic, one.queue_id, one.queue_offset)
            assert store.query_by_queue_offset(*position) == one
    sent = {each["unique_key"]: each for each in layout.sent if each["unique_key"] in found}
    assert len(sent) == len(found) == count
    for unique_key, message in found.items():
        assert message.queue_offset == sent[unique_key]["queue_offset"]
        assert message.keys == (sent[unique_key]["key"],)


@pytest.mark.parametrize("name", [ROCKSDB, BATCHES])
def test_queues_of_every_kind_are_evidence_of_how_far_the_log_was_dispatched(layout):
    log = CommitLog(layout.store / "commitlog")
    evidence = read_evidence(layout.store, log)
    log.close()
    with layout.open() as store:
        last = max(message.physical_offset for message in store.find(topic="Orders"))
    assert "Orders" in evidence.present
    assert evidence.dispatched_offset > last
    assert evidence.end_of("Orders") == 0
