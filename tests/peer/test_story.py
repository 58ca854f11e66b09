"""Stories of what real clients did, and what the real tool reads of our traces."""

import asyncio
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketlens import (
    LocalTransactionState,
    Message,
    MQAdmin,
    Producer,
    PushConsumer,
    TransactionProducer,
    open_store,
)
from rocketlens.main import main
from tests.peer.rocketmq_peer import POLL_SECONDS, VERSIONS, wait_until
from tests.support.patience import PATIENCE_S

JAVA = Path(__file__).parent / "java"
VECTORS = Path(__file__).parents[1] / "unit" / "formats" / "java_trace_vectors.txt"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_encoder_of_both_releases_writes_what_ours_is_compared_with(version, peer):
    printed = peer.java(version, JAVA / "TraceJudge.java").splitlines()
    kinds = ("Pub\t", "SubBefore\t", "SubAfter\t", "EndTransaction\t")
    lines = [line for line in printed if line.startswith(kinds)]
    assert lines == VECTORS.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request, peer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("story")
    settings = {"traceTopicEnable": True, "mappedFileSizeCommitLog": 16 << 20}
    # A broker of RocketMQ 5 spins from this long after its first transaction until it ends.
    settings["transactionOpBatchInterval"] = 600_000
    with peer.start(request.param, directory, **settings) as running:
        yield running


async def story_when(name_server, text, is_told):
    """Return the story once the broker has what is waited for."""
    async with asyncio.timeout(PATIENCE_S), MQAdmin(name_server) as admin:
        while True:
            story = await admin.story(text)
            if is_told(story):
                return story
            # A story looks through all that the cluster has; RocketMQ sends again after 10 s.
            await asyncio.sleep(1)


def _has_consumed(story):
    """Return whether a client told that it consumed it, and the end of each call."""
    kinds = [each.kind for each in story.events]
    return "consumed" in kinds and "handed_out" not in kinds


@contextmanager
def _java_clients(peer, broker, directory):
    """Run a producer and a consumer in Java; give the id of what was sent."""
    source = JAVA / "Traced.java"
    classes = peer.compiled(broker.version, source)
    arguments = (source.stem, broker.namesrv_address, "JavaTraced")
    command = peer.command(broker.version, directory, *arguments, classes=classes)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            for line in process.stdout:
                if line.startswith("sent "):
                    yield line.split()[1]
                    break
        finally:
            process.stdin.close()
            process.kill()


def test_a_story_of_java_clients_has_their_traces_and_copies(peer, broker, tmp_path):
    with _java_clients(peer, broker, tmp_path) as msg_id:
        # Between a story's search of copies and that of traces, the retry may come and be consumed.
        story = asyncio.run(
            story_when(
                broker.namesrv_address,
                msg_id,
                lambda told: _has_consumed(told) and "retry" in [each.kind for each in told.events],
            )
        )
    kinds = [each.kind.value for each in story.events]
    assert kinds[0] == "sent"
    all_of_it = {"sent", "stored", "consume_failed", "given_back", "retry", "consumed"}
    # A consumer in Java can lose its first traces: it may have no route of their topic yet.
    assert all_of_it - {"consume_failed"} <= set(kinds) <= all_of_it
    assert kinds.count("sent") == 2
    [group] = story.groups
    assert (group.group, group.state.value, group.retries) == ("java_group", "consumed", 1)
    assert group.max_retries == 16
    assert (story.complete, story.repeats, group.repeats) == (True, (), ())
    assert next(each.source for each in story.events if each.kind == "stored") == "broker-a"


def test_a_reset_of_a_group_without_clients_is_told_from_consumption(broker):
    name_server, topic, group = broker.namesrv_address, "Reset", "reset_group"

    async def scenario():
        async with (
            asyncio.timeout(PATIENCE_S),
            Producer(name_server, send_timeout_s=PATIENCE_S) as producer,
            MQAdmin(name_server) as admin,
        ):
            await admin.create_topic(topic, 1)
            first = await producer.send(Message(topic, b"first"))
            consumed = asyncio.Event()

            async def listener(_messages, _context):
                consumed.set()

            consumer = PushConsumer(name_server, group=group, begin="first")
            consumer.subscribe(topic)
            consumer.listen(listener)
            async with consumer:
                await consumed.wait()
            sent = [
                await producer.send_batch([Message(topic, b"x") for _ in range(100)])
                for _ in range(12)
            ]
            # The end of the queue is where its entries end, which come after the answers.
            (queue,) = await admin.message_queues(topic)
            while await admin.max_offset(queue) < 1201:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(POLL_SECONDS)
            await admin.reset_offset_by_time_old(group, topic, -1)
            ids = (first.msg_id, sent[0].msg_ids[50])
            return ids, [(await admin.story(each)).groups for each in ids]

    ids, cluster = asyncio.run(scenario())
    # Brokers do not say where pulls began, and 4.9 does not remember it.
    assert [each.state.value for [each] in cluster] == ["passed_offline"] * 2
    state = "passed" if broker.version == "4.9.7" else "passed_by_reset"
    store, table = broker.directory / "store", broker.directory / "store/config/consumerOffset.json"

    def is_written():
        return (
            table.exists()
            and f"{topic}@{group}" in table.read_text()
            and "1201" in table.read_text()
        )

    wait_until(is_written, broker.broker, PATIENCE_S)
    with open_store(store) as opened:
        files = [opened.story(each, group=group).groups for each in ids]
    assert [each.state.value for [each] in files] == ["passed", state]


def commit(_):
    return LocalTransactionState.COMMIT


async def _our_clients(name_server, topic):
    consumed = asyncio.Event()

    async def listener(_messages, _context):
        consumed.set()

    options = {"group": "our_producer", "trace": True}
    async with asyncio.timeout(PATIENCE_S):
        async with Producer(name_server, **options, send_timeout_s=PATIENCE_S) as producer:
            sent = await producer.send(Message(topic, b"x", tags="A", keys=["k1", "k2"]))
            consumer = PushConsumer(name_server, group="our_group", begin="first", trace=True)
            consumer.subscribe(topic)
            consumer.listen(listener)
            async with consumer:
                await consumed.wait()
        half = {"group": "our_half", "trace": True, "check": commit}
        async with TransactionProducer(name_server, **half) as producer:
            ended = await producer.send_in_transaction(Message(topic, b"y"), commit)
    return sent.msg_id, ended.send_result.msg_id


@pytest.mark.parametrize("tool_version", VERSIONS)
def test_the_real_tool_reads_what_our_clients_traced(peer, broker, tool_version, capsys):
    name_server, topic = broker.namesrv_address, f"OurTraced{tool_version[0]}"
    msg_id, half_id = asyncio.run(_our_clients(name_server, topic))

    asyncio.run(story_when(name_server, msg_id, _has_consumed))
    for each, group in ((msg_id, "our_producer"), (half_id, "our_half")):
        asked = ("queryMsgTraceById", "-n", name_server, "-i", each)
        theirs = peer.mqadmin(tool_version, *asked)
        capsys.readouterr()
        assert main(["mqadmin", *asked]) == 0
        ours = capsys.readouterr().out
        rows = [line for line in theirs.splitlines() if line.startswith(("Pub", "Sub", "#Type"))]
        assert rows == [line for line in ours.splitlines() if line]
        assert re.search(rf"^Pub +{group} +\S+ .* success", theirs, re.MULTILINE)
    theirs = peer.mqadmin(tool_version, "queryMsgTraceById", "-n", name_server, "-i", msg_id)
    assert re.search(r"^Sub +our_group .* success", theirs, re.MULTILINE)
