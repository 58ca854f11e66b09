"""Heartbeats, and clients that send them."""

import asyncio
import json

from rocketlens.net.channel import Response
from rocketlens.net.pool import ClientPool
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import World


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


def groups_of(client_id, names, **more):
    said = {"clientID": client_id, "producerDataSet": [{"groupName": name} for name in names]}
    return json.dumps(said | more).encode()


async def table_of(world):
    answer = await world.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    return json.loads(answer.body)["table"]
