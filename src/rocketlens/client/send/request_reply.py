"""Requests as messages, whose replies come back through a broker: `Producer.request`, `reply_to`.

==============  =============  ==================================================================
property        set on         what it is
==============  =============  ==================================================================
CORRELATION_ID  both           which request a reply is for
REPLY_TO_CLIENT both           client id of the producer that waits: brokers pass replies on to it
TTL             both           milliseconds for which it waits
CLUSTER         the request    set by its broker; replies go to ``<cluster>_REPLY_TOPIC``
MSG_TYPE        the reply      ``reply``: it is sent with another code (325)
==============  =============  ==================================================================

The broker that gets a reply passes it on (326) only over a connection on which the producer has
sent a heartbeat. Sources: ``RequestFutureHolder``, ``MessageUtil``, ``ClientRemotingProcessor``.
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
    """The reply of a consumer to a request. ``born_host`` is its address, as the broker saw it."""

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
    """Return the reply to a message that a consumer got, for `Producer.send`.

    Any producer can send it. Its ``send`` fails if the one that waits is gone; the other arguments
    are those of `Message`.

    :raises BadInput: if the message is not a request: no producer waits for a reply to it.
    """
    if not isinstance(request, MessageExt):
        raise wrong_type(request, "request", "the rocketlens.MessageExt that a consumer got")
    given = request.properties
    for name in (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.CLUSTER):
        if not given.get(name):
            raise BadInput(
                f"message {request.msg_id} of topic {request.topic} is not a request (it has no "
                f"{name}): only what Producer.request has sent can be replied to"
            )
    topic = reply_topic(given[props.CLUSTER])
    reply = Message(topic, body, tags=tags, keys=keys, properties=properties, flag=flag)
    reply.put(props.MESSAGE_TYPE, props.REPLY_TYPE)
    for name in (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.TTL):
        if given.get(name):
            reply.put(name, given[name])
    return reply


class PendingRequest:
    """One request, and the reply to it once it has come."""

    def __init__(self, topic: str, timeout_s: float) -> None:
        self.topic: Final = topic
        self.timeout_s: Final = timeout_s
        self.correlation_id: Final = str(uuid.uuid4())
        self.reply: Final[asyncio.Future[ReplyMessage]] = asyncio.get_running_loop().create_future()

    def mark(self, message: Message, client_id: str) -> None:
        """Set what makes a message this request, of the producer with this client id."""
        message.put(props.CORRELATION_ID, self.correlation_id)
        message.put(props.REPLY_TO_CLIENT, client_id)
        message.put(props.TTL, str(int(self.timeout_s * 1000)))

    async def wait(self, left_s: float) -> ReplyMessage:
        """Return the reply once it has come.

        :raises ReplyTimeout: if it does not come in ``left_s`` seconds.
        :raises BadAnswer: if its body cannot be decompressed.
        """
        try:
            async with asyncio.timeout(left_s):
                return await self.reply
        except TimeoutError:
            raise ReplyTimeout(self.topic, self.correlation_id, self.timeout_s) from None


class PendingRequests:
    """The requests of one producer that wait for their replies; of one event loop."""

    def __init__(self) -> None:
        self._pending: Final[dict[str, PendingRequest]] = {}

    @contextmanager
    def begun(self, topic: str, timeout_s: float) -> Iterator[PendingRequest]:
        """Return a new request, to which replies are taken until the end of the block."""
        begun = PendingRequest(topic, timeout_s)
        self._pending[begun.correlation_id] = begun
        try:
            yield begun
        finally:
            del self._pending[begun.correlation_id]
            if begun.reply.done() and not begun.reply.cancelled():
                # It counts as looked at, also where the send failed.
                begun.reply.exception()

    async def receive(self, command: RemotingCommand, channel: Channel) -> Response:
        """Take a reply that a broker passes on (326); one that came too late is dropped."""
        header = PUSH_REPLY_MESSAGE_TO_CLIENT.request.decode(command.ext_fields)
        properties = props.parse(header.properties or "")
        correlation_id = properties.get(props.CORRELATION_ID, "")
        pending = self._pending.get(correlation_id)
        if pending is None:
            shown = correlation_id[: limits.MAX_SHOWN_CHARACTERS]
            logger.warning("a reply from %s is too late for request %r", channel.address, shown)
            return Response()
        error: BadAnswer | None = None
        body = command.body
        try:
            body = await parsed(lambda: decompress(command.body, header.sys_flag), body)
        except BodyError as found:
            request = f"request {correlation_id} to topic {pending.topic}"
            error = BadAnswer(channel.address, request, str(found))
        if not pending.reply.done():
            if error is not None:
                pending.reply.set_exception(error)
            else:
                pending.reply.set_result(
                    ReplyMessage(
                        body, properties, header.flag, header.born_timestamp_ms, header.born_host
                    )
                )
        return Response()
