"""A search of a cluster leaves out RocketMQ's own topics, and counts what is in them."""

import pytest

from tests.support.async_tests import within
from tests.support.fake_cluster import T0, ask, bodies, fail
from tests.support.trace_bodies import TRACES, UNREADABLE

TRACE = "RMQ_SYS_TRACE_TOPIC"


def left_out_of(answer):
    return [each.error for each in answer.coverage if "left out" in (each.error or "")]


def fill(cluster):
    """Store a message, its traces and an event, a second apart; the traces on the last broker."""
    first, last = cluster.masters[0], cluster.masters[-1]
    topics = {"Orders": [first.name], TRACE: [last.name], "OFFSET_MOVED_EVENT": [first.name]}
    cluster.name_servers[0].topics = topics
    first.now_ms = last.now_ms = T0
    first.store("Orders", b"Paris", keys="k", unique_key="U")
    for number in range(3):
        last.now_ms = T0 + 1000 * (number + 1)
        last.store(TRACE, b"\xff Paris", keys="k U", unique_key=f"T{number}")
    first.now_ms = T0 + 4000
    first.store("OFFSET_MOVED_EVENT", b"moved")
    return last


@pytest.mark.parametrize(
    ("question", "count"),
    [
        ({"text": "k"}, 3),
        ({"text": "U"}, 3),
        ({"text": "U", "kind": "unique-key"}, 0),
        ({"where": "key = 'k'"}, 3),
        ({"grep": "Paris"}, 4),
        ({"where": "body CONTAINS 'Paris'"}, 4),
        ({"topic": "*"}, 4),
        ({"begin": T0}, 4),
        ({"begin": T0, "end": T0 + 2500}, 2),
        ({"begin": T0, "max_num": 5}, 4),
    ],
    ids=str,
)
@within(ask)
async def test_system_topics_are_left_out_and_counted_whatever_is_asked(
    cluster, admin, /, question, count
):
    fill(cluster)
    answer = await admin.find(**question)
    assert bodies(answer) == [b"Paris"]
    assert answer.complete
    told = left_out_of(answer)
    assert len(told) == (count > 0)
    assert not told or told[0].startswith(f"{count} messages of RocketMQ's own topics, in ")
    if "text" in question:
        assert len(await admin.find(**question, all_topics=True)) == 1 + count


@within(ask)
async def test_a_named_topic_an_id_and_a_position_are_searched(cluster, admin, /):
    broker = fill(cluster)
    trace = next(each for each in broker.records if each.topic == TRACE)
    for question in (("k", TRACE), ("T0", "RMQ_SYS_T*"), (f"{TRACE}/0/0",)):
        assert len(await admin.find(*question)) >= 1, question
    assert len(await admin.find(broker.id_at(trace.physical_offset))) == 1
    assert bodies(await admin.find(None, TRACE)) == [b"\xff Paris"] * 3


@within(ask, masters=2)
async def test_traces_that_cannot_be_counted_leave_an_answer_complete(cluster, admin, /):
    await fail(fill(cluster), "erring")
    for question in ({"text": "k"}, {"begin": T0}):
        answer = await admin.find(**question)
        assert (bodies(answer), answer.complete) == ([b"Paris"], True)
    assert left_out_of(answer)[0].startswith("1 message or more")


@within(ask)
async def test_a_cluster_with_system_topics_only_has_nothing_and_says_so(cluster, admin, /):
    fill(cluster)
    del cluster.name_servers[0].topics["Orders"]
    answer = await admin.find("k")
    assert (bodies(answer), answer.complete) == ([], True)
    assert left_out_of(answer)


@pytest.mark.parametrize("scope", [{"all_topics": True}, {"topic": TRACE}], ids=str)
@within(ask)
async def test_traces_are_searched_by_content_and_the_answer_is_complete(cluster, admin, /, scope):
    broker = cluster.masters[0]
    cluster.name_servers[0].topics[TRACE] = [broker.name]
    for body in TRACES.values():
        broker.store(TRACE, body, keys="ORDER-1")
    for text, names in (
        ("ORDER-1", list(TRACES)[:-1]),
        ("订单", ["with keys in Chinese"]),
        ("no such text", []),
    ):
        answer = await admin.find(grep=text, **scope)
        assert [each.body for each in answer] == [TRACES[name] for name in names]
        assert (answer.complete, answer.failures) == (True, ())
    broker.store(TRACE, UNREADABLE)
    answer = await admin.find(grep="ORDER-1", **scope)
    assert not answer.complete
    assert f"{TRACE}/0/{len(TRACES)}" in answer.failures[0].error


@within(ask)
async def test_a_property_that_no_message_has_is_named_with_its_path(cluster, admin, /):
    cluster.masters[0].store("T", b'{"amount": 700}')
    answer = await admin.find(topic="T", where="amount > 500")
    assert (bodies(answer), answer.complete) == ([], True)
    hints = [each.error for each in answer.coverage if "amount" in (each.error or "")]
    assert ["body.$.amount" in hint for hint in hints] == [True]
