"""What a real broker has is archived over the network, and found when its store is gone."""

import shutil

import pytest

import rocketlens
from rocketlens import Message
from rocketlens.cli.jobs import archive as archive_command
from rocketlens.client.blocking.sync_producer import SyncProducer
from rocketlens.main import main
from tests.support.patience import PATIENCE_S

COMPRESSED = b"a body that is worth compressing " * 300


@pytest.mark.slow
def test_messages_of_a_real_broker_are_archived_over_the_network_and_found_without_its_store(
    peer, spark, tmp_path, monkeypatch
):
    monkeypatch.setattr(archive_command, "task_context", lambda _: spark.sparkContext)
    lake = tmp_path / "lake"
    with peer.start("5.5.0", tmp_path / "peer") as broker:
        with SyncProducer(broker.namesrv_address, send_timeout_s=PATIENCE_S) as producer:
            for number in range(150):
                body = COMPRESSED if number % 50 == 0 else b"body %d" % number
                message = Message("AB"[number % 2], body, keys=f"k{number} x", tags="t")
                producer.send(message)
            producer.send_batch([Message("A", b"one of %d" % n, keys=f"b{n}") for n in range(9)])
        command = ["archive", "run", "--table", str(lake), "-n", broker.namesrv_address]
        assert main([*command, "--topic", "A,B", "--once"]) == 0
        assert main([*command, "--topic", "A,B", "--once"]) == 0
        with rocketlens.SyncMQAdmin(broker.namesrv_address) as admin:
            messages = list(admin.scan(["A", "B"]))
        broker.stop()
        shutil.rmtree(broker.store)
    assert len(messages) == 159
    with rocketlens.open_archive(lake) as archive:
        assert sorted(map(repr, archive.scan())) == sorted(map(repr, messages))
        for message in messages:
            for text in (message.unique_key, message.offset_msg_id, message.keys[0]):
                answer = archive.find(text)
                assert message in answer.messages, text
                assert answer.complete
            assert archive.find(message.position).messages == (message,)
        at = sorted(each.store_timestamp_ms for each in messages)[70]
        since = {repr(each) for each in messages if each.store_timestamp_ms >= at}
        assert {repr(each) for each in archive.scan(begin=at)} == since
        found = archive.find(grep="body 7[0-9]$", all_topics=True).messages
        assert sorted(each.body for each in found) == [b"body %d" % n for n in range(70, 80)]
        assert len(archive.find(grep="worth compressing", all_topics=True)) == 3
