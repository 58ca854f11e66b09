"""The options of a connection to a cluster, and the environment variables behind them.

Apart from :mod:`rocketlens.terminal.cluster_access`, which reads them, to keep ``--help`` quick.
"""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Final

from rocketlens.terminal.command_parser import CommandParser

CONTEXT_VARIABLE: Final = "ROCKETLENS_CONTEXT"
STORE_VARIABLE: Final = "ROCKETLENS_STORE"
ACCESS_KEY_VARIABLE: Final = "ROCKETLENS_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETLENS_SECRET_KEY"  # noqa: S105 - a variable's name

OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "context": (
        "NAME",
        f"a named context of the configuration file (default: ${CONTEXT_VARIABLE})",
    ),
    "namespace": ("NS", "prefix of topics and groups, as in RocketMQ's clients"),
    "access-key": (
        "KEY",
        f"the user, if brokers check access (default: ${ACCESS_KEY_VARIABLE})",
    ),
    "secret-key-file": (
        "FILE",
        f"file with the secret key (default: the key itself in ${SECRET_KEY_VARIABLE})",
    ),
    "ca": ("FILE", "use TLS, and trust servers with a certificate of this authority (PEM)"),
    "cert": ("FILE", "our own certificate, if servers ask for one (PEM)"),
    "cert-key": ("FILE", "the private key of --cert, if it is in another file (PEM)"),
}
"""Options with a value: the name of the value, and the help."""
SWITCHES: Final[Mapping[str, str]] = {
    "tls": "use TLS",
    "check-hostname": "use TLS, and check the host of certificates (always so without --ca)",
    "insecure": "use TLS without checking certificates, as RocketMQ's own clients do",
}


def add_connection_options(parser: ArgumentParser, *, several_contexts: bool = False) -> None:
    """Add the options of a connection, except ``--namesrv``; ``--context`` once, or repeated."""
    group = parser.add_argument_group("the connection to a cluster")
    actions = [
        group.add_argument(
            f"--{name}",
            metavar=metavar,
            help=purpose,
            action="append" if several_contexts and name == "context" else "store",
        )
        for name, (metavar, purpose) in OPTIONS.items()
    ]
    actions += [
        group.add_argument(f"--{name}", action="store_const", const=True, help=purpose)
        for name, purpose in SWITCHES.items()
    ]
    if isinstance(parser, CommandParser):
        parser.fold(actions, "connection options")
