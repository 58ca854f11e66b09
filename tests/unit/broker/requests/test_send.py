"""What becomes of messages that are sent: stored where and how, or refused in which words."""

import asyncio

import pytest

from rocketlens.errors import StoreFull
from rocketlens.model import properties as props
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.broker_world import NOW_MS, in_broker, properties_of

KEY = "0A0000091F4018B4AAC2140DD5A20000"


TOO_LARGE = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit 4194304B, msg properties length limit 32KB."
)


@within(in_broker, "tmp_path")
async def test_a_send_says_where_the_message_is(world, /):
    answers = [await world.send(properties=properties_of(UNIQ_KEY=KEY), e=2) for _ in range(2)]
    port = world.core.store.store_host.port
    size = world.stored("Orders", 2)[0].total_size
    for number, answer in enumerate(answers):
        assert answer.code == 0
        assert answer.ext_fields == {
            "msgId": f"7F000001{port:08X}{number * size:016X}",
            "queueId": "2",
            "queueOffset": str(number),
            "transactionId": KEY,
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }


@within(in_broker, "tmp_path")
async def test_a_message_is_stored_as_it_was_sent(world, /):
    await world.send(body=b"\x00\xff", f=1, j=3)
    (record,) = world.stored("Orders")
    assert record.body == b"\x00\xff"
    assert (record.flag, record.sys_flag, record.reconsume_times) == (7, 1, 3)
    assert (record.born_timestamp_ms, record.store_timestamp_ms) == (NOW_MS - 5, NOW_MS)
    assert record.born_host.address == "127.0.0.1"
    assert record.store_host == world.core.store.store_host


@within(in_broker, "tmp_path")
async def test_code_10_has_its_fields_under_their_full_names(world, /):
    answer = await world.call(
        RequestCode.SEND_MESSAGE,
        b"body",
        producerGroup="g",
        topic="Orders",
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=1,
        sysFlag=0,
        bornTimestamp=NOW_MS,
        flag=0,
        properties=properties_of(KEYS="k1"),
    )
    assert answer.code == 0
    assert world.stored("Orders", 1)[0].body == b"body"


@within(in_broker, "tmp_path")
async def test_a_negative_queue_id_means_any_queue(world, /):
    answers = [await world.send(e=-1) for _ in range(40)]
    assert {answer.ext_fields["queueId"] for answer in answers} == {"0", "1", "2", "3"}


@within(in_broker, "tmp_path")
async def test_a_one_way_message_is_stored_and_not_answered(world, /):
    from tests.support.broker_world import send_fields, text_of

    fields = {k: text_of(v) for k, v in send_fields("Orders", "").items() if v is not None}
    await world.pool.tell(world.service.address, 310, fields, b"body")
    answer = await world.send(body=b"later")
    assert answer.ext_fields["queueOffset"] == "1"
    assert world.stored("Orders")[0].body == b"body"


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"b": ""}, 29, "The specified topic is blank."),
        (
            {"b": "../../etc"},
            29,
            "The specified topic: ../../etc, contains illegal characters, allow",
        ),
        ({"b": "a\n"}, 29, "The specified topic: a\n, contains illegal characters, allowing only"),
        (
            {"b": "T" * 128},
            29,
            f"The specified topic: {'T' * 128}, is longer than topic max length: 127",
        ),
        (
            {"b": "%RETRY%" + "g" * 249},
            29,
            f"The specified topic is DLQ or Retry topic: %RETRY%{'g' * 249}, and it's longer",
        ),
        (
            {"b": "SCHEDULE_TOPIC_XXXX"},
            16,
            "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.",
        ),
        ({"b": "None", "c": "NoDefault"}, 17, "topic[None] not exist, apply first please!\nSee "),
        ({"b": "None", "c": "BenchmarkTest"}, 17, "topic[None] not exist, apply first please!"),
        (
            {"b": "broker-a", "e": 1},
            29,
            (
                "request queueId[1] is illegal, TopicConfig [topicName=broker-a, readQueueNums=1, "
                "writeQueueNums=1, perm=RWX, topicFilterType=SINGLE_TAG, topicSysFlag=0, "
                "order=false, attributes={}] Producer: 127.0.0.1:"
            ),
        ),
        ({"i": "DELAY\x01x\x02"}, 1, 'java.lang.NumberFormatException: For input string: "x"'),
        ({"i": "TIMER_DELAY_SEC\x01x\x02"}, 13, "timer message illegal, the delay time should not"),
        ({"i": "P\x01" + "p" * 32_700 + "\x02"}, 13, TOO_LARGE),
        ({"e": None}, 1, "the custom field <e> is null"),
        ({"g": "soon"}, 1, 'java.lang.NumberFormatException: For input string: "soon"'),
    ],
)
@within(in_broker, "tmp_path")
async def test_a_message_that_cannot_be_is_refused_in_rocketmqs_words(
    world, /, changes, code, words
):
    answer = await world.send(**changes)
    assert answer.code == code
    assert words in answer.remark
    assert world.core.store.end_offset == 0


@within(in_broker, "tmp_path", maxMessageSize=1000)
async def test_a_body_over_the_limit_is_refused(world, /):
    answer = await world.send(body=bytes(1001))
    assert (answer.code, answer.remark) == (13, TOO_LARGE.replace("4194304B", "1000B"))
    assert (await world.send(body=bytes(1000))).code == 0


@within(in_broker, "tmp_path")
async def test_a_topic_that_may_not_be_written_refuses_messages(world, /):
    await world.send()
    world.core.topics.get("Orders").perm = 4
    answer = await world.send()
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the topic[Orders] sending message is forbidden"


@within(in_broker, "tmp_path")
async def test_a_delayed_message_waits_in_the_schedule_topic(world, /):
    answer = await world.send(e=1, properties=properties_of(UNIQ_KEY=KEY, DELAY=3))
    assert answer.ext_fields["queueId"] == "1"
    (record,) = world.stored("SCHEDULE_TOPIC_XXXX", 2)
    properties = props.parse(record.properties.decode())
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("Orders", "1")
    entry = world.core.store.queues.get("SCHEDULE_TOPIC_XXXX", 2).entry(0)
    assert entry.tags_code == NOW_MS + 10_000
    await world.send(properties=properties_of(DELAY=99))
    (record,) = world.stored("SCHEDULE_TOPIC_XXXX", 17)
    assert props.parse(record.properties.decode())["DELAY"] == "18"


@within(in_broker, "tmp_path")
async def test_a_half_message_waits_in_the_half_topic(world, /):
    sent = properties_of(UNIQ_KEY=KEY, TRAN_MSG="true", PGROUP="producers", KEYS="tx")
    answer = await world.send(e=3, f=4, properties=sent)
    assert answer.ext_fields["queueOffset"] == "0"
    (record,) = world.stored("RMQ_SYS_TRANS_HALF_TOPIC")
    assert record.sys_flag == 0
    assert record.properties.decode() == properties_of(
        MSG_REGION="DefaultRegion",
        UNIQ_KEY=KEY,
        CLUSTER="DefaultCluster",
        PGROUP="producers",
        __transactionId__=KEY,
        TRAN_MSG="true",
        KEYS="tx",
        TRACE_ON="true",
        REAL_TOPIC="Orders",
        REAL_QID="3",
    )
    assert not world.stored("Orders", 3)


def test_a_batch_that_has_a_key_of_its_own_is_answered_with_it(tmp_path):
    """Producers of 5.x give it one and show it as the transaction id; older ones do not."""

    async def test(world):
        members = [(b"first", ""), (b"second", "")]
        answer = await world.send_batch(members, i=f"UNIQ_KEY\x01{KEY}\x02WAIT\x01true\x02")
        assert answer.ext_fields["transactionId"] == KEY
        assert "transactionId" not in (await world.send_batch(members)).ext_fields
        assert {each.properties for each in world.stored("Orders")} == {b""}

    in_broker(tmp_path, test)


@within(in_broker, "tmp_path")
async def test_the_members_of_a_batch_stand_side_by_side_with_properties_as_they_were(world, /):
    members = [(b"%d" % n, properties_of(KEYS=f"k{n}", WAIT="true")) for n in range(3)]
    answer = await world.send_batch(members, e=1)
    records = world.stored("Orders", 1)
    assert [(each.body, each.properties.decode()) for each in records] == members
    ids = answer.ext_fields.pop("msgId").split(",")
    assert ids == [record.offset_msg_id for record in records]
    assert answer.ext_fields == {
        "queueId": "1",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


@pytest.mark.parametrize(
    ("member", "changes"),
    [
        ((b"", properties_of(DELAY=1)), {}),
        ((b"", ""), {"f": 4}),
        ((b"", ""), {"b": "%RETRY%g"}),
    ],
)
@within(in_broker, "tmp_path")
async def test_a_batch_that_cannot_be_is_refused(world, /, member, changes):
    answer = await world.send_batch([member], **changes)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    for body in (b"", b"\0" * 10):
        broken = await world.send(body=body, m=True)
        assert broken.code == ResponseCode.MESSAGE_ILLEGAL
    assert world.core.store.end_offset == 0


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_large_batch_is_stored_whole_and_in_order(tmp_path, flush):
    async def test(world):
        members = [(b"%d" % n, properties_of(KEYS=f"k{n}")) for n in range(1201)]
        answer, others = await asyncio.gather(
            world.send_batch(members, e=1),
            asyncio.gather(*(world.send(body=b"other", e=1) for _ in range(5))),
        )
        assert {each.code for each in (answer, *others)} == {0}
        records = {record.offset_msg_id: record for record in world.stored("Orders", 1)}
        assert len(records) == 1206
        given = [records[each] for each in answer.ext_fields["msgId"].split(",")]
        assert [(each.body, each.properties.decode()) for each in given] == members
        assert answer.ext_fields["queueOffset"] == str(given[0].queue_offset)
        offsets = [each.queue_offset for each in given]
        assert offsets == sorted(offsets)

    in_broker(tmp_path, test, flushDiskType=flush, mappedFileSizeConsumeQueue=60_000)


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ((b"", ""), "a batch of more than 1200 members: send it in parts"),
        ((bytes(1001), ""), "member 1200 of the batch is too large"),
        ((b"", properties_of(DELAY=1)), "a batch has no delayed messages"),
    ],
)
def test_a_large_batch_that_cannot_be_is_refused_before_any_of_it_is_stored(
    tmp_path, monkeypatch, member, words
):
    is_too_many = "more than" in words
    monkeypatch.setattr(
        "rocketlens.broker.requests.send.MAX_BATCH_MEMBERS", 1200 if is_too_many else 1201
    )

    async def test(world):
        members = [(b"", "")] * 1200 + [member]
        answer = await world.send_batch(members)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert words in answer.remark
        assert world.core.store.end_offset == 0
        assert (await world.send_batch(members[:1200])).code == 0

    in_broker(tmp_path, test, maxMessageSize=1000, mappedFileSizeConsumeQueue=60_000)


@within(in_broker, "tmp_path")
async def test_what_failed_too_often_goes_to_the_dead_letters(world, /):
    retried = await world.send("%RETRY%readers", j=16)
    dead = await world.send("%RETRY%readers", j=17, properties=properties_of(DELAY=5))
    fewer = await world.send("%RETRY%readers", j=4, l=3)
    assert {retried.code, dead.code, fewer.code} == {0}
    assert len(world.stored("%RETRY%readers")) == 1
    assert len(world.stored("%DLQ%readers")) == 2
    assert world.core.topics.get("%DLQ%readers").perm == 6


@within(in_broker, "tmp_path")
async def test_what_orderly_consumers_give_up_is_a_dead_letter_at_once(world, /):
    world.core.queue_locks.lock("readers", "Orders", 0, "one")
    await world.send("%RETRY%readers", j=16)
    await world.send("%RETRY%others", j=16)
    assert len(world.stored("%DLQ%readers")) == len(world.stored("%RETRY%others")) == 1
    world.core.queue_locks.unlock("readers", "Orders", 0, "one")
    await world.send("%RETRY%readers", j=16)
    assert len(world.stored("%RETRY%readers")) == 1


@within(in_broker, "tmp_path")
async def test_a_full_disk_refuses_messages_until_there_is_room(world, /):
    appender = world.core.store._appender
    appender.refusal = StoreFull("the broker's disk is full")
    full = await world.send()
    assert (full.code, full.remark) == (14, "the broker's disk is full")
    appender.refusal = None
    assert (await world.send()).code == 0
