"""mqadmin's options that choose what is asked and done, on a cluster of one broker."""

import pytest


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
