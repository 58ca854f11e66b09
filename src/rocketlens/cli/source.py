"""Where ``find`` and ``show`` look: in a store directory, or in a running cluster."""

from argparse import Namespace
from typing import Any

from rocketlens.cli.connection import Connection, chosen_context, connection_of
from rocketlens.cli.connection_options import NAME_SERVER_VARIABLES, STORE_VARIABLE
from rocketlens.cli.output import note, store_of
from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer


def choose_source(arguments: Namespace) -> Connection | None:
    """Give the cluster to ask, or None when ``arguments.store`` names the store to read.

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
    return connection_of(context)


def find_in(
    source: Connection | None, arguments: Namespace, text: str | None, **options: Any
) -> Answer:
    """Find in what `choose_source` gave; ``options`` as ``Store.find`` has them."""
    topic = arguments.topic or None
    if source is not None:
        from rocketlens.cli.cluster import find_in_cluster

        return find_in_cluster(source, text, topic, **options)
    from rocketlens.query.offline import open_store

    with open_store(
        store_of(arguments), max_topic_scan_bytes=None, before_long_scan=_say_long_scan
    ) as store:
        return store.find(text, topic, **options)


def _say_long_scan(log_bytes: int) -> None:
    """Tell the user why the answer takes long, and how not to wait for it."""
    gib = log_bytes / (1 << 30)
    note(
        f"it is in none of the topics that are known: reading {gib:.0f} GiB of log for topics that "
        f"were deleted, about {gib:.0f} s (--topic NAME looks for it in one topic alone)"
    )
