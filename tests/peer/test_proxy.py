"""Our clients through the remoting port of a real proxy, which has one address for all brokers,
and clients of its gRPC port.
"""

import asyncio
import re
import time

import pytest

from rocketlens import (
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MQAdmin,
    Producer,
    TransactionProducer,
)
from rocketlens.errors import BrokerError, ConnectionLost, SendFailed
from rocketlens.model.rocketmq import HEARTBEAT_TOPIC, is_system_group
from rocketlens.wire.bodies.clients import LockBatchRequest, LockBatchResponse
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.commands.groups import LOCK_BATCH_MQ
from rocketlens.wire.declare import NoFields, read_body, write_body
from tests.peer.foreign_client import build_grpc
from tests.peer.real_proxy import VERSION, cluster_proxy, local_proxy
from tests.peer.rocketmq_peer import POLL_SECONDS, free_ports
from tests.support.cutting_relay import CuttingRelay
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume.behaviour import Collecting, push, until

COUNT = 8
SETTINGS = {
    "recallMessageEnable": True,
    "registerNameServerPeriod": 10_000,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}


@pytest.fixture(scope="module")
def proxy(peer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("proxy")
    with (
        peer.start(VERSION, directory / "broker", **SETTINGS) as broker,
        cluster_proxy(peer, directory / "proxy", broker.namesrv_address) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def alone(peer, tmp_path_factory):
    """A proxy in local mode: its broker is in its own process."""
    with local_proxy(peer, tmp_path_factory.mktemp("local")) as running:
        yield running


@pytest.fixture(scope="module")
def grpc(tmp_path_factory):
    return build_grpc(tmp_path_factory.mktemp("grpc"))


def create(peer, proxy, topic, kind):
    """Create a topic of one type of messages, which proxies check."""
    options = ("-c", "DefaultCluster", "-t", topic, "-r", "4", "-w", "4")
    attributes = ("-a", f"+message.type={kind}")
    peer.mqadmin(VERSION, "updateTopic", *options, *attributes, "-n", proxy.namesrv_address)


async def sent(proxy, topic):
    """Create a topic at its broker, and send numbered messages through the proxy."""
    async with (
        MQAdmin(proxy.namesrv_address) as admin,
        Producer(proxy.remoting_address, send_timeout_s=PATIENCE_S) as producer,
    ):
        await admin.create_topic(topic, 4)
        return [
            await producer.send(Message(topic, str(number), keys=f"{topic}-{number}"))
            for number in range(COUNT)
        ]


async def told(admin, text, is_told):
    """Wait until the story of a message tells something; return it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            story = await admin.story(text)
            if is_told(story):
                return story
            await asyncio.sleep(POLL_SECONDS)


def words_of(story):
    return "; ".join(each.text for each in story.events)


async def test_a_push_consumer_gets_every_message_and_the_proxy_knows_it(proxy):
    await sent(proxy, "Pushed")
    listener = Collecting()
    async with push(proxy.remoting_address, "Pushed", listener):
        await until(lambda: listener.numbers == set(range(COUNT)))
        async with MQAdmin(proxy.namesrv_address) as admin:
            known = await admin.examine_consumer_connection_info("g_Pushed", proxy.remoting_address)
    assert len(known.connections) == 1


async def test_a_lite_pull_consumer_gets_every_message(proxy):
    await sent(proxy, "Pulled")
    numbers = set()
    consumer = LitePullConsumer(proxy.remoting_address, group="g_pulled", begin="first")
    consumer.subscribe("Pulled")
    async with consumer, asyncio.timeout(PATIENCE_S):
        while len(numbers) < COUNT:
            numbers |= {int(each.body) for each in await consumer.poll()}


async def test_searches_that_pull_find_every_message(proxy):
    results = await sent(proxy, "Searched")
    queue, offset = results[0].message_queue, results[0].queue_offset
    async with MQAdmin(proxy.remoting_address) as admin:
        for options in ({"begin": 1}, {"grep": "[0-7]"}, {"max_num": 100}):
            found = await admin.find(topic="Searched", **options)
            assert sorted(each.body for each in found) == [b"%d" % n for n in range(COUNT)], options
        (message,) = await admin.find(f"Searched/{queue.queue_id}/{offset}")
    assert message.body == b"0"


async def test_what_a_proxy_does_not_pass_on_is_said_in_those_words(proxy):
    await sent(proxy, "Refused")
    async with MQAdmin(proxy.remoting_address) as admin:
        for ask in (admin.topics, admin.groups, admin.status):
            with pytest.raises(BrokerError, match="this is a RocketMQ proxy"):
                await ask()
        found = await admin.find("Refused-1", topic="Refused")
    assert not found.complete
    assert any("this is a RocketMQ proxy" in (each.error or "") for each in found.coverage)


async def test_members_behind_a_proxy_are_not_counted_as_none(proxy):
    await sent(proxy, "Counted")
    listener = Collecting()
    async with push(proxy.remoting_address, "Counted", listener):
        await until(lambda: listener.numbers == set(range(COUNT)))
        async with MQAdmin(proxy.namesrv_address) as admin:
            answer = await admin.groups("g_Counted")
    (group,) = answer.groups
    assert group.members is None or len(group.members) == 1
    assert group.members or any("a proxy is in use" in (e.note or "") for e in answer.coverage)


async def test_what_a_proxy_makes_for_itself_is_no_topic_and_no_group_of_users(proxy):
    await sent(proxy, "Own")
    listener = Collecting()
    async with (
        push(proxy.remoting_address, "Own", listener),
        MQAdmin(proxy.namesrv_address) as admin,
    ):
        await until(lambda: listener.numbers == set(range(COUNT)))
        groups, topics = await admin.groups(), await admin.topics()
        listed = (await admin.source.topology.topics()).value
        status = await admin.status()
    assert HEARTBEAT_TOPIC in listed
    # What its brokers were made to know of it: a group of its own, with a retry topic.
    assert any("CID_" + HEARTBEAT_TOPIC in name for name in listed)
    assert [each.name for each in groups if each.name.startswith(("CID_", "broadcast"))] == []
    kinds = {each.name: each.kind for each in topics if HEARTBEAT_TOPIC in each.name}
    assert kinds.pop(HEARTBEAT_TOPIC) == "system"
    assert set(kinds.values()) <= {"retry"}
    assert all(not is_system_group(each.name) for each in status.groups)


async def test_what_a_consumer_fails_comes_again_through_a_proxy(proxy):
    async with MQAdmin(proxy.namesrv_address) as admin:
        # Otherwise the proxy learns of the topic after half a minute: it keeps its routes.
        await admin.create_topic("%RETRY%g_Failed", 1)
        await sent(proxy, "Failed")
        listener = Collecting(lambda each: each.body == b"3" and not each.reconsume_times)
        async with push(proxy.remoting_address, "Failed", listener):
            await until(lambda: listener.numbers == set(range(COUNT)))
        story = await admin.story("Failed-3")
    assert [each.body for each in listener.failed] == [b"3"]
    assert [(each.group, each.retries) for each in story.groups] == [("g_Failed", 1)]


async def test_an_orderly_consumer_locks_its_queues_through_a_proxy(proxy):
    await sent(proxy, "Ordered")
    listener = Collecting()
    async with push(proxy.remoting_address, "Ordered", listener, orderly=True):
        await until(lambda: listener.numbers == set(range(COUNT)))
        # The broker refuses others, whoever asks.
        async with MQAdmin(proxy.namesrv_address) as admin:
            route = (await admin.source.topology.route("Ordered")).value
            queues = tuple(route.read_queues)
            asked = LockBatchRequest(consumer_group="g_Ordered", client_id="x", queues=queues)
            address = route.brokers["broker-a"].master
            answer = await admin._cluster.ask(address, LOCK_BATCH_MQ, NoFields(), write_body(asked))
    assert len(queues) == 4
    assert read_body(LockBatchResponse, answer.body).locked_queues == ()


async def test_a_message_is_recalled_through_a_proxy(peer, proxy):
    create(peer, proxy, "Recalled", "DELAY")
    async with Producer(proxy.remoting_address) as producer:
        due_ms = int(time.time() * 1000) + 1_800_000
        result = await producer.send(Message("Recalled", "x", keys="late-1", deliver_at=due_ms))
        assert await producer.recall("Recalled", result.recall_handle) == result.msg_id
    async with MQAdmin(proxy.namesrv_address) as admin:
        story = await admin.story("late-1")
    assert "recalled" in [each.kind.value for each in story.events]


@pytest.mark.parametrize("where", ["request", "answer", "half"])
async def test_a_proxy_that_closes_the_connection_loses_nothing(proxy, where):
    topic = f"Cut_{where}"
    await sent(proxy, topic)
    async with (
        CuttingRelay(proxy.remoting_address, free_ports()) as relay,
        MQAdmin(relay.address) as admin,
        Producer(relay.address, send_timeout_s=PATIENCE_S) as producer,
        MQAdmin(proxy.namesrv_address) as direct,
    ):
        for code in (
            RequestCode.PULL_MESSAGE,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            RequestCode.GET_MAX_OFFSET,
        ):
            relay.cuts[code] = [where]
            found = await admin.find(topic=topic, begin=1)
            assert any("was closed by the other end" in (e.error or "") for e in found.coverage)
            assert not found.complete
        relay.cuts[RequestCode.GET_ROUTEINFO_BY_TOPIC] = [where]
        with pytest.raises(ConnectionLost, match="was closed by the other end"):
            await producer.send(Message(topic, "99"))
        relay.cuts[RequestCode.SEND_MESSAGE_V2] = [where]
        result = await producer.send(Message(topic, "99", keys=topic))
        copies = await direct.find(topic, topic)
        assert {each.msg_id for each in copies} == {result.msg_id}
        assert len(copies.messages) == (1 if where == "request" else 2)
        listener = Collecting()
        relay.cuts[RequestCode.PULL_MESSAGE] = [where] * 3
        async with push(relay.address, topic, listener):
            await until(lambda: listener.numbers == {*range(COUNT), 99})
    assert relay.cut[RequestCode.PULL_MESSAGE] == 4


async def test_what_clients_of_the_grpc_port_send_is_found(peer, proxy, grpc):
    create(peer, proxy, "Grpc", "NORMAL")
    create(peer, proxy, "GrpcLate", "DELAY")
    ways = (("Grpc", COUNT, "sync"), ("GrpcLate", 1, "delayed"))
    rows, _ = await asyncio.gather(
        *(asyncio.to_thread(grpc.send, proxy.grpc_address, *each) for each in ways)
    )
    async with MQAdmin(proxy.namesrv_address) as admin:
        for number, _, msg_id, *_ in rows:
            for text in (msg_id, f"Grpc-{number}"):
                (message,) = await admin.find(text)
                assert (message.body, message.tags) == (number.encode(), "AB"[int(number) % 2])
        found = await admin.find(topic="Grpc", begin=1)
        late = await admin.story("GrpcLate-0")
    assert ({each.msg_id for each in found}, found.complete) == ({row[2] for row in rows}, True)
    sender, delay = late.events[:2]
    # gRPC clients have no producer group.
    assert re.fullmatch(r"sent from \S+ through proxy \S+", sender.text)
    assert delay.kind.value == "delayed"


async def test_a_consumer_of_the_grpc_port_is_told_like_others(peer, proxy, grpc):
    create(peer, proxy, "GrpcFailed", "NORMAL")
    async with MQAdmin(proxy.namesrv_address) as admin:
        async with Producer(proxy.remoting_address, send_timeout_s=PATIENCE_S) as producer:
            sent = await producer.send(Message("GrpcFailed", "3", keys="once-more"))
        with grpc.consume(proxy.grpc_address, "g_grpc", "GrpcFailed", refused="3") as member:
            await until(lambda: member.has_ended or member.numbers == [3])
            (group,) = (answer := await admin.groups("g_grpc")).groups
            assert group.members is None
            assert any("a proxy is in use" in (each.note or "") for each in answer.coverage)
            with pytest.raises(BrokerError, match="members of a proxy are not known to brokers"):
                await admin.consume_message_directly("g_grpc", None, "GrpcFailed", sent.msg_id)
            known = await admin.examine_consumer_connection_info("g_grpc", proxy.remoting_address)
            assert [each.language for each in known.connections] == ["PYTHON"]
            # A broker tells name servers of the topic of a retry some seconds later.
            story = await told(admin, "once-more", lambda each: each.groups[0].retries)
    assert [words[1] for words in member.words("got")] == ["1"]
    assert [(each.group, each.retries) for each in story.groups] == [("g_grpc", 1)]
    assert "members of a proxy" in " ".join(each.why for each in story.unlearnt)
    assert [each.state.value for each in story.groups] == ["consumed"]
    assert "retry 1 of group g_grpc stored as" in words_of(story)
    assert "POP handed GrpcFailed/" in words_of(story)


async def test_a_proxy_in_local_mode_passes_on_nothing_from_its_remoting_port(peer, alone, grpc):
    options = ("-c", "DefaultCluster", "-g", "g_local", "-n", alone.namesrv_address)
    peer.mqadmin(VERSION, "updateSubGroup", *options)
    async with MQAdmin(alone.namesrv_address) as admin:
        await admin.create_topic("Local", 4)
        async with MQAdmin(alone.remoting_address) as of_proxy:
            found = await of_proxy.find(topic="Local", begin=1)
        assert "the gRPC port of a RocketMQ proxy" in found.coverage[0].error
        assert not found.complete
        async with Producer(alone.remoting_address) as producer:
            with pytest.raises(SendFailed, match="the gRPC port of a RocketMQ proxy"):
                await producer.send(Message("Local", "x"))
        # Its broker has a port, too, which knows the clients of the proxy.
        async with Producer(alone.namesrv_address, send_timeout_s=PATIENCE_S) as producer:
            await producer.send(Message("Local", "9"))
        with grpc.consume(alone.grpc_address, "g_local", "Local") as member:
            await asyncio.to_thread(grpc.send, alone.grpc_address, "Local", COUNT)
            await until(lambda: member.has_ended or set(member.numbers) == {*range(COUNT), 9})
            (group,) = (await admin.groups("g_local")).groups
            story = await admin.story("Local-0")
    assert [each.language for each in group.members] == ["PYTHON"]
    assert [(each.group, each.state.value) for each in story.groups] == [("g_local", "consumed")]


async def test_a_proxy_ends_transactions_when_its_broker_checks_them(peer, proxy, caplog):
    create(peer, proxy, "Transacted", "TRANSACTION")
    checked = []

    async def check(message):
        checked.append(message.body)
        is_kept = message.body == b"kept"
        return LocalTransactionState.COMMIT if is_kept else LocalTransactionState.ROLLBACK

    async with (
        MQAdmin(proxy.namesrv_address) as admin,
        TransactionProducer(proxy.remoting_address, group="tp", check=check) as producer,
    ):
        for state in (LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK):
            body = "kept" if state is LocalTransactionState.COMMIT else "dropped"
            message = Message("Transacted", body, keys=body)
            await producer.send_in_transaction(message, lambda _, state=state: state)
        for body, end in (("kept", "committed"), ("dropped", "rolled back")):
            await told(admin, body, lambda each, end=end: f"transaction {end}" in words_of(each))
    assert set(checked) == {b"dropped", b"kept"}
    (warning,) = [each for each in caplog.messages if "is a RocketMQ proxy" in each]
    assert "forwards the end of a transaction only after" in warning
