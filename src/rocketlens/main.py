"""The ``rocketlens`` program: finds the command, runs it, and words what went wrong.

A command is a module with two functions: ``add_arguments(parser)`` and ``run(arguments)``, which
returns an `ExitCode`. Data goes to stdout, notes and progress to stderr.

Starting must stay cheap: only the module of the command that was asked for is imported, and that
imports what it needs when it runs.
"""

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

from rocketlens import __version__
from rocketlens.errors import AnswerIncomplete, MessageNotFound, NotAStore, RocketLensError
from rocketlens.terminal.exit_code import SEARCH_EXIT_CODES, ExitCode
from rocketlens.terminal.output import note
from rocketlens.terminal.streams import discard_stdout, prepare_streams

DEBUG_VARIABLE: Final = "ROCKETLENS_DEBUG"

_COMMANDS: Final = {
    "find": ("rocketlens.cli.find", "find messages by id, key, queue position or time"),
    "show": ("rocketlens.cli.show", "show one message in full"),
    "index": ("", "rebuild the index with Spark, or check it"),
    "index build": (
        "rocketlens.cli.index_build",
        "build index files, and consume queues, from the log",
    ),
    "index follow": (
        "rocketlens.cli.index_follow",
        "build index files while a RocketLens broker runs",
    ),
    "index verify": (
        "rocketlens.cli.index_verify",
        "check whether log, consume queues and index agree",
    ),
    "doctor": ("rocketlens.cli.doctor", "check this machine, and a store, for problems"),
    "demo": ("rocketlens.cli.demo", "show all of this on a small store that a real broker wrote"),
    "serve": ("rocketlens.cli.serve", "run a name server and a broker in one process"),
    "namesrv": ("rocketlens.cli.namesrv", "run a name server"),
    "broker": ("rocketlens.cli.broker", "run a broker"),
    "send": ("rocketlens.cli.send", "send one message"),
    "mqadmin": ("rocketlens.mqadmin.run", "run commands of RocketMQ's own admin tool"),
}
"""Each command's module and purpose; a group of commands has no module."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; nothing that a user can cause is raised."""
    prepare_streams()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, `head` for example, has had enough. Python must not complain at its exit.
        discard_stdout()
        return ExitCode.OK
    except KeyboardInterrupt:
        discard_stdout()
        return ExitCode.INTERRUPTED
    except OSError as error:
        discard_stdout()
        note(_describe(error))
        return ExitCode.FAILED
    return code


def _run(argv: Sequence[str]) -> int:
    """Run the command of a command line; turn its errors into a line and a code."""
    try:
        arguments = build_parser(argv).parse_args(argv)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else ExitCode.FAILED
    try:
        code: ExitCode = arguments.run(arguments)
    except AnswerIncomplete as error:
        note(str(error))
        return ExitCode.INCOMPLETE
    except MessageNotFound as error:
        note(str(error))
        return ExitCode.NO
    except RocketLensError as error:
        note(str(error) + _hint(error, arguments))
        return ExitCode.FAILED
    except OSError:
        raise
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        kind = type(error).__name__
        note(f"this is a bug: {kind}: {error} (set {DEBUG_VARIABLE}=1 for the traceback)")
        return ExitCode.FAILED
    return code


def build_parser(argv: Sequence[str] | None = None) -> ArgumentParser:
    """Return the parser of all commands; only the one that ``argv`` names has its arguments.

    Without ``argv`` all have them, which takes the import of every command.
    """
    # The options before a command have no values, and end the program.
    words = None if argv is None else [word for word in argv if not word.startswith("-")]
    parser = _OneLineParser(
        prog="rocketlens",
        description="Find any message in a RocketMQ store directory or a running cluster.",
        epilog=SEARCH_EXIT_CODES,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rocketlens {__version__}")
    groups: dict[str, Any] = {"": parser.add_subparsers(metavar="COMMAND", required=True)}
    for name, (module, purpose) in _COMMANDS.items():
        group, _, word = name.rpartition(" ")
        command = groups[group].add_parser(
            word,
            help=purpose,
            description=purpose[0].upper() + purpose[1:] + ".",
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if not module:
            groups[name] = command.add_subparsers(metavar="COMMAND", required=True)
        elif words is None or words[: name.count(" ") + 1] == name.split():
            imported = import_module(module)
            imported.add_arguments(command)
            command.set_defaults(run=imported.run)
    return parser


class _OneLineParser(ArgumentParser):
    """An argument parser whose complaint is one line, however long what it complains about."""

    def error(self, message: str) -> NoReturn:
        note(f"{message[:300]} (see {self.prog} --help)")
        self.exit(ExitCode.FAILED)


def _hint(error: RocketLensError, arguments: Namespace) -> str:
    """Return where the store may be instead: a directory beside or inside that looks like one."""
    given = getattr(arguments, "store", None)
    if not isinstance(error, NotAStore) or not given:
        return ""
    for other in (Path(given, "store"), Path(given).absolute().parent):
        if (other / "commitlog").is_dir():
            return f"; did you mean {other}?"
    return ""


def _describe(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else f"input or output failed: {reason}"


if __name__ == "__main__":
    sys.exit(main())
