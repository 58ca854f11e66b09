"""Name servers know of a broker and its topics before anyone who made one is answered."""

import asyncio
import json
import zlib

from rocketlens.broker import registration
from rocketlens.net.channel import Response
from rocketlens.net.server import RemotingServer
from rocketlens.wire.codes import RequestCode
from tests.unit.broker.broker_world import running, settings_of
from tests.unit.broker.test_topic import create


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
        wrapper = json.loads(self.told[-1].body)["topicConfigSerializeWrapper"]
        return wrapper["topicConfigTable"]


def test_a_broker_registers_with_all_name_servers_and_leaves_them(tmp_path):
    async def main():
        stubs = [NameServerStub(), NameServerStub()]
        addresses = ";".join(stub.address for stub in stubs)
        async with running(tmp_path, namesrvAddr=addresses) as world:
            address = world.service.address
            for stub in stubs:
                (command,) = stub.told
                fields = command.ext_fields
                assert fields["brokerName"] == "broker-a"
                assert fields["brokerAddr"] == address
                assert fields["clusterName"] == "DefaultCluster"
                assert fields["brokerId"] == "0"
                assert int(fields["bodyCrc32"]) == zlib.crc32(command.body) & 0x7FFFFFFF
                assert {"TBW102", "SELF_TEST_TOPIC", "broker-a"} <= set(stub.topics)
                assert stub.topics["SCHEDULE_TOPIC_XXXX"]["writeQueueNums"] == 18
        for stub in stubs:
            assert stub.told[-1].code == RequestCode.UNREGISTER_BROKER
            assert stub.told[-1].ext_fields["brokerAddr"] == address
            await stub.server.stop()

    asyncio.run(main())


def test_whoever_makes_a_topic_is_answered_when_name_servers_know_it(tmp_path):
    async def main():
        stub = NameServerStub()
        async with running(tmp_path, namesrvAddr=stub.address) as world:
            await create(world)
            assert "New" in stub.topics
            await world.send("Auto")
            assert "Auto" in stub.topics
            consumer = {"groupName": "g", "subscriptionDataSet": []}
            heartbeat = {"clientID": "c", "consumerDataSet": [consumer]}
            await world.call(RequestCode.HEART_BEAT, json.dumps(heartbeat).encode())
            assert "%RETRY%g" in stub.topics
            versions = [
                json.loads(each.body)["topicConfigSerializeWrapper"]["dataVersion"]["counter"]
                for each in stub.told
            ]
            assert versions == sorted(set(versions))
        await stub.server.stop()

    asyncio.run(main())


def test_a_second_message_of_a_new_topic_waits_for_the_name_servers_too(tmp_path):
    async def main():
        stub = NameServerStub()
        async with running(tmp_path, namesrvAddr=stub.address) as world:
            stub.gate, stub.arrived = asyncio.Event(), asyncio.Event()
            sends = [asyncio.ensure_future(world.send("Auto")) for _ in range(2)]
            await stub.arrived.wait()
            # Both are stored; an answer in between would have come before this one.
            assert (await world.send("broker-a")).code == 0
            assert not any(each.done() for each in sends)
            stub.gate.set()
            assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
        await stub.server.stop()

    asyncio.run(main())


def test_changes_while_name_servers_are_told_go_together(tmp_path):
    async def main():
        stub = NameServerStub()
        async with running(tmp_path, namesrvAddr=stub.address) as world:
            stub.gate, stub.arrived = asyncio.Event(), asyncio.Event()
            before = len(stub.told)
            first = asyncio.ensure_future(create(world, topic="T0"))
            await stub.arrived.wait()
            others = [asyncio.ensure_future(create(world, topic=f"T{n}")) for n in range(1, 20)]
            await world.send("broker-a")
            stub.gate.set()
            await asyncio.gather(first, *others)
            assert len(stub.told) == before + 2
            assert {f"T{n}" for n in range(20)} <= set(stub.topics)
        await stub.server.stop()

    asyncio.run(main())


def test_a_name_server_that_is_not_there_or_refuses_stops_nobody(tmp_path, caplog):
    async def main():
        stub = NameServerStub(code=1)
        addresses = f"127.0.0.1:1;{stub.address}"
        async with running(tmp_path, namesrvAddr=addresses) as world:
            assert (await world.send("Auto")).code == 0
        await stub.server.stop()

    asyncio.run(main())
    assert caplog.text.count("name server 127.0.0.1:1 cannot be told") == 1
    assert "code 1" in caplog.text


def test_a_broker_tells_no_more_permission_than_it_has(tmp_path):
    async def main():
        stub = NameServerStub()
        async with running(tmp_path, namesrvAddr=stub.address, brokerPermission=4):
            assert stub.topics["TBW102"]["perm"] == 5
            assert stub.topics["SELF_TEST_TOPIC"]["perm"] == 4
        await stub.server.stop()

    asyncio.run(main())


def test_addresses_stand_between_semicolons(tmp_path):
    settings = settings_of(tmp_path, namesrvAddr="10.0.0.1:9876; 10.0.0.2:9876;")
    assert settings.broker.namesrv_addresses == ("10.0.0.1:9876", "10.0.0.2:9876")


def test_a_registration_that_cannot_be_made_is_not_the_last(tmp_path, monkeypatch, caplog):
    async def main():
        stub = NameServerStub()
        async with running(tmp_path, namesrvAddr=stub.address) as world:

            def fail(_):
                raise ValueError("no registration can be made of this")

            with monkeypatch.context() as patch:
                patch.setattr(registration, "registration_of", fail)
                await create(world, topic="Lost")
            assert "no registration can be made of this" in caplog.text
            await create(world, topic="New")
            assert {"Lost", "New"} <= set(stub.topics)
        await stub.server.stop()

    asyncio.run(main())
