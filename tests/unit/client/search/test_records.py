"""Records of an answer are believed only as far as they check out."""

import asyncio

import pytest

from rocketlens.client.search.records import take_page
from rocketlens.errors import AnswerIncomplete
from rocketlens.formats.commitlog_record import RecordView
from rocketlens.model.text.java import index_hash
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from tests.support.async_tests import within
from tests.support.fake_cluster import T0, ask, bodies, damage_body


@within(ask)
async def test_hash_twins_are_told_apart(cluster, admin, /):
    broker = cluster.masters[0]
    assert index_hash("T#Aa") == index_hash("T#BB")
    broker.store("T", b"mine", keys="Aa", unique_key="X-Aa")
    broker.store("T", b"twin", keys="BB", unique_key="X-BB")
    assert bodies(await admin.query_message("T", "Aa")) == [b"mine"]
    assert bodies(await admin.query_message_by_unique_key("T", "X-BB")) == [b"twin"]


@within(ask)
async def test_a_damaged_record_costs_one_record_and_is_reported(cluster, admin, /):
    broker = cluster.masters[0]
    stored = [broker.store("T", b"body-%d" % n, keys="k") for n in range(3)]
    damage_body(broker, stored[1])
    answer = await admin.query_message("T", "k")
    assert bodies(answer) == [b"body-0", b"body-2"]
    assert not answer.complete
    assert "checksum" in answer.failures[0].error
    with pytest.raises(AnswerIncomplete):
        await admin.view_message(stored[1].offset_msg_id)


@pytest.mark.parametrize(
    ("message_filter", "count"),
    [
        (MessageFilter(topic="T", begin=T0 + 11, end=T0 + 14), 4),
        (MessageFilter(topic="Other"), 0),
        # The newest five, and the one that shows that there are more.
        (MessageFilter(topic="T"), 6),
    ],
)
def test_no_more_records_are_taken_apart_than_the_answer_needs(monkeypatch, message_filter, count):
    async def scenario(cluster, _):
        broker = cluster.masters[0]
        for _ in range(30):
            broker.store("T")
        return bytes(broker.log)

    body = ask(scenario)
    taken_apart = []
    plain = RecordView.record
    monkeypatch.setattr(RecordView, "record", lambda view: taken_apart.append(view) or plain(view))
    findings, damage = Findings(AnswerMessages(5)), []
    page = asyncio.run(take_page(body, message_filter, findings, damage))
    # The oldest one shows where the page begins.
    assert (len(taken_apart) - 1, page.records, damage) == (count, 30, [])
