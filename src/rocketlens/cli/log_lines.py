"""What servers log, as safe lines on stderr."""

import logging
from typing import Any

from rocketlens.model.escape import printable


class EscapingFormatter(logging.Formatter):
    """Writes each message on one line, with whatever a terminal would obey escaped.

    Much of what is logged comes from others: remarks of name servers, names, addresses. The lines
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
    """Write warnings to stderr, one line each; stdout is for what the user asked for."""
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
