"""Selects the source of a command and its credentials: options, environment, named context.

=====================================  ========================================================
the source is given by                 used
=====================================  ========================================================
``--namesrv`` or ``--store``           the option; a context only with ``--context``
``--context``                          the context, even if the environment names a source
``ROCKETLENS_STORE``, ``NAMESRV_ADDR``  the variable, and no context: its secrets are for its own
                                       cluster
``ROCKETLENS_CONTEXT``, or the file's  the context
``default_context``
=====================================  ========================================================
"""

import os
import re
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rocketlens.errors import BadInput
from rocketlens.model.rocketmq import NAME_SERVER_VARIABLES
from rocketlens.terminal.contexts import (
    ACCESS_KEY_VARIABLE,
    OPTIONS,
    SECRET_KEY_VARIABLE,
    STORE_VARIABLE,
    SWITCHES,
    Context,
    default_context,
    named_context,
)

if TYPE_CHECKING:
    # Late: the protocol and TLS are slow to import, and commands over a store need neither.
    import ssl
    from collections.abc import Awaitable, Callable

    from rocketlens.client.blocking.sync_admin import SyncMQAdmin
    from rocketlens.client.connect.cluster import Credentials
    from rocketlens.client.mq_admin import MQAdmin

T = TypeVar("T")


class ClusterAccess(NamedTuple):
    """Addresses and credentials of a cluster."""

    name_servers: str
    namespace: str = ""
    credentials: "Credentials | None" = None
    tls: "ssl.SSLContext | None" = None

    @property
    def client_options(self) -> dict[str, Any]:
        """The keyword arguments of a `rocketlens.client.mq_admin.ClusterClient`."""
        return {"namespace": self.namespace, "credentials": self.credentials, "tls": self.tls}


def choose_context(
    arguments: Namespace,
    *,
    takes_store: bool,
    takes_archive: bool = False,
    last: Context | None = None,
) -> Context:
    """Return the source and the credentials; ``last`` has defaults.

    :raises BadInput: if options contradict each other, or a named context is missing or invalid.
    """
    options = _of_options(arguments)
    if options.store is not None and options.namesrv is not None:
        raise BadInput("--store reads a directory and --namesrv searches a cluster: give only one")
    environment = _of_environment(takes_store=takes_store)
    if arguments.context is not None:
        if options.store is not None:
            raise BadInput("--store and --context both name a source: give only one")
        named = options.over(named_context(arguments.context)).over(environment)
    else:
        named = options.over(environment)
        if not named.names_source:
            named = named.over(default_context())
    needs = "a store or a cluster" if takes_store else "a cluster"
    for kind, directory, is_taken in (
        ("a store", named.store, takes_store),
        ("an archive", named.archive, takes_archive),
    ):
        if directory is None:
            continue
        if not is_taken:
            raise BadInput(f"this command needs {needs}, but the context names {kind}")
        for name in options.given.keys() - {"store"}:
            option = name.replace("_", "-")
            raise BadInput(f"--{option} is for a cluster, but {directory} is {kind}")
    return named if last is None else named.over(last)


def cluster_access(context: Context) -> ClusterAccess:
    """Return the addresses and credentials of a context's cluster; reads the files that it names.

    :raises BadInput: if it has no name server, or only one part of a key pair.
    :raises OSError: if a file cannot be read.
    """
    if context.namesrv is None:
        raise BadInput(
            "no name server: give --namesrv ADDR (mqadmin: -n), such as 127.0.0.1:9876, or "
            f"--context NAME; or set {NAME_SERVER_VARIABLES[0]}"
        )
    return ClusterAccess(
        context.namesrv, _namespace(context.namespace or ""), _credentials(context), _tls(context)
    )


def writable_cluster_access(context: Context) -> ClusterAccess:
    """Return the result of `cluster_access`, for a command that changes the cluster.

    :raises BadInput: also if the context is read-only.
    """
    if context.read_only:
        raise BadInput(
            "this context is read_only, and the command changes the cluster: use another context, "
            "or remove read_only from the configuration file"
        )
    return cluster_access(context)


def ask_cluster(access: ClusterAccess, ask: "Callable[[MQAdmin], Awaitable[T]]") -> T:
    """Call ``ask`` with a client of a cluster in a new event loop, and return its result."""
    from rocketlens.client.connect.broker_history import seen_brokers_path
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.net.event_loop import run

    async def asked() -> T:
        async with MQAdmin(
            access.name_servers, seen_brokers=seen_brokers_path(), **access.client_options
        ) as admin:
            return await ask(admin)

    return run(asked())


def open_cluster(access: ClusterAccess) -> "SyncMQAdmin":
    """Return an open client for a command that prints results as they arrive.

    Its event loop has its own thread, so that slow output does not delay replies.
    """
    from rocketlens.client.blocking.sync_admin import SyncMQAdmin
    from rocketlens.client.connect.broker_history import seen_brokers_path

    return SyncMQAdmin(
        access.name_servers, seen_brokers=seen_brokers_path(), **access.client_options
    )


def user_name() -> str:
    """Return the user's name, for logs and jobs."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"


def jobs_directory() -> Path:
    from rocketlens.client.connect.broker_history import state_directory

    return state_directory() / "jobs"


def saved_searches_path() -> Path:
    """Return the path of the file with searches that the user saved in consoles."""
    from rocketlens.client.connect.broker_history import state_directory

    return state_directory() / "saved-searches.json"


def name_servers_of_environment() -> str | None:
    return next(filter(None, map(os.environ.get, NAME_SERVER_VARIABLES)), None)


def _of_options(arguments: Namespace) -> Context:
    names = ("store", "namesrv", *(name.replace("-", "_") for name in (*OPTIONS, *SWITCHES)))
    values = {name: getattr(arguments, name, None) for name in names if name != "context"}
    return Context(**{name: value for name, value in values.items() if value != ""})


def _of_environment(*, takes_store: bool) -> Context:
    store = os.environ.get(STORE_VARIABLE) if takes_store else None
    return Context(
        store=store or None,
        # A store takes precedence.
        namesrv=None if store else name_servers_of_environment(),
        access_key=os.environ.get(ACCESS_KEY_VARIABLE),
        secret_key=os.environ.get(SECRET_KEY_VARIABLE),
    )


def _namespace(text: str) -> str:
    if text and not re.fullmatch(r"[\w-]{1,127}", text, re.ASCII):
        raise BadInput("invalid namespace: expected up to 127 letters, digits, _ and -")
    return text


def _credentials(context: Context) -> "Credentials | None":
    secret = context.secret()
    if context.access_key is None and secret is None:
        return None
    if context.access_key is None or secret is None:
        missing = "secret key" if secret is None else "access key"
        raise BadInput(f"an access key and a secret key go together: the {missing} is missing")
    from rocketlens.client.connect.cluster import Credentials

    return Credentials(context.access_key, secret)


def _tls(context: Context) -> "ssl.SSLContext | None":
    files = [context.ca, context.cert, context.cert_key]
    use_tls = context.tls
    if use_tls is None:
        use_tls = bool(context.insecure or context.check_hostname) or any(files)
    if not use_tls:
        return None
    if context.insecure and context.ca is not None:
        raise BadInput("insecure and ca contradict each other: give only one")
    if context.cert_key is not None and context.cert is None:
        raise BadInput("cert_key needs cert")
    from rocketlens.net.tls import client_context

    ca, certificate, key = (None if file is None else Path(file).expanduser() for file in files)
    return client_context(
        ca=ca,
        certificate=certificate,
        key=key,
        verify=not context.insecure,
        check_hostname=context.check_hostname,
    )
