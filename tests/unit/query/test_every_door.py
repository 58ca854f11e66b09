"""A topic that does not exist is refused at every door, with the one that was probably meant."""

import asyncio

import pytest

import rocketlens
from rocketlens.bulk.options import known_options
from rocketlens.errors import BadInput, TopicNotFound
from rocketlens.pipeline.cluster_scan import ClusterScan
from rocketlens.testing import cluster
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
    with (
        rocketmq.admin() as admin,
        pytest.raises(TopicNotFound, match=f"did you mean {MEANT}"),
    ):
        OF_A_CLUSTER[door](admin)


@pytest.mark.parametrize("of", ["tail", "query_message", "query_message_by_unique_key"])
def test_what_takes_one_topic_of_a_cluster_refuses_a_wrong_one(rocketmq, of):
    with rocketmq.admin() as admin, pytest.raises(TopicNotFound):
        list(admin.tail(WRONG) if of == "tail" else getattr(admin, of)(WRONG, "k"))


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
