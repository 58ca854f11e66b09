"""Name servers know of a broker and its topics before anyone who made one is answered."""

import asyncio
import json
import threading
import zlib
from types import SimpleNamespace

import pytest

from rocketlens.broker.life import registration
from rocketlens.broker.tables.name_servers import NameServers
from rocketlens.errors import ConnectionLost
from rocketlens.net.channel import Response
from rocketlens.net.pace import in_thread
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.declare import members_of
from tests.support.broker_world import create_topic, running, settings_of
from tests.support.impostors import (
    NameServerStub,
    figures,
    impostor_and_world,
    topics_in,
    wrapper_in,
)
from tests.support.patience import PATIENCE_S


async def test_a_broker_registers_with_all_name_servers_and_leaves_them(tmp_path):
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


async def test_a_broker_registers_however_many_bodies_wait_to_be_read(tmp_path):
    stub, may_go_on = NameServerStub(), threading.Event()
    held_up = [asyncio.ensure_future(in_thread(may_go_on.wait)) for _ in range(50)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(PATIENCE_S), running(tmp_path, namesrvAddr=stub.address):
            assert "TBW102" in stub.topics
    finally:
        may_go_on.set()
        await asyncio.gather(*held_up)
        await stub.server.stop()


async def test_whoever_makes_a_topic_is_answered_when_name_servers_know_it(tmp_path):
    stub = NameServerStub()
    async with running(tmp_path, namesrvAddr=stub.address) as world:
        await create_topic(world)
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


async def test_a_second_message_of_a_new_topic_waits_for_the_name_servers_too(tmp_path):
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


async def test_changes_while_name_servers_are_told_go_together(tmp_path):
    stub = NameServerStub()
    async with running(tmp_path, namesrvAddr=stub.address) as world:
        stub.gate, stub.arrived = asyncio.Event(), asyncio.Event()
        before = len(stub.told)
        first = asyncio.ensure_future(create_topic(world, topic="T0"))
        await stub.arrived.wait()
        others = [asyncio.ensure_future(create_topic(world, topic=f"T{n}")) for n in range(1, 20)]
        await world.send("broker-a")
        stub.gate.set()
        await asyncio.gather(first, *others)
        # Two; on a busy machine some of the others come when the second is under way.
        assert before + 2 <= len(stub.told) < before + len(others) // 2
        assert {f"T{n}" for n in range(20)} <= set(stub.topics)
    await stub.server.stop()


async def test_a_name_server_that_is_not_there_or_refuses_stops_nobody(tmp_path, caplog):
    stub = NameServerStub(code=1)
    addresses = f"127.0.0.1:1;{stub.address}"
    async with running(tmp_path, namesrvAddr=addresses) as world:
        assert (await world.send("Auto")).code == 0
        assert caplog.text.count("registration with name server 127.0.0.1:1 failed") == 1
        world.clock.now_ms += 600_000
        await world.service._registrar.register()
        assert caplog.text.count("registration with name server 127.0.0.1:1 failed") == 2
        shown = (await figures(world))["nameServersNotTold"]
        assert "127.0.0.1:1: no" in shown
        assert f"{stub.address}: code 1" in shown
    await stub.server.stop()
    assert "code 1" in caplog.text


async def test_a_broker_tells_no_more_permission_than_it_has(tmp_path):
    stub = NameServerStub()
    async with running(tmp_path, namesrvAddr=stub.address, brokerPermission=4):
        assert stub.topics["TBW102"]["perm"] == 5
        assert stub.topics["SELF_TEST_TOPIC"]["perm"] == 4
    await stub.server.stop()


def test_addresses_stand_between_semicolons(tmp_path):
    settings = settings_of(tmp_path, namesrvAddr="10.0.0.1:9876; 10.0.0.2:9876;")
    assert settings.broker.namesrv_addresses == ("10.0.0.1:9876", "10.0.0.2:9876")


async def test_a_registration_that_cannot_be_made_is_not_the_last(tmp_path, monkeypatch, caplog):
    stub = NameServerStub()
    async with running(tmp_path, namesrvAddr=stub.address) as world:

        def fail(*_):
            raise ValueError("no registration can be made of this")

        with monkeypatch.context() as patch:
            patch.setattr(registration, "wire_topic", fail)
            await create_topic(world, topic="Lost")
        assert "no registration can be made of this" in caplog.text
        await create_topic(world, topic="New")
        assert {"Lost", "New"} <= set(stub.topics)
    await stub.server.stop()


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(registration, "TOPICS_IN_A_PART", 7)


class Stubs(NameServerStub):
    """A stub that knows the version it was told last."""

    def __init__(self, **options):
        super().__init__(**options)
        self.asked, self.known = 0, None
        self.server.handlers[RequestCode.QUERY_DATA_VERSION] = self.version

    async def register(self, command, channel):
        self.known = wrapper_in(command)["dataVersion"]
        return await super().register(command, channel)

    def version(self, command, _):
        self.asked += 1
        changed = json.loads(command.body) != self.known
        return Response(ext_fields={"changed": "true" if changed else "false"})


async def test_many_topics_are_told_in_parts_and_then_only_what_changes(tmp_path, small_parts):
    stub = Stubs()
    async with running(tmp_path, namesrvAddr=stub.address) as world:
        for number in range(30):
            await world.send(f"T{number}")
        stub.told.clear()
        await create_topic(world, topic="007")
        # A new topic costs what it has, not what the broker has.
        assert [set(topics_in(each)) for each in stub.told] == [{"007"}]
    stub.told.clear()
    async with running(tmp_path, namesrvAddr=stub.address) as world:
        topics = world.core.topics.topics
        assert len(stub.told) == -(-len(topics) // 7) > 5
        assert stub.topics.keys() == topics.keys()
        assert all(len(topics_in(each)) <= 7 for each in stub.told)
        # Each part has a version that RocketMQ takes for new, the last one the true one.
        versions = [wrapper_in(each)["dataVersion"] for each in stub.told]
        assert len({(each["counter"], each["timestamp"]) for each in versions}) == len(versions)
        assert all(each["counter"] < 0 for each in versions[:-1])
        assert versions[-1] == members_of(world.core.topics.table.data_version)
        # Nothing changed: it is asked which version it knows, which keeps the broker alive.
        stub.told.clear()
        for _ in range(3):
            await world.service._registrar.register()
        assert (stub.asked, stub.told) == (3, [])
    await stub.server.stop()


async def end_connections(stub, world):
    """End the connections of a name server, and wait until the broker knows it."""
    for channel in list(stub.server.group.channels):
        channel.close()
    ours = world.core.name_servers.states[stub.address].channel
    with pytest.raises(ConnectionLost):
        await ours.request(RequestCode.HEART_BEAT, timeout_s=60)


async def test_a_new_topic_waits_for_no_name_server_that_has_to_receive_all_topics(
    tmp_path, small_parts
):
    begun_again, other = Stubs(), Stubs()
    addresses = f"{begun_again.address};{other.address}"
    async with running(tmp_path, namesrvAddr=addresses) as world:
        await end_connections(begun_again, world)
        begun_again.gate, begun_again.arrived = asyncio.Event(), asyncio.Event()
        assert (await world.send("First")).code == 0
        await begun_again.arrived.wait()
        assert (await world.send("Second")).code == 0
        # The other one knows them already.
        assert {"First", "Second"} <= other.topics.keys()
        begun_again.told.clear()
        begun_again.gate.set()
        await world.service._registrar.register()
        assert "Second" in begun_again.topics
    await begun_again.server.stop()
    await other.server.stop()


async def test_a_new_topic_waits_only_so_long_for_a_name_server_that_does_not_answer(
    tmp_path, monkeypatch
):
    stub = NameServerStub()
    settings = {"namesrvAddr": stub.address, "registerBrokerTimeoutMills": 86_400_000}
    async with running(tmp_path, **settings) as world:
        monkeypatch.setattr("rocketlens.broker.tables.name_servers.MAX_ANNOUNCEMENT_S", 0.01)
        stub.gate = asyncio.Event()
        assert (await world.send("New")).code == 0
        assert not world.core.topics.pending
        stub.gate.set()
    await stub.server.stop()


async def test_a_name_server_that_does_not_know_the_broker_any_more_is_told_all_topics(
    tmp_path, small_parts
):
    stub = Stubs()
    async with running(tmp_path, namesrvAddr=stub.address) as world:
        topics = world.core.topics.topics
        stub.told.clear()
        # It began anew: the connection is another.
        await end_connections(stub, world)
        await create_topic(world, topic="New")
        await world.service._registrar.register()
        assert stub.topics.keys() == topics.keys()
        # It forgot the broker behind a connection that stays.
        stub.told.clear()
        stub.version = lambda *_: Response(ext_fields={"changed": "true"})
        stub.server.handlers[RequestCode.QUERY_DATA_VERSION] = stub.version
        await world.service._registrar.register()
        assert stub.topics.keys() == topics.keys()
        # It refuses the change of a broker that it does not know.
        stub.told.clear()
        refusals = iter([1])
        stub.register_all = stub.register

        async def register(command, channel):
            answer = await stub.register_all(command, channel)
            return answer._replace(code=next(refusals, 0))

        stub.server.handlers[RequestCode.REGISTER_BROKER] = register
        await create_topic(world, topic="Newer")
        assert stub.topics.keys() == topics.keys()
    await stub.server.stop()


async def test_a_topic_that_no_name_server_can_take_does_not_keep_the_others_from_being_told(
    tmp_path,
):
    stub = NameServerStub()
    async with running(tmp_path, namesrvAddr=stub.address):
        pass
    path = tmp_path / "store" / "config" / "topics.json"
    value = json.loads(path.read_text())
    table = value["topicConfigTable"]
    odd = {"topicFilterType": "X", "perm": 10**30, "attributes": {"a": []}, "order": None}
    for name in ("", "A" * 5000, "\ud800", "odd"):
        table[name] = {**table["SELF_TEST_TOPIC"], "topicName": name, **odd}
    path.write_text(json.dumps(value))
    stub.told.clear()
    async with running(tmp_path, namesrvAddr=stub.address):
        assert {"odd", "TBW102"} < stub.topics.keys()
        assert stub.topics["odd"]["perm"] == 6
        assert not {"", "A" * 5000, "\ud800"} & stub.topics.keys()
    await stub.server.stop()


async def test_a_state_that_no_controller_gives_is_refused(tmp_path):
    async with impostor_and_world(tmp_path) as (impostor, world):
        refused = await impostor.register(state=2**62)
        assert refused.code != 0
        assert "stateVersion" in refused.remark
        assert (await impostor.route())[0] == world.service.address


async def test_a_name_server_beside_its_broker_lets_nobody_else_have_its_name_or_address(tmp_path):
    async with impostor_and_world(tmp_path, is_reserved=True) as (impostor, world):
        mine = world.service.address
        for wanted in (
            {},
            {"brokerId": "1"},
            {"clusterName": "other"},
            {"name": "broker-b", "address": mine},
            {"address": mine},
        ):
            refused = await impostor.register(**wanted)
            assert refused.code != 0
            assert "broker-a" in refused.remark
        assert (await impostor.leave(mine)).code != 0
        assert (await impostor.route())[0] == mine
        # Others are as welcome as ever, and so is the broker itself.
        impostor.topics = ["Other", "SELF_TEST_TOPIC"]
        assert (await impostor.register(name="broker-b")).code == 0
        await create_topic(world, topic="Mine")
        assert (await impostor.route("Mine"))[0] == mine
        assert not world.core.name_servers.failures


async def saved(world):
    """Wait until what was noted is in its file."""
    return await world.core.saver.save(world.service._registrar._watch)


@pytest.mark.parametrize("state", [0, 1, 2**31 - 1])
async def test_a_broker_notices_that_its_name_was_taken_says_so_and_takes_it_back(
    tmp_path, caplog, state
):
    async with impostor_and_world(tmp_path) as (impostor, world):
        assert (await impostor.register(state=state)).code == 0
        assert await impostor.route() == (impostor.address, 99)
        await world.service._registrar.register()
        # Its topics are its own again, too.
        queues = world.core.topics.get("T").write_queue_count
        assert await impostor.route() == (world.service.address, queues)
        assert f"returns {impostor.address} under the name broker-a" in caplog.text
        assert "returns this broker again" in caplog.text
        table = await figures(world)
        assert (table["brokerNameTaken"], table["brokerNameTakenTimes"]) == ("", "1")
        assert await saved(world)
        note = json.loads(world.core.store.layout.name_taken.read_text())
        assert (note["lastBy"], note["takenBy"]) == (impostor.address, {})


async def test_a_name_that_stays_taken_is_told_once_and_shown_as_long_as_it_is(tmp_path, caplog):
    stub = NameServerStub()
    route = {
        "brokerDatas": [{"brokerName": "broker-a", "brokerAddrs": {"0": "10.9.9.9:1"}}],
        "queueDatas": [],
    }
    stub.server.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda *_: Response(
        body=json.dumps(route).encode()
    )
    async with running(tmp_path, namesrvAddr=stub.address) as world:
        for _ in range(3):
            await world.service._registrar.register()
        shown = (await figures(world))["brokerNameTaken"]
        assert shown == f"{stub.address} leads to 10.9.9.9:1"
        assert caplog.text.count("returns 10.9.9.9:1") == 1
        # It is not forgotten while it lasts.
        world.clock.now_ms += 600_000
        await world.service._registrar.register()
        assert caplog.text.count("returns 10.9.9.9:1") == 2
        assert (await figures(world))["brokerNameTakenTimes"] == "1"
        assert await saved(world)
        assert world.core.store.layout.name_taken.exists()
    # A start begins without it: who has the name then is looked up anew.
    async with running(tmp_path) as world:
        assert not world.core.store.layout.name_taken.exists()
    await stub.server.stop()


def servers_of(*addresses):
    servers = NameServers(addresses)
    servers.are_served = True
    return servers


async def test_a_change_waits_for_name_servers_that_know_the_broker_and_for_no_other():
    servers = servers_of("a:1", "b:1", "c:1")
    servers.states["a:1"].channel = SimpleNamespace(is_open=True)
    servers.states["b:1"].channel = SimpleNamespace(is_open=False)
    announced = servers.announce()
    assert [state.wake.is_set() for state in servers.states.values()] == [True] * 3
    assert [state.next is None for state in servers.states.values()] == [False, True, True]
    assert not announced.done()
    servers.states["a:1"].next.set_result(None)
    await announced


async def test_two_changes_wait_for_the_same_registration():
    servers = servers_of("a:1")
    servers.states["a:1"].channel = SimpleNamespace(is_open=True)
    both = servers.announce(), servers.announce()
    servers.states["a:1"].next.set_result(None)
    await asyncio.gather(*both)


async def test_a_change_waits_for_nothing_if_no_name_server_knows_the_broker():
    assert servers_of("a:1").announce() is None
    assert NameServers([]).announce() is None
    stopped = servers_of("a:1")
    stopped.states["a:1"].channel = SimpleNamespace(is_open=True)
    stopped.are_served = False
    assert stopped.announce() is None
