"""What becomes of messages that are sent or sent back: stored where and how, or refused."""

import asyncio

import pytest

from rocketlens.errors import StoreFull
from rocketlens.model import properties as props
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.broker_world import NOW_MS, in_broker, properties_of, records_of

KEY = "0A0000091F4018B4AAC2140DD5A20000"
TOO_LARGE = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit 4194304B, msg properties length limit 32KB."
)


async def test_a_send_says_where_the_message_is(world):
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


async def test_a_message_is_stored_as_it_was_sent(world):
    await world.send(body=b"\x00\xff", f=1, j=3)
    (record,) = world.stored("Orders")
    assert record.body == b"\x00\xff"
    assert (record.flag, record.sys_flag, record.reconsume_times) == (7, 1, 3)
    assert (record.born_timestamp_ms, record.store_timestamp_ms) == (NOW_MS - 5, NOW_MS)
    assert record.born_host.address == "127.0.0.1"
    assert record.store_host == world.core.store.store_host


async def test_code_10_has_its_fields_under_their_full_names(world):
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


async def test_a_negative_queue_id_means_any_queue(world):
    answers = [await world.send(e=-1) for _ in range(40)]
    assert {answer.ext_fields["queueId"] for answer in answers} == {"0", "1", "2", "3"}


async def test_a_one_way_message_is_stored_and_not_answered(world):
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
async def test_a_message_that_cannot_be_is_refused_in_rocketmqs_words(world, changes, code, words):
    answer = await world.send(**changes)
    assert answer.code == code
    assert words in answer.remark
    assert world.core.store.end_offset == 0


@pytest.mark.broker(maxMessageSize=1000)
async def test_a_body_over_the_limit_is_refused(world):
    answer = await world.send(body=bytes(1001))
    assert (answer.code, answer.remark) == (13, TOO_LARGE.replace("4194304B", "1000B"))
    assert (await world.send(body=bytes(1000))).code == 0


async def test_a_topic_that_may_not_be_written_refuses_messages(world):
    await world.send()
    world.core.topics.get("Orders").perm = 4
    answer = await world.send()
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the topic[Orders] sending message is forbidden"


async def test_a_delayed_message_waits_in_the_schedule_topic(world):
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


async def test_a_half_message_waits_in_the_half_topic(world):
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


async def test_a_batch_that_has_a_key_of_its_own_is_answered_with_it(world):
    """Producers of 5.x give it one and show it as the transaction id; older ones do not."""
    members = [(b"first", ""), (b"second", "")]
    answer = await world.send_batch(members, i=f"UNIQ_KEY\x01{KEY}\x02WAIT\x01true\x02")
    assert answer.ext_fields["transactionId"] == KEY
    assert "transactionId" not in (await world.send_batch(members)).ext_fields
    assert {each.properties for each in world.stored("Orders")} == {b""}


async def test_the_members_of_a_batch_stand_side_by_side_with_properties_as_they_were(world):
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
    [((b"", properties_of(DELAY=1)), {}), ((b"", ""), {"f": 4}), ((b"", ""), {"b": "%RETRY%g"})],
)
async def test_a_batch_that_cannot_be_is_refused(world, member, changes):
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
        ((b"", properties_of(DELAY=1)), "a batch cannot have delayed messages"),
    ],
)
@pytest.mark.broker(maxMessageSize=1000, mappedFileSizeConsumeQueue=60_000)
async def test_a_large_batch_that_cannot_be_is_refused_before_any_of_it_is_stored(
    world, monkeypatch, member, words
):
    is_too_many = "more than" in words
    monkeypatch.setattr(
        "rocketlens.broker.requests.send.MAX_BATCH_MEMBERS", 1200 if is_too_many else 1201
    )
    members = [(b"", "")] * 1200 + [member]
    answer = await world.send_batch(members)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert words in answer.remark
    assert world.core.store.end_offset == 0
    assert (await world.send_batch(members[:1200])).code == 0


async def test_what_failed_too_often_goes_to_the_dead_letters(world):
    retried = await world.send("%RETRY%readers", j=16)
    dead = await world.send("%RETRY%readers", j=17, properties=properties_of(DELAY=5))
    fewer = await world.send("%RETRY%readers", j=4, l=3)
    assert {retried.code, dead.code, fewer.code} == {0}
    assert len(world.stored("%RETRY%readers")) == 1
    assert len(world.stored("%DLQ%readers")) == 2
    assert world.core.topics.get("%DLQ%readers").perm == 6


async def test_what_orderly_consumers_give_up_is_a_dead_letter_at_once(world):
    world.core.queue_locks.lock("readers", "Orders", 0, "one")
    await world.send("%RETRY%readers", j=16)
    await world.send("%RETRY%others", j=16)
    assert len(world.stored("%DLQ%readers")) == len(world.stored("%RETRY%others")) == 1
    world.core.queue_locks.unlock("readers", "Orders", 0, "one")
    await world.send("%RETRY%readers", j=16)
    assert len(world.stored("%RETRY%readers")) == 1


async def test_a_full_disk_refuses_messages_until_there_is_room(world):
    appender = world.core.store._appender
    appender.refusal = StoreFull("the broker's disk is full")
    full = await world.send()
    assert (full.code, full.remark) == (14, "the broker's disk is full")
    appender.refusal = None
    assert (await world.send()).code == 0


async def test_properties_stand_as_a_real_broker_stores_them(world, golden):
    """The golden store's own records, sent again as their producer sent them."""
    added = ("MSG_REGION", "TRACE_ON", "CLUSTER")
    from rocketlens.query.offline import open_store

    with open_store(golden("5.5.0").store) as store:
        scanned = store.scan("OrderTopic")
        messages = [m for m in scanned if "CLUSTER" in m.properties and not m.reconsume_times]
    for message in messages[:50]:
        sent = {name: message.properties[name] for name in sorted(message.properties)}
        sent = {name: text for name, text in sent.items() if name not in added}
        await world.send("Again", properties=properties_of(**sent))
    expected = [props.format_properties(message.properties) for message in messages[:50]]
    assert [record.properties.decode() for record in world.stored("Again")] == expected


async def test_a_message_without_a_unique_key_gets_one(world):
    answers = [await world.send() for _ in range(2)]
    keys = [answer.ext_fields["transactionId"] for answer in answers]
    assert len(set(keys)) == 2
    stored = [props.parse(each.properties.decode()) for each in world.stored("Orders")]
    assert [each["UNIQ_KEY"] for each in stored] == keys


DELAYS = "SCHEDULE_TOPIC_XXXX"
RETRY, DEAD = "%RETRY%readers", "%DLQ%readers"


async def send_back(world, physical_offset, **changes):
    fields = {
        "offset": physical_offset,
        "group": "readers",
        "delayLevel": 0,
        "originMsgId": "anything",
        "originTopic": "Orders",
        "unitMode": False,
        "maxReconsumeTimes": None,
    }
    return await world.call(RequestCode.CONSUMER_SEND_MSG_BACK, **(fields | changes))


def properties_in(record):
    return props.parse(record.properties.decode())


async def delivered_again(world, after_ms=7_200_000):
    """Deliver what is delayed; returns the newest record of the retry topic."""
    world.clock.now_ms += after_ms
    world.service._schedule.deliver_due(500)
    return world.stored(RETRY)[-1]


async def test_a_retry_has_the_body_and_the_ids_of_the_first(world):
    sent = properties_of(UNIQ_KEY="0" * 32, KEYS="k", TAGS="PAID", own="1")
    await world.send(body=b"one", properties=sent, f=1)
    (first,) = world.stored("Orders")
    assert (await send_back(world, first.physical_offset)).code == 0
    (delayed,) = world.stored(DELAYS, 2)
    expected = properties_in(first) | {
        "RETRY_TOPIC": "Orders",
        "ORIGIN_MESSAGE_ID": first.offset_msg_id,
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }
    assert list(properties_in(delayed).items()) == list(props.java_order(expected).items())
    assert (delayed.body, delayed.reconsume_times) == (b"one", 1)
    assert (delayed.flag, delayed.sys_flag) == (first.flag, first.sys_flag)
    assert delayed.born_timestamp_ms == first.born_timestamp_ms
    assert delayed.born_host == first.born_host

    retry = await delivered_again(world)
    assert (await send_back(world, retry.physical_offset)).code == 0
    (again,) = world.stored(DELAYS, 3)
    assert properties_in(again)["RETRY_TOPIC"] == "Orders"
    assert properties_in(again)["ORIGIN_MESSAGE_ID"] == first.offset_msg_id
    assert again.reconsume_times == 2
    found = records_of((await world.query("k", RETRY)).body)
    assert [each.body for each in found] == [b"one"]


async def test_after_the_last_retry_it_is_a_dead_letter(world):
    await world.send(body=b"one")
    record = world.stored("Orders")[0]
    for _ in range(2):
        assert (await send_back(world, record.physical_offset, maxReconsumeTimes=2)).code == 0
        assert not world.stored(DEAD)
        record = await delivered_again(world)
    assert (await send_back(world, record.physical_offset, maxReconsumeTimes=2)).code == 0
    (dead,) = world.stored(DEAD)
    assert (dead.body, dead.reconsume_times) == (b"one", 3)
    assert properties_in(dead)["RETRY_TOPIC"] == "Orders"
    assert properties_in(dead)["DELAY"] == "0"
    assert world.core.topics.get(DEAD).perm == 6


@pytest.mark.parametrize(("level", "queue_id"), [(1, 0), (18, 17), (99, 17)])
async def test_the_consumer_chooses_the_delay(world, level, queue_id):
    await world.send()
    await send_back(world, 0, delayLevel=level)
    assert len(world.stored(DELAYS, queue_id)) == 1


async def test_the_consumer_makes_it_a_dead_letter_at_once(world):
    await world.send()
    await send_back(world, 0, delayLevel=-1)
    assert len(world.stored(DEAD)) == 1


async def test_what_cannot_be_given_back_is_refused_in_rocketmqs_words(world):
    for offset in (0, 77, -1, 2**62):
        answer = await send_back(world, offset)
        assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")
    assert world.core.store.end_offset == 0


async def test_a_record_in_a_body_is_not_a_message(world):
    await world.send(body=b"x" * 100)
    first = bytes(world.core.store.record(0, 0))
    await world.send(body=first)
    inner = world.core.store.end_offset
    answer = await send_back(world, inner - len(first))
    assert answer.code == 1


@pytest.mark.broker(autoCreateSubscriptionGroup=False)
async def test_an_unknown_group_is_refused_where_groups_are_not_created(world):
    await world.send()
    answer = await send_back(world, 0)
    assert answer.code == 26
    assert answer.remark.startswith("subscription group not exist, readers ")


async def test_a_group_without_retry_queues_drops_what_is_given_back(world):
    world.core.groups.put({"readers": {"groupName": "readers", "retryQueueNums": 0}})
    await world.send()
    end_offset = world.core.store.end_offset
    assert (await send_back(world, 0)).code == 0
    assert world.core.store.end_offset == end_offset


async def test_a_groups_retry_policy_changes_no_delay_as_in_rocketmq(world):
    # Brokers of 5.5.0 keep the policy for proxies, and never read it themselves.
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 60_000}}
    world.core.groups.put({"readers": {"groupName": "readers", "groupRetryPolicy": policy}})
    await world.send()
    assert (await send_back(world, 0)).code == 0
    assert len(world.stored(DELAYS, 2)) == 1
