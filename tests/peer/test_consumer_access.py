"""Our consumers, transactions and Spark's tasks on real brokers with TLS and accounts."""

import asyncio

import pytest

from rocketlens import (
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MessageQueue,
    MQAdmin,
    TransactionProducer,
)
from rocketlens.bulk.options import known_options
from rocketlens.client.blocking.sync_producer import SyncProducer
from rocketlens.client.connect.cluster import Credentials
from rocketlens.errors import BrokerError, RocketLensError
from rocketlens.net.tls import client_context
from rocketlens.pipeline.cluster_scan import ClusterScan
from tests.peer.rocketmq_peer import VERSIONS
from tests.peer.test_client import WHO_ASKS, guard
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume.behaviour import Collecting, push, until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", VERSIONS)
def test_consumers_and_transactions_with_an_account_and_tls(
    peer, certificate, tmp_path, monkeypatch, version
):
    file = guard(peer, certificate, tmp_path, monkeypatch)

    async def scenario(broker):
        reached = {
            "name_servers": broker.namesrv_address,
            "tls": client_context(ca=file),
            "credentials": Credentials("administrator", "12345678"),
        }
        async with MQAdmin(**reached) as admin:
            for topic in ("Guarded", "Ordered"):
                await admin.create_topic(topic, 4)

        async def check(_):
            return LocalTransactionState.COMMIT

        async with TransactionProducer(**reached, group="p_guarded", check=check) as producer:
            for number in range(20):
                state = (LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK)[number % 2]
                message = Message("Guarded", str(number))
                await producer.send_in_transaction(message, lambda _, state=state: state)
                await producer.send(Message("Ordered", str(number)))
        name_server = reached.pop("name_servers")
        listener, in_order = Collecting(lambda each: each.reconsume_times < 1), Collecting()
        async with (
            push(name_server, "Guarded", listener, **reached),
            push(name_server, "Ordered", in_order, orderly=True, **reached),
        ):
            await until(lambda: len(listener.messages) == 10 and len(in_order.messages) == 20)
        assert listener.bodies == list(range(0, 20, 2))
        queue = MessageQueue("Ordered", "broker-a", 0)
        async with LitePullConsumer(name_server, group="g_Ordered", **reached) as consumer:
            consumer.assign([queue])
            assert await consumer.committed(queue) == await consumer.max_offset(queue) > 0
            await consumer.seek_to_begin(queue)
            async with asyncio.timeout(PATIENCE_S):
                while not await consumer.poll():
                    pass
        wrong = reached | {"credentials": Credentials("administrator", "87654321")}
        async with LitePullConsumer(name_server, group="g_Ordered", **wrong) as consumer:
            consumer.assign([queue])
            with pytest.raises(BrokerError):
                await consumer.committed(queue)

    settings = WHO_ASKS[version]
    if version == "5.5.0":
        settings = {**settings, "authConfigPath": tmp_path / "auth"}
    with peer.start(version, tmp_path, **settings) as broker:
        asyncio.run(scenario(broker))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_is_read_with_an_account_and_tls_and_refuses_a_wrong_secret_by_its_name(
    peer, certificate, tmp_path, monkeypatch, version
):
    file = guard(peer, certificate, tmp_path, monkeypatch)
    settings = WHO_ASKS[version]
    if version == "5.5.0":
        settings = {**settings, "authConfigPath": tmp_path / "auth"}
    with peer.start(version, tmp_path, **settings) as broker:
        with SyncProducer(
            broker.namesrv_address,
            send_timeout_s=PATIENCE_S,
            tls=client_context(ca=file),
            credentials=Credentials("administrator", "12345678"),
        ) as producer:
            for number in range(20):
                producer.send(Message("Guarded", str(number)))
        secret = tmp_path / "secret"
        secret.write_text("12345678\n", encoding="utf-8")
        options = {
            "namesrv": broker.namesrv_address,
            "subscribe": "Guarded",
            "failOnDataLoss": "true",
            "accessKey": "administrator",
            "secretKeyFile": str(secret),
            "ca": str(file),
        }
        scan = ClusterScan(known_options(options, "cluster reads"))
        shares = scan.shares()
        bodies = [
            int(row["body"])
            for share in shares
            for batch in scan.read(share)
            for row in batch.to_pylist()
        ]
        assert sorted(bodies) == list(range(20))
        secret.write_text("87654321\n", encoding="utf-8")
        with pytest.raises(RocketLensError, match=r"^broker-a: ") as refused:
            list(scan.read(shares[0]))
        assert "87654321" not in str(refused.value)
