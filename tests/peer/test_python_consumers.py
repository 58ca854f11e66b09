"""Our consumers on real brokers, also in one group with consumers in Java."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import ExitStack, suppress

import pytest

from rocketlens import LitePullConsumer, Message, MQAdmin, Producer, PushConsumer
from rocketlens.client.resend.resend_job import MARKER
from rocketlens.errors import RocketLensError, TopicNotFound
from tests.conftest import WITHOUT_TIMERS
from tests.peer.java_member import JavaMember
from tests.peer.rocketmq_peer import START_SECONDS, VERSIONS, accepts_connections, reap, wait_until
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume import behaviour
from tests.unit.client.consume.behaviour import Collecting, push, until


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request, real_broker):
    return real_broker(request.param)


@pytest.mark.parametrize(
    "scenario",
    [*behaviour.ALL, behaviour.sql_is_evaluated_by_the_broker],
    ids=lambda each: each.__name__,
)
def test_our_consumers_on_a_real_broker(scenario, broker):
    asyncio.run(scenario(broker.namesrv_address))


def test_broadcasting_on_a_real_broker(broker, tmp_path):
    asyncio.run(behaviour.broadcasting_brings_everything_to_all(broker.namesrv_address, tmp_path))


async def test_lite_pulls_have_the_code_that_the_broker_knows(broker):
    await behaviour.send(broker.namesrv_address, "Lite", 4)
    consumer = LitePullConsumer(broker.namesrv_address, group="g_lite", begin="first")
    consumer.subscribe("Lite")
    async with consumer, asyncio.timeout(PATIENCE_S):
        while not await consumer.poll():
            pass
        unknown = consumer._queues.puller._queue_puller._without_lite_pull
    assert bool(unknown) == (broker.version == "4.9.7")


# What the real tools see of a consumer, and have it do.


async def test_the_tools_show_a_consumer_and_have_it_consume_and_go_on_elsewhere(peer, broker):
    name_server = broker.namesrv_address
    sent = await behaviour.send(name_server, "Shown", 20)
    listener = Collecting()
    consumer = push(name_server, "Shown", listener, group="g_shown")
    async with consumer:
        await until(lambda: listener.numbers == set(range(20)))
        await consumer.commit()

        def tool(command, *arguments):
            return peer.mqadmin(
                broker.version, command, "-n", name_server, "-g", "g_shown", *arguments
            )

        printed = {
            "status": await asyncio.to_thread(tool, "consumerStatus"),
            "details": await asyncio.to_thread(tool, "consumerStatus", "-i", consumer.client_id),
            "connection": await asyncio.to_thread(tool, "consumerConnection"),
            "progress": await asyncio.to_thread(tool, "consumerProgress"),
        }
        topic = ("-t", "Shown") if broker.version != "4.9.7" else ()
        which = ("-i", sent[3].offset_msg_id, "-d", consumer.client_id, *topic)
        printed["direct"] = await asyncio.to_thread(tool, "queryMsgById", *which)
        again = [each.offset_msg_id for each in listener.messages[20:]]
        assert sent[3].offset_msg_id in again
        listener.messages.clear()
        reset = ("-t", "Shown", "-s", "0")
        printed["reset"] = await asyncio.to_thread(tool, "resetOffsetByTime", *reset)
        await until(lambda: listener.numbers == set(range(20)))
    client_id = consumer.client_id
    assert client_id in printed["status"]
    assert "Rebalance OK" in printed["status"]
    assert "Same subscription in the same group of consumer" in printed["status"]
    assert "CONSUME_PASSIVELY" in printed["details"]
    assert "ProcessQueueInfo [commitOffset=5" in printed["details"]
    assert "PYTHON" in printed["connection"]
    assert "CONSUME_FROM_FIRST_OFFSET" in printed["connection"]
    assert printed["progress"].count(" 5                     5                     0 ") == 4
    assert "consumeResult=CR_SUCCESS" in printed["direct"]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_tools_reach_a_consumer_through_our_broker(version, peer, our_name_server):
    topic, group = f"Ours{version[0]}", f"g_ours{version[0]}"
    sent = await behaviour.send(our_name_server, topic, 8)
    listener = Collecting()
    consumer = push(our_name_server, topic, listener, group=group)
    async with consumer:
        await until(lambda: listener.numbers == set(range(8)))

        def tool(command, *arguments):
            return peer.mqadmin(version, command, "-n", our_name_server, "-g", group, *arguments)

        status = await asyncio.to_thread(tool, "consumerStatus", "-i", consumer.client_id)
        asked = ("-t", topic) if version != "4.9.7" else ()
        which = ("-i", sent[3].offset_msg_id, "-d", consumer.client_id, *asked)
        direct = await asyncio.to_thread(tool, "queryMsgById", *which)
    assert sent[3].offset_msg_id in [each.offset_msg_id for each in listener.messages[8:]]
    assert "CONSUME_PASSIVELY" in status
    assert status.count("ProcessQueueInfo [commitOffset=2") == 4
    assert "consumeResult=CR_SUCCESS" in direct


# One group of members in Python and Java.


def owned(consumer):
    return {each.queue_id for each in consumer.assignment if each.topic == "Mixed"}


def is_shared(*shares):
    """Whether all eight queues are somebody's, none of them twice, and the shares are even."""
    sizes = [len(each) for each in shares]
    return (
        sum(sizes) == 8 and set().union(*shares) == set(range(8)) and max(sizes) - min(sizes) <= 1
    )


async def keep_sending(name_server, topic, sent, stop):
    """Send numbered messages until told to stop; those that were acknowledged are in ``sent``."""
    async with Producer(name_server, send_timeout_s=10) as producer:
        number = 0
        while not stop.is_set():
            with suppress(RocketLensError):
                await producer.send(Message(topic, str(number)))
                sent.append(number)
            number += 1
            await asyncio.sleep(0.01)


def test_members_in_python_and_java_share_a_topic_through_joins_leaves_and_kills(
    broker, peer, tmp_path
):
    async def scenario(name_server, running):
        async with MQAdmin(name_server) as admin:
            await admin.create_topic("Mixed", 8)
        sent, stop = [], asyncio.Event()
        sending = asyncio.create_task(keep_sending(name_server, "Mixed", sent, stop))
        first, second = Collecting(), Collecting()
        group = "g_mixed"
        one = push(name_server, "Mixed", first, group=group)
        two = push(name_server, "Mixed", second, group=group)
        await one.start()
        await until(lambda: is_shared(owned(one)))
        java = await asyncio.to_thread(
            JavaMember, peer, broker.version, tmp_path, name_server, group, "Mixed"
        )
        running.callback(java.kill)
        await until(lambda: is_shared(owned(one), java.queues))
        await two.start()
        await until(lambda: is_shared(owned(one), owned(two), java.queues))
        await until(lambda: len(java.bodies) > 20)
        java.process.kill()
        await until(lambda: is_shared(owned(one), owned(two)))
        await one.close()
        await until(lambda: is_shared(owned(two)))
        stop.set()
        await sending
        await until(lambda: set(sent) <= {*first.bodies, *second.bodies, *java.bodies})
        await two.close()

    with ExitStack() as running:
        asyncio.run(scenario(broker.namesrv_address, running))


def kill_and_restart(broker):
    broker.broker.kill()
    broker.broker.wait()
    assert (broker.store / "abort").exists()
    broker.broker = subprocess.Popen(
        broker.broker.args,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=broker.directory,
    )
    wait_until(lambda: accepts_connections(broker.broker_port), broker.broker, START_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_is_killed_and_comes_back_loses_no_message(version, peer, tmp_path):
    async def scenario(broker, running):
        name_server = broker.namesrv_address
        async with MQAdmin(name_server) as admin:
            await admin.create_topic("Restarted", 4)
        sent, stop = [], asyncio.Event()
        sending = asyncio.create_task(keep_sending(name_server, "Restarted", sent, stop))
        listener = Collecting()
        async with push(name_server, "Restarted", listener):
            await until(lambda: len(listener.messages) > 50)
            await asyncio.to_thread(kill_and_restart, broker)
            running.callback(reap, broker.broker)
            count = len(listener.messages)
            await until(lambda: len(listener.messages) > count + 50)
            stop.set()
            await sending
            await until(lambda: set(sent) <= set(listener.bodies))

    with ExitStack() as running, peer.start(version, tmp_path, **WITHOUT_TIMERS) as broker:
        asyncio.run(scenario(broker, running))


async def test_a_group_goes_on_in_python_where_java_stopped(peer, broker, tmp_path):
    name_server = broker.namesrv_address
    await behaviour.send(name_server, "Taken", 30)
    java = await asyncio.to_thread(
        JavaMember, peer, broker.version, tmp_path, name_server, "g_taken", "Taken"
    )
    try:
        await until(lambda: set(java.bodies) == set(range(30)))
        async with LitePullConsumer(name_server, group="g_other") as reader:
            queues = await reader.message_queues("Taken")
        consumer = PushConsumer(name_server, group="g_taken")
        offsets = consumer._store

        async def committed():
            return sum([await offsets.read(each) or 0 for each in queues])

        async with asyncio.timeout(PATIENCE_S):
            while await committed() < 30:  # noqa: ASYNC110 - Java commits every 5 s
                await asyncio.sleep(0.2)
        await consumer.close()
    finally:
        java.kill()
    await behaviour.send(name_server, "Taken", 4)
    listener = Collecting()
    async with push(name_server, "Taken", listener, group="g_taken"):
        await until(lambda: listener.numbers == {0, 1, 2, 3})
    assert len(listener.messages) < 30, "Java's offsets were not taken over"


# Jobs that send stored messages and dead letters again.


def job(directory, name_server, *words):
    """Return the command line of a job, and the environment it runs in."""
    command = [sys.executable, "-m", "rocketlens.main", *words, "--namesrv", name_server]
    command += ["--job", str(directory / "a.job"), "--send", "--reason", "mended", "-o", "json"]
    return command, {**os.environ, "XDG_STATE_HOME": str(directory)}


def dead_letters(name_server, *groups):
    """Return what ``dlq list`` prints of each group: its name, its messages, and an error."""
    command = [sys.executable, "-m", "rocketlens.main", "dlq", "list", *groups]
    command += ["--namesrv", name_server, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = [json.loads(line) for line in done.stdout.splitlines()]
    return [(each["group"], each["messages"], each["error"]) for each in listed]


def run_in_two_lives(directory, name_server, *words):
    """Kill a job when it has sent one message, and have it resumed; return the states of all."""
    directory.mkdir()
    command, environment = job(directory, name_server, *words)
    with subprocess.Popen(
        [*command, "--rate", "1"], stdout=subprocess.PIPE, text=True, env=environment
    ) as killed:
        assert json.loads(killed.stdout.readline())["state"] == "sent"
        killed.kill()
    done = subprocess.run(
        [*command, "--rate", "1000"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["state"] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_killed_jobs_send_dead_letters_and_stored_messages_again_once(broker, tmp_path):
    name_server, group = broker.namesrv_address, "g_Buried"
    sent = asyncio.run(behaviour.send(name_server, "Buried", 6))

    async def bury():
        refused = []

        async def listener(messages, context):
            refused.extend(messages)
            context.delay_level = -1
            raise ValueError("as it was told to")

        async with push(name_server, "Buried", listener, group=group):
            await until(lambda: len({each.offset_msg_id for each in refused}) == 6)
            async with MQAdmin(name_server) as admin, asyncio.timeout(PATIENCE_S):
                while len(await stored(admin, f"%DLQ%{group}")) < 6:  # noqa: ASYNC110 - the broker's
                    await asyncio.sleep(0.1)

    async def stored(admin, topic):
        try:
            return (await admin.find(None, topic)).messages
        except TopicNotFound:
            return ()

    async def copies():
        """Return the body of each copy by its marker: those stored, and those consumed."""
        again = Collecting()

        def consumed():
            return {
                each.properties[MARKER]: int(each.body)
                for each in again.messages
                if MARKER in each.properties
            }

        async with push(name_server, "Buried", again, group=group):
            await until(lambda: len(consumed()) >= 9)
        async with MQAdmin(name_server) as admin:
            topics = ("Buried", f"%RETRY%{group}")
            found = [each for topic in topics for each in await stored(admin, topic)]
        marked = [each for each in found if MARKER in each.properties]
        return sorted(int(each.body) for each in marked), sorted(consumed().values())

    asyncio.run(bury())
    assert dead_letters(name_server, group) == [(group, 6, None)]
    assert (group, 6, None) in dead_letters(name_server)
    redriven = run_in_two_lives(tmp_path / "redrive", name_server, "dlq", "redrive", group)
    ids = [each.offset_msg_id for each in sent[:3]]
    resent = run_in_two_lives(tmp_path / "resend", name_server, "resend", *ids)
    stored_again, consumed_again = asyncio.run(copies())
    assert set(redriven + resent) == {"sent"}, (redriven, resent)
    assert stored_again == consumed_again == [0, 0, 1, 1, 2, 2, 3, 4, 5]
