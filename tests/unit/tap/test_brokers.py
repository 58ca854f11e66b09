"""Which brokers a tap follows, and what of one broker ends no other copy."""

import asyncio

import pytest

from rocketlens.errors import CopyFailed, StoreLocked
from rocketlens.model.rocketmq import MASTER_ID
from rocketlens.tap import follower
from rocketlens.tap.masters import _store_keys
from rocketlens.tap.service import Tap, TapOptions
from tests.support.fake_cluster import FakeNameServer
from tests.support.fake_master import followed
from tests.unit.tap.tapping import assert_copied, master_of, reaches, start, tapped, tapping, until


async def test_a_broker_that_is_down_at_the_start_does_not_keep_the_others_waiting(tmp_path, log):
    masters = [master_of(log), master_of(log, name="broker-b")]
    async with followed(*masters) as address:
        await masters[0].die()
        async with tapping(address, tmp_path) as tap:
            await masters[1].acknowledged(len(log))
            assert len(tap.problems()) == 1
            await masters[0].start()
            await masters[0].acknowledged(len(log))


async def test_several_brokers_are_followed_at_once(tmp_path, original):
    path, log = original
    masters = [master_of(log[:30_000]), master_of(log, name="broker-b")]
    async with followed(*masters) as address, tapping(address, tmp_path) as tap:
        await masters[1].acknowledged(len(log))
        masters[0].append(log[30_000:])
        await masters[0].acknowledged(len(log))
        metrics = {one.name: one for one in await tap.metrics()}
        offsets = metrics["rocketlens_tap_offset"].samples
        assert {one.labels["node_id"]: one.value for one in offsets} == {
            "broker-a": len(log),
            "broker-b": len(log),
        }
        await until(lambda: not tap.problems())
    for name in ("broker-a", "broker-b"):
        assert_copied(tmp_path / name, path)


@pytest.mark.usefixtures("often")
async def test_a_broker_that_is_registered_later_is_followed_too(tmp_path, original):
    path, log = original
    server, later = FakeNameServer(), master_of(log, name="broker-b")
    await later.start()
    following = followed(master_of(log), server=server)
    async with following as address, tapping(address, tmp_path) as tap:
        server.brokers["broker-b"] = {MASTER_ID: later}
        await later.acknowledged(len(log))
        await until(lambda: not tap.problems())
    await later.die()
    assert_copied(tmp_path / "broker-b", path)


@pytest.mark.usefixtures("often")
async def test_a_later_broker_that_cannot_be_followed_is_told_and_ends_nothing(tmp_path, log):
    server, master = FakeNameServer(), master_of(log[:20_000])
    later, unsafe = (master_of(log, name=name) for name in ("broker-b", "../x"))
    for one in (later, unsafe):
        await one.start()
    later.config["brokerRole"] = "SLAVE"
    following = followed(master, server=server)
    async with following as address, tapping(address, tmp_path) as tap:
        server.brokers |= {one.name: {MASTER_ID: one} for one in (later, unsafe)}
        await until(lambda: any("its role is SLAVE" in one for one in tap.problems()))
        master.append(log[20_000:])
        await master.acknowledged(len(log))
        later.config["brokerRole"] = "ASYNC_MASTER"
        await later.acknowledged(len(log))
        assert tap.failure is None
    for one in (later, unsafe):
        await one.die()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broker-a", "broker-b"]


@pytest.mark.usefixtures("often")
async def test_a_later_broker_that_another_tap_follows_is_followed_when_that_one_stops(
    tmp_path, log
):
    server, first = FakeNameServer(), master_of(log)
    later = master_of(log[:20_000], name="broker-b")
    async with followed(first, later, server=server) as address:
        async with tapping(address, tmp_path, "broker-b"):
            del server.brokers["broker-b"]
            tap = Tap(address, TapOptions(tmp_path))
            await tap.start()
            server.brokers["broker-b"] = {MASTER_ID: later}
            await until(lambda: any("belongs to a running" in one for one in tap.problems()))
        later.append(log[20_000:])
        await later.acknowledged(len(log))
        assert tap.failure is None
        await tap.stop()


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("how", ["fail", "forgot the broker"])
async def test_a_log_is_received_on_while_name_servers_do_not_know_where_its_broker_is(
    tmp_path, log, how
):
    server, master = FakeNameServer(), master_of(log[:20_000])
    following = followed(master, server=server)
    async with following as address, tapping(address, tmp_path) as tap:
        await reaches(tap, 19_000)
        brokers = dict(server.brokers)
        if how == "fail":
            server.err()
        else:
            server.brokers.clear()
        await until(lambda: any("the end of the log is unknown" in one for one in tap.problems()))
        master.append(log[20_000:])
        await master.acknowledged(len(log))
        connected = {one.name: one for one in await tap.metrics()}["rocketlens_tap_connected"]
        assert [one.value for one in connected.samples] == [1]
        server.fails_with = None
        server.brokers |= brokers
        await until(lambda: not tap.problems())
        assert len(master.starts) == 1


@pytest.mark.usefixtures("often")
async def test_another_master_is_followed_though_the_one_before_still_runs(tmp_path, original):
    path, log = original
    server, before, after = FakeNameServer(), master_of(log[:20_000]), master_of(log)
    await after.start()
    following = followed(before, server=server)
    async with following as address, tapping(address, tmp_path) as tap:
        await reaches(tap, 19_000)
        server.brokers["broker-a"] = {MASTER_ID: after}
        await after.acknowledged(len(log))
        await until(lambda: not tap.problems())
        assert tap.followers[0].copy.note.address == after.address
    await after.die()
    assert_copied(tmp_path / "broker-a", path)


async def test_a_broker_that_restarts_with_another_address_is_followed_there(tmp_path, original):
    path, log = original
    async with tapped(tmp_path, log[:20_000]) as (master, tap):
        await reaches(tap, 19_000)
        before = master.address, master.config["haListenPort"]
        await master.die()
        await until(tap.problems)
        # The ports are those that are free.
        await master.start()
        assert (master.address, master.config["haListenPort"]) != before
        master.append(log[20_000:])
        await master.acknowledged(len(log))
        await until(lambda: not tap.problems())
    assert_copied(tmp_path / "broker-a", path)


async def test_a_broker_without_a_master_at_the_start_is_followed_when_it_has_one(tmp_path, log):
    server, other, master = FakeNameServer(), master_of(log, name="broker-b"), master_of(log)
    await master.start()
    async with followed(other, server=server) as address:
        server.brokers["broker-a"] = {1: master}
        async with tapping(address, tmp_path) as tap:
            await other.acknowledged(len(log))
            assert any("has no master" in one for one in tap.problems())
            server.brokers["broker-a"] = {MASTER_ID: master}
            await master.acknowledged(len(log))
            await until(lambda: not tap.problems())
    await master.die()


async def test_a_named_broker_that_was_copied_before_may_be_absent_at_the_start(tmp_path, log):
    server, master = FakeNameServer(), master_of(log[:20_000])
    async with followed(master, server=server) as address:
        async with tapping(address, tmp_path, "broker-a") as tap:
            await reaches(tap, 19_000)
        server.brokers.clear()
        async with tapping(address, tmp_path, "broker-a") as tap:
            assert any("no name server knows" in one for one in tap.problems())
            master.append(log[20_000:])
            server.brokers["broker-a"] = {MASTER_ID: master}
            await master.acknowledged(len(log))


async def test_only_the_named_brokers_are_followed(tmp_path, log):
    masters = [master_of(log), master_of(log, name="broker-b")]
    async with followed(*masters) as address, tapping(address, tmp_path, "broker-b"):
        await masters[1].acknowledged(len(log))
        assert not masters[0].starts
    assert not (tmp_path / "broker-a").exists()


@pytest.mark.parametrize(
    ("config", "names", "said"),
    [
        ({"brokerRole": "SLAVE"}, (), "its role is SLAVE"),
        ({"enableControllerMode": "true"}, (), "in controller mode"),
        ({"enableDLegerCommitLog": "true"}, (), "its log has DLedger's format"),
        ({"mappedFileSizeCommitLog": ""}, (), "does not report the size of its log files"),
        ({}, ("x",), "no name server knows broker x; they know brok"),
    ],
)
async def test_a_broker_that_cannot_be_followed_is_refused(tmp_path, config, names, said):
    master = master_of(b"")
    async with followed(master) as address:
        master.config |= config
        with pytest.raises(CopyFailed, match=said):
            await start(address, tmp_path, *names)


async def test_a_name_that_is_no_directory_is_refused(tmp_path):
    async with followed(master_of(b"", name="../x")) as address:
        with pytest.raises(CopyFailed, match="cannot be the name of a directory"):
            await start(address, tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_a_second_tap_of_the_same_home_is_refused(tmp_path, log):
    async with followed(master_of(log)) as address, tapping(address, tmp_path):
        with pytest.raises(StoreLocked):
            await start(address, tmp_path)


def test_no_broker_decides_how_large_the_index_of_its_copy_is():
    told = {"mappedFileSizeCommitLog": "65536"}
    small = told | {"maxHashSlotNum": "100", "maxIndexNum": "400"}
    large = told | {"maxHashSlotNum": "5000000", "maxIndexNum": "100000000"}
    assert _store_keys(small, "broker-a") == small
    assert _store_keys(large, "broker-a") == told


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mappedFileSizeCommitLog", "1e9"),
        ("mappedFileSizeCommitLog", "-1"),
        ("mappedFileSizeCommitLog", "9" * 30),
        ("mappedFileSizeConsumeQueue", "no"),
        ("maxIndexNum", "9" * 5_000),
        ("maxHashSlotNum", "-5"),
        ("brokerIP2", "é" * 300),
        ("brokerIP2", "a..b"),
        ("haListenPort", "1000000000"),
        ("haListenPort", "1e3"),
        ("messageDelayLevel", "x" * 100),
    ],
)
@pytest.mark.usefixtures("often")
async def test_what_an_odd_broker_says_ends_no_other_copy(tmp_path, log, key, value):
    server, master = FakeNameServer(), master_of(log[:20_000])
    odd = master_of(log, name="broker-b")
    await odd.start()
    honest, odd.config = odd.config, odd.config | {key: value}
    following = followed(master, server=server)
    async with following as address, tapping(address, tmp_path) as tap:
        server.brokers["broker-b"] = {MASTER_ID: odd}
        await until(lambda: any("broker broker-b: " in one for one in tap.problems()))
        await asyncio.sleep(0)
        assert tap.failure is None
        master.append(log[20_000:])
        await master.acknowledged(len(log))
        odd.config = honest
        await odd.acknowledged(len(log))
        assert tap.failure is None
    await odd.die()


async def test_a_broker_that_cannot_be_followed_at_the_start_ends_no_other_copy(tmp_path, log):
    masters = [master_of(log, name=name) for name in ("broker-a", "broker-b", "../x")]
    masters[1].config["brokerRole"] = "SLAVE"
    async with followed(*masters) as address, tapping(address, tmp_path) as tap:
        await masters[0].acknowledged(len(log))
        await until(lambda: any("its role is SLAVE" in one for one in tap.problems()))
        masters[1].config["brokerRole"] = "SYNC_MASTER"
        await masters[1].acknowledged(len(log))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broker-a", "broker-b"]


async def test_an_error_that_nobody_foresaw_is_noted_and_followed_by_another_try(
    tmp_path, log, monkeypatch
):
    find = follower.find_master

    async def fails(*arguments):
        monkeypatch.setattr(follower, "find_master", find)
        raise ZeroDivisionError("unforeseen")

    async with tapped(tmp_path, log[:20_000]) as (master, tap):
        await reaches(tap, 19_000)
        monkeypatch.setattr(follower, "find_master", fails)
        await until(lambda: follower.find_master is find)
        master.append(log[20_000:])
        await master.acknowledged(len(log))
        assert tap.failure is None


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("names", [(), ("broker-a",)])
async def test_a_tap_that_starts_before_its_broker_waits(tmp_path, log, names):
    server, master = FakeNameServer(), master_of(log)
    await master.start()
    following = followed(server=server)
    async with following as address, tapping(address, tmp_path, *names) as tap:
        assert "no broker is registered" in tap.problems()[0] or names
        server.brokers["broker-a"] = {MASTER_ID: master}
        await master.acknowledged(len(log))
        assert not tap.problems()
    await master.die()
