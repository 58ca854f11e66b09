"""What a consumer made of a message is printed; consumeMessage refuses what makes no sense."""

import pytest

from rocketlens.client.admin.consume_directly import ConsumedDirectly
from rocketlens.mqadmin.message_commands import result_text


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
