"""Who is connected, and what tools are told about groups."""

import json
import threading

import pytest

from rocketlens.broker.requests import heartbeat
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import NOW_MS, create_topic, in_broker
from tests.unit.broker.heartbeats import beat, client_ids, table_of


@within(in_broker, "tmp_path")
async def test_a_heartbeat_makes_the_group_and_its_retry_topic(world, /):
    assert (await beat(world, "c1", "Orders")).code == 0
    assert world.core.groups.table.entries["readers"]["retryMaxTimes"] == 16
    retry = world.core.topics.get("%RETRY%readers")
    assert (retry.read_queue_count, retry.write_queue_count, retry.perm) == (1, 1, 6)
    assert await client_ids(world) == ["c1"]


@within(in_broker, "tmp_path")
async def test_a_group_without_members_is_not_online(world, /):
    assert await client_ids(world, "none") == "no consumer for this group, none"
    answer = await world.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="none")
    assert (answer.code, answer.remark) == (206, "the consumer group[none] not online")


@within(in_broker, "tmp_path")
async def test_connections_show_clients_and_subscriptions(world, /):
    await beat(world, "c1", "Orders", "Old")
    await beat(world, "c1", "Orders", version=2)
    answer = await world.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="readers")
    shown = json.loads(answer.body)
    (connection,) = shown["connectionSet"]
    assert connection["clientAddr"].startswith("127.0.0.1:")
    assert (connection["clientId"], connection["language"]) == ("c1", "PYTHON")
    assert connection["version"] == 513
    assert shown["consumeType"] == "CONSUME_PASSIVELY"
    assert shown["messageModel"] == "CLUSTERING"
    assert shown["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
    assert list(shown["subscriptionTable"]) == ["Orders"]
    assert shown["subscriptionTable"]["Orders"]["subVersion"] == 2


@within(in_broker, "tmp_path")
async def test_consume_statistics_show_how_far_a_group_came(world, /):
    for number in range(3):
        world.clock.now_ms = NOW_MS + number
        await world.send(d=1)
    world.core.offsets.put("readers", "Orders", 0, 2)
    answer = await world.call(RequestCode.GET_CONSUME_STATS, consumerGroup="readers")
    assert answer.body.decode() == (
        '{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,'
        '"topic":"Orders"}:{"brokerOffset":3,"consumerOffset":2,'
        f'"lastTimestamp":{NOW_MS + 1},"pullOffset":2}}}}}}'
    )


@within(in_broker, "tmp_path")
async def test_consume_statistics_of_members_that_assign_queues_have_all_topics(world, /):
    await world.send()
    world.core.offsets.put("readers", "Orders", 0, 1)
    await beat(world, "c1")
    answer = await world.call(RequestCode.GET_CONSUME_STATS, consumerGroup="readers")
    assert b'"topic":"Orders"' in answer.body


@within(in_broker, "tmp_path")
async def test_a_topic_is_read_by_who_subscribes_and_who_has_offsets(world, /):
    await beat(world, "c1", "Orders")
    world.core.offsets.put("sleepers", "Orders", 0, 2)
    answer = await world.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="Orders")
    assert json.loads(answer.body) == {"groupList": ["readers", "sleepers"]}


@within(in_broker, "tmp_path")
async def test_a_heartbeat_that_is_none_or_too_much_is_refused(world, /):
    for body in (b"", b"[]", b"{}", b'{"clientID":1,"consumerDataSet":5}'):
        assert (await world.call(RequestCode.HEART_BEAT, body)).code == 1
    many = {"clientID": "c", "producerDataSet": [{"groupName": f"g{n}"} for n in range(1001)]}
    answer = await world.call(RequestCode.HEART_BEAT, json.dumps(many).encode())
    assert (answer.code, answer.remark) == (1, "1001 groups in one heartbeat, 1000 allowed")
    assert (await beat(world, "c", group="../../x")).code == 0
    assert world.core.clients.consumers == {}


@pytest.mark.parametrize("count", [1, 1000])
async def test_a_large_heartbeat_is_parsed_off_the_loop(world, monkeypatch, count):
    threads = set()
    read_body = heartbeat.read_body

    def parse(*arguments):
        threads.add(threading.current_thread())
        return read_body(*arguments)

    monkeypatch.setattr(heartbeat, "read_body", parse)
    groups = [{"groupName": f"producer-{number:05}"} for number in range(count)]
    body = json.dumps({"clientID": "c", "producerDataSet": groups}).encode()
    assert (await world.call(RequestCode.HEART_BEAT, body)).code == 0
    assert (threads == {threading.current_thread()}) == (count == 1)


async def check(world, **subscription):
    body = {"clientId": "c1", "group": "readers", "subscriptionData": subscription}
    answer = await world.call(RequestCode.CHECK_CLIENT_CONFIG, json.dumps(body).encode())
    return answer.code, answer.remark


def test_a_subscription_is_checked_before_a_consumer_starts(tmp_path):
    async def test(world):
        orders = {"topic": "Orders", "subString": "n > 5", "subVersion": 1}
        assert await check(world, **orders) == (0, None)
        assert await check(world, **orders, expressionType="SQL92") == (0, None)
        code, remark = await check(world, **orders | {"subString": "n >"}, expressionType="SQL92")
        assert (code, remark[:24]) == (23, "parse the consumer's sub")
        assert (await world.call(RequestCode.CHECK_CLIENT_CONFIG, b"{}")).code == 0

    async def test_without(world):
        orders = {"topic": "Orders", "subString": "n > 5", "expressionType": "SQL92"}
        words = "The broker does not support consumer to filter message by SQL92"
        assert await check(world, **orders) == (1, words)

    in_broker(tmp_path, test, enablePropertyFilter=True)
    in_broker(tmp_path / "without", test_without)


def queues_of(*numbers, topic="New", broker="broker-a"):
    return [{"topic": topic, "brokerName": broker, "queueId": number} for number in numbers]


def asked(client_id, queues, group="readers"):
    return json.dumps({"consumerGroup": group, "clientId": client_id, "mqSet": queues}).encode()


async def lock(world, client_id, *numbers, group="readers", **changes):
    body = asked(client_id, queues_of(*numbers, **changes), group)
    answer = await world.call(RequestCode.LOCK_BATCH_MQ, body)
    assert answer.code == 0
    return json.loads(answer.body)["lockOKMQSet"]


async def unlock(world, client_id, *numbers, **changes):
    body = asked(client_id, queues_of(*numbers, **changes))
    assert (await world.call(RequestCode.UNLOCK_BATCH_MQ, body)).code == 0


@within(in_broker, "tmp_path")
async def test_a_queue_is_locked_by_one_client_of_a_group(world, /):
    await create_topic(world)
    assert await lock(world, "c1", 0, 1) == queues_of(0, 1)
    assert await lock(world, "c2", 0, 1, 2) == queues_of(2)
    assert await lock(world, "c1", 0, 2) == queues_of(0)
    assert await lock(world, "c2", 0, 1, group="others") == queues_of(0, 1)


@within(in_broker, "tmp_path")
async def test_a_queue_is_given_back_by_the_client_that_has_it(world, /):
    await create_topic(world)
    await lock(world, "c1", 0, 1)
    await unlock(world, "c2", 0)
    assert await lock(world, "c2", 0) == []
    await unlock(world, "c1", 0, 2)
    assert await lock(world, "c2", 0, 1) == queues_of(0)
    assert (await table_of(world))["queueLocks"] == "2"


@within(in_broker, "tmp_path")
async def test_only_queues_that_are_here_are_locked_whatever_their_broker_is_called(world, /):
    await create_topic(world)
    assert await lock(world, "c1", 0, -1, 3, 2**31 - 1) == queues_of(0)
    assert await lock(world, "c1", 0, topic="Unknown") == []
    assert await lock(world, "c1", 1, broker="another") == queues_of(1, broker="another")
    assert await lock(world, "c2", 1) == []


@within(in_broker, "tmp_path")
async def test_many_queues_are_locked_at_once(world, /):
    await create_topic(world, readQueueNums=3000, writeQueueNums=3000)
    assert len(await lock(world, "c1", *range(3000))) == 3000


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", asked("c" * 2000, []), asked("c", [], "g" * 300), asked("c", [{}])]
)
@within(in_broker, "tmp_path")
async def test_what_is_no_such_request_is_refused(world, /, code, body):
    assert (await world.call(code, body)).code in (1, 29)
