"""Relays requests to clients, and their replies.

These requests get a consumer's state, make a consumer handle a message now, or bring a reply to a
producer. The number that wait for replies is bounded.
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
"""Seconds in which a client must reply. RocketMQ: 10, and 5 for the progress of consumers."""
R = TypeVar("R", bound="Response | asyncio.Future[Response | None]")

MAX_RELAYS: Final = 1_000
"""Requests that a broker relayed to clients and that wait for replies. RocketMQ: no limit."""


class Relays:
    """Relayed requests that wait for replies."""

    def __init__(self) -> None:
        self.answer_timeout_s = RELAY_TIMEOUT_S
        self.collecting = 0
        """Number of requests that wait for replies of all members of a group."""
        self._waiting: Final[Counter[Channel]] = Counter()
        """Number of requests that wait for a client, by the connection that sent them."""

    def relay(
        self,
        client: Channel,
        relayed: RemotingCommand,
        command: RemotingCommand,
        channel: Channel,
        respond: Callable[[RemotingCommand | RocketLensError], R],
    ) -> R | Response | None:
        """Send ``relayed`` to a client, and answer ``command`` by ``respond`` of the reply or
        error.

        Return None if the reply comes later.
        """
        bounds = limits.MAX_RELAYS_OF_CONNECTION, MAX_RELAYS
        if self._waiting[channel] >= bounds[0] or self._waiting.total() >= bounds[1]:
            remark = (
                f"too many requests wait for clients: {bounds[0]} of a connection, {bounds[1]} of "
                "all are allowed; try again later"
            )
            return Response(ResponseCode.SYSTEM_BUSY, remark=remark)
        try:
            if client.is_behind:
                raise ConnectionLost(client.address, "it does not read")
            code, fields, body = relayed.code, relayed.ext_fields, relayed.body
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
