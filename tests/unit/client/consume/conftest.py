"""A name server and a broker for consumers."""

import pytest

from tests.unit.client.consume import consumer_broker


@pytest.fixture
async def servers():
    async with consumer_broker.serving() as servers:
        yield servers


@pytest.fixture
def name_server(servers):
    """The address of the name server."""
    return servers[0].address


@pytest.fixture
def broker(servers):
    return servers[1]
