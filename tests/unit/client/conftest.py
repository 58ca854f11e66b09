"""Where a client remembers the brokers that it has seen."""

import pytest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "rocketlens" / "seen-brokers.jsonl"
