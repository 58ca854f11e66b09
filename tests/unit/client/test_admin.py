"""What a running cluster is asked, and what is said when it fails."""

import asyncio
import itertools
import sys

import pytest

from rocketlens import limits
from rocketlens.client.admin import MQAdmin
from rocketlens.client.cluster import ClusterCalls, Credentials
from rocketlens.client.route import MessageQueue
from rocketlens.errors import (
    AnswerIncomplete,
    BadInput,
    BrokerError,
    ConnectionLost,
    MessageIllegal,
    MessageNotFound,
    RemotingError,
    TopicNotFound,
    WrongType,
    WrongUse,
)
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.model.java import index_hash
from rocketlens.model.message import Host
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.net.pool import ClientPool
from rocketlens.wire import acl
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.commands.query import QUERY_MESSAGE, QueryMessageRequest
from tests.unit.client.fake_cluster import T0, damage_body, running

PATIENCE_S = 0.2
FAILURES = ("dead", "slow", "erring")
CONNECTS = []


def _audit(event, arguments):
    if event == "socket.connect":
        CONNECTS.append(arguments[1])


sys.addaudithook(_audit)


def ask(scenario, masters=1, slaves=0, name_servers=1, **options):
    """Run ``await scenario(cluster, admin)``."""

    async def main():
        async with running(masters, slaves, name_servers) as cluster:
            given = {"timeout_s": PATIENCE_S, **options}
            async with MQAdmin(cluster.given, **given) as admin:
                return await scenario(cluster, admin)

    return asyncio.run(main())


async def fail(broker, how):
    if how == "dead":
        await broker.die()
    elif how == "slow":
        broker.is_slow = True
    elif how == "erring":
        broker.err()


def bodies(answer):
    return [message.body for message in answer]


def test_a_message_that_a_broker_has_not_indexed_yet_is_waited_for():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.store("T", b"older", keys="k")
        broker.store("T", b"newest", keys="k", unique_key="U2")
        broker.undispatched = [1, 1, 1]
        answer = await admin.query_message("T", "k")
        assert (bodies(answer), answer.complete) == ([b"older", b"newest"], True)
        broker.undispatched = [2, 1]
        assert (await admin.view_message("T", "U2")).body == b"newest"

    ask(scenario, timeout_s=10)


def test_an_answer_of_a_broker_that_stays_behind_is_not_complete(monkeypatch):
    monkeypatch.setattr(limits, "DISPATCH_WAIT_S", 0.01)

    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.store("T", b"older", keys="k")
        newest = broker.store("T", b"newest", keys="k", unique_key="U2")
        broker.undispatched = [1] * 100
        answer = await admin.query_message("T", "k")
        assert (bodies(answer), answer.complete) == ([b"older"], False)
        assert f"{newest.total_size} bytes" in answer.failures[0].error
        with pytest.raises(AnswerIncomplete):
            await admin.view_message("T", "U2")

    ask(scenario, timeout_s=10)


def test_an_answer_of_a_broker_that_does_not_say_how_far_it_is_is_not_complete():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.store("T", b"older", keys="k")
        broker.tells_dispatch = False
        answer = await admin.query_message("T", "k")
        assert (bodies(answer), answer.complete) == ([b"older"], False)
        assert "does not say how far" in answer.failures[0].error

    ask(scenario, timeout_s=10)


@pytest.mark.parametrize("failing", [*itertools.combinations(FAILURES, 2), FAILURES])
def test_a_failed_broker_makes_the_answer_incomplete_and_is_named(failing):
    async def scenario(cluster, admin):
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

    ask(scenario, masters=3)


@pytest.mark.parametrize("how", FAILURES)
def test_a_slave_answers_for_a_master_that_is_gone_and_the_answer_is_incomplete(how):
    async def scenario(cluster, admin):
        master, slave = cluster.masters[0], cluster.slaves[0]
        slave.store("T", b"copy", keys="k")
        await fail(master, how)
        answer = await admin.query_message("T", "k")
        assert not answer.complete
        assert bodies(answer) == [b"copy"]
        (covered,) = answer.coverage
        assert covered.state is SourceState.FAILED
        assert "may lack the newest messages" in covered.error
        assert (await admin.view_message("T", slave.id_at(0))).body == b"copy"
        with pytest.raises(AnswerIncomplete, match="may lack the newest"):
            await admin.view_message("T", "7F" * 16)
        assert slave.address in covered.source
        assert master.address in covered.error
        assert await admin.max_offset(MessageQueue("T", "broker-a", 0)) == 1

    ask(scenario, slaves=1)


def test_the_master_is_asked_and_its_slave_left_alone():
    async def scenario(cluster, admin):
        cluster.masters[0].store("T", b"m", keys="k")
        assert bodies(await admin.query_message("T", "k")) == [b"m"]
        assert cluster.slaves[0].asked == []

    ask(scenario, slaves=1)


def test_a_thousand_forged_ids_dial_nothing_but_the_cluster():
    async def scenario(cluster, admin):
        cluster.masters[0].store("T", b"m", keys="k")
        own = {each.address for each in cluster.all}
        CONNECTS.clear()
        for number in range(1000):
            forged = OffsetMessageId(Host(f"10.66.{number % 256}.1", 80), number * 7).encode()
            with pytest.raises(MessageNotFound):
                await (
                    admin.view_message(forged) if number % 2 else admin.view_message("T", forged)
                )
        forged = OffsetMessageId(Host("127.0.0.1", 1), 0).encode()
        with pytest.raises(MessageNotFound):
            await admin.view_message(forged)
        dialled = {f"{each[0]}:{each[1]}" for each in CONNECTS if isinstance(each, tuple)}
        assert dialled
        assert dialled <= own
        assert len(CONNECTS) <= len(own)

    ask(scenario, timeout_s=5)


def test_an_offset_id_is_found_also_when_its_broker_has_moved():
    async def scenario(cluster, admin):
        old = cluster.masters[0].store("T", b"m")
        await cluster.masters[0].die()
        log, kept = bytes(cluster.masters[0].log), list(cluster.masters[0].records)
        await cluster.masters[0].start()
        cluster.masters[0].log[:], cluster.masters[0].records[:] = log, kept
        assert old.offset_msg_id != cluster.masters[0].id_at(0)
        assert (await admin.view_message(old.offset_msg_id)).body == b"m"
        assert (await admin.view_message("T", old.offset_msg_id)).body == b"m"
        with pytest.raises(MessageNotFound):
            await admin.view_message("Other", old.offset_msg_id)

    async def with_topic(cluster, admin):
        for server in cluster.name_servers:
            server.topics["Other"] = ["broker-a"]
        await scenario(cluster, admin)

    ask(with_topic)


def test_a_record_inside_a_body_is_no_message():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        inner_at = 89 - 1  # where the body of the first record begins
        broker.store("T", b"first", queue_id=1)
        probe = broker.store("T", b"p" * 200, queue_id=1)
        inner_at = bytes(broker.log).index(b"p" * 200)
        forged = bytearray(broker.bytes_of(broker.records[0]))
        forged[28:36] = inner_at.to_bytes(8)
        broker.log[inner_at : inner_at + len(forged)] = forged
        with pytest.raises(MessageNotFound):
            await admin.view_message(broker.id_at(inner_at))
        assert probe.physical_offset < inner_at
        for at in (1, 17, 10**9):
            with pytest.raises(MessageNotFound):
                await admin.view_message(broker.id_at(at))

    ask(scenario)


@pytest.mark.parametrize("step_ms", [0, 1, 7, 400, 5000])
@pytest.mark.parametrize("max_num", [0, 1, 63, 64, 65, 150, 2**31 - 1, None])
def test_no_cap_of_a_broker_cuts_an_answer(step_ms, max_num):
    async def scenario(cluster, admin):
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

    ask(scenario, masters=2, timeout_s=5)


@pytest.mark.parametrize("cap", [16, 20, 32])
def test_a_cap_that_a_broker_is_configured_with_is_found_out(cap):
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.cap = cap
        broker.step_ms = 130
        for number in range(100):
            broker.store("T", b"%d" % number, keys="k", unique_key="U", queue_id=number % 4)
        assert len(await admin.query_message("T", "k", None)) == 100
        assert len(await admin.query_message_by_unique_key("T", "U", None)) == 100

    ask(scenario, timeout_s=5)


@pytest.mark.parametrize("count", [5, 100])
@pytest.mark.parametrize(
    ("begin", "end"), [(0, 0), (1, 3), (2, 2), (3, 90), (999, 1001), (0, 9**9)]
)
def test_times_are_met_to_the_millisecond(count, begin, end):
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.step_ms = 1 if count == 5 else 37
        stored = [broker.store("T", b"%d" % n, keys="k", queue_id=n % 4) for n in range(count)]
        first = stored[0].store_timestamp_ms
        answer = await admin.query_message("T", "k", None, first + begin, first + end)
        expected = [s for s in stored if begin <= s.store_timestamp_ms - first <= end]
        assert bodies(answer) == [each.body for each in expected]

    ask(scenario, timeout_s=5)


def test_a_clock_that_was_set_back_hides_nothing():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.store("T", b"before", keys="k")
        broker.step_ms = -50_000
        back = broker.store("T", b"after", keys="k")
        at = back.store_timestamp_ms
        assert bodies(await admin.query_message("T", "k", 64, at, at)) == [b"after"]

    ask(scenario)


@pytest.mark.parametrize("closes", [True, False])
def test_an_answer_too_large_for_a_frame_is_asked_for_in_parts(closes):
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.closes_when_large = closes
        for number in range(20):
            broker.store("T", b"%02d" % number * 500_000, keys="k", queue_id=number % 4)
        answer = await admin.query_message("T", "k")
        assert [body[:2] for body in bodies(answer)] == [b"%02d" % n for n in range(20)]
        assert answer.complete

    ask(scenario, timeout_s=10)


def test_hash_twins_are_told_apart():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        assert index_hash("T#Aa") == index_hash("T#BB")
        broker.store("T", b"mine", keys="Aa", unique_key="X-Aa")
        broker.store("T", b"twin", keys="BB", unique_key="X-BB")
        assert bodies(await admin.query_message("T", "Aa")) == [b"mine"]
        assert bodies(await admin.query_message_by_unique_key("T", "X-BB")) == [b"twin"]

    ask(scenario)


def test_a_damaged_record_costs_one_record_and_is_reported():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        stored = [broker.store("T", b"body-%d" % n, keys="k") for n in range(3)]
        damage_body(broker, stored[1])
        answer = await admin.query_message("T", "k")
        assert bodies(answer) == [b"body-0", b"body-2"]
        assert not answer.complete
        assert "checksum" in answer.failures[0].error
        with pytest.raises(AnswerIncomplete):
            await admin.view_message(stored[1].offset_msg_id)

    ask(scenario)


def test_what_a_broker_could_not_search_makes_an_answer_incomplete():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.store("T", b"found", keys="k")
        broker.more_fields = {"notSearched": "segment 7 cannot be read"}
        answer = await admin.query_message("T", "k")
        assert bodies(answer) == [b"found"]
        assert not answer.complete
        assert [failure.error for failure in answer.failures] == ["segment 7 cannot be read"]

    ask(scenario)


def test_of_several_records_with_one_unique_key_the_oldest_is_shown():
    async def scenario(cluster, admin):
        cluster.masters[1].store("T", b"first", unique_key="U")
        cluster.masters[0].now_ms += 10
        cluster.masters[0].store("T", b"again", unique_key="U")
        assert (await admin.view_message("T", "U")).body == b"first"
        assert bodies(await admin.query_message_by_unique_key("T", "U")) == [b"first", b"again"]
        with pytest.raises(MessageNotFound):
            await admin.view_message("T", "V")

    ask(scenario, masters=2)


def test_the_oldest_is_shown_also_of_more_than_a_broker_returns_at_once():
    async def scenario(cluster, admin):
        broker = cluster.masters[0]
        broker.step_ms = 130
        for number in range(100):
            broker.store("T", b"%d" % number, unique_key="U", queue_id=number % 4)
        assert (await admin.view_message("T", "U")).body == b"0"

    ask(scenario, timeout_s=5)


def test_queues_are_asked_for_their_offsets():
    async def scenario(cluster, admin):
        for number in range(3):
            cluster.masters[0].store("T", b"%d" % number, queue_id=2)
        queues = await admin.message_queues("T")
        assert [(each.broker_name, each.queue_id) for each in queues] == [
            ("broker-a", number) for number in range(4)
        ]
        assert await admin.min_offset(queues[2]) == 0
        assert await admin.max_offset(queues[2]) == 3
        assert await admin.search_offset(queues[2], T0 + 2) == 1
        assert await admin.earliest_message_store_time(queues[2]) == T0 + 1
        assert await admin.earliest_message_store_time(queues[0]) == -1
        cluster.masters[0].err(ResponseCode.NO_PERMISSION, "not\nyou")
        with pytest.raises(BrokerError, match="not you") as refused:
            await admin.min_offset(queues[0])
        assert (refused.value.code, refused.value.address) == (16, cluster.masters[0].address)
        with pytest.raises(TopicNotFound):
            await admin.min_offset(MessageQueue("T", "broker-z", 0))

    ask(scenario)


def test_a_topic_is_made_on_all_masters_or_says_where_not():
    async def scenario(cluster, admin):
        await admin.create_topic("New", 5)
        for broker in cluster.masters:
            ((code, header),) = broker.asked
            assert code == RequestCode.UPDATE_AND_CREATE_TOPIC
            assert (header.topic, header.read_queue_nums, header.perm) == ("New", 5, 6)
        cluster.masters[1].err(ResponseCode.NO_PERMISSION, "no")
        with pytest.raises(BrokerError) as refused:
            await admin.create_topic("New")
        assert any("made" in note for note in refused.value.__notes__)
        for bad in ("../../x", "", "a b", "x" * 128):
            with pytest.raises(MessageIllegal):
                await admin.create_topic(bad)
        with pytest.raises(BadInput, match="no broker"):
            await admin.create_topic("New", cluster_name="elsewhere")

    ask(scenario, masters=2)


@pytest.mark.parametrize("how", FAILURES)
def test_the_next_name_server_is_asked_when_one_fails(how):
    async def scenario(cluster, admin):
        cluster.masters[0].store("T", b"m", keys="k")
        await fail(cluster.name_servers[0], how)
        assert bodies(await admin.query_message("T", "k")) == [b"m"]
        await admin.create_topic("New")
        asked = len(cluster.name_servers[0].asked)
        await admin.create_topic("New")
        assert len(cluster.name_servers[0].asked) == asked, "the one that answered stays first"

    ask(scenario, name_servers=2)


def test_a_topic_that_no_name_server_knows_is_not_an_empty_answer():
    async def scenario(cluster, admin):
        with pytest.raises(TopicNotFound, match="Nowhere"):
            await admin.query_message("Nowhere", "k")
        await fail(cluster.name_servers[0], "dead")
        with pytest.raises(RemotingError):
            await admin.query_message("T", "k")

    ask(scenario)


def test_a_route_is_asked_for_again_after_30_s_and_kept_while_no_name_server_answers():
    now = [0.0]

    async def scenario(cluster, admin):
        server, broker = cluster.name_servers[0], cluster.masters[0]
        broker.store("T", b"m", keys="k")
        for _ in range(3):
            await admin.query_message("T", "k")
        assert len(server.asked) == 1
        now[0] = 30.0
        await admin.query_message("T", "k")
        assert len(server.asked) == 2
        await fail(server, "dead")
        now[0] = 61.0
        assert bodies(await admin.query_message("T", "k")) == [b"m"]

    ask(scenario, clock=lambda: now[0])


def test_questions_that_make_no_sense_are_refused():
    async def scenario(cluster, admin):
        for bad in (("T", ""), ("T", "k" * 40_000), ("T", "k", -1), ("T", "k", 1, -5)):
            with pytest.raises(BadInput):
                await admin.query_message(*bad)
        with pytest.raises(BadInput):
            await admin.view_message("not an id")

    ask(scenario)


def test_a_namespace_is_put_before_topics():
    async def scenario(cluster, admin):
        cluster.name_servers[0].topics["ns%T"] = ["broker-a"]
        cluster.masters[0].store("ns%T", b"m", keys="k")
        assert bodies(await admin.query_message("T", "k")) == [b"m"]
        assert (await admin.message_queues("T"))[0].topic == "T"

    ask(scenario, namespace="ns")


def test_a_signed_question_leaves_out_the_flag_that_releases_verify_differently(monkeypatch):
    asked = []

    async def call(_, address, code, ext_fields, body, *, timeout_s):
        asked.append(ext_fields)
        raise ConnectionLost(address, "enough was seen")

    monkeypatch.setattr(ClientPool, "call", call)

    async def ask(credentials):
        cluster = ClusterCalls("127.0.0.1:9876", credentials=credentials)
        header = QueryMessageRequest(
            topic="T",
            key="k",
            max_num=1,
            begin_timestamp_ms=0,
            end_timestamp_ms=1,
            is_unique_key=True,
        )
        with pytest.raises(ConnectionLost):
            await cluster.call("127.0.0.1:9876", QUERY_MESSAGE, header)
        await cluster.close()

    asyncio.run(ask(None))
    asyncio.run(ask(Credentials("reader", "secret")))
    plain, signed = asked
    assert plain.pop("_UNIQUE_KEY_QUERY") == "true"
    assert plain.items() < signed.items()
    assert set(signed) - set(plain) == {"AccessKey", "Signature"}
    assert acl.verify(signed, b"", "secret")


@pytest.mark.parametrize(
    "question",
    [
        lambda admin: admin.query_message("T", 42),
        lambda admin: admin.query_message(42, "k"),
        lambda admin: admin.query_message("T", "k", max_num="5"),
        lambda admin: admin.query_message("T", "k", begin=1_790_000_000.0),
        lambda admin: admin.query_message_by_unique_key("T", b"k"),
        lambda admin: admin.view_message(42),
        lambda admin: admin.view_message("T", 42),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_before_anybody_is_asked(question):
    async def scenario(_, admin):
        CONNECTS.clear()
        with pytest.raises(WrongType, match=r"(key|topic|max_num|begin|unique_key|msg_id) must be"):
            await question(admin)
        assert CONNECTS == []

    ask(scenario)


def test_a_client_is_refused_in_a_second_event_loop_and_what_to_do_is_said():
    clients = []

    async def first():
        async with running(1, 0, 1) as cluster:
            clients.append(MQAdmin(cluster.given))
            await clients[0].query_message("T", "k")

    async def second():
        with pytest.raises(WrongUse, match=r"another event loop.*SyncMQAdmin"):
            await clients[0].query_message("T", "k")

    asyncio.run(first())
    asyncio.run(second())
