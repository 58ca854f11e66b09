"""Messages that mqadmin sends again."""

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
