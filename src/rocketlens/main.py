"""The ``rocketlens`` program: its arguments, its exit codes, and how it says what went wrong.

=====  =============================================================================
code   meaning
=====  =============================================================================
0      found; done; agrees; healthy
1      not found, and everything was searched; differs; not healthy
2      usage or failure
3      incomplete: something could not be searched, whether or not something was found
130    interrupted
=====  =============================================================================

Data goes to stdout, notes and progress to stderr. Importing this module must stay cheap, and so
must ``--help``: what a command needs is imported when it runs.
"""

import os
import sys
from argparse import (
    REMAINDER,
    ArgumentParser,
    ArgumentTypeError,
    BooleanOptionalAction,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from rocketlens import __version__
from rocketlens.errors import AnswerIncomplete, MessageNotFound, NotAStore, RocketLensError
from rocketlens.model.escape import printable
from rocketlens.terminal.connection_options import add_options
from rocketlens.terminal.output import note

FOUND: Final = 0
NOT_FOUND: Final = 1
FAILED: Final = 2
INCOMPLETE: Final = 3
INTERRUPTED: Final = 130

STORE_VARIABLE: Final = "ROCKETLENS_STORE"
DEBUG_VARIABLE: Final = "ROCKETLENS_DEBUG"
HOME_VARIABLE: Final = "ROCKETLENS_HOME"

_COMMANDS: Final = {
    "find": "rocketlens.cli.find",
    "show": "rocketlens.cli.show",
    "index build": "rocketlens.cli.index_build",
    "index follow": "rocketlens.cli.index_follow",
    "index verify": "rocketlens.cli.index_verify",
    "doctor": "rocketlens.cli.doctor",
    "demo": "rocketlens.cli.demo",
    "serve": "rocketlens.cli.serve",
    "namesrv": "rocketlens.cli.namesrv",
    "broker": "rocketlens.cli.broker",
    "send": "rocketlens.cli.send",
    "mqadmin": "rocketlens.mqadmin.run",
}
_KINDS: Final = ("auto", "key", "unique-key", "offset-id", "queue-offset")
_TIMES: Final = (
    "times: 2h, 30m, 3d (that long ago), now, 2026-11-20, 2026-11-20T10:31:02.114+08:00 (without "
    "a zone:\nlocal time), 20261120103102, epoch seconds or milliseconds. A day alone is all of "
    "that day."
)
_EXITS: Final = (
    "exit codes: 0 found, 1 not found and everything was searched, 2 usage or failure,\n"
    "3 incomplete: something could not be searched, whether or not something was found."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; never raises for what a user can cause."""
    _open_closed_streams()
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, `head` for example, has had enough. Python must not complain at its exit.
        _discard_stdout()
        return FOUND
    except KeyboardInterrupt:
        _discard_stdout()
        return INTERRUPTED
    except OSError as error:
        _discard_stdout()
        note(_describe(error))
        return FAILED
    return code


def _open_closed_streams() -> None:
    """Give a process that was started without stdout or stderr (``>&-``) one that leads nowhere."""
    # In this order: the system gives the lowest number, so no file opened later becomes stdout.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _run(argv: Sequence[str] | None) -> int:
    """Parse, import the command, run it; turn its errors into a line and a code."""
    for stream in (sys.stdout, sys.stderr):
        # A locale that lacks a letter shows its number; an odd argument can be shown at all.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    parser = build_parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else FAILED
    command = arguments.command
    if command == "index":
        command = f"index {arguments.index_command}"
    try:
        code: int = import_module(_COMMANDS[command]).run(arguments)
    except AnswerIncomplete as error:
        note(str(error))
        return INCOMPLETE
    except MessageNotFound as error:
        note(str(error))
        return NOT_FOUND
    except RocketLensError as error:
        note(str(error) + _hint(error, arguments))
        return FAILED
    except (OSError, KeyboardInterrupt):
        raise
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        kind = type(error).__name__
        note(f"this is a bug: {kind}: {error} (for all of it, set {DEBUG_VARIABLE}=1)")
        return FAILED
    return code


def _hint(error: RocketLensError, arguments: Namespace) -> str:
    """Say where the store may be instead, when a directory beside or inside looks like one."""
    given = getattr(arguments, "store", None)
    if not isinstance(error, NotAStore) or not given:
        return ""
    for other in (Path(given, "store"), Path(given).absolute().parent):
        if (other / "commitlog").is_dir():
            return f"; did you mean {other}?"
    return ""


def _describe(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else f"cannot go on: {reason}"


def _discard_stdout() -> None:
    """Send what is still unwritten nowhere, so that the interpreter's own flush is quiet."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass


class _Parser(ArgumentParser):
    """An argument parser whose complaint is one line, however long what it complains about."""

    def error(self, message: str) -> NoReturn:
        note(f"{message[:300]} (see {self.prog} --help)")
        self.exit(FAILED)


def build_parser() -> ArgumentParser:
    """Give the parser of all commands and options."""
    parser = _Parser(
        prog="rocketlens",
        description="Find any message in a RocketMQ store directory or a running cluster.",
        epilog=_EXITS,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rocketlens {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_find(_command(commands, "find", "find messages by id, key, queue position or time"))
    _add_show(_command(commands, "show", "show one message in full"))
    index = _command(commands, "index", "rebuild the index with Spark, or check it")
    index_commands = index.add_subparsers(dest="index_command", metavar="COMMAND", required=True)
    _add_index_build(
        _command(index_commands, "build", "build index files, and consume queues, from the log")
    )
    _add_index_follow(
        _command(index_commands, "follow", "build index files while a RocketLens broker runs")
    )
    _add_index_verify(
        _command(index_commands, "verify", "say whether log, consume queues and index agree")
    )
    doctor = _command(commands, "doctor", "check what this machine, and a store, lack")
    _add_store(doctor)
    demo = _command(commands, "demo", "show all of this on a small store that a real broker wrote")
    # It runs other commands, and a room does not import what stands above it.
    demo.set_defaults(main=main)
    _add_serve(_command(commands, "serve", "run a name server and a broker in one process"))
    _add_namesrv(_command(commands, "namesrv", "run a name server"))
    _add_broker(_command(commands, "broker", "run a broker"))
    _add_send(_command(commands, "send", "send one message"))
    _add_mqadmin(_command(commands, "mqadmin", "ask a cluster as RocketMQ's own tool does"))
    return parser


def _command(commands: object, name: str, purpose: str) -> ArgumentParser:
    """Add a command of the given purpose to what ``add_subparsers`` gave."""
    added = commands.add_parser(  # type: ignore[attr-defined]  # its class has no public name
        name,
        help=purpose,
        description=purpose[0].upper() + purpose[1:] + ".",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    assert isinstance(added, ArgumentParser)  # noqa: S101 - says it to the type checker
    return added


def _add_store(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="DIR",
        default=os.environ.get(STORE_VARIABLE) or None,
        help=f"the directory that holds commitlog/ (default: ${STORE_VARIABLE})",
    )


def _add_source(parser: ArgumentParser) -> None:
    """Add --store without a default, so that what is given counts more than the environment."""
    parser.add_argument(
        "--store",
        metavar="DIR",
        help=f"the directory that holds commitlog/ (default: ${STORE_VARIABLE})",
    )
    parser.add_argument(
        "--namesrv",
        metavar="ADDR",
        help="ask a running cluster: host:port of its name server, several with semicolons "
        "between (default, where no store is given: $NAMESRV_ADDR)",
    )
    add_options(parser)


def _add_find(parser: ArgumentParser) -> None:
    parser.epilog = f"{_TIMES}\n{_EXITS}"
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="a key, a message id of either kind, or TOPIC/QUEUE/OFFSET; without it the topic and "
        "the times alone decide",
    )
    _add_source(parser)
    parser.add_argument(
        "--topic",
        metavar="T",
        action="append",
        help="only this topic; several with commas between or by repeating it, patterns with * "
        "(default: every topic)",
    )
    parser.add_argument(
        "--kind",
        choices=_KINDS,
        default="auto",
        help="what TEXT is (default: auto, which tries all it can be)",
    )
    parser.add_argument("--since", metavar="T", help="only messages stored at or after this time")
    parser.add_argument("--until", metavar="T", help="only messages stored at or before this time")
    parser.add_argument("--max", metavar="N", type=_positive, help="only the newest N messages")
    parser.add_argument(
        "--forget-broker",
        metavar="NAME",
        help="a broker that was seen in this cluster and is gone for good: answers are complete "
        "without it from now on",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "jsonl"),
        default="table",
        help="table (default; tab-separated when piped), one JSON object, or a JSON line a message",
    )


def _add_show(parser: ArgumentParser) -> None:
    parser.epilog = _EXITS
    parser.add_argument(
        "text", metavar="ID", help="a message id of either kind, TOPIC/QUEUE/OFFSET, or a key"
    )
    _add_source(parser)
    parser.add_argument(
        "--topic", metavar="T", action="append", help="the topic, where several have the id"
    )
    parser.add_argument(
        "--body",
        choices=("text", "json", "hex", "raw"),
        help="how to show the body (default: text, or hex where it is none); raw writes the "
        "body's bytes and nothing else",
    )


def _add_index_build(parser: ArgumentParser) -> None:
    parser.epilog = (
        "The broker must be stopped, unless --out is given. What is not given is taken from the\n"
        "store's own files, else from RocketMQ's defaults. Old files are replaced at the end, in\n"
        "one step each."
    )
    _add_store(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="write index/ and consumequeue/ here, not into the store"
    )
    parser.add_argument("--force", action="store_true", help="write also if --out is another store")
    _add_geometry(parser)
    parser.add_argument("--queues", action="store_true", help="rebuild the consume queues, too")
    parser.add_argument(
        "--queue-file-size", metavar="BYTES", type=_positive, help="size of consume queue files"
    )
    parser.add_argument(
        "--delay-levels",
        metavar="LEVELS",
        help='the broker\'s messageDelayLevel, for example "1s 5s 10s", if not the default',
    )
    _add_master(parser)


def _add_index_follow(parser: ArgumentParser) -> None:
    parser.epilog = (
        "`rocketlens serve` runs this itself. It goes on where the last builder ended, gives way\n"
        "to other programs of the machine, and ends with SIGTERM. What it has not indexed yet is\n"
        "found all the same."
    )
    _add_store(parser)
    _add_geometry(parser)
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="end when standard input does, too"
    )
    _add_master(parser)


def _add_geometry(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--slots", metavar="N", type=_positive, help="hash slots per index file (maxHashSlotNum)"
    )
    parser.add_argument(
        "--entries", metavar="N", type=_positive, help="entries per index file (maxIndexNum)"
    )
    parser.add_argument(
        "--tag-index",
        action=BooleanOptionalAction,
        default=None,
        help="with or without entries for tags, which RocketMQ writes since 5.5",
    )


def _add_index_verify(parser: ArgumentParser) -> None:
    parser.epilog = "exit codes: 0 they agree, 1 they differ, 2 usage or failure."
    _add_store(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="text for people (default), or one JSON object",
    )
    _add_master(parser)


def _add_master(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        metavar="M",
        default="local[*]",
        help="the Spark master (default: local[*], all cores of this machine)",
    )


def _add_serve(parser: ArgumentParser) -> None:
    parser.epilog = (
        "Prints one line when both answer. SIGTERM or Ctrl-C stops them cleanly. Both listen on "
        "the\nloopback interface unless broker.conf has brokerIP1 or bindAddress."
    )
    parser.add_argument(
        "--home",
        metavar="DIR",
        default=os.environ.get(HOME_VARIABLE) or None,
        help=f"where the store is kept (default: ${HOME_VARIABLE}, else ~/rocketlens)",
    )
    parser.add_argument(
        "--namesrv-port", metavar="N", type=_port, help="default: 9876; 0: any that is free"
    )
    parser.add_argument(
        "--broker-port",
        metavar="N",
        type=_port,
        help="default: listenPort of broker.conf, else 10911; 0: any. The port two below is taken, "
        "too",
    )
    _add_index_builder(parser, "auto")
    _add_configuration(parser, "broker.conf")


def _add_namesrv(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-p", "--port", metavar="N", type=_port, help="default: 9876; 0: any that is free"
    )
    _add_configuration(parser, "namesrv.conf")


def _add_index_builder(parser: ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--index-builder",
        choices=("auto", "spark", "inline"),
        default=default,
        help="who builds index files: Spark, in a process of its own, or the broker itself "
        f"(inline); auto is Spark where a JDK and PySpark are (default: {default})",
    )
    parser.add_argument(
        "--master", metavar="M", default="local[*]", help="Spark's master (default: local[*])"
    )


def _add_broker(parser: ArgumentParser) -> None:
    _add_index_builder(parser, "inline")
    _add_configuration(parser, "broker.conf")
    parser.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR",
        help="the name servers to register with, semicolons between (default: namesrvAddr of "
        "broker.conf, else $NAMESRV_ADDR)",
    )


def _add_configuration(parser: ArgumentParser, name: str) -> None:
    parser.add_argument("-c", "--config", metavar="FILE", help=f"a {name}, in RocketMQ's own keys")


def _add_send(parser: ArgumentParser) -> None:
    parser.epilog = "exit codes: 0 a broker has stored it, 2 usage or failure."
    parser.add_argument("topic", metavar="TOPIC", help="made on demand, where brokers allow it")
    parser.add_argument("body", metavar="BODY", help="the text to send; - takes it from stdin")
    parser.add_argument(
        "--namesrv",
        metavar="ADDR",
        help="host:port of the name server, several with semicolons between (default: "
        "$NAMESRV_ADDR)",
    )
    add_options(parser)
    parser.add_argument("--tags", metavar="TAG", help="its tag")
    parser.add_argument("--keys", metavar="KEYS", help="its keys, with blanks between them")
    parser.add_argument(
        "--property",
        metavar="K=V",
        action="append",
        default=[],
        dest="properties",
        help="a property of your own; as often as wanted",
    )
    parser.add_argument(
        "--queue", metavar="[BROKER/]N", help="the queue to send to (default: each in turn)"
    )
    parser.add_argument(
        "--sharding-key", metavar="KEY", help="messages with one such key go to one queue"
    )
    parser.add_argument(
        "--delay-level", metavar="N", type=_positive, default=0, help="1 (a second) to 18 (2 hours)"
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > 65_535:
        raise ArgumentTypeError(f"{printable(text)[:40]!r} is no port from 0 to 65535")
    return int(text)


def _add_mqadmin(parser: ArgumentParser) -> None:
    parser.epilog = "`rocketlens mqadmin help` lists the commands, `help COMMAND` their options."
    parser.add_argument(
        "--layout",
        metavar="V",
        default="5.5",
        help="print as the tool of RocketMQ 4.9 or 5.5 does (default: 5.5)",
    )
    add_options(parser)
    # Its options are not ours to read: they come in the forms of RocketMQ's own tool.
    parser.add_argument("words", metavar="COMMAND ...", nargs=REMAINDER, help="what to do")


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:20]) < 1 << 31:
        raise ArgumentTypeError(f"{printable(text)[:40]!r} is no number from 1 to {(1 << 31) - 1}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
