"""What Spark's tasks pull from real brokers with TLS and accounts."""

import pytest

from rocketlens import Message
from rocketlens.bulk.options import known_options
from rocketlens.client.blocking.sync_producer import SyncProducer
from rocketlens.client.connect.cluster import Credentials
from rocketlens.errors import RocketLensError
from rocketlens.net.tls import client_context
from rocketlens.pipeline.cluster_scan import ClusterScan
from tests.peer.rocketmq_peer import VERSIONS
from tests.peer.test_client import WHO_ASKS, guard
from tests.support.patience import PATIENCE_S


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
