"""The ``rocketlens`` program: finds the command, runs it, and prints its errors.

A command is a module with ``add_arguments(parser)``, ``run(arguments)``, which returns an
`ExitCode`, and ``EXAMPLES``: command lines with comments. Data goes to stdout, notes and progress
to stderr.

To start fast, this module imports only the module of the given command.
"""

import itertools
import os
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from rocketlens import __version__
from rocketlens.errors import AnswerIncomplete, MessageNotFound, RocketLensError
from rocketlens.terminal.command_parser import CommandParser
from rocketlens.terminal.output import (
    SEARCH_EXIT_CODES,
    ExitCode,
    choose_colour,
    discard_stdout,
    note,
    prepare_streams,
)

DEBUG_VARIABLE: Final = "ROCKETLENS_DEBUG"

_COMMANDS: Final = {
    "find": ("cli.find", "find messages by id, key, queue position or time"),
    "show": ("cli.show", "show one message in full"),
    "story": ("cli.story", "show what became of one message, and what groups did"),
    "tail": ("cli.tail", "show the newest messages of a topic, and those that arrive"),
    "watch": ("cli.jobs.watch", "wait for a message with a key, and run a command then"),
    "export": ("cli.export", "write messages to a Parquet, Arrow, CSV or JSON file"),
    "sql": ("cli.sql.sql", "run a SELECT over messages, with DuckDB"),
    "status": ("cli.status", "show the state of a store, or of a cluster's brokers"),
    "topics": ("cli.topics", "list topics: queues, messages, times, size"),
    "groups": ("cli.groups", "list consumer groups: members, lag, retries, dead letters"),
    "mqadmin": ("mqadmin.run", "run commands of RocketMQ's own admin tool"),
    "send": ("cli.send", "send a message, or one for each line of a file"),
    "resend": ("cli.resend", "send stored messages again, as a job"),
    "dlq": ("", "dead letters of groups: see them, or have them consumed again"),
    "dlq list": ("cli.dlq", "list the groups that have dead letters"),
    "dlq show": ("cli.dlq", "show the dead letters of one group"),
    "dlq redrive": ("cli.dlq", "send the dead letters of a group to it again, as a job"),
    "job": ("", "jobs that sent messages again, and what became of those"),
    "job list": ("cli.jobs.job", "list the jobs of this user"),
    "job show": ("cli.jobs.job", "show a job, and what became of each of its messages"),
    "console": ("console.run", "search stores and clusters in a browser"),
    "mcp": ("console.mcp_server", "let an assistant ask, by the Model Context Protocol"),
    "serve": ("cli.servers.servers", "run a name server and a broker in one process"),
    "namesrv": ("cli.servers.servers", "run a name server"),
    "broker": ("cli.servers.servers", "run a broker"),
    "tap": ("cli.servers.tap", "keep copies of the stores of running brokers"),
    "index": ("", "rebuild the index with Spark, or check it"),
    "index build": ("cli.jobs.index", "build index files, and consume queues, from the log"),
    "index follow": ("cli.jobs.index", "build index files while a RocketLens broker runs"),
    "index verify": ("cli.jobs.index", "check whether log, consume queues and index agree"),
    "archive": ("", "keep messages in Delta tables, longer than brokers do"),
    "archive run": ("cli.jobs.archive", "copy messages of stores or a cluster into an archive"),
    "duplicates": ("cli.jobs.duplicates", "list unique keys that are stored more than once"),
    "context": ("", "named contexts: clusters and stores"),
    "context list": ("cli.context", "list named contexts"),
    "context add": ("cli.context", "give a cluster or a store a name"),
    "context use": ("cli.context", "choose the default context"),
    "context remove": ("cli.context", "remove a named context"),
    "completion": ("cli.completion", "print what a shell needs to complete commands"),
    "doctor": ("cli.doctor.doctor", "check this machine, and a store, for problems"),
    "demo": ("cli.demo", "show all of this on a small store that a real broker wrote"),
}
"""Module and help text of each command; a group of commands has no module.

A module of several commands has ``build_options``, ``run_build`` and ``BUILD_EXAMPLES`` for
``build``.
"""
_HEADINGS: Final = {
    "find": "search messages",
    "status": "look at a cluster or a store",
    "send": "send messages",
    "console": "run servers",
    "index": "work on whole stores",
    "context": "set up this program",
}
"""Headings above commands in the list of all commands."""
_SYNONYMS: Final = {
    "brokers": "status",
    "browse": "tail",
    "cluster": "status",
    "clusters": "status",
    "config": "context",
    "consume": "tail",
    "consumers": "groups",
    "get": "show",
    "lag": "groups",
    "list": "topics",
    "lookup": "find",
    "ls": "topics",
    "produce": "send",
    "profile": "context",
    "query": "find",
    "replay": "resend",
    "search": "find",
    "trace": "story",
    "view": "show",
    "wait": "watch",
}
"""Names that users of other tools try."""
_ENDING_OPTIONS: Final = frozenset({"-h", "--help", "-V", "--version"})
"""Options without a command: they print something and end the program."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors that users can cause are printed."""
    prepare_streams()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, for example `head`, closed the pipe. Python must not complain at exit.
        discard_stdout()
        return ExitCode.OK
    except KeyboardInterrupt:
        discard_stdout()
        return ExitCode.INTERRUPTED
    except OSError as error:
        discard_stdout()
        note(_describe(error))
        return ExitCode.FAILED
    finally:
        choose_colour("auto")
    return code


def _run(argv: Sequence[str]) -> int:
    try:
        arguments = _parse(argv)
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
        note(str(error))
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


def _parse(argv: Sequence[str]) -> Namespace:
    """Return the parsed arguments; ``arguments.run`` is the command.

    :raises SystemExit: if the help or an error was printed instead.
    """
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    elif argv[:1] == ["version"]:
        argv = ["--version"]
    if "--sort" in argv:  # argparse takes a value that starts with - for an option.
        argv = re.sub(r"(^|\0)--sort\0-", r"\1--sort=-", "\0".join(argv)).split("\0")
    parser = build_parser(argv)
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), argv))
    group = ""
    for word in words:
        names = _names_in(group)
        if not names:
            break
        if word not in names:
            parser.refuse_command(f"{group} {word}".strip(), _COMMANDS, _SYNONYMS)
        group = f"{group} {word}".strip()
    is_whole = group in _COMMANDS and not _names_in(group)
    if not is_whole and len(argv) > len(words) and argv[-1] not in _ENDING_OPTIONS:
        parser.error(f"{argv[len(words)]} must follow a command: rocketlens COMMAND ...")
    if not is_whole and len(argv) == len(words):
        # No arguments: show the help.
        argv = [*argv, "--help"]
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        arguments.parser.refuse_arguments(unknown)
    return arguments


def _names_in(group: str) -> list[str]:
    """Return the words of the commands in a group; "" is the top level."""
    names = (name.rpartition(" ") for name in _COMMANDS)
    return [word for above, _, word in names if above == group]


def build_parser(argv: Sequence[str] | None = None) -> CommandParser:
    """Return the parser for the command in ``argv``, or for all commands if there is none.

    Only the named command gets its arguments. Without ``argv`` every command does, which imports
    all of their modules.
    """
    # Options left of a command take no values, and end the program.
    names = None if argv is None else [word for word in argv if not word.startswith("-")]
    named = next((name for name in _COMMANDS if _is_named(name, names)), None)
    parser = CommandParser(
        prog="rocketlens",
        description="Find any message in a RocketMQ store directory or a running cluster.",
        epilog=f"{SEARCH_EXIT_CODES}\nRun rocketlens help COMMAND for the options of a command.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"rocketlens {__version__}")
    groups: dict[str, Any] = {"": parser.add_commands()}
    for name, (module, purpose) in _COMMANDS.items():
        if named and not f"{named} ".startswith(f"{name} "):
            continue
        group, _, word = name.rpartition(" ")
        command = groups[group].add_parser(
            word, help=purpose, description=purpose[0].upper() + purpose[1:] + "."
        )
        if not names and name in _HEADINGS:
            parser.head(_HEADINGS[name])
        if not module:
            groups[name] = command.add_commands()
        elif names is None or name == named:
            imported = vars(import_module(f"{__package__}.{module}"))
            is_alone = "add_arguments" in imported
            imported["add_arguments" if is_alone else f"{word}_options"](command)
            examples = "EXAMPLES" if is_alone else f"{word.upper()}_EXAMPLES"
            command.add_examples(imported.get(examples, ""))
            run = imported["run" if is_alone else f"run_{word}"]
            command.set_defaults(run=run, parser=command, all_commands=build_parser)
    return parser


def _is_named(name: str, names: Sequence[str] | None) -> bool:
    return (
        names is not None
        and bool(_COMMANDS[name][0])
        and names[: 1 + name.count(" ")] == name.split()
    )


def _describe(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else f"input or output failed: {reason}"


if __name__ == "__main__":
    sys.exit(main())
