"""What name servers know of a broker, and which of them a change waits for."""

import asyncio
from types import SimpleNamespace

from rocketlens.broker.tables.name_servers import NameServers


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
