"""Every broker of a topic is asked, and one that fails makes the answer incomplete."""

import asyncio
import itertools
from collections import Counter
from functools import partial

import pytest

from rocketlens.client.search.queue_offsets import FORMER_QUEUES_ASKED_FOR
from rocketlens.errors import AnswerIncomplete, MessageNotFound
from rocketlens.model.answer import SourceKind
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.fake_cluster import FAILURES, T0, ask, bodies, fail
from tests.support.patience import PATIENCE_S, SILENCE_S
from tests.support.trace_bodies import TRACES, UNREADABLE


@pytest.mark.parametrize("failing", [*itertools.combinations(FAILURES, 2), FAILURES])
@within(ask, masters=3, timeout_s=SILENCE_S)
async def test_a_failed_broker_makes_the_answer_incomplete_and_is_named(cluster, admin, /, failing):
    sound = cluster.masters[len(failing) :]
    for broker in cluster.masters:
        broker.store("T", broker.name.encode(), keys="k", unique_key="U1")
    for broker, how in zip(cluster.masters, failing, strict=False):
        await fail(broker, how)
    for question in (admin.query_message, admin.query_message_by_unique_key):
        answer = await question("T", "k" if question == admin.query_message else "U1")
        assert not answer.complete
        assert bodies(answer) == [broker.name.encode() for broker in sound]
        failed = {each.source for each in answer.failures}
        assert failed == {"broker-a", "broker-b", "broker-c"} - {s.name for s in sound}
        assert all(each.kind is SourceKind.BROKER and each.error for each in answer.failures)
    nowhere = await admin.query_message("T", "other")
    assert not nowhere.complete
    with pytest.raises(AnswerIncomplete, match="broker-a"):
        await admin.view_message("T", "7F" * 16)


@within(ask, masters=2)
async def test_messages_name_their_broker_and_filters_choose_it(cluster, admin, /):
    for broker in cluster.masters:
        broker.store("T", broker.name.encode(), keys="k", unique_key="U")
        broker.store("T", broker.name.encode(), keys="k", queue_id=1)
    (first, *_) = await admin.find(None, "T")

    async def tailed(**options):
        return [message async for message in admin.tail("T", newest=9, **options)]

    async def scanned(**options):
        return [message async for message in admin.scan("T", **options)]

    async def found(text, **options):
        return (await admin.find(text, "T", **options)).messages

    ways = [tailed, scanned, *(partial(found, each) for each in (None, "k", "U", "T/1/0"))]
    for way in [*ways, partial(found, first.offset_msg_id)]:
        messages = await way()
        assert {(each.cluster, each.broker.encode()) for each in messages} == {
            ("C", each.body) for each in messages
        }
        for name in ("broker-a", "broker-b"):
            chosen = await way(where=f"broker = '{name}' AND cluster = 'C'")
            assert list(chosen) == [each for each in messages if each.broker == name]
    batches = [each async for each in admin.scan("T").record_batches()]
    brokers = [name for batch in batches for name in batch["broker"].to_pylist()]
    assert Counter(brokers) == {"broker-a": 2, "broker-b": 2}


@within(ask, masters=2)
async def test_of_several_records_with_one_unique_key_the_oldest_is_shown(cluster, admin, /):
    cluster.masters[1].store("T", b"first", unique_key="U")
    cluster.masters[0].now_ms += 10
    cluster.masters[0].store("T", b"again", unique_key="U")
    assert (await admin.view_message("T", "U")).body == b"first"
    assert bodies(await admin.query_message_by_unique_key("T", "U")) == [b"first", b"again"]
    with pytest.raises(MessageNotFound):
        await admin.view_message("T", "V")


@within(ask)
async def test_queues_that_a_topic_had_before_make_an_answer_incomplete(cluster, admin, /):
    broker = cluster.masters[0]
    for number in range(4):
        broker.store("T", b"%d" % number, keys=f"k{number}", queue_id=number)
    cluster.name_servers[0].queue_data["T"] = {"read_queue_nums": 1, "write_queue_nums": 1}
    for question in ({}, {"exhaustive": True}, {"where": "TAGS IS NULL"}):
        answer = await admin.find(None, "T", **question)
        assert bodies(answer) == [b"0"]
        assert [each.error.partition(":")[0] for each in answer.failures] == ["T/1", "T/2", "T/3"]
    tailed = admin.tail("T")
    assert [message.body async for message in tailed] == [b"0"]
    assert not tailed.complete
    assert not (await admin.find("T/2/0", kind="queue-offset")).complete
    assert (await admin.find("T/9/0", kind="queue-offset")).complete
    # The index of a broker answers all the same, and no queue was made by asking.
    assert bodies(await admin.query_message("T", "k2")) == [b"2"]
    assert len(broker.queues) == 4


@within(ask)
async def test_queues_that_a_topic_had_before_are_looked_for_again_when_its_route_changes(
    cluster, admin, /
):
    broker = cluster.masters[0]
    for number in range(4):
        broker.store("T", queue_id=number)
    for _ in range(2):
        assert (await admin.find(None, "T")).complete
    asked = broker.codes().count(RequestCode.QUERY_CONSUME_QUEUE)
    assert asked == FORMER_QUEUES_ASKED_FOR
    cluster.name_servers[0].queue_data["T"] = {"read_queue_nums": 2, "write_queue_nums": 2}
    admin.source.topology._routes.clear()
    answer = await admin.find(None, "T")
    assert [each.error.partition(":")[0] for each in answer.failures] == ["T/2", "T/3"]


@pytest.mark.parametrize("changes", [{"perm": 2}, {"read_queue_nums": 1}, {"perm": 0}])
@within(ask)
async def test_messages_that_brokers_let_nobody_pull_make_an_answer_incomplete(
    cluster, admin, /, changes
):
    broker = cluster.masters[0]
    broker.store("T", b"a", keys="k", queue_id=2)
    cluster.name_servers[0].queue_data["T"] = changes
    for question in ({}, {"exhaustive": True}, {"where": "TAGS IS NULL"}):
        answer = await admin.find(None, "T", **question)
        assert not answer.complete, question
        assert bodies(answer) == []
        assert "T/2: 1 message cannot be read" in answer.failures[0].error
    assert not (await admin.find("T/2/0", kind="queue-offset")).complete
    assert (await admin.find("T/3/0", kind="queue-offset")).complete
    # The index of a broker answers all the same.
    assert bodies(await admin.query_message("T", "k")) == [b"a"]


IN_BATCHES = {"T": {"queue.type": "BatchCQ"}}


def test_a_message_in_a_batch_is_found_by_its_key_and_the_batch_by_its_id():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.topic_attributes = IN_BATCHES
        broker.store("T", b"alone", keys="k")
        batch = [(b"first", "k"), (b"second", "k2"), (b"third", "k k3")]
        broker.store_batch("T", batch, unique_key="U")
        broker.store_batch("T", [(b"other", "k4")], queue_id=3)
        for exhaustive in (False, True):
            for topic in ("T", None):
                answer = await admin.find("k", topic, exhaustive=exhaustive)
                assert answer.complete
                assert bodies(answer) == [b"alone", b"first", b"third"]
                assert [each.queue_offset for each in answer] == [0, 1, 3]
        assert bodies(await admin.query_message("T", "k2")) == [b"second"]
        assert bodies(await admin.query_message("T", "k4")) == [b"other"]
        answer = await admin.query_message_by_unique_key("T", "U")
        assert [each.physical_offset for each in answer] == [batch_offset(broker)]
        assert (await admin.query_message("T", "k5")).complete
        # Whether a topic has batches is asked for once.
        assert broker.codes().count(RequestCode.GET_TOPIC_CONFIG) == 1

    def batch_offset(broker):
        return broker.records[1].physical_offset

    ask(scenario)


@within(ask)
async def test_keys_of_messages_in_batches_are_missing_if_a_broker_does_not_tell_whether_it_has_any(
    cluster, admin, /
):
    broker = cluster.masters[0]
    broker.store("T", b"alone", keys="k")
    broker.tells_attributes = False
    answer = await admin.query_message("T", "k")
    assert bodies(answer) == [b"alone"]
    assert not answer.complete
    assert "keys of messages in batches are not searched" in answer.failures[0].error


@pytest.mark.parametrize(
    "off", ["messageIndexEnable", "indexFileWriteEnable", "indexFileReadEnable"]
)
@within(ask)
async def test_messages_of_a_broker_whose_index_is_off_are_found_by_key(cluster, admin, /, off):
    broker = cluster.masters[0]
    broker.config = {"messageIndexEnable": "true", off: "false"}
    broker.has_index = False
    broker.store("T", b"a", keys="k", unique_key="U")
    broker.store("T", b"b", keys="k2")
    for topic in ("T", None):
        assert bodies(await admin.find("k", topic)) == [b"a"]
        assert bodies(await admin.find("U", topic)) == [b"a"]
        assert (await admin.find("k3", topic)).complete
    assert (await admin.view_message("T", "U")).body == b"a"
    # The configuration is asked for once.
    assert broker.codes().count(RequestCode.GET_BROKER_CONFIG) == 1


@within(ask)
async def test_batches_in_a_queue_that_cannot_be_read_make_a_search_by_key_incomplete(
    cluster, admin, /
):
    broker = cluster.masters[0]
    broker.topic_attributes = IN_BATCHES
    broker.store_batch("T", [(b"a", "k")], queue_id=2)
    cluster.name_servers[0].queue_data["T"] = {"perm": 2}
    answer = await admin.query_message("T", "k")
    assert not answer.complete
    assert "T/2: 1 message cannot be read" in answer.failures[0].error


@within(ask, timeout_s=PATIENCE_S)
async def test_topics_are_searched_several_at_a_time_also_without_a_text(cluster, admin, /):
    (server,), (broker,) = cluster.name_servers, cluster.masters
    server.topics = {"T": ["broker-a"], "U": ["broker-a"]}
    pull, pulled, both = broker.pull, set(), asyncio.Event()

    def held(header, command):
        pulled.add(header.topic)
        if len(pulled) == 2:
            both.set()

        async def answer():
            await both.wait()
            return pull(header, command)

        return asyncio.ensure_future(answer())

    broker.pull = held
    for topic in server.topics:
        broker.store(topic, topic.encode())
    assert sorted(bodies(await admin.find(None, ["T", "U"]))) == [b"T", b"U"]


@within(ask)
async def test_a_position_outside_of_the_queue_says_where_that_ends(cluster, admin, /):
    cluster.masters[0].store("T", b"x")
    ends, none = [await admin.find(each) for each in ("T/0/7", "T/900/0")]
    assert (ends.complete, len(ends)) == (True, 0)
    assert "T/0 ends at 1" in [each.note for each in ends.coverage]
    assert any((each.note or "").startswith("there is no queue T/900") for each in none.coverage)


TRACE = "RMQ_SYS_TRACE_TOPIC"


def left_out_of(answer):
    return [each.note for each in answer.coverage if "left out" in (each.note or "")]


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
    hints = [each.note for each in answer.coverage if "amount" in (each.note or "")]
    assert ["body.$.amount" in hint for hint in hints] == [True]


@within(ask, masters=2)
async def test_what_waits_for_a_topic_is_asked_of_its_brokers_and_of_no_name_server(
    cluster, admin, /
):
    """Also where name servers do not know yet that a broker keeps something."""
    timers = "rmq_sys_wheel_timer"
    holder, other = cluster.masters
    name_server = cluster.name_servers[0]
    name_server.topics["T"] = [holder.name]
    waits = {"REAL_TOPIC": "T", "TIMER_OUT_MS": str(T0 * 2)}
    holder.store(timers, b"waits", keys="k", unique_key="U", more=waits)
    other.store(timers, b"of another", keys="k", unique_key="V", more={**waits, "REAL_TOPIC": "S"})
    for _ in range(2):
        answer = await admin.find("k", "T", kind="key")
        assert (bodies(answer), answer.complete) == ([b"waits"], True)
    code_of_routes = RequestCode.GET_ROUTEINFO_BY_TOPIC
    routes = [header.topic for code, header in name_server.asked if code == code_of_routes]
    assert routes == ["T"]
    queried = [h.topic for code, h in other.asked if code == RequestCode.QUERY_MESSAGE]
    assert queried == []
    assert bodies(await admin.find("k", "T", kind="key", exhaustive=True)) == []
    name_server.topics[timers] = [holder.name]
    assert bodies(await admin.find("k", "T", kind="key", exhaustive=True)) == [b"waits"]
