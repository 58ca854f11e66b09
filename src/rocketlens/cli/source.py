"""Where ``find`` and ``show`` look: in a store directory, or in a running cluster."""

from argparse import Namespace
from typing import Any

from rocketlens.cli.options import store_directory
from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer
from rocketlens.terminal.cluster_access import (
    ClusterAccess,
    chosen_context,
    cluster_access,
    seen_brokers_path,
)
from rocketlens.terminal.connection_options import NAME_SERVER_VARIABLES, STORE_VARIABLE
from rocketlens.terminal.output import note


def choose_source(arguments: Namespace) -> ClusterAccess | None:
    """Return the cluster to ask, or None when ``arguments.store`` names the store to read.

    :raises BadInput: when there is neither, or the command was given both.
    """
    context = chosen_context(arguments, takes_store=True)
    if context.store is not None:
        arguments.store = context.store
        return None
    if context.namesrv is None:
        raise BadInput(
            "which store, or which cluster? Give --store DIR, the directory that holds "
            "commitlog/, or --namesrv ADDR, or --context NAME; or set "
            f"{STORE_VARIABLE} or {NAME_SERVER_VARIABLES[0]}"
        )
    return cluster_access(context)


def find_in(
    source: ClusterAccess | None, arguments: Namespace, text: str | None, **options: Any
) -> Answer:
    """Find in what `choose_source` gave; ``options`` as ``Store.find`` has them."""
    topic = arguments.topic or None
    if source is not None:
        return _find_in_cluster(source, text, topic, options)
    from rocketlens.query.offline import open_store

    with open_store(
        store_directory(arguments), max_topic_scan_bytes=None, before_long_scan=_say_long_scan
    ) as store:
        return store.find(text, topic, **options)


def _find_in_cluster(
    access: ClusterAccess, text: str | None, topic: list[str] | None, options: dict[str, Any]
) -> Answer:
    # Late: the protocol costs a tenth of a second that a store need not wait for.
    from rocketlens.client.admin import MQAdmin
    from rocketlens.net.event_loop import run

    async def find() -> Answer:
        async with MQAdmin(
            access.name_servers, seen_brokers=seen_brokers_path(), **access.client_options
        ) as admin:
            return await admin.find(text, topic, **options)

    return run(find())


def forget_broker(access: ClusterAccess, broker_name: str) -> bool:
    """Forget a broker that is gone for good; False if it is not remembered."""
    from rocketlens.client.name_servers import name_server_addresses
    from rocketlens.client.seen_brokers import SeenBrokers

    addresses = name_server_addresses(access.name_servers)
    return SeenBrokers(seen_brokers_path(), addresses).forget(broker_name)


def _say_long_scan(log_bytes: int) -> None:
    """Print why the answer takes long, and how not to wait for it."""
    gib = log_bytes / (1 << 30)
    note(
        f"it is in none of the topics that are known: reading {gib:.0f} GiB of log for topics that "
        f"were deleted, about {gib:.0f} s (--topic NAME looks for it in one topic alone)"
    )
