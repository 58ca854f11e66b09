"""A message in one line, as RocketMQ's tools print it."""

from dataclasses import replace

from rocketlens import open_store
from rocketlens.mqadmin.printing.form import message_pieces
from tests.unit.mqadmin.printed_by_rocketmq import bounds, form_of, printed


def test_a_message_in_print_msg_is_what_the_real_tool_prints(golden):
    expected = printed(golden, "5.5.0", "printMsg").splitlines()[1]
    with open_store(golden("5.5.0").store) as store:
        message = store.query_by_queue_offset("T22", 1, 0)
    message = replace(message, properties={**message.properties, **bounds(expected)})
    detail = "".join(message_pieces(form_of("5.5.0"), "broker-a", message))
    assert f"MSGID: {message.msg_id} {detail} BODY: hello" == expected
