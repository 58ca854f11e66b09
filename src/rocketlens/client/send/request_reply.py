"""Requests that wait for a reply through a broker: `Producer.request`, `reply_to`.

==============  =============  ==================================================================
property        set on         meaning
==============  =============  ==================================================================
CORRELATION_ID  both           identifies the request of a reply
REPLY_TO_CLIENT both           client id of the waiting producer, to which brokers push replies
TTL             both           milliseconds that it waits
CLUSTER         the request    set by its broker; replies go to ``<cluster>_REPLY_TOPIC``
MSG_TYPE        the reply      ``reply``: it is sent with another request code (325)
==============  =============  ==================================================================

A broker pushes a reply (326) only on a connection on which the producer sent a heartbeat. Sources:
``RequestFutureHolder``, ``MessageUtil``, ``ClientRemotingProcessor``.
"""

import asyncio
import logging
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from rocketlens import limits
from rocketlens.client.send.message import Message
from rocketlens.errors import BadAnswer, BadInput, BodyError, ReplyTimeout
from rocketlens.formats.body_compression import decompress
from rocketlens.model import properties as props
from rocketlens.model.arguments import wrong_type
from rocketlens.model.message import HasBody, MessageExt
from rocketlens.model.rocketmq import reply_topic
from rocketlens.net.channel import Channel, Response
from rocketlens.net.pace import parsed
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.messages import PUSH_REPLY_MESSAGE_TO_CLIENT

logger: Final = logging.getLogger("rocketlens.client")


class ReplyMessage(HasBody, Struct, frozen=True):
    """A consumer's reply to a request. ``born_host`` is its address, as seen by the broker."""

    body: bytes
    properties: Mapping[str, str]
    flag: int
    born_timestamp_ms: int
    born_host: str


def reply_to(
    request: MessageExt,
    body: bytes | bytearray | memoryview | str,
    *,
    tags: str | None = None,
    keys: str | Collection[str] = (),
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
) -> Message:
    """Return the reply to a consumed message, for `Producer.send`.

    Any producer can send it. Its ``send`` fails if the waiting producer is gone. The other
    arguments are those of `Message`.

    :raises BadInput: if the message is not a request.
    """
    if not isinstance(request, MessageExt):
        raise wrong_type(request, "request", "the rocketlens.MessageExt that a consumer got")
    given = request.properties
    for name in (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.CLUSTER):
        if not given.get(name):
            raise BadInput(
                f"message {request.msg_id} of topic {request.topic} is not a request (it has no "
                f"{name}): reply to a message that Producer.request has sent"
            )
    topic = reply_topic(given[props.CLUSTER])
    reply = Message(topic, body, tags=tags, keys=keys, properties=properties, flag=flag)
    reply.put(props.MESSAGE_TYPE, props.REPLY_TYPE)
    for name in (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.TTL):
        if given.get(name):
            reply.put(name, given[name])
    return reply


class PendingRequest:
    """A request that waits for its reply."""

    def __init__(self, topic: str, timeout_s: float) -> None:
        self.topic: Final = topic
        self.timeout_s: Final = timeout_s
        self.correlation_id: Final = str(uuid.uuid4())
        self.reply: Final[asyncio.Future[ReplyMessage]] = asyncio.get_running_loop().create_future()

    def mark(self, message: Message, client_id: str) -> None:
        """Mark a message as this request, from the producer with this client id."""
        message.put(props.CORRELATION_ID, self.correlation_id)
        message.put(props.REPLY_TO_CLIENT, client_id)
        message.put(props.TTL, str(int(self.timeout_s * 1000)))

    async def wait(self, left_s: float) -> ReplyMessage:
        """Wait for the reply.

        :raises ReplyTimeout: if it does not arrive within ``left_s`` seconds.
        :raises BadAnswer: if its body cannot be decompressed.
        """
        try:
            async with asyncio.timeout(left_s):
                return await self.reply
        except TimeoutError:
            raise ReplyTimeout(self.topic, self.correlation_id, self.timeout_s) from None


class PendingRequests:
    """The pending requests of one producer; bound to one event loop."""

    def __init__(self) -> None:
        self._pending: Final[dict[str, PendingRequest]] = {}

    @contextmanager
    def open(self, topic: str, timeout_s: float) -> Iterator[PendingRequest]:
        """Return a new request, which accepts its reply until the end of the block."""
        pending = PendingRequest(topic, timeout_s)
        self._pending[pending.correlation_id] = pending
        try:
            yield pending
        finally:
            del self._pending[pending.correlation_id]
            if pending.reply.done() and not pending.reply.cancelled():
                # Retrieved, so that asyncio logs no error if the send failed.
                pending.reply.exception()

    async def receive(self, command: RemotingCommand, channel: Channel) -> Response:
        """Accept a reply that a broker pushes (326); a late one is dropped."""
        header = PUSH_REPLY_MESSAGE_TO_CLIENT.request.decode(command.ext_fields)
        properties = props.parse(header.properties or "")
        correlation_id = properties.get(props.CORRELATION_ID, "")
        pending = self._pending.get(correlation_id)
        if pending is None:
            shown = correlation_id[: limits.MAX_SHOWN_CHARACTERS]
            logger.warning("a reply from %s is too late for request %r", channel.address, shown)
            return Response()
        try:
            body = await parsed(lambda: decompress(command.body, header.sys_flag), command.body)
        except BodyError as error:
            request = f"request {correlation_id} to topic {pending.topic}"
            if not pending.reply.done():
                pending.reply.set_exception(BadAnswer(channel.address, request, str(error)))
            return Response()
        reply = ReplyMessage(
            body, properties, header.flag, header.born_timestamp_ms, header.born_host
        )
        if not pending.reply.done():
            pending.reply.set_result(reply)
        return Response()
