"""Builds requests that send a message or a batch, and reads their responses."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import (
    Message,
    check_message,
    check_sendable,
    encoded_properties,
)
from rocketlens.client.send.send_result import STATUS_OF_CODE, SendResult
from rocketlens.client.send.unique_key import new_unique_key
from rocketlens.errors import BadInput, MessageIllegal
from rocketlens.formats import batch_body
from rocketlens.formats.body_compression import COMPRESSED, LZ4, ZLIB, ZSTD, compress
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import (
    DEFAULT_REGION,
    DEFAULT_TOPIC,
    RETRY_PREFIX,
    SYS_FLAG_PREPARED,
    is_group_topic,
)
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import messages as commands
from rocketlens.wire.declare import Command

if TYPE_CHECKING:
    from rocketlens.client.send.producer import SendingSettings

COMPRESS_OVER_BYTES: Final = 4096
"""Bodies of at least this size are compressed. RocketMQ: compressMsgBodyOverHowmuch, 4096."""
T = TypeVar("T")

BATCH_BYTES: Final = 1 << 18
"""Bytes of bodies in a batch. Brokers accept 4 MiB; smaller batches overlap with answers."""
BATCH_MESSAGES: Final = 512


def cut_batches(rows: Iterable[T], message_of: Callable[[T], Message]) -> Iterator[list[T]]:
    """Split rows of one topic into batches, in order; brokers require delayed messages alone.

    ``message_of`` returns the message of a row.
    """
    batch: list[T] = []
    size = 0
    for row in rows:
        message = message_of(row)
        is_alone = message.delay_level or not props.TIMER_NAMES.isdisjoint(message.properties)
        size += len(message.body)
        if batch and (is_alone or len(batch) == BATCH_MESSAGES or size > BATCH_BYTES):
            yield batch
            batch, size = [], len(message.body)
        batch.append(row)
        if is_alone:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


SendCommand = Command[commands.SendMessageRequest, commands.SendMessageResponse]


class Compression(Enum):
    """The compression of bodies. Brokers older than 5.0 only store them; clients decompress."""

    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"


SYS_FLAG_OF = {Compression.ZLIB: ZLIB, Compression.LZ4: LZ4, Compression.ZSTD: ZSTD}


class SendRequest(Struct, frozen=True):
    """A send, the same for each attempt except the queue. ``topic`` includes the namespace."""

    command: SendCommand
    topic: str
    body: bytes
    fields: dict[str, Any]
    sent: Message | Sequence[Message]
    msg_id: str

    def header(self, queue: MessageQueue) -> commands.SendMessageRequest:
        return commands.SendMessageRequest(
            queue_id=queue.queue_id, broker_name=queue.broker_name, **self.fields
        )


class Sending(Struct, frozen=True):
    """Builds the requests of one producer."""

    group: str
    """Including its namespace."""
    full_topic: Callable[[str], str]
    settings: "SendingSettings"

    def request(self, message: Message, sharding_key: str | None = None) -> SendRequest:
        """Return the request for one message; set its unique key unless it has one.

        :raises BadInput: if it cannot be sent.
        """
        check_message(message)
        if sharding_key is not None:
            message.put(props.SHARDING_KEY, sharding_key)
        is_reply = _is_reply(message)
        # The reply topic belongs to the cluster and has no namespace.
        topic = message.topic if is_reply else self.full_topic(message.topic)
        check_sendable(message, topic, self.settings.max_message_bytes)
        self._complete(message)
        body, sys_flag = self._body(message.body)
        if message.properties.get(props.TRANSACTION_PREPARED) == "true":
            sys_flag |= SYS_FLAG_PREPARED
        fields = self._fields(topic, sys_flag, message.flag)
        sent = dict(message.properties)
        if topic.startswith(RETRY_PREFIX):
            # A consumer's retry: brokers read these from the header.
            fields["reconsume_times"] = int(sent.pop(props.RECONSUME_TIME, "0"))
            most = sent.pop(props.MAX_RECONSUME_TIMES, None)
            if most is not None:
                fields["max_reconsume_times"] = int(most)
        fields["properties"] = encoded_properties(sent)
        key = message.properties[props.UNIQUE_KEY]
        command = commands.SEND_REPLY_MESSAGE_V2 if is_reply else commands.SEND_MESSAGE_V2
        return SendRequest(command, topic, body, fields, message, key)

    def batch_request(self, messages: tuple[Message, ...]) -> SendRequest:
        """Return the request for several messages.

        :raises BadInput: if they cannot be sent together.
        """
        if not messages:
            raise BadInput("the batch is empty")
        for each in messages:
            check_message(each)
        first = messages[0]
        topic = self.full_topic(first.topic)
        max_bytes = self.settings.max_message_bytes
        for each in messages:
            check_sendable(each, self.full_topic(each.topic), max_bytes)
            if each.topic != first.topic:
                raise MessageIllegal(f"a batch of topics {first.topic} and {each.topic}")
            if each.properties[props.WAIT] != first.properties[props.WAIT]:
                raise MessageIllegal("a batch of messages that differ in wait_store")
            if each.delay_level or props.TIMER_NAMES & each.properties.keys():
                raise MessageIllegal("a batch with a delayed message")
            if _is_reply(each):
                raise MessageIllegal("a batch with a reply to a request: send each reply alone")
            if is_group_topic(each.topic):
                raise MessageIllegal(f"a batch of a group's topic {each.topic}: send each alone")
        for each in messages:
            self._complete(each)
        body = batch_body.encode(
            batch_body.BatchMember(
                each.flag, each.body, encoded_properties(each.properties).encode()
            )
            for each in messages
        )
        if len(body) > max_bytes:
            raise MessageIllegal(f"the batch has {len(body)} bytes, {max_bytes} allowed: split it")
        fields = self._fields(topic, 0, 0)
        # Brokers append these to each member's properties, so they must not have a unique key.
        fields["properties"] = encoded_properties({props.WAIT: first.properties[props.WAIT]})
        fields["batch"] = True
        keys = ",".join(each.properties[props.UNIQUE_KEY] for each in messages)
        return SendRequest(commands.SEND_BATCH_MESSAGE, topic, body, fields, messages, keys)

    def _complete(self, message: Message) -> None:
        if props.UNIQUE_KEY not in message.properties:
            message.put(props.UNIQUE_KEY, new_unique_key())
        if self.settings.namespace:
            message.put(props.INSTANCE_ID, self.settings.namespace)

    def _body(self, body: bytes) -> tuple[bytes, int]:
        settings = self.settings
        if settings.compression is None or len(body) < settings.compress_over_bytes:
            return body, 0
        sys_flag = COMPRESSED | SYS_FLAG_OF[settings.compression]
        return compress(body, sys_flag, settings.compression_level), sys_flag

    def _fields(self, topic: str, sys_flag: int, flag: int) -> dict[str, Any]:
        return {
            "producer_group": self.group,
            "topic": topic,
            "default_topic": DEFAULT_TOPIC,
            "default_topic_queue_nums": self.settings.default_topic_queue_nums,
            "sys_flag": sys_flag,
            "born_timestamp_ms": time.time_ns() // 1_000_000,
            "flag": flag,
            "reconsume_times": 0,
            "unit_mode": False,
            "batch": False,
        }


def _is_reply(message: Message) -> bool:
    return message.properties.get(props.MESSAGE_TYPE) == props.REPLY_TYPE


def result_of(
    request: SendRequest, queue: MessageQueue, answer: RemotingCommand, shown_topic: str
) -> SendResult:
    """Return the result in a broker's response.

    :raises FieldError: if a field is missing.
    """
    fields = request.command.response.decode(answer.ext_fields)
    return SendResult(
        send_status=STATUS_OF_CODE[ResponseCode(answer.code)],
        msg_id=fields.batch_unique_key or request.msg_id,
        offset_msg_id=fields.msg_id,
        message_queue=MessageQueue(shown_topic, queue.broker_name, fields.queue_id),
        queue_offset=fields.queue_offset,
        transaction_id=fields.transaction_id,
        region_id=answer.ext_fields.get(props.MSG_REGION) or DEFAULT_REGION,
        trace_on=answer.ext_fields.get(props.TRACE_ON) != "false",
        recall_handle=fields.recall_handle,
    )
