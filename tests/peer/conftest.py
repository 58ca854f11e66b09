"""Real brokers that tests share: to start one takes longer than what most tests ask of it."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import WITHOUT_TIMERS
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import VERSIONS, RocketMQPeer, RunningBroker, reap

SETTINGS = {
    # Files roll within a test.
    "mappedFileSizeCommitLog": 1 << 18,
    "mappedFileSizeConsumeQueue": 6_000,
    "enablePropertyFilter": True,
    **WITHOUT_TIMERS,
}
OLDER, NEWER = VERSIONS
DIFFERS_IN_RELEASES = {
    *("test_acl", "test_layouts", "test_mqadmin", "test_mqadmin_groups"),
    *("test_sql92", "test_story", "test_tap", "test_wire"),
}
"""Files whose tests of the older release alone run in `make test`, too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs with the older release as slow, where it runs with the newer one, too."""
    here = Path(__file__).parent
    tests = {item.nodeid: item for item in items if here in item.path.parents}
    for name, item in tests.items():
        callspec = getattr(item, "callspec", None)
        if callspec and OLDER in callspec.params.values():
            newer = tests.get(name.replace(OLDER, NEWER))
            differs = item.path.stem in DIFFERS_IN_RELEASES
            if not differs or (newer and newer.get_closest_marker("slow") is None):
                item.add_marker("slow")


@pytest.fixture(scope="session")
def real_broker(
    peer: RocketMQPeer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], RunningBroker]]:
    """Return ``real_broker(version)``, a real broker of small files that runs already.

    It is for tests that neither stop nor damage it; each has topics and groups of its own.
    """
    brokers: dict[str, RunningBroker] = {}
    with ExitStack() as running:

        def of_version(version: str) -> RunningBroker:
            if version not in brokers:
                directory = tmp_path_factory.mktemp("real-broker")
                started = running.enter_context(peer.start(version, directory, **SETTINGS))
                brokers[version] = started
            return brokers[version]

        yield of_version


@pytest.fixture(scope="module")
def our_name_server(tmp_path_factory):
    """The name server of our own broker."""
    with ExitStack() as running:
        namesrv = OurNameServer()
        running.callback(namesrv.close)
        broker = OurBroker(tmp_path_factory.mktemp("ours"), str(namesrv.address))
        running.callback(broker.process.stdout.close)
        running.callback(reap, broker.process)
        yield str(namesrv.address)
        broker.stop()


@pytest.fixture
def utc(monkeypatch):
    """Local time as the real tool has it here."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
