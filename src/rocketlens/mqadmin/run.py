"""``rocketlens mqadmin COMMAND ...``: finds the command, parses its options, runs it."""

import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from importlib import import_module
from typing import TYPE_CHECKING, Final

from rocketlens.errors import BadInput
from rocketlens.mqadmin.command_line import (
    COMMON,
    Given,
    Option,
    SubCommand,
    check_required,
    parse,
    usage,
)
from rocketlens.mqadmin.commands import COMMANDS
from rocketlens.terminal.connection_options import OPTIONS, SWITCHES, add_connection_options
from rocketlens.terminal.exit_code import ExitCode

if TYPE_CHECKING:
    from rocketlens.terminal.cluster_access import ClusterAccess

LAYOUTS: Final = ("4.9", "5.5")
_PURPOSE_COLUMN: Final = {"4.9": 20, "5.5": 35}
_NO_NAME_SERVER: Final = ("decodeMessageId",)
OURS: Final = (
    Option("", "layout", "4.9 or 5.5", is_ours=True),
    *(Option("", name, purpose, is_ours=True) for name, (_, purpose) in OPTIONS.items()),
    *(
        Option("", name, purpose, takes_value=False, is_ours=True)
        for name, purpose in SWITCHES.items()
    ),
)
"""Options that may stand behind the command as well as before it."""
EXAMPLES: Final = (
    ("rocketlens mqadmin help queryMsgByKey", "the options of a command"),
    (
        "rocketlens mqadmin queryMsgByKey -n 127.0.0.1:9876 -t order-paid -k ORDER-42",
        "messages with a key, printed as RocketMQ 5.5 prints them",
    ),
    (
        "rocketlens mqadmin --layout 4.9 consumerProgress -n 127.0.0.1:9876 -g billing",
        "how far a group is, as RocketMQ 4.9 prints it",
    ),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what stands before the command; what follows it has RocketMQ's own form."""
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


def run(arguments: Namespace) -> ExitCode:
    """Run one command; its errors are raised.

    :raises RocketLensError: whatever the command could not do.
    """
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


def _cluster_access(command: SubCommand, arguments: Namespace, given: Given) -> "ClusterAccess":
    from rocketlens.mqadmin.tools_file import tools_file_context
    from rocketlens.terminal.cluster_access import (
        ClusterAccess,
        chosen_context,
        cluster_access,
        writable_cluster_access,
    )

    if command.name in _NO_NAME_SERVER:
        return ClusterAccess("127.0.0.1:9876")
    options = _connection_options(arguments, given)
    context = chosen_context(options, takes_store=False, last=tools_file_context())
    acts = any(each.acts and each.name in given for each in command.options)
    if command.only_reads and not acts:
        return cluster_access(context)
    return writable_cluster_access(context)


def _connection_options(arguments: Namespace, given: Given) -> Namespace:
    """Return the options of the connection; those behind the command override those before it."""
    values = {**vars(arguments), "namesrv": given.text("n")}
    for name in OPTIONS:
        if name in given:
            values[name.replace("-", "_")] = given.text(name)
    for name in SWITCHES:
        if name in given:
            values[name] = True
    return Namespace(**values)


def _call(command: SubCommand, given: Given, layout: str, access: "ClusterAccess") -> None:
    from rocketlens.model.text.escape import printable
    from rocketlens.mqadmin.printing.form import Form, as_it_is
    from rocketlens.mqadmin.tool import Call, Tool
    from rocketlens.terminal.cluster_access import ask_cluster

    function = getattr(import_module(command.module), command.function)
    form = Form(is_5=layout == "5.5", shown=printable if sys.stdout.isatty() else as_it_is)
    full_names = given.in_namespace(access.namespace) if command.has_names else given
    # Names are full by now: with a namespace, the tool would show them without it.
    access = access._replace(namespace="")
    ask_cluster(access, lambda admin: function(Call(full_names, form, Tool(admin), access)))


def command_named(name: str) -> SubCommand:
    """Return the command of a name, in any case.

    :raises BadInput: when no command has that name.
    """
    for command in COMMANDS:
        if command.name.lower() == name.lower():
            return command
    raise BadInput(f"The sub command {name[:60]} not exist. (see rocketlens mqadmin help)")


def command_list(layout: str) -> str:
    """Return all commands with their purposes."""
    column = _PURPOSE_COLUMN[layout]
    rows = "".join(f"   {each.name:<{column}} {each.purpose}\n" for each in COMMANDS)
    return (
        f"The most commonly used mqadmin commands are:\n{rows}"
        "\nSee 'mqadmin help <command>' for more information on a specific command.\n"
    )


def usage_of(command: SubCommand, layout: str) -> str:
    """Return the help of a command."""
    return usage(command.name, command.options, is_5=layout == "5.5")


def _layout(text: str) -> str:
    if text not in LAYOUTS:
        raise BadInput(f"invalid --layout {text[:20]!r}: expected {' or '.join(LAYOUTS)}")
    return text
