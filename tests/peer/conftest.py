"""Real brokers that tests share: to start one takes longer than what most tests ask of it."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import WITHOUT_TIMERS
from tests.console.conftest import browser, chromium, open_page  # noqa: F401 - fixtures
from tests.peer.rocketmq_peer import VERSIONS, RocketMQPeer, RunningBroker

SETTINGS = {
    # Files roll within a test.
    "mappedFileSizeCommitLog": 1 << 18,
    "mappedFileSizeConsumeQueue": 6_000,
    "enablePropertyFilter": True,
    **WITHOUT_TIMERS,
}
OLDER, NEWER = VERSIONS
SHORT_WITH_OLDER = {
    "test_broker",
    "test_client",
    "test_consumers",
    "test_namesrv",
    "test_open_handle",
    "test_request_reply",
    "test_slaves",
    "test_story",
    "test_tail",
    "test_transactions",
}
"""Files whose tests of both versions `make test` runs with the older one, and the others with the
newer: `make test-all` runs both."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow one of two tests that differ in the version of RocketMQ alone."""
    alike: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("slow") is None:
            for version in VERSIONS:
                if version in item.nodeid:
                    alike[item.nodeid.replace(version, "")][version] = item
    for versions in alike.values():
        if len(versions) > 1:
            is_older_short = versions[OLDER].path.stem in SHORT_WITH_OLDER
            versions[NEWER if is_older_short else OLDER].add_marker("slow")


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


@pytest.fixture
def utc(monkeypatch):
    """Local time as the real tool has it here."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
