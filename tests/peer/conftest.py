"""Real brokers that tests share: to start one takes longer than what most tests ask of it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.console.conftest import browser, chromium, open_page  # noqa: F401 - fixtures
from tests.peer.rocketmq_peer import RocketMQPeer, RunningBroker

SETTINGS = {
    # Files roll within a test.
    "mappedFileSizeCommitLog": 1 << 18,
    "mappedFileSizeConsumeQueue": 6_000,
    "enablePropertyFilter": True,
}


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
