"""A broker as a whole: its start, its ports, its end, and what it refuses."""

import asyncio
import json
import resource
import sys

import pytest

from rocketlens import limits
from rocketlens.broker.life import index_process
from rocketlens.broker.life import service as service_module
from rocketlens.broker.life.service import BrokerService, run
from rocketlens.errors import StoreLocked
from rocketlens.net.pool import ClientPool
from rocketlens.store.lock import StoreLock
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import Clock, World, in_broker, properties_of, running, settings_of
from tests.support.patience import PATIENCE_S
from tests.unit.net.loopback import NEVER, BlackHole, request_frame


async def test_requests_are_taken_on_the_second_port_as_well(world):
    host, _, port = world.service.address.rpartition(":")
    answer = await world.pool.call(f"{host}:{int(port) - 2}", RequestCode.GET_BROKER_RUNTIME_INFO)
    assert answer.code == 0


@pytest.mark.parametrize("code", [9999, 0, -1, 4242, 200050])
async def test_a_request_of_an_unknown_code_is_refused(world, code):
    answer = await world.call(code)
    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_a_broker_may_have_as_many_files_open_as_the_system_lets_it(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 500), hard))

    async def test(_):
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)

    try:
        in_broker(tmp_path, test)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_second_broker_on_a_store_is_refused_and_touches_nothing(world, tmp_path):
    await world.send(properties=properties_of(KEYS="k"))
    root = world.core.store.layout.root
    before = {path: path.stat() for path in sorted(root.rglob("*")) if path.name != "synced"}
    second = BrokerService(settings_of(tmp_path))
    with pytest.raises(StoreLocked):
        await second.start()
    await second.stop()
    after = {path: path.stat() for path in before}
    assert [(s.st_ino, s.st_size) for s in after.values()] == [
        (s.st_ino, s.st_size) for s in before.values()
    ]
    assert (await world.query("k")).code == 0


async def test_a_port_that_is_taken_leaves_the_store_alone(world, tmp_path):
    port = int(world.service.address.rpartition(":")[2])
    second = BrokerService(settings_of(tmp_path / "second", listenPort=port))
    with pytest.raises(OSError, match="in use"):
        await second.start()
    assert not (tmp_path / "second").exists()


async def test_a_clean_stop_leaves_no_abort_and_frees_the_store(tmp_path):
    async with running(tmp_path) as world:
        await world.send()
        layout = world.core.store.layout
        assert layout.abort.exists()
    StoreLock(layout.root).release()
    assert (layout.config / "topics.json").exists()


async def test_it_runs_until_it_is_told_to_stop(tmp_path):
    stop, addresses = asyncio.Event(), []

    def ready(address):
        addresses.append(address)
        stop.set()

    await run(settings_of(tmp_path), ready=ready, stop=stop, build_index=False)
    (address,) = addresses
    assert address.startswith("127.0.0.1:")


@pytest.mark.parametrize("open_files", [256, 512, 1024, 4096, 20_000, 65_536])
def test_connections_leave_the_store_its_files(open_files):
    most = service_module.max_connections(open_files)
    queues = max((open_files - 256) // 4, 64)
    assert 16 <= most <= 10_000
    assert most + 2 * queues + min(128, open_files // 4) <= open_files
    assert most >= open_files // 4 or most == 10_000


FOR_EVER_S = 86_400.0


async def stuck(directory, hole):
    """A broker whose name server never answers, and a client that waits for an answer."""
    service = BrokerService(
        settings_of(directory, namesrvAddr=hole.address, registerBrokerTimeoutMills=1),
        build_index=False,
    )
    await service.start()
    service._registrar._pool.call_timeout_s = FOR_EVER_S

    async def never(command, channel):
        await asyncio.Event().wait()

    service._handlers[NEVER] = never
    host, _, port = service.address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(request_frame(NEVER))
    while not service._server.group.in_flight:  # noqa: ASYNC110 - the loop is waited for
        await asyncio.sleep(0)
    return service, writer


@pytest.mark.parametrize("is_hurried", [False, True])
async def test_whom_a_stopping_broker_waits_for_is_waited_for_in_vain_only_so_long(
    tmp_path, monkeypatch, is_hurried
):
    # Asked a second time it waits for nobody, else only for some time.
    wait_s = FOR_EVER_S if is_hurried else 0.05
    for name in ("MAX_UNREGISTER_S", "MAX_STOP_ANSWERS_S", "MAX_FAREWELL_S"):
        monkeypatch.setattr(limits, name, wait_s)
    with BlackHole() as hole:
        service, writer = await stuck(tmp_path, hole)
        hurried = asyncio.Event()
        stopping = asyncio.create_task(service.stop(hurried))
        if is_hurried:
            await asyncio.sleep(0)
            assert not stopping.done()
            hurried.set()
        async with asyncio.timeout(PATIENCE_S):
            await stopping
        writer.close()
    assert not (tmp_path / "abort").exists()
    StoreLock(tmp_path).release()


async def test_a_broker_that_is_asked_to_stop_while_it_starts_does_not_start(tmp_path):
    """Its name server takes connections, and never answers."""
    stop = asyncio.Event()
    ready = []
    with BlackHole() as hole:
        settings = settings_of(
            tmp_path, namesrvAddr=hole.address, registerBrokerTimeoutMills=86_400_000
        )
        starting = asyncio.create_task(
            run(settings, ready=ready.append, stop=stop, build_index=False)
        )
        while not hole.taken:  # noqa: ASYNC110 - another thread's work is waited for
            await asyncio.sleep(0)
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await starting
    assert ready == []
    assert not (tmp_path / "abort").exists()


async def test_an_index_builder_that_hangs_is_killed_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(service_module, "WATCH_INTERVAL_S", 0.01)
    for name in ("HUNG_S", "HUNG_STARTING_S"):
        monkeypatch.setattr(index_process, name, 0.0)
    hanging = "import signal; print('ready', flush=True); signal.pause()"
    service = BrokerService(
        settings_of(tmp_path), index_command=[sys.executable, "-c", hanging], clock=Clock()
    )
    service._index._waits_s = lambda *_: FOR_EVER_S
    await service.start()
    pool = ClientPool(lambda _: True)
    try:
        world = World(service, pool, service.core.clock)
        assert (await world.send(properties=properties_of(KEYS="k"))).code == 0
        async with asyncio.timeout(PATIENCE_S):
            while "it hung" not in service.core.index_process.state:  # noqa: ASYNC110
                await asyncio.sleep(0)
        figures = await world.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert "it hung" in json.loads(figures.body)["table"]["indexBuilder"]
    finally:
        await pool.close()
        await service.stop()


@pytest.mark.broker(
    mappedFileSizeCommitLog=16384, deleteWhen=";".join(f"{hour:02}" for hour in range(24))
)
async def test_expired_segments_go_and_queries_go_on(world):
    body = bytes(1000)
    for number in range(100):
        await world.send(body=body, properties=properties_of(KEYS=f"k{number}"))
    await world.query("k0")
    world.clock.now_ms += 1000 * 3_600_000 * 100
    world.service._clean()
    assert world.core.store.min_offset > 0
    assert (await world.query("k0")).code == 22
    assert (await world.query("k99")).code == 0
    low = world.core.store.queues.min_offset("Orders", 0)
    assert low > 0
    assert (await world.pull(0)).code == 21
    assert (await world.pull(low)).code == 0
