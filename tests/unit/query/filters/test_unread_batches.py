"""A batch that cannot be taken apart makes what it could be in incomplete, whatever reads it."""

from dataclasses import replace

import pytest

import rocketlens
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH, SYS_FLAG_NEED_UNWRAP
from rocketlens.query.filters.unread_batches import UnreadBatches
from rocketlens.store.read.log import scan
from tests.support.fake_cluster import ask
from tests.support.synthetic import record, write_log

FLAGS = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP


@pytest.fixture(params=[1 << 40, 0], ids=["record by record", "compiled"])
def store(request, tmp_path, monkeypatch):
    """A store whose second record is a batch of three with a body that is none."""
    monkeypatch.setattr(scan, "interpreted_bytes", lambda *_: request.param)
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


def test_a_bulk_read_has_it_in_the_table_of_damage(store):
    path, written = store
    damage = [
        row for batch in rocketlens.read_batches(path, table="damage") for row in batch.to_pylist()
    ]
    assert [row["physical_offset"] for row in damage] == [written[1].physical_offset]
    assert "cannot be taken apart" in damage[0]["reason"]


def test_a_cluster_that_has_it_gives_no_complete_answer():
    async def scenario(cluster, admin):
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

    ask(scenario)


def test_the_first_of_many_are_named_and_each_is_counted_once():
    batches = UnreadBatches()
    assert batches.coverage() == ()
    for number in (*range(5), *range(5)):
        batches.add(replace(record(number, topic="B"), physical_offset=number))
    (coverage,) = batches.coverage()
    assert coverage.is_failure
    assert coverage.error.startswith("5 records cannot be taken apart")
    assert coverage.error.endswith("B/0/0, B/0/1, B/0/2, ...")
