"""``rocketlens mqadmin COMMAND ...``: finds the command, reads its options, runs it."""

import sys
from argparse import Namespace
from dataclasses import replace
from importlib import import_module
from typing import Final

from rocketlens.errors import BadInput
from rocketlens.model.escape import printable
from rocketlens.mqadmin.commands import COMMANDS, Command
from rocketlens.mqadmin.form import LAYOUTS, Form, as_it_is
from rocketlens.mqadmin.options import (
    COMMON,
    Given,
    Option,
    check_required,
    parse,
    usage,
)
from rocketlens.mqadmin.tools_file import tools_file_context
from rocketlens.net.event_loop import run as run_loop
from rocketlens.terminal.cluster_access import (
    ClusterAccess,
    chosen_context,
    cluster_access,
    seen_brokers_path,
)
from rocketlens.terminal.connection_options import OPTIONS, SWITCHES

_PURPOSE_COLUMN: Final = {"4.9": 20, "5.5": 35}
NO_NAME_SERVER: Final = ("decodeMessageId",)
NOWHERE: Final = ClusterAccess("127.0.0.1:9876")
OURS: Final = (
    Option("", "layout", "4.9 or 5.5", is_ours=True),
    *(Option("", name, purpose, is_ours=True) for name, (_, purpose) in OPTIONS.items()),
    *(
        Option("", name, purpose, takes_value=False, is_ours=True)
        for name, purpose in SWITCHES.items()
    ),
)
"""Options that may stand behind the command as well as before it."""


def run(arguments: Namespace) -> int:
    """Run one command; its errors are raised.

    :raises RocketLensError: whatever the command could not do.
    """
    words = list(arguments.words)
    if not words:
        sys.stdout.write(command_list(_layout(arguments.layout)))
        return 0
    name, *rest = words
    if name.lower() == "help":
        layout = _layout(arguments.layout)
        text = usage_of(command_named(rest[0]), layout) if rest else command_list(layout)
        sys.stdout.write(text)
        return 0
    command = command_named(name)
    try:
        given = parse((*COMMON, *OURS, *command.options), rest)
        layout = _layout(given.text("layout") or arguments.layout)
        if "h" in given:
            sys.stdout.write(usage_of(command, layout))
            return 0
        check_required(command.options, given)
    except BadInput as error:
        raise BadInput(
            f"{command.name}: {error} (see rocketlens mqadmin help {command.name})"
        ) from error
    connection = NOWHERE
    if command.name not in NO_NAME_SERVER:
        asked = _both(arguments, given)
        context = chosen_context(asked, takes_store=False, last=tools_file_context())
        connection = cluster_access(context)
    run_loop(_call(command, given.in_namespace(connection.namespace), layout, connection))
    return 0


def _both(arguments: Namespace, given: Given) -> Namespace:
    """Give the options of the connection, those behind the command before those in front of it."""
    values = {**vars(arguments), "namesrv": given.text("n")}
    for name in OPTIONS:
        if name in given:
            values[name.replace("-", "_")] = given.text(name)
    for name in SWITCHES:
        if name in given:
            values[name] = True
    return Namespace(**values)


async def _call(command: Command, given: Given, layout: str, connection: ClusterAccess) -> None:
    # Late: the protocol costs a tenth of a second that help need not wait for.
    from rocketlens.mqadmin.tool import Call, Tool

    function = getattr(import_module(command.module), command.function)
    form = Form(is_5=layout == "5.5", shown=_safe if sys.stdout.isatty() else as_it_is)
    # Names are full by now: with a namespace of its own the tool would show them cut.
    connection = replace(connection, namespace="")
    async with Tool(
        connection.name_servers, seen_brokers=seen_brokers_path(), **connection.client_options
    ) as tool:
        await function(Call(given, form, tool, connection))


def command_named(name: str) -> Command:
    """Find a command, whatever its case.

    :raises BadInput: when there is none of that name.
    """
    for command in COMMANDS:
        if command.name.lower() == name.lower():
            return command
    raise BadInput(f"The sub command {name[:60]} not exist. (see rocketlens mqadmin help)")


def command_list(layout: str) -> str:
    """Give all commands with their purposes."""
    column = _PURPOSE_COLUMN[layout]
    rows = "".join(f"   {each.name:<{column}} {each.purpose}\n" for each in COMMANDS)
    return (
        f"The most commonly used mqadmin commands are:\n{rows}"
        "\nSee 'mqadmin help <command>' for more information on a specific command.\n"
    )


def usage_of(command: Command, layout: str) -> str:
    """Give the help of a command."""
    return usage(command.name, command.options, is_5=layout == "5.5")


def _safe(text: str) -> str:
    return printable(text)


def _layout(text: str) -> str:
    if text not in LAYOUTS:
        raise BadInput(f"--layout {text[:20]!r}: give {' or '.join(LAYOUTS)}")
    return text
