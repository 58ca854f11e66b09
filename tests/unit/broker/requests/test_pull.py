"""What consumers are given: the table of `broker.pull`, tags, bounds, and refusals."""

import json

import pytest

from rocketlens.broker.delivery import pull_filter
from rocketlens.broker.delivery.pull_reader import PullRecords
from rocketlens.formats.consumequeue_entry import ENTRY, ENTRY_BYTES
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.broker_world import bodies, in_broker, properties_of, records_of
from tests.unit.broker.heartbeats import heartbeat_of


@pytest.fixture(autouse=True, params=[False, True], ids=["interpreted", "compiled"])
def _kernel(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(PullRecords, "_take_run", lambda *_: None)


async def send_many(world, count, **changes):
    for number in range(count):
        tags = properties_of(TAGS=f"Tag{number % 3}")
        await world.send(body=b"%d" % number, properties=tags, **changes)


def place(answer):
    """Code, remark and the three offsets of an answer."""
    fields = answer.ext_fields
    offsets = [int(fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset")]
    return answer.code, answer.remark, *offsets


@within(in_broker, "tmp_path")
async def test_every_place_of_a_queue_has_its_answer(world, /):
    await world.send(e=1)
    assert place(await world.pull()) == (19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
    assert place(await world.pull(5)) == (21, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
    await send_many(world, 4)
    assert place(await world.pull()) == (0, "FOUND", 4, 0, 4)
    assert place(await world.pull(4)) == (19, "OFFSET_OVERFLOW_ONE", 4, 0, 4)
    assert place(await world.pull(5)) == (21, "OFFSET_OVERFLOW_BADLY", 4, 0, 4)
    assert place(await world.pull(-1)) == (21, "OFFSET_TOO_SMALL", 0, 0, 4)
    nothing = await world.pull(subscription="None")
    assert place(nothing) == (20, "NO_MATCHED_MESSAGE", 4, 0, 4)
    assert nothing.ext_fields["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*", [0, 1, 2, 3, 4, 5]),
        ("", [0, 1, 2, 3, 4, 5]),
        ("Tag1", [1, 4]),
        ("Tag0 || Tag2", [0, 2, 3, 5]),
    ],
)
@within(in_broker, "tmp_path")
async def test_messages_pass_by_the_hash_of_their_tags(world, /, expression, expected):
    await send_many(world, 6)
    answer = await world.pull(subscription=expression)
    assert bodies(answer) == [b"%d" % number for number in expected]


@within(in_broker, "tmp_path")
async def test_a_pull_goes_on_where_the_last_one_ended(world, /):
    await send_many(world, 250)
    offset, received = 0, []
    while True:
        answer = await world.pull(offset, subscription="Tag1", maxMsgNums=7)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            break
        assert len(bodies(answer)) <= 7
        received += bodies(answer)
        offset = int(answer.ext_fields["nextBeginOffset"])
    assert received == [b"%d" % number for number in range(1, 250, 3)]


@within(in_broker, "tmp_path")
async def test_a_pull_gives_no_more_than_its_bounds_and_at_least_one(world, /):
    for _ in range(40):
        await world.send(body=bytes(100))
    size = world.stored("Orders")[0].total_size
    assert len(bodies(await world.pull(maxMsgNums=1000))) == 32
    assert len(bodies(await world.pull(maxMsgBytes=3 * size))) == 3
    assert len(bodies(await world.pull(maxMsgBytes=1))) == 1
    await world.send(e=1, body=bytes(300_000))
    assert len(bodies(await world.pull(queue_id=1))) == 1


@within(in_broker, "tmp_path", accessMessageInMemoryMaxRatio=0)
async def test_messages_far_from_the_end_come_in_smaller_portions(world, /):
    await send_many(world, 20)
    assert len(bodies(await world.pull())) == 8


@within(in_broker, "tmp_path")
async def test_a_damaged_message_costs_that_message_only(world, /, caplog):
    for body in (b"first", b"second", b"third"):
        await world.send(body=body)
    content = world.core.store._appender._content
    start = content.find(b"second")
    content[start : start + 6] = b"SECOND"
    answer = await world.pull()
    assert bodies(answer) == [b"first", b"third"]
    assert answer.ext_fields["nextBeginOffset"] == "3"
    assert "damaged" in caplog.text


def set_entry(world, offset, physical_offset, size):
    """Damage an entry of the first queue of ``Orders``."""
    queue = world.core.store.queues.get("Orders", 0)
    ENTRY.pack_into(queue.content, offset * ENTRY_BYTES, physical_offset, size, 0)


@pytest.mark.parametrize(
    ("moved", "size"),
    [(0, 20), (0, 1), (0, -5), (0, 2**31 - 1), (0, 100), (7, 0), (7, 60), (10**9, 50), (-1, 0)],
)
@within(in_broker, "tmp_path")
async def test_an_entry_that_leads_nowhere_costs_its_message_only(world, /, moved, size):
    await send_many(world, 3)
    good = world.core.store.queues.get("Orders", 0).entry(1).physical_offset
    set_entry(world, 1, good + moved, size)
    answer = await world.pull()
    assert (bodies(answer), place(answer)) == ([b"0", b"2"], (0, "FOUND", 3, 0, 3))
    assert place(await world.pull(1, maxMsgNums=1)) == (0, "FOUND", 3, 0, 3)


@pytest.mark.parametrize("changes", [{"topic": "Others"}, {"e": 1}, {}])
@within(in_broker, "tmp_path")
async def test_an_entry_that_leads_to_another_message_gives_none(world, /, caplog, changes):
    await world.send(body=b"other", **changes)
    topic, queue_id = changes.get("topic", "Orders"), changes.get("e", 0)
    other = world.core.store.queues.get(topic, queue_id).entry(0)
    await send_many(world, 3)
    offset = world.core.store.queues.get("Orders", 0).next_offset - 2
    set_entry(world, offset, other.physical_offset, other.store_size)
    answer = await world.pull(offset)
    assert (bodies(answer), answer.ext_fields["nextBeginOffset"]) == ([b"2"], str(offset + 2))
    assert "refers to another message" in caplog.text


@within(in_broker, "tmp_path")
async def test_a_queue_all_of_whose_entries_are_damaged_is_passed(world, /):
    await send_many(world, 3)
    await world.pull()
    for offset in range(3):
        set_entry(world, offset, 1, 60)
    assert place(await world.pull()) == (20, "MESSAGE_WAS_REMOVING", 3, 0, 3)


@within(in_broker, "tmp_path")
async def test_lite_pull_is_answered_as_pull(world, /):
    await world.send()
    fields = {"consumerGroup": "g", "topic": "Orders", "queueId": 0, "queueOffset": 0}
    fields |= {"maxMsgNums": 1, "sysFlag": 20, "commitOffset": 0, "subscription": "*"}
    answer = await world.call(RequestCode.LITE_PULL_MESSAGE, **fields)
    assert bodies(answer) == [b"body"]


@within(in_broker, "tmp_path")
async def test_a_pull_commits_the_offset_it_brings(world, /):
    await world.send()
    await world.pull(sysFlag=5, commitOffset=1)
    assert world.core.offsets.get("readers", "Orders", 0) == 1


@within(in_broker, "tmp_path")
async def test_without_a_subscription_in_the_request_the_heartbeats_counts(world, /):
    await send_many(world, 3)
    missing = await world.pull(sysFlag=0)
    assert (missing.code, missing.remark.split("\n")[0]) == (
        24,
        "the consumer's group info not exist",
    )
    subscription = {"topic": "Orders", "subString": "Tag1", "subVersion": 5}
    consumer = {"groupName": "readers", "subscriptionDataSet": [subscription]}
    heartbeat = {"clientID": "c", "consumerDataSet": [consumer]}
    await world.call(RequestCode.HEART_BEAT, json.dumps(heartbeat).encode())
    assert bodies(await world.pull(sysFlag=0)) == [b"1"]
    old = await world.pull(sysFlag=0, subVersion=6)
    assert (old.code, old.remark) == (25, "the consumer's subscription not latest")
    await world.send("Others")
    other = await world.pull(topic="Others", sysFlag=0)
    assert (other.code, other.remark.split("\n")[0]) == (
        24,
        "the consumer's subscription not exist",
    )


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"topic": "None"}, 17, "topic[None] not exist, apply first please!\nSee "),
        ({"queueId": 4}, 29, "queueId[4] is illegal, topic:[Orders] topicConfig.readQueueNums:[4]"),
        ({"queueId": -1}, 29, "queueId[-1] is illegal, topic:[Orders]"),
        ({"subscription": "||"}, 23, "parse the consumer's subscription failed"),
        ({"expressionType": "SQL92"}, 1, "does not support consumer to filter message by SQL92"),
        ({"consumerGroup": "no/group"}, 26, "subscription group [no/group] does not exist"),
    ],
)
@within(in_broker, "tmp_path")
async def test_a_pull_that_cannot_be_is_refused_with_all_offsets(world, /, changes, code, words):
    await world.send()
    answer = await world.pull(**changes)
    assert answer.code == code
    assert words in answer.remark
    assert set(answer.ext_fields) >= {
        "suggestWhichBrokerId",
        "nextBeginOffset",
        "minOffset",
        "maxOffset",
    }


@within(in_broker, "tmp_path")
async def test_what_may_not_be_read_is_refused(world, /):
    await world.send()
    world.core.topics.get("Orders").perm = 2
    answer = await world.pull()
    assert (answer.code, answer.remark) == (16, "the topic[Orders] pulling message is forbidden")
    world.core.groups.table.put("closed", consumeEnable=False)
    answer = await world.pull(consumerGroup="closed")
    assert (answer.code, answer.remark) == (16, "subscription group no permission, closed")


@pytest.mark.parametrize("subscription", ["*", "absent"])
@pytest.mark.broker(mappedFileSizeConsumeQueue=60_000)
async def test_a_pull_looks_at_few_entries_however_many_messages_it_asks_for(
    world, monkeypatch, subscription
):
    monkeypatch.setattr(pull_filter, "ENTRIES_PER_PULL", 50)
    read = QueueWriter.read_bytes
    counts = []

    def counted(queue, offset, count):
        counts.append(count)
        return read(queue, offset, count)

    await world.send_batch([(b"%d" % number, "") for number in range(400)])
    monkeypatch.setattr(QueueWriter, "read_bytes", counted)
    answer = await world.pull(maxMsgNums=2**31 - 1, subscription=subscription)
    assert sum(counts) <= 50
    if subscription == "*":
        assert len(records_of(answer.body)) == 32
    else:
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (20, "50")


async def bodies_by_sql92(world, expression, **changes):
    answer = await world.pull(expressionType="SQL92", subscription=expression, **changes)
    return bodies(answer) if answer.code == 0 else (answer.code, answer.remark)


@within(in_broker, "tmp_path", enablePropertyFilter=True)
async def test_messages_are_filtered_by_an_expression_over_their_properties(world, /):
    for number in range(6):
        properties = properties_of(n=number, TAGS=f"Tag{number % 2}")
        await world.send(body=b"%d" % number, properties=properties)
    assert await bodies_by_sql92(world, "n > 2") == [b"3", b"4", b"5"]
    assert await bodies_by_sql92(world, "n BETWEEN 1 AND 4 AND TAGS = 'Tag1'") == [b"1", b"3"]
    assert await bodies_by_sql92(world, "n > 5") == (20, "NO_MATCHED_MESSAGE")
    assert await bodies_by_sql92(world, "TAGS = 5") == (20, "NO_MATCHED_MESSAGE")
    answer = await world.pull(expressionType="SQL92", subscription="n = 1")
    assert answer.ext_fields["nextBeginOffset"] == "6"


def test_an_expression_that_is_none_or_not_allowed_is_refused(tmp_path):
    async def test(world):
        await world.send()
        code, remark = await bodies_by_sql92(world, "n >")
        assert (code, remark[:41]) == (23, "parse the consumer's subscription failed:")
        other = await world.pull(expressionType="CLASS", subscription="n")
        words = "The broker does not support consumer to filter message by "
        assert (other.code, other.remark) == (1, words + "CLASS")

    async def test_without(world):
        await world.send()
        words = "The broker does not support consumer to filter message by SQL92"
        assert await bodies_by_sql92(world, "n > 1") == (1, words)

    in_broker(tmp_path, test, enablePropertyFilter=True)
    in_broker(tmp_path / "without", test_without)


@pytest.mark.broker(enablePropertyFilter=True)
async def test_a_pull_evaluates_few_messages_at_once(world, monkeypatch):
    monkeypatch.setattr(pull_filter, "ENTRIES_PER_PULL", 50)
    await world.send_batch([(b"%d" % number, "") for number in range(40)])
    answer = await world.pull(expressionType="SQL92", subscription="n = 1")
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (20, "32")


async def subscribe_by_sql92(world, expression):
    said = json.loads(heartbeat_of("c1", "Orders"))
    subscription = said["consumerDataSet"][0]["subscriptionDataSet"][0]
    subscription |= {"expressionType": "SQL92", "subString": expression}
    assert (await world.call(RequestCode.HEART_BEAT, json.dumps(said).encode())).code == 0


@within(in_broker, "tmp_path", enablePropertyFilter=True)
async def test_the_expression_of_a_heartbeat_counts_for_pulls_without_one(world, /):
    await world.send(body=b"1", properties=properties_of(n=1))
    await world.send(body=b"2", properties=properties_of(n=2))
    await subscribe_by_sql92(world, "n = 2")
    assert bodies(await world.pull(sysFlag=0, subscription=None)) == [b"2"]
    await world.call(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="readers")
    await subscribe_by_sql92(world, "n = ")
    answer = await world.pull(sysFlag=0, subscription=None)
    words = "The broker's consumer filter data is not exist!Your expression may be wrong!"
    assert (answer.code, answer.remark) == (27, words)


@within(in_broker, "tmp_path")
async def test_a_group_that_may_not_broadcast_is_refused(world, /):
    await world.send()
    heartbeat = json.loads(heartbeat_of("c1", "Orders"))
    heartbeat["consumerDataSet"][0]["messageModel"] = "BROADCASTING"
    await world.call(RequestCode.HEART_BEAT, json.dumps(heartbeat).encode())
    assert (await world.pull(sysFlag=0)).code == 0
    world.core.groups.table.put("readers", consumeBroadcastEnable=False)
    answer = await world.pull(sysFlag=0)
    words = "the consumer group[readers] can not consume by broadcast way"
    assert (answer.code, answer.remark) == (16, words)
