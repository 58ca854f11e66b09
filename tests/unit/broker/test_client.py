"""Who is connected, and what tools are told about groups."""

import asyncio
import json

from rocketlens import limits
from rocketlens.net.channel import Response
from rocketlens.net.pool import ClientPool
from rocketlens.wire.codes import RequestCode
from tests.unit.broker.broker_world import NOW_MS, World, in_broker


def heartbeat_of(client_id, *topics, group="readers", version=1):
    subscriptions = [
        {"topic": topic, "subString": "*", "subVersion": version, "tagsSet": [], "codeSet": []}
        for topic in topics
    ]
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    producer = {"groupName": "producers"}
    said = {"clientID": client_id, "producerDataSet": [producer], "consumerDataSet": [consumer]}
    return json.dumps(said).encode()


async def beat(world, *arguments, **changes):
    return await world.call(RequestCode.HEART_BEAT, heartbeat_of(*arguments, **changes))


async def client_ids(world, group="readers"):
    answer = await world.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    return json.loads(answer.body)["consumerIdList"] if answer.body else answer.remark


class Another:
    """A second client on a connection of its own, which notes what it is told."""

    def __init__(self, world):
        self.told = asyncio.Queue()
        handlers = {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self.note}
        self.pool = ClientPool(lambda _: True, handlers=handlers)
        self.world = World(world.service, self.pool, world.clock)

    def note(self, command, _):
        self.told.put_nowait(command.ext_fields["consumerGroup"])
        return Response()

    async def next_told(self):
        return await asyncio.wait_for(self.told.get(), 10)


def test_a_heartbeat_makes_the_group_and_its_retry_topic(tmp_path):
    async def test(world):
        assert (await beat(world, "c1", "Orders")).code == 0
        assert world.core.groups.table.groups["readers"]["retryMaxTimes"] == 16
        retry = world.core.topics.get("%RETRY%readers")
        assert (retry.read_queue_count, retry.write_queue_count, retry.perm) == (1, 1, 6)
        assert await client_ids(world) == ["c1"]

    in_broker(tmp_path, test)


def test_members_hear_when_others_come_go_and_are_lost(tmp_path):
    async def test(world):
        other = Another(world)
        await beat(other.world, "c1", "Orders")
        assert await other.next_told() == "readers"
        await beat(world, "c2", "Orders")
        assert await other.next_told() == "readers"
        assert sorted(await client_ids(world)) == ["c1", "c2"]
        await beat(world, "c2", "Orders")
        gone = {"clientID": "c2", "consumerGroup": "readers", "producerGroup": "producers"}
        await world.call(RequestCode.UNREGISTER_CLIENT, **gone)
        assert await other.next_told() == "readers"
        assert other.told.empty()
        third = Another(world)
        await beat(third.world, "c3", "Orders")
        assert await other.next_told() == "readers"
        await third.pool.close()
        assert await other.next_told() == "readers"
        assert await client_ids(world) == ["c1"]
        await other.pool.close()

    in_broker(tmp_path, test)


def test_a_group_without_members_is_not_online(tmp_path):
    async def test(world):
        assert await client_ids(world, "none") == "no consumer for this group, none"
        answer = await world.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="none")
        assert (answer.code, answer.remark) == (206, "the consumer group[none] not online")

    in_broker(tmp_path, test)


def test_connections_show_clients_and_subscriptions(tmp_path):
    async def test(world):
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

    in_broker(tmp_path, test)


def test_consume_statistics_show_how_far_a_group_came(tmp_path):
    async def test(world):
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

    in_broker(tmp_path, test)


def test_a_topic_is_read_by_who_subscribes_and_who_has_offsets(tmp_path):
    async def test(world):
        await beat(world, "c1", "Orders")
        world.core.offsets.put("sleepers", "Orders", 0, 2)
        answer = await world.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="Orders")
        assert json.loads(answer.body) == {"groupList": ["readers", "sleepers"]}

    in_broker(tmp_path, test)


def test_a_heartbeat_that_is_none_or_too_much_is_refused(tmp_path):
    async def test(world):
        for body in (b"", b"[]", b"{}", b'{"clientID":1,"consumerDataSet":5}'):
            assert (await world.call(RequestCode.HEART_BEAT, body)).code == 1
        many = {"clientID": "c", "producerDataSet": [{"groupName": f"g{n}"} for n in range(1001)]}
        answer = await world.call(RequestCode.HEART_BEAT, json.dumps(many).encode())
        assert (answer.code, answer.remark) == (1, "1001 groups in one heartbeat, 1000 allowed")
        assert (await beat(world, "c", group="../../x")).code == 0
        assert world.core.clients.consumers == {}

    in_broker(tmp_path, test)


def groups_of(client_id, names, **more):
    said = {"clientID": client_id, "producerDataSet": [{"groupName": name} for name in names]}
    return json.dumps(said | more).encode()


async def table_of(world):
    answer = await world.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    return json.loads(answer.body)["table"]


def test_one_connection_has_only_so_many_groups_and_others_are_not_hurt(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_CONNECTION_GROUPS_BYTES", 40_000)

    async def test(world):
        codes = []
        for number in range(10):
            names = [f"g{number}-{n}" for n in range(10)]
            codes.append((await world.call(RequestCode.HEART_BEAT, groups_of("c", names))).code)
        assert set(codes) == {0, 1}
        assert codes == sorted(codes)
        # The same groups again are no more than before.
        again = groups_of("c", [f"g0-{n}" for n in range(10)])
        assert (await world.call(RequestCode.HEART_BEAT, again)).code == 0
        other = Another(world)
        assert (await beat(other.world, "honest")).code == 0
        table = await table_of(world)
        assert int(table["heartbeatsRefused"]) == codes.count(1)
        assert 0 < int(table["clientGroupsBytes"]) < 2 * 40_000
        await other.pool.close()

    in_broker(tmp_path, test)


def test_what_a_connection_had_goes_with_it(tmp_path):
    async def test(world):
        other = Another(world)
        assert (await beat(other.world, "a", "T")).code == 0
        kept = int((await table_of(world))["clientGroupsBytes"])
        assert kept > 0
        fields = {"clientID": "a", "consumerGroup": "readers", "producerGroup": "producers"}
        assert (await other.world.call(RequestCode.UNREGISTER_CLIENT, **fields)).code == 0
        assert int((await table_of(world))["clientGroupsBytes"]) == 0
        assert (await beat(other.world, "a", "T")).code == 0
        assert (await beat(world, "b")).code == 0
        both = int((await table_of(world))["clientGroupsBytes"])
        await other.pool.close()
        # The closed connection is noticed in one of the next turns of the loop.
        async with asyncio.timeout(60):
            while await client_ids(world) != ["b"]:
                continue
        assert 0 < int((await table_of(world))["clientGroupsBytes"]) < both

    in_broker(tmp_path, test)


def test_when_all_groups_are_too_many_the_connection_with_most_ends(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(limits, "MAX_GROUPS_BYTES", 100_000)

    async def test(world):
        honest, hostile = Another(world), [Another(world) for _ in range(4)]
        assert (await beat(honest.world, "honest")).code == 0
        for number, each in enumerate(hostile):
            names = [f"g{number}-{n}" for n in range(60)]
            assert (await each.world.call(RequestCode.HEART_BEAT, groups_of("c", names))).code == 0
        assert (await beat(honest.world, "honest")).code == 0
        assert await client_ids(world) == ["honest"]
        table = await table_of(world)
        assert int(table["clientsClosedForGroups"]) >= 2
        assert int(table["clientGroupsBytes"]) <= 100_000
        assert "is closed: of the" in caplog.text
        for each in (honest, *hostile):
            await each.pool.close()

    in_broker(tmp_path, test)


def test_names_that_are_too_long_are_not_kept(tmp_path):
    async def test(world):
        for body in (
            groups_of("c", ["g" * 256]),
            groups_of("c" * 1025, ["g"]),
            heartbeat_of("c", group="g" * 256),
        ):
            answer = await world.call(RequestCode.HEART_BEAT, body)
            assert answer.code == 1
            assert "are allowed" in answer.remark
        assert not world.core.clients.producers
        assert (await world.call(RequestCode.HEART_BEAT, groups_of("c", ["g" * 255]))).code == 0

    in_broker(tmp_path, test)


def test_no_more_topics_and_groups_are_made_than_there_is_room_for(tmp_path, monkeypatch, caplog):
    async def test(world):
        core = world.core
        monkeypatch.setattr(limits, "MAX_TOPICS", len(core.topics.topics) + 2)
        monkeypatch.setattr(limits, "MAX_GROUPS", len(core.groups.table.groups) + 3)
        for group in ("g0", "g1", "g2", "g3"):
            # A consumer is welcome, whether its retry topic has room or not.
            assert (await beat(world, "c", group=group)).code == 0
        assert {"%RETRY%g0", "%RETRY%g1"} < core.topics.topics.keys()
        assert len(core.topics.topics) == limits.MAX_TOPICS
        assert len(core.groups.table.groups) == limits.MAX_GROUPS
        assert (await world.send("New")).code == 17
        fields = {"defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        fields |= {"topicFilterType": "SINGLE_TAG", "order": False}
        refused = await world.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, topic="New")
        assert refused.code == 1
        assert "topics are allowed" in refused.remark
        # What is there is changed and used as ever.
        changed = await world.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, topic="%RETRY%g0")
        assert changed.code == 0
        assert (await world.send("%RETRY%g0")).code == 0
        table = await table_of(world)
        assert (table["topicsRefused"], table["groupsRefused"]) == ("3", "1")
        assert caplog.text.count("no room for another") == 2
        world.clock.now_ms += 60_000
        await world.send("New")
        assert caplog.text.count("no room for another") == 3

    in_broker(tmp_path, test)
