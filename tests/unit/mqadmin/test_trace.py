"""queryMsgTraceById prints what clients said of a message, and nothing of other messages."""

from rocketlens.client.send.message import Message
from tests.unit.formats.test_trace_body import PUB, SUB_AFTER, SUB_BEFORE, body_of

HEAD = (
    "#Type      #ProducerGroup       #ClientHost          #SendTime            #CostTimes #Status"
)


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
