"""The state of a cluster, and what brokers do not say."""

import json

import pytest

from rocketlens.client.admin.cluster_status import runtime_number
from rocketlens.client.send.message import Message
from rocketlens.model.topic import TopicKind
from rocketlens.net.channel import Response
from rocketlens.testing import cluster as embedded
from rocketlens.wire.codes import RequestCode
from tests.support.fake_cluster import ask, fail


def test_a_broker_is_described_by_its_own_words(tmp_path):
    with (
        embedded(tmp_path / "rocketmq") as running,
        running.admin() as admin,
        running.producer() as producer,
    ):
        producer.send(Message("Orders", "1"))
        status = admin.status()
        topics = [each for each in admin.topics().topics if each.kind is TopicKind.NORMAL]
        address = running.broker
    assert status.complete
    [broker] = status.brokers
    assert (broker.name, broker.address, broker.is_master) == ("broker-a", address, True)
    assert broker.version == "V5_5_0"
    assert 0 < broker.disk_ratio < 1
    assert broker.log_bytes > 100
    assert (status.topics, status.producers, status.consumers) == (len(topics), 1, 0)
    assert broker.started_ms <= broker.oldest_ms


def test_a_broker_tells_what_it_stored_today_and_how_far_it_is_behind(tmp_path):
    with embedded(tmp_path / "rocketmq") as running, running.admin() as admin:
        with running.producer() as producer:
            for _ in range(3):
                producer.send(Message("Orders", "1"))
        [broker] = admin.brokers().brokers
    assert (broker.put_total, broker.put_today, broker.get_today) == (3, 3, 0)
    assert broker.dispatch_behind_bytes == 0
    assert 0 <= broker.index_behind_bytes <= broker.log_bytes
    assert broker.index_builder


def test_messages_of_a_day_are_those_since_midnight_and_none_if_they_are_not_counted():
    tables = {
        "counted": {"msgPutTotalTodayNow": "35", "msgPutTotalTodayMorning": "30"},
        "restarted": {"msgPutTotalTodayNow": "5", "msgPutTotalTodayMorning": "30"},
        "silent": {},
    }
    found = {}

    async def scenario(cluster, admin):
        for name, table in tables.items():
            answer = Response(body=json.dumps({"table": table}).encode())
            cluster.masters[0].fails_with = answer
            found[name] = (await admin.brokers()).brokers[0]

    ask(scenario)
    assert {name: each.put_today for name, each in found.items()} == {
        "counted": 5,
        "restarted": 0,
        "silent": None,
    }
    assert found["silent"].behind_bytes is found["silent"].index_builder is None


def test_each_broker_is_asked_once():
    async def scenario(cluster, admin):
        found = await admin.brokers()
        return found, [each.codes() for each in cluster.masters]

    found, codes = ask(scenario, masters=3)
    assert found.complete
    assert len(found.brokers) == 3
    assert codes == [[RequestCode.GET_BROKER_RUNTIME_INFO]] * 3


def test_masters_and_slaves_are_asked_each_for_itself():
    async def scenario(_, admin):
        return await admin.status()

    status = ask(scenario, masters=2, slaves=1)
    assert [(each.name, each.broker_id, each.error) for each in status.brokers] == [
        ("broker-a", 0, None),
        ("broker-a", 1, None),
        ("broker-b", 0, None),
    ]
    assert status.brokers[1].producers is None


@pytest.mark.parametrize("how", ["dead", "slow", "erring"])
def test_a_broker_that_does_not_answer_is_there_with_its_error(how):
    async def scenario(cluster, admin):
        await fail(cluster.masters[0], how)
        return await admin.status()

    status = ask(scenario, masters=2, timeout_s=1)
    assert not status.complete
    broken, sound = status.brokers
    assert broken.error
    assert broken.version is broken.log_bytes is None
    assert sound.error is None
    assert broken.address in {
        each.source[-len(broken.address) - 1 : -1] for each in status.coverage
    }


@pytest.mark.parametrize(
    ("text", "number"),
    [("0.25", 0.25), ("-1", -1.0), (None, None), ("", None), ("x", None), ("nan", None),
     ("inf", None), ("1e400", None), ("1e300", None)],
)  # fmt: skip
def test_numbers_of_brokers_are_checked(text, number):
    assert runtime_number(text) == number
