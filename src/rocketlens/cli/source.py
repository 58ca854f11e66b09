"""Where ``find`` and ``show`` look: in a store directory, or in a running cluster."""

import os
from argparse import Namespace
from typing import Any, Final

from rocketlens.cli.output import store_of
from rocketlens.errors import BadInput
from rocketlens.model.answer import Answer

STORE_VARIABLE: Final = "ROCKETLENS_STORE"
NAME_SERVER_VARIABLES: Final = ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR")


def choose_source(arguments: Namespace) -> str | None:
    """Give the name servers to ask, or None when ``arguments.store`` names the store to read.

    What the command was given counts more than the environment, and there a store more than a
    name server.

    :raises BadInput: when there is neither, or the command was given both.
    """
    if arguments.store and arguments.namesrv:
        raise BadInput("--store reads a directory, --namesrv asks a cluster: give one of them")
    if arguments.store:
        return None
    if arguments.namesrv:
        return str(arguments.namesrv)
    arguments.store = os.environ.get(STORE_VARIABLE) or None
    if arguments.store:
        return None
    name_servers = name_servers_of_environment()
    if name_servers:
        return name_servers
    raise BadInput(
        "which store, or which cluster? Give --store DIR, the directory that holds commitlog/, or "
        f"--namesrv ADDR; or set {STORE_VARIABLE} or {NAME_SERVER_VARIABLES[0]}"
    )


def name_servers_of_environment() -> str | None:
    """Give the name servers that the environment names, None for none."""
    return next(filter(None, map(os.environ.get, NAME_SERVER_VARIABLES)), None)


def find_in(source: str | None, arguments: Namespace, text: str | None, **options: Any) -> Answer:
    """Find in what `choose_source` gave; ``options`` as ``Store.find`` has them."""
    topic = arguments.topic or None
    if source is not None:
        from rocketlens.cli.cluster import find_in_cluster

        return find_in_cluster(source, text, topic, **options)
    from rocketlens.query.offline import open_store

    with open_store(store_of(arguments)) as store:
        return store.find(text, topic, **options)
