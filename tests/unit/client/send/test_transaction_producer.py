"""Messages in transactions, on our own broker."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

import rocketlens
from rocketlens.client.send.transaction_producer import LocalTransactionState, TransactionProducer
from rocketlens.errors import BadInput, MessageIllegal
from rocketlens.testing import embedded
from tests.support.patience import PATIENCE_S

COMMIT, ROLLBACK, UNKNOWN = (
    LocalTransactionState.COMMIT,
    LocalTransactionState.ROLLBACK,
    LocalTransactionState.UNKNOWN,
)


@pytest.fixture(scope="module")
def cluster():
    """Half messages are asked about at once, and as often as a slow producer needs to be there."""
    with embedded.cluster(
        transactionTimeOut=1, transactionCheckInterval=500, transactionCheckMax=254
    ) as running:
        yield running


@asynccontextmanager
async def producer(cluster, check, **options):
    async with TransactionProducer(
        cluster.name_server, group="orders", check=check, **options
    ) as started:
        yield started


def message(topic, key):
    return rocketlens.Message(topic, b"body", keys=key)


async def delivered(cluster, topic, key):
    """Wait until a message is in its topic."""
    async with rocketlens.MQAdmin(cluster.name_server) as admin, asyncio.timeout(PATIENCE_S):
        while True:
            found = (await admin.find(key, topic, only_delivered=True)).messages
            if found:
                return found


async def never_asked(_):
    raise AssertionError


async def test_what_is_committed_is_delivered_and_what_is_rolled_back_is_not(cluster):
    seen = []

    async def execute(sent, state):
        seen.append(sent.unique_key)
        return state

    async with producer(cluster, never_asked) as orders:
        rolled_back = await orders.send_in_transaction(
            message("ByItsEnd", "A"), lambda sent: execute(sent, ROLLBACK)
        )
        committed = await orders.send_in_transaction(
            message("ByItsEnd", "B"), lambda sent: execute(sent, COMMIT)
        )
        assert rolled_back.local_transaction_state is ROLLBACK
        assert committed.local_transaction_state is COMMIT
        (found,) = await delivered(cluster, "ByItsEnd", "B")
        assert found.msg_id == committed.send_result.msg_id == seen[1]
        assert found.sys_flag & 0xC == 8
        async with rocketlens.MQAdmin(cluster.name_server) as admin:
            assert not (await admin.find("A", "ByItsEnd", only_delivered=True)).messages


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_broker_asks_until_the_check_knows(cluster, is_async):
    topic = f"ByCheck{is_async}"
    seen, threads = [], set()

    def check(asked):
        threads.add(threading.current_thread())
        seen.append((asked.topic, asked.body, asked.keys))
        times = int(asked.properties["TRANSACTION_CHECK_TIMES"])
        if times == 1:
            raise OSError("the database is away")
        return {2: None, 3: UNKNOWN}.get(times, COMMIT)

    async def async_check(asked):
        return check(asked)

    async with producer(cluster, async_check if is_async else check) as orders:
        result = await orders.send_in_transaction(message(topic, "C"), lambda _: UNKNOWN)
        assert result.local_transaction_state is UNKNOWN
        assert len(await delivered(cluster, topic, "C")) == 1
        assert seen == [(topic, b"body", ("C",))] * 4
        assert (threading.main_thread() in threads) is is_async


async def test_an_error_of_the_local_transaction_is_raised_and_the_broker_asks(cluster):
    async def fails(_):
        raise KeyError("no such account")

    async with producer(cluster, lambda _: COMMIT) as orders:
        with pytest.raises(KeyError):
            await orders.send_in_transaction(message("Failed", "D"), fails)
        assert await delivered(cluster, "Failed", "D")


async def test_the_next_producer_of_the_group_is_asked_about_messages_of_the_last(cluster):
    async with producer(cluster, lambda _: UNKNOWN) as orders:
        await orders.send_in_transaction(message("Left", "E"), lambda _: UNKNOWN)
    async with producer(cluster, lambda _: COMMIT, topics=["Left", "Missing"]):
        assert await delivered(cluster, "Left", "E")


def test_without_an_event_loop(cluster):
    with rocketlens.SyncTransactionProducer(
        cluster.name_server, group="sync", check=lambda _: COMMIT
    ) as orders:
        result = orders.send_in_transaction(message("Sync", "F"), lambda _: COMMIT)
        assert result.local_transaction_state is COMMIT
        assert asyncio.run(delivered(cluster, "Sync", "F"))


def test_a_delayed_message_cannot_be_in_a_transaction(cluster):
    async def main():
        async with producer(cluster, never_asked) as orders:
            delayed = rocketlens.Message("T", "x", delay_level=1)
            with pytest.raises(MessageIllegal, match="cannot be delayed"):
                await orders.send_in_transaction(delayed, lambda _: COMMIT)

    asyncio.run(main())
    with pytest.raises(BadInput, match="check_threads"):
        TransactionProducer("127.0.0.1:1", check=never_asked, check_threads=0)


async def test_checks_are_answered_also_after_a_defect(cluster, monkeypatch):
    asked = []

    async def check(found):
        asked.append(found.unique_key)
        return COMMIT

    async with producer(cluster, check, check_threads=1) as orders:
        tell = orders._cluster.tell

        async def defect(*given):
            monkeypatch.setattr(orders._cluster, "tell", tell)
            raise ValueError("a defect")

        monkeypatch.setattr(orders._cluster, "tell", defect)
        with pytest.raises(ValueError, match="a defect"):
            await orders.send_in_transaction(message("AfterADefect", "A"), lambda _: COMMIT)
        monkeypatch.setattr(orders._cluster, "tell", defect)
        await delivered(cluster, "AfterADefect", "A")
    assert len(asked) >= 2
