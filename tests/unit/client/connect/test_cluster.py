"""Name servers, masters and slaves: who is asked next when one fails, and how calls are signed."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from rocketlens.client.connect.cluster import ClusterCalls, Credentials, name_server_addresses
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.errors import AnswerIncomplete, BadInput, ConnectionLost, WrongUse
from rocketlens.model.answer import SourceState
from rocketlens.net.pool import ClientPool
from rocketlens.wire import acl
from rocketlens.wire.commands.messages import QUERY_MESSAGE, QueryMessageRequest
from tests.support.async_tests import within
from tests.support.fake_cluster import FAILURES, T0, FakeBroker, ask, bodies, fail, running
from tests.support.patience import SILENCE_S


@pytest.mark.parametrize("how", FAILURES)
@within(ask, slaves=1, timeout_s=SILENCE_S)
async def test_a_slave_answers_for_a_master_that_is_gone_and_the_answer_is_incomplete(
    cluster, admin, /, how
):
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
    assert ("; a broker is expected there: check" in covered.error) == (how == "dead")
    assert await admin.max_offset(MessageQueue("T", "broker-a", 0)) == 1


@asynccontextmanager
async def second_slave(cluster, registered):
    """A slave with broker id 2 that has a message; of master and first slave, both are gone."""
    slave = FakeBroker("broker-a")
    await slave.start()
    slave.store("T", b"copy", keys="k", unique_key="U")
    others = {0: cluster.masters[0], 1: cluster.slaves[0]}
    for broker in others.values():
        await broker.die()
    brokers = {number: broker for number, broker in others.items() if number in registered}
    cluster.name_servers[0].brokers["broker-a"] = brokers | {2: slave}
    try:
        yield slave
    finally:
        await slave.server.stop(grace_s=0)


@pytest.mark.parametrize("registered", [(), (0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize(
    "question",
    [
        {"text": "k", "topic": "T"},
        {"text": "k"},
        {"text": "U", "topic": "T", "kind": "unique-key"},
        {"text": "T/0/0", "kind": "queue-offset"},
        {"text": None, "kind": "offset-id"},
        {"topic": "T"},
        {"topic": "T", "begin": T0, "exhaustive": True},
    ],
    ids=str,
)
@within(ask, slaves=1)
async def test_every_search_comes_to_the_only_slave_that_is_left_and_is_incomplete(
    cluster, admin, /, question, registered
):
    async with second_slave(cluster, registered) as slave:
        text = slave.id_at(0) if question.get("kind") == "offset-id" else question.get("text")
        answer = await admin.find(**question | {"text": text})
        assert bodies(answer) == [b"copy"]
        assert not answer.complete
        (failed,) = [each for each in answer.failures if each.source != "broker-a"]
        assert failed.source == f"broker-a ({slave.address})"
        assert f"its slave {slave.address} answered, which may lack the newest" in failed.error
        assert ("its master is not registered" in failed.error) == (0 not in registered)
        assert (cluster.masters[0].address in failed.error) == (0 in registered)
        assert (cluster.slaves[0].address in failed.error) == (1 in registered)


@within(ask, slaves=1)
async def test_single_messages_offsets_and_tails_are_read_from_the_only_slave_that_is_left(
    cluster, admin, /
):
    async with second_slave(cluster, (0, 1)) as slave:
        assert (await admin.view_message(slave.id_at(0))).body == b"copy"
        assert (await admin.view_message("T", "U")).body == b"copy"
        queue = MessageQueue("T", "broker-a", 0)
        assert (await admin.min_offset(queue), await admin.max_offset(queue)) == (0, 1)
        async with admin.tail("T") as tailed:
            assert [each.body async for each in tailed] == [b"copy"]
            assert not tailed.complete


@within(ask, slaves=1)
async def test_the_master_is_asked_and_its_slave_left_alone(cluster, admin, /):
    cluster.masters[0].store("T", b"m", keys="k")
    assert bodies(await admin.query_message("T", "k")) == [b"m"]
    assert cluster.slaves[0].asked == []


@pytest.mark.parametrize("how", FAILURES)
@within(ask, name_servers=2, timeout_s=SILENCE_S)
async def test_the_next_name_server_is_asked_when_one_fails(cluster, admin, /, how):
    cluster.masters[0].store("T", b"m", keys="k")
    await fail(cluster.name_servers[0], how)
    assert bodies(await admin.query_message("T", "k")) == [b"m"]
    await admin.create_topic("New")
    asked = len(cluster.name_servers[0].asked)
    await admin.create_topic("New")
    assert len(cluster.name_servers[0].asked) == asked, "the one that answered stays first"


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


def test_several_name_servers_are_read_in_any_usual_form():
    assert name_server_addresses("a:1; b:2;;http://c:3,a:1") == ("a:1", "b:2", "c:3")
    assert name_server_addresses(["a:1", "b:2"]) == ("a:1", "b:2")
    with pytest.raises(BadInput):
        name_server_addresses("a")
