"""Every command that we send or answer: one file for each family of requests.

``COMMANDS[RequestCode.PULL_MESSAGE].request.decode(command.ext_fields)`` gives the typed header.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rocketlens.wire.codes import RequestCode
from rocketlens.wire.commands import (
    admin,
    auth,
    client,
    consumer,
    namesrv,
    offset,
    pull,
    query,
    send,
    topic,
    transaction,
)
from rocketlens.wire.commands.command_table import AnyCommand, Command

_FAMILIES: Final = (
    admin,
    auth,
    client,
    consumer,
    namesrv,
    offset,
    pull,
    query,
    send,
    topic,
    transaction,
)

COMMANDS: Final[Mapping[RequestCode, AnyCommand]] = MappingProxyType(
    {
        command.code: command
        for family in _FAMILIES
        for command in vars(family).values()
        if isinstance(command, Command)
    }
)
"""By request code."""
