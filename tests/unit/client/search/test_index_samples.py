import pytest

from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.fake_cluster import ask

QUERY = RequestCode.QUERY_MESSAGE


def store(broker, count=40, topic="T"):
    for number in range(count):
        broker.store(topic, b"%d" % number, keys=f"k{number}", unique_key=f"{topic}{number}")


@within(ask)
async def test_an_index_that_lost_messages_makes_answers_by_key_incomplete_but_no_exhaustive_one(
    cluster, admin, /
):
    broker = cluster.masters[0]
    store(broker)
    broker.index_begin = broker.records[30].physical_offset
    for topic in ("T", None):
        answer = await admin.find("k2", topic)
        assert not answer.complete
        assert not answer.messages
        assert "its index lacks messages that its queues have, such as T/0/" in (
            answer.failures[0].error
        )
        assert not (await admin.find("k39", topic)).complete
        answer = await admin.find("k2", topic, exhaustive=True)
        assert answer.complete
        assert [each.body for each in answer] == [b"2"]


@pytest.mark.parametrize("lost", [range(32, 40), range(8, 16), range(8)])
@within(ask)
async def test_a_hole_of_the_index_is_seen_wherever_it_is_and_whichever_topics_are_asked_for(
    cluster, admin, /, lost
):
    broker = cluster.masters[0]
    cluster.name_servers[0].topics["U"] = cluster.name_servers[0].topics["T"]
    store(broker, topic="U")
    store(broker)
    broker.not_indexed = {f"T{number}" for number in lost}
    for topic in ("T", None):
        for key in ("k20", f"k{lost[3]}"):
            answer = await admin.find(key, topic)
            assert not answer.complete
            assert "its index lacks messages that its queues have" in answer.failures[0].error


@within(ask)
async def test_an_index_that_is_behind_is_waited_for(cluster, admin, /):
    broker = cluster.masters[0]
    store(broker)
    broker.not_indexed = {"T39"}
    runtime = broker.runtime

    def dispatched(*given):
        if any(header.key == "T39" for code, header in broker.asked if code == QUERY):
            broker.not_indexed = set()
        return runtime(*given)

    broker.runtime = dispatched
    assert (await admin.query_message("T", "k-none")).complete


@pytest.mark.parametrize("cap", [1, 8])
@within(ask)
async def test_an_index_that_returns_few_messages_is_not_taken_to_lack_the_others(
    cluster, admin, /, cap
):
    broker = cluster.masters[0]
    broker.cap = cap
    for number in range(40):
        broker.store("T", b"%d" % number, keys="k", unique_key="U")
    answer = await admin.query_message("T", "k", None)
    assert len(answer) == 40
    assert answer.complete
    assert (await admin.query_message("T", "none")).complete


@within(ask)
async def test_a_broker_that_refuses_to_be_asked_is_not_taken_to_have_lost_messages(
    cluster, admin, /
):
    broker = cluster.masters[0]
    store(broker)
    query = broker.query

    def busy(header, command):
        if header.key.startswith("T"):
            return Response(ResponseCode.SYSTEM_BUSY, remark="busy")
        return query(header, command)

    broker.query = busy
    answer = await admin.query_message("T", "k-none")
    assert answer.complete
    assert "which was not tried" in answer.coverage[0].relies_on


@within(ask)
async def test_an_answer_names_all_that_it_relies_on_of_several_topics(cluster, admin, /):
    cluster.name_servers[0].topics["U"] = cluster.name_servers[0].topics["T"]
    store(cluster.masters[0])
    cluster.masters[0].store("U", b"a", keys="k1")
    (relies_on,) = (await admin.find("k1")).relies_on
    assert "as it has those of them that were sampled" in relies_on
    assert "which was not tried" in relies_on


@within(ask)
async def test_an_answer_relies_on_the_index_which_was_tried_whether_or_not_something_was_found(
    cluster, admin, /
):
    broker = cluster.masters[0]
    store(broker)
    for key in ("k-none", "k1"):
        answer = await admin.query_message("T", key)
        assert answer.complete
        assert "as it has those of them that were sampled" in answer.coverage[0].relies_on
    # The index is tried once for all questions of some seconds.
    asked = broker.codes().count(RequestCode.QUERY_MESSAGE)
    await admin.query_message("T", "k2")
    assert broker.codes().count(RequestCode.QUERY_MESSAGE) == asked + 1
    exhaustive = await admin.find("k-none", "T", exhaustive=True)
    assert exhaustive.coverage[0].relies_on is None


@within(ask)
async def test_an_index_that_cannot_be_tried_is_named(cluster, admin, /):
    broker = cluster.masters[0]
    broker.store("T", b"a", keys="k")
    answer = await admin.query_message("T", "k-none")
    assert answer.complete
    assert "which was not tried" in answer.coverage[0].relies_on
    # Nor can that of an empty topic, which needs none.
    cluster.name_servers[0].topics["E"] = cluster.name_servers[0].topics["T"]
    assert (await admin.query_message("E", "k")).coverage[0].relies_on is None


@within(ask)
async def test_a_message_that_is_deleted_meanwhile_is_no_gap_in_the_index(cluster, admin, /):
    broker = cluster.masters[0]
    store(broker, 1)
    query = broker.query

    def deleted(header, command):
        if header.key == "T0":
            broker.queues.clear()
            broker.index_begin = len(broker.log)
        return query(header, command)

    broker.query = deleted
    assert (await admin.query_message("T", "k-none")).complete
