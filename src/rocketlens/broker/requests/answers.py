"""What handlers of requests return, and answers to changes of tables."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from rocketlens.net.channel import Response
from rocketlens.wire.codes import ResponseCode

Pending = Response | Awaitable[Response | None]
"""A response, or what returns it later."""


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
