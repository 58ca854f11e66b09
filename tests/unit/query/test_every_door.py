"""The same question has the same answer at every door, and a wrong topic is refused at each.

Doors are Python, the command line and the console, over a store, a cluster and an archive. A topic
that does not exist is refused with the one that was probably meant.
"""

import asyncio

import pytest

import rocketlens
from rocketlens.bulk.options import known_options
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.pipeline.cluster_scan import ClusterScan
from rocketlens.testing import cluster
from tests.support.archives import archive_store
from tests.support.doors import DOORS, Refused
from tests.support.made_stores import Sent, make_store

WRONG = "PayTopc"
MEANT = "PayTopic"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    sent = [Sent(MEANT, keys="k", unique_key="U"), Sent("Orders", keys="o")]
    return make_store(tmp_path_factory.mktemp("doors") / "store", sent).path


@pytest.fixture(scope="module")
def rocketmq():
    with cluster() as running, running.producer() as producer:
        producer.send(rocketlens.Message(MEANT, "x", keys="k"))
        producer.send(rocketlens.Message("Orders", "x", keys="o"))
        yield running


OF_A_STORE = {
    "find": lambda store: store.find(topic=WRONG),
    "find a key": lambda store: store.find("k", WRONG),
    "find one of several": lambda store: store.find(topic=[MEANT, WRONG]),
    "find the newest": lambda store: store.find(topic=WRONG, max_num=3),
    "find in a time": lambda store: store.find(topic=WRONG, begin="1d"),
    "find with a filter": lambda store: store.find(where=f"topic = '{WRONG}'"),
    "scan": lambda store: list(store.scan(WRONG)),
    "scan of several": lambda store: list(store.scan([MEANT, WRONG])),
    "to_reader": lambda store: store.scan(WRONG).to_reader().read_all(),
    "to_arrow": lambda store: store.scan(WRONG).to_arrow(),
    "scan with a filter": lambda store: list(store.scan(where=f"topic = '{WRONG}'")),
    "tail": lambda store: list(store.tail(WRONG)),
    "topics": lambda store: store.topics(WRONG),
    "story": lambda store: store.story("k", WRONG),
}


@pytest.mark.parametrize("door", OF_A_STORE)
def test_a_store_refuses_a_topic_that_it_does_not_have(path, door):
    with (
        rocketlens.open_store(path) as store,
        pytest.raises(TopicNotFound, match=f"did you mean {MEANT}"),
    ):
        OF_A_STORE[door](store)


OF_A_CLUSTER = {
    "find": lambda admin: admin.find(topic=WRONG),
    "find a key": lambda admin: admin.find("k", WRONG),
    "find in a time": lambda admin: admin.find(topic=WRONG, begin="1d", max_num=3),
    "scan": lambda admin: list(admin.scan(WRONG)),
    "to_reader": lambda admin: admin.scan(WRONG).to_reader().read_all(),
    "topics": lambda admin: admin.topics(WRONG),
    "story": lambda admin: admin.story("k", WRONG),
}


@pytest.mark.parametrize("door", OF_A_CLUSTER)
def test_a_cluster_refuses_a_topic_that_it_does_not_have(rocketmq, door):
    with rocketmq.admin() as admin, pytest.raises(TopicNotFound, match=f"did you mean {MEANT}"):
        OF_A_CLUSTER[door](admin)


@pytest.mark.parametrize("of", ["tail", "query_message", "query_message_by_unique_key"])
def test_what_takes_one_topic_of_a_cluster_refuses_a_wrong_one(rocketmq, of):
    with rocketmq.admin() as admin, pytest.raises(TopicNotFound):
        list(admin.tail(WRONG) if of == "tail" else getattr(admin, of)(WRONG, "k"))


@pytest.mark.parametrize("kind", ["store", "archive", "cluster"])
def test_every_source_has_a_message_by_its_position_and_by_its_unique_key(
    path, rocketmq, tmp_path, kind
):
    archive_store(tmp_path, path)
    opened = {
        "store": lambda: rocketlens.open_store(path),
        "archive": lambda: rocketlens.open_archive(tmp_path),
        "cluster": rocketmq.admin,
    }[kind]()
    with opened as source:
        (message,) = source.find("k")
        there = message.topic, message.queue_id, message.queue_offset
        assert source.query_by_queue_offset(*there) == message
        (same,) = source.query_message_by_unique_key(message.topic, message.unique_key)
        assert same == message
        assert not source.query_message_by_unique_key(message.topic, "k").messages
        for position in [(MEANT, 0, 99), (WRONG, 0, 0), (MEANT, 10**10, 0)]:
            with pytest.raises(rocketlens.MessageNotFound, match=position[0]):
                source.query_by_queue_offset(*position)
        for position in [(MEANT, -1, 0), ("a b", 0, 0)]:
            with pytest.raises(BadInput):
                source.query_by_queue_offset(*position)


def test_several_sources_refuse_a_topic_that_none_has(path, rocketmq):
    sources = [path, rocketmq.name_server]
    with pytest.raises(TopicNotFound, match=f"did you mean {MEANT}"):
        rocketlens.find(topic=WRONG, sources=sources)
    with pytest.raises(TopicNotFound, match=WRONG):
        rocketlens.story("k", WRONG, sources=sources)
    with pytest.raises(TopicNotFound, match=WRONG):
        asyncio.run(rocketlens.find_async("k", WRONG, sources=sources))


def test_tables_for_spark_refuse_a_wrong_topic(path, rocketmq):
    with pytest.raises(BadInput, match=f"did you mean {MEANT}"):
        list(rocketlens.read_batches(path, topic=WRONG))
    options = known_options({"namesrv": rocketmq.name_server, "subscribe": WRONG}, "cluster reads")
    with pytest.raises(TopicNotFound, match=f"did you mean {MEANT}"):
        list(ClusterScan(options).shares())


COMMANDS = [
    ("find", "-t", WRONG),
    ("find", "-t", f"{MEANT},{WRONG}"),
    ("find", "k", "-t", WRONG),
    ("find", "-t", WRONG, "--max", "3"),
    ("find", "-t", WRONG, "--since", "1d"),
    ("find", "-t", WRONG, "-o", "jsonl"),
    ("find", "-t", WRONG, "-o", "json"),
    ("find", "--where", f"topic = '{WRONG}'"),
    ("show", "k", "-t", WRONG),
    ("story", "k", "-t", WRONG),
    ("tail", "-t", WRONG),
    ("topics", WRONG),
    ("export", "OUT", "-t", WRONG),
    ("export", "OUT", "-t", WRONG, "-k", "k"),
    ("sql", "select * from messages", "-t", WRONG),
    ("sql", f"select * from messages where topic = '{WRONG}'"),
]


@pytest.fixture(params=["store", "cluster"])
def source(request, path, rocketmq):
    """The options that name a store or a cluster."""
    return ["--store", path] if request.param == "store" else ["--namesrv", rocketmq.name_server]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_refuse_a_wrong_topic(run, source, tmp_path, command):
    words = [str(tmp_path / "out.jsonl") if word == "OUT" else word for word in command]
    done = run(*words, *source)
    assert done.code == 2, (done.out, done.err)
    is_tail_of_cluster = command[0] == "tail" and source[0] == "--namesrv"
    assert f"did you mean {MEANT}" in done.err or is_tail_of_cluster
    assert not (tmp_path / "out.jsonl").exists()


# What is found.

KEY = "ORDER-1"
FULL_WIDTH = "Orders/\uff10/\uff15"
SLASHES = "2026/11/20"


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The places where five messages are, by kind, and the messages, oldest first."""
    directory = tmp_path_factory.mktemp("asked")
    messages = [
        Message("Orders", "first", keys=[KEY, "only-first"], tags="A"),
        Message("Payments", "paid", keys=[KEY, SLASHES], tags="B"),
        Message("Orders", "second", keys=[KEY, FULL_WIDTH], tags="B"),
        Message("Plain", b"\x00plain"),
        Message("Orders", "third", keys=[KEY]),
    ]
    with cluster(directory / "broker", flushDiskType="SYNC_FLUSH") as running:
        with running.producer() as producer:
            ids = []
            for each in messages:
                queue = MessageQueue(each.topic, "broker-a", 1)
                ids.append(producer.send(each, queue=queue).offset_msg_id)
        archive_store(directory / "lake", running.store)
        with rocketlens.open_store(running.store) as store:
            stored = [store.view_message(each) for each in ids]
        places = {"store": running.store, "cluster": running.name_server}
        several = [*places.values(), directory / "lake"]
        yield {**places, "archive": directory / "lake", "several": several}, stored


@pytest.fixture(scope="module", params=DOORS, ids=lambda each: f"{each[0].__name__} {each[1]}")
def ask(request, asked):
    door, kind = request.param
    with door(kind, asked[0][kind]) as opened:
        yield opened


@pytest.fixture
def stored(asked):
    return asked[1]


def found(ask, **question):
    """The positions of what is found, which must be all there is."""
    answer = ask(**question)
    assert answer.complete, question
    return answer.positions


def at(*messages):
    return [each.position for each in messages]


def test_a_text_is_found_by_its_kind_and_without(ask, stored):
    for message in stored:
        for kind, text in {
            "unique-key": message.unique_key,
            "offset-id": message.offset_msg_id,
            "queue-offset": message.position,
        }.items():
            assert found(ask, text=text) == at(message), text
            assert found(ask, text=text, kind=kind) == at(message)
    assert found(ask, text="only-first", kind="key") == at(stored[0])
    assert found(ask, text=KEY) == at(*(stored[n] for n in (0, 1, 2, 4)))
    assert found(ask, text="no such key") == []


def test_a_text_of_one_kind_is_not_taken_for_another(ask, stored):
    assert found(ask, text=KEY, kind="unique-key") == []
    assert found(ask, text=stored[0].unique_key, kind="key") == []
    assert found(ask, text=FULL_WIDTH) == at(stored[2])
    assert found(ask, text=SLASHES) == at(stored[1])
    for kind in ("offset-id", "queue-offset"):
        with pytest.raises(Refused):
            ask(text=FULL_WIDTH, kind=kind)


@pytest.mark.parametrize(
    "text",
    [
        "Orders/2147483647/5",
        "Orders/0/9223372036854775807",
        "Orders/9999999999/9999999999999999999",
        "Orders/77/0",
        "Nowhere/0/0",
    ],
)
def test_a_queue_position_that_has_no_message_is_not_found(ask, text):
    for kind in ("queue-offset", "auto"):
        assert found(ask, text=text, kind=kind) == []


def test_topics_narrow_what_is_found(ask, stored):
    assert found(ask, text=KEY, topic="Payments") == at(stored[1])
    for text in (stored[1].unique_key, stored[1].offset_msg_id):
        assert found(ask, text=text, topic="Payments") == at(stored[1])
        assert found(ask, text=text, topic="Orders") == []
    both = at(*(stored[n] for n in (0, 1, 2, 4)))
    for topics in ("Orders,Payments", ["Orders", "Pay*"], "*[sS]"):
        assert found(ask, text=KEY, topic=topics) == both
    assert found(ask, topic="P*") == at(stored[1], stored[3])
    assert found(ask, topic=["Orders", "Plain"]) == at(*(stored[n] for n in (0, 2, 3, 4)))


@pytest.mark.parametrize("text", [KEY, None])
def test_an_unknown_topic_is_refused_and_the_one_probably_meant_is_named(ask, text):
    for topic, words in (
        ("orders", "no topic 'orders'; did you mean Orders"),
        (["Payments", "Order"], "no topic 'Order'"),
        ("Ord?", "no topic matches 'Ord?'"),
    ):
        with pytest.raises(Refused) as refused:
            ask(text=text, topic=topic)
        assert words in str(refused.value)


def test_times_bound_every_kind_to_the_millisecond(ask, stored):
    for message in stored:
        moment = message.store_timestamp_ms
        for text in (message.unique_key, message.offset_msg_id, message.position):
            assert found(ask, text=text, begin=moment, end=moment) == at(message)
            assert found(ask, text=text, begin=moment + 1) == []
            assert found(ask, text=text, end=moment - 1) == []
    times = [message.store_timestamp_ms for message in stored]
    between = [m for m in stored if times[1] <= m.store_timestamp_ms <= times[3]]
    assert found(ask, begin=times[1], end=times[3]) == at(*between)
    assert found(ask, topic="Orders", end=times[0] - 1) == []


def test_the_newest_are_returned_and_that_there_are_more_is_said(ask, stored):
    for question, numbers in (
        ({"text": KEY}, (0, 1, 2, 4)),
        ({"text": KEY, "topic": "Orders"}, (0, 2, 4)),
        ({"topic": "Orders"}, (0, 2, 4)),
    ):
        positions = at(*(stored[n] for n in numbers))
        for max_num in (1, 2, len(positions), 100, None):
            answer = ask(**question, max_num=max_num)
            assert answer.positions == positions[-(max_num or 100) :]
            assert answer.truncated is (len(answer.positions) < len(positions))
            assert answer.complete


@pytest.mark.parametrize(
    ("question", "numbers"),
    [
        ({"where": "tag = 'B'", "topic": ["Orders", "Payments", "Plain"]}, [1, 2]),
        ({"where": "tag = 'B' AND topic = 'Orders'"}, [2]),
        ({"where": f"key = '{KEY}' AND body =~ '^(first|third)$'"}, [0, 4]),
        ({"where": "body CONTAINS 'd'", "topic": ["Orders", "Payments"]}, [1, 2, 4]),
        ({"grep": "ir", "topic": "Orders"}, [0, 4]),
        ({"text": KEY, "grep": "(?i)PAID"}, [1]),
        ({"text": KEY, "grep": "no such"}, []),
    ],
)
def test_content_decides(ask, stored, question, numbers):
    assert found(ask, **question) == at(*(stored[n] for n in numbers))


def test_what_a_filter_could_not_look_at_makes_the_answer_incomplete(ask, stored):
    answer = ask(topic="Plain", where="body.$.a = 1")
    assert (answer.positions, answer.complete) == ([], False)
    assert found(ask, topic="Plain", where="tag = 'x' AND body.$.a = 1") == []
