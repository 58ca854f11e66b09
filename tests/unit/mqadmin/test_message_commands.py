"""mqadmin's options that choose what is asked and done, on a cluster of one broker.

Messages that mqadmin sends, and sends again.
"""

import re
from datetime import UTC, datetime

import pytest

from rocketlens.client.admin.group_calls import ConsumedDirectly
from rocketlens.client.connect.route import MessageQueue, set_order
from rocketlens.client.send.message import Message
from rocketlens.errors import BadInput
from rocketlens.main import main
from rocketlens.mqadmin.message_commands import decoded_id, result_text
from tests.unit.formats.test_trace_body import PUB, SUB_AFTER, SUB_BEFORE, body_of
from tests.unit.mqadmin.printed_by_rocketmq import both, printed

# The classes of 4.9.7 and 5.5.0 were run at about this time, in UTC; both printed this.
NOW_MS = round(datetime(2026, 11, 21, 8, 26, tzinfo=UTC).timestamp() * 1000)
PRINTED = {
    "AC1400020001A3B4C5D6123456780000": "ip=172.20.0.2date=2026-11-04#12:50:19:896",
    "ac1400020001a3b4c5d6123456780000": "ip=172.20.0.2date=2026-11-04#12:50:19:896",
    "0A0000091F4018B4AAC2140DD5A20000": "ip=10.0.0.9date=2026-11-04#21:27:30:978",
    "FD000000000000000000000000000002344C5FFD2B27678F4F770485": (
        "ip=fd00:0000:0000:0000:0000:0000:0000:0002date=2026-11-21#02:37:25:239"
    ),
    "AC1400020001A3B4C5D6FFFFFFFF0000": "ip=172.20.0.2date=2026-11-19#17:02:47:295",
    "AC1400020000CAC7000000000000AAB4": "ip=172.20.0.2date=2026-11-01#00:00:00:000",
}
HEAD = (
    "#Type      #ProducerGroup       #ClientHost          #SendTime            #CostTimes #Status"
)
SEND_RESULT = (
    r"SendResult \[sendStatus=SEND_OK, msgId={msg_id}, offsetMsgId=[0-9A-F]{{32}}, "
    r"messageQueue=MessageQueue \[topic=T, brokerName=broker-a, queueId=\d\], "
    r"queueOffset=\d+{tail}\]"
)


@pytest.mark.parametrize("command", ["queryMsgById", "queryMsgByUniqueKey"])
def test_a_message_for_a_consumer_that_is_not_online_is_an_error_in_one_line(
    mqadmin, sent, command
):
    words = ("-t", "T", "-i", sent.msg_id, "-g", "group")
    for layout in ("4.9", "5.5"):
        done = mqadmin(command, *words, "-d", "client", layout=layout)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "MSGID" not in done.out
        assert "Topic:" not in done.out
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


def test_a_message_is_printed_by_each_id_its_keys_and_its_queue_offset(mqadmin, sent):
    place = sent.message_queue
    queue = ("-b", place.broker_name, "-i", str(place.queue_id), "-o", str(sent.queue_offset))
    for command, *words in (
        ("queryMsgById", "-i", sent.msg_id),
        ("queryMsgById", "-i", sent.offset_msg_id),
        ("queryMsgByUniqueKey", "-i", sent.msg_id),
        ("queryMsgByUniqueKey", "-i", sent.msg_id, "-a"),
        ("queryMsgByUniqueKey", "-i", sent.offset_msg_id),
        ("queryMsgByOffset", *queue),
    ):
        done = mqadmin(command, "-t", "T", *words)
        assert (done.code, done.err) == (0, ""), words
        for text in (sent.msg_id, "[A]", "[K1 K2]", "colour=red"):
            assert text in done.out, words
    shown = mqadmin("queryMsgById", "-t", "T", "-i", sent.msg_id, "-f", "UTF-8")
    assert "Message Body:        hello\n" in shown.out
    for words in (("-k", "K1"), ("-k", "A", "-p", "T")):
        done = mqadmin("queryMsgByKey", "-t", "T", *words, "-m", "1")
        assert done.code == 0
        assert len([line for line in done.out.splitlines() if not line.startswith("#")]) == 1
        assert "there may be more" in done.err


def test_all_messages_of_a_topic_are_printed_queue_by_queue(mqadmin, rocketmq):
    mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Printed", "-r", "2", "-w", "2")
    for number in range(4):
        words = ("-t", "Printed", "-p", f"body {number}", "-b", "broker-a", "-c", "AB"[number // 2])
        mqadmin("sendMessage", *words, "-i", str(number % 2))
    done = mqadmin("printMsg", "-t", "Printed")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("MSGID: ") == 4
    assert done.out.index("body 2") < done.out.index("body 1") or (
        done.out.index("body 3") < done.out.index("body 0")
    )
    assert (
        mqadmin("printMsg", "-t", "Printed", "-d", "false").out.count(" BODY: NOT PRINT BODY") == 4
    )
    tagged = mqadmin("printMsg", "-t", "Printed", "-s", "B").out
    assert ("body 2" in tagged, "body 3" in tagged, "body 0" in tagged) == (True, True, False)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, ("queryMsgByKey", "-k", "no-such-key")),
        (1, ("queryMsgByUniqueKey", "-i", "0" * 32)),
        (1, ("queryMsgByOffset", "-b", "broker-a", "-i", "0", "-o", "999999")),
        (2, ("queryMsgByKey", "-k", "K1", "-p", "X")),
        (2, ("queryMsgByUniqueKey", "-i", "U", "-s", "1")),
        (2, ("queryMsgById", "-i", " , ")),
    ],
)
def test_what_is_not_there_and_what_makes_no_sense_is_one_line(mqadmin, sent, code, words):
    command, *rest = words
    done = mqadmin(command, "-t", "T", *rest)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)


def test_one_of_several_ids_that_fails_does_not_keep_the_others_from_being_sent(mqadmin, sent):
    done = mqadmin("queryMsgById", "-t", "T", "-i", f"{'0' * 32},{sent.msg_id}", "-s", "true")
    assert done.code != 0
    assert f"originalMsgId={sent.msg_id}" in done.out
    both = mqadmin("queryMsgById", "-t", "T", "-i", f"{'0' * 32},{'1' * 32}", "-s", "true")
    assert "2 of 2 messages failed" in both.err


@pytest.mark.parametrize("msg_id", PRINTED)
def test_an_id_is_decoded_as_the_real_class_decodes_it(zone, msg_id):
    zone("UTC")
    assert decoded_id(msg_id, NOW_MS) == PRINTED[msg_id]


def test_the_month_began_at_its_own_midnight_whatever_the_clocks_did_since(zone):
    zone("Europe/Berlin")
    # Summer time began on 29 March.
    now_ms = round(datetime(2026, 3, 30, 12, 0, tzinfo=UTC).timestamp() * 1000)
    assert (
        decoded_id(f"0A0000090000{0:08X}{1000:08X}0000", now_ms)
        == "ip=10.0.0.9date=2026-03-01#00:00:01:000"
    )


def test_it_asks_nobody_and_ends_no_line(monkeypatch, capsys):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert main(["mqadmin", "decodeMessageId", "-i", "0A0000091F4018B4AAC2140DD5A20000"]) == 0
    assert capsys.readouterr().out.startswith("ip=10.0.0.9date=")


@pytest.mark.parametrize("msg_id", ["XYZ", "AC14", "0" * 33, "G" * 32, ""])
def test_what_is_no_unique_key_is_refused(msg_id):
    with pytest.raises(BadInput, match="not a unique key"):
        decoded_id(msg_id, NOW_MS)


def test_senders_come_first_then_each_group(mqadmin, rocketmq, zone):
    zone("UTC")
    other = SUB_AFTER.replace(" g", " another")
    failed = SUB_AFTER.replace("true", "false").replace(" 7 ", " 9 ")
    unrelated = PUB.replace("U1", "U2")
    with rocketmq.producer() as producer:
        for body in (body_of(SUB_BEFORE, SUB_AFTER, unrelated), body_of(PUB, other, failed)):
            producer.send(Message("TRACES", body, keys=["U1"]))
    done = mqadmin("queryMsgTraceById", "-i", "U1", "-t", "TRACES")
    assert (done.code, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert done.out.startswith(HEAD)
    assert lines[1] == "Pub p-group 127.0.0.1 2023-11-14 22:13:20 3ms success"
    assert lines.count(lines[0]) == 1
    groups = [line for line in lines if line.startswith("Sub ")]
    assert sorted(groups) == [
        "Sub another 127.0.0.1 2023-11-14 22:13:20 7ms success",
        "Sub g 127.0.0.1 2023-11-14 22:13:20 7ms success",
        "Sub g 127.0.0.1 2023-11-14 22:13:20 9ms failed",
    ]
    assert sum(line.startswith("#Type #ConsumerGroup") for line in lines) == 2


def test_a_record_that_cannot_be_read_is_named(mqadmin, rocketmq):
    with rocketmq.producer() as producer:
        producer.send(Message("TRACES", body_of("Pub x", RECALL_OF_U9), keys=["U9"]))
    done = mqadmin("queryMsgTraceById", "-i", "U9", "-t", "TRACES")
    assert (done.code, done.out) == (0, "")
    assert "a Pub record of 2 fields" in done.err
    missing = mqadmin("queryMsgTraceById", "-i", "U-none", "-t", "TRACES")
    assert (missing.code, missing.out) == (1, "")


RECALL_OF_U9 = "Recall 1700000000004 R p T U9 true"


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


def test_a_result_is_printed_as_java_prints_it():
    made = ConsumedDirectly("g", "c", None, None, 0, order=False, auto_commit=True)
    assert result_text(made) == (
        "ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult=null, "
        "remark=null, spentTimeMills=0]"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-c", "0"), "invalid -c"),
        (("-i", "0"), "Please set the brokerName before queueId!"),
        (("-b", "broker-a", "-o", "0"), "Please set queueId before offset!"),
        (("-s", "99990101"), "Please set the beginTimestamp before now!"),
        (("-e", "99990101"), "Please set the endTimestamp before now!"),
        (("-s", "20250102", "-e", "20250101"), "Please make sure that the beginTimestamp"),
    ],
)
def test_what_makes_no_sense_is_refused_in_rocketmqs_words(mqadmin, sent, words, said):
    done = mqadmin("consumeMessage", "-t", "T", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_time_range_and_a_count_choose_messages(mqadmin, sent):
    queue = ("-b", sent.message_queue.broker_name, "-i", str(sent.message_queue.queue_id))
    all_of_it = mqadmin("consumeMessage", "-t", "T", *queue)
    assert all_of_it.code == 0
    assert sent.msg_id in all_of_it.out
    none = mqadmin("consumeMessage", "-t", "T", *queue, "-e", "20200101")
    assert (none.code, "MSGID" in none.out) == (0, True)
    offset = ("-o", str(sent.queue_offset), "-c", "1")
    one = mqadmin("consumeMessage", "-t", "T", *queue, *offset)
    assert one.out.count("MSGID: ") == 1


@both
def test_print_msg_takes_queues_in_the_order_of_the_real_tool(golden, version):
    first = printed(golden, version, "printMsg").splitlines()[0]
    topic = re.search(r"topic=(\w+)", first)[1]
    queues = [MessageQueue(topic, "broker-a", number) for number in range(4)]
    assert first.endswith(f", {set_order(queues)[0]}")
