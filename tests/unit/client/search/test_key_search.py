"""All messages of a key are found, whatever the limits of a broker's answers are."""

import pytest

from rocketlens.errors import AnswerIncomplete
from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.fake_cluster import ask, bodies
from tests.support.patience import PATIENCE_S


@pytest.mark.parametrize("step_ms", [0, 1, 7, 400, 5000])
@pytest.mark.parametrize("max_num", [0, 1, 63, 64, 65, 150, 2**31 - 1, None])
@within(ask, masters=2, timeout_s=5)
async def test_no_cap_of_a_broker_cuts_an_answer(cluster, admin, /, step_ms, max_num):
    for broker in cluster.masters:
        broker.step_ms = step_ms
        for number in range(100):
            broker.store("T", b"%d" % number, keys="k k", queue_id=number % 4)
            broker.store("T", b"other", keys="o", queue_id=number % 4)
    answer = await admin.query_message("T", "k", max_num)
    assert answer.complete
    most = 200 if max_num is None else min(max_num, 200)
    assert len(answer) == most
    assert answer.truncated == (most < 200)
    everything = await admin.query_message("T", "k", None)
    assert {(m.store_host, m.physical_offset) for m in everything} == {
        (each.store_host, each.physical_offset)
        for broker in cluster.masters
        for each in broker.records
        if each.body != b"other"
    }
    assert answer.messages == everything.messages[200 - most :]


@pytest.mark.parametrize("cap", [1, 2, 8, 15, 16, 32])
@pytest.mark.parametrize("told", [None, "", "many", "1e3", "9" * 5000, "-1", "0", "1"])
@within(ask, timeout_s=5)
async def test_no_cap_that_a_broker_is_configured_with_cuts_an_answer(cluster, admin, /, cap, told):
    broker = cluster.masters[0]
    broker.cap = cap
    if told == "":
        broker.config = {}
    elif told is not None:
        broker.config |= {"maxMsgsNumBatch": told, "defaultQueryMaxNum": told}
    broker.step_ms = 130
    for number in range(100):
        broker.store("T", b"%d" % number, keys="k", unique_key="U", queue_id=number % 4)
    assert len(await admin.query_message("T", "k", None)) == 100
    assert len(await admin.query_message_by_unique_key("T", "U", None)) == 100


@pytest.mark.parametrize("count", [5, 100])
@pytest.mark.parametrize(
    ("begin", "end"), [(0, 0), (1, 3), (2, 2), (3, 90), (999, 1001), (0, 9**9)]
)
@within(ask, timeout_s=5)
async def test_times_are_met_to_the_millisecond(cluster, admin, /, count, begin, end):
    broker = cluster.masters[0]
    broker.step_ms = 1 if count == 5 else 37
    stored = [broker.store("T", b"%d" % n, keys="k", queue_id=n % 4) for n in range(count)]
    first = stored[0].store_timestamp_ms
    answer = await admin.query_message("T", "k", None, first + begin, first + end)
    expected = [s for s in stored if begin <= s.store_timestamp_ms - first <= end]
    assert bodies(answer) == [each.body for each in expected]


@within(ask)
async def test_a_clock_that_was_set_back_hides_nothing(cluster, admin, /):
    broker = cluster.masters[0]
    broker.store("T", b"before", keys="k")
    broker.step_ms = -50_000
    back = broker.store("T", b"after", keys="k")
    at = back.store_timestamp_ms
    assert bodies(await admin.query_message("T", "k", 64, at, at)) == [b"after"]


@pytest.mark.parametrize("closes", [True, False])
@within(ask, timeout_s=PATIENCE_S)
async def test_an_answer_too_large_for_a_frame_is_asked_for_in_parts(cluster, admin, /, closes):
    broker = cluster.masters[0]
    broker.closes_when_large = closes
    for number in range(20):
        broker.store("T", b"%02d" % number * 500_000, keys="k", queue_id=number % 4)
    answer = await admin.query_message("T", "k")
    assert [body[:2] for body in bodies(answer)] == [b"%02d" % n for n in range(20)]
    assert answer.complete


@within(ask)
async def test_what_a_broker_could_not_search_makes_an_answer_incomplete(cluster, admin, /):
    broker = cluster.masters[0]
    broker.store("T", b"found", keys="k")
    broker.more_fields = {"notSearched": "segment 7 cannot be read"}
    answer = await admin.query_message("T", "k")
    assert bodies(answer) == [b"found"]
    assert not answer.complete
    assert [failure.error for failure in answer.failures] == ["segment 7 cannot be read"]


@within(ask, timeout_s=5)
async def test_the_oldest_is_shown_also_of_more_than_a_broker_returns_at_once(cluster, admin, /):
    broker = cluster.masters[0]
    broker.step_ms = 130
    for number in range(100):
        broker.store("T", b"%d" % number, unique_key="U", queue_id=number % 4)
    assert (await admin.view_message("T", "U")).body == b"0"


@pytest.mark.parametrize("back_ms", [1_000, 600_000, 40_000_000])
@pytest.mark.parametrize(("begin", "end"), [(None, None), (150, 180), (None, 120), (60, None)])
@within(ask, timeout_s=5)
async def test_a_clock_that_was_set_back_hides_none_of_many_messages_of_a_key(
    cluster, admin, /, back_ms, begin, end
):
    broker = cluster.masters[0]
    broker.step_ms = 1000
    for number in range(200):
        broker.store("T", b"%d" % number, keys="k", queue_id=number % 4)
        if number == 100:
            broker.now_ms -= back_ms
    first = broker.records[0].store_timestamp_ms
    begin_ms = None if begin is None else first + 1000 * begin
    end_ms = None if end is None else first + 1000 * end
    expected = {
        each.body
        for each in broker.records
        if (begin_ms or 0) <= each.store_timestamp_ms <= (end_ms or 2**63)
    }
    asked = {"kind": "key", "begin": begin_ms, "end": end_ms}
    answer = await admin.find("k", "T", **asked)
    assert (
        set(bodies(answer)) == expected or "store times of the messages" in answer.failures[0].error
    )
    answer = await admin.find("k", "T", exhaustive=True, **asked)
    assert (set(bodies(answer)), answer.complete, answer.relies_on) == (expected, True, ())


@pytest.mark.parametrize(("count", "relies"), [(10, False), (100, True)])
@within(ask, timeout_s=5)
async def test_only_a_key_of_many_messages_relies_on_their_order(cluster, admin, /, count, relies):
    for number in range(count):
        cluster.masters[0].store("T", b"%d" % number, keys="k", queue_id=number % 4)
    answer = await admin.query_message("T", "k", None)
    assert (len(answer), answer.complete, "rise" in str(answer.relies_on)) == (count, True, relies)


@pytest.mark.parametrize(("max_num", "most"), [(1, 2), (63, 2), (64, 3)])
@within(ask)
async def test_the_newest_of_many_messages_of_one_second_are_found_without_reading_all_of_it(
    cluster, admin, /, max_num, most
):
    broker = cluster.masters[0]
    broker.step_ms = 0
    for number in range(1000):
        broker.store("T", b"%d" % number, keys="k", queue_id=number % 4)
    # The first question of all compares the index with queues.
    await admin.query_message("T", "k", 1)
    before = len(broker.asked)
    answer = await admin.query_message("T", "k", max_num)
    assert bodies(answer) == [b"%d" % number for number in range(1000 - max_num, 1000)]
    assert answer.truncated
    assert answer.complete
    codes = [code for code, _ in broker.asked[before:]]
    assert codes.count(RequestCode.QUERY_MESSAGE) <= most
    # One queue shows that there are more than the 64 that the index led to.
    assert codes.count(RequestCode.GET_MAX_OFFSET) == (1 if max_num == 64 else 0)


@within(ask, timeout_s=PATIENCE_S)
async def test_a_message_that_a_broker_has_not_indexed_yet_is_waited_for(cluster, admin, /):
    broker = cluster.masters[0]
    broker.store("T", b"older", keys="k")
    broker.store("T", b"newest", keys="k", unique_key="U2")
    broker.undispatched = [1, 1, 1]
    answer = await admin.query_message("T", "k")
    assert (bodies(answer), answer.complete) == ([b"older", b"newest"], True)
    broker.undispatched = [2, 1]
    assert (await admin.view_message("T", "U2")).body == b"newest"


async def test_an_answer_of_a_broker_that_stays_behind_is_not_complete(cluster, admin, monkeypatch):
    monkeypatch.setattr("rocketlens.client.connect.cluster.DISPATCH_WAIT_S", 0.01)
    monkeypatch.setattr("rocketlens.client.search.key_search.DISPATCH_WAIT_S", 0.01)
    broker = cluster.masters[0]
    broker.store("T", b"older", keys="k")
    newest = broker.store("T", b"newest", keys="k", unique_key="U2")
    broker.undispatched = [1] * 100
    answer = await admin.query_message("T", "k")
    assert (bodies(answer), answer.complete) == ([b"older"], False)
    assert f"{newest.total_size} bytes" in answer.failures[0].error
    with pytest.raises(AnswerIncomplete):
        await admin.view_message("T", "U2")


@within(ask, timeout_s=PATIENCE_S)
async def test_an_answer_of_a_broker_that_does_not_say_how_far_it_is_is_not_complete(
    cluster, admin, /
):
    broker = cluster.masters[0]
    broker.store("T", b"older", keys="k")
    broker.tells_dispatch = False
    answer = await admin.query_message("T", "k")
    assert (bodies(answer), answer.complete) == ([b"older"], False)
    assert "does not report its indexing progress" in answer.failures[0].error


async def test_a_broker_in_its_first_second_is_asked_again_how_far_it_has_indexed(
    cluster, admin, monkeypatch
):
    no_sample = "java.util.NoSuchElementException, java.util.LinkedList.getLast"
    broker = cluster.masters[0]
    broker.store("T", b"message", keys="k")
    broker.runtime_remarks = [no_sample, no_sample]
    answer = await admin.query_message("T", "k")
    assert (bodies(answer), answer.complete) == ([b"message"], True)
    broker.runtime_remarks = ["java.lang.IllegalStateException"]
    assert not (await admin.query_message("T", "k")).complete
    monkeypatch.setattr("rocketlens.client.connect.cluster.DISPATCH_WAIT_S", 0.0)
    monkeypatch.setattr("rocketlens.client.search.key_search.DISPATCH_WAIT_S", 0.0)
    broker.runtime_remarks = [no_sample] * 100
    assert not (await admin.query_message("T", "k")).complete


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
    assert "which was not checked" in answer.coverage[0].relies_on


@within(ask)
async def test_an_answer_names_all_that_it_relies_on_of_several_topics(cluster, admin, /):
    cluster.name_servers[0].topics["U"] = cluster.name_servers[0].topics["T"]
    store(cluster.masters[0])
    cluster.masters[0].store("U", b"a", keys="k1")
    (relies_on,) = (await admin.find("k1")).relies_on
    assert "like those that were sampled" in relies_on
    assert "which was not checked" in relies_on


@within(ask)
async def test_an_answer_relies_on_the_index_which_was_tried_whether_or_not_something_was_found(
    cluster, admin, /
):
    broker = cluster.masters[0]
    store(broker)
    for key in ("k-none", "k1"):
        answer = await admin.query_message("T", key)
        assert answer.complete
        assert "like those that were sampled" in answer.coverage[0].relies_on
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
    assert "which was not checked" in answer.coverage[0].relies_on
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
