"""Name servers that note what they are told, and somebody who takes a broker's name."""

import asyncio
import json
from contextlib import asynccontextmanager

from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer
from rocketlens.net.channel import Response
from rocketlens.net.pool import ClientPool
from rocketlens.net.server import RemotingServer
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import create_topic, running


class NameServerStub:
    """Takes registrations, and says what it was told last."""

    def __init__(self, code=0):
        self.told = []
        self.code = code
        self.gate = None
        handlers = {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
        }
        self.server = RemotingServer(handlers)
        self.address = str(self.server.listen("127.0.0.1", 0))
        self.arrived = asyncio.Event()

    async def register(self, command, _):
        self.told.append(command)
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        return Response(self.code)

    def unregister(self, command, _):
        self.told.append(command)
        return Response(self.code)

    @property
    def topics(self):
        """All topics that it was told of."""
        found = {}
        for command in self.told:
            if command.code == RequestCode.REGISTER_BROKER:
                found |= topics_in(command)
        return found


def wrapper_in(command):
    return json.loads(command.body)["topicConfigSerializeWrapper"]


def topics_in(command):
    return wrapper_in(command)["topicConfigTable"]


class Impostor:
    """Somebody who registers as a broker."""

    address = "10.9.9.9:10911"

    def __init__(self, pool, name_server, topics):
        self.pool = pool
        self.name_server = name_server
        self.topics = topics

    async def register(self, name="broker-a", address=address, state=0, **fields):
        topic = {"readQueueNums": 99, "writeQueueNums": 99, "perm": 6}
        table = {each: {**topic, "topicName": each} for each in self.topics}
        version = {"counter": 5, "timestamp": 5, "stateVersion": state}
        wrapper = {"dataVersion": version, "topicConfigTable": table}
        fields = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": "DefaultCluster",
            "haServerAddr": address,
            "brokerId": "0",
        } | fields
        body = json.dumps({"topicConfigSerializeWrapper": wrapper}).encode()
        return await self.pool.call(self.name_server, RequestCode.REGISTER_BROKER, fields, body)

    async def leave(self, address):
        fields = {
            "brokerName": "broker-a",
            "brokerAddr": address,
            "clusterName": "DefaultCluster",
            "brokerId": "0",
        }
        return await self.pool.call(self.name_server, RequestCode.UNREGISTER_BROKER, fields)

    async def route(self, topic="T"):
        answer = await self.pool.call(
            self.name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}
        )
        route = json.loads(answer.body)
        (broker,), (queues,) = route["brokerDatas"], route["queueDatas"]
        return broker["brokerAddrs"]["0"], queues["writeQueueNums"]


@asynccontextmanager
async def impostor_and_world(directory, *, is_reserved=False):
    server = NameServer(NameServerConfig(listenPort=0))
    address = str(server.start())
    pool = ClientPool(lambda _: True)
    try:
        async with running(directory, namesrvAddr=address) as world:
            if is_reserved:
                service = world.service
                server.reserve("broker-a", service.registering_addresses, service.address)
            await create_topic(world, topic="T")
            yield Impostor(pool, address, ["T", "SELF_TEST_TOPIC"]), world
    finally:
        await pool.close()
        await server.stop()


async def figures(world):
    answer = await world.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    return json.loads(answer.body)["table"]
