"""Messages that a real broker does not let be pulled: found, or told of, and never "not found"."""

import pytest

from rocketlens import Message, SyncMQAdmin
from rocketlens.client.blocking.sync_producer import SyncProducer
from rocketlens.errors import StoreError
from tests.conftest import WITHOUT_TIMERS
from tests.support.effort import sized
from tests.support.layouts import SentMessage, ids
from tests.support.patience import PATIENCE_S

QUEUES = 4
COUNT = 40
HIDDEN, SHRUNK, COMPACTED, PLAIN = "Hidden", "Shrunk", "Compacted", "Plain"
KINDS = (
    *((version, topic) for version in ("4.9.7", "5.5.0") for topic in (PLAIN, HIDDEN, SHRUNK)),
    ("5.5.0", COMPACTED),
)


@pytest.fixture(scope="module")
def broker_of(peer, tmp_path_factory):
    """Return ``broker_of(version)``: a broker, and what each topic had before it was changed."""
    started = {}

    def of_version(version):
        if version not in started:
            start = peer.start(version, tmp_path_factory.mktemp("hidden"), **WITHOUT_TIMERS)
            broker = start.__enter__()
            started[version] = start, broker, fill(peer, broker, version)
        return started[version][1:]

    yield of_version
    for start, *_ in started.values():
        start.__exit__(None, None, None)


def fill(peer, broker, version):
    """Create the topics, send messages to each, and take away what can be pulled of them."""

    def change(topic, queues, perm, *more):
        made = ("updateTopic", "-n", broker.namesrv_address, "-c", "DefaultCluster", "-t", topic)
        said = peer.mqadmin(version, *made, "-r", queues, "-w", queues, "-p", perm, *more)
        assert "create topic to" in said, said

    topics = [topic for each, topic in KINDS if each == version]
    for topic in topics:
        compacts = ("-a", "+cleanup.policy=COMPACTION") if topic == COMPACTED else ()
        change(topic, str(QUEUES), "6", *compacts)
    sent = {}
    with SyncProducer(broker.namesrv_address, send_timeout_s=PATIENCE_S) as producer:
        for topic in topics:
            told = [
                producer.send(Message(topic, b'{"n":%d}' % number, keys=[f"{topic}{number}"]))
                for number in range(COUNT)
            ]
            sent[topic] = [
                SentMessage(
                    *(topic, each.message_queue.queue_id, each.queue_offset, each.offset_msg_id),
                    *(f"{topic}{number}", number, each.msg_id),
                )
                for number, each in enumerate(told)
            ]
    change(HIDDEN, str(QUEUES), "2")
    change(SHRUNK, "1", "6")
    return sent


every_kind = pytest.mark.parametrize(("version", "topic"), KINDS)


@every_kind
def test_each_message_is_found_by_its_ids_and_keys(broker_of, version, topic):
    broker, sent = broker_of(version)
    with SyncMQAdmin(broker.namesrv_address) as admin:
        for each in sent[topic][:: sized(7, 1)]:
            for answer in (
                admin.find(each.offset_msg_id),
                admin.find(each.offset_msg_id, topic),
                admin.find(each.key, topic),
                admin.find(each.key),
                admin.find(each.unique_key, topic),
            ):
                assert answer.complete, answer.failures
                assert ids(answer) == [each.offset_msg_id]
            # This reads the queues, too, and says of which it could not.
            answer = admin.find(each.key, topic, exhaustive=True)
            assert answer.complete == (topic in (PLAIN, COMPACTED)), answer.failures
            assert ids(answer) == [each.offset_msg_id]
            assert admin.view_message(each.offset_msg_id).unique_key == each.unique_key


@every_kind
def test_a_position_leads_to_its_message_or_its_answer_is_incomplete(broker_of, version, topic):
    broker, sent = broker_of(version)
    found = []
    sample = sent[topic][:: sized(3, 1)]
    with SyncMQAdmin(broker.namesrv_address) as admin:
        for each in sample:
            answer = admin.find(each.position)
            if answer.messages:
                found.append(each)
                (message,) = answer.messages
                assert message.offset_msg_id == each.offset_msg_id
                assert (message.unique_key, message.keys) == (each.unique_key, (each.key,))
            else:
                assert not answer.complete, each.position
    assert found == [each for each in sample if is_still_there(each)]


@every_kind
def test_a_list_of_messages_has_all_or_is_incomplete(broker_of, version, topic):
    broker, sent = broker_of(version)
    there = [each for each in sent[topic] if is_still_there(each)]
    every = sorted(each.offset_msg_id for each in there)
    last_half = sorted(each.offset_msg_id for each in there if each.n >= 20)
    with SyncMQAdmin(broker.namesrv_address) as admin:
        for question, expected in (
            ({"topic": topic}, every),
            ({"topic": topic, "exhaustive": True}, every),
            ({"topic": topic, "begin": "1h"}, every),
            ({"topic": topic, "where": "body.$.n >= 20"}, last_half),
            ({"where": f"topic = '{topic}' AND body.$.n >= 20"}, last_half),
        ):
            answer = admin.find(**question)
            assert sorted(ids(answer)) == expected, question
            assert answer.complete == (len(every) == COUNT), question
        for messages in (admin.tail(topic, 1000), admin.scan(topic)):
            assert sorted(each.offset_msg_id for each in messages) == every
            assert messages.complete == (len(every) == COUNT)
        for listed in (admin.topics(topic), admin.topics()):
            (counted,) = [each for each in listed.topics if each.name == topic]
            assert counted.messages == COUNT or not listed.complete


def is_still_there(sent):
    """Return whether a message can be pulled."""
    return sent.topic != HIDDEN and (sent.topic != SHRUNK or sent.queue_id == 0)


@every_kind
def test_a_reader_of_spark_has_all_messages_or_fails_or_warns(broker_of, version, topic, caplog):
    from rocketlens.bulk.options import known_options
    from rocketlens.pipeline.cluster_scan import ClusterScan

    broker, sent = broker_of(version)

    def read(fails_on_loss):
        options = {"namesrv": broker.namesrv_address, "subscribe": topic}
        options["failOnDataLoss"] = fails_on_loss
        scan = ClusterScan(known_options(options, "cluster reads"))
        batches = (batch for share in scan.shares() for batch in scan.read(share))
        return [row["offset_msg_id"] for batch in batches for row in batch.to_pylist()]

    expected = sorted(each.offset_msg_id for each in sent[topic] if is_still_there(each))
    assert sorted(read("false")) == expected
    if len(expected) == COUNT:
        assert sorted(read("true")) == expected
    else:
        assert "cannot be read: the topic has" in caplog.text
        with pytest.raises(StoreError, match="cannot be read: the topic has"):
            read("true")
