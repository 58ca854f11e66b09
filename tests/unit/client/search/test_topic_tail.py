"""A topic shown from its newest messages on: each message once, whatever happens meanwhile."""

import asyncio

import pytest

from rocketlens.client.connect import queue_puller
from rocketlens.client.connect.route import Broker, MessageQueue
from rocketlens.client.search import topic_tail
from rocketlens.client.search.topic_tail import TopicTail
from rocketlens.client.send.message import Message
from rocketlens.errors import BadAnswer, BadInput, RemotingError, RocketLensError, TopicNotFound
from rocketlens.model import properties as props
from rocketlens.model.answer import Answer
from rocketlens.model.rocketmq import TOOLS_GROUP
from rocketlens.net.server import RemotingServer
from rocketlens.query.request import tail_filter
from rocketlens.testing import cluster
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from tests.support.async_tests import within
from tests.support.fake_cluster import LOOPBACK, T0, ask, unregister
from tests.support.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Ask again soon after a failure, and look at routes often."""
    monkeypatch.setattr(queue_puller, "PULL_PAUSES_S", (0.001, 0.01))
    monkeypatch.setattr("rocketlens.client.connect.route.ROUTE_REFRESH_S", 0.01)
    monkeypatch.setattr("rocketlens.client.connect.topology.ROUTE_REFRESH_S", 0.01)
    monkeypatch.setattr("rocketlens.client.search.topic_tail.ROUTE_REFRESH_S", 0.01)
    monkeypatch.setattr("rocketlens.client.connect.cluster.ROUTE_REFRESH_S", 0.01)


async def some(tailed, count):
    """Return the bodies of the next ``count`` messages."""
    async with asyncio.timeout(PATIENCE_S):
        return [(await anext(tailed)).body for _ in range(count)]


async def all_of(tailed):
    async with asyncio.timeout(PATIENCE_S):
        return [message.body async for message in tailed]


def fill(broker, count, first=0, **options):
    for number in range(first, first + count):
        broker.store("T", b"%d" % number, queue_id=number % 4, **options)


def numbers(*given):
    return [b"%d" % number for number in range(*given)]


async def start_again(broker):
    port = int(broker.address.rpartition(":")[2])
    broker.server = RemotingServer(broker.handlers())
    broker.server.listen(LOOPBACK, port)


@within(ask)
async def test_the_newest_come_oldest_first_and_then_what_arrives(cluster, admin, /):
    fill(cluster.masters[0], 30)
    async with admin.tail("T", 5, follow=True) as tailed:
        assert await some(tailed, 5) == numbers(25, 30)
        fill(cluster.masters[0], 1, 30)
        assert await some(tailed, 1) == numbers(30, 31)
    with pytest.raises(StopAsyncIteration):
        await anext(tailed)


@within(ask, masters=2)
async def test_without_follow_it_ends_and_tells_whether_all_was_read(cluster, admin, /):
    fill(cluster.masters[0], 12)
    tailed = admin.tail("T")
    assert await all_of(tailed) == numbers(2, 12)
    assert tailed.complete
    cluster.masters[1].err(ResponseCode.NO_PERMISSION, "not you")
    tailed = admin.tail("T", 3)
    assert await all_of(tailed) == numbers(9, 12)
    assert not tailed.complete
    assert ["not you" in each.error for each in tailed.coverage if each.is_failure] == [True]


@within(ask)
async def test_all_messages_from_the_oldest_or_from_a_time(cluster, admin, /):
    fill(cluster.masters[0], 300)
    messages = await all_of(admin.tail("T", None))
    assert sorted(messages) == sorted(numbers(300))
    messages = await all_of(admin.tail("T", None, begin=T0 + 201))
    assert sorted(messages) == sorted(numbers(200, 300))
    assert await all_of(admin.tail("T", 2, begin=T0 + 300)) == numbers(299, 300)


@within(ask)
async def test_filters_are_applied_here_and_the_newest_that_match_are_looked_for(cluster, admin, /):
    fill(cluster.masters[0], 1, keys="k1 k2", more={props.TAGS: "A", "n": "1"})
    fill(cluster.masters[0], 200, 1, more={props.TAGS: "B", "n": "2"})
    assert await all_of(admin.tail("T", tags="A || C")) == [b"0"]
    assert await all_of(admin.tail("T", sql="n < 2")) == [b"0"]
    assert await all_of(admin.tail("T", key="k2")) == [b"0"]
    assert await all_of(admin.tail("T", tags="B", key="k2")) == []
    assert len(await all_of(admin.tail("T", tags="B", sql="n = 2"))) == 10


@pytest.mark.parametrize(
    "conditions", [{"tags": " || "}, {"sql": "n <"}, {"key": ""}, {"newest": -1}, {"begin": -1}]
)
@within(ask)
async def test_what_cannot_be_meant_is_refused(unused, admin, /, conditions):
    with pytest.raises(BadInput):
        admin.tail("T", **conditions)


def test_comparing_back_is_bounded_and_makes_the_tail_incomplete(monkeypatch):
    monkeypatch.setattr(topic_tail, "_MAX_LOOK_BACK", 32)
    events = []

    async def scenario(cluster, admin):
        fill(cluster.masters[0], 1, more={props.TAGS: "A"})
        fill(cluster.masters[0], 400, 1)
        tailed = admin.tail("T", tags="A", on_event=events.append)
        assert await all_of(tailed) == []
        # Nor is it said that there is none.
        assert [each.error for each in Answer("", (), tailed.coverage).failures] == events

    ask(scenario)
    assert len(events) == 4
    assert "compared only the newest" in events[0]


@within(ask, masters=2)
async def test_a_broker_that_comes_back_is_read_on_without_gap_or_repeat(cluster, admin, /):
    first, second = cluster.masters
    events = asyncio.Queue()
    fill(first, 4)
    async with admin.tail("T", 4, follow=True, on_event=events.put_nowait) as tailed:
        assert await some(tailed, 4) == numbers(4)
        await first.die()
        fill(second, 1, 100)
        assert await some(tailed, 1) == [b"100"]
        failed = await asyncio.wait_for(events.get(), PATIENCE_S)
        assert failed.startswith("broker-a: ")
        assert failed.endswith("asking again until it answers")
        unregister(cluster, "broker-a")
        fill(first, 8, 4)
        await start_again(first)
        assert sorted(await some(tailed, 8)) == sorted(numbers(4, 12))
        back = await asyncio.wait_for(events.get(), PATIENCE_S)
        assert back == "broker-a answers again: continuing where it stopped"


@within(ask, masters=2)
async def test_a_broker_that_fails_at_the_start_is_followed_from_about_the_start(cluster, admin, /):
    first, second = cluster.masters
    fill(first, 8)
    fill(second, 1, 8)
    first.err()
    async with admin.tail("T", follow=True, on_event=lambda _: None) as tailed:
        assert await some(tailed, 1) == [b"8"]
        first.fails_with = None
        first.now_ms = 2 * T0
        first.store("T", b"9", queue_id=1)
        assert await some(tailed, 1) == [b"9"]


@within(ask, masters=2)
async def test_a_new_broker_is_found(cluster, admin, /):
    (server,) = cluster.name_servers
    server.topics["T"].remove("broker-b")
    fill(cluster.masters[0], 1)
    async with admin.tail("T", follow=True) as tailed:
        assert await some(tailed, 1) == [b"0"]
        server.topics["T"].append("broker-b")
        cluster.masters[1].now_ms = 2 * T0
        cluster.masters[1].store("T", b"new", queue_id=0)
        assert await some(tailed, 1) == [b"new"]


@within(ask)
async def test_a_topic_that_is_not_there_and_name_servers_that_do_not_answer(cluster, admin, /):
    with pytest.raises(TopicNotFound):
        await all_of(admin.tail("Nothing"))
    await cluster.name_servers[0].die()
    with pytest.raises(RemotingError):
        await all_of(admin.tail("Other"))


@within(ask)
async def test_pulls_are_of_the_tools_group_and_nothing_else_is_asked(cluster, admin, /):
    fill(cluster.masters[0], 3)
    await all_of(admin.tail("T", sql="a = 1"))
    asked = cluster.masters[0].asked
    assert {code for code, _ in asked} == {
        RequestCode.PULL_MESSAGE,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
    }
    pulls = [header for code, header in asked if code == RequestCode.PULL_MESSAGE]
    assert {each.consumer_group for each in pulls} == {TOOLS_GROUP}
    assert {(each.expression_type, each.subscription) for each in pulls} == {("SQL92", "a = 1")}


def test_following_a_broker_of_ours_holds_pulls_and_leaves_nothing(tmp_path):
    with cluster(tmp_path) as rocketmq, rocketmq.producer() as producer:
        producer.send(Message("Orders", "old", tags="A"))

        async def follow():
            from rocketlens import MQAdmin

            async with (
                MQAdmin(rocketmq.name_server) as admin,
                admin.tail("Orders", follow=True, tags="A", sql="TAGS IS NOT NULL") as tailed,
            ):
                assert await some(tailed, 1) == [b"old"]
                for number in range(20):
                    tags = "A" if number % 2 else "B"
                    await asyncio.to_thread(
                        producer.send, Message("Orders", f"{number}", tags=tags)
                    )
                    if number % 2:
                        assert await some(tailed, 1) == [b"%d" % number]

        asyncio.run(follow())
        config = rocketmq.store / "config"
    written = "".join(each.read_text() for each in config.iterdir() if "topics" not in each.name)
    assert "Orders" not in written
    assert "ROCKETLENS" not in written


class MovingBroker:
    """Moves each pull to the offset that it names."""

    timeout_s = 5.0

    def __init__(self, next_offset):
        self.next_offset = next_offset
        self.headers = []

    async def call(self, _, __, header, *, timeout_s):
        assert timeout_s == self.timeout_s
        self.headers.append(header)
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(self.next_offset),
            "minOffset": "0",
            "maxOffset": "7",
        }
        return RemotingCommand(int(ResponseCode.PULL_OFFSET_MOVED), 1, ext_fields=fields)


class NoBatches:
    async def has_batches(self, *_):
        return False


def pull_of_tail(broker, **conditions):
    message_filter = tail_filter("T", **conditions)
    reader = TopicTail(broker, NoBatches(), message_filter, newest=1, follow=False)
    reader._brokers["broker-a"] = Broker("broker-a", {0: "a:1"})
    return asyncio.run(reader._pull("a:1", MessageQueue("T", "broker-a", 0), 7, 32))


def test_a_broker_that_moves_an_offset_to_itself_is_not_followed_for_ever():
    pulled, records = pull_of_tail(MovingBroker(9))
    assert (pulled.next_offset, records) == (9, [])
    with pytest.raises(BadAnswer, match="moves from queue offset 7 to 7"):
        pull_of_tail(MovingBroker(7))


@pytest.mark.parametrize(
    ("conditions", "form"),
    [
        ({}, ("TAG", "*")),
        ({"tags": "B||A"}, ("TAG", "A || B")),
        ({"sql": "a > 1"}, ("SQL92", "a > 1")),
    ],
)
def test_a_broker_compares_what_it_can(conditions, form):
    broker = MovingBroker(9)
    pull_of_tail(broker, **conditions)
    assert [(each.expression_type, each.subscription) for each in broker.headers] == [form]


IN_BATCHES = {"T": {"queue.type": "BatchCQ"}}


@pytest.mark.parametrize("newest", [*range(1, 12), 100, None])
@within(ask)
async def test_messages_in_batches_are_shown_one_by_one(cluster, admin, /, newest):
    broker = cluster.masters[0]
    broker.topic_attributes = IN_BATCHES
    count = 0
    for size in (3, 1, 40, 5):
        bodies = [b'{"n": %d}' % (count + number) for number in range(size)]
        broker.store_batch("T", [(body, f"k{count}") for body in bodies])
        broker.store("T", b'{"n": %d}' % (count + size))
        count += size + 1
    expected = [b'{"n": %d}' % number for number in range(count)]
    tailed = admin.tail("T", newest)
    assert await all_of(tailed) == expected[-(newest or count) :]
    assert tailed.complete
    scan = admin.scan("T", where="body.$.n >= 2")
    assert [message.body async for message in scan] == expected[2:]
    # A broker would compare the tags of a batch as a whole, which has none.
    tailed = admin.tail("T", newest, tags="A")
    assert await all_of(tailed) == []
    asked = {each.subscription for code, each in broker.asked if code == RequestCode.PULL_MESSAGE}
    assert asked == {"*"}


@within(ask)
async def test_a_light_topic_is_shown_whatever_offsets_its_messages_have_in_their_own_queues(
    cluster, admin, /
):
    broker = cluster.masters[0]
    for number in range(9):
        broker.store(
            "T", b"%d" % number, more={props.MULTI_DISPATCH: "%LMQ%x"}, queue_id=number % 4
        )
        broker.queues["%LMQ%x", 0].append(broker.records[-1])
    assert await all_of(admin.tail("%LMQ%x", 4)) == numbers(5, 9)
    assert await all_of(admin.tail("%LMQ%x", None)) == numbers(9)
    assert [message.body async for message in admin.scan("%LMQ%x")] == numbers(9)


@within(ask)
async def test_a_tail_of_a_client_that_is_closed_ends_with_an_error_of_this_package(
    cluster, admin, /
):
    cluster.masters[0].store("T", b"a")
    async with admin.tail("T", follow=True) as tailed:
        assert (await anext(tailed)).body == b"a"
        await admin.close()
        with pytest.raises(RocketLensError):
            await anext(tailed)


@within(ask)
async def test_closing_a_tail_can_be_cancelled(cluster, admin, /):
    cluster.masters[0].store("T", b"a")
    tailed = admin.tail("T", follow=True)
    assert (await anext(tailed)).body == b"a"
    closing = asyncio.create_task(tailed.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
