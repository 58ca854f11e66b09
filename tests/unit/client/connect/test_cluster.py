"""A client's connection: its settings, names in a namespace, routes, and who is asked next."""

import asyncio
import inspect
from contextlib import asynccontextmanager

import pytest

import rocketlens
from rocketlens.client.connect.cluster import ClusterCalls, Credentials, name_server_addresses
from rocketlens.client.connect.connection_settings import ConnectionSettings, takes_settings
from rocketlens.client.connect.namespace import with_namespace, without_namespace
from rocketlens.client.connect.route import MessageQueue, Route, is_address_of, set_order
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.errors import AnswerIncomplete, BadInput, CommandBodyError, ConnectionLost, WrongUse
from rocketlens.model.answer import SourceState
from rocketlens.model.message import Host
from rocketlens.net.pool import ClientPool
from rocketlens.wire import acl
from rocketlens.wire.bodies.tables import BrokerData, QueueData, TopicRouteData
from rocketlens.wire.commands.messages import QUERY_MESSAGE, QueryMessageRequest
from tests.support.fake_cluster import FAILURES, T0, FakeBroker, bodies, fail, running
from tests.support.patience import SILENCE_S


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.cluster(slaves=1, timeout_s=SILENCE_S)
async def test_a_slave_answers_for_a_master_that_is_gone_and_the_answer_is_incomplete(
    cluster, admin, how
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
@pytest.mark.cluster(slaves=1)
async def test_every_search_comes_to_the_only_slave_that_is_left_and_is_incomplete(
    cluster, admin, question, registered
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


@pytest.mark.cluster(slaves=1)
async def test_single_messages_offsets_and_tails_are_read_from_the_only_slave_that_is_left(
    cluster, admin
):
    async with second_slave(cluster, (0, 1)) as slave:
        assert (await admin.view_message(slave.id_at(0))).body == b"copy"
        assert (await admin.view_message("T", "U")).body == b"copy"
        queue = MessageQueue("T", "broker-a", 0)
        assert (await admin.min_offset(queue), await admin.max_offset(queue)) == (0, 1)
        async with admin.tail("T") as tailed:
            assert [each.body async for each in tailed] == [b"copy"]
            assert not tailed.complete


@pytest.mark.cluster(slaves=1)
async def test_the_master_is_asked_and_its_slave_left_alone(cluster, admin):
    cluster.masters[0].store("T", b"m", keys="k")
    assert bodies(await admin.query_message("T", "k")) == [b"m"]
    assert cluster.slaves[0].asked == []


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.cluster(name_servers=2, timeout_s=SILENCE_S)
async def test_the_next_name_server_is_asked_when_one_fails(cluster, admin, how):
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


@pytest.mark.cluster(namespace="ns")
async def test_a_namespace_is_put_before_topics(cluster, admin):
    cluster.name_servers[0].topics["ns%T"] = ["broker-a"]
    cluster.masters[0].store("ns%T", b"m", keys="k")
    assert bodies(await admin.query_message("T", "k")) == [b"m"]
    assert (await admin.message_queues("T"))[0].topic == "T"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("T", "ns%T"),
        ("ns%T", "ns%T"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%ns%g", "%DLQ%ns%g"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("TBW102", "TBW102"),
        ("CHECKPOINT_TOPIC", "CHECKPOINT_TOPIC"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("RMQ_SYS_ORDERS", "ns%RMQ_SYS_ORDERS"),
    ],
)
def test_brokers_know_names_with_their_namespace(name, known):
    assert with_namespace("ns", name) == known
    assert without_namespace("ns", known) == name.replace("ns%", "")
    assert with_namespace("", name) == without_namespace("", name) == name


def received(*counts, perm=6, order=None, addresses=None):
    names = [f"b{number}" for number in range(len(counts))]
    return TopicRouteData(
        queue_datas=tuple(
            QueueData(broker_name=name, read_queue_nums=n, write_queue_nums=n, perm=perm)
            for name, n in reversed(list(zip(names, counts, strict=True)))
        ),
        broker_datas=tuple(
            BrokerData(broker_name=name, broker_addrs=addresses or {0: f"{name}:1", 2: "s:2"})
            for name in names
        ),
        order_topic_conf=order,
    )


def test_queues_are_in_the_order_of_broker_and_number():
    route = Route.of("T", received(2, 1))
    assert [str(queue) for queue in route.write_queues] == [
        "MessageQueue [topic=T, brokerName=b0, queueId=0]",
        "MessageQueue [topic=T, brokerName=b0, queueId=1]",
        "MessageQueue [topic=T, brokerName=b1, queueId=0]",
    ]
    assert route.read_queues == route.write_queues
    assert route.brokers["b0"].in_order == ("b0:1", "s:2")


def test_permissions_decide_what_is_read_and_written():
    assert Route.of("T", received(1, perm=4)).write_queues == ()
    assert Route.of("T", received(1, perm=2)).read_queues == ()
    assert Route.of("T", received(1, addresses={1: "s:1"})).write_queues == ()


def test_an_ordered_topic_has_the_queues_of_its_configuration():
    route = Route.of("T", received(1, 1, order="b1:2;b0:1"))
    assert [(q.broker_name, q.queue_id) for q in route.write_queues] == [
        ("b1", 0),
        ("b1", 1),
        ("b0", 0),
    ]
    with pytest.raises(CommandBodyError):
        Route.of("T", received(1, order="b0:many"))


def test_a_route_with_absurdly_many_queues_is_refused():
    with pytest.raises(CommandBodyError, match="2147483647"):
        Route.of("T", received(2**31 - 1))


def test_queues_are_in_the_order_of_javas_maps():
    """As the real tool printed them: a set of four, and the same copied into a smaller table."""
    queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
    assert [each.queue_id for each in set_order(queues)] == [2, 1, 3, 0]
    assert [each.queue_id for each in set_order(queues, is_copied=True)] == [0, 2, 1, 3]


@pytest.mark.parametrize(
    ("address", "host", "same"),
    [
        ("10.0.0.1:10911", Host("10.0.0.1", 10911), True),
        ("10.0.0.1:10912", Host("10.0.0.1", 10911), False),
        ("[fd00:0:0:0:0:0:0:2]:10911", Host("fd00::2", 10911), True),
        ("fd00::2:10911", Host("fd00::2", 10911), True),
        ("broker.example:10911", Host("10.0.0.1", 10911), False),
        ("", Host("10.0.0.1", 10911), False),
    ],
)
def test_addresses_are_compared_by_what_they_mean(address, host, same):
    assert is_address_of(address, host) is same


class Reader:
    @takes_settings(ConnectionSettings)
    def __init__(self, settings):
        self.settings = settings


class Heir(Reader):
    """Has the arguments of `Reader`."""


def test_a_client_gets_its_settings_as_one_object():
    settings = Reader("a:1", namespace="n").settings
    assert (settings.name_servers, settings.namespace) == ("a:1", "n")
    assert settings == ConnectionSettings("a:1", namespace="n")
    with pytest.raises(AttributeError):
        settings.namespace = "other"


@pytest.mark.parametrize("client", [Reader, Heir])
@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((), {"tsl": None}, "has no argument 'tsl'; did you mean tls?"),
        (("a:1", "n"), {}, "too many positional arguments"),
        (("a:1",), {"name_servers": "a:1"}, "multiple values for argument 'name_servers'"),
    ],
)
def test_a_wrong_argument_is_refused_under_the_name_of_the_client(client, arguments, options, text):
    with pytest.raises(TypeError) as caught:
        client(*arguments, **options)
    assert str(caught.value).startswith(f"{client.__name__}()")
    assert text in str(caught.value)


@pytest.mark.parametrize("client", [rocketlens.PushConsumer, rocketlens.LitePullConsumer])
def test_a_missing_argument_is_refused_under_the_name_of_the_client(client):
    with pytest.raises(TypeError, match=rf"^{client.__name__}\(\).*'group'"):
        client("a:1")


def test_help_shows_each_argument_with_its_default():
    shown = inspect.signature(Reader).parameters
    assert list(shown) == list(inspect.signature(ConnectionSettings).parameters)
    assert shown["timeout_s"].default == ConnectionSettings().timeout_s
    assert shown["name_servers"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {each.kind for each in list(shown.values())[1:]} == {inspect.Parameter.KEYWORD_ONLY}
