"""Transactions: Java producers on our broker, and ours on real brokers."""

import asyncio
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketlens import LocalTransactionState, Message, MQAdmin, TransactionProducer
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import POLL_SECONDS, VERSIONS, reap
from tests.support.patience import PATIENCE_S

PROGRAM = Path(__file__).parent / "java" / "Transactions.java"
CHECKED = re.compile(r"checked: (\w+) (\d+)")
AT_ONCE = {"transactionTimeOut": 500, "transactionCheckInterval": 1000}
SOON = {"transactionTimeOut": 6000, "transactionCheckInterval": 1000}
"""RocketMQ 5 writes marks every 3 s: it would ask about transactions that were just ended."""


async def delivered(name_server, topic, keys):
    """Wait until all of some keys are in a topic; returns how often each is there."""
    async with MQAdmin(name_server) as admin, asyncio.timeout(PATIENCE_S):
        while True:
            found = {
                key: len((await admin.find(key, topic, only_delivered=True)).messages)
                for key in keys
            }
            if all(found.values()):
                return found
            await asyncio.sleep(POLL_SECONDS)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_producer_ends_its_transactions_on_our_broker(peer, tmp_path, version):
    with ExitStack() as running:
        namesrv = OurNameServer()
        running.callback(namesrv.close)
        broker = OurBroker(tmp_path, str(namesrv.address), **AT_ONCE)
        running.callback(broker.process.stdout.close)
        running.callback(reap, broker.process)
        printed = peer.java(version, PROGRAM, str(namesrv.address), "JavaTransactions")
        # A check before the first heartbeat of the producer, or whose answer takes longer than
        # the time to the next one, counts, too.
        times_checked = {key: int(number) for key, number in CHECKED.findall(printed)}
        assert times_checked.keys() == {"large", "later", "never", "throw"}
        assert times_checked["later"] >= 2
        lines = sorted({CHECKED.sub(r"checked: \1", each) for each in printed.splitlines()})
        assert [each for each in lines if ": " in each] == [
            "all checked: true",
            "checked: large JavaTransactions true true",
            "checked: later JavaTransactions true true",
            "checked: never JavaTransactions true true",
            "checked: throw JavaTransactions true true",
            "sent: commit COMMIT_MESSAGE",
            "sent: large UNKNOW",
            "sent: later UNKNOW",
            "sent: never UNKNOW",
            "sent: rollback ROLLBACK_MESSAGE",
            "sent: throw UNKNOW",
        ], printed
        keys = ("commit", "later", "throw", "large")
        times = asyncio.run(delivered(str(namesrv.address), "JavaTransactions", keys))
        assert times == dict.fromkeys(keys, 1)
        broker.stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_our_producer_ends_its_transactions_on_a_real_broker(peer, tmp_path, version):
    checks = []

    async def check(message):
        (key,) = message.keys
        checks.append((message.topic, key, message.body))
        return {"later": LocalTransactionState.COMMIT, "never": LocalTransactionState.ROLLBACK}[key]

    states = {
        "commit": LocalTransactionState.COMMIT,
        "rollback": LocalTransactionState.ROLLBACK,
        "never": LocalTransactionState.UNKNOWN,
        "later": LocalTransactionState.UNKNOWN,
    }

    async def scenario(name_server):
        async with TransactionProducer(name_server, group="ours", check=check) as producer:
            for key, state in states.items():
                message = Message("PythonTransactions", "x" * 9000, keys=key)
                result = await producer.send_in_transaction(message, lambda _, state=state: state)
                assert result.local_transaction_state is state
            await delivered(name_server, "PythonTransactions", ("commit", "later"))
            async with MQAdmin(name_server) as admin:
                for key in ("rollback", "never"):
                    assert not (
                        await admin.find(key, "PythonTransactions", only_delivered=True)
                    ).messages
        assert {key for _, key, _ in checks} == {"later", "never"}
        assert all(found[::2] == ("PythonTransactions", b"x" * 9000) for found in checks)

    # Not a broker that tests share: after a transaction one of RocketMQ 5 spins until it ends.
    with peer.start(version, tmp_path / "broker", **SOON) as broker:
        asyncio.run(scenario(broker.namesrv_address))
