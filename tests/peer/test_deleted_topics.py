"""Topics that a real broker deletes and makes again: its store is sound, and stays what it is."""

import shutil

import pytest

from rocketlens import Message
from rocketlens.client.blocking.sync_producer import SyncProducer
from tests.support.patience import PATIENCE_S
from tests.support.synthetic import files_below

QUEUES = 4


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_verify_finds_nothing_and_build_makes_the_brokers_own_queues(
    peer, spark, tmp_path, version, end
):
    from rocketlens.pipeline.dispatch import dispatch
    from rocketlens.pipeline.verify import verify

    settings = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
    with peer.start(version, tmp_path, **settings) as broker:

        def make(topic):
            told("updateTopic", "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES))

        def told(name, *arguments):
            address = ("-c", "DefaultCluster", "-n", broker.namesrv_address)
            assert "success" in peer.mqadmin(version, name, *arguments, *address)

        def send(topic, count, text):
            with SyncProducer(broker.namesrv_address, send_timeout_s=PATIENCE_S) as producer:
                for number in range(count):
                    producer.send(Message(topic, f"{text}{number}"))

        topics = ("Gone", "Again", "Empty", "Kept", "Twice")
        for topic in topics:
            make(topic)
            send(topic, 11, "old")
        for topic in set(topics) - {"Kept"}:
            told("deleteTopic", "-t", topic)
        for topic in ("Again", "Empty", "Twice"):
            make(topic)
        send("Twice", 9, "older")
        told("deleteTopic", "-t", "Twice")
        make("Twice")
        for topic, count in (("Again", 3), ("Twice", 7), ("Kept", 5)):
            send(topic, count, "new")
        assert (broker.store / "consumequeue" / "Twice").is_dir()
        if end == "kill":
            broker.kill()
        else:
            broker.stop()
        store = shutil.copytree(broker.store, tmp_path / "copy")

    report = verify(spark, store)
    assert report.is_sound, report.findings
    before = files_below(store / "consumequeue")
    dispatch(spark, store, queues=True)
    assert files_below(store / "consumequeue") == before
    assert verify(spark, store).is_sound
    # With the queues lost, too, only messages of "Empty" cannot be told from ones that are wanted.
    shutil.rmtree(store / "consumequeue")
    dispatch(spark, store, queues=True, queue_file_size=6000)
    after = files_below(store / "consumequeue")
    assert {name: after[name] for name in before} == before
    assert {name.partition("/")[0] for name in after.keys() - before.keys()} == {"Empty"}
