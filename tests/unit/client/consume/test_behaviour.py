"""Consumers on our own broker, in this process."""

import asyncio

import pytest

from rocketlens.testing import cluster
from tests.unit.client.consume import behaviour


@pytest.fixture(scope="module")
def name_server():
    with cluster() as running:
        yield running.name_server


@pytest.mark.parametrize("scenario", behaviour.ALL, ids=lambda each: each.__name__)
def test_on_our_broker(scenario, name_server):
    asyncio.run(scenario(name_server))


def test_broadcasting_on_our_broker(name_server, tmp_path):
    asyncio.run(behaviour.broadcasting_brings_everything_to_all(name_server, tmp_path))
