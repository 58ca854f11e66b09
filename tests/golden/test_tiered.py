"""A store whose log begins later than its tiered storage is searched in both as in one."""

import random
import shutil
from itertools import product

import pytest

import rocketlens
from rocketlens.bulk.messages import read_batches
from rocketlens.errors import AnswerIncomplete, StoreError
from rocketlens.formats.index_file import decode_header
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tiers import read_tiers
from tests.conftest import fingerprint
from tests.golden.test_doors import assert_shown_by_commands, assert_shown_by_the_console
from tests.golden.test_each_file import assert_no_false_answer_without
from tests.support.effort import sized
from tests.support.layouts import TIERED, copied, ids

CRASHED_TIERED = f"{TIERED} crashed"
STORES = (TIERED, CRASHED_TIERED)
TABLE = "config/tieredStoreMetadata.json"


@pytest.fixture
def layout(layouts, tmp_path):
    return deleted(copied(layouts, TIERED, tmp_path / "broker"))


def deleted(layout, count=1):
    """Delete the first files of the log, as a cleaner does, and of the index what leads there."""
    for path in layout.log_files()[:count]:
        path.unlink()
    begin = int(layout.log_files()[0].name)
    for path in (layout.store / "index").iterdir():
        if decode_header(path.read_bytes()).end_offset < begin:
            path.unlink()
    return layout


def logs_of(layout):
    paths = layout.path.glob("tiered/*/broker-a/*/*/COMMIT_LOG/*")
    return sorted(path for path in paths if path.parts[-4] != "More")


def is_deleted(layout, sent):
    return int(sent.offset_msg_id[16:], 16) < int(layout.log_files()[0].name)


def key_of(message):
    return message.topic, message.queue_id, message.queue_offset, message.keys[0]


def sent_to(layout, topic):
    return sorted(
        (sent.topic, sent.queue_id, sent.queue_offset, sent.key)
        for sent in layout.messages
        if sent.topic == topic
    )


@pytest.mark.parametrize(
    ("name", "count", "lost"),
    sized(
        [
            (TIERED, 1, ()),
            (TIERED, 2, ("consumequeue", "index")),
            (CRASHED_TIERED, 1, ("consumequeue",)),
        ],
        list(product(STORES, (1, 2), ((), ("consumequeue",), ("consumequeue", "index")))),
    ),
)
def test_what_only_tiered_storage_has_is_found_as_if_the_log_had_it(
    layouts, tmp_path, name, lost, count
):
    layout = deleted(copied(layouts, name, tmp_path / "broker"), count)
    for part in lost:
        shutil.rmtree(layout.store / part)
    old = [sent for sent in layout.messages if is_deleted(layout, sent)]
    assert len(old) > 40
    with layout.open() as store:
        for sent in (*old[::9], old[-1], *layout.messages[len(old) :: 19]):
            for text in (sent.position, sent.key, sent.unique_key):
                answer = store.find(text)
                assert answer.complete, answer.failures
                assert [key_of(each)[1:] for each in answer] == [
                    (sent.queue_id, sent.queue_offset, sent.key)
                ]
            there = store.query_by_queue_offset(sent.topic, sent.queue_id, sent.queue_offset)
            # Another offset would lead to another message.
            assert there.offset_msg_id == ("" if sent in old else sent.offset_msg_id)
            assert store.view_message(sent.topic, sent.unique_key) == there
            moment = there.store_timestamp_ms
            answer = store.find(topic=sent.topic, begin=moment, end=moment)
            assert answer.complete
            assert key_of(there) in [key_of(each) for each in answer]
        for topic in ("Orders", "Payments"):
            expected = sent_to(layout, topic)
            scan = store.scan(topic)
            newest = store.tail(topic, 55)
            whole = store.find(topic=topic)
            assert sorted(key_of(each) for each in scan) == expected
            assert sorted(key_of(each) for each in whole) == expected
            times = [each.store_timestamp_ms for each in whole]
            assert times == sorted(times)
            assert newest.messages == whole.messages[-55:]
            assert newest.truncated
            assert [each.complete for each in (scan, newest, whole)] == [True] * 3
            assert scan.failures == []
            answer = store.find(topic=topic, where="body.$.n < 30")
            assert answer.complete
            assert len(answer.messages) == 15
        counted = store.topics(["Orders", "Payments"])
        assert counted.complete
        for topic in counted.topics:
            assert topic.messages == 60
            assert [(each.min_offset, each.max_offset) for each in topic.queues] == [(0, 30)] * 2
        arrow = [
            row for batch in store.scan("Orders").record_batches() for row in batch.to_pylist()
        ]
        assert sorted(row["offset_msg_id"] for row in arrow) == sorted(
            "" if sent in old else sent.offset_msg_id
            for sent in layout.messages
            if sent.topic == "Orders"
        )


def test_the_log_of_one_queue_can_have_several_files(layouts, tmp_path):
    layout = copied(layouts, CRASHED_TIERED, tmp_path / "broker")
    tiers = read_tiers(StoreLayout.of(layout.store))
    of_more = [log for log in tiers.logs if log.topic == "More"]
    found = []
    for log in of_more:
        assert len(log.sizes) == 2
        assert list(log.lost()) == []
        with rocketlens.open_store(log.path) as store:
            answer = store.find()
            assert answer.complete
            found += [each.keys[0] for each in answer]
            assert [log.physical_offset(each.queue_offset) for each in answer] == [
                each.physical_offset for each in answer
            ]
    assert sorted(found) == sorted(f"m{n}" for n in range(40))


def test_a_bulk_read_has_what_only_tiered_storage_has(layout):
    def read(**options):
        batches = read_batches(layout.store, **options)
        return [row for batch in batches for row in batch.to_pylist()]

    rows = read()
    assert sorted((row["topic"], row["queue_id"], row["queue_offset"]) for row in rows) == sorted(
        (sent.topic, sent.queue_id, sent.queue_offset) for sent in layout.messages
    )
    found = {row["offset_msg_id"]: row["physical_offset"] for row in rows}
    assert found.pop("") == -1
    assert len(found) == sum(not is_deleted(layout, sent) for sent in layout.messages)
    positions = '{"Orders":{"0":2,"1":0}}'
    assert len(read(topic="Orders", startingOffsets=positions, failOnDataLoss=True)) == 58
    # Offsets of the log are those of the log alone.
    with layout.open() as store:
        in_log = sum(not is_deleted(layout, sent) for sent in layout.messages)
        moment = max(each.store_timestamp_ms for each in store.find(topic="Orders"))
    assert len(read(startingOffset=0)) == in_log
    assert len(read(startingTimestamp=moment)) < 5
    logs_of(layout)[0].unlink()
    with pytest.raises(StoreError, match="tiered storage is missing"):
        read()
    assert 0 < len(read(failOnDataLoss=False)) < len(rows)


def test_an_offset_id_is_found_while_a_queue_has_its_entry(layout):
    old = [sent for sent in layout.messages if is_deleted(layout, sent)]
    with layout.open() as store:
        for sent in old[::7]:
            message = store.view_message(sent.offset_msg_id)
            assert key_of(message)[2:] == (sent.queue_offset, sent.key)
            assert ids(store.find(sent.offset_msg_id)) == [sent.offset_msg_id]
    shutil.rmtree(layout.store / "consumequeue")
    with layout.open() as store:
        answer = store.find(old[3].offset_msg_id)
        assert not answer.complete
        assert "without the offsets that they had: look for a key" in answer.failures[0].error
        with pytest.raises(AnswerIncomplete, match="in tiered storage"):
            store.view_message(old[3].offset_msg_id)


@pytest.mark.parametrize("harm", ["gone", "cut", "zeroed"])
def test_a_file_of_tiered_storage_that_is_lost_or_damaged_is_named(layout, harm):
    for path in logs_of(layout):
        content = path.read_bytes()
        if harm == "gone":
            path.unlink()
        else:
            path.write_bytes(content[:3000] if harm == "cut" else bytes(len(content)))
        topic, queue_id = path.parts[-4], path.parts[-3]
        named = {str(path), f"tiered/{topic}/{queue_id}"}
        with layout.open() as store:
            scan = store.scan(topic)
            assert len(list(scan)) < 60
            answers = [
                store.find(topic=topic),
                store.find("no such key"),
                store.find("no such key", topic=topic),
                scan,
                store.topics(),
            ]
            if harm != "cut":
                answers.append(store.find(f"{topic}/{queue_id}/1"))
            for answer in answers:
                assert not answer.complete
                told = [each for each in answer.coverage if each.is_failure]
                assert any(part in f"{each.source} {each.error}" for part in named for each in told)
            assert store.find(topic="Payments" if topic == "Orders" else "Orders").complete
        path.write_bytes(content)


def test_tiered_storage_that_is_not_where_it_was_is_found_near_the_store_or_asked_for(layout):
    layout.conf.unlink()
    with layout.open() as store:
        assert len(store.find(topic="Orders").messages) == 60
    (layout.path / "tiered").rename(layout.path.parent / "elsewhere")
    with layout.open() as store:
        answer = store.find(topic="Orders")
        assert not answer.complete
        assert "give the broker.conf whose tieredStoreFilePath has them" in answer.failures[0].error
        # What the log has does not need it.
        newest = layout.messages[-1]
        moment = store.find(newest.key, topic=newest.topic, begin=0).messages[0].store_timestamp_ms
        assert store.find(topic=newest.topic, begin=moment).complete


def test_without_the_table_of_its_files_tiered_storage_is_said_to_be_unknown(layout):
    (layout.store / TABLE).unlink()
    with layout.open() as store:
        answer = store.find(topic="Orders")
        assert not answer.complete
        assert "some logs in tiered storage may be unknown" in answer.failures[0].error


def test_a_message_that_a_killed_broker_wrote_twice_is_found_once(layout):
    """It writes the log first, then the queue, and begins again behind the end of the queue."""
    for path in logs_of(layout):
        content = path.read_bytes()
        starts, at = [], 0
        while at < len(content):
            starts.append(at)
            at += int.from_bytes(content[at : at + 4], "big")
        # Some were written once more, and then all others.
        twice, where = b"", len(content[: starts[9]])
        for start in starts[5:]:
            size = int.from_bytes(content[start : start + 4], "big")
            record = bytearray(content[start : start + size])
            record[28:36] = (where + len(twice)).to_bytes(8, "big")
            twice += record
        path.write_bytes(content[: starts[9]] + twice)
        shutil.rmtree(path.parent.with_name("CONSUME_QUEUE"))
    with layout.open() as store:
        scan = store.scan("Orders")
        assert sorted(map(key_of, scan)) == sent_to(layout, "Orders")
        assert scan.complete
        assert sorted(map(key_of, store.find(topic="Orders"))) == sent_to(layout, "Orders")
        assert [topic.messages for topic in store.topics(["Orders", "Payments"]).topics] == [60, 60]
        for sent in layout.messages[:30]:
            answer = store.find(sent.key)
            assert answer.complete
            assert len(answer.messages) == 1
    rows = [row for batch in read_batches(layout.store) for row in batch.to_pylist()]
    assert len(rows) == 120


def test_a_store_that_is_open_finds_what_its_broker_deletes_meanwhile(layouts, tmp_path):
    layout = copied(layouts, TIERED, tmp_path / "broker")
    files = layout.log_files()
    with layout.open() as store:
        for path in (None, *files[:2]):
            if path is not None:
                path.unlink()
            assert sorted(map(key_of, store.find(topic="Orders"))) == sent_to(layout, "Orders")
            sent = layout.messages[0]
            assert [key_of(each)[3] for each in store.find(sent.key)] == [sent.key]


@pytest.mark.parametrize("name", STORES)
def test_a_file_that_is_gone_makes_no_answer_falsely_complete(layouts, name, tmp_path):
    layout = deleted(copied(layouts, name, tmp_path / "broker"))
    assert_no_false_answer_without(layout, tmp_path / "aside", random.Random(name))


@pytest.mark.parametrize("by", ["--store", "--broker-conf"])
def test_commands_and_the_console_show_what_only_tiered_storage_has(
    layout, by, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    named = layout.store if by == "--store" else layout.conf
    sent = layout.messages[0]
    before = fingerprint(layout.path)
    output = tmp_path / "exported.jsonl"
    assert_shown_by_commands(sent, output, by, named, capsys)
    lines = output.read_text(encoding="utf-8").splitlines()
    assert len(lines) == sum(each.topic == sent.topic for each in layout.messages)
    assert_shown_by_the_console(sent, named)
    assert fingerprint(layout.path) == before
