"""The pytest fixture ``rocketmq``; named in a ``conftest.py`` as one of its ``pytest_plugins``.

Servers are imported when the first test wants them.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rocketlens.testing.embedded import Cluster


@pytest.fixture
def rocketmq(tmp_path: "Path") -> "Iterator[Cluster]":
    """Return a name server and an empty broker of this test's own, on free loopback ports."""
    from rocketlens.testing.embedded import cluster

    with cluster(tmp_path / "rocketmq") as running:
        yield running
