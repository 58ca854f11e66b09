"""Types and responses that the handlers of requests share."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from rocketlens.broker.core import BrokerCore
from rocketlens.net.channel import Answer, Channel, Handler, Response
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand

Pending = Response | Awaitable[Response | None]
"""A response, or an awaitable of it."""
Handlers = Mapping[int, Callable[[BrokerCore, RemotingCommand, Channel], Answer]]
"""By code, the handlers of a family of requests."""


def handlers_of(core: BrokerCore, *families: Handlers) -> dict[int, Handler]:
    """Bind the handlers of ``families`` to one broker."""
    return {code: partial(handler, core) for family in families for code, handler in family.items()}


def system_error(remark: str) -> Response:
    """Return RocketMQ's general error."""
    return Response(ResponseCode.SYSTEM_ERROR, remark=remark)


async def after(announced: "asyncio.Future[Any]", answer: Pending) -> Response | None:
    """Return ``answer`` once the name servers have received a topic."""
    await asyncio.shield(announced)
    return answer if isinstance(answer, Response) else await answer


async def when_saved(changed: str, *saves: "asyncio.Future[Any] | None") -> Response:
    """Return the response to a change: an error if a table could not be written.

    ``changed`` names the change, "topic T" for example. ``saves`` are the futures of changed
    tables, None for a table without changes.
    """
    are_saved = [await asyncio.shield(saved) for saved in saves if saved is not None]
    return unsaved_error(changed) if False in are_saved else Response()


def unsaved_error(changed: str) -> Response:
    """Return the error for a change that is in memory only."""
    remark = (
        f"the change of {changed} could not be written to the disk, and a restart can undo it: free"
        " disk space, and repeat the command"
    )
    return Response(ResponseCode.SYSTEM_ERROR, remark=remark)
