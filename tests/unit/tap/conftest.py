"""What tests of a tap share: a store to copy, and no waiting."""

import pytest

from rocketlens.tap import follower, service
from tests.support.written_stores import open_small, send, send_many
from tests.unit.tap.tapping import log_of


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Make what a tap does now and then be done at once."""
    for name in ("REPORT_S", "POLL_S", "ROOM_S", "FIRST_PAUSE_S"):
        monkeypatch.setattr(follower, name, 0.02)


@pytest.fixture
def often(monkeypatch):
    """Look for brokers that are new all the time."""
    monkeypatch.setattr(service, "WATCH_S", 0.02)
    monkeypatch.setattr("rocketlens.client.connect.route.ROUTE_REFRESH_S", 0.0)
    monkeypatch.setattr("rocketlens.client.connect.topology.ROUTE_REFRESH_S", 0.0)
    monkeypatch.setattr("rocketlens.client.search.topic_tail.ROUTE_REFRESH_S", 0.0)
    monkeypatch.setattr("rocketlens.client.connect.cluster.ROUTE_REFRESH_S", 0.0)


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


@pytest.fixture
def log(original):
    """The bytes of the log of the store."""
    return original[1]
