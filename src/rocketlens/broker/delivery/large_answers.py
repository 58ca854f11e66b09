"""Bounds the memory for responses whose size grows with the broker's tables.

The size of a response is estimated before it is built. A response that exceeds the frame size is
refused. Large responses are built one at a time, and a bounded number of each connection waits. The
event loop serves other requests while a response is built.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from rocketlens import limits
from rocketlens.broker.lookup.turns import Busy
from rocketlens.errors import RocketLensError
from rocketlens.net.channel import Channel
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.declare import write_body

MAX_LARGE_ANSWERS_OF_CONNECTION: Final = 8
"""Responses of over 256 KiB that one connection can wait for."""
MAX_LARGE_ANSWERS: Final = 64
"""Responses of over 256 KiB that wait at a broker. RocketMQ: 100,000 requests of any kind."""
SMALL_ANSWER_BYTES: Final = 256 * 1024
"""Responses up to this size are built at once."""


class AnswerTooLarge(RocketLensError):
    """A response exceeds the frame size; the text has its size."""

    code = ResponseCode.SYSTEM_ERROR


def row_bytes(of_one: Any, of_none: Any) -> int:
    """Return the bytes of one row, from a response with it and one without it."""
    return len(write_body(of_one)) - len(write_body(of_none))


class LargeAnswers:
    """Builds large responses one at a time. Belongs to one event loop."""

    def __init__(self) -> None:
        self._building: Final = asyncio.Lock()
        self._waiting: Final[Counter[Channel]] = Counter()

    @asynccontextmanager
    async def turn(self, channel: Channel, least_bytes: int, advice: str) -> AsyncIterator[None]:
        """Wait until a response can be built, if it is large.

        ``least_bytes`` is the lower bound of its size; ``advice`` names a smaller request.

        :raises AnswerTooLarge: if it exceeds the frame size.
        :raises Busy: if too many wait, or the connection is closed.
        """
        if least_bytes > limits.MAX_ANSWER_FRAME_BYTES:
            raise AnswerTooLarge(
                f"the answer would have over {least_bytes} bytes, "
                f"{limits.MAX_ANSWER_FRAME_BYTES} are allowed: {advice}"
            )
        if least_bytes <= SMALL_ANSWER_BYTES:
            yield
            return
        most = MAX_LARGE_ANSWERS_OF_CONNECTION, MAX_LARGE_ANSWERS
        if self._waiting[channel] >= most[0] or self._waiting.total() >= most[1]:
            raise Busy(
                f"too many large answers wait: {most[0]} of a connection, {most[1]} of all are "
                "allowed; try again later"
            )
        self._waiting[channel] += 1
        try:
            async with self._building:
                if not channel.is_open:
                    raise Busy("the connection is closed")
                yield
        finally:
            self._waiting[channel] -= 1
            if not self._waiting[channel]:
                del self._waiting[channel]
