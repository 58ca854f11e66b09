"""Async tests here run in the loop that servers run in, or in the one that ``loop`` names."""

import asyncio

import pytest

from tests.unit.net.loopback import LOOPS, close_connected


@pytest.fixture
def loop():
    return "uvloop"


@pytest.fixture(autouse=True)
def runner(loop):
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        yield runner
        runner.run(close_connected())
