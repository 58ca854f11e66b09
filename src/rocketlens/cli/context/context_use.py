"""``rocketlens context use``: another default context."""

from argparse import ArgumentParser, Namespace
from typing import Final

from rocketlens.errors import BadInput
from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import note

EXAMPLES: Final = (
    ("rocketlens context use prod", "what commands use if nothing else is said"),
    ("rocketlens context use backup", "that is a store, if the context names one"),
    ("rocketlens context use test", "the one before is still there, by --context"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = "exit codes: 0 it is the default now, 2 an error."
    parser.add_argument("name", metavar="NAME", help="a context (rocketlens context list)")


def run(arguments: Namespace) -> ExitCode:
    """Write the default context into the file.

    :raises BadInput: if there is no context of that name.
    """
    from rocketlens.terminal.connection_options import CONTEXT_VARIABLE
    from rocketlens.terminal.contexts import (
        config_path,
        named_context,
        with_default,
        write_contexts,
    )

    named_context(arguments.name)
    path = config_path()
    write_contexts(path, with_default(path.read_text("utf-8"), arguments.name))
    note(f"written to {path}")
    import os

    if os.environ.get(CONTEXT_VARIABLE, arguments.name) != arguments.name:
        raise BadInput(f"{CONTEXT_VARIABLE} is set, and counts more than the file: unset it")
    return ExitCode.OK
