"""What the commands that run servers share: their configuration, their log, their end."""

import logging
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from rocketlens import limits
from rocketlens.broker.config import BrokerSettings
from rocketlens.errors import BadInput, SparkUnavailable
from rocketlens.model.escape import printable
from rocketlens.terminal.output import note


def configuration_text(file: str | None) -> str:
    """Read a configuration file; nothing where none is named.

    :raises BadInput: when it is far too long, or no text.
    :raises OSError: when it cannot be read.
    """
    if file is None:
        return ""
    if "\0" in file:
        raise BadInput("the configuration's path has a zero character in it")
    with Path(file).open("rb") as opened:
        content = opened.read(limits.MAX_SERVER_CONFIG_BYTES + 1)
    if len(content) > limits.MAX_SERVER_CONFIG_BYTES:
        raise BadInput(
            f"{file} has over {limits.MAX_SERVER_CONFIG_BYTES} bytes: that is no configuration"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is not UTF-8 ({error.reason} at byte {error.start})") from None


def index_command(arguments: Namespace, settings: BrokerSettings) -> tuple[str, ...]:
    """Give the program that builds index files beside a broker; none when the broker builds them.

    :raises SparkUnavailable: when Spark was asked for and cannot be had, saying what to install.
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


class EscapingFormatter(logging.Formatter):
    """Writes each message on one line of text that a terminal shows and does not obey.

    Much of what is logged was said by others: remarks of name servers, names, addresses. The lines
    of a traceback stay lines.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line of a record."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback of an exception."""
        return printable(super().formatException(ei), keep="\n")

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Return a stack."""
        return printable(stack_info, keep="\n")


def log_to_stderr() -> None:
    """Have warnings written to stderr, a line each; stdout is for what the user asked for."""
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
