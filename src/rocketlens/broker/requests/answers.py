"""The handlers of requests, and what they return."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from rocketlens.broker.core import BrokerCore
from rocketlens.net.channel import Answer, Channel, Handler, Response
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand

Pending = Response | Awaitable[Response | None]
"""A response, or what returns it later."""
Handlers = Mapping[int, Callable[[BrokerCore, RemotingCommand, Channel], Answer]]
"""By code, the functions that handle a family of requests."""


def handlers_of(core: BrokerCore, *families: Handlers) -> dict[int, Handler]:
    """Return the handler of each code at one broker."""
    return {code: partial(handler, core) for family in families for code, handler in family.items()}


def failed(remark: str) -> Response:
    """Return RocketMQ's general error."""
    return Response(ResponseCode.SYSTEM_ERROR, remark=remark)


async def after(announced: "asyncio.Future[Any]", answer: Pending) -> Response | None:
    """Return ``answer`` once the name servers know a topic."""
    await asyncio.shield(announced)
    return answer if isinstance(answer, Response) else await answer


def when_saved(saved: "asyncio.Future[Any] | None", changed: str) -> Pending:
    """Return the response to a change: an error if its table could not be written.

    ``saved`` is what the table's ``put`` or ``remove`` returned; ``changed`` names the change in
    the error, "topic T" for example.
    """
    return Response() if saved is None else when_all_saved(changed, saved)


async def when_all_saved(changed: str, *saves: "asyncio.Future[Any] | None") -> Response:
    """Return the response to a change of several tables; None is one that did not change."""
    are_saved = [await asyncio.shield(saved) for saved in saves if saved is not None]
    return not_saved(changed) if False in are_saved else Response()


def not_saved(changed: str) -> Response:
    """Return the error for a change that is in memory only."""
    remark = (
        f"the change of {changed} could not be written to the disk, and a restart may undo it: free"
        " disk space, and repeat the command"
    )
    return Response(ResponseCode.SYSTEM_ERROR, remark=remark)
