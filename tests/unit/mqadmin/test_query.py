"""mqadmin's options that choose what is asked and done, on a cluster of one broker."""

import re

import pytest

from rocketlens.client.message import Message
from rocketlens.testing import cluster

SEND_RESULT = (
    r"SendResult \[sendStatus=SEND_OK, msgId={msg_id}, offsetMsgId=[0-9A-F]{{32}}, "
    r"messageQueue=MessageQueue \[topic=T, brokerName=broker-a, queueId=\d\], "
    r"queueOffset=\d+{tail}\]"
)


@pytest.fixture(scope="module")
def rocketmq():
    """A cluster for all tests here."""
    with cluster() as running:
        yield running


@pytest.fixture
def mqadmin(run, rocketmq, monkeypatch, tmp_path):
    """Give ``mqadmin(command, *words) -> Done``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def ask(command, *words, layout="5.5"):
        where = ("mqadmin", "--layout", layout, command, "-n", rocketmq.name_server)
        return run(*where, *words)

    return ask


@pytest.fixture
def sent(rocketmq):
    """A message of topic T."""
    with rocketmq.producer() as producer:
        message = Message("T", "hello", tags="A", keys=["K1", "K2"], properties={"colour": "red"})
        return producer.send(message)


@pytest.mark.parametrize(("layout", "tail"), [("4.9", ""), ("5.5", ", recallHandle=null")])
def test_a_message_is_sent_again_as_it_was_with_its_unique_key(
    mqadmin, rocketmq, sent, layout, tail
):
    words = ("-t", "T", "-i", sent.msg_id)
    done = mqadmin("queryMsgById", *words, "-s", "true", "-u", "unit", layout=layout)
    assert (done.code, done.err) == (0, "")
    printed = f"prepare resend msg. originalMsgId={sent.msg_id}"
    assert re.fullmatch(printed + SEND_RESULT.format(msg_id=sent.msg_id, tail=tail), done.out)
    with rocketmq.admin() as admin:
        first, second = admin.query_message_by_unique_key("T", sent.msg_id)
    assert first.offset_msg_id != second.offset_msg_id
    assert (second.body, second.flag) == (first.body, first.flag)
    assert second.properties == first.properties


def test_a_message_is_not_sent_again_when_that_is_not_asked_for(mqadmin, rocketmq, sent):
    done = mqadmin("queryMsgById", "-t", "T", "-i", sent.msg_id, "-s", "false")
    assert (done.code, done.out, done.err) == (0, "", "")
    with rocketmq.admin() as admin:
        assert len(admin.query_message_by_unique_key("T", sent.msg_id)) == 1


@pytest.mark.parametrize("command", ["queryMsgById", "queryMsgByUniqueKey"])
def test_handing_a_message_to_a_consumer_is_refused_and_nothing_else_is_done(
    mqadmin, sent, command
):
    words = ("-t", "T", "-i", sent.msg_id, "-g", "group")
    done = mqadmin(command, *words, "-d", "client")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    # One of the two means nothing, there as here.
    assert mqadmin(command, *words).code == 0


@pytest.mark.parametrize("command", ["queryMsgById", "queryMsgByUniqueKey", "queryMsgByKey"])
def test_only_the_brokers_of_one_cluster_are_asked(mqadmin, sent, command):
    wanted = ("-k", "K1") if command == "queryMsgByKey" else ("-i", sent.msg_id)
    words = ("-t", "T", *wanted)
    found = mqadmin(command, *words, "-c", "DefaultCluster")
    assert (found.code, sent.msg_id in found.out) == (0, True)
    other = mqadmin(command, *words, "-c", "Another")
    assert (other.code, other.out, other.err.count("\n")) == (2, "", 1)
    assert "not on a broker of cluster Another" in other.err
    light = mqadmin(command, "-t", "%LMQ%x", *wanted, "-c", "T")
    assert (light.code, light.out) == (2, "")
    assert "light topic" in light.err
