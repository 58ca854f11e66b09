"""``rocketlens mqadmin COMMAND ...``: finds the command, parses its options, runs it."""

import os
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.text.escape import printable
from rocketlens.model.text.nearest import suggestion
from rocketlens.mqadmin.command_line import (
    COMMON,
    Given,
    Option,
    SubCommand,
    check_required,
    parse,
    usage,
)
from rocketlens.mqadmin.commands import COMMANDS, ONLY_REAL
from rocketlens.net.secret_file import open_regular
from rocketlens.terminal.cluster_access import (
    ClusterAccess,
    ask_cluster,
    choose_context,
    cluster_access,
    writable_cluster_access,
)
from rocketlens.terminal.contexts import (
    OPTIONS,
    SWITCHES,
    Context,
    add_connection_options,
    check_owner,
    warn_of_readers,
)
from rocketlens.terminal.output import ExitCode

LAYOUTS: Final = ("4.9", "5.5")
_PURPOSE_COLUMN: Final = {"4.9": 20, "5.5": 35}
_NO_NAME_SERVER: Final = ("decodeMessageId", "dumpCompactionLog")
OURS: Final = (
    Option("", "layout", "4.9 or 5.5", frozenset({"ours"})),
    *(Option("", name, text, frozenset({"ours"})) for name, (_, text) in OPTIONS.items()),
    *(Option("", name, text, frozenset({"ours", "no_value"})) for name, text in SWITCHES.items()),
)
"""Options that are accepted before and after the command."""
EXAMPLES: Final = """
rocketlens mqadmin help queryMsgByKey  # the options of a command
# messages with a key, in the layout of RocketMQ 5.5
rocketlens mqadmin queryMsgByKey -n 127.0.0.1:9876 -t order-paid -k ORDER-42
# the progress of a group, in the layout of RocketMQ 4.9
rocketlens mqadmin --layout 4.9 consumerProgress -n 127.0.0.1:9876 -g billing
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = "`rocketlens mqadmin help` lists the commands, `help COMMAND` their options."
    parser.add_argument(
        "--layout",
        metavar="V",
        default="5.5",
        help="print as the tool of RocketMQ 4.9 or 5.5 does (default: 5.5)",
    )
    add_connection_options(parser)
    parser.add_argument(
        "words", metavar="COMMAND ...", nargs=REMAINDER, help="the command and its options"
    )
    parser.set_defaults(words_after=_words_after)


def _words_after(line: Sequence[str]) -> list[str]:
    """Return the words that can follow a command line: commands, or options of its command."""
    command = next((each for each in COMMANDS if each.name in line), None)
    if command is None:
        return [each.name for each in COMMANDS]
    return [
        f"-{each.short}" if each.short else f"--{each.long.strip()}" for each in command.options
    ]


def run(arguments: Namespace) -> ExitCode:
    command_line = list(arguments.words)
    if not command_line:
        sys.stdout.write(command_list(_layout(arguments.layout)))
        return ExitCode.OK
    name, *rest = command_line
    if name.lower() == "help":
        layout = _layout(arguments.layout)
        text = usage_of(command_named(rest[0]), layout) if rest else command_list(layout)
        sys.stdout.write(text)
        return ExitCode.OK
    command = command_named(name)
    try:
        given = parse((*COMMON, *OURS, *command.options), rest)
        layout = _layout(given.text("layout") or arguments.layout)
        if "h" in given:
            sys.stdout.write(usage_of(command, layout))
            return ExitCode.OK
        check_required(command.options, given)
    except BadInput as error:
        raise BadInput(
            f"{command.name}: {error} (see rocketlens mqadmin help {command.name})"
        ) from error
    _call(command, given, layout, _cluster_access(command, arguments, given))
    return ExitCode.OK


def _cluster_access(command: SubCommand, arguments: Namespace, given: Given) -> ClusterAccess:
    if command.name in _NO_NAME_SERVER:
        return ClusterAccess("127.0.0.1:9876")
    options = _connection_options(arguments, given)
    context = choose_context(options, takes_store=False, last=tools_file_context())
    acts = any("writes" in each.flags and each.name in given for each in command.options)
    if command.only_reads and not acts:
        return cluster_access(context)
    return writable_cluster_access(context)


def _connection_options(arguments: Namespace, given: Given) -> Namespace:
    """Return the connection options; those after the command override those before it."""
    values = {**vars(arguments), "namesrv": given.text("n")}
    for name in OPTIONS:
        if name in given:
            values[name.replace("-", "_")] = given.text(name)
    for name in SWITCHES:
        if name in given:
            values[name] = True
    return Namespace(**values)


def _call(command: SubCommand, given: Given, layout: str, access: ClusterAccess) -> None:
    from rocketlens.mqadmin.printing.form import Form
    from rocketlens.mqadmin.tool import Call

    function = getattr(import_module(command.module), command.function)
    form = Form(is_5=layout == "5.5", shown=printable if sys.stdout.isatty() else str)
    full_names = given.in_namespace(access.namespace) if command.namespaced else given
    # The names are full already; with a namespace, the tool would print them without it.
    access = access._replace(namespace="")
    ask_cluster(access, lambda admin: function(Call(full_names, form, admin, access)))


def command_named(name: str) -> SubCommand:
    """:raises BadInput: if no command has the name, in any case."""
    for command in COMMANDS:
        if command.name.lower() == name.lower():
            return command
    if name.lower() in map(str.lower, ONLY_REAL):
        raise BadInput(f"{name}: RocketMQ's mqadmin has it, this one does not: run it there")
    meant = suggestion(name, (each.name for each in COMMANDS)) or "."
    raise BadInput(f"The sub command {name[:60]} not exist{meant} (see rocketlens mqadmin help)")


def command_list(layout: str) -> str:
    column = _PURPOSE_COLUMN[layout]
    rows = "".join(f"   {each.name:<{column}} {each.purpose}\n" for each in COMMANDS)
    return (
        f"The most commonly used mqadmin commands are:\n{rows}"
        "\nSee 'mqadmin help <command>' for more information on a specific command.\n"
    )


def usage_of(command: SubCommand, layout: str) -> str:
    return usage(command.name, command.options, is_5=layout == "5.5")


def _layout(text: str) -> str:
    if text not in LAYOUTS:
        raise BadInput(f"invalid --layout {text[:20]!r}: expected {' or '.join(LAYOUTS)}")
    return text


_HOME_VARIABLE: Final = "ROCKETMQ_HOME"


def tools_file_context() -> Context:
    """Return the keys in RocketMQ's ``conf/tools.yml``; empty if file or keys are missing.

    :raises BadInput: if it is not YAML, or a key is not text.
    :raises OSError: if it cannot be read.
    """
    home = os.environ.get(_HOME_VARIABLE)
    if not home:
        return Context()
    path = Path(home, "conf", "tools.yml")
    try:
        with open_regular(path, f"{path}") as file:
            check_owner(file, path)
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(limits.MAX_CONTEXTS_BYTES).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return Context()
    access_key, secret_key = _keys_of(text, path)
    if not (access_key.strip() and secret_key.strip()):
        return Context()
    warn_of_readers(mode, path)
    return Context(access_key=access_key, secret_key=secret_key)


def _keys_of(text: str, path: Path) -> list[str]:
    """Return access key and secret key of a file; empty texts if they are missing."""
    import yaml

    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # The line and the rest of the error can contain the secret.
        mark = getattr(error, "problem_mark", None)
        where = f"{path}: line {mark.line + 1}" if mark else f"{path}"
        raise BadInput(f"{where} is not supported: write NAME: VALUE") from None
    keys = []
    for name in ("accessKey", "secretKey"):
        value = values.get(name) if isinstance(values, dict) else None
        if not isinstance(value, str | int | None) or isinstance(value, bool):
            raise BadInput(f"{path}: {name} is not text: write it in quotes")
        keys.append("" if value is None else str(value))
    return keys
