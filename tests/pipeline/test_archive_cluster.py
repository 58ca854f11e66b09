"""Topics of a running cluster are archived queue by queue, as their messages come."""

import pytest

import rocketlens
from rocketlens.archive.journal import ArchiveTables
from rocketlens.errors import BadInput
from rocketlens.pipeline.archive import ArchivedStore, archive_next
from rocketlens.pipeline.archive_cluster import ArchivedCluster
from rocketlens.testing import cluster
from tests.support.archives import run_here


@pytest.fixture(scope="module")
def running():
    with cluster() as started:
        yield started


def send(running, topic, first, count):
    with running.producer() as producer:
        for number in range(first, first + count):
            message = rocketlens.Message(topic, b"body %d" % number, keys=f"{topic}-{number}")
            producer.send(message)


def archive_all(root, running, topic):
    tables = ArchiveTables(str(root), create=True)
    source = ArchivedCluster({"namesrv": running.name_server, "subscribe": topic})
    return list(iter(lambda: archive_next(tables, source, run_here), None))


def test_messages_of_a_cluster_are_archived_once_and_found(running, tmp_path):
    send(running, "Orders", 0, 20)
    assert sum(each.messages for each in archive_all(tmp_path, running, "Orders")) == 20
    assert archive_all(tmp_path, running, "Orders") == []
    send(running, "Orders", 20, 5)
    assert sum(each.messages for each in archive_all(tmp_path, running, "Orders")) == 5
    with rocketlens.SyncMQAdmin(running.name_server) as admin:
        messages = admin.find(topic="Orders").messages
    with rocketlens.open_archive(tmp_path) as archive:
        assert sorted(map(repr, archive.find(topic="Orders"))) == sorted(map(repr, messages))
        for message in messages:
            for text in (message.keys[0], message.unique_key, message.offset_msg_id):
                assert list(archive.find(text).messages) == [message]
            assert archive.find(message.position).messages == (message,)
    answer = rocketlens.find("Orders-3", sources=[tmp_path, running.name_server])
    assert len(answer.messages) == 1
    assert answer.complete


def test_a_broker_is_not_archived_by_its_store_and_by_pull(running, tmp_path, golden):
    send(running, "Payments", 0, 1)
    (batch,) = archive_all(tmp_path, running, "Payments")
    (broker,) = (name.rpartition("/")[2] for name in batch.brokers)
    store = ArchivedStore(str(golden("5.5.0").store), broker)
    with pytest.raises(BadInput, match="would be there twice"):
        archive_next(ArchiveTables(str(tmp_path)), store, run_here)
