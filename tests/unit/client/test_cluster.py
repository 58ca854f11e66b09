"""Name servers, masters and slaves: who is asked next when one fails, and how calls are signed."""

import asyncio

import pytest

from rocketlens.client.admin import MQAdmin
from rocketlens.client.cluster import ClusterCalls, Credentials
from rocketlens.client.route import MessageQueue
from rocketlens.errors import AnswerIncomplete, ConnectionLost, WrongUse
from rocketlens.model.answer import SourceState
from rocketlens.net.pool import ClientPool
from rocketlens.wire import acl
from rocketlens.wire.commands.query import QUERY_MESSAGE, QueryMessageRequest
from tests.support.fake_cluster import FAILURES, ask, bodies, fail, running
from tests.support.patience import SILENCE_S


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

    ask(scenario, slaves=1, timeout_s=SILENCE_S)


def test_the_master_is_asked_and_its_slave_left_alone():
    async def scenario(cluster, admin):
        cluster.masters[0].store("T", b"m", keys="k")
        assert bodies(await admin.query_message("T", "k")) == [b"m"]
        assert cluster.slaves[0].asked == []

    ask(scenario, slaves=1)


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

    ask(scenario, name_servers=2, timeout_s=SILENCE_S)


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
