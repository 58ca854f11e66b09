"""Our consumers on real clusters of two masters, and on slaves, with their master and without."""

import asyncio
from contextlib import ExitStack, contextmanager

import pytest

from rocketlens import LitePullConsumer, Message, MQAdmin, Producer
from rocketlens.wire.commands.messages import COMMIT_OFFSET_FLAG, PULL_MESSAGE
from tests.peer.rocketmq_peer import (
    BROKER_MAIN,
    VERSIONS,
    accepts_connections,
    free_ports,
    reap,
    registered_brokers,
    wait_until,
)
from tests.unit.client.consume.behaviour import PATIENCE_S, Collecting, push, until

pytestmark = pytest.mark.slow

PATIENT = {"waitTimeMillsInSendQueue": 60_000}
"""A broker refuses what waited for 200 ms, as a send does where several of them start."""


@contextmanager
def another_broker(peer, first, directory, **settings):
    """Start one more broker of a cluster."""
    directory.mkdir()
    port = settings.get("listenPort") or free_ports(-2, 1)
    conf = {
        "brokerClusterName": "DefaultCluster",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "namesrvAddr": first.namesrv_address,
        "storePathRootDir": directory / "store",
        "storePathCommitLog": directory / "store" / "commitlog",
        "diskMaxUsedSpaceRatio": 95,
        **PATIENT,
    } | settings
    process = peer.launch(first.version, directory, BROKER_MAIN, conf)
    try:
        wait_until(lambda: accepts_connections(port), process, PATIENCE_S)
        wait_until(
            lambda: conf["brokerName"] in registered_brokers(first.namesrv_port),
            process,
            PATIENCE_S,
        )
        yield process
    finally:
        reap(process)


def is_copied(master, slave):
    """Whether a slave has the log of its master, and knows the topic."""
    topics = slave / "store" / "config" / "topics.json"
    logs = [next((each / "store" / "commitlog").glob("0*"), None) for each in (master, slave)]
    if None in logs or not topics.exists() or "Shared" not in topics.read_text():
        return False
    contents = []
    for log in logs:
        with log.open("rb") as file:
            contents.append(file.read(1 << 20))
    return contents[0] == contents[1]


EVERYTHING = set(range(400))
"""The bodies that are sent, half of them to each master."""


def shared(member):
    """Return the queues of the topic that a member has; those of its retries are left out."""
    return {each for each in member.assignment if each.topic == "Shared"}


SLOW_READS = {"slaveReadEnable": True, "accessMessageInMemoryMaxRatio": 0}
"""Whatever is not at the end of the log is to be read from the slave."""


@pytest.mark.parametrize("version", VERSIONS)
def test_two_masters_are_shared_and_a_slave_serves_when_its_master_is_gone(peer, tmp_path, version):
    async def scenario(first):
        name_server = first.namesrv_address
        slow = {"send_timeout_s": PATIENCE_S, "attempt_timeout_s": PATIENCE_S}
        async with MQAdmin(name_server) as admin, Producer(name_server, **slow) as producer:
            await admin.create_topic("Shared", 4)
            queues = await producer.write_queues("Shared")
            assert {each.broker_name for each in queues} == {"broker-a", "broker-b"}
            for number in sorted(EVERYTHING):
                queue = queues[number % len(queues)]
                await producer.send(Message("Shared", str(number)), queue=queue)
            await until(lambda: is_copied(tmp_path / "a", tmp_path / "slave"))
        one, two = Collecting(), Collecting()
        members = [push(name_server, "Shared", each, group="g_shared") for each in (one, two)]
        async with members[0], members[1]:
            # What a member had not committed when the other came is consumed again.
            await until(lambda: {*one.bodies, *two.bodies} == EVERYTHING)
            await until(lambda: [len(shared(each)) for each in members] == [4, 4])
            assert not shared(members[0]) & shared(members[1])
        first.broker.kill()
        first.broker.wait()
        late = Collecting()
        async with push(name_server, "Shared", late, group="g_late"):
            await until(lambda: {*late.bodies} == EVERYTHING)

    # A master tells its slave the address for replication: the port after its own.
    master = SLOW_READS | PATIENT | {"brokerRole": "SYNC_MASTER", "brokerIP2": "127.0.0.1"}
    with ExitStack() as running:
        first = running.enter_context(peer.start(version, tmp_path / "a", **master))
        slave = {"brokerName": "broker-a", "brokerId": 1, "brokerRole": "SLAVE"} | SLOW_READS
        running.enter_context(another_broker(peer, first, tmp_path / "slave", **slave))
        running.enter_context(another_broker(peer, first, tmp_path / "b", brokerName="broker-b"))
        asyncio.run(scenario(first))


class PullSpy:
    """Notes of each pull of a topic where it goes, and whether it carries an offset to commit."""

    def __init__(self, consumer, topic):
        self.pulls = set()
        call = consumer._cluster.call

        async def spy(address, command, header, *arguments, **options):
            if command is PULL_MESSAGE and header.topic == topic:
                self.pulls.add((address, bool(header.sys_flag & COMMIT_OFFSET_FLAG)))
            return await call(address, command, header, *arguments, **options)

        consumer._cluster.call = spy

    def commits_to(self, address):
        return {commits for asked, commits in self.pulls if asked == address}


async def committed(name_server, group, topic):
    """Return the sum of a group's offsets, as the master has them."""
    async with LitePullConsumer(name_server, group=group) as reader:
        queues = await reader.message_queues(topic)
        return sum([await reader._store.read(each) or 0 for each in queues])


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
@pytest.mark.parametrize("version", VERSIONS)
def test_who_is_behind_is_served_by_the_slave_while_the_master_lives(peer, tmp_path, version, role):
    async def scenario(first, slave, slave_address):
        name_server = first.namesrv_address
        slow = {"send_timeout_s": PATIENCE_S, "attempt_timeout_s": PATIENCE_S}
        async with MQAdmin(name_server) as admin, Producer(name_server, **slow) as producer:
            await admin.create_topic("Shared", 4)

            async def send(numbers):
                queues = await producer.write_queues("Shared")
                for number in numbers:
                    queue = queues[number % len(queues)]
                    await producer.send(Message("Shared", str(number)), queue=queue)

            await send(range(400))
            await until(lambda: is_copied(tmp_path / "a", tmp_path / "slave"))
            listener = Collecting()
            consumer = push(name_server, "Shared", listener, group="g_behind")
            spy = PullSpy(consumer, "Shared")
            async with consumer:
                await until(lambda: {*listener.bodies} == EVERYTHING)
                # Who has come to the end is sent back to the master.
                await until(lambda: True in spy.commits_to(first.broker_address))
                assert spy.commits_to(slave_address) == {False}
                slave.kill()
                slave.wait()
                await send(range(400, 420))
                await until(lambda: {*listener.bodies} == set(range(420)))
        return await committed(name_server, "g_behind", "Shared")

    settings = SLOW_READS | PATIENT | {"brokerRole": role, "brokerIP2": "127.0.0.1"}
    with ExitStack() as running:
        first = running.enter_context(peer.start(version, tmp_path / "a", **settings))
        port = free_ports(-2, 1)
        named = {"brokerName": "broker-a", "brokerId": 1, "brokerRole": "SLAVE", "listenPort": port}
        directory = tmp_path / "slave"
        slave = running.enter_context(another_broker(peer, first, directory, **named, **SLOW_READS))
        assert asyncio.run(scenario(first, slave, f"127.0.0.1:{port}")) == 420
