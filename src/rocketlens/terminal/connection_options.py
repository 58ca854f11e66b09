"""The options of a connection to a cluster, and the variables that stand in for them.

Apart from :mod:`rocketlens.terminal.cluster_access`, which reads them, so that ``--help`` stays
quick.
"""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Final

CONTEXT_VARIABLE: Final = "ROCKETLENS_CONTEXT"
STORE_VARIABLE: Final = "ROCKETLENS_STORE"
NAME_SERVER_VARIABLES: Final = ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_ADDR")
ACCESS_KEY_VARIABLE: Final = "ROCKETLENS_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETLENS_SECRET_KEY"  # noqa: S105 - a variable's name

OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "context": (
        "NAME",
        f"a named context of the configuration file (default: ${CONTEXT_VARIABLE})",
    ),
    "namespace": ("NS", "the namespace of topics and groups"),
    "access-key": (
        "KEY",
        f"who asks, where brokers want to know (default: ${ACCESS_KEY_VARIABLE})",
    ),
    "secret-key-file": (
        "FILE",
        f"holds the secret key (default: the text in ${SECRET_KEY_VARIABLE})",
    ),
    "ca": ("FILE", "use TLS, with servers whose certificates this one signed (PEM)"),
    "cert": ("FILE", "our own certificate, for servers that want one (PEM)"),
    "cert-key": ("FILE", "the key of --cert, where it is in another file (PEM)"),
}
"""Options with a value: its name and what it is."""
SWITCHES: Final[Mapping[str, str]] = {
    "tls": "use TLS",
    "check-hostname": "use TLS, with certificates for the very host (always so without --ca)",
    "insecure": "use TLS with whoever answers, as RocketMQ's own clients do",
}


def add_connection_options(parser: ArgumentParser) -> None:
    """Add the options of a connection, but for ``--namesrv``."""
    group = parser.add_argument_group("the connection to a cluster")
    for name, (metavar, purpose) in OPTIONS.items():
        group.add_argument(f"--{name}", metavar=metavar, help=purpose)
    for name, purpose in SWITCHES.items():
        group.add_argument(f"--{name}", action="store_const", const=True, help=purpose)
