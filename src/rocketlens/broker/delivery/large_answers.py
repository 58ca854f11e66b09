"""Bounds for responses whose size grows with the broker's tables.

The size of a response is estimated before it is built. One that cannot fit a frame is refused at
once. Large ones are built one at a time, in pieces between which the event loop serves other
requests, and a bounded number of each connection waits: so the memory they take is bounded.
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
"""Answers of over 256 KiB that one connection has a broker build at once, one after another."""
MAX_LARGE_ANSWERS: Final = 64
"""Answers of over 256 KiB of all connections. RocketMQ: the queue of its admin threads, 100,000."""
SMALL_ANSWER_BYTES: Final = 256 * 1024
"""Responses up to this size are built at once."""


class AnswerTooLarge(RocketLensError):
    """A response does not fit a frame; the text has its bytes."""

    code = ResponseCode.SYSTEM_ERROR


def row_bytes(of_one: Any, of_none: Any) -> int:
    """Return the bytes of one row, from a response with it and one without."""
    return len(write_body(of_one)) - len(write_body(of_none))


class LargeAnswers:
    """Builds large responses one at a time; belongs to one event loop."""

    def __init__(self) -> None:
        self._building: Final = asyncio.Lock()
        self._waiting: Final[Counter[Channel]] = Counter()

    @asynccontextmanager
    async def turn(self, channel: Channel, least_bytes: int, advice: str) -> AsyncIterator[None]:
        """Wait for the turn of a response, if it is large.

        :param least_bytes: Its size, as far as that is known before it is built.
        :param advice: Which smaller request to send instead.
        :raises AnswerTooLarge: if it cannot fit a frame.
        :raises Busy: if too many are waiting already.
        """
        if least_bytes > limits.MAX_ANSWER_FRAME_BYTES:
            raise AnswerTooLarge(
                f"the answer would have over {least_bytes} bytes, "
                f"{limits.MAX_ANSWER_FRAME_BYTES} are the most: {advice}"
            )
        if least_bytes <= SMALL_ANSWER_BYTES:
            yield
            return
        most = MAX_LARGE_ANSWERS_OF_CONNECTION, MAX_LARGE_ANSWERS
        if self._waiting[channel] >= most[0] or self._waiting.total() >= most[1]:
            problem = f"large answers wait already, {most[0]} of a connection and {most[1]} at most"
            raise Busy(f"{problem}: ask later")
        self._waiting[channel] += 1
        try:
            async with self._building:
                if not channel.is_open:
                    raise Busy("the connection is gone")
                yield
        finally:
            self._waiting[channel] -= 1
            if not self._waiting[channel]:
                del self._waiting[channel]
