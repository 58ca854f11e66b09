"""The pytest fixture ``rocketmq``; add this module to ``pytest_plugins`` of a ``conftest.py``.

``@pytest.mark.rocketmq(autoCreateTopicEnable=False)`` sets keys of ``broker.conf`` for the broker
of a test; :func:`cluster_fixture` creates fixtures of other scopes. The servers are imported when
the first test needs them.
"""

from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rocketlens.testing.embedded import Cluster


MARKER: Final = "rocketmq"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker. Pytest calls this."""
    config.addinivalue_line(
        "markers", f"{MARKER}(**broker_conf): keys of broker.conf for the fixture rocketmq"
    )


@pytest.fixture
def rocketmq(tmp_path: "Path", request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """Return a name server and an empty broker for this test, on free loopback ports."""
    from rocketlens.testing.embedded import cluster

    conf: dict[str, Any] = {}
    # The mark of the function overrides that of its class, which overrides that of the module.
    for mark in reversed(list(request.node.iter_markers(MARKER))):
        conf |= mark.kwargs
    with cluster(tmp_path / "rocketmq", **conf) as running:
        yield running


def cluster_fixture(
    scope: Literal["function", "class", "module", "package", "session"] = "session",
    *,
    build_index: bool = False,
    **broker_conf: Any,
) -> Any:
    """Return a fixture of a name server and a broker, for a name in a ``conftest.py``.

    ``shared_rocketmq = cluster_fixture("session", autoCreateTopicEnable=False)``: the tests of a
    scope share one broker, which starts empty. ``build_index`` and ``broker_conf`` are as in
    `rocketlens.testing.cluster`.
    """

    @pytest.fixture(scope=scope)
    def shared(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Cluster]":
        from rocketlens.testing.embedded import cluster

        directory = tmp_path_factory.mktemp("rocketmq") / "home"
        with cluster(directory, build_index=build_index, **broker_conf) as running:
            yield running

    return shared
