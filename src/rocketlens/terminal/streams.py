"""stdout and stderr of a process, in whatever state it was started with them."""

import os
import sys


def prepare_streams() -> None:
    """Make stdout and stderr take any text.

    In a process that was started without one (``>&-``) it leads nowhere.
    """
    # In this order: the system returns the lowest number, so no file opened later becomes stdout.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        # A locale that lacks a letter shows its number; an odd argument can be shown at all.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")


def discard_stdout() -> None:
    """Send what is still unwritten nowhere, so that the interpreter's own flush is quiet."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
