"""``rocketlens context remove``: a named context out of the user's file."""

from argparse import ArgumentParser, Namespace
from typing import Final

from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.output import note

EXAMPLES: Final = (
    ("rocketlens context remove test", "neither the cluster nor the store changes"),
    ("rocketlens context remove prod", "the default one: then there is no default"),
    ("rocketlens context remove backup", "a file with its secret stays, too"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the command takes."""
    parser.epilog = "exit codes: 0 removed, 2 an error."
    parser.add_argument("name", metavar="NAME", help="a context (rocketlens context list)")


def run(arguments: Namespace) -> ExitCode:
    """Remove a context from the file; if it was the default one, there is none.

    :raises BadInput: if there is no context of that name.
    """
    from rocketlens.terminal.contexts import (
        config_path,
        named_context,
        without_context,
        write_contexts,
    )

    named_context(arguments.name)
    path = config_path()
    write_contexts(path, without_context(path.read_text("utf-8"), arguments.name))
    note(f"removed from {path}")
    return ExitCode.OK
