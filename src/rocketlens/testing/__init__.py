"""Starts a name server and a broker for the tests of other projects, in well under a second.

::

    # conftest.py
    pytest_plugins = ["rocketlens.testing.plugin"]

    # test_orders.py
    def test_an_order_is_announced(rocketmq):
        announce("ORDER-1", name_server=rocketmq.name_server)
        with rocketmq.admin() as admin:
            assert len(admin.query_message("Orders", "ORDER-1")) == 1

``@pytest.mark.rocketmq(autoCreateTopicEnable=False)`` sets keys of ``broker.conf`` for the broker
of a test. A broker for many tests::

    shared = rocketlens.testing.cluster_fixture("session", autoCreateTopicEnable=False)

Without pytest: ``with rocketlens.testing.cluster() as rocketmq:``, or ``async with``.

The plugin is not a pytest entry point: each start of pytest would import it, and pytest would
rewrite the assertions of the whole package.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketlens.testing.embedded import Cluster, cluster
    from rocketlens.testing.plugin import cluster_fixture

__all__ = ["Cluster", "cluster", "cluster_fixture"]


if not TYPE_CHECKING:  # so that type checkers report unknown names

    def __getattr__(name: str) -> object:
        """Import a name when it is first used: the pytest plugin imports this package first.

        :raises AttributeError: if there is no such name.
        """
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "plugin" if name == "cluster_fixture" else "embedded"
        value: object = getattr(import_module(f"rocketlens.testing.{home}"), name)
        globals()[name] = value
        return value
