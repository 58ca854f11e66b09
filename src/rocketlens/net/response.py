"""What a handler answers to a request, and what is answered in place of a handler.

Not in `channel`, which would be over 600 lines with it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import ProtocolError, RocketLensError
from rocketlens.net.channel_group import OUT_OF_RESOURCES
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import OVERLOAD_REMARK

logger: Final = logging.getLogger("rocketlens.net")

NO_FIELDS: Final[dict[str, str]] = {}
"""Must not be changed."""


class Response(NamedTuple):
    """A response to a request; ``Response()`` is success without fields."""

    code: int = ResponseCode.SUCCESS
    ext_fields: dict[str, str] = NO_FIELDS
    body: bytes = b""
    remark: str | None = None


BUSY: Final = Response(ResponseCode.SYSTEM_BUSY, remark=OVERLOAD_REMARK)
STOPPING: Final = Response(ResponseCode.SYSTEM_ERROR, remark="the server is stopping")


def failure(
    command: RemotingCommand, error: BaseException, may_warn: Callable[[str], bool]
) -> Response:
    """Return the response to a request whose handler raised ``error``, or was cancelled.

    The text of an error of this package explains it; any other error is a defect, and logged.
    ``may_warn`` says whether to log now what may happen often.
    """
    if isinstance(error, asyncio.CancelledError):
        return STOPPING
    if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
        if may_warn("requests"):
            logger.warning("request %d cannot be handled now: %s", command.code, error)
        remark = f"the server is out of files or memory, try again: {error.strerror}"
        return Response(ResponseCode.SYSTEM_BUSY, remark=remark)
    if isinstance(error, ProtocolError):
        return Response(error.code, remark=error.remark[: limits.MAX_REMARK_CHARACTERS])
    if isinstance(error, RocketLensError):
        code = ResponseCode.SYSTEM_ERROR if error.code is None else error.code
        return Response(code, remark=str(error)[: limits.MAX_REMARK_CHARACTERS])
    logger.error("request %d could not be handled", command.code, exc_info=error)
    remark = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Response(ResponseCode.SYSTEM_ERROR, remark=remark[: limits.MAX_REMARK_CHARACTERS])


def leave(done: asyncio.Future[Response | None]) -> None:
    """Retrieve the result of a handler, so that the loop logs no failure: there is no caller."""
    if not done.cancelled():
        done.exception()
