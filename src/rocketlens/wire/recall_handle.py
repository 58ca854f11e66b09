"""The handle with which a producer recalls a message with a delivery time (5.x).

It is URL-safe Base64 of ``v1 TOPIC BROKER TIME UNIQUE_KEY``. A broker returns it to the producer;
TIME is when the message is due, in epoch milliseconds. Source: ``RecallMessageHandle``.
"""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final, Self

from msgspec import Struct

from rocketlens.errors import BadInput, ProtocolError
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.wire.declare import read_i64

_HANDLE_WORDS: Final = 5


class RecallHandle(Struct, frozen=True):
    """Topic, broker, due time and unique key of a waiting message."""

    topic: str
    broker_name: str
    due_ms: int
    """-1 for a text that is not a number."""
    unique_key: str

    @classmethod
    def of(cls, properties: Mapping[str, str], broker_name: str) -> Self | None:
        """Return the handle of a waiting message; None for retries."""
        topic, out_ms = properties.get(props.REAL_TOPIC), properties.get(props.TIMER_OUT_MS)
        if topic is None or out_ms is None or topic.startswith(RETRY_PREFIX):
            return None
        due_ms = read_i64(out_ms, props.TIMER_OUT_MS) + 1
        return cls(topic, broker_name, due_ms, properties[props.UNIQUE_KEY])

    def encode(self) -> str:
        clear = f"v1 {self.topic} {self.broker_name} {self.due_ms} {self.unique_key}"
        return urlsafe_b64encode(clear.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse a handle; raise BadInput with RocketMQ's message if it is invalid."""
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            fields = b64decode(padded, b"-_", validate=True).decode(errors="replace").split(" ")
        except ValueError:
            fields = []
        if len(fields) < _HANDLE_WORDS or fields[0] != "v1":
            raise BadInput("recall handle is invalid")
        _, topic, broker_name, due, unique_key, *_ = fields
        try:
            due_ms = read_i64(due, "recallHandle")
        except ProtocolError:
            due_ms = -1
        return cls(topic, broker_name, due_ms, unique_key)
