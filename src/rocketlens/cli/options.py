"""Options that several commands have, and the types of their values."""

import os
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.escape import printable
from rocketlens.terminal.connection_options import STORE_VARIABLE, add_connection_options

_MAX_DIGITS: Final = 20
"""Of a number: converting very many takes long."""
_STORE_HELP: Final = f"the directory that holds commitlog/ (default: ${STORE_VARIABLE})"


def add_store(parser: ArgumentParser) -> None:
    """Add ``--store``, which `store_directory` reads."""
    default = os.environ.get(STORE_VARIABLE) or None
    parser.add_argument("--store", metavar="DIR", default=default, help=_STORE_HELP)


def store_directory(arguments: Namespace) -> Path:
    """Return the store directory that ``--store`` or the environment names.

    :raises BadInput: when neither does.
    """
    if not arguments.store:
        raise BadInput(
            "which store? Give --store DIR, the directory that holds commitlog/, or set "
            f"{STORE_VARIABLE}"
        )
    if "\0" in arguments.store:
        raise BadInput("--store has a zero character in it")
    return Path(arguments.store)


def add_source(parser: ArgumentParser) -> None:
    """Add the options that name a store or a cluster, for `rocketlens.cli.source`."""
    # Without a default, so that an option counts more than the environment.
    parser.add_argument("--store", metavar="DIR", help=_STORE_HELP)
    add_cluster(parser, "$NAMESRV_ADDR, unless a store is given")


def add_cluster(parser: ArgumentParser, default: str) -> None:
    """Add the options that name a cluster and say how to connect to it."""
    parser.add_argument(
        "--namesrv",
        metavar="ADDR",
        help="a running cluster: host:port of its name server, several separated by semicolons "
        f"(default: {default})",
    )
    add_connection_options(parser)


def add_index_geometry(parser: ArgumentParser) -> None:
    """Add the options that say what index files are built like."""
    parser.add_argument(
        "--slots",
        metavar="N",
        type=positive_number,
        help="hash slots per index file (maxHashSlotNum)",
    )
    parser.add_argument(
        "--entries", metavar="N", type=positive_number, help="entries per index file (maxIndexNum)"
    )
    parser.add_argument(
        "--tag-index",
        action=BooleanOptionalAction,
        default=None,
        help="with or without entries for tags, which RocketMQ writes since 5.5",
    )


def add_master(parser: ArgumentParser) -> None:
    """Add ``--master``, where Spark runs."""
    parser.add_argument(
        "--master",
        metavar="M",
        default="local[*]",
        help="the Spark master (default: local[*], all cores of this machine)",
    )


def positive_number(text: str) -> int:
    """Return a number from 1 to the largest of Java's int."""
    return _number(text, 1, limits.MAX_INT, "number")


def port_number(text: str) -> int:
    """Return a port; 0 is any free one."""
    return _number(text, 0, 65_535, "port")


def _number(text: str, minimum: int, maximum: int, what: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    if not is_number or not minimum <= int(text) <= maximum:
        shown = printable(text)[:40]
        raise ArgumentTypeError(f"invalid {what} {shown!r}: expected {minimum} to {maximum}")
    return int(text)
