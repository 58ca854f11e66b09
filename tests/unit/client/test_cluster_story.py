"""A cluster says what groups did; a broker that does not answer is no group that did nothing."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from rocketlens.client.cluster_story import ClusterStorySource
from rocketlens.client.connect.cluster import BrokerAnswer
from rocketlens.client.connect.route import Broker
from rocketlens.errors import CallTimeout, TopicNotFound
from rocketlens.formats.commitlog_record import message_of
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.life import KEEPING_TOPICS
from rocketlens.net.channel import Response
from rocketlens.wire.bodies.clients import GroupList
from rocketlens.wire.bodies.tables import (
    ConsumeStats,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.declare import write_body
from tests.support.fake_cluster import ask
from tests.unit.client.admin.test_group_calls import answer
from tests.unit.client.admin.test_track import ADDRESS, BROKERS, FakeCluster, consumers, refused
from tests.unit.conftest import record

MESSAGE = message_of(record(0, queue_offset=7))


class Cluster(FakeCluster):
    """Also answers what a story asks of all brokers."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        config = SubscriptionGroupConfig(group_name="g", retry_max_times=5)
        table = SubscriptionGroupTable(subscription_group_table={"g": config})
        self.bodies[SubscriptionGroupTable] = table

    def turn(self, _):
        return nullcontext()

    async def call(self, *_):
        return SimpleNamespace(code=1, remark="can not find message by the offset, 0")

    async def ask_brokers(self, brokers, ask):
        answers = []
        for broker in brokers:
            try:
                value, state, error = await ask(broker, ADDRESS), SourceState.SEARCHED, None
            except CallTimeout as failed:
                value, state, error = None, SourceState.FAILED, str(failed)
            covered = Coverage(broker.name, SourceKind.BROKER, state, None, error)
            answers.append(BrokerAnswer(broker, value, covered))
        return answers


def facts_of(cluster, groups=(), asked=None, brokers=BROKERS):
    async def route(_):
        if not brokers:
            raise TopicNotFound("topic T: no broker has it")
        return SimpleNamespace(value=SimpleNamespace(brokers=brokers))

    async def all_brokers():
        return SimpleNamespace(value=brokers)

    topology = SimpleNamespace(route=route, brokers=all_brokers)
    source = SimpleNamespace(cluster=cluster, topology=topology, full_topic=lambda name: name)
    knowing = ClusterStorySource(source)
    return asyncio.run(knowing.facts(MESSAGE, set(groups), asked)), asyncio.run(
        knowing.said_by(MESSAGE)
    )


def test_the_groups_of_the_topic_and_those_of_copies_are_asked_about():
    facts, said_by = facts_of(Cluster(consumers(), consumed=8), groups={"g", "h"})
    assert [each.group for each in facts.groups] == ["g", "h"]
    g, h = facts.groups
    assert (g.consumer_offset, g.is_online, g.subscribes) == (8, True, True)
    assert (g.retry_max_times, h.retry_max_times) == (5, None)
    assert g.clients_source == "its connections (203)"
    assert said_by == "broker-a"
    assert facts.broker_names[ADDRESS] == "broker-a"
    assert (facts.unlearnt, facts.coverage) == ((), ())


def story_of(text, topic=None):
    """Return a story, and which topics were looked up, in a cluster of many topics."""

    async def scenario(cluster, admin):
        (broker,) = cluster.masters
        topics = ("T", "%RETRY%g", "%DLQ%g", "%RETRY%other", *(f"Other{n}" for n in range(30)))
        for server in cluster.name_servers:
            server.topics.update({each: [broker.name] for each in topics})
        for each in ("T", "%RETRY%g", "%DLQ%g", "Other7"):
            broker.store(each, b"x", unique_key="U1", keys="K")
        groups = Response(body=write_body(GroupList(groups=("g",))))
        answer(broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, groups)
        story = await admin.story(text or broker.id_at(0), topic)
        looked_up = [head.topic for code, head in broker.asked if code == RequestCode.QUERY_MESSAGE]
        return story, looked_up

    return ask(scenario, timeout_s=60)


@pytest.mark.parametrize(("text", "topic"), [("", None), ("K", "T"), ("U1", "T")])
def test_copies_are_looked_for_where_brokers_and_consumers_put_them(text, topic):
    story, looked_up = story_of(text, topic)
    assert {*looked_up} - KEEPING_TOPICS == {"T", "%RETRY%g", "%DLQ%g"}
    # What waits is looked for with the message itself.
    assert {*looked_up} >= KEEPING_TOPICS if topic else KEEPING_TOPICS.isdisjoint(looked_up)
    assert [each.topic for each in story.events if each.topic] == ["T", "%RETRY%g", "%DLQ%g"]
    [left_out] = [each for each in story.unlearnt if "other topics" in each.what]
    assert left_out.what == "copies in 31 other topics"
    assert (left_out.is_failure, "find U1 searches all" in left_out.why) == (False, True)


def test_a_unique_key_is_looked_up_once_in_all_topics():
    story, looked_up = story_of("U1")
    # The messages of four topics have the key, and are asked for again as samples of the index.
    assert (len(looked_up), len({*looked_up})) == (38, 34)
    assert {each.topic for each in story.events if each.topic} == {
        *("T", "%RETRY%g", "%DLQ%g", "Other7")
    }
    assert not any("other topics" in each.what for each in story.unlearnt)


def test_a_broker_that_cannot_name_its_groups_may_have_copies_too():
    cluster = Cluster(consumers())
    cluster.bodies[GroupList] = CallTimeout(ADDRESS, "no answer in 5 s")
    where = copy_topics(cluster, [MESSAGE])
    assert (where.topics, where.left_out) == (("T",), 1)
    assert [each.is_failure for each in where.coverage] == [True]


def copy_topics(cluster, messages):
    async def route(_):
        return SimpleNamespace(value=SimpleNamespace(brokers=BROKERS))

    async def topics():
        return ["T", "U"], []

    topology = SimpleNamespace(route=route, topics=topics)
    source = SimpleNamespace(cluster=cluster, topology=topology, namespace="")
    return asyncio.run(ClusterStorySource(source).copy_topics(messages))


def test_one_group_alone_is_asked_about_if_the_caller_wants_that():
    facts, _ = facts_of(Cluster(consumers(), consumed=8), groups={"g", "h"}, asked="h")
    assert [each.group for each in facts.groups] == ["h"]


def test_a_broker_that_cannot_name_its_groups_is_a_failure():
    cluster = Cluster(consumers())
    cluster.bodies[GroupList] = CallTimeout(ADDRESS, "no answer in 5 s")
    facts, _ = facts_of(cluster)
    assert (facts.groups, [each.is_failure for each in facts.coverage]) == ((), [True])


@pytest.mark.parametrize(("offline", "told"), [(False, ""), (True, "its connections (203)")])
def test_offsets_that_cannot_be_asked_for_are_not_known_and_a_failure(offline, told):
    cluster = Cluster(refused(206) if offline else consumers())
    cluster.bodies[ConsumeStats] = CallTimeout(ADDRESS, "no answer in 5 s")
    facts, _ = facts_of(cluster)
    [group] = facts.groups
    assert (group.has_offsets, group.offsets_source) == (None, "")
    assert group.clients_source == (told or "its connections (203)")
    [unlearnt] = facts.unlearnt
    assert (unlearnt.is_failure, "no answer in 5 s" in unlearnt.why) == (True, True)


def test_a_table_of_groups_that_cannot_be_had_leaves_out_only_the_number_of_retries():
    cluster = Cluster(consumers(), consumed=8)
    cluster.bodies[SubscriptionGroupTable] = CallTimeout(ADDRESS, "no answer in 5 s")
    facts, _ = facts_of(cluster, groups={"g"})
    assert [each.retry_max_times for each in facts.groups] == [None]


def test_a_record_of_a_broker_that_is_gone_is_named_by_its_address():
    others = {"broker-b": Broker("broker-b", {0: "10.0.0.6:10911"})}
    _, said_by = facts_of(Cluster(consumers()), brokers=others)
    assert said_by == ADDRESS


def test_a_topic_that_is_gone_has_no_groups_but_those_of_copies():
    facts, _ = facts_of(Cluster(consumers(), consumed=8), groups={"g"}, brokers={})
    assert [each.group for each in facts.groups] == ["g"]


def test_retries_of_pop_are_looked_for_by_the_position_of_the_message():
    pop = ("%RETRY%g_T", "%RETRY%g+T")

    async def scenario(cluster, admin):
        (broker,) = cluster.masters
        for server in cluster.name_servers:
            server.topics.update({each: [broker.name] for each in ("T", *pop, "%RETRY%gg_T")})
        for each in ("T", *pop):
            broker.store(each, b"x", unique_key="U1", keys="K")
        groups = Response(body=write_body(GroupList(groups=("g",))))
        answer(broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, groups)
        story = await admin.story(broker.id_at(0))
        looked_up = [head.topic for code, head in broker.asked if code == RequestCode.QUERY_MESSAGE]
        return story, looked_up

    story, looked_up = ask(scenario, timeout_s=60)
    assert {*looked_up} == {"T", *pop}
    assert [each.topic for each in story.events if each.topic] == ["T", *pop]
