"""Messages that mqadmin sends, and sends again."""

import re

import pytest

SEND_RESULT = (
    r"SendResult \[sendStatus=SEND_OK, msgId={msg_id}, offsetMsgId=[0-9A-F]{{32}}, "
    r"messageQueue=MessageQueue \[topic=T, brokerName=broker-a, queueId=\d\], "
    r"queueOffset=\d+{tail}\]"
)


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


def test_a_message_goes_into_the_queue_that_is_named_with_its_tag_and_keys(mqadmin, rocketmq):
    mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Chosen", "-w", "3")
    words = ("-t", "Chosen", "-p", "hello", "-c", "TagA", "-k", "k1 k2")
    done = mqadmin("sendMessage", *words, "-b", "broker-a", "-i", "2")
    assert (done.code, done.err) == (0, "")
    head, row = done.out.splitlines()
    assert head.split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#MsgId"]
    *place, msg_id = row.split()
    assert place == ["broker-a", "2", "SEND_OK"]
    with rocketmq.admin() as admin:
        message = admin.view_message("Chosen", msg_id)
    assert (message.body, message.tags, message.keys) == (b"hello", "TagA", ("k1", "k2"))
    assert message.queue_id == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-i", "1"), "Broker name must be set"),
        (("-m", "true"), "message trace"),
        (("-b", "broker-z", "-i", "0"), "broker-z"),
    ],
)
def test_a_message_that_cannot_be_sent_so_is_refused_in_one_line(mqadmin, words, said):
    done = mqadmin("sendMessage", "-t", "T", "-p", "hello", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


def test_times_of_sends_are_taken_round_robin_and_the_first_does_not_count(mqadmin, rocketmq):
    mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Timed", "-w", "2")
    done = mqadmin("checkMsgSendRT", "-t", "Timed", "-a", "5", "-s", "10")
    assert (done.code, done.err) == (0, "")
    _, *rows, average, _ = done.out.split("\n")
    assert [row.split()[:3] for row in rows] == [
        ["broker-a", str(number % 2), "true"] for number in range(5)
    ]
    assert re.fullmatch(r"Avg RT: \d+\.\d+", average)
    with rocketmq.admin() as admin:
        found = admin.find(None, "Timed").messages
    assert [each.body for each in found] == [b"a" * 10] * 5
    one = mqadmin("checkMsgSendRT", "-t", "Timed", "-a", "1")
    assert one.out.splitlines()[-1] == "Avg RT: NaN"


def test_a_topic_that_may_not_be_written_to_is_refused(mqadmin):
    mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "ReadOnly", "-p", "4")
    done = mqadmin("checkMsgSendRT", "-t", "ReadOnly", "-a", "2")
    assert (done.code, done.err.count("\n")) == (2, 1)
