"""A tap and masters in one process: what is copied, acknowledged, missing, and told."""

import asyncio
import errno
import random
from contextlib import asynccontextmanager

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.errors import BadInput, CopyFailed, StoreLocked
from rocketlens.model.rocketmq import MASTER_ID
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tap_note import read_tap_note
from rocketlens.tap import follower, service
from rocketlens.tap.follower import MAX_REPLACED_PAUSE_S
from rocketlens.tap.masters import _store_keys
from rocketlens.tap.service import Tap, TapOptions
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.fake_cluster import FakeNameServer
from tests.support.fake_master import FakeMaster, followed
from tests.support.patience import PATIENCE_S
from tests.support.written_stores import SMALL, content_of, open_small, send, send_many

SEGMENT = SMALL.mappedFileSizeCommitLog


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Make what a tap does now and then be done at once."""
    for name in ("REPORT_S", "POLL_S", "ROOM_S", "FIRST_PAUSE_S"):
        monkeypatch.setattr(follower, name, 0.02)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store, and the bytes of its log."""
    path = tmp_path_factory.mktemp("original") / "store"
    with open_small(path) as store:
        send_many(store, 400)
        for number in range(20):
            send(store, number, "Other")
        store.flush()
        while not store.build_index():
            pass
        end = store.end_offset
    return path, log_of(path, 0, end)


def log_of(path, begin, end):
    files = sorted((path / "commitlog").iterdir())
    log = b"".join(file.read_bytes() for file in files)
    first = int(files[0].name)
    return log[begin - first : end - first]


def master_of(log, min_offset=0, **arguments):
    return FakeMaster(log[min_offset:], min_offset, config=SMALL, **arguments)


@asynccontextmanager
async def tapping(address, home, *brokers, **options):
    tap = Tap(address, TapOptions(home, brokers, **options))
    try:
        await tap.start()
        yield tap
    finally:
        await tap.stop()


async def until(condition):
    """Wait for what no event tells."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def run(scenario):
    async def bounded():
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    asyncio.run(bounded())


async def reaches(tap, offset, number=0):
    await until(lambda: (store := tap.followers[number].copy.store) and store.position >= offset)


def test_the_copy_is_the_masters_store(original, tmp_path):
    path, log = original

    async def scenario():
        master = master_of(log)
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            await master.acknowledged(len(log))
            await until((tmp_path / "broker-a/config/consumerOffset.json").exists)
            assert not tap.problems()

    run(scenario)
    copy = tmp_path / "broker-a"
    for names in (("commitlog", "consumequeue"), ("index",)):
        copied, made = content_of(copy, *names), content_of(path, *names)
        # Index files are named by the time they were made.
        assert sorted(copied.values()) == sorted(made.values())
        assert names == ("index",) or copied == made
    assert (copy / "config/consumerOffset.json").read_bytes() == b'{"offsetTable":{"T@g":{0:7}}}'
    with rocketlens.open_store(copy) as reader:
        answer = reader.find("k123", topic="Orders")
        assert answer.complete
        assert len(answer.messages) == 1


def test_a_cut_stream_and_dropped_connections_cost_nothing(original, tmp_path):
    path, log = original

    async def scenario():
        master = master_of(log[:20_000])
        master.cuts, master.drops_after = True, 7_000
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            while len(master.log) < len(log):
                master.append(log[len(master.log) :][: master.rng.randrange(1, 3_000)])
                await asyncio.sleep(0)
            await reaches(tap, len(log))
            assert len(master.starts) > 5

    run(scenario)
    assert content_of(tmp_path / "broker-a", "commitlog", "consumequeue") == content_of(
        path, "commitlog", "consumequeue"
    )


def test_it_goes_on_where_it_was_after_either_side_was_killed(original, tmp_path):
    path, log = original
    rng = random.Random(5)

    async def round_of(length):
        master = master_of(log[:length])
        async with followed(master) as address:
            tap = Tap(address, TapOptions(tmp_path))
            await tap.start()
            await reaches(tap, rng.randrange(length))
            for task in tap._tasks:
                task.cancel()
            await asyncio.wait(tap._tasks)
            for one in tap.followers:
                await one.close(abruptly=True)
            await tap._cluster.close()

    async def scenario():
        for length in (3_000, 20_000, 20_000, 40_000, 60_000, len(log)):
            await round_of(length)
        master = master_of(log)
        async with followed(master) as address, tapping(address, tmp_path):
            await master.acknowledged(len(log))

    run(scenario)
    assert content_of(tmp_path / "broker-a", "commitlog", "consumequeue") == content_of(
        path, "commitlog", "consumequeue"
    )


def test_only_what_is_synced_is_acknowledged(original, tmp_path):
    _, log = original

    async def scenario():
        master = master_of(log)
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            store = tap.followers[0].copy.store
            flush, may_sync = store._durability.flush_log, asyncio.Event()
            loop = asyncio.get_running_loop()
            await master.acknowledged(len(log))
            assert store.flushed_offset == len(log)
            # From now on nothing is synced until it may be.
            store._durability._flusher._flush = lambda: (
                asyncio.run_coroutine_threadsafe(may_sync.wait(), loop).result(),
                flush(),
            )
            store._durability._saver.stop()
            more = bytearray(log[:200])
            size = int.from_bytes(log[:4])
            more[28:36] = len(log).to_bytes(8)
            master.append(bytes(more[:size]))
            await reaches(tap, len(log) + size)
            count = len(master.reports)
            await until(lambda: len(master.reports) > count + 3)
            assert max(master.reports) == len(log)
            may_sync.set()
            await master.acknowledged(len(log) + size)

    run(scenario)


def test_without_acknowledging_only_the_first_offset_is_repeated(original, tmp_path):
    _, log = original

    async def scenario():
        master = master_of(log)
        options = {"acknowledges": False}
        async with followed(master) as address, tapping(address, tmp_path, **options) as tap:
            await reaches(tap, len(log))
            await until(lambda: len(master.reports) > 10)
            assert set(master.reports) == {1}

    run(scenario)


def test_what_the_master_deleted_before_it_was_copied_is_a_named_gap(original, tmp_path):
    _, log = original

    async def scenario():
        master = master_of(log[: SEGMENT + 3_000])
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            await master.acknowledged(tap.followers[0].copy.store.end_offset)
            await reaches(tap, SEGMENT + 2_000)
            before = tap.followers[0].copy.store.position
        later = master_of(log, 3 * SEGMENT)
        async with followed(later) as address, tapping(address, tmp_path) as tap:
            await later.acknowledged(len(log))
            (gap,) = tap.followers[0].copy.note.gaps
            assert gap[:2] == (before, 3 * SEGMENT)
        return before

    before = None

    async def keep():
        nonlocal before
        before = await scenario()

    run(keep)
    copy = tmp_path / "broker-a"
    said = f"physical offsets {before} to {3 * SEGMENT}: the broker deleted them before they"
    with rocketlens.open_store(copy) as reader:
        for answer in (
            reader.find("k20", topic="Orders"),
            reader.find(topic="Orders"),
            reader.find("nothing", topic="Orders"),
        ):
            assert not answer.complete
            assert any(said in (one.error or "") for one in answer.coverage)
        assert reader.find("k20", topic="Orders").messages
        assert reader.find("k399", topic="Orders").messages
        status = reader.status()
        assert status.tap.gaps == ((before, 3 * SEGMENT),)
        (last,) = reader.find("k399", topic="Orders").messages
        same = reader.find(f"Orders/{last.queue_id}/{last.queue_offset}")
        assert [one.keys for one in same.messages] == [last.keys]
    # Nothing was put into the gap.
    first = log_of(copy, SEGMENT, 2 * SEGMENT)
    assert first == log[SEGMENT:before] + bytes(2 * SEGMENT - before)
    assert not (copy / "commitlog" / f"{2 * SEGMENT:020}").exists()


def test_a_gap_that_comes_while_it_is_connected_is_passed(original, tmp_path):
    _, log = original

    async def scenario():
        master = master_of(log[: SEGMENT // 2])
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            await reaches(tap, SEGMENT // 2 - 1_000)
            master.log, master.min_offset = log[2 * SEGMENT :], 2 * SEGMENT
            await master.acknowledged(len(log))
            assert len(tap.followers[0].copy.note.gaps) == 1

    run(scenario)


@pytest.mark.parametrize("how", ["other bytes", "shorter"])
def test_the_copy_of_a_log_that_was_replaced_is_kept_aside_and_named(tmp_path, original, how):
    _, log = original
    with open_small(tmp_path / "other") as store:
        send_many(store, 500 if how == "other bytes" else 20, first=9_000)
        end = store.end_offset
    other = log_of(tmp_path / "other", 0, end)
    home = tmp_path / "home"

    async def scenario():
        master = master_of(log)
        async with followed(master) as address, tapping(address, home):
            await master.acknowledged(len(log))
        master = master_of(other)
        async with followed(master) as address, tapping(address, home) as tap:
            await master.acknowledged(len(other))
            assert tap.followers[0].copy.note.replaced == ("broker-a.replaced-0001",)

    run(scenario)
    assert log_of(home / "broker-a", 0, end) == other
    assert log_of(home / "broker-a.replaced-0001", 0, len(log)) == log
    with rocketlens.open_store(home / "broker-a") as reader:
        answer = reader.find("k20", topic="Orders")
        assert not answer.messages
        assert not answer.complete
        aside = str(home / "broker-a.replaced-0001")
        assert any(aside in (one.error or "") for one in answer.coverage)
    with rocketlens.open_store(home / "broker-a.replaced-0001") as reader:
        assert reader.find("k20", topic="Orders").messages


def test_what_comes_while_the_master_answers_does_not_make_it_another_log(tmp_path, original):
    _, log = original

    async def scenario():
        master = master_of(log[:20_000])
        async with followed(master) as address, tapping(address, tmp_path) as tap:

            async def grow():
                master.append(log[len(master.log) :][:4_000])
                await reaches(tap, len(master.log) - 1_000)

            master.before_it_answers = grow
            await reaches(tap, len(log))

    run(scenario)
    assert [each.name for each in tmp_path.iterdir()] == ["broker-a"]


def test_a_broker_that_is_down_at_the_start_does_not_keep_the_others_waiting(tmp_path, original):
    _, log = original

    async def scenario():
        masters = [master_of(log), master_of(log, name="broker-b")]
        async with followed(*masters) as address:
            await masters[0].die()
            async with tapping(address, tmp_path) as tap:
                await masters[1].acknowledged(len(log))
                assert len(tap.problems()) == 1
                await masters[0].start()
                await masters[0].acknowledged(len(log))

    run(scenario)


def test_a_log_that_is_replaced_while_it_is_connected_is_noticed(tmp_path, original):
    _, log = original

    async def scenario():
        master = master_of(log)
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            await master.acknowledged(len(log))
            master.log = log[:5_000]
            await until((tmp_path / "broker-a.replaced-0001").is_dir)
            await until(lambda: tap.followers[0].copy.store is not None)
            await reaches(tap, 4_000)

    run(scenario)


def test_a_master_that_sends_nothing_of_what_it_should_have_is_told(tmp_path, original):
    _, log = original

    async def scenario():
        master = master_of(log)
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            await master.acknowledged(len(log))
            master.is_mute = True
            master.drop()
            await until(lambda: any("did not send its log" in one for one in tap.problems()))
            master.is_mute = False
            master.drop()
            await until(lambda: not tap.problems())

    run(scenario)


@pytest.mark.parametrize(
    ("begin", "at"),
    [("earliest", SEGMENT), ("latest", 5 * SEGMENT), (2 * SEGMENT + 100, 2 * SEGMENT)],
)
def test_a_new_copy_begins_where_it_was_told(tmp_path, original, begin, at):
    _, log = original
    assert 5 * SEGMENT < len(log) < 6 * SEGMENT

    async def scenario():
        master = master_of(log, SEGMENT)
        options = {"begin": begin}
        async with followed(master) as address, tapping(address, tmp_path, **options) as tap:
            await master.acknowledged(len(log))
            assert tap.followers[0].copy.store.min_offset == at

    run(scenario)
    copy = tmp_path / "broker-a"
    assert log_of(copy, at, len(log)) == log[at:]
    with rocketlens.open_store(copy) as reader:
        assert reader.find("k19", topic="Other").complete
    assert read_tap_note(StoreLayout(copy)).begin_offset == at


def test_a_master_without_a_log_is_followed_from_its_first_message_on(tmp_path, original):
    path, log = original

    async def scenario():
        master = master_of(b"")
        master.said_min_offset = -1
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            assert not tap.problems()
            master.append(log)
            master.said_min_offset = None
            await master.acknowledged(len(log))

    run(scenario)
    assert content_of(tmp_path / "broker-a", "commitlog") == content_of(path, "commitlog")


@pytest.mark.parametrize("begin", [5, 10_000_000])
def test_an_offset_that_the_master_does_not_have_is_refused(tmp_path, original, begin):
    _, log = original

    async def scenario():
        master = master_of(log, SEGMENT)
        async with followed(master) as address:
            with pytest.raises(BadInput, match=f"--from {begin}"):
                async with tapping(address, tmp_path, begin=begin):
                    pass

    run(scenario)
    assert not (tmp_path / "broker-a" / "commitlog").exists()


def test_several_brokers_are_followed_at_once(tmp_path, original):
    path, log = original

    async def scenario():
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

    run(scenario)
    for name in ("broker-a", "broker-b"):
        assert content_of(tmp_path / name, "commitlog") == content_of(path, "commitlog")


def test_metrics_and_status_tell_how_many_bytes_and_seconds_a_copy_is_behind(tmp_path, original):
    _, log = original

    async def scenario():
        master = master_of(log[:20_000])
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            copy = tap.followers[0].copy
            await until(lambda: copy.store.received_offset == 20_000)
            master.is_mute = True
            master.log = log
            behind_bytes = len(log) - copy.store.position
            await until(lambda: copy.note.behind_bytes == behind_bytes)
            metrics = {one.name: one.samples[0].value for one in await tap.metrics()}
            assert metrics["rocketlens_tap_behind_bytes"] == behind_bytes
            last_ms = copy.store.last_appended.store_timestamp_ms
            seconds = (copy.note.written_ms - last_ms) / 1000
            assert metrics["rocketlens_tap_behind_seconds"] == seconds > 0
        return behind_bytes

    behind = []

    async def keep():
        behind.append(await scenario())

    run(keep)
    with rocketlens.open_store(tmp_path / "broker-a") as reader:
        tap = reader.status().tap
    assert tap.behind_bytes == behind[0]
    assert tap.behind_ms > 0


@pytest.fixture
def often(monkeypatch):
    """Look for brokers that are new all the time."""
    monkeypatch.setattr(service, "WATCH_S", 0.02)
    monkeypatch.setattr(limits, "ROUTE_REFRESH_S", 0.0)


@pytest.mark.usefixtures("often")
def test_a_broker_that_is_registered_later_is_followed_too(tmp_path, original):
    path, log = original

    async def scenario():
        server, later = FakeNameServer(), master_of(log, name="broker-b")
        await later.start()
        following = followed(master_of(log), server=server)
        async with following as address, tapping(address, tmp_path) as tap:
            server.brokers["broker-b"] = {MASTER_ID: later}
            await later.acknowledged(len(log))
            await until(lambda: not tap.problems())
        await later.die()

    run(scenario)
    assert content_of(tmp_path / "broker-b", "commitlog") == content_of(path, "commitlog")


@pytest.mark.usefixtures("often")
def test_a_later_broker_that_cannot_be_followed_is_told_and_ends_nothing(tmp_path, original):
    _, log = original

    async def scenario():
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

    run(scenario)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broker-a", "broker-b"]


@pytest.mark.usefixtures("often")
def test_a_later_broker_that_another_tap_follows_is_followed_when_that_one_stops(
    tmp_path, original
):
    _, log = original

    async def scenario():
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

    run(scenario)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("how", ["fail", "forgot the broker"])
def test_a_log_is_received_on_while_name_servers_do_not_know_where_its_broker_is(
    tmp_path, original, how
):
    _, log = original

    async def scenario():
        server, master = FakeNameServer(), master_of(log[:20_000])
        following = followed(master, server=server)
        async with following as address, tapping(address, tmp_path) as tap:
            await reaches(tap, 19_000)
            brokers = dict(server.brokers)
            if how == "fail":
                server.err()
            else:
                server.brokers.clear()
            await until(lambda: any("where it ends is not known" in one for one in tap.problems()))
            master.append(log[20_000:])
            await master.acknowledged(len(log))
            connected = {one.name: one for one in await tap.metrics()}["rocketlens_tap_connected"]
            assert [one.value for one in connected.samples] == [1]
            server.fails_with = None
            server.brokers |= brokers
            await until(lambda: not tap.problems())
            assert len(master.starts) == 1

    run(scenario)


@pytest.mark.usefixtures("often")
def test_another_master_is_followed_though_the_one_before_still_runs(tmp_path, original):
    path, log = original

    async def scenario():
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

    run(scenario)
    assert content_of(tmp_path / "broker-a", "commitlog") == content_of(path, "commitlog")


def test_a_broker_that_restarts_with_another_address_is_followed_there(tmp_path, original):
    path, log = original

    async def scenario():
        master = master_of(log[:20_000])
        async with followed(master) as address, tapping(address, tmp_path) as tap:
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

    run(scenario)
    assert content_of(tmp_path / "broker-a", "commitlog") == content_of(path, "commitlog")


def test_a_broker_without_a_master_at_the_start_is_followed_when_it_has_one(tmp_path, original):
    _, log = original

    async def scenario():
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

    run(scenario)


def test_a_named_broker_that_was_copied_before_may_be_absent_at_the_start(tmp_path, original):
    _, log = original

    async def scenario():
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

    run(scenario)


def test_files_expire_also_while_the_broker_is_down(tmp_path, original):
    _, log = original

    async def scenario():
        master = master_of(log)
        options = {"retention_hours": 1}
        async with followed(master) as address, tapping(address, tmp_path, **options) as tap:
            await master.acknowledged(len(log))
            await master.die()
            await until(tap.problems)
            store = tap.followers[0].copy.store
            now_ms = store._cleaner._clock
            store._cleaner._clock = lambda: now_ms() + 2 * 3_600_000
            await until(lambda: store.min_offset == 5 * SEGMENT)
            await master.start()

    run(scenario)


def test_a_copy_that_cannot_be_put_aside_is_when_it_can(tmp_path, original, monkeypatch):
    _, log = original
    refused = []

    def refuse(disk, path, target):
        if len(refused) < 3:
            refused.append(target)
            raise OSError(errno.EACCES, "Permission denied", str(target))
        real(disk, path, target)

    real = Disk.move
    monkeypatch.setattr(Disk, "move", refuse)

    async def scenario():
        master = master_of(log)
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            await master.acknowledged(len(log))
            master.log = log[:5_000]
            await until(lambda: any("cannot be put aside" in one for one in tap.problems()))
            await until((tmp_path / "broker-a.replaced-0001").is_dir)
            await until(lambda: tap.followers[0].copy.store is not None)
            await reaches(tap, 4_000)
            assert tap.failure is None

    run(scenario)
    assert log_of(tmp_path / "broker-a.replaced-0001", 0, len(log)) == log


def test_a_table_that_is_refused_does_not_keep_the_others_waiting(tmp_path, original, caplog):
    _, log = original

    async def scenario():
        master = master_of(log)
        master.refused.add(RequestCode.GET_ALL_CONSUMER_OFFSET)
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            await until((tmp_path / "broker-a/config/subscriptionGroup.json").exists)
            code = RequestCode.GET_ALL_CONSUMER_OFFSET
            count = master.codes().count(code)
            await until(lambda: master.codes().count(code) > count + 3)
            assert not tap.problems()

    run(scenario)
    assert not (tmp_path / "broker-a/config/consumerOffset.json").exists()
    # Once, and not at every try.
    assert caplog.text.count("its tables are not taken over") == 1


def test_a_copy_that_is_larger_than_it_may_be_loses_its_oldest_files(tmp_path, original):
    _, log = original

    async def scenario():
        master = master_of(log)
        options = {"retention_bytes": 2 * SEGMENT}
        async with followed(master) as address, tapping(address, tmp_path, **options) as tap:
            await master.acknowledged(len(log))
            await until(lambda: tap.followers[0].copy.store.min_offset == 4 * SEGMENT)

    run(scenario)
    with rocketlens.open_store(tmp_path / "broker-a") as reader:
        assert reader.find("k19", topic="Other").complete


def test_only_the_named_brokers_are_followed(tmp_path, original):
    _, log = original

    async def scenario():
        masters = [master_of(log), master_of(log, name="broker-b")]
        async with followed(*masters) as address, tapping(address, tmp_path, "broker-b"):
            await masters[1].acknowledged(len(log))
            assert not masters[0].starts

    run(scenario)
    assert not (tmp_path / "broker-a").exists()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("brokerRole", "SLAVE", "its role is SLAVE"),
        ("enableControllerMode", "true", "in controller mode"),
        ("enableDLegerCommitLog", "true", "its log is one of DLedger"),
        ("mappedFileSizeCommitLog", "", "does not tell the size of its log files"),
    ],
)
@within(run)
async def test_a_broker_that_cannot_be_followed_is_refused(tmp_path, key, value, said):
    master = master_of(b"")
    async with followed(master) as address:
        master.config[key] = value
        with pytest.raises(CopyFailed, match=said):
            async with tapping(address, tmp_path):
                pass


@within(run)
async def test_a_broker_that_is_not_registered_is_refused(tmp_path):
    master = master_of(b"")
    async with followed(master) as address:
        with pytest.raises(CopyFailed, match="no name server knows broker x; they know brok"):
            async with tapping(address, tmp_path, "x"):
                pass


def test_a_name_that_is_no_directory_is_refused(tmp_path):
    async def scenario():
        master = master_of(b"", name="../x")
        async with followed(master) as address:
            with pytest.raises(CopyFailed, match="cannot be the name of a directory"):
                async with tapping(address, tmp_path):
                    pass

    run(scenario)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_no_copy_is_never_written(tmp_path, original):
    _, log = original
    with open_small(tmp_path / "broker-a") as store:
        send_many(store, 3)
    before = content_of(tmp_path / "broker-a")

    async def scenario():
        async with followed(master_of(log)) as address:
            with pytest.raises(CopyFailed, match="has a store that is no copy"):
                async with tapping(address, tmp_path):
                    pass

    run(scenario)
    assert content_of(tmp_path / "broker-a") == before


def test_a_second_tap_of_the_same_home_is_refused(tmp_path, original):
    _, log = original

    async def scenario():
        async with followed(master_of(log)) as address, tapping(address, tmp_path):
            with pytest.raises(StoreLocked):
                async with tapping(address, tmp_path):
                    pass

    run(scenario)


def test_a_full_disk_stops_the_stream_until_there_is_room(tmp_path, original):
    path, log = original

    async def scenario():
        master = master_of(log[:10_000])
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            await reaches(tap, 9_000)
            store = tap.followers[0].copy.store
            room = store._copy._reserve
            real_segment = store._copy._new_segment

            def no_room(*_):
                raise OSError(28, "No space left on device")

            store._copy._reserve = store._copy._new_segment = no_room
            master.append(log[10_000:])
            await until(lambda: any("disk is full" in one for one in tap.problems()))
            assert store.position < 2 * SEGMENT
            store._copy._reserve, store._copy._new_segment = room, real_segment
            await master.acknowledged(len(log))
            await until(lambda: not tap.problems())

    run(scenario)
    assert content_of(tmp_path / "broker-a", "commitlog") == content_of(path, "commitlog")


def test_files_are_deleted_so_long_after_they_were_copied(tmp_path, original):
    _, log = original

    async def scenario():
        master = master_of(log)
        options = {"retention_hours": 1}
        async with followed(master) as address, tapping(address, tmp_path, **options) as tap:
            await master.acknowledged(len(log))
            store = tap.followers[0].copy.store
            assert store.min_offset == 0
            now_ms = store._cleaner._clock
            store._cleaner._clock = lambda: now_ms() + 2 * 3_600_000
            await until(lambda: store.min_offset == 5 * SEGMENT)

    run(scenario)
    with rocketlens.open_store(tmp_path / "broker-a") as reader:
        assert reader.find("k19", topic="Other").complete


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
def test_what_an_odd_broker_says_ends_no_other_copy(tmp_path, original, key, value):
    _, log = original

    async def scenario():
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

    run(scenario)


def test_a_broker_that_cannot_be_followed_at_the_start_ends_no_other_copy(tmp_path, original):
    _, log = original

    async def scenario():
        masters = [master_of(log, name=name) for name in ("broker-a", "broker-b", "../x")]
        masters[1].config["brokerRole"] = "SLAVE"
        async with followed(*masters) as address, tapping(address, tmp_path) as tap:
            await masters[0].acknowledged(len(log))
            await until(lambda: any("its role is SLAVE" in one for one in tap.problems()))
            masters[1].config["brokerRole"] = "SYNC_MASTER"
            await masters[1].acknowledged(len(log))

    run(scenario)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broker-a", "broker-b"]


def test_an_error_that_nobody_foresaw_is_noted_and_followed_by_another_try(
    tmp_path, original, monkeypatch
):
    _, log = original
    find = follower.find_master

    async def fails(*arguments):
        monkeypatch.setattr(follower, "find_master", find)
        raise ZeroDivisionError("unforeseen")

    async def scenario():
        master = master_of(log[:20_000])
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            await reaches(tap, 19_000)
            monkeypatch.setattr(follower, "find_master", fails)
            await until(lambda: follower.find_master is find)
            master.append(log[20_000:])
            await master.acknowledged(len(log))
            assert tap.failure is None

    run(scenario)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("names", [(), ("broker-a",)])
def test_a_tap_that_starts_before_its_broker_waits(tmp_path, original, names):
    _, log = original

    async def scenario():
        server, master = FakeNameServer(), master_of(log)
        await master.start()
        following = followed(server=server)
        async with following as address, tapping(address, tmp_path, *names) as tap:
            assert "no broker is registered" in tap.problems()[0] or names
            server.brokers["broker-a"] = {MASTER_ID: master}
            await master.acknowledged(len(log))
            assert not tap.problems()
        await master.die()

    run(scenario)


async def has_other_log(tap, length, count):
    """Wait until the copy is longer than a log will be, after so many were put aside."""
    copy = tap.followers[0].copy
    await until(
        lambda: len(copy.replaced()) == count and copy.store and copy.store.position > length
    )


def test_a_master_that_keeps_changing_is_waited_for_and_only_so_many_copies_are_kept(
    tmp_path, original, monkeypatch
):
    _, log = original
    monkeypatch.setattr("rocketlens.tap.copy_log.MAX_REPLACED_COPIES", 3)

    async def scenario():
        master = master_of(log)
        async with followed(master) as address, tapping(address, tmp_path) as tap:
            for number, length in enumerate((80_000, 60_000, 40_000, 20_000)):
                await has_other_log(tap, length, number)
                master.log = log[:length]
            await until(lambda: any("3 copies of other logs" in one for one in tap.problems()))
            assert tap.failure is None

    run(scenario)
    aside = sorted(each.name for each in tmp_path.iterdir())
    assert aside == ["broker-a", *(f"broker-a.replaced-{number:04}" for number in (1, 2, 3))]
    pauses = [follower.replaced_pause_s(number) for number in range(20)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_REPLACED_PAUSE_S


def test_copies_put_aside_have_no_more_bytes_than_a_copy_may_have(tmp_path, original):
    _, log = original

    async def scenario():
        master = master_of(log)
        options = {"retention_bytes": SEGMENT}
        async with followed(master) as address, tapping(address, tmp_path, **options) as tap:
            await has_other_log(tap, 40_000, 0)
            master.log = log[:40_000]
            await has_other_log(tap, 20_000, 1)
            master.log = log[:20_000]
            await until(lambda: any("bytes of copies" in one for one in tap.problems()))

    run(scenario)
