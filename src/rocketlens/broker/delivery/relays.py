"""Requests that a broker passes on to clients, and whose answers it awaits.

They ask how a consumer does, have a consumer handle a message now, or bring a producer a reply. How
many wait is bounded for all of them together.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from rocketlens import limits
from rocketlens.errors import ConnectionLost, RocketLensError
from rocketlens.net.channel import Channel, Response
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand

RELAY_TIMEOUT_S: Final = 10.0
"""Seconds in which a consumer answers a broker. RocketMQ: 10, and 5 for its progress."""
R = TypeVar("R", bound="Response | asyncio.Future[Response | None]")

MAX_RELAYS: Final = 1_000
"""Requests that a broker passed on to consumers and that wait for their answers. RocketMQ: any."""


class Relays:
    """Requests passed on to clients, whose answers are awaited; how many is bounded."""

    def __init__(self) -> None:
        self.answer_timeout_s = RELAY_TIMEOUT_S
        """Seconds that a client has for its answer."""
        self.collecting = 0
        """Requests that wait for the answers of all members of a group."""
        self._waiting: Final[Counter[Channel]] = Counter()
        """Requests that wait for a client's answer, by the connection that sent them."""

    def relay(
        self,
        client: Channel,
        passed_on: RemotingCommand,
        command: RemotingCommand,
        channel: Channel,
        respond: Callable[[RemotingCommand | RocketLensError], R],
    ) -> R | Response | None:
        """Send a request to a client, and answer ``command`` with what ``respond`` makes of its
        answer, or of the error in place of it. None if that comes later.
        """
        bounds = limits.MAX_RELAYS_OF_CONNECTION, MAX_RELAYS
        if self._waiting[channel] >= bounds[0] or self._waiting.total() >= bounds[1]:
            limit = f"{bounds[0]} of a connection and {bounds[1]} at most: ask later"
            remark = f"requests wait for answers of clients already, {limit}"
            return Response(ResponseCode.SYSTEM_BUSY, remark=remark)
        try:
            if client.is_behind:
                raise ConnectionLost(client.address, "it does not read")
            code, fields, body = passed_on.code, passed_on.ext_fields, passed_on.body
            answer = client.request(code, fields, body, timeout_s=self.answer_timeout_s)
        except RocketLensError as error:
            return respond(error)
        self._waiting[channel] += 1

        def done(answer: asyncio.Future[RemotingCommand]) -> None:
            self._waiting[channel] -= 1
            if not self._waiting[channel]:
                del self._waiting[channel]
            try:
                result: RemotingCommand | RocketLensError = answer.result()
            except RocketLensError as error:
                result = error
            channel.respond_late(command, respond(result))

        answer.add_done_callback(done)
        channel.set_aside(command)
        return None
