"""Our broker, with many topics, at the name servers of the real RocketMQ."""

import json
from contextlib import contextmanager

import pytest

from rocketlens.broker.life import registration
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.net.pool import ClientPool
from rocketlens.wire.codes import RequestCode
from tests.peer.rocketmq_peer import (
    NAMESRV_MAIN,
    START_SECONDS,
    accepts_connections,
    free_ports,
    reap,
    wait_until,
)
from tests.support.broker_world import running
from tests.support.impostors import Impostor


@contextmanager
def their_name_server(peer, version, directory, port):
    directory.mkdir(exist_ok=True)
    conf = {
        "listenPort": port,
        "kvConfigPath": directory / "kv.json",
        "configStorePath": directory / "namesrv.properties",
    }
    process = peer.launch(version, directory, NAMESRV_MAIN, conf)
    try:
        wait_until(lambda: accepts_connections(port), process, START_SECONDS)
        yield
    finally:
        reap(process)


class Asking:
    """What a real name server says of topics."""

    def __init__(self, pool, address):
        self.pool = pool
        self.address = address

    async def topics(self):
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        answer = await self.pool.call(self.address, code, timeout_s=30)
        return set(json.loads(answer.body)["topicList"])

    async def queues(self, topic):
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        answer = await self.pool.call(self.address, code, fields, timeout_s=30)
        return json.loads(answer.body)["queueDatas"][0]["writeQueueNums"] if answer.body else None


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
async def test_a_real_name_server_takes_topics_in_parts_and_changes_alone(
    peer, version, tmp_path, monkeypatch
):
    monkeypatch.setattr(registration, "TOPICS_IN_A_PART", 9)
    port = free_ports()
    address = f"127.0.0.1:{port}"
    settings = {"namesrvAddr": address, "registerBrokerTimeoutMills": 30_000}
    pool = ClientPool(lambda _: True)
    asking = Asking(pool, address)
    with their_name_server(peer, version, tmp_path / "first", port):
        async with running(tmp_path, **settings) as world:
            made = [StoredTopic(f"T{number}", 3, 3) for number in range(100)]
            world.core.topics.table.put(*made)
        async with running(tmp_path, **settings) as world:
            names = set(world.core.topics.topics)
            assert names <= await asking.topics()
            # One that is new, and one that changes.
            for name in ("New", "T0"):
                await world.core.topics.put(StoredTopic(name, 7, 7))
                assert await asking.queues(name) == 7
            assert names | {"New"} <= await asking.topics()
            # Nothing changed: the version is known, and nothing is lost.
            registrar = world.service._registrar
            for _ in range(3):
                await registrar.register()
            assert await asking.queues("T99") == 3
            impostor = Impostor(pool, address, ["T1", "SELF_TEST_TOPIC"])
            assert (await impostor.register()).code == 0
            assert await asking.queues("T1") == 99
            await registrar.register()
            assert world.core.name_servers.name_taken_times == 1
            assert await asking.queues("T1") == 3
            assert not world.core.name_servers.name_taken
            assert not world.core.name_servers.failures
    # It begins anew, and knows nothing.
    async with running(tmp_path, **settings) as world:
        assert world.core.name_servers.failures
        with their_name_server(peer, version, tmp_path / "second", port):
            await world.service._registrar.register()
            assert set(world.core.topics.topics) <= await asking.topics()
    await pool.close()
