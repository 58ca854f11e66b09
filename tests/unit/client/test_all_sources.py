"""One find and one story: the same question has the same answer, whatever is asked.

Everything here runs over a store directory, over the cluster that writes it, and over both at once.
"""

import asyncio
import shutil

import pytest

import rocketlens
from rocketlens import SyncPushConsumer
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.errors import BadInput, TopicNotFound, WrongUse
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.query.find import find as find_in_one
from rocketlens.query.request import FindRequest
from rocketlens.testing import cluster
from tests.support.made_stores import make_store, some_messages

KEY = "ORDER-1"
FULL_WIDTH = "Orders/\uff10/\uff15"
SLASHES = "2026/11/20"


@pytest.fixture(scope="module")
def sent(rocketmq):
    """What was sent, oldest first: topic, keys and tag of each message and what came of it."""
    messages = [
        Message("Orders", "first", keys=[KEY, "only-first"], tags="A"),
        Message("Payments", "paid", keys=[KEY, SLASHES], tags="B"),
        Message("Orders", "second", keys=[KEY, FULL_WIDTH], tags="B"),
        Message("Plain", b"\x00plain"),
        Message("Orders", "third", keys=[KEY]),
    ]
    with rocketmq.producer() as producer:
        return [
            producer.send(each, queue=MessageQueue(each.topic, "broker-a", 1))
            if each.topic == "Orders" and number
            else producer.send(each)
            for number, each in enumerate(messages)
        ]


@pytest.fixture(scope="module", params=["store", "cluster", "both"])
def find(request, rocketmq, sent):
    """Return ``find(...)`` of each kind of source; its arguments are those of ``Store.find``."""
    if request.param == "store":
        with rocketlens.open_store(rocketmq.store) as store:
            yield store.find
    elif request.param == "cluster":
        with rocketmq.admin() as admin:
            yield admin.find
    else:
        with rocketlens.open_store(rocketmq.store) as store, rocketmq.admin() as admin:

            def find_in_both(*arguments, **options):
                return rocketlens.find(*arguments, sources=[store, admin], **options)

            yield find_in_both


@pytest.fixture(scope="module")
def stored(rocketmq, sent):
    """The messages as they are stored, oldest first."""
    with rocketlens.open_store(rocketmq.store) as store:
        by_id = {message.offset_msg_id: message for message in store.scan()}
    return [by_id[each.offset_msg_id] for each in sent]


def ids(answer):
    assert answer.complete, answer.failures
    return [message.offset_msg_id for message in answer]


def ids_of(*stored):
    return [message.offset_msg_id for message in stored]


def test_messages_are_the_same_whoever_is_asked(find, stored):
    assert find(KEY).messages == tuple(stored[n] for n in (0, 1, 2, 4))
    assert find(topic=["Orders", "Plain"]).messages == tuple(stored[n] for n in (0, 2, 3, 4))
    of_body = {"where": f"key = '{KEY}' AND body =~ '^(first|third)$'", "exhaustive": True}
    assert find(**of_body).messages == tuple(stored[n] for n in (0, 4))
    assert find(topic="Orders", grep="only", grep_in=["keys"]).messages == (stored[0],)
    assert find(KEY, max_num=0).truncated


def test_the_oldest_are_returned_by_every_source(rocketmq, sent, stored):
    questions = {"text": KEY, "topic": "Orders"}, {"topic": "Orders"}, {"text": KEY}

    async def ask(request):
        async with rocketlens.MQAdmin(rocketmq.name_server) as admin:
            return await find_in_one(request, admin.source)

    for question in questions:
        request = FindRequest.parse(**question, max_num=2, oldest=True)
        with rocketlens.open_store(rocketmq.store) as store:
            of_store = store.find_for(request)
        oldest = [stored[0], stored[1] if "topic" not in question else stored[2]]
        for answer in (of_store, asyncio.run(ask(request))):
            assert ids(answer) == ids_of(*oldest)
            assert answer.truncated


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ({"text": ""}, "the key is empty"),
        ({"text": "k" * 40_000}, "the text has 40,000 bytes"),
        ({"text": "k", "kind": "nonsense"}, "unknown kind 'nonsense'"),
        ({"text": "k", "kind": "offset-id"}, "an offset message id"),
        ({"text": "Orders/x/1", "kind": "queue-offset"}, "is not a queue position"),
        ({"text": "Or ders/0/1", "kind": "queue-offset"}, "is not a valid topic name"),
        ({"text": "k", "topic": " "}, "the topic is empty"),
        ({"text": "k", "max_num": -1}, "max_num is -1"),
        ({"text": "k", "begin": -1}, "begin is -1"),
        ({"text": "k", "end": -1}, "end is -1"),
        ({"text": "k", "begin": 1_790_000_000}, "looks like epoch seconds"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_the_same_words(find, question, error):
    with pytest.raises(BadInput, match=error):
        find(**question)


# Several sources.


@pytest.fixture
def backup(tmp_path):
    """Another store, of another broker."""
    return make_store(tmp_path / "backup", some_messages(30))


def test_coverage_names_each_source(rocketmq, sent, backup):
    address = rocketmq.name_server
    answer = rocketlens.find(KEY, sources=[backup.path, address, rocketmq.store])
    sources = {each.source.partition(": ")[0] for each in answer.coverage}
    assert sources == {str(backup.path), address, str(rocketmq.store)}
    assert len(ids(answer)) == 4


def test_messages_of_several_stores_are_in_the_order_of_time_and_cut_once(backup, tmp_path):
    more = make_store(tmp_path / "more", some_messages(10))
    sources = [backup.path, more.path]
    with rocketlens.open_store(backup.path) as store:
        newest = store.find("shared-1", max_num=3).messages
    answer = rocketlens.find("shared-1", sources=sources, max_num=3)
    assert answer.truncated
    assert answer.messages == newest
    times = [m.store_timestamp_ms for m in rocketlens.find("shared-1", sources=sources)]
    assert times == sorted(times)


def test_a_copy_of_a_store_brings_no_message_twice(backup):
    for question in ({"text": "shared-1"}, {"topic": "Topic1"}):
        once = rocketlens.find(**question, sources=[backup.path])
        assert rocketlens.find(**question, sources=[backup.path] * 3).messages == once.messages


@pytest.mark.parametrize(
    ("source", "error"), [("missing", "no such file or directory"), ("127.0.0.1:1", "127.0.0.1:1")]
)
def test_a_source_that_fails_makes_the_answer_incomplete_and_never_empty(backup, source, error):
    failing = str(backup.path.parent / source) if source == "missing" else source
    kind = SourceKind.COMMIT_LOG if source == "missing" else SourceKind.BROKER
    for text in ("order-7", "nothing"):
        answer = rocketlens.find(text, sources=[backup.path, failing])
        assert len(answer) == (text == "order-7")
        assert not answer.complete
        (failed,) = answer.failures
        assert (failed.source, failed.kind, failed.state) == (failing, kind, SourceState.FAILED)
        assert error in failed.error
    assert not rocketlens.find("order-7", sources=[failing]).complete


def test_a_topic_of_one_source_is_not_unknown(rocketmq, sent, backup):
    sources = [backup.path, rocketmq.name_server]
    assert ids(rocketlens.find(KEY, "Payments", sources=sources)) == [sent[1].offset_msg_id]
    assert len(ids(rocketlens.find("order-7", ["Topic*", "Payments"], sources=sources))) == 1
    assert ids(rocketlens.find("nothing", ["Topic1", "Pay*"], sources=sources)) == []
    with pytest.raises(TopicNotFound, match="no topic 'topic1'"):
        rocketlens.find("nothing", "topic1", sources=sources)
    with pytest.raises(TopicNotFound, match="no topic 'Topics'"):
        rocketlens.find("order-7", ["Topic1", "Topics"], sources=sources)


def test_a_topic_is_not_refused_while_a_source_fails(backup):
    for topics in ("Nowhere", ["Topic1", "Nowhere"], "Nowhere*"):
        answer = rocketlens.find("order-7", topics, sources=[backup.path, "127.0.0.1:1"])
        assert not answer.complete


def test_an_open_store_and_admin_stay_open(rocketmq, sent, backup):
    async def ask():
        async with rocketlens.MQAdmin(rocketmq.name_server) as admin:
            with rocketlens.open_store(backup.path) as store:
                answers = [
                    await rocketlens.find_async(text, sources=[store, admin])
                    for text in (KEY, "order-7")
                ]
                assert len(store.find("order-7")) == 1
            assert len(await admin.find(KEY)) == 4
            return answers

    assert [len(ids(answer)) for answer in asyncio.run(ask())] == [4, 1]


def test_a_closed_store_is_a_mistake_and_not_an_incomplete_answer(backup):
    store = rocketlens.open_store(backup.path)
    store.close()
    with pytest.raises(WrongUse, match="this store is closed"):
        rocketlens.find("k", sources=[store])


class Silent:
    """A source that says nothing of what it searched."""

    name, kind, is_one_log = "silent", SourceKind.BROKER, False

    async def find(self, request, findings):
        pass

    async def check_topics(self, names, findings):
        pass


def test_a_source_that_proves_nothing_makes_the_answer_incomplete(backup):
    answer = rocketlens.find("order-7", sources=[backup.path, Silent()])
    assert (len(answer), answer.complete) == (1, False)
    (failed,) = answer.failures
    assert failed.source == "silent"


@pytest.mark.parametrize("sources", [[], "store", 5, [5], None])
def test_sources_are_several_and_of_known_kinds(sources):
    with pytest.raises(BadInput, match="source"):
        rocketlens.find("k", sources=sources)


def test_tail_takes_the_same_filters(rocketmq, stored):
    with rocketmq.admin() as admin:
        with admin.tail("Orders", None, where="body CONTAINS 'ir' AND queue_id >= 0") as tailed:
            found = {message.offset_msg_id for message in tailed}
            assert found == {stored[0].offset_msg_id, stored[4].offset_msg_id}
            assert tailed.complete
        with admin.tail("Plain", None, grep="a") as tailed:
            assert not list(tailed)
            assert not tailed.complete


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A cluster, a copy of its store, and the id of a message that a group consumed."""
    directory = tmp_path_factory.mktemp("rocketmq")
    with cluster(directory) as running, running.producer() as producer:
        sent = producer.send(Message("Orders", "x", tags="A", keys="order-1"))
        consumer = SyncPushConsumer(running.name_server, group="billing", begin="first")
        consumer.subscribe("Orders")
        with consumer:
            consumer.ack(next(iter(consumer)))
            consumer.commit()
        copied = directory / "copied"
        shutil.copytree(running.store, copied)
        yield running, copied, sent.msg_id


def test_a_store_and_a_cluster_tell_one_story(world):
    running, copied, msg_id = world
    story = rocketlens.story(msg_id, sources=[running.name_server, copied])
    assert story.message.msg_id == msg_id
    assert [each.kind for each in story.events] == ["sent", "stored"]
    assert story.events[1].source == "broker-a"
    [group] = story.groups
    assert (group.group, group.state.value) == ("billing", "passed_offline")
    alone = rocketlens.story(msg_id, sources=[copied], group="nobody")
    assert alone.groups[0].state.value in {"never_subscribed", "unknown"}
    assert alone.events[1].source == f"commit log of {copied}"


def test_an_open_admin_and_an_open_store_are_sources(world):
    running, copied, msg_id = world
    with running.admin() as admin, rocketlens.open_store(copied) as store:
        both = rocketlens.story("order-1", "Orders", sources=[store, admin])
        direct = admin.story(msg_id)
        assert both.events[1].text == direct.events[1].text == store.story(msg_id).events[1].text
        assert direct.complete


def test_a_source_that_fails_makes_the_story_incomplete(world, tmp_path):
    running, _, msg_id = world
    story = rocketlens.story(msg_id, sources=[running.name_server, tmp_path / "none"])
    assert story.message is not None
    assert not story.complete


def test_sources_are_several(world):
    with pytest.raises(BadInput):
        rocketlens.story("k", sources=[])
    with pytest.raises(BadInput):
        rocketlens.story("", sources=[world[1]])
