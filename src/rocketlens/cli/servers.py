"""What the commands that run servers share: their configuration, and what builds the index."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from rocketlens import limits
from rocketlens.cli.options import add_master
from rocketlens.errors import BadInput, SparkUnavailable
from rocketlens.terminal.output import note

if TYPE_CHECKING:
    from rocketlens.broker.config import BrokerSettings


def add_configuration(parser: ArgumentParser, name: str) -> None:
    """Add ``--config``, whose file `configuration_text` reads; RocketMQ calls it ``name``."""
    parser.add_argument("-c", "--config", metavar="FILE", help=f"a {name} with RocketMQ's keys")


def add_index_builder(parser: ArgumentParser, default: str) -> None:
    """Add the options that `index_command` reads."""
    parser.add_argument(
        "--index-builder",
        choices=("auto", "spark", "inline"),
        default=default,
        help="what builds index files: Spark, in a process of its own, or the broker itself "
        f"(inline); auto means Spark if a JDK and PySpark are installed (default: {default})",
    )
    add_master(parser)


def configuration_text(file: str | None) -> str:
    """Return the text of a configuration file; empty if ``file`` is None.

    :raises BadInput: when it is too long, or not UTF-8.
    :raises OSError: when it cannot be read.
    """
    if file is None:
        return ""
    if "\0" in file:
        raise BadInput("--config has a zero character in it")
    with Path(file).open("rb") as opened:
        content = opened.read(limits.MAX_SERVER_CONFIG_BYTES + 1)
    if len(content) > limits.MAX_SERVER_CONFIG_BYTES:
        raise BadInput(
            f"{file} is not a configuration file: it has over "
            f"{limits.MAX_SERVER_CONFIG_BYTES} bytes"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is not UTF-8 ({error.reason} at byte {error.start})") from None


def index_command(arguments: Namespace, settings: "BrokerSettings") -> tuple[str, ...]:
    """Return the command line that builds index files beside a broker; empty if the broker does it.

    :raises SparkUnavailable: when Spark was asked for and is not installed.
    """
    from rocketlens.pipeline.session import check_available

    if arguments.index_builder == "inline" or not settings.store.messageIndexEnable:
        return ()
    try:
        check_available()
    except SparkUnavailable as error:
        if arguments.index_builder == "spark":
            raise
        note(f"the broker itself builds index files: {error}")
        return ()
    geometry = settings.store.geometry
    return (
        *(sys.executable, "-P", "-m", "rocketlens.main", "index", "follow"),
        *("--store", str(settings.store_path), "--master", arguments.master),
        *("--slots", str(geometry.slot_count), "--entries", str(geometry.entry_count)),
        "--until-stdin-ends",
    )
