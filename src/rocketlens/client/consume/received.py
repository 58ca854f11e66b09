"""What a pull brought, as listeners get it.

A message of the group's retry topic shows the topic that it was sent to, and no topic shows its
namespace; bodies are decompressed. As in RocketMQ's clients, checksums are the broker's business:
a message whose body does not have its checksum is delivered. Sources:
``PullAPIWrapper.processPullResult``, ``DefaultMQPushConsumerImpl.resetRetryAndNamespace``.
"""

from dataclasses import dataclass, replace
from typing import Final

from rocketlens.client.connect.namespace import without_namespace
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import decode, message_of
from rocketlens.model import properties as props
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import RETRY_PREFIX

LARGE_ANSWER_BYTES: Final = 64 * 1024
"""Answers from this size on are taken apart in a thread."""


@dataclass(frozen=True, slots=True)
class Received:
    """The messages of an answer; ``damage`` says why those behind them could not be read."""

    messages: list[MessageExt]
    damage: str | None = None


def received(body: bytes) -> Received:
    """Read the records of an answer, up to the first bytes that are no record."""
    messages: list[MessageExt] = []
    position = 0
    while position < len(body):
        try:
            record = decode(body, position, check_crc=False)
        except RecordError as error:
            return Received(messages, str(error))
        messages.append(message_of(record))
        position += record.total_size
    return Received(messages)


def as_sent(message: MessageExt, group: str, namespace: str) -> MessageExt:
    """Return a message with the topic that it was sent to, as its user knows it."""
    topic = message.topic
    if topic == RETRY_PREFIX + group:
        topic = message.properties.get(props.RETRY_TOPIC, topic)
    topic = without_namespace(namespace, topic)
    return message if topic == message.topic else replace(message, topic=topic)
